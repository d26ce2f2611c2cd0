//! Reloads of a running router, and `--check`.

use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use nix::sys::signal::Signal;

use crate::served::{Site, error_of, random_file, serve, wait_until};

const BEFORE: &str = r#"
[store]
size = "8MiB"
[[face]]
uri = "udp4://127.0.0.1:7001"
routes = ["/one", "/old"]
[[face]]
uri = "udp4://127.0.0.1:7002"
routes = ["/two"]
[[strategy]]
prefix = "/one"
strategy = "multicast"
"#;

/// The strategy of a prefix, without its version.
fn strategy(site: &Site, prefix: &str) -> Option<String> {
    let list = site.json(&["strategy", "list", "--json"]);
    let choice = list.as_array().unwrap().iter().find(|choice| choice["prefix"] == prefix)?;
    Some(choice["strategy"].as_str().unwrap().to_owned())
}

fn store_bytes(site: &Site) -> u64 {
    site.json(&["cs", "info", "--json"])["capacity_bytes"].as_u64().unwrap()
}

#[test]
fn reload_applies_the_new_configuration() {
    let site = Site::new(BEFORE);
    let router = site.start(&[]);
    wait_until("the routes exist", || site.routes() == ["/old", "/one", "/two"]);
    // People add a face, routes and a strategy. They must stay.
    site.run(&["route", "add", "/mine", "udp4://127.0.0.1:7009"]);
    site.run(&["route", "add", "/mine", "udp4://127.0.0.1:7001"]);
    site.run(&["strategy", "set", "/mine", "asf"]);
    site.write(
        r#"
        [router]
        threads = 3
        [store]
        size = "4MiB"
        [log]
        level = "debug"
        [[face]]
        uri = "udp4://127.0.0.1:7001"
        congestion_marking = false
        routes = ["/one", "/new"]
        [[face]]
        uri = "udp4://127.0.0.1:7003"
        routes = ["/three"]
        [[strategy]]
        prefix = "/three"
        strategy = "asf"
        "#,
    );
    let text = site.reload().unwrap();
    for part in [
        "1 face added, 1 face removed, 1 face changed, 2 routes added, 2 routes removed",
        "2 strategies changed",
        "store of 4 MiB",
        "log level debug",
        "after a restart: [router] threads",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let kept = [7001, 7003, 7009].map(|port| format!("udp4://127.0.0.1:{port}"));
    wait_until("the faces change", || site.faces() == kept);
    wait_until("the routes change", || site.routes() == ["/mine", "/new", "/one", "/three"]);
    let faces = site.json(&["route", "show", "/mine", "--json"]);
    assert_eq!(faces[0]["routes"].as_array().unwrap().len(), 2, "{faces}");
    assert_eq!(strategy(&site, "/one"), None);
    assert!(strategy(&site, "/three").unwrap().contains("asf"));
    assert!(strategy(&site, "/mine").unwrap().contains("asf"));
    wait_until("the store shrinks", || store_bytes(&site) == 4 << 20);
    // The same again changes nothing, and still names what waits for a restart.
    let text = site.reload().unwrap();
    assert!(text.contains("nothing has changed; takes effect after a restart"), "{text}");
    router.stop();
}

#[test]
fn refused_reload_changes_nothing() {
    let site = Site::new(BEFORE);
    let disk = site.path("disk");
    let disk_table = format!("[[disk]]\npath = {disk:?}\nsize = \"16MiB\"\n");
    site.write(&format!("{BEFORE}{disk_table}"));
    let router = site.start(&[]);
    wait_until("the routes exist", || site.routes() == ["/old", "/one", "/two"]);
    let other = BEFORE.replace("8MiB", "4MiB").replace("/two", "/other");
    let gone = "[management]\ntrust_anchors = [\"/nowhere/anchor.cert\"]\n";
    let strategy =
        "[[strategy]]\nprefix = \"/x\"\nstrategy = \"/localhost/nfd/strategy/asf/v=1\"\n";
    for (text, part) in [
        // Half written.
        (other[..other.len() - 20].to_owned(), "weir.toml"),
        (String::new(), "is empty"),
        // From a newer version.
        (format!("{other}[router]\nquantum = 3\n"), "quantum"),
        (format!("{other}{gone}"), "/nowhere/anchor.cert"),
        (format!("{other}{strategy}"), "does not support version 1"),
        (format!("{other}[faces]\nudp = []\ntls_ca = \"/nowhere/ca\"\n"), "/nowhere/ca"),
        (format!("{other}[controller]\nurl = 'http://c'\nname = 'a/b'\n"), "a/b"),
        (format!("{other}[metrics]\naddress = '192.0.2.77:9636'\n"), "192.0.2.77"),
        (format!("{other}[metrics]\nprefixes = ['/a', '/b', '/a']\n"), "/a occurs twice"),
        (format!("{other}[[disk]]\npath = '/nowhere/disk'\nsize = '1GiB'\n"), "/nowhere/disk"),
        (format!("{other}[[pin]]\nprefix = '/p'\nsize = '4MiB'\n"), "fifteen sixteenths"),
    ] {
        site.write(&text);
        let error = site.reload().expect_err(&text);
        assert!(error.contains("nothing has changed") && error.contains(part), "{part}: {error}");
        assert_eq!(site.routes(), ["/old", "/one", "/two"], "{text}");
        assert_eq!(store_bytes(&site), 8 << 20, "{text}");
    }
    // The disk of the running router is gone.
    site.write(&format!("{other}{disk_table}"));
    std::fs::remove_file(&disk).unwrap();
    let error = site.reload().unwrap_err();
    assert!(error.contains("no longer exists") && error.contains("disk"), "{error}");
    assert_eq!(site.routes(), ["/old", "/one", "/two"]);
    assert!(site.log().contains("refused the new configuration"));
    router.stop();
}

/// `systemctl reload` of the unit: both processes write to the journal, which is a file here.
#[test]
fn refused_reload_is_in_the_journal_once() {
    let site = Site::new(BEFORE);
    let router = site.start(&[]);
    site.write("[oops]\n");
    let reload = |variables: &[&str]| {
        let journal = std::fs::File::options().append(true).open(site.path("log")).unwrap();
        let file = journal.metadata().unwrap();
        let mut command = site.weir(&["router", "--reload"]);
        let stream = format!("{}:{}", file.dev(), file.ino());
        for variable in variables {
            let value = if *variable == "MAINPID" { "1" } else { &stream };
            command.env(variable, value);
        }
        let before = site.log().matches("oops").count();
        let status = command.stderr(journal).status().unwrap();
        assert_eq!(status.code(), Some(1));
        let lines = site.log().lines().filter(|line| line.contains("refused the new")).count();
        assert!(lines > 0, "{}", site.log());
        (site.log().matches("oops").count() - before, lines)
    };
    let (once, lines) = reload(&["MAINPID", "JOURNAL_STREAM"]);
    assert_eq!(lines, 1, "{}", site.log());
    // Another unit, such as a timer, has a journal of its own, and a terminal is none.
    for other in [&["JOURNAL_STREAM"][..], &["MAINPID"], &[]] {
        assert_eq!(reload(other).0, 2 * once, "{other:?}: {}", site.log());
    }
    router.stop();
}

#[test]
fn storm_of_reloads_is_collapsed() {
    let site = Site::new(BEFORE);
    let router = site.start(&[]);
    wait_until("the routes exist", || site.routes() == ["/old", "/one", "/two"]);
    site.write(&BEFORE.replace("/two", "/other"));
    for _ in 0..3000 {
        router.signal(Signal::SIGHUP);
    }
    wait_until("the route changes", || site.routes() == ["/old", "/one", "/other"]);
    // At most one more is pending, which this one follows or joins.
    assert!(site.reload().unwrap().contains("nothing has changed"));
    let reloads = site.log().matches("reloaded the configuration").count();
    assert!((1..1500).contains(&reloads), "{reloads} reloads for 3000 signals");
    router.stop();
}

/// The router is found although the new file is invalid or names another socket.
#[test]
fn reload_reaches_router_despite_new_file() {
    let site = Site::new(BEFORE);
    let router = site.start(&[]);
    let [file, socket] = ["weir.toml", "router.sock"].map(|name| site.path(name));
    let [file, socket] = [&file, &socket].map(|path| path.to_str().unwrap());
    let elsewhere = format!("[faces]\nunix = {:?}\n", site.path("elsewhere.sock"));
    for (text, part) in [("[oops]\n", "oops"), (&elsewhere, "reloaded")] {
        site.write(text);
        for words in [&["--unix", socket][..], &["--config", file], &[]] {
            let output = site.weir(&[&["router", "--reload"], words].concat()).output().unwrap();
            let shown = String::from_utf8(output.stdout.clone()).unwrap() + &error_of(&output);
            assert_eq!(output.status.success(), part == "reloaded", "{words:?}: {shown}");
            assert!(shown.contains(part), "{words:?}: {shown}");
        }
    }
    router.stop();
    let output = site.weir(&["router", "--reload", "--unix", socket]).output().unwrap();
    let error = error_of(&output);
    assert_eq!(output.status.code(), Some(8), "{error}");
    // The advice must name an option that this command has.
    assert!(error.contains("--unix PATH") && !error.contains("--router"), "{error}");
}

/// Losses that a download may have for other reasons, such as a busy machine. A dropped queue or
/// face would lose a whole window.
const STRAY_LOSSES_MAX: u64 = 20;
/// Reloads during the downloads, at least.
const RELOADS_MIN: u64 = 5;

/// Reloads while a file passes through the router: faces, routes, strategies and the store change.
#[test]
fn download_loses_nothing_at_reloads() {
    let other = BEFORE.replace("8MiB", "4MiB").replace("7002", "7003").replace("/old", "/new");
    let site = Site::new(BEFORE);
    let router = site.start(&[]);
    random_file(&site.path("file"), 48 << 20);
    let _put = serve(&site, "file", "/file");
    let get = || {
        // A complete copy would not be fetched again.
        let _ = std::fs::remove_file(site.path("copy"));
        let output = site.weir(&["get", "/file", "--allow-unsigned", "--json", "-o"]);
        let output = { output }.arg(site.path("copy")).output().unwrap();
        assert!(output.status.success(), "{}", error_of(&output));
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let number = |key: &str| report[key].as_u64().unwrap();
        assert_eq!((number("bytes"), number("resumed_segments")), (48 << 20, 0));
        number("losses") + number("timeouts") + number("nacks")
    };
    let before = get();
    let (is_done, reloads) = (AtomicBool::new(false), AtomicU64::new(0));
    let (mut downloads, mut during) = (0, 0);
    std::thread::scope(|scope| {
        let storm = scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                let is_even = reloads.load(Ordering::Relaxed) % 2 == 0;
                site.write(if is_even { &other } else { BEFORE });
                site.reload().unwrap();
                reloads.fetch_add(1, Ordering::Relaxed);
            }
        });
        while reloads.load(Ordering::Relaxed) < RELOADS_MIN && !storm.is_finished() {
            (during, downloads) = (during + get(), downloads + 1);
        }
        is_done.store(true, Ordering::Relaxed);
    });
    println!("{before} losses without reloads; {during} in {downloads} downloads with {reloads:?}");
    assert!(during <= downloads * (before + STRAY_LOSSES_MAX), "{before}, {during}, {downloads}");
    router.stop();
}

