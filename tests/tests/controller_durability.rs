//! A file that `weir controller` has accepted stays in its SQLite database after kills and disk
//! failures (docs/durability/controller-database.md).

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use sqlx::{AssertSqlSafe, Connection as _, Row as _, SqliteConnection};
use weir_base::Rng;
use weir_tests::{Host, Process, SmallDisk, TEST_TIMEOUT, wait_until, weir_binary};

const DATABASE: &str = "controller.db";

/// Starts a program, with or without a small disk.
type Start<'a> = dyn Fn(&[&str]) -> Process + Sync + 'a;

fn process(mut command: Command, arguments: &[&str]) -> Process {
    command.args(arguments);
    Process::start(&format!("weir {}", arguments.join(" ")), command)
}

struct Controller {
    process: Process,
    client: Client,
}

/// A producer with a token for all names.
#[derive(Clone)]
struct Client {
    address: String,
    token: String,
}

impl Controller {
    fn start(start: &Start<'_>, host: &Host, folder: &Path, token: &str) -> Self {
        let address = format!("127.0.0.1:{}", host.free_port());
        let database = folder.join(DATABASE);
        let database = database.to_str().expect("UTF-8");
        let arguments = ["controller", "--listen", &address, "--database", database, "--json"];
        let process = start(&arguments);
        assert_eq!(process.json_line()["ready"], true);
        Self { process, client: Client { address, token: token.to_owned() } }
    }

    fn end(mut self, signal: Signal) {
        self.process.signal(signal);
        let ended = self.process.finish();
        assert!(signal == Signal::SIGKILL || ended.status.success(), "{ended:?}");
    }
}

fn add_token(start: &Start<'_>, folder: &Path, role: &str, name: &str) -> String {
    let database = folder.join(DATABASE);
    let database = database.to_str().expect("UTF-8");
    let arguments =
        ["controller", "--database", database, "token", "add", "--role", role, "--name", name];
    start(&arguments).finish().success().output.trim().to_owned()
}

impl Client {
    /// Sends a request and returns the status of the response.
    fn send(&self, method: &str, path: &str, body: &str) -> io::Result<u16> {
        let Self { address, token } = self;
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(TEST_TIMEOUT))?;
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\
             Connection: close\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
        status.ok_or_else(|| io::Error::other(format!("no answer: {answer:?}")))
    }

    fn register(&self, name: &str) -> io::Result<u16> {
        let body = format!(
            "{{\"name\":\"{name}\",\"segments\":10,\"size_bytes\":80000,\"packet_bytes\":8200}}"
        );
        self.send("POST", "/v1/files", &body)
    }

    fn withdraw(&self, name: &str) -> io::Result<u16> {
        self.send("DELETE", &format!("/v1/files?name={name}"), "")
    }
}

#[derive(Default)]
struct Acknowledged {
    registered: BTreeSet<String>,
    withdrawn: BTreeSet<String>,
    refused: u64,
}

impl Acknowledged {
    fn add(&mut self, other: Self) {
        self.registered.extend(other.registered);
        self.withdrawn.extend(other.withdrawn);
        self.refused += other.refused;
    }

    /// Compares the acknowledged changes with the database. The controller may be running.
    fn check(&self, host: &Host, folder: &Path) {
        let found = files(host, folder);
        let lost: Vec<_> = self.registered.difference(&found).collect();
        let count = self.registered.len();
        assert!(lost.is_empty(), "{} of {count} accepted files are lost: {lost:?}", lost.len());
        let back: Vec<_> = self.withdrawn.intersection(&found).collect();
        assert!(back.is_empty(), "withdrawn files are back: {back:?}");
    }
}

