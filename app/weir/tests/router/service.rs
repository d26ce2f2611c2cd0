//! The router as a service: notifications for systemd, `/health` and `/ready`.

use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::served::{Site, TEST_TIMEOUT, wait_until};

/// The socket of a service manager.
struct Manager(UnixDatagram);

impl Manager {
    fn new(site: &Site) -> Self {
        let socket = UnixDatagram::bind(site.path("notify")).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        Self(socket)
    }

    fn receive(&self) -> Option<String> {
        let mut octets = [0; 4096];
        let count = self.0.recv(&mut octets).ok()?;
        Some(String::from_utf8(octets[..count].to_vec()).unwrap())
    }

    /// Receives messages up to one that contains `part`.
    fn receive_until(&self, part: &str) -> Vec<String> {
        let mut messages = Vec::new();
        let deadline = Instant::now() + TEST_TIMEOUT;
        while !messages.last().is_some_and(|last: &String| last.contains(part)) {
            assert!(Instant::now() < deadline, "no {part}: {messages:?}");
            messages.extend(self.receive());
        }
        messages
    }
}

#[test]
fn systemd_is_notified() {
    let site = Site::new("[[face]]\nuri = \"udp4://127.0.0.1:7001\"\nroutes = [\"/a\"]\n");
    let manager = Manager::new(&site);
    let mut command = site.router(&["--threads", "2"]);
    command.env("NOTIFY_SOCKET", site.path("notify")).env("WATCHDOG_USEC", "1000000");
    let mut router = site.start_as(command);
    let started = manager.receive_until("READY=1");
    if !started.iter().any(|message| message.contains("STATUS=")) {
        manager.receive_until("STATUS=");
    }
    // Half of the timeout lies between two signs of life: 1 s for three of them. The first may
    // already wait here.
    let began = Instant::now();
    (0..3).for_each(|_| drop(manager.receive_until("WATCHDOG=1")));
    assert!(began.elapsed() > Duration::from_millis(500), "{:?}", began.elapsed());
    router.signal(Signal::SIGHUP);
    let begun = manager.receive_until("RELOADING=1").pop().unwrap();
    assert!(begun.contains("MONOTONIC_USEC="), "{begun}");
    let ended = manager.receive_until("READY=1").pop().unwrap();
    assert!(ended.contains("STATUS=") && ended.contains("nothing has changed"), "{ended}");
    site.write("[oops]\n");
    let error = site.reload().unwrap_err();
    assert!(error.contains("oops"), "{error}");
    let ended = manager.receive_until("READY=1").pop().unwrap();
    assert!(ended.contains("last reload refused") && ended.contains("oops"), "{ended}");
    // A stopped process shows no sign of life, so systemd would restart it.
    router.signal(Signal::SIGSTOP);
    while manager.receive().is_some() {}
    std::thread::sleep(Duration::from_millis(1100));
    assert_eq!(manager.receive(), None);
    router.signal(Signal::SIGCONT);
    manager.receive_until("WATCHDOG=1");
    router.signal(Signal::SIGTERM);
    manager.receive_until("STOPPING=1");
    router.wait();
}

#[test]
fn health_and_readiness_are_served() {
    let site = Site::new("");
    let disk = site.path("disk");
    let words = ["--metrics", "127.0.0.1:0", "--disk", disk.to_str().unwrap(), "--disk-size"];
    let router = site.start(&[&words[..], &["16MiB"]].concat());
    let url = router.ready["metrics"].as_str().unwrap().replace("/metrics", "");
    let fetch = |path: &str| {
        let config = ureq::Agent::config_builder().http_status_as_error(false).build();
        let agent = ureq::Agent::new_with_config(config);
        let mut answer = agent.get(format!("{url}/{path}")).call().unwrap();
        (answer.status().as_u16(), answer.body_mut().read_to_string().unwrap())
    };
    assert_eq!(fetch("health"), (200, "ok\n".into()));
    wait_until("the router is ready", || {
        let (status, text) = fetch("ready");
        assert!(status == 200 || text.contains("recovered"), "{status} {text}");
        status == 200
    });
    assert_eq!(fetch("ready"), (200, "ok\n".into()));
    assert_eq!(fetch("other").0, 404);
    router.stop();
}