#[test]
fn metrics_move_to_another_address() {
    let site = Site::new("[metrics]\naddress = \"127.0.0.1:0\"\n");
    let router = site.start(&[]);
    let first = router.ready["metrics"].as_str().unwrap().to_owned();
    assert!(ureq::get(&first).call().is_ok());
    // The same port on another address: the old server must stop first.
    let port = first.rsplit(':').next().unwrap().split('/').next().unwrap();
    site.write(&format!("[metrics]\naddress = \"127.0.0.2:{port}\"\n"));
    let text = site.reload().unwrap();
    assert!(text.contains("127.0.0.2"), "{text}");
    assert!(ureq::get(format!("http://127.0.0.2:{port}/metrics")).call().is_ok());
    assert!(ureq::get(&first).call().is_err());
    site.write("");
    assert!(site.reload().unwrap_err().contains("is empty"));
    site.write("[log]\n");
    assert!(site.reload().unwrap().contains("no metrics"));
    assert!(ureq::get(format!("http://127.0.0.2:{port}/metrics")).call().is_err());
    router.stop();
}

#[test]
fn failed_move_of_metrics_changes_nothing() {
    let site = Site::new("[metrics]\naddress = \"127.0.0.1:0\"\n");
    let router = site.start(&[]);
    let first = router.ready["metrics"].as_str().unwrap().to_owned();
    let taken = std::net::TcpListener::bind("127.0.0.2:0").unwrap();
    let address = taken.local_addr().unwrap();
    site.write(&format!("{BEFORE}[metrics]\naddress = \"{address}\"\n"));
    let error = site.reload().unwrap_err();
    assert!(error.contains(&address.to_string()), "{error}");
    assert!(error.trim_end().ends_with("; nothing has changed"), "{error}");
    assert!(ureq::get(&first).call().is_ok());
    assert_eq!((site.faces().len(), site.routes().len()), (0, 0));
    assert_ne!(store_bytes(&site), 8 << 20);
    router.stop();
}

