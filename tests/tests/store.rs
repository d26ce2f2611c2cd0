//! The guarantees of `docs/durability/store.md`: a router with a disk keeps all Data that fits into
//! memory and disk, and after `kill -9` all Data on disk. Files are compared byte by byte, without
//! the store's own checks.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use weir_base::Rng;
use weir_client::{Client, ExpressError};
use weir_tests::{
    DiskStore, Finished, Host, Process, Router, SmallDisk, TEST_TIMEOUT, random_file, wait_until,
    weir_binary,
};
use weir_wire::{DataView, Interest, Name};

const MIB: usize = 1 << 20;
/// Default segment size of `weir put`.
const SEGMENT_BYTES: usize = 8000;
/// Small segments, so that a small file needs many operations of a slow disk.
const SMALL_SEGMENT_BYTES: usize = 2000;
/// About 9 MB/s of small segments, which even a busy machine exceeds.
const SLOW_DISK: &str = "pace = { ops_per_s = 4700.0 }\n";
/// Long timeouts, as the disk of a busy machine may respond late. `disk.rs` tests that a stalled
/// disk is bypassed and that a stop does not wait for it.
const LONG_TIMEOUTS: &str = "stalled_after = \"2m\"\nstop_timeout = \"2m\"\n";
/// Fewer than the segments of the smallest file in the crash test.
const KILLED_BEFORE_WRITES: u64 = 1_500;
/// Counters of Data that was not stored or was evicted. In these tests all Data fits.
const LOSSES: [&str; 6] = ["backlog_full", "lost", "superseded", "evictions", "full", "damaged"];

/// A producer at the router "far", without a disk, and the router "near", with a disk, connected by
/// TCP.
struct Chain {
    host: Host,
    store: DiskStore,
    metrics_port: u16,
    far: Router,
    near: Router,
}

struct Published {
    name: String,
    source: PathBuf,
    segment_bytes: usize,
    /// Serves the file until it is dropped.
    producer: Process,
}

impl Chain {
    /// 16 MiB of memory and a disk of 192 MiB, with default options except [`LONG_TIMEOUTS`].
    fn start() -> Self {
        Self::start_with("", "")
    }

    /// The same with additional lines in `[disks]` and `[[disk]]`.
    fn start_with(disks: &str, each: &str) -> Self {
        let host = Host::new();
        let metrics_port = host.free_port();
        let store = DiskStore {
            size: "192MiB".into(),
            memory: "16MiB".into(),
            settings: format!(
                "{LONG_TIMEOUTS}{disks}[metrics]\naddress = \"127.0.0.1:{metrics_port}\"\n"
            ),
            disk_settings: each.into(),
            ..DiskStore::new("near")
        };
        let far = Router::start_at_with(&host, "far", &["--store", "4MiB"]);
        let near = store.start(&host);
        let chain = Self { host, store, metrics_port, far, near };
        chain.add_route();
        chain
    }

    fn add_route(&self) {
        self.near.add_route("/far", &self.far.tcp());
    }

    /// Publishes a new file at the far router.
    fn put(&self, number: u64, bytes: usize, segment_bytes: usize) -> Published {
        let source = self.host.path(&format!("source{number}"));
        let _ = random_file(&source, bytes, number);
        let path = source.to_str().expect("UTF-8");
        let name = format!("/far/{number}");
        let size = segment_bytes.to_string();
        let words = ["put", path, &name, "--sign", "digest", "--json", "--segment-size", &size];
        let producer = self.far.spawn(&words);
        let ready = producer.json_line();
        let name = ready["name"].as_str().expect("a name").to_owned();
        Published { name, source, segment_bytes, producer }
    }

    fn begin_get(&self, file: &Published, target: &str) -> Process {
        let target = self.host.path(target);
        let target = target.to_str().expect("UTF-8");
        let words = ["get", &file.name, "-o", target, "--allow-unsigned"];
        self.near.spawn(&words)
    }

