//! Objects and keys exchanged between Weir and python-ndn and NDNts.

use std::net::UdpSocket;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use std::{fs, thread};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use weir_tests::{
    Client, Host, Library, Process, Router, interop_is_skipped, random_file, sha256_hex,
};
use weir_wire::LpView;

const SIZE: usize = 100_003;

/// Signature types: the name in `weir key` and the clients, and the number.
const SIGNATURES: [(&str, u64); 4] = [("rsa", 1), ("ecdsa", 3), ("hmac", 4), ("ed25519", 5)];

/// The PKCS#8 header before an HMAC secret of 32 bytes, see `weir key`.
const HMAC_PKCS8_PREFIX: &[u8] = &[
    0x30, 0x33, 0x02, 0x01, 0x00, 0x30, 0x0c, 0x06, 0x08, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x02,
    0x09, 0x05, 0x00, 0x04, 0x20,
];

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// Creates a key with `weir key`, and returns a file for verification by another library.
fn weir_key(router: &Router, owner: &str, kind: &str) -> std::path::PathBuf {
    let identity = format!("/{owner}/{kind}");
    router.weir(&["key", "new", &identity, "--type", kind, "--default"]).success();
    let file = router.host.path(&format!("{owner}.{kind}"));
    if kind != "hmac" {
        let words = ["key", "export", &identity, "--output", text(&file)];
        router.weir(&words).success();
        return file;
    }
    let words = ["key", "export", &identity, "--private", "--form", "pem", "--unencrypted"];
    let pem = router.weir(&words).success().output;
    let body: String = pem
        .lines()
        .skip_while(|line| !line.starts_with("-----BEGIN"))
        .skip(1)
        .take_while(|line| !line.starts_with("-----END"))
        .collect();
    let pkcs8 = STANDARD.decode(body).expect("base64");
    let secret = pkcs8.strip_prefix(HMAC_PKCS8_PREFIX).expect("PKCS#8 of a secret");
    fs::write(&file, secret).expect("secret");
    file
}

fn put(router: &Router, name: &str, arguments: &[&str]) -> (Process, String) {
    let sha256 = random_file(&router.host.path("source"), SIZE, 5);
    let (process, versioned) = router.put_object(&[&["source", name], arguments].concat());
    assert!(versioned.starts_with(name), "{versioned}");
    (process, sha256)
}

fn weir_object_read_by(library: Library) {
    if interop_is_skipped() {
        return;
    }
    let router = Router::on_new_host();
    let client = Client::new(&router.host, library, &router.unix());
    for (kind, number) in SIGNATURES {
        let wrong_key = weir_key(&router, "other", kind);
        let key = weir_key(&router, "weir", kind);
        let name = format!("/weir/{kind}/file");
        let (_producer, sha256) = put(&router, &name, &[]);
        let option = if kind == "hmac" { "--secret" } else { "--key" };
        let object = client.run_to_json(&["get", &name, option, text(&key)]);
        assert_eq!(object["event"], "object", "{kind}: {object}");
        assert_eq!(object["sha256"], sha256, "{kind}");
        assert_eq!(object["signatureType"], number, "{kind}");
        assert_eq!(object["verified"], true, "{kind}: {object}");
        let locator = object["keyLocator"].as_str().expect("a key locator");
        assert!(locator.starts_with(&format!("/weir/{kind}/KEY/")), "{locator}");

        let object = client.run_to_json(&["get", &name, option, text(&wrong_key)]);
        assert_eq!(object["verified"], false, "{kind} with a wrong key: {object}");
    }
}

fn object_of(library: Library) {
    if interop_is_skipped() {
        return;
    }
    let host = Host::new();
    let router = Router::start(&host);
    let client = Client::new(&host, library, &router.unix());
    let source = host.path("source");
    let sha256 = random_file(&source, SIZE, 6);
    for (kind, _) in SIGNATURES {
        let name = format!("/{}/{kind}", library.label());
        let key = host.path(&format!("{kind}.key"));
        let words = ["put", &name, text(&source), "--sign", kind, "--key-out", text(&key)];
        let producer = client.start(&words);
        let object = producer.event("object");
        assert_eq!(producer.event("ready")["registered"], true);
        accept_key(&router, kind, &key, object["keyName"].as_str().expect("a name"));
        let target = host.path(&format!("{kind}.copy"));
        let report = router.weir_json(&["get", &name, "-o", text(&target)]);
        assert_eq!(sha256_hex(&target), sha256, "{kind}: {report}");
        assert_eq!(report["segments"], object["segments"], "{kind}");
    }
}

/// Makes `weir get` trust the key of a client.
fn accept_key(router: &Router, kind: &str, key: &Path, key_name: &str) {
    if kind != "hmac" {
        router.weir(&["key", "trust", text(key)]).success();
        return;
    }
    let pkcs8 = [HMAC_PKCS8_PREFIX, &fs::read(key).expect("secret")].concat();
    let base64 = STANDARD.encode(pkcs8);
    let (first, rest) = base64.split_at(64);
    let pem = format!("-----BEGIN PRIVATE KEY-----\n{first}\n{rest}\n-----END PRIVATE KEY-----\n");
    let file = router.host.write("hmac.pem", pem.as_bytes());
    let words = ["key", "import", text(&file), "--name", key_name];
    router.weir(&words).success();
}

