//! The dashboard in a headless Chromium with a real controller. The tests examine the document
//! after its script has run.

use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weir_controller::Role;

use crate::fixture::{
    Client, FILE, FILE_SEGMENTS, FourRouters, TestServer, eventually, file, report,
};

/// A timeout for a browser that hangs.
const TEST_TIMEOUT: Duration = Duration::from_secs(120);
/// Virtual time for the page, enough for three requests. The clock stands still while it waits for
/// answers.
const PAGE_MS: u32 = 5000;
/// The browser's prefix for lines of the page's console, including script errors.
const CONSOLE: &str = "CONSOLE";

/// The browser of Debian. Without it the test passes, with a warning.
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

/// A browser with a folder for its profile.
struct Browser {
    program: PathBuf,
    folder: tempfile::TempDir,
}

impl Browser {
    fn find() -> Option<Self> {
        let program = chromium()?;
        Some(Self { program, folder: tempfile::tempdir().unwrap() })
    }

    /// Loads a page. Returns what the browser prints, and its errors.
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
        let end = Instant::now() + TEST_TIMEOUT;
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

    /// The document after its script has run. A script error fails the test.
    fn document(&self, url: &str) -> String {
        let (document, errors) = self.run(url, &["--dump-dom"]);
        let lines: Vec<&str> = errors.lines().filter(|line| line.contains(CONSOLE)).collect();
        assert!(lines.is_empty(), "{lines:#?}");
        document
    }

    /// A screenshot for people, if they want one.
    fn picture(&self, url: &str, name: &str) {
        if let Some(folder) = std::env::var_os("WEIR_SCREENSHOTS") {
            for (size, prefix) in [("1280,1900", ""), ("400,3200", "narrow-")] {
                let path = PathBuf::from(&folder).join(format!("{prefix}{name}"));
                let screenshot = format!("--screenshot={}", path.display());
                let size = format!("--window-size={size}");
                self.run(url, &[&screenshot, &size, "--hide-scrollbars"]);
            }
        }
    }
}

/// A controller that loses no router while a browser starts.
fn patient() -> TestServer {
    TestServer::with(|config| config.controller.router_timeout_ns = 3_600_000_000_000)
}

/// The address of the dashboard with a token.
fn page(client: &Client) -> String {
    format!("{}/#token={}", client.url, client.token)
}

/// The content of the element with this `id`, up to the first end tag of its kind.
fn inside<'a>(document: &'a str, id: &str, kind: &str) -> &'a str {
    let id = format!("id=\"{id}\"");
    let (_, after) = document.split_once(&id).unwrap_or_else(|| panic!("no {id}: {document}"));
    let (_, after) = after.split_once('>').unwrap();
    after.split_once(&format!("</{kind}>")).unwrap().0
}

fn count(text: &str, what: &str) -> usize {
    text.matches(what).count()
}

/// Routers report loads, and one reports a problem. Keepers report their parts; one has half of its
/// part.
fn fill(network: &FourRouters) -> Value {
    assert_eq!(network.router("c").forward("c", FILE).json()["decision"], "planned");
    let configuration = network.router("c").configuration("c", 0, 0).json();
    for (name, load_bps, rate_bps) in [("a", 940_000_000, 1_000_000_000), ("b", 2_500_000, 0)] {
        let mut reported = report(name, 66_000_000, &["c", "p"], &[]);
        reported["faces"][0]["load_bps"] = json!(load_bps);
        if rate_bps > 0 {
            reported["faces"][0]["rate_bps"] = json!(rate_bps);
        }
        let store_use = json!({"hits": 75, "misses": 25, "memory_bytes": 33_000_000});
        reported["store_use"] = store_use;
        if name == "b" {
            // The dashboard must show the router's text unchanged.
            reported["problems"] = json!([{
                "generation": 7, "part": "faces",
                "text": "no face to dev://<img src=x onerror=alert(1)>: unknown scheme",
            }]);
        }
        assert_eq!(network.router(name).report(name, &reported).status, 200);
    }
    let parts = configuration["distributions"][0]["parts"].clone();
    for (at, part) in parts.as_array().unwrap().iter().enumerate() {
        let router = part["router"].as_str().unwrap();
        let (first, last) = (part["first"].as_u64().unwrap(), part["last"].as_u64().unwrap());
        let held = if at == 0 { last } else { first + (last - first) / 2 };
        let change = json!([{"object": FILE, "tier": "memory", "added": [[first, held]]}]);
        assert_eq!(network.router(router).update(router, 1, 1, change).status, 200);
    }
    parts
}