    /// Fetches a file from the near router with several readers at once.
    fn get(&self, file: &Published, readers: usize) {
        let targets: Vec<String> = (0..readers).map(|reader| format!("copy{reader}")).collect();
        let gets: Vec<_> = targets.iter().map(|target| self.begin_get(file, target)).collect();
        let expected = fs::read(&file.source).expect("source");
        for (get, target) in gets.into_iter().zip(&targets) {
            get.finish().success();
            let copy = fs::read(self.host.path(target)).expect("copy");
            assert!(copy == expected, "{target} of {} differs from its source", file.name);
            fs::remove_file(self.host.path(target)).expect("removed");
        }
    }

    /// Interests that the far router has received from the near one.
    fn interests_at_far(&self) -> u64 {
        let status = self.far.weir_json(&["status"]);
        let faces = status["faces"].as_array().expect("faces").iter();
        let near = faces.filter(|face| face["uri"].as_str().is_some_and(|uri| uri.contains("tcp")));
        near.map(|face| face["in_interests"].as_u64().expect("a number")).sum()
    }

    /// Ends the producer and the far router.
    fn stop_far(&mut self, file: &mut Published) {
        for process in [&mut file.producer, &mut self.far.process] {
            process.signal(Signal::SIGKILL);
            while process.is_running() {
                thread::sleep(Duration::from_millis(1));
            }
        }
    }

    fn metrics(&self) -> Metrics {
        Metrics::fetch(self.metrics_port)
    }

    fn assert_nothing_lost(&self) {
        let metrics = self.metrics();
        for counter in LOSSES {
            assert_eq!(metrics.disk(counter), 0, "disk_{counter}\n{}", metrics.0);
        }
    }

    /// Ends the near router with a signal, and restarts it with its disk and without routes.
    fn restart_near(self, signal: Signal) -> Self {
        let Self { host, store, metrics_port, far, near } = self;
        let _ = end(near, signal);
        let near = store.start(&host);
        near.wait_for_idle_disks();
        Self { host, store, metrics_port, far, near }
    }

    /// The number of segments of a file that the near router serves. Each is compared with the
    /// source.
    fn served_segments(&self, file: &Published) -> usize {
        let source = fs::read(&file.source).expect("source");
        let router = self.near.unix().parse().expect("a URI");
        let mut client = Client::connect(&router).expect("connects");
        let mut served = 0;
        for (number, expected) in source.chunks(file.segment_bytes).enumerate() {
            let mut name: Name = file.name.parse().expect("a name");
            name.append_segment(number as u64);
            let interest = Interest::new(name.clone()).nonce(number as u32).lifetime_ms(60_000);
            let answer = match client.express(&interest.encode()) {
                Ok(answer) => answer,
                // Without a route, a missing segment gets a Nack.
                Err(ExpressError::Nack(_)) => continue,
                Err(error) => panic!("{name}: {error}"),
            };
            let data = DataView::decode(&answer.packet).expect("Data");
            assert_eq!(data.name.to_name(), name);
            assert!(data.content == expected, "{name} differs from its source");
            served += 1;
        }
        served
    }
}

fn end(mut router: Router, signal: Signal) -> Finished {
    router.process.signal(signal);
    router.process.finish_within(3 * TEST_TIMEOUT)
}

fn segments(file: &Published) -> usize {
    let bytes = fs::metadata(&file.source).expect("source").len() as usize;
    bytes.div_ceil(file.segment_bytes)
}

/// The text of `/metrics`.
struct Metrics(String);

impl Metrics {
    fn fetch(port: u16) -> Self {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("metrics");
        stream.set_read_timeout(Some(TEST_TIMEOUT)).expect("timeout");
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").expect("sent");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        Self(text)
    }

