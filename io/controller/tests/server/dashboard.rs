//! The dashboard as a browser shows it: headless Chromium loads the page of a real controller, and
//! what is looked at is the document after its script has run.

use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weir_controller::Role;

use crate::bench::{Bench, Client, FILE, FILE_SEGMENTS, Square, eventually, file, report};

/// A bound for a browser that hangs.
const PATIENCE: Duration = Duration::from_secs(120);
/// Time that the page is given, on a clock that stands still while it waits for answers: three
/// looks at the controller.
const PAGE_MS: u32 = 5000;
/// What the browser writes before each line of the page's console, errors of scripts among them.
const CONSOLE: &str = "CONSOLE";

/// Debian's browser, or nothing, said where it is seen though the test passes.
fn chromium() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join("chromium"));
    let found = found.into_iter().find(|program| program.is_file());
    if found.is_none() {
        let words = "no program `chromium` (Debian's package of that name): the dashboard is NOT \
                     tested\n";
        let _ = std::io::stderr().write_all(words.as_bytes());
    }
    found
}

/// A browser, and a folder for what it keeps.
struct Browser {
    program: PathBuf,
    folder: tempfile::TempDir,
}

impl Browser {
    fn find() -> Option<Self> {
        let program = chromium()?;
        Some(Self { program, folder: tempfile::tempdir().unwrap() })
    }

    /// Loads a page and returns what the browser prints, and what it says of errors.
    fn run(&self, url: &str, arguments: &[&str]) -> (String, String) {
        let profile = format!("--user-data-dir={}", self.folder.path().display());
        let budget = format!("--virtual-time-budget={PAGE_MS}");
        let mut browser = Command::new(&self.program)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
            .args(["--no-first-run", "--enable-logging=stderr", "--lang=en"])
            .args([&*profile, &*budget])
            .args(arguments)
            .arg(url)
            .env("HOME", self.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut output, mut errors) = (browser.stdout.take().unwrap(), String::new());
        let mut error_output = browser.stderr.take().unwrap();
        let reader = std::thread::spawn(move || {
            let mut text = String::new();
            output.read_to_string(&mut text).unwrap();
            text
        });
        let error_reader = std::thread::spawn(move || {
            let mut octets = Vec::new();
            error_output.read_to_end(&mut octets).unwrap();
            String::from_utf8_lossy(&octets).into_owned()
        });
        let end = Instant::now() + PATIENCE;
        let status = loop {
            match browser.try_wait().unwrap() {
                Some(status) => break Some(status),
                None if Instant::now() > end => {
                    browser.kill().unwrap();
                    browser.wait().unwrap();
                    break None;
                }
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        let text = reader.join().unwrap();
        errors += &error_reader.join().unwrap();
        assert!(status.is_some_and(|status| status.success()), "{status:?}: {errors}");
        (text, errors)
    }

    /// The document after its script has run. An error of the script fails the test.
    fn document(&self, url: &str) -> String {
        let (document, errors) = self.run(url, &["--dump-dom"]);
        let lines: Vec<&str> = errors.lines().filter(|line| line.contains(CONSOLE)).collect();
        assert!(lines.is_empty(), "{lines:#?}");
        document
    }

    /// A picture for people, where they want one.
    fn picture(&self, url: &str, name: &str) {
        if let Some(folder) = std::env::var_os("WEIR_SCREENSHOTS") {
            let path = PathBuf::from(folder).join(name);
            let screenshot = format!("--screenshot={}", path.display());
            self.run(url, &[&screenshot, "--window-size=1280,1700", "--hide-scrollbars"]);
        }
    }
}

/// A controller that takes nobody for gone while a browser starts.
fn patient() -> Bench {
    Bench::with(|config| config.controller.router_timeout_ns = 3_600_000_000_000)
}

/// The address of the dashboard for somebody with a token.
fn page(client: &Client) -> String {
    format!("{}/#token={}", client.url, client.token)
}

/// What is inside the element with this `id`, up to the first end of its kind.
fn inside<'a>(document: &'a str, id: &str, kind: &str) -> &'a str {
    let id = format!("id=\"{id}\"");
    let (_, after) = document.split_once(&id).unwrap_or_else(|| panic!("no {id}: {document}"));
    let (_, after) = after.split_once('>').unwrap();
    after.split_once(&format!("</{kind}>")).unwrap().0
}

fn count(text: &str, what: &str) -> usize {
    text.matches(what).count()
}