#[test]
fn dashboard_shows_network_and_files() {
    let Some(browser) = Browser::find() else { return };
    let controller = patient();
    let network = FourRouters::join(&controller);
    let parts = fill(&network);
    let events = || network.operator.get("/v1/events").text;
    eventually(|| events().contains("plan made"), "the plan among the events");
    let document = browser.document(&page(&network.operator));
    browser.picture(&page(&network.operator), "dashboard.png");

    // Network: four routers, four links, and the loads of two of them.
    let drawing = inside(&document, "network", "svg");
    assert_eq!((count(drawing, "<circle"), count(drawing, "<line")), (4, 4), "{drawing}");
    for name in ["a", "b", "c", "p"] {
        assert!(drawing.contains(&format!(">{name}</text>")), "{name}: {drawing}");
    }
    let classes = ["full", "used", "idle"].map(|kind| {
        drawing.split("<line").filter(|line| line.contains(&format!("class=\"{kind}\""))).count()
    });
    assert_eq!(classes, [1, 1, 2], "{drawing}");
    assert!(drawing.contains(">940 Mbit/s of 1.0 Gbit/s</text>"), "{drawing}");
    assert!(drawing.contains(">2.5 Mbit/s</text>"), "{drawing}");
    assert!(drawing.contains("class=\"ill\""), "the router with a problem: {drawing}");

    // File: a bar for each keeper with its holdings.
    let files = inside(&document, "transfers", "section");
    let parts = parts.as_array().unwrap();
    assert!(parts.len() > 1 && files.contains(FILE), "{files}");
    assert_eq!(count(files, "class=\"bar\""), parts.len(), "{files}");
    assert_eq!(count(files, "class=\"held\""), parts.len(), "{files}");
    assert_eq!(count(files, "class=\"planned\""), parts.len(), "{files}");
    assert!(files.contains(&format!("{FILE_SEGMENTS} segments, 68.7 MiB; read at c")), "{files}");
    // Transfer: half of the second part is missing.
    assert!(files.contains("class=\"under-way\">being fetched: "), "{files}");
    assert!(files.contains(&format!(" of {FILE_SEGMENTS} segments")), "{files}");

    let events = inside(&document, "events", "tbody");
    for action in ["router found", "file added", "plan made", "token added"] {
        assert!(events.contains(&format!("<td>{action}</td>")), "{action}: {events}");
    }
    // Warnings come first, and their text is not interpreted as HTML.
    let warnings = inside(&document, "warnings", "ul");
    assert!(warnings.contains("Router b could not set up its faces: no face to"), "{warnings}");
    assert!(!document.contains("<img"), "{warnings}");
    assert!(document.find("id=\"warnings\"") < document.find("id=\"network\""));
    assert!(!document.contains("id=\"attention\" role=\"alert\" hidden"));
    let routers = inside(&document, "routers", "tbody");
    assert_eq!(count(routers, "<tr"), 4, "{routers}");
    // Use of stores: half of the memory, and three quarters of the requests were answered.
    assert!(routers.contains("31.5 MiB of 62.9 MiB"), "{routers}");
    assert!(routers.contains("width=\"50.0\"") && routers.contains(">75 %</td>"), "{routers}");
    assert!(routers.contains(">not set up completely</td>"), "{routers}");
    assert!(inside(&document, "file-pages", "span").contains("1 to 1 of 1"), "{document}");
    // Generations and numbers of plans are for programs.
    let plan = network.operator.get("/v1/plans").json()[0]["number"].to_string();
    assert!(!events.contains(&format!("{plan} for")), "{plan}: {events}");
    assert!(!files.contains("plan ") && !warnings.contains("configuration 7"), "{document}");
    let own = network.operator.token.as_str();
    assert!(!document.contains(own), "the token is not shown");
}

