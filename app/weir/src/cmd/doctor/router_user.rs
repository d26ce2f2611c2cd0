//! The user that the router runs as, and checks as this user.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::{fs, io};

use nix::unistd::{Uid, User};

use super::credentials::{
    CAP_DAC_OVERRIDE, CAP_NET_BIND_SERVICE, Credentials, Folders, shares_user_namespace,
};
use super::process::Measured;
use super::unit::Unit;
use super::{Finding, Outcome};

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
    /// The folders of the running router, if it is another process and this one is root.
    folders: Option<Folders>,
    /// The service, if no router runs and this process is root.
    pub(super) unit: Option<Unit>,
    /// Why files cannot be checked as this user. Set at the first failure.
    problem: OnceCell<Problem>,
}

struct Problem {
    detail: String,
    fix: &'static str,
}

impl RouterUser {
    pub(super) fn find(process: &Measured) -> Self {
        let own = Credentials::own();
        let is_root = own.user == 0;
        let of_shell = Self {
            name: name_of(own.user),
            origin: "the user of this shell",
            credentials: own.clone(),
            own,
            folders: None,
            unit: None,
            problem: OnceCell::new(),
        };
        let found = match process.running().zip(process.credentials()) {
            Some((folder, credentials)) => of_shell.with_process(&folder, credentials),
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
        found.find_problem();
        found
    }

    /// The user of the running router in `/proc`.
    fn with_process(self, process: &Path, credentials: Credentials) -> Self {
        let is_root = self.own.user == 0;
        let has_other_user_namespace = shares_user_namespace(process).is_ok_and(|shares| !shares);
        let (folders, problem) = match Folders::of_process(process) {
            Ok(Some(folders)) => (Some(folders).filter(|_| is_root), None),
            Ok(None) => (None, Some(Problem::in_container())),
            // The process of another user, which is a problem of its own.
            Err(_) if !is_root => (None, None),
            Err(error) => (None, Some(Problem::refused(&error))),
        };
        Self {
            name: name_of(credentials.user),
            origin: "the user of the running router",
            credentials: if has_other_user_namespace {
                credentials.without_capabilities()
            } else {
                credentials
            },
            folders,
            problem: problem.map_or_else(OnceCell::new, OnceCell::from),
            ..self
        }
    }

    /// Finds out whether this process can check files as the user.
    fn find_problem(&self) {
        if self.is_own() {
            return;
        }
        if self.own.user != 0 {
            self.set_problem(Problem::other_user(&self.own));
        } else if self.credentials.is_weak_root() && !self.own.is_weak_root() {
            self.set_problem(Problem::weak_root());
        }
        self.run(|| ());
    }

    /// The first problem counts.
    fn set_problem(&self, problem: Problem) {
        let _ = self.problem.set(problem);
    }

    /// Whether checks of this process have the same result as those of the router.
    fn is_own(&self) -> bool {
        let identity = |it: &Credentials| (it.is_weak_root(), it.user, it.group, it.groups.clone());
        self.folders.is_none() && identity(&self.credentials) == identity(&self.own)
    }

    /// Runs a check as the user of the router, if this process can do so. The check must not
    /// resolve names; see [`Credentials::run`].
    pub(super) fn run<T>(&self, check: impl Fn() -> T) -> T {
        if self.is_own() || self.problem.get().is_some() {
            return check();
        }
        match self.credentials.run(&self.own, self.folders.as_ref(), &check) {
            Ok(checked) => checked,
            Err(error) => {
                self.set_problem(Problem::refused(&error));
                check()
            }
        }
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
        match (self.problem.get(), self.own.user) {
            (None, 0) if self.credentials.has(CAP_DAC_OVERRIDE) => {
                "the file system refuses root, as NFS does with root_squash: run the router as \
                 another user"
                    .to_owned()
            }
            (None, 0) => format!("give {name} access to {path} and its folders (chown, chmod)"),
            (None, _) => RUN_AS_ROOT.to_owned(),
            (Some(problem), _) => problem.fix.to_owned(),
        }
    }

    /// Whether the router has a capability.
    pub(super) fn has(&self, capability: u32) -> bool {
        self.credentials.has(capability)
    }

    /// The user, for messages.
    pub(super) fn shown(&self) -> String {
        format!("{}, {}", self.name, self.origin)
    }

    /// Whether the other checks were done as the user, so this comes after them.
    pub(super) fn finding(&self) -> Finding {
        let effect = "the router may not have the permissions that are found";
        Finding::new("user", false, effect, self.outcome())
    }

    fn outcome(&self) -> Outcome {
        let shown = self.shown();
        match self.problem.get() {
            None => Outcome::found(shown),
            Some(problem) => Outcome::missing(format!("{shown}; {}", problem.detail), problem.fix),
        }
    }
}

impl Problem {
    fn other_user(own: &Credentials) -> Self {
        Self { detail: format!("files are checked as {}", name_of(own.user)), fix: RUN_AS_ROOT }
    }

    fn in_container() -> Self {
        Self {
            detail: "it runs in a container, so files are checked with the permissions and the \
                     root folder of this shell"
                .to_owned(),
            fix: "run weir doctor in the container",
        }
    }

    /// Root keeps its capabilities when it becomes root.
    fn weak_root() -> Self {
        Self {
            detail: "it has no CAP_DAC_OVERRIDE, and files are checked with it".to_owned(),
            fix: "compare the owners of the files, or run the router as another user",
        }
    }

    fn refused(error: &io::Error) -> Self {
        Self {
            detail: format!("root may not become that user here: {error}"),
            fix: "run weir doctor as the user of the router",
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_change_of_the_user_is_a_problem() {
        let own = Credentials::own();
        let user = RouterUser {
            name: "other".to_owned(),
            origin: "a user",
            // No group has this number, so the kernel refuses the list.
            credentials: Credentials::of_service(7, 7, vec![u32::MAX], "", ""),
            own: own.clone(),
            folders: None,
            unit: None,
            problem: OnceCell::new(),
        };
        assert!(user.outcome().is_found);
        assert_eq!(user.run(|| 1), 1);
        let outcome = user.outcome();
        assert!(outcome.detail.contains("may not become that user"), "{outcome:?}");
        assert_eq!((outcome.is_found, user.grant(Path::new("/a"))), (false, outcome.fix));
        assert_eq!(Credentials::own(), own);
    }
}