    /// A gauge or counter of the disks, summed over all labels.
    fn disk(&self, name: &str) -> u64 {
        let (gauge, counter) = (format!("weir_disk_{name}"), format!("weir_disk_{name}_total"));
        let values: Vec<u64> = self
            .0
            .lines()
            .filter_map(|line| line.split_once(' '))
            .filter(|(key, _)| {
                let name = key.split('{').next();
                name == Some(&gauge) || name == Some(&counter)
            })
            .map(|(_, value)| value.parse().expect("a number"))
            .collect();
        assert!(!values.is_empty(), "no metric {name}:\n{}", self.0);
        values.iter().sum()
    }

    /// Interests that may have bypassed a disk although it had their Data.
    fn past_the_disk(&self) -> u64 {
        ["bypassed", "hedged", "forwarded_after_wait"].map(|name| self.disk(name)).iter().sum()
    }
}

/// Reads a file several times through the near router, with several readers. Then the producer and
/// the far router stop. The near router must have the whole file, also after a restart.
fn check_file_is_kept(bytes: usize, readings: usize, readers: usize) {
    let mut chain = Chain::start();
    let mut file = chain.put(1, bytes, SEGMENT_BYTES);
    let mut before = 0;
    for reading in 0..readings {
        chain.get(&file, readers);
        let after = chain.interests_at_far();
        // A slow disk, as on a busy machine, may be bypassed. This is counted.
        let past_the_disk = chain.metrics().past_the_disk();
        if reading == 0 {
            assert!(
                after >= segments(&file) as u64,
                "{after} Interests: the test measures nothing"
            );
        } else {
            assert!(after - before <= past_the_disk, "{after} Interests, {before} before");
        }
        before = after;
    }
    chain.near.wait_for_idle_disks();
    chain.stop_far(&mut file);
    chain.get(&file, readers);
    chain.assert_nothing_lost();
    let chain = chain.restart_near(Signal::SIGTERM);
    assert_eq!(chain.served_segments(&file), segments(&file), "after a stop");
}

#[test]
fn keeps_a_file_of_the_size_of_memory() {
    check_file_is_kept(16 * MIB, 1, 1);
}

#[test]
fn keeps_a_file_of_four_times_memory() {
    check_file_is_kept(64 * MIB, 2, 1);
}

#[test]
fn keeps_a_file_that_is_read_five_times() {
    check_file_is_kept(32 * MIB, 5, 1);
}

#[test]
fn keeps_a_file_that_four_readers_read() {
    check_file_is_kept(64 * MIB, 1, 4);
}

#[test]
fn marks_data_that_outruns_a_slow_disk() {
    let mut chain = Chain::start_with("", SLOW_DISK);
    let mut file = chain.put(1, 32 * MIB, SMALL_SEGMENT_BYTES);
    chain.get(&file, 1);
    assert!(chain.metrics().disk("marked") > 0, "{}", chain.metrics().0);
    chain.near.wait_for_idle_disks();
    chain.stop_far(&mut file);
    chain.get(&file, 1);
    chain.assert_nothing_lost();
}

#[test]
fn keeps_repeated_data_past_a_busy_disk() {
    // The index memory holds fewer fingerprints than the file has segments.
    let disks = "bypass = \"threshold\"\nthreshold = 1\nindex_memory_max = \"1MiB\"\n";
    let mut chain = Chain::start_with(disks, SLOW_DISK);
    let mut file = chain.put(1, 24 * MIB, SMALL_SEGMENT_BYTES);
    for _ in 0..3 {
        chain.get(&file, 1);
    }
    assert!(chain.metrics().disk("bypassed") > 0, "{}", chain.metrics().0);
    chain.near.wait_for_idle_disks();
    chain.stop_far(&mut file);
    chain.assert_nothing_lost();
    let chain = chain.restart_near(Signal::SIGTERM);
    assert_eq!(chain.served_segments(&file), segments(&file), "after a stop");
}

