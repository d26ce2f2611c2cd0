//! The database fails over to its standby, while one of two controllers is killed.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use weir_controller::{Config, DatabaseLocation, Role, Server};

use crate::fixture::{Client, FILE, FourRouters, TestServer, eventually, file};
use crate::postgres::Postgres;

/// The databases of the controller in a child process, one on each line.
const DATABASES: &str = "WEIR_FAILOVER_DATABASES";

fn config(urls: &[String]) -> Config {
    Config {
        listen: "127.0.0.1:0".parse().unwrap(),
        database: DatabaseLocation::of_list(urls).unwrap(),
        ..Config::default()
    }
}

/// A controller in a process of its own, which can be killed.
struct Process {
    child: Child,
    url: String,
}

impl Process {
    fn start(urls: &[String]) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "failover::process_of_a_controller", "--ignored", "--nocapture"])
            .env(DATABASES, urls.join("\n"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let url = lines.filter_map(|line| Some(line.split_once("url=")?.1.to_owned())).next();
        Self { child, url: url.unwrap() }
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[test]
#[ignore = "the process of a controller in another test of this file"]
fn process_of_a_controller() {
    let Ok(urls) = std::env::var(DATABASES) else { return };
    let urls: Vec<String> = urls.lines().map(str::to_owned).collect();
    let server = Server::start(config(&urls)).unwrap();
    let mut output = std::io::stdout();
    writeln!(output, "\nurl={}", server.url()).unwrap();
    output.flush().unwrap();
    // Until the parent ends.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

/// Registers files until a flag is set. Returns the confirmed ones.
fn register_until(stop: &AtomicBool, producer: &Client) -> BTreeSet<String> {
    let mut confirmed = BTreeSet::new();
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let name = format!("/many/{number}/v=1");
        match producer.post("/v1/files", &file(&name, 10)).status {
            200 | 201 => drop(confirmed.insert(name)),
            503 => thread::sleep(std::time::Duration::from_millis(50)),
            status => panic!("{name}: {status}"),
        }
    }
    confirmed
}

#[test]
fn promoted_standby_has_everything_confirmed() {
    let mut primary = Postgres::start();
    let database = primary.database("");
    let mut standby = primary.standby();
    let urls = [primary.url(&database), standby.url(&database)];
    let mut one = Process::start(&urls);
    let place = DatabaseLocation::of_list(&urls).unwrap();
    let change = |config: &mut Config| config.database = place.clone();
    let other = TestServer::on(urls[0].clone(), tempfile::tempdir().unwrap(), change);
    let network = FourRouters::join(&other);
    assert_eq!(network.router("c").forward("c", FILE).json()["decision"], "planned");
    let at_one = Client::new(&one.url, &network.operator.token);
    eventually(
        || at_one.get("/health").json()["others"].as_array().is_some_and(|all| all.len() == 1),
        "the controllers know each other",
    );

    // Files are registered at both while the primary, and one controller, are killed.
    let stop = AtomicBool::new(false);
    let confirmed = thread::scope(|scope| {
        let operator = other.client(Role::Operator, "bulk");
        let registering = scope.spawn(|| {
            let operator = operator;
            register_until(&stop, &operator)
        });
        let files = || network.operator.get("/v1/files").json().as_array().map_or(0, Vec::len);
        eventually(|| files() > 10, "some files");
        primary.crash();
        one.kill();
        // Routers keep their configuration.
        let configuration = network.router("c").configuration("c", 0, 0).json();
        assert_eq!(configuration["distributions"][0]["object"], FILE);
        assert_eq!(network.router("c").forward("c", FILE).json()["decision"], "planned");
        eventually(|| network.operator.get("/health").status == 503, "a report of the problem");
        standby.promote();
        eventually(|| network.operator.get("/health").status == 200, "the end of the outage");
        let before = files();
        eventually(|| files() > before + 10, "more files");
        stop.store(true, Ordering::Relaxed);
        registering.join().unwrap()
    });
    let names = standby.sql(&database, "SELECT name FROM files");
    let found: BTreeSet<String> = names.lines().map(str::to_owned).collect();
    let lost: Vec<_> = confirmed.difference(&found).collect();
    assert!(lost.is_empty() && found.contains(FILE), "of {} files: {lost:?}", confirmed.len());

    // Routers get new plans.
    assert_eq!(network.producer.post("/v1/files", &file("/file/v=2", 9000)).status, 201);
    network.report();
    assert_eq!(network.router("c").forward("c", "/file/v=2").json()["decision"], "planned");
    let plans = || standby.sql(&database, "SELECT object FROM plans");
    eventually(|| plans().contains("/file/v=2"), "the new plan in the database");

    // The old primary returns, and does not know that it was replaced.
    primary.resume();
    primary.sql("postgres", "ALTER SYSTEM SET synchronous_standby_names = ''");
    primary.sql("postgres", "SELECT pg_reload_conf()");
    let late = TestServer::on(urls[0].clone(), tempfile::tempdir().unwrap(), change);
    let files = network.operator.at(&late).get("/v1/files").text;
    assert!(files.contains("/file/v=2"), "{files}");
    standby.stop();
}

#[test]
fn no_server_that_accepts_writes_is_an_error() {
    let mut primary = Postgres::start();
    let database = primary.database("");
    let standby = primary.standby();
    let urls = [primary.url(&database), standby.url(&database)];
    primary.stop();
    let error = Server::start(config(&urls)).err().expect("no primary").to_string();
    assert!(error.contains("no server of the database accepts writes"), "{error}");
    assert!(error.contains("accepts no writes") && error.contains("promote a standby"), "{error}");
}