/// Routers report loads, one of them a problem, and those that keep parts tell that they hold
/// theirs, but for one that has half of it.
fn fill(square: &Square) -> Value {
    assert_eq!(square.router("c").forward("c", FILE).json()["decision"], "planned");
    let configuration = square.router("c").configuration("c", 0, 0).json();
    for (name, load_bps, rate_bps) in [("a", 940_000_000, 1_000_000_000), ("b", 2_500_000, 0)] {
        let mut told = report(name, 66_000_000, &["c", "p"], &[]);
        told["faces"][0]["load_bps"] = json!(load_bps);
        if rate_bps > 0 {
            told["faces"][0]["rate_bps"] = json!(rate_bps);
        }
        if name == "b" {
            // What routers say is shown as they say it.
            told["problems"] = json!([{
                "generation": 7, "part": "faces",
                "text": "no face to dev://<img src=x onerror=alert(1)>: unknown scheme",
            }]);
        }
        assert_eq!(square.router(name).report(name, &told).status, 200);
    }
    let parts = configuration["distributions"][0]["parts"].clone();
    for (at, part) in parts.as_array().unwrap().iter().enumerate() {
        let router = part["router"].as_str().unwrap();
        let (first, last) = (part["first"].as_u64().unwrap(), part["last"].as_u64().unwrap());
        let held = if at == 0 { last } else { first + (last - first) / 2 };
        let change = json!([{"object": FILE, "tier": "memory", "added": [[first, held]]}]);
        assert_eq!(square.router(router).update(router, 1, 1, change).status, 200);
    }
    parts
}

#[test]
fn dashboard_shows_network_and_files() {
    let Some(browser) = Browser::find() else { return };
    let bench = patient();
    let square = Square::join(&bench);
    let parts = fill(&square);
    let events = || square.operator.get("/v1/events").text;
    eventually(|| events().contains("plan made"), "the plan among the events");
    let document = browser.document(&page(&square.operator));
    browser.picture(&page(&square.operator), "dashboard.png");

    // The network: four routers, four links, and what two of them carry.
    let network = inside(&document, "network", "svg");
    assert_eq!((count(network, "<circle"), count(network, "<line")), (4, 4), "{network}");
    for name in ["a", "b", "c", "p"] {
        assert!(network.contains(&format!(">{name}</text>")), "{name}: {network}");
    }
    let classes = ["full", "used", "idle"].map(|kind| {
        network.split("<line").filter(|line| line.contains(&format!("class=\"{kind}\""))).count()
    });
    assert_eq!(classes, [1, 1, 2], "{network}");
    assert!(network.contains(">940 Mbit/s of 1.0 Gbit/s</text>"), "{network}");
    assert!(network.contains(">2.5 Mbit/s</text>"), "{network}");
    assert!(network.contains("class=\"ill\""), "the router with a problem: {network}");

    // The file: a bar for each router that keeps a part, with what it holds.
    let files = inside(&document, "transfers", "section");
    let parts = parts.as_array().unwrap();
    assert!(parts.len() > 1 && files.contains(FILE), "{files}");
    assert_eq!(count(files, "class=\"bar\""), parts.len(), "{files}");
    assert_eq!(count(files, "class=\"held\""), parts.len(), "{files}");
    assert_eq!(count(files, "class=\"planned\""), parts.len(), "{files}");
    assert!(files.contains(&format!("{FILE_SEGMENTS} segments, 68.7 MiB; read at c")), "{files}");
    // The transfer: half of the second part is under way.
    assert!(files.contains("class=\"under-way\">being fetched: "), "{files}");
    assert!(files.contains(&format!(" of {FILE_SEGMENTS} segments")), "{files}");

    let events = inside(&document, "events", "tbody");
    for action in ["router found", "file added", "plan made", "token added"] {
        assert!(events.contains(&format!("<td>{action}</td>")), "{action}: {events}");
    }
    // Problems come first, and nothing in them is taken for HTML.
    let warnings = inside(&document, "warnings", "ul");
    assert!(warnings.contains("Router b, faces of configuration 7: no face to"), "{warnings}");
    assert!(!document.contains("<img"), "{warnings}");
    assert!(document.find("id=\"warnings\"") < document.find("id=\"network\""));
    assert!(!document.contains("id=\"attention\" role=\"alert\" hidden"));
    assert_eq!(count(inside(&document, "routers", "tbody"), "<tr"), 4);
    let own = square.operator.token.as_str();
    assert!(!document.contains(own), "the token is not shown");
}

