//! A PostgreSQL server for tests, from the machine's package: its data is in a temporary folder,
//! and it listens on a Unix socket there. It ends with the test, even if the test is killed.

use std::fs;
use std::os::unix::fs::chown;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// A timeout for servers that hang.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);
/// A part of the socket's name; the socket is in a folder of its own.
const PORT: &str = "5432";
/// The superuser of the database.
pub(crate) const USER: &str = "weir";
/// The user that runs the server if the test runs as root (Debian's base-passwd).
pub(crate) const NOBODY: (u32, u32) = (65534, 65534);

/// Runs `$@` until its standard input ends, then stops it cleanly, and removes its data unless a
/// line came before.
const KEEPER: &str = r#"
exec 3<&0
"$@" </dev/null 3<&- &
server=$!
remove=$REMOVE
while read -r line <&3; do remove=; done
kill -INT "$server"
wait "$server"
if [ -n "$remove" ]; then rm -rf -- "$remove"; fi
"#;

/// Arguments of `unshare` for a private mount namespace that ends with the process.
pub(crate) fn private() -> &'static [&'static str] {
    if is_root() { &["--mount"] } else { &["--user", "--map-root-user", "--mount"] }
}

/// Mounts a file system with options `$0` at `$1`, and executes the rest.
const MOUNT: &str = r#"
mount -t tmpfs -o "$0" tmpfs "$1" || exit 1
shift
exec "$@"
"#;

/// A running server. Dropping it stops it and removes its data.
pub(crate) struct Postgres {
    pub(crate) folder: PathBuf,
    pub(crate) settings: Vec<String>,
    /// The size of an additional small file system.
    pub(crate) small: Option<String>,
    pub(crate) keeper: Option<(Child, ChildStdin)>,
}

/// The folder of `initdb` and `postgres`. Debian has one for each version.
pub(crate) fn programs() -> PathBuf {
    static FOUND: LazyLock<PathBuf> = LazyLock::new(|| {
        let folders = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
        let mut folders: Vec<PathBuf> = folders.map(|entry| entry.path().join("bin")).collect();
        folders.sort_by_key(|path| {
            let version = path.parent().and_then(|path| path.file_name()?.to_str()?.parse().ok());
            std::cmp::Reverse(version.unwrap_or(0_u32))
        });
        let path = std::env::var_os("PATH").unwrap_or_default();
        folders.extend(std::env::split_paths(&path));
        let has_it = |folder: &&PathBuf| folder.join("initdb").is_file();
        folders.iter().find(has_it).cloned().unwrap_or_else(|| {
            panic!(
                "these tests need a PostgreSQL server: install Debian's package `postgresql`, as \
                 `cargo xtask clients` does for root"
            )
        })
    });
    FOUND.clone()
}

pub(crate) fn is_root() -> bool {
    // The user of this process.
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

/// A command of the server, run as a user who may run it.
pub(crate) fn command(program: &str) -> Command {
    let program = programs().join(program);
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    let (user, group) = (format!("--reuid={}", NOBODY.0), format!("--regid={}", NOBODY.1));
    command.args([&*user, &*group, "--clear-groups"]).arg(program);
    command
}

impl Postgres {
    pub(crate) fn start() -> Self {
        Self::make(None)
    }

    /// A folder for a server. The keeper process removes it, because the common server is never
    /// dropped.
    pub(crate) fn new_folder() -> PathBuf {
        let folder = TempDir::with_prefix("weir-postgres-").unwrap().keep();
        if is_root() {
            chown(&folder, Some(NOBODY.0), Some(NOBODY.1)).unwrap();
        }
        folder
    }

    pub(crate) fn make(small: Option<String>) -> Self {
        let folder = Self::new_folder();
        let output = command("initdb")
            .args([
                "--auth=trust",
                "--encoding=UTF8",
                "--locale=C",
                "--no-sync",
                "--username",
                USER,
            ])
            .arg("--pgdata")
            .arg(folder.join("data"))
            .output()
            .unwrap();
        assert!(output.status.success(), "initdb: {}", String::from_utf8_lossy(&output.stderr));
        fs::create_dir(folder.join("small")).unwrap();
        let mut this = Self { folder, settings: Vec::new(), small, keeper: None };
        this.resume();
        this
    }

    /// The mount point of the small file system.
    pub(crate) fn small_disk(&self) -> PathBuf {
        self.folder.join("small")
    }

    /// Starts it again after `stop`.
    pub(crate) fn resume(&mut self) {
        let server = command("postgres");
        let mut keeper = Command::new("sh");
        keeper.args(["-c", KEEPER, "postgres"]);
        if let Some(size) = &self.small {
            let (user, group) = if is_root() { NOBODY } else { (0, 0) };
            let options = format!("size={size},uid={user},gid={group},mode=700");
            keeper.arg("unshare").args(private()).args(["sh", "-c", MOUNT, &options]);
            keeper.arg(self.small_disk());
            if !is_root() {
                // Root of a user namespace may mount, but must not run PostgreSQL.
                keeper.args(["unshare", "--user", "--map-user=1000", "--map-group=1000"]);
            }
        }
        keeper.arg(server.get_program()).args(server.get_args());
        keeper.arg("-D").arg(self.folder.join("data")).arg("-k").arg(&self.folder);
        keeper.args(["-c", "fsync=off", "-c", "max_connections=300"]);
        keeper.args(["-c", "listen_addresses=", "-c", "shared_buffers=16MB"]);
        keeper.args(["-p", PORT]);
        for setting in &self.settings {
            keeper.args(["-c", setting]);
        }
        let log = fs::File::create(self.folder.join("log")).unwrap();
        let mut child = keeper
            .env("REMOVE", &self.folder)
            .stdin(Stdio::piped())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let stdin = child.stdin.take().unwrap();
        self.keeper = Some((child, stdin));
        let end = Instant::now() + TEST_TIMEOUT;
        while self.try_sql("postgres", "SELECT 1").is_err() {
            let log = || fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            assert!(Instant::now() < end, "PostgreSQL does not start: {}", log());
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Runs a statement with the server's own client.
    pub(crate) fn try_sql(&self, database: &str, sql: &str) -> Result<String, String> {
        let output = Command::new(programs().join("psql"))
            .args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--username", USER])
            .args(["--set=ON_ERROR_STOP=1", "--dbname", database, "--command", sql, "--host"])
            .arg(&self.folder)
            .env("PGPORT", PORT)
            .output()
            .unwrap();
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }

    pub(crate) fn sql(&self, database: &str, sql: &str) -> String {
        self.try_sql(database, sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// Creates a database with these options and returns its name.
    pub(crate) fn database(&self, options: &str) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("test{}", NEXT.fetch_add(1, Ordering::Relaxed));
        self.sql("postgres", &format!("CREATE DATABASE {name} {options}"));
        name
    }

    /// The location of a database for a controller.
    pub(crate) fn url(&self, database: &str) -> String {
        let folder = self.folder.to_str().unwrap().replace('/', "%2F");
        format!("postgres://{USER}@{folder}/{database}")
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        match self.keeper.take() {
            Some((mut child, stdin)) => {
                drop(stdin);
                let _ = child.wait();
            }
            None => drop(fs::remove_dir_all(&self.folder)),
        }
    }
}
