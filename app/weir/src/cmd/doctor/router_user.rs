//! The user that the router runs as, and checks as this user.

use std::fs;
use std::path::{Path, PathBuf};

use nix::unistd::{Uid, User};

use super::Outcome;
use super::credentials::{CAP_DAC_OVERRIDE, CAP_NET_BIND_SERVICE, Credentials};
use super::process::Measured;
use super::unit::Unit;

/// What fixes a check that this user may not do.
pub(super) const RUN_AS_ROOT: &str = "run weir doctor as root, or as the user of the router";

/// The user of the running router, or else of the installed service, or else this one.
pub(super) struct RouterUser {
    /// A name or number, for messages.
    name: String,
    /// How the user was found, for messages.
    origin: &'static str,
    credentials: Credentials,
    /// The credentials of this process.
    own: Credentials,
    /// The running router in `/proc`, if it is another process and this one is root.
    process: Option<PathBuf>,
    /// The service, if no router runs and this process is root.
    pub(super) unit: Option<Unit>,
    /// Why files cannot be checked as this user.
    problem: Option<String>,
}

impl RouterUser {
    pub(super) fn find(process: &Measured) -> Self {
        let own = Credentials::own();
        let of_shell = Self {
            name: name_of(own.user),
            origin: "the user of this shell",
            credentials: own.clone(),
            own: own.clone(),
            process: None,
            unit: None,
            problem: None,
        };
        let is_root = own.user == 0;
        let found = match process.running().zip(process.credentials()) {
            Some((folder, credentials)) => Self {
                name: name_of(credentials.user),
                origin: "the user of the running router",
                credentials,
                process: Some(folder).filter(|_| is_root),
                ..of_shell
            },
            None if is_root && process.pid.is_none() => match Unit::find() {
                Some(unit) => Self {
                    name: unit.user.clone(),
                    origin: "the user of weir-router.service",
                    credentials: unit.credentials.clone(),
                    unit: Some(unit),
                    ..of_shell
                },
                None => of_shell,
            },
            None => of_shell,
        };
        Self { problem: found.find_problem(), ..found }
    }

    /// Why this process cannot check files as the user.
    fn find_problem(&self) -> Option<String> {
        if self.is_own() {
            return None;
        }
        if self.own.user != 0 {
            return Some(format!("files are checked as {}", name_of(self.own.user)));
        }
        let tried = self.credentials.run(&self.own, self.process.as_deref(), || ());
        tried.err().map(|error| format!("root may not become that user here: {error}"))
    }

    /// Whether checks of this process have the same result as those of the router.
    fn is_own(&self) -> bool {
        let identity = |it: &Credentials| (it.user, it.group, it.groups.clone());
        self.process.is_none() && identity(&self.credentials) == identity(&self.own)
    }

    /// Runs a check as the user of the router, if this process can do so.
    pub(super) fn run<T>(&self, check: impl Fn() -> T) -> T {
        if self.is_own() || self.problem.is_some() {
            return check();
        }
        let checked = self.credentials.run(&self.own, self.process.as_deref(), &check);
        checked.unwrap_or_else(|_| check())
    }

    /// Runs a check of ports as the user of the router.
    pub(super) fn run_bind<T>(&self, check: impl Fn() -> T) -> T {
        if self.credentials.has(CAP_NET_BIND_SERVICE) { check() } else { self.run(check) }
    }

    /// Runs a check of a file that the router writes. systemd gives the folder of the service to
    /// its user at the start, so this folder is checked as root.
    pub(super) fn run_at<T>(&self, path: &Path, check: impl Fn() -> T) -> T {
        if self.owns(path) { check() } else { self.run(check) }
    }

    /// Whether systemd will give a path to the service.
    pub(super) fn owns(&self, path: &Path) -> bool {
        self.unit.as_ref().is_some_and(|unit| unit.owns(path))
    }

    /// What lets the router use a file that it may not.
    pub(super) fn grant(&self, path: &Path) -> String {
        let (name, path) = (&self.name, path.display());
        match (&self.problem, self.own.user) {
            (None, 0) if self.credentials.has(CAP_DAC_OVERRIDE) => {
                "the file system refuses root, as NFS does with root_squash: run the router as \
                 another user"
                    .to_owned()
            }
            (None, 0) => format!("give {name} access to {path} and its folders (chown, chmod)"),
            _ => RUN_AS_ROOT.to_owned(),
        }
    }

    pub(super) fn outcome(&self) -> Outcome {
        let detail = format!("{}, {}", self.name, self.origin);
        match &self.problem {
            None => Outcome::found(detail),
            Some(problem) => Outcome::missing(format!("{detail}; {problem}"), RUN_AS_ROOT),
        }
    }
}

/// The name of a user, or the number of one without a name.
fn name_of(user: u32) -> String {
    let known = User::from_uid(Uid::from_raw(user)).ok().flatten();
    known.map_or_else(|| format!("user {user}"), |user| user.name)
}

impl Measured {
    /// The credentials of the process.
    fn credentials(&self) -> Option<Credentials> {
        Credentials::parse(&fs::read_to_string(self.file("status")).ok()?)
    }

    /// The folder of another process in `/proc`.
    fn running(&self) -> Option<PathBuf> {
        let is_other = |pid: &u32| *pid != std::process::id();
        self.pid.filter(is_other).map(|_| self.file(""))
    }
}