/// The names of files, read from a copy of the database without the controller's code. The copy is
/// what a crash would leave.
fn files(host: &Host, folder: &Path) -> BTreeSet<String> {
    let copy = host.path("copy");
    let _ = fs::remove_dir_all(&copy);
    fs::create_dir(&copy).expect("folder");
    for name in [DATABASE.to_owned(), format!("{DATABASE}-wal")] {
        match fs::copy(folder.join(&name), copy.join(&name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            copied => drop(copied.expect("a copy")),
        }
    }
    let url = format!("sqlite://{}", copy.join(DATABASE).display());
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let mut connection = SqliteConnection::connect(&url).await.expect("a database");
        let mut rows = async |sql: &'static str| {
            let rows = sqlx::query(AssertSqlSafe(sql)).fetch_all(&mut connection).await;
            let rows = rows.expect("rows");
            rows.iter().map(|row| row.get(0)).collect::<Vec<String>>()
        };
        assert_eq!(rows("PRAGMA integrity_check").await, ["ok"]);
        rows("SELECT name FROM files").await.into_iter().collect()
    })
}

/// Registers files, and withdraws each fifth, until the controller has ended or `until` is set.
fn register_all(client: &Client, prefix: &str, until: &AtomicBool) -> Acknowledged {
    let mut answered = Acknowledged::default();
    for number in 0.. {
        let name = format!("{prefix}/{number}/v=1");
        if until.load(Ordering::Relaxed) {
            break;
        }
        match client.register(&name) {
            Ok(201) => {}
            Ok(503) => {
                answered.refused += 1;
                continue;
            }
            // Too many requests per second for one token.
            Ok(429) => continue,
            Ok(status) => panic!("{name}: {status}"),
            Err(_) => break,
        }
        if number % 5 != 0 {
            answered.registered.insert(name);
            continue;
        }
        // Without a response, the withdrawal may or may not have happened.
        match client.withdraw(&name) {
            Ok(204) => drop(answered.withdrawn.insert(name)),
            Ok(503 | 429) => drop(answered.registered.insert(name)),
            Ok(status) => panic!("{name}: {status}"),
            Err(_) => break,
        }
    }
    answered
}

/// Kills a controller at random moments while two producers register files.
fn kill_at_random_moments(runs: u32) {
    let host = Host::new();
    let start = |arguments: &[&str]| process(host.command(weir_binary()), arguments);
    let folder = host.path("");
    let token = add_token(&start, &folder, "operator", "test");
    let mut answered = Acknowledged::default();
    let mut random = Rng::from_seed(1);
    for run in 0..runs {
        let controller = Controller::start(&start, &host, &folder, &token);
        let (client, forever) = (&controller.client.clone(), AtomicBool::new(false));
        thread::scope(|scope| {
            let producers = ["a", "b"].map(|producer| {
                let (prefix, forever) = (format!("/{run}/{producer}"), &forever);
                scope.spawn(move || register_all(client, &prefix, forever))
            });
            thread::sleep(Duration::from_millis(random.below(300).into()));
            controller.end(Signal::SIGKILL);
            for producer in producers {
                answered.add(producer.join().expect("a producer"));
            }
        });
        answered.check(&host, &folder);
    }
    assert!(!answered.registered.is_empty() && !answered.withdrawn.is_empty());
    let controller = Controller::start(&start, &host, &folder, &token);
    for name in &answered.registered {
        assert_eq!(controller.client.register(name).expect("an answer"), 200, "{name}");
    }
    controller.end(Signal::SIGTERM);
}

#[test]
fn kills_lose_no_accepted_file() {
    kill_at_random_moments(10);
}

#[test]
#[ignore = "200 kills take minutes"]
fn many_kills_lose_no_accepted_file() {
    kill_at_random_moments(200);
}

/// Stops the threads of a scope on drop, even if an assertion fails.
struct EndOfScope<'a>(&'a AtomicBool);

