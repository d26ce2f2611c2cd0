//! `weir get` of what a producer serves that does not serve its certificate, as ndnputchunks and
//! ndnserve of ndn-tools 65e2bfa do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use weir_base::NS_PER_MS;
use weir_client::{Client, ReceivedPacket};
use weir_crypto::{KeyChain, KeySigner, KeyType, to_base64_lines};
use weir_security::sign_data;
use weir_tests::{Host, Router};
use weir_wire::{Component, Data, DataView, InterestView, LpHeader, Name};

const SEGMENT_SIZE: usize = 4000;
const CONTENT_SIZE: usize = 10_000;

fn name(uri: &str) -> Name {
    uri.parse().expect("a name")
}

fn content() -> Vec<u8> {
    (0..CONTENT_SIZE).map(|at| (at / 7) as u8).collect()
}

/// The signed segments of `/plain`, and the certificate as a file at `/certificate`.
fn packets(signer: &KeySigner) -> Vec<Vec<u8>> {
    let mut versioned = name("/plain");
    versioned.append_version(1);
    let content = content();
    let last = content.len().div_ceil(SEGMENT_SIZE) - 1;
    let segments = content.chunks(SEGMENT_SIZE).enumerate().map(|(number, content)| {
        let mut name = versioned.clone();
        name.append_segment(number as u64);
        let data = Data::new(name).content(content).freshness_ms(10_000);
        let data = data.final_block_id(Component::segment(last as u64));
        sign_data(&data, signer).expect("a signature")
    });
    let mut packets: Vec<_> = segments.collect();
    let certificate = to_base64_lines(signer.certificate().expect("a certificate").wire());
    let mut file = name("/certificate");
    file.append_version(1).append_segment(0);
    packets.push(sign_data(&Data::new(file).content(certificate), signer).expect("a signature"));
    packets
}

/// Answers Interests for its packets until it is dropped.
struct Producer {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Producer {
    fn start(router: &Router, packets: Vec<Vec<u8>>) -> Self {
        let mut client =
            Client::connect(&router.unix().parse().expect("a URI")).expect("the router lives");
        for prefix in ["/plain", "/certificate"] {
            client.register_prefix(&name(prefix)).expect("registered");
        }
        let is_over = Arc::new(AtomicBool::new(false));
        let thread = thread::spawn({
            let is_over = Arc::clone(&is_over);
            move || serve(client, &packets, &is_over)
        });
        Self { is_over, thread: Some(thread) }
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(mut client: Client, packets: &[Vec<u8>], is_over: &AtomicBool) {
    let mut received = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let deadline = client.now().plus_ns(20 * NS_PER_MS);
        client.poll(Some(deadline), &mut received).expect("the router lives");
        for ReceivedPacket { path, header, packet } in received.drain(..) {
            let Ok(interest) = InterestView::decode(&packet) else { continue };
            let answer = packets
                .iter()
                .find(|packet| DataView::decode(packet).expect("Data").satisfies(&interest));
            let Some(answer) = answer else { continue };
            let header = LpHeader { pit_token: header.pit_token, ..LpHeader::default() };
            client.send(path, header, answer.clone().into()).expect("there is room");
        }
    }
}

fn stranger(host: &Host) -> KeySigner {
    let chain = KeyChain::at(host.path("stranger"));
    let key = chain.generate(&name("/stranger"), KeyType::Ecdsa, None).expect("a key");
    chain.signer(&key.name).expect("a signer")
}

const GET: [&str; 4] = ["get", "/plain", "--discovery", "prefix"];

/// The rest of a command that writes to `target`.
fn get<'a>(target: &'a str, options: &[&'a str]) -> Vec<&'a str> {
    [&GET[..], &["-o", target, "--json"], options].concat()
}

#[test]
fn unserved_certificate_leaves_three_ways() {
    let host = Host::new();
    let router = Router::start(&host);
    let signer = stranger(&host);
    let _producer = Producer::start(&router, packets(&signer));
    let target = host.path("copy");
    let copy = target.to_str().expect("UTF-8");
    let message = router.weir(&get(copy, &[])).failure();
    for way in ["weir key import FILE", "--certificate NAME", "--accept-unverified"] {
        assert!(message.contains(way), "{message}");
    }
    assert!(!target.exists());

    let ended = router.weir(&get(copy, &["--accept-unverified"])).success();
    assert!(ended.log.contains("NOT VERIFIED"), "{}", ended.log);
    let report = ended.json();
    assert_eq!(report["verified"], false, "{report}");
    assert_eq!(report["signers"][0]["trust"], "unverified", "{report}");
    assert_eq!(std::fs::read(&target).expect("a file"), content());
    let known = router.weir_json(&["key", "trust", "list"]);
    assert_eq!(known["known_signers"], serde_json::json!([]), "{known}");
    // The next download verifies everything again.
    let _ = router.weir(&get(copy, &[])).failure();

    let ended = router.weir(&get(copy, &["--certificate", "/certificate"])).success();
    assert!(!ended.log.contains("NOT VERIFIED"), "{}", ended.log);
    let report = ended.json();
    assert_eq!(report["verified"], true, "{report}");
    assert_eq!(report["signers"][0]["trust"], "first-use", "{report}");
    // The signer is known from now on, and its certificate is kept.
    let report = router.weir(&get(copy, &[])).success().json();
    assert_eq!(report["signers"][0]["trust"], "known", "{report}");
    std::fs::remove_dir_all(host.path("home/weir/certificates")).expect("removed");
    let _ = router.weir(&get(copy, &["--certificate", "/plain"])).failure();
    let message = router.weir(&get(copy, &["--accept-unverified"])).failure();
    assert!(message.contains("the signer of /plain is known"), "{message}");
}

/// The certificate of a trust anchor also verifies names outside of its identity.
#[test]
fn trusted_certificate_needs_no_fetch() {
    let host = Host::new();
    let router = Router::start(&host);
    let signer = stranger(&host);
    let _producer = Producer::start(&router, packets(&signer));
    let certificate = to_base64_lines(signer.certificate().expect("a certificate").wire());
    let file = host.write("stranger.cert", certificate.as_bytes());
    router.weir(&["key", "trust", file.to_str().expect("UTF-8")]).success();
    let copy = host.path("copy");
    let report = router.weir(&get(copy.to_str().expect("UTF-8"), &[])).success().json();
    assert_eq!(report["signers"][0]["trust"], "first-use", "{report}");
    assert_eq!(std::fs::read(&copy).expect("a file"), content());
}
