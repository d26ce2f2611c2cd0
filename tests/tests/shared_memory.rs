//! Programs that share memory with their router, and die in the middle of it.

use std::fs;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;
use weir_tests::{PATIENCE, Process, Router, RouterOptions, Site, random_file, sha256_hex};

const FILE_BYTES: usize = 64 << 20;

/// A router without room for all of the file, so that it comes from the producer.
fn router(site: &Site, config: &str) -> Router {
    let text = format!("[store]\nsize = \"16MiB\"\n{config}");
    fs::write(site.path("router.toml"), text).expect("file");
    let arguments = vec!["-c".into(), site.path("router.toml").display().to_string()];
    Router::start_with(site, &RouterOptions { arguments, ..RouterOptions::default() })
}

struct Published {
    producer: Process,
    name: String,
    digest: String,
}

fn publish(site: &Site, router: &Router) -> Published {
    let digest = random_file(&site.path("source"), FILE_BYTES, 3);
    let producer = site.weir(&router.unix(), &["put", "source", "/file", "--json"]);
    let name = producer.json_line()["name"].as_str().expect("a name").to_owned();
    Published { producer, name, digest }
}

fn faces(site: &Site, router: &Router) -> Vec<Value> {
    let faces = router.weir(site, &["face", "list", "--json"]).success().json();
    faces.as_array().expect("faces").clone()
}

fn is_shared(face: &Value) -> bool {
    face["localUri"].as_str().is_some_and(|uri| uri.starts_with("shm://"))
}

/// Faces in shared memory over which more than so many Data have gone, in or out.
fn shared_faces(site: &Site, router: &Router, data_min: u64) -> usize {
    let data = |face: &Value| {
        face["inData"].as_u64().expect("a number") + face["outData"].as_u64().expect("a number")
    };
    faces(site, router).iter().filter(|face| is_shared(face) && data(face) > data_min).count()
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn get(site: &Site, router: &Router, published: &Published, copy: &str) -> Process {
    site.weir(&router.unix(), &["get", &published.name, "-o", copy, "--json"])
}

fn expect_copy(site: &Site, router: &Router, published: &Published) {
    let _ = get(site, router, published, "copy").finish().success();
    assert_eq!(sha256_hex(&site.path("copy")), published.digest);
}

#[test]
fn get_and_put_share_memory_by_default_and_face_list_says_so() {
    let site = Site::new();
    let router = router(&site, "");
    let published = publish(&site, &router);
    expect_copy(&site, &router, &published);
    assert_eq!(shared_faces(&site, &router, 8000), 1, "{:?}", faces(&site, &router));
    drop(published);
    wait_until("the faces are gone", || shared_faces(&site, &router, 0) == 0);
}

#[test]
fn a_router_may_be_told_to_share_none() {
    let site = Site::new();
    let router = router(&site, "[faces]\nshared_memory = false\n");
    let published = publish(&site, &router);
    expect_copy(&site, &router, &published);
    assert_eq!(shared_faces(&site, &router, 0), 0);
}

#[test]
fn without_room_programs_stay_on_the_socket() {
    let site = Site::new();
    // A sixteenth of it is not enough for one.
    let router = router(&site, "[router]\nmemory_max = \"16MiB\"\nthreads = 1\n");
    let published = publish(&site, &router);
    expect_copy(&site, &router, &published);
    assert_eq!(shared_faces(&site, &router, 0), 0);
}

#[test]
fn a_consumer_that_is_killed_leaves_no_trace() {
    let site = Site::new();
    let router = router(&site, "");
    let published = publish(&site, &router);
    let mut killed = 0;
    for _ in 0..3 {
        let mut consumer = get(&site, &router, &published, "lost");
        wait_until("two faces are in use", || {
            shared_faces(&site, &router, 1000) == 2 || !consumer.is_running()
        });
        killed += u32::from(consumer.is_running());
        consumer.signal(Signal::SIGKILL);
        drop(consumer);
        wait_until("its face is gone", || shared_faces(&site, &router, 0) <= 1);
    }
    assert!(killed > 0, "none was killed in the middle");
    expect_copy(&site, &router, &published);
}

#[test]
fn a_producer_that_is_killed_leaves_no_trace() {
    let site = Site::new();
    let router = router(&site, "");
    let mut published = publish(&site, &router);
    let consumer = get(&site, &router, &published, "copy");
    wait_until("two faces are in use", || shared_faces(&site, &router, 1000) == 2);
    published.producer.signal(Signal::SIGKILL);
    drop(published);
    wait_until("its face is gone", || shared_faces(&site, &router, 0) <= 1);
    // Another producer of the same file serves the rest.
    let published = publish(&site, &router);
    drop(consumer);
    expect_copy(&site, &router, &published);
}

#[test]
fn a_router_that_stops_ends_its_programs() {
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let site = Site::new();
        let mut router = router(&site, "");
        let published = publish(&site, &router);
        let consumer = get(&site, &router, &published, "copy");
        wait_until("two faces are in use", || shared_faces(&site, &router, 1000) == 2);
        router.process.signal(signal);
        let error = consumer.finish().failure();
        assert!(error.contains("router"), "{error}");
        drop(published);
    }
}

/// The ring of a consumer that stands still is full; others are served, and it goes on.
#[test]
fn a_consumer_that_stands_still_harms_itself_alone() {
    let site = Site::new();
    let router = router(&site, "");
    let published = publish(&site, &router);
    let mut consumer = get(&site, &router, &published, "late");
    wait_until("two faces are in use", || shared_faces(&site, &router, 500) == 2);
    consumer.signal(Signal::SIGSTOP);
    expect_copy(&site, &router, &published);
    consumer.signal(Signal::SIGCONT);
    let _ = consumer.finish().success();
    assert_eq!(sha256_hex(&site.path("late")), published.digest);
}