/// Kills the near router at random moments during a read. Data written to its disk survives, and
/// all served segments are correct.
fn kill_rounds(rounds: u64) {
    let mut rng = Rng::from_seed(rounds);
    let mut taken = 0;
    let mut first = 0;
    while first < rounds {
        let last = rounds.min(first + 5);
        taken += kill_rounds_of_one_disk(first..last, &mut rng);
        first = last;
    }
    assert!(taken > 0, "no router was killed after a disk write");
}

/// Returns the number of records on the disk at the kills. The disk is large enough for all files,
/// so it never evicts.
fn kill_rounds_of_one_disk(rounds: std::ops::Range<u64>, rng: &mut Rng) -> u64 {
    let mut chain = Chain::start();
    let mut files = Vec::new();
    let mut taken = 0;
    for round in rounds {
        let file = chain.put(round, (12 + rng.next_u64() as usize % 12) * MIB, SEGMENT_BYTES);
        let mut entries = chain.metrics().disk("entries");
        let get = chain.begin_get(&file, "copy");
        // Kill after a number of writes, not after a time, so that a slow machine gets there too.
        let writes_until_kill = rng.next_u64() % KILLED_BEFORE_WRITES;
        let deadline = Instant::now() + TEST_TIMEOUT;
        loop {
            let metrics = chain.metrics();
            // The number of entries includes records that are not written yet.
            if metrics.disk("writes_waiting") == 0 {
                entries = metrics.disk("entries");
            }
            if metrics.disk("writes") >= writes_until_kill {
                break;
            }
            assert!(Instant::now() < deadline, "round {round} writes nothing\n{}", metrics.0);
            thread::sleep(Duration::from_millis(1));
        }
        chain = chain.restart_near(Signal::SIGKILL);
        drop(get);
        let after = chain.metrics();
        assert!(after.disk("entries") >= entries, "{entries} in round {round}\n{}", after.0);
        taken += entries;
        files.push(file);
        let segments: usize = files.iter().map(|file| chain.served_segments(file)).sum();
        // Each object has a few more packets: metadata and manifest.
        let others = files.len() * 16;
        assert!((segments + others) as u64 >= entries, "{segments} of {entries} in {round}");
        assert_eq!(chain.metrics().disk("damaged"), 0, "round {round}");
        chain.add_route();
    }
    taken
}

#[test]
fn sigkill_loses_nothing_written() {
    kill_rounds(5);
}

#[test]
#[ignore = "kills 200 routers, which takes minutes"]
fn many_sigkills_lose_nothing_written() {
    kill_rounds(200);
}

#[test]
fn full_disk_is_reported_and_recovers() {
    let host = Host::new();
    let Some(small) = SmallDisk::mount(&host, "small", "24m") else { return };
    let store = DiskStore {
        folder: Some(small.folder().to_path_buf()),
        size: "16MiB".into(),
        disk_settings: "region_size = \"1MiB\"\n".into(),
        ..DiskStore::new("near")
    };
    store.write_config(&host);
    let arguments = ["-c", "near.toml"];
    let start = || Router::start_as(&host, small.command(&host, weir_binary()), "near", &arguments);
    end(start(), Signal::SIGTERM).success();
    // A sparse file, as the router would reserve the space of a new disk.
    let disk = small.path_from_outside().join("near.disk0");
    let content = fs::read(&disk).expect("disk");
    fs::write(&disk, &content[..8192]).expect("start of the disk");
    fs::File::options()
        .write(true)
        .open(&disk)
        .expect("disk")
        .set_len(content.len() as u64)
        .expect("holes");
    let near = start();
    small.fill();
    let put_and_get = |number: u64| {
        let source = host.path("source");
        let _ = random_file(&source, 4 * MIB, number);
        let name = format!("/near/{number}");
        let words = ["put", source.to_str().expect("UTF-8"), &name, "--sign", "digest", "--json"];
        let producer = near.spawn(&words);
        let _ = producer.json_line();
        let copy = host.path("copy");
        let words = ["get", &name, "-o", copy.to_str().expect("UTF-8"), "--allow-unsigned"];
        near.weir(&words).success();
        assert!(fs::read(&source).expect("source") == fs::read(&copy).expect("copy"), "{name}");
    };
    put_and_get(1);
    let full = near.wait_for_disks("a failed write", |disk| disk["write_errors"] != 0);
    near.process.wait_for_output("writes of the disk failed");
    small.remove_filler();
    let mut number = 1;
    // The router retries after a pause, when it has something to write.
    wait_until("the disk is used again", || {
        number += 1;
        put_and_get(number);
        near.disk_status()["writes"] != full["writes"]
    });
}

