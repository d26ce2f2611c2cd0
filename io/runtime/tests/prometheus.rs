//! Scrapes of a running router: their cost with 500 faces (the unit tests encode 1,000), and
//! Debian's Prometheus with the alerts of `docs/monitoring`.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use weir_io_fixture::TEST_TIMEOUT;
use weir_io_fixture::router::{TestRouter, data, interest, name};
use weir_runtime::{RemovedKind, RuntimeConfig, StartError, StaticFace};

/// The head and the body of the answer to a GET.
fn request(address: SocketAddr, path: &str) -> (String, String) {
    let mut http = TcpStream::connect(address).unwrap();
    http.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    write!(http, "GET {path} HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    http.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    (head.to_owned(), body.to_owned())
}

/// The body of the answer to a GET, which must succeed.
fn get(address: SocketAddr, path: &str) -> String {
    let (head, body) = request(address, path);
    assert!(head.contains(" 200 "), "{path}: {head}\n{body}");
    body
}

fn series_count(text: &str) -> usize {
    text.lines().filter(|line| !line.starts_with('#')).count()
}

#[test]
fn scrape_of_200_faces_is_small() {
    let router = TestRouter::start_with(|config| {
        config.metrics = Some("127.0.0.1:0".parse().unwrap());
        config.static_faces.extend((0..200_u16).map(|index| StaticFace {
            uri: format!("udp4://127.0.0.1:{}", 20_000 + index),
            ..StaticFace::default()
        }));
    });
    // In steps, so that a busy machine has the time limit for each.
    for count in [100, 200] {
        router.wait_until("faces", |snapshot| snapshot.faces.len() >= count);
    }
    let address = router.handle().metrics_address().unwrap();
    let before = get(address, "/metrics");
    // Applications that come and go add no series, apart from the first one of a transport.
    drop(router.unix());
    router.wait_until("the first closes", |snapshot| {
        snapshot.removed_faces.iter().any(|removed| removed.kind == RemovedKind::OnDemand)
    });
    let with_one = series_count(&get(address, "/metrics"));
    let applications: Vec<_> = (0..20).map(|_| router.unix()).collect();
    router.wait_until("applications", |snapshot| {
        snapshot.faces.iter().filter(|face| face.is_on_demand).count() >= 20
    });
    assert_eq!(series_count(&get(address, "/metrics")), with_one);
    drop(applications);
    assert!((2_400..4_000).contains(&series_count(&before)), "{}", series_count(&before));
    // The fastest of ten, since other tests run at the same time.
    let scrapes = (0..10).map(|_| {
        let begin = Instant::now();
        let _ = get(address, "/metrics");
        begin.elapsed()
    });
    let took = scrapes.min().unwrap();
    eprintln!("{} series, {} bytes in {took:?}", series_count(&before), before.len());
    router.stop();
}

/// Ends the process when the test ends.
struct Prometheus(Child);

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Prometheus {
    /// Starts Debian's Prometheus. `None` if it is not installed.
    fn start(folder: &Path, listen: SocketAddr, router: SocketAddr) -> Option<Self> {
        let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/monitoring");
        let rules = rules.join("weir.rules.yml");
        let config = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\n\
             rule_files: [\"{}\"]\n\
             scrape_configs:\n\
             - job_name: weir-router\n  static_configs: [{{targets: [\"{router}\"]}}]\n",
            rules.display()
        );
        let path = folder.join("prometheus.yml");
        fs::write(&path, config).unwrap();
        let process = Command::new("prometheus")
            .arg(format!("--config.file={}", path.display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("data").display()))
            .arg(format!("--web.listen-address={listen}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(folder.join("log")).unwrap())
            .spawn();
        process.ok().map(Self)
    }
}

/// Waits until the answer to a GET contains a text.
fn wait_for(address: SocketAddr, path: &str, text: &str) {
    let deadline = Instant::now() + TEST_TIMEOUT;
    loop {
        // At first Prometheus does not listen, and then answers 503 until it has started.
        let is_listening = TcpStream::connect(address).is_ok();
        let answer = if is_listening { request(address, path).1 } else { String::new() };
        if answer.contains(text) {
            return;
        }
        assert!(Instant::now() < deadline, "{path} has no {text}: {answer}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn contents_are_off_by_default() {
    for is_on in [false, true] {
        let router = TestRouter::start_with(|config| {
            config.metrics = Some("127.0.0.1:0".parse().unwrap());
            config.metrics_contents = is_on;
        });
        let address = router.handle().metrics_address().unwrap();
        let (head, body) = request(address, "/contents");
        if is_on {
            assert!(head.contains(" 200 ") && body.contains("\"objects\":[]"), "{head}\n{body}");
        } else {
            assert!(head.contains(" 404 ") && body.contains("contents = true"), "{head}\n{body}");
        }
        router.stop();
    }
}

#[test]
fn metrics_move_to_an_overlapping_address_or_stay() {
    let mut router = TestRouter::start_with(|config| {
        config.metrics = Some("127.0.0.1:0".parse().unwrap());
    });
    let old = router.handle().metrics_address().unwrap();
    let config = |address| RuntimeConfig {
        metrics: Some(address),
        ..weir_io_fixture::router::config(router.path.clone())
    };
    let blocker = TcpListener::bind("127.0.0.2:0").unwrap();
    let taken = blocker.local_addr().unwrap();
    let configs =
        [config(taken), config(SocketAddr::from(([0, 0, 0, 0], old.port()))), config(old)];
    let handle = router.handle.as_mut().unwrap();
    let [to_taken, to_all, to_old] = configs;
    assert!(matches!(handle.reload(to_taken), Err(StartError::Metrics { .. })));
    assert_eq!(handle.metrics_address(), Some(old));
    let _ = get(old, "/health");
    handle.reload(to_all).unwrap();
    assert!(handle.metrics_address().unwrap().ip().is_unspecified());
    let _ = get(old, "/health");
    handle.reload(to_old).unwrap();
    assert_eq!(handle.metrics_address(), Some(old));
    drop(blocker);
    router.stop();
}

/// Two worker threads, whose shards have parts of each object.
#[test]
fn prefix_hits_continue_after_a_reload() {
    const SEGMENTS: u64 = 200;
    let address = Some("127.0.0.1:0".parse().unwrap());
    let mut router = TestRouter::start_with(|config| {
        (config.threads, config.metrics) = (2, address);
        config.counted_prefixes = vec![name("/a"), name("/gone")];
    });
    let (mut producer, mut consumer) = (router.unix(), router.unix());
    producer.register("/");
    let mut fetch = |prefix: &str, is_stored: bool| {
        for segment in 0..SEGMENTS {
            let uri = format!("{prefix}/v=1/seg={segment}");
            consumer.send(&interest(&uri));
            if !is_stored {
                producer.receive().interest();
                producer.send(&data(&uri, &[1; 1000]));
            }
            consumer.receive().data();
        }
    };
    fetch("/a/b", false);
    fetch("/c", false);
    fetch("/a/b", true);
    let address = router.handle().metrics_address().unwrap();
    let count = |metric: &str, prefix: &str| {
        let series = format!("weir_store_prefix_{metric}_total{{prefix=\"{prefix}\"}} ");
        let text = get(address, "/metrics");
        let value = text.lines().find_map(|line| line.strip_prefix(&series))?;
        Some(value.parse::<u64>().unwrap())
    };
    assert_eq!((count("hits", "/a"), count("misses", "/a")), (Some(SEGMENTS), Some(SEGMENTS)));
    assert!(count("served_bytes", "/a") > Some(SEGMENTS * 1000));
    assert_eq!((count("hits", "/gone"), count("hits", "/c")), (Some(0), None));
    // The Data below /c is stored already. A longer prefix takes the hits of /a.
    let config = RuntimeConfig {
        threads: 2,
        metrics: Some(address),
        counted_prefixes: vec![name("/a/b"), name("/c"), name("/a")],
        ..weir_io_fixture::router::config(router.path.clone())
    };
    let report = router.handle.as_mut().unwrap().reload(config).unwrap();
    assert_eq!(report.others, ["metrics of 3 prefixes"]);
    fetch("/a/b", true);
    fetch("/c", true);
    let found = ["/a", "/a/b", "/c", "/gone"].map(|prefix| count("hits", prefix));
    assert_eq!(found, [Some(SEGMENTS), Some(SEGMENTS), Some(SEGMENTS), None]);
    assert_eq!(count("misses", "/a"), Some(SEGMENTS));
    let text = get(address, "/metrics");
    assert!(text.contains(&format!("\nweir_store_hits_total {}\n", 3 * SEGMENTS)), "{text}");
    router.stop();
}

#[test]
fn prometheus_scrapes_and_evaluates_alerts() {
    let router = TestRouter::start_with(|config| {
        config.metrics = Some("127.0.0.1:0".parse().unwrap());
    });
    let _application = router.unix();
    let target = router.handle().metrics_address().unwrap();
    let listen = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let Some(prometheus) = Prometheus::start(folder.path(), listen, target) else {
        let words = "no program `prometheus` (Debian's package of that name): scrapes are NOT \
                     tested\n";
        let _ = std::io::stderr().write_all(words.as_bytes());
        return;
    };
    let query = |expression: &str| format!("/api/v1/query?query={expression}");
    let value = |value: &str| format!("\"{value}\"]}}]");
    wait_for(listen, &query("up"), &value("1"));
    wait_for(listen, &query("sum(weir_faces)"), "\"result\":[{");
    wait_for(listen, &query("weir_served_bytes_total"), "\"source\":\"next-hop\"");
    wait_for(listen, &query("process_resident_memory_bytes>1e6"), "\"weir-router\"");
    // Every alert can be evaluated on what this router exports.
    wait_for(listen, "/api/v1/rules", "\"name\":\"WeirDrops\"");
    wait_for(listen, "/api/v1/rules", "\"health\":\"ok\"");
    let rules = get(listen, "/api/v1/rules");
    assert!(!rules.contains("\"health\":\"err\""), "{rules}");
    router.stop();
    wait_for(listen, "/api/v1/alerts", "WeirDown");
    drop(prometheus);
}