/// A metric of the store for a prefix; `None` if it has no such series.
fn by_prefix(url: &str, metric: &str, prefix: &str) -> Option<u64> {
    let text = ureq::get(url).call().unwrap().body_mut().read_to_string().unwrap();
    let series = format!("weir_store_prefix_{metric}_total{{prefix=\"{prefix}\"}} ");
    text.lines().find_map(|line| line.strip_prefix(&series))?.parse().ok()
}

#[test]
fn hits_by_prefix_continue_after_a_reload() {
    const FILE_BYTES: u64 = 200_000;
    let config = |address: &str, prefixes: &str| {
        format!("[metrics]\naddress = \"{address}\"\nprefixes = [{prefixes}]\n")
    };
    let site = Site::new(&config("127.0.0.1:0", "\"/one\", \"/gone\""));
    let router = site.start(&[]);
    let url = router.ready["metrics"].as_str().unwrap().to_owned();
    random_file(&site.path("file"), FILE_BYTES);
    let _producers = ["/one/file", "/two/file"].map(|name| serve(&site, "file", name));
    let get = |name| {
        let _ = std::fs::remove_file(site.path("copy"));
        site.run(&["get", name, "--allow-unsigned", "-o", "copy"]);
    };
    get("/one/file");
    let misses = by_prefix(&url, "misses", "/one").unwrap();
    assert!(misses > FILE_BYTES / 8_000, "{misses} misses");
    get("/one/file");
    get("/two/file");
    let count = |metric, prefix| by_prefix(&url, metric, prefix);
    let (hits, bytes) = (count("hits", "/one").unwrap(), count("served_bytes", "/one").unwrap());
    assert!(hits > FILE_BYTES / 8_000 && bytes > FILE_BYTES, "{hits} hits, {bytes} bytes");
    assert_eq!((count("hits", "/gone"), count("hits", "/two")), (Some(0), None));
    // The file below /two is in the store already.
    let address = url.trim_start_matches("http://").trim_end_matches("/metrics");
    site.write(&config(address, "\"/two\", \"/one\""));
    let text = site.reload().unwrap();
    assert!(text.contains("metrics of 2 prefixes"), "{text}");
    assert_eq!(count("hits", "/one"), Some(hits));
    assert_eq!((count("hits", "/gone"), count("hits", "/two")), (None, Some(0)));
    get("/one/file");
    get("/two/file");
    for (prefix, before) in [("/one", bytes), ("/two", 0)] {
        let served = count("served_bytes", prefix).unwrap();
        assert!(served > before + FILE_BYTES, "{prefix}: {before}, {served}");
    }
    assert!(site.reload().unwrap().contains("nothing has changed"));
    router.stop();
}

