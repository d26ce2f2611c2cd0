//! Programs that share memory with their router, also when they are killed.

use nix::sys::signal::Signal;
use serde_json::Value;
use weir_tests::{Host, Process, Router, random_file, sha256_hex, wait_until};

const FILE_BYTES: usize = 64 << 20;

/// A router whose store is too small for the file, so that it comes from the producer.
fn router(host: &Host, config: &str) -> Router {
    let text = format!("[store]\nsize = \"16MiB\"\n{config}");
    host.write("router.toml", text.as_bytes());
    Router::start_with(host, &["-c", "router.toml"])
}

struct Published {
    producer: Process,
    name: String,
    digest: String,
}

fn publish(router: &Router) -> Published {
    let digest = random_file(&router.host.path("source"), FILE_BYTES, 3);
    let (producer, name) = router.put_object(&["source", "/file"]);
    Published { producer, name, digest }
}

fn faces(router: &Router) -> Vec<Value> {
    let faces = router.weir(&["face", "list", "--json"]).success().json();
    faces.as_array().expect("faces").clone()
}

fn is_shared(face: &Value) -> bool {
    face["local_uri"].as_str().is_some_and(|uri| uri.starts_with("shm://"))
}

/// Number of shared-memory faces with more than `data_min` Data packets in either direction.
fn shared_faces(router: &Router, data_min: u64) -> usize {
    let data = |face: &Value| {
        face["in_data"].as_u64().expect("a number") + face["out_data"].as_u64().expect("a number")
    };
    faces(router).iter().filter(|face| is_shared(face) && data(face) > data_min).count()
}

fn get(router: &Router, published: &Published, copy: &str) -> Process {
    router.spawn(&["get", &published.name, "-o", copy, "--json"])
}

fn expect_copy(router: &Router, published: &Published) {
    get(router, published, "copy").finish().success();
    assert_eq!(sha256_hex(&router.host.path("copy")), published.digest);
}

#[test]
fn get_and_put_share_memory_by_default() {
    let host = Host::new();
    let router = router(&host, "");
    let published = publish(&router);
    expect_copy(&router, &published);
    assert_eq!(shared_faces(&router, 8000), 1, "{:?}", faces(&router));
    drop(published);
    wait_until("the faces are gone", || shared_faces(&router, 0) == 0);
}

#[test]
fn shared_memory_can_be_disabled() {
    let host = Host::new();
    let router = router(&host, "[faces]\nshared_memory = false\n");
    let published = publish(&router);
    expect_copy(&router, &published);
    assert_eq!(shared_faces(&router, 0), 0);
}

#[test]
fn programs_without_memory_use_the_socket() {
    let host = Host::new();
    // A sixteenth of it is too little for one program.
    let router = router(&host, "[router]\nmemory_max = \"16MiB\"\nthreads = 1\n");
    let published = publish(&router);
    expect_copy(&router, &published);
    assert_eq!(shared_faces(&router, 0), 0);
}

#[test]
fn killed_consumer_leaves_no_trace() {
    let host = Host::new();
    let router = router(&host, "");
    let published = publish(&router);
    let mut killed = 0;
    for _ in 0..3 {
        let mut consumer = get(&router, &published, "lost");
        wait_until("two faces are in use", || {
            shared_faces(&router, 1000) == 2 || !consumer.is_running()
        });
        killed += u32::from(consumer.is_running());
        consumer.signal(Signal::SIGKILL);
        drop(consumer);
        wait_until("its face is gone", || shared_faces(&router, 0) <= 1);
    }
    assert!(killed > 0, "no program was killed during a transfer");
    expect_copy(&router, &published);
}

#[test]
fn killed_producer_leaves_no_trace() {
    let host = Host::new();
    let router = router(&host, "");
    let mut published = publish(&router);
    let consumer = get(&router, &published, "copy");
    wait_until("two faces are in use", || shared_faces(&router, 1000) == 2);
    published.producer.signal(Signal::SIGKILL);
    drop(published);
    wait_until("its face is gone", || shared_faces(&router, 0) <= 1);
    // Another producer of the same file serves the remaining segments.
    let published = publish(&router);
    drop(consumer);
    expect_copy(&router, &published);
}

#[test]
fn programs_end_when_the_router_stops() {
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let host = Host::new();
        let mut router = router(&host, "");
        let published = publish(&router);
        let consumer = get(&router, &published, "copy");
        wait_until("two faces are in use", || shared_faces(&router, 1000) == 2);
        router.process.signal(signal);
        let error = consumer.finish().failure();
        assert!(error.contains("router"), "{error}");
        drop(published);
    }
}

/// A stopped consumer fills its ring. Others are served, and it continues after SIGCONT.
#[test]
fn stopped_consumer_harms_no_other() {
    let host = Host::new();
    let router = router(&host, "");
    let published = publish(&router);
    let mut consumer = get(&router, &published, "late");
    wait_until("two faces are in use", || shared_faces(&router, 500) == 2);
    consumer.signal(Signal::SIGSTOP);
    expect_copy(&router, &published);
    consumer.signal(Signal::SIGCONT);
    consumer.finish().success();
    assert_eq!(sha256_hex(&host.path("late")), published.digest);
}
