//! Operations of tests on a PostgreSQL server after its start.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use crate::fixture::eventually;
use crate::postgres::{NOBODY, Postgres, USER, command, is_root, private, programs};

impl Postgres {
    /// One server for all tests of a program.
    pub(crate) fn common() -> &'static Self {
        static COMMON: OnceLock<Postgres> = OnceLock::new();
        COMMON.get_or_init(Self::start)
    }

    /// A server with a small file system in a private mount namespace; none if nothing can be
    /// mounted.
    pub(crate) fn with_small_disk(size: &str) -> Option<Self> {
        let can_mount = Command::new("unshare")
            .args(private())
            .args(["mount", "-t", "tmpfs", "tmpfs", "/mnt"])
            .output();
        if !can_mount.is_ok_and(|output| output.status.success()) {
            eprintln!("no file system can be mounted here: NOT tested with a full disk");
            return None;
        }
        Some(Self::make(Some(size.to_owned())))
    }

    /// Stops it cleanly; its data stays.
    pub(crate) fn stop(&mut self) {
        let (mut child, mut stdin) = self.keeper.take().unwrap();
        stdin.write_all(b"keep\n").unwrap();
        drop(stdin);
        child.wait().unwrap();
    }

    /// Kills it (`pg_ctl stop -m immediate`); data that is only in memory is lost.
    pub(crate) fn crash(&mut self) {
        let file = fs::read_to_string(self.folder.join("data/postmaster.pid")).unwrap();
        let process = file.lines().next().unwrap();
        assert!(Command::new("kill").args(["-QUIT", process]).status().unwrap().success());
        self.stop();
    }

    /// Runs a client program of the server.
    pub(crate) fn client(&self, program: &str, arguments: &[&str]) {
        let output = Command::new(programs().join(program))
            .args(["--username", USER, "--host"])
            .arg(&self.folder)
            .args(arguments)
            .output()
            .unwrap();
        assert!(output.status.success(), "{program}: {output:?}");
    }

    /// Writes a file next to its data.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        if is_root() {
            chown(&path, Some(NOBODY.0), Some(NOBODY.1)).unwrap();
        }
        path
    }

    /// Sets parameters for its next start.
    pub(crate) fn set(&mut self, settings: impl IntoIterator<Item = String>) {
        self.settings.extend(settings);
    }

    /// Starts a standby of this server, which from now on confirms no change that the standby does
    /// not have.
    pub(crate) fn standby(&mut self) -> Self {
        let folder = Self::new_folder();
        let output = command("pg_basebackup")
            .args(["--username", USER, "--checkpoint=fast", "--no-sync", "--write-recovery-conf"])
            .arg("--host")
            .arg(&self.folder)
            .arg("--pgdata")
            .arg(folder.join("data"))
            .output()
            .unwrap();
        assert!(output.status.success(), "pg_basebackup: {output:?}");
        let mut standby = Self { folder, settings: Vec::new(), small: None, keeper: None };
        standby.resume();
        self.sql("postgres", "ALTER SYSTEM SET synchronous_standby_names = '*'");
        self.sql("postgres", "SELECT pg_reload_conf()");
        let state = "SELECT sync_state FROM pg_stat_replication";
        eventually(|| self.sql("postgres", state) == "sync", "synchronous replication");
        standby
    }

    /// Makes a standby accept writes.
    pub(crate) fn promote(&self) {
        let mut promote = command("pg_ctl");
        let output = promote.args(["promote", "--pgdata"]).arg(self.folder.join("data")).output();
        let output = output.unwrap();
        assert!(output.status.success(), "pg_ctl promote: {output:?}");
    }
}