#[test]
fn check_reports_without_starting() {
    let site = Site::new(BEFORE);
    let check = |words: &[&str]| {
        let output = site.router(&[&["--check"], words].concat()).output().unwrap();
        let text = String::from_utf8(output.stdout.clone()).unwrap() + &error_of(&output);
        (output.status.code(), text)
    };
    let (code, text) = check(&[]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("weir.toml: OK"), "{text}");
    assert!(!site.path("router.sock").exists());
    let disk = site.path("disk");
    let disk = disk.to_str().unwrap();
    assert_eq!(check(&["--disk", disk, "--disk-size", "16MiB"]).0, Some(0));
    assert!(!site.path("disk").exists(), "nothing is created");
    for (words, part) in [
        (&["--disk", disk][..], "no size"),
        (&["--disk", "/nowhere/disk", "--disk-size", "1GiB"], "folder does not exist"),
        (&["--disk", "/tmp", "--disk-size", "1GiB"], "not a file or block device"),
        (&["--tcp", "192.0.2.77:6363"], "192.0.2.77"),
    ] {
        let (code, text) = check(words);
        assert!(code == Some(1) && text.contains(part), "{words:?}: {code:?} {text}");
    }
    // A size that the machine does not have is no obstacle.
    let (code, text) = check(&["--store", "1000000TiB"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("this machine has") && text.contains(": OK"), "{text}");
    site.write("[router]\nthread = 2\n");
    let (code, text) = check(&[]);
    assert!(code == Some(1) && text.contains("line 2"), "{text}");
    // A running router is no obstacle.
    site.write(BEFORE);
    let router = site.start(&["--metrics", "127.0.0.1:0"]);
    assert_eq!(check(&["--metrics", "127.0.0.1:0"]).0, Some(0));
    router.stop();
}