#[test]
fn dashboard_shows_complete_and_empty_states() {
    let Some(browser) = Browser::find() else { return };
    let controller = patient();
    let operator = controller.client(Role::Operator, "o");
    let document = browser.document(&page(&operator));
    assert!(document.contains("0 routers, 0 files, 0 plans"), "{document}");
    assert!(document.contains("No file has a plan"), "{document}");
    assert!(document.contains("id=\"attention\" role=\"alert\" hidden"), "{document}");

    let network = FourRouters::join(&controller);
    let parts = fill(&network);
    for part in parts.as_array().unwrap() {
        let router = part["router"].as_str().unwrap();
        let range = [part["first"].as_u64().unwrap(), part["last"].as_u64().unwrap()];
        let change = json!([{"object": FILE, "tier": "memory", "added": [range]}]);
        assert_eq!(network.router(router).update(router, 2, 1, change).status, 200);
    }
    assert_eq!(network.producer.post("/v1/files", &file("/small/v=1", 10)).status, 201);
    let document = browser.document(&page(&operator));
    assert!(document.contains("4 routers, 2 files, 1 plan<"), "{document}");
    let files = inside(&document, "transfers", "section");
    assert!(files.contains("class=\"whole\">kept completely"), "{files}");

    assert_eq!(network.report_duplicate().status, 409);
    let document = browser.document(&page(&operator));
    let warnings = inside(&document, "warnings", "ul");
    let reported = "<li>Two routers report as a: the one at udp://twin.example:6363 is refused.";
    assert!(warnings.starts_with(reported), "{warnings}");
    assert!(!warnings.contains("is lost"), "{warnings}");
}

#[test]
fn dashboard_shows_lost_routers() {
    let Some(browser) = Browser::find() else { return };
    let controller = TestServer::with(|config| config.controller.router_timeout_ns = 1_000_000_000);
    let network = FourRouters::join(&controller);
    let is_gone = || {
        let state = network.operator.get("/v1/state").json();
        let gone = state["gone"].as_array().unwrap();
        // The loss is written to the database a little later.
        let is_lost = |router: &serde_json::Value| router[2] == true;
        state["routers"] == json!([]) && gone.len() == 4 && gone.iter().all(is_lost)
    };
    eventually(is_gone, "the end of silent routers");
    // A row that cannot be read.
    let mut program = controller.connect();
    program.change(
        "INSERT INTO files (name, owner, added_ms, body, change) \
         SELECT '/<b>bad', 'o', 1, '{', value FROM numbers WHERE name = 'change'",
    );
    eventually(
        || network.operator.get("/health").json()["garbled_rows"] == 1,
        "the unreadable row in /health",
    );
    let document = browser.document(&page(&network.operator));
    let warnings = inside(&document, "warnings", "ul");
    let reported =
        "Database rows cannot be read and are skipped (1), for example file /&lt;b&gt;bad:";
    assert!(warnings.contains(reported), "{warnings}");
    // The lost router comes first.
    assert!(warnings.starts_with("<li>Router a is lost: its last report was "), "{warnings}");
    assert_eq!(count(warnings, " is lost: "), 4, "{warnings}");
    assert_eq!(count(inside(&document, "routers", "tbody"), "class=\"gone\""), 4, "{document}");
    // Lost routers stay on the map.
    let drawing = inside(&document, "network", "svg");
    assert_eq!(count(drawing, "class=\"lost\"><title>"), 4, "{drawing}");
    assert!(inside(&document, "events", "tbody").contains("class=\"ill\""), "{document}");
    browser.picture(&page(&network.operator), "gone.png");
}

#[test]
fn state_finds_and_pages_divided_files() {
    let controller = patient();
    let network = FourRouters::join(&controller);
    fill(&network);
    let state = |query: &str| network.operator.get(&format!("/v1/state?{query}")).json();
    assert_eq!(state("")["found_count"], 1);
    assert_eq!(state("find=file")["transfers"].as_array().unwrap().len(), 1);
    let other = state("find=%2Fother&page=0");
    assert_eq!((&other["found_count"], &other["plans_count"]), (&json!(0), &json!(1)));
    let next = state("page=1");
    assert_eq!((&next["found_count"], &next["transfers"]), (&json!(1), &json!([])));
    assert_eq!(network.operator.get("/v1/state?pages=1").status, 400);
    eventually(|| state("")["history"][0]["at_ms"].as_u64().is_some(), "a sample of the history");
}

#[test]
fn dashboard_asks_for_a_token() {
    let Some(browser) = Browser::find() else { return };
    let controller = patient();
    let document = browser.document(&controller.url());
    assert!(!document.contains("id=\"sign-in\" hidden"), "{document}");
    assert!(document.contains("id=\"view\" hidden"), "{document}");
    let stranger = Client::new(&controller.url(), "weir-0-0");
    // The browser reports only the refused request.
    let (document, errors) = browser.run(&page(&stranger), &["--dump-dom"]);
    let lines: Vec<&str> = errors.lines().filter(|line| line.contains(CONSOLE)).collect();
    assert!(lines.iter().all(|line| line.contains("status of 401")), "{lines:#?}");
    assert!(inside(&document, "refusal", "p").contains("the token is unknown"), "{document}");
    assert!(document.contains("id=\"view\" hidden"), "{document}");
    browser.picture(&page(&stranger), "sign-in.png");
}