impl Drop for EndOfScope<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The disk is full for a while, under constant requests from producers and a router.
fn full_disk(how_it_ends: Signal) {
    let host = Host::new();
    let Some(disk) = SmallDisk::mount(&host, "disk", "3m") else { return };
    let start = |arguments: &[&str]| process(disk.command(&host, weir_binary()), arguments);
    let (folder, view) = (disk.folder().to_owned(), disk.path_from_outside());
    let token = add_token(&start, &folder, "operator", "test");
    let router = add_token(&start, &folder, "router", "r");
    let controller = Controller::start(&start, &host, &folder, &token);
    let (client, is_over) = (&controller.client, AtomicBool::new(false));
    let router = Client { token: router, ..client.clone() };
    let health = || client.send("GET", "/health", "").expect("an answer");
    let mut answered = Acknowledged::default();
    thread::scope(|scope| {
        let end = EndOfScope(&is_over);
        let producers = ["a", "b", "c"].map(|producer| {
            let (prefix, is_over) = (format!("/{producer}"), &is_over);
            scope.spawn(move || register_all(client, &prefix, is_over))
        });
        // Reports of routers use another database connection than files.
        let reports = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let report = "{\"uris\":[],\"store_bytes\":1000,\"generation\":0}";
                let status = router.send("PUT", "/v1/routers/r", report).expect("an answer");
                assert!(matches!(status, 200 | 429), "{status}");
            }
        });
        for round in 0..3 {
            disk.fill();
            wait_until("the controller notices the full disk", || health() == 503);
            thread::sleep(Duration::from_millis(500));
            disk.remove_filler();
            wait_until("the controller has recovered", || health() == 200);
            // Other programs can write.
            let _ = add_token(&start, &folder, "reader", &format!("reader{round}"));
        }
        drop(end);
        reports.join().expect("the router");
        for producer in producers {
            answered.add(producer.join().expect("a producer"));
        }
    });
    assert!(answered.refused > 0, "the disk was never full");
    let late = "/late/v=1".to_owned();
    assert_eq!(client.register(&late).expect("an answer"), 201);
    answered.registered.insert(late);
    controller.end(how_it_ends);
    answered.check(&host, &view);
}

#[test]
fn full_disk_loses_no_accepted_file_at_a_kill() {
    full_disk(Signal::SIGKILL);
}

#[test]
fn full_disk_loses_no_accepted_file_at_a_stop() {
    full_disk(Signal::SIGTERM);
}

#[test]
fn two_controllers_of_one_file_lose_nothing() {
    let host = Host::new();
    let start = |arguments: &[&str]| process(host.command(weir_binary()), arguments);
    let folder = host.path("");
    let token = add_token(&start, &folder, "operator", "test");
    let controllers = [1, 2].map(|_| Controller::start(&start, &host, &folder, &token));
    let (mut answered, is_over) = (Acknowledged::default(), AtomicBool::new(false));
    thread::scope(|scope| {
        let producers = [("/a", 0), ("/b", 1)].map(|(prefix, which)| {
            let (client, is_over) = (&controllers[which].client, &is_over);
            scope.spawn(move || register_all(client, prefix, is_over))
        });
        thread::sleep(Duration::from_secs(1));
        is_over.store(true, Ordering::Relaxed);
        for producer in producers {
            answered.add(producer.join().expect("a producer"));
        }
    });
    for controller in controllers {
        controller.end(Signal::SIGKILL);
    }
    assert!(!answered.registered.is_empty());
    answered.check(&host, &folder);
}

/// A read-only file system, as the kernel makes it after a disk error.
#[test]
fn read_only_disk_is_refused_and_loses_nothing() {
    let host = Host::new();
    let Some(disk) = SmallDisk::mount(&host, "disk", "8m") else { return };
    let start = |arguments: &[&str]| process(disk.command(&host, weir_binary()), arguments);
    let (folder, view) = (disk.folder().to_owned(), disk.path_from_outside());
    let token = add_token(&start, &folder, "operator", "test");
    let controller = Controller::start(&start, &host, &folder, &token);
    let name = "/a/v=1".to_owned();
    assert_eq!(controller.client.register(&name).expect("an answer"), 201);
    controller.end(Signal::SIGTERM);
    disk.set_read_only(&host, true);
    let database = folder.join(DATABASE);
    let arguments = ["controller", "--listen", "127.0.0.1:0", "--database"];
    let arguments = [&arguments[..], &[database.to_str().expect("UTF-8")]].concat();
    let message = start(&arguments).finish().failure();
    assert!(message.to_lowercase().contains("read-only"), "{message}");
    disk.set_read_only(&host, false);
    let controller = Controller::start(&start, &host, &folder, &token);
    assert_eq!(controller.client.register(&name).expect("an answer"), 200);
    controller.end(Signal::SIGTERM);
    let answered = Acknowledged { registered: [name].into(), ..Acknowledged::default() };
    answered.check(&host, &view);
}