#[test]
fn dashboard_shows_complete_and_empty_states() {
    let Some(browser) = Browser::find() else { return };
    let bench = patient();
    let operator = bench.client(Role::Operator, "o");
    let document = browser.document(&page(&operator));
    assert!(document.contains("0 routers, 0 files, 0 plans"), "{document}");
    assert!(document.contains("No file is planned for"), "{document}");
    assert!(document.contains("id=\"attention\" role=\"alert\" hidden"), "{document}");

    let square = Square::join(&bench);
    let parts = fill(&square);
    for part in parts.as_array().unwrap() {
        let router = part["router"].as_str().unwrap();
        let range = [part["first"].as_u64().unwrap(), part["last"].as_u64().unwrap()];
        let change = json!([{"object": FILE, "tier": "memory", "added": [range]}]);
        assert_eq!(square.router(router).update(router, 2, 1, change).status, 200);
    }
    assert_eq!(square.producer.post("/v1/files", &file("/small/v=1", 10)).status, 201);
    let document = browser.document(&page(&operator));
    assert!(document.contains("4 routers, 2 files, 1 plan<"), "{document}");
    let files = inside(&document, "transfers", "section");
    assert!(files.contains("class=\"whole\">kept whole"), "{files}");

    assert_eq!(square.double().status, 409);
    let document = browser.document(&page(&operator));
    let warnings = inside(&document, "warnings", "ul");
    let told = "<li>Two routers report as a: the one at udp://twin.example:6363 is refused.";
    assert!(warnings.starts_with(told), "{warnings}");
    assert!(!warnings.contains("is lost"), "{warnings}");
}

#[test]
fn dashboard_shows_lost_routers() {
    let Some(browser) = Browser::find() else { return };
    let bench = Bench::with(|config| config.controller.router_timeout_ns = 1_000_000_000);
    let square = Square::join(&bench);
    let is_gone = || {
        let state = square.operator.get("/v1/state").json();
        let gone = state["gone"].as_array().unwrap();
        // Told as lost, which is written later.
        let is_lost = |router: &serde_json::Value| router[2] == true;
        state["routers"] == json!([]) && gone.len() == 4 && gone.iter().all(is_lost)
    };
    eventually(is_gone, "the end of silent routers");
    // And what of the database cannot be read.
    let mut program = bench.connect();
    program.change(
        "INSERT INTO files (name, owner, added_ms, body, change) \
         SELECT '/<b>bad', 'o', 1, '{', value FROM numbers WHERE name = 'change'",
    );
    eventually(|| square.operator.get("/health").json()["garbled_rows"] == 1, "that it is told");
    let document = browser.document(&page(&square.operator));
    let warnings = inside(&document, "warnings", "ul");
    let told =
        "Rows of the database cannot be read and are left out (1), such as file /&lt;b&gt;bad:";
    assert!(warnings.contains(told), "{warnings}");
    // Before that.
    assert!(warnings.starts_with("<li>Router a is lost: heard of last "), "{warnings}");
    assert_eq!(count(warnings, " is lost: "), 4, "{warnings}");
    assert_eq!(count(inside(&document, "routers", "tbody"), "class=\"gone\""), 4, "{document}");
    assert_eq!(count(inside(&document, "network", "svg"), "<circle"), 0, "{document}");
    assert!(inside(&document, "events", "tbody").contains("class=\"ill\""), "{document}");
    browser.picture(&page(&square.operator), "gone.png");
}

#[test]
fn dashboard_asks_for_a_token() {
    let Some(browser) = Browser::find() else { return };
    let bench = patient();
    let document = browser.document(&bench.url());
    assert!(!document.contains("id=\"sign-in\" hidden"), "{document}");
    assert!(document.contains("id=\"view\" hidden"), "{document}");
    let stranger = Client::new(&bench.url(), "weir-0-0");
    // The browser itself says that it was refused; nothing else is wrong.
    let (document, errors) = browser.run(&page(&stranger), &["--dump-dom"]);
    let lines: Vec<&str> = errors.lines().filter(|line| line.contains(CONSOLE)).collect();
    assert!(lines.iter().all(|line| line.contains("status of 401")), "{lines:#?}");
    assert!(inside(&document, "refusal", "p").contains("the token is not known"), "{document}");
    assert!(document.contains("id=\"view\" hidden"), "{document}");
    browser.picture(&page(&stranger), "sign-in.png");
}