/// `weir cs fetch` fills the store and writes no file; `cs list` then counts what consumers get.
#[test]
fn prestaged_object_is_listed_with_its_hits() {
    const BYTES: usize = 400_000;
    const SEGMENTS: u64 = BYTES.div_ceil(SEGMENT_BYTES) as u64;
    let host = Host::new();
    let metrics_port = host.free_port();
    let address = format!("127.0.0.1:{metrics_port}");
    let far = Router::start_at(&host, "far");
    host.write("near.toml", b"[metrics]\ncontents = true\n");
    let arguments = ["--config", "near.toml", "--metrics", &address];
    let near = Router::start_at_with(&host, "near", &arguments);
    near.add_route("/far", &far.tcp());
    let _ = random_file(&host.path("file"), BYTES, 5);
    let (producer, ready) = far.put(&["file", "/far/file"]);
    let versioned = ready["name"].as_str().expect("a name").to_owned();

    let files = host.list(".");
    let fetched = near.weir_json(&["cs", "fetch", "/far/file"]);
    assert_eq!(fetched["segments_held"], SEGMENTS, "{fetched}");
    assert_eq!((&fetched["segments"], &fetched["bytes"]), (&SEGMENTS.into(), &BYTES.into()));
    assert_eq!(host.list("."), files, "nothing is written");

    let list = |arguments: &[&str]| near.weir_json(&[&["cs", "list"], arguments].concat());
    let before = list(&[&versioned]);
    let object = &before["objects"][0];
    assert_eq!(object["name"], versioned.as_str());
    assert_eq!(
        (&object["segments"], &object["packets_held"]),
        (&SEGMENTS.into(), &SEGMENTS.into())
    );
    assert_eq!(object["hits"], 0);
    // The producer is gone: the store answers.
    drop(producer);
    let target = host.path("copy");
    near.weir(&["get", &versioned, "-o", target.to_str().expect("UTF-8")]).success();
    let after = list(&[&versioned, "--sort", "served"]);
    let object = &after["objects"][0];
    assert_eq!(object["hits"], SEGMENTS, "{after}");
    assert!(object["served_bytes"].as_u64().expect("bytes") > BYTES as u64, "{after}");
    assert!(object["last_use_ms_ago"].as_u64().expect("an age") < 60_000, "{after}");
    let text = near.weir(&["cs", "list", &versioned]).success().output;
    assert!(text.contains(&format!("{SEGMENTS} of {SEGMENTS}, 100 %")), "{text}");

    let page = http_get(metrics_port, &format!("/contents?prefix={versioned}&limit=1"));
    let page: serde_json::Value = serde_json::from_str(&page).expect("JSON");
    assert_eq!(page["objects"][0]["hits"], SEGMENTS, "{page}");
}

/// The body of the answer to a GET request to 127.0.0.1.
fn http_get(port: u16, path: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: test\r\n\r\n").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 200 "), "{answer}");
    body.to_owned()
}