#[test]
fn python_ndn_reads_and_verifies_weir_objects() {
    weir_object_read_by(Library::PythonNdn);
}

#[test]
fn ndnts_reads_and_verifies_weir_objects() {
    weir_object_read_by(Library::Ndnts);
}

/// ECDSA signatures differ in length, so the router pads link headers over UDP
/// (docs/decisions/0033). NDNts must ignore the padding.
#[test]
fn ndnts_reads_padded_frames_over_udp() {
    if interop_is_skipped() {
        return;
    }
    let router = Router::on_new_host();
    let key = weir_key(&router, "weir", "ecdsa");
    let (_producer, sha256) = put(&router, "/padded/file", &["--segment-size", "1000"]);
    let relay = UdpRelay::to(router.port());
    let client = Client::new(&router.host, Library::Ndnts, &relay.uri());
    let object = client.run_to_json(&["get", "/padded/file", "--key", text(&key)]);
    assert_eq!((&object["sha256"], &object["verified"]), (&sha256.into(), &true.into()));
    let padded = relay.padded.load(Ordering::Relaxed);
    assert!(padded > 0, "of {object}");
}

/// Relays the datagrams of one peer in both directions, and counts the padded ones from the router.
/// Datagrams of the peer are delayed, so that several are sent and answered together.
struct UdpRelay {
    port: u16,
    padded: Arc<AtomicU64>,
}

impl UdpRelay {
    /// A relay to `port` of this machine. Its thread ends with the process.
    fn to(port: u16) -> Self {
        let bind = || UdpSocket::bind("127.0.0.1:0").expect("a free port");
        let (near, far) = (bind(), bind());
        far.connect(("127.0.0.1", port)).expect("loopback");
        let own_port = near.local_addr().expect("bound address").port();
        let padded = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&padded);
        thread::spawn(move || {
            let mut octets = [0; 9000];
            let (len, peer) = near.recv_from(&mut octets).expect("the client begins");
            near.connect(peer).expect("loopback");
            far.send(&octets[..len]).expect("the router is there");
            let (near_source, far_sink) = (near.try_clone().unwrap(), far.try_clone().unwrap());
            thread::spawn(move || pass_in_bursts(&near_source, &far_sink));
            while let Ok(len) = far.recv(&mut octets) {
                let frame = &octets[..len];
                let has_padding = LpView::decode(frame).is_ok_and(|view| {
                    view.fields().any(|field| field.typ == weir_wire::tlv::LP_PADDING)
                });
                count.fetch_add(has_padding.into(), Ordering::Relaxed);
                if near.send(frame).is_err() {
                    return;
                }
            }
        });
        Self { port: own_port, padded }
    }

    fn uri(&self) -> String {
        format!("udp4://127.0.0.1:{}", self.port)
    }
}

/// Relays in bursts until one end is closed.
fn pass_in_bursts(from: &UdpSocket, to: &UdpSocket) {
    let mut octets = [0; 9000];
    while let Ok(len) = from.recv(&mut octets) {
        let mut burst = vec![octets[..len].to_vec()];
        from.set_read_timeout(Some(Duration::from_millis(5))).expect("a socket");
        while let Ok(len) = from.recv(&mut octets) {
            burst.push(octets[..len].to_vec());
        }
        from.set_read_timeout(None).expect("a socket");
        if burst.iter().any(|datagram| to.send(datagram).is_err()) {
            return;
        }
    }
}

#[test]
fn weir_reads_and_verifies_python_ndn_objects() {
    object_of(Library::PythonNdn);
}

#[test]
fn weir_reads_and_verifies_ndnts_objects() {
    object_of(Library::Ndnts);
}

#[test]
fn refuses_object_signed_by_another_key() {
    if interop_is_skipped() {
        return;
    }
    let host = Host::new();
    let router = Router::start(&host);
    let client = Client::new(&host, Library::PythonNdn, &router.unix());
    let source = host.path("source");
    random_file(&source, SIZE, 7);
    let [owner, intruder] = ["owner.key", "intruder.key"].map(|name| host.path(name));
    let words = ["put", "/owned", text(&source), "--sign", "ecdsa", "--key-out"];
    let owners = client.start(&[&words[..], &[text(&owner)]].concat());
    assert_eq!(owners.event("ready")["registered"], true);
    drop(owners);
    router.weir(&["key", "trust", text(&owner)]).success();
    let intruders = client.start(&[&words[..], &[text(&intruder)]].concat());
    assert_eq!(intruders.event("ready")["registered"], true);
    let target = host.path("copy");
    let message = router.weir(&["get", "/owned", "-o", text(&target)]).failure();
    assert!(message.contains("ask the producer"), "no next step: {message}");
    assert!(!message.contains("weir key trust"), "advice that would help a forger: {message}");
    assert!(!target.exists(), "unverified content under its final name");
}

#[test]
fn reads_digest_signed_metadata_of_both() {
    if interop_is_skipped() {
        return;
    }
    let router = Router::on_new_host();
    for library in Library::ALL {
        let client = Client::new(&router.host, library, &router.unix());
        let name = format!("/digest/{}", library.label());
        let (_producer, sha256) = put(&router, &name, &["--sign", "digest"]);
        let object: Value = client.run_to_json(&["get", &name]);
        assert_eq!(object["sha256"], sha256);
        assert_eq!(object["signatureType"], 0);
        assert_eq!(object["verified"], true);
    }
}