/// Pinned data survives pressure; data that was erased `--soon` is evicted first; both last as long
/// as there is room.
#[test]
fn pins_stay_and_soon_goes_first() {
    let host = Host::new();
    let router = Router::start_with(&host, &["--store", "8MiB"]);
    let put = |name: &str, bytes: usize| {
        let _ = random_file(&host.path(&name[1..]), bytes, bytes as u64);
        let (producer, ready) = router.put(&[&name[1..], name]);
        // Exits with 1 if not all of the object fits.
        router.weir(&["cs", "fetch", name]);
        let versioned = ready["name"].as_str().expect("a name").to_owned();
        (producer, versioned)
    };
    let held = |versioned: &str| {
        let listed = router.weir_json(&["cs", "list", versioned]);
        listed["objects"][0]["packets_held"].as_u64().unwrap_or(0)
    };
    let error = router.weir(&["cs", "pin", "/pinned"]).failure();
    assert!(error.contains("memory holds nothing below /pinned yet"), "{error}");
    let (_one, pinned) = put("/pinned", MIB);
    let (_two, soon) = put("/soon", MIB);
    let (_three, other) = put("/other", 2 * MIB);
    let segments = |bytes: usize| bytes.div_ceil(SEGMENT_BYTES) as u64;
    router.weir(&["cs", "pin", "/pinned"]).success();
    router.weir(&["cs", "erase", "/soon", "--soon"]).success();
    assert_eq!(held(&soon), segments(MIB), "there is room");

    // 4 MiB are free, so 1 MiB more than that must evict /soon, and only that.
    let (_four, _) = put("/fill", 4 * MIB + MIB / 4);
    assert!(held(&soon) < segments(MIB) / 2, "{} segments", held(&soon));
    assert_eq!((held(&pinned), held(&other)), (segments(MIB), segments(2 * MIB)));
    let (_five, _) = put("/more", 7 * MIB);
    assert_eq!(held(&pinned), segments(MIB));
    let listed = router.weir_json(&["cs", "list"]);
    assert_eq!(listed["pins"][0]["prefix"], "/pinned");
    router.weir(&["cs", "unpin", "/pinned"]).success();
    let error = router.weir(&["cs", "unpin", "/pinned"]).failure();
    assert!(error.contains("/pinned is not pinned"), "{error}");
    let error = router.weir(&["cs", "pin", "/pinned", "--size", "8MiB"]).failure();
    assert!(error.contains("the store allows"), "{error}");
}

/// Objects on a disk are listed, and keep their hits when they leave memory.
#[test]
fn lists_objects_on_disks() {
    let host = Host::new();
    let store = DiskStore {
        size: "64MiB".into(),
        memory: "2MiB".into(),
        settings: LONG_TIMEOUTS.into(),
        ..DiskStore::new("near")
    };
    let router = store.start(&host);
    let list = |name: &str| router.weir_json(&["cs", "list", name]);
    // The first list starts the index of the disk.
    assert_eq!(list("/one")["total"], 0);
    let fetch = |name: &str| router.weir_json(&["cs", "fetch", name]);
    let _ = random_file(&host.path("file"), MIB, 1);
    let _ = random_file(&host.path("fill"), 6 * MIB, 2);
    let (_one, _) = router.put(&["file", "/one"]);
    let (_two, _) = router.put(&["fill", "/two"]);
    fetch("/one");
    fetch("/one");
    let segments = MIB.div_ceil(SEGMENT_BYTES) as u64;
    fetch("/two");
    wait_until("the file is on disk only", || {
        let object = &list("/one")["objects"];
        let of = |tier: &str| {
            let shares = object.as_array().expect("objects").iter();
            shares.map(|one| one[tier]["packets"].as_u64().expect("a count")).sum::<u64>()
        };
        of("disk") >= segments && of("memory") < segments / 2
    });
    let listed = list("/one");
    let objects = listed["objects"].as_array().expect("objects").iter();
    let hits: u64 = objects.map(|one| one["hits"].as_u64().expect("hits")).sum();
    assert!(hits >= segments / 2, "{listed}");
    assert_eq!(listed["unnamed"], 0, "{listed}");
}
