//! A relay instead of a router: it answers registrations and forwards packets. It can also damage
//! or drop them, or disconnect.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use tempfile::TempDir;
use weir_client::{Client, ClientError};
use weir_face::FaceUri;
use weir_manage::{ControlParameters, ControlResponse, Element};
use weir_security::trust::{Trust, TrustDecision};
use weir_security::{DigestSigner, DigestVerifier};
use weir_socket::{
    DownloadError, DownloadHost, DownloadId, DownloadOptions, Found, Label, ObjectStore, Output,
    PartFile, PublishOptions, ServeProblem, Summary, download, publish_file, serve,
};
use weir_transport::Target;
use weir_wire::{Data, DataView, InterestView, LpView, Name, peek_frame, tlv};

/// What the relay does with Data, counted from 0: forward it, changed or unchanged, or disconnect.
pub(crate) type Tamper = Box<dyn FnMut(u64, Vec<u8>) -> Option<Vec<u8>> + Send>;

pub(crate) struct Relay {
    pub(crate) path: PathBuf,
    peers: Arc<Mutex<Vec<UnixStream>>>,
    tamper: Arc<Mutex<Tamper>>,
    data: Arc<AtomicU64>,
}

impl Relay {
    pub(crate) fn start(dir: &Path, meddle: Tamper) -> Self {
        let path = dir.join("relay.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let relay = Self {
            path,
            peers: Arc::default(),
            tamper: Arc::new(Mutex::new(meddle)),
            data: Arc::default(),
        };
        let (peers, meddle) = (relay.peers.clone(), relay.tamper.clone());
        let data = relay.data.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let index = {
                    let mut peers = peers.lock().unwrap();
                    peers.push(stream.try_clone().unwrap());
                    peers.len() - 1
                };
                let (peers, meddle) = (peers.clone(), meddle.clone());
                let data = data.clone();
                std::thread::spawn(move || {
                    forward_packets(stream, index, &peers, &meddle, &data);
                });
            }
        });
        relay
    }

    pub(crate) fn untampered(dir: &Path) -> Self {
        Self::start(dir, Box::new(|_, frame| Some(frame)))
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(&FaceUri::Unix(self.path.clone())).unwrap()
    }
}

fn forward_packets(
    mut stream: UnixStream,
    index: usize,
    peers: &Mutex<Vec<UnixStream>>,
    meddle: &Mutex<Tamper>,
    data: &AtomicU64,
) {
    let mut received = Vec::new();
    let mut block = vec![0; 1 << 16];
    while let Ok(count @ 1..) = stream.read(&mut block) {
        received.extend_from_slice(&block[..count]);
        while let Ok(Some(len)) = peek_frame(&received) {
            if len > received.len() {
                break;
            }
            let rest = received.split_off(len);
            let mut frame = std::mem::replace(&mut received, rest);
            let view = LpView::decode(&frame).unwrap();
            // Link-layer messages are only for their own link.
            let Some(packet) = view.fragment else { continue };
            if u32::from(packet[0]) == tlv::DATA {
                let number = data.fetch_add(1, Ordering::Relaxed);
                match (meddle.lock().unwrap())(number, frame) {
                    Some(changed) => frame = changed,
                    None => return disconnect(peers),
                }
            } else {
                let interest = InterestView::decode(packet).unwrap();
                let is_command = view.header.nack.is_none()
                    && interest.name.first().is_some_and(|first| first.value == b"localhost");
                if is_command {
                    let body = ControlResponse::ok(ControlParameters::default()).encode();
                    let answer = Data::new(interest.name.to_name()).content(body);
                    stream.write_all(&answer.encode_with_digest()).unwrap();
                    continue;
                }
            }
            for (other, peer) in peers.lock().unwrap().iter_mut().enumerate() {
                if other != index {
                    // Peers connect and disconnect.
                    let _ = peer.write_all(&frame);
                }
            }
        }
    }
}

fn disconnect(peers: &Mutex<Vec<UnixStream>>) {
    for peer in peers.lock().unwrap().drain(..) {
        let _ = peer.shutdown(std::net::Shutdown::Both);
    }
}

pub(crate) struct Serving {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<(ObjectStore, Vec<ServeProblem>), ClientError>>,
}

impl Serving {
    pub(crate) fn start(relay: &Relay, mut store: ObjectStore) -> Self {
        let mut client = relay.connect();
        client.register_prefix(&object()).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut all = Vec::new();
            serve(&mut client, &mut store, &mut |losses| {
                all.extend(losses);
                !stopped.load(Ordering::Relaxed)
            })?;
            Ok((store, all))
        });
        Self { stop, thread }
    }

    pub(crate) fn stop(self) -> Result<ObjectStore, ClientError> {
        self.stop_with_losses().map(|(store, _)| store)
    }

    pub(crate) fn stop_with_losses(self) -> Result<(ObjectStore, Vec<ServeProblem>), ClientError> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

pub(crate) fn object() -> Name {
    "/test/object".parse().unwrap()
}

pub(crate) fn label(name: &Name) -> Label<'_> {
    Label { name, version: 7, signer: &DigestSigner, certificate: None }
}

pub(crate) fn options() -> PublishOptions {
    PublishOptions { segment_size: 1000, threads: 3, ..PublishOptions::default() }
}

pub(crate) fn content(len: usize) -> Vec<u8> {
    let mut octets = vec![0; len];
    weir_base::Rng::from_seed(len as u64).fill(&mut octets);
    octets
}

/// A published file of `len` bytes.
pub(crate) fn published_file(dir: &Path, len: usize) -> (PathBuf, ObjectStore) {
    let path = dir.join(format!("source-{len}"));
    std::fs::write(&path, content(len)).unwrap();
    let mut store = ObjectStore::new();
    let name = object();
    store.add(publish_file(&path, label(&name), &options(), &mut |_| true).unwrap());
    (path, store)
}

pub(crate) struct TestHost {
    target: Option<Target>,
    output: Option<Box<dyn Output>>,
    pub(crate) found: Option<Found>,
    result: Option<Result<Summary, DownloadError>>,
    /// The key that it reports for all packets, and whether there was one.
    key: Option<[u8; 32]>,
    has_decided: bool,
}

impl TestHost {
    pub(crate) fn new(output: impl Output + 'static) -> Self {
        Self {
            target: None,
            output: Some(Box::new(output)),
            found: None,
            result: None,
            key: None,
            has_decided: false,
        }
    }

    pub(crate) fn download(
        &mut self,
        client: &mut Client,
        target: Target,
        options: DownloadOptions,
    ) -> Result<Summary, DownloadError> {
        self.target = Some(target);
        download(client, options, self)?;
        self.result.take().unwrap()
    }
}

impl DownloadHost for TestHost {
    fn next(&mut self) -> Option<(DownloadId, Target)> {
        Some((DownloadId(0), self.target.take()?))
    }

    fn on_ended(
        &mut self,
        _id: DownloadId,
        result: Result<Summary, DownloadError>,
    ) -> Result<(), DownloadError> {
        self.result = Some(result);
        Ok(())
    }

    fn output(&mut self, _id: DownloadId, found: &Found) -> Result<Box<dyn Output>, String> {
        self.found = Some(found.clone());
        Ok(self.output.take().unwrap())
    }

    fn trust(&mut self, _id: DownloadId) -> &mut dyn Trust {
        self
    }

    fn progress(&mut self, _octets: u64) -> bool {
        true
    }
}

impl Trust for TestHost {
    fn decide(&mut self, _data: &DataView<'_>) -> TrustDecision {
        self.has_decided = true;
        TrustDecision::Accept(Arc::new(DigestVerifier))
    }

    fn accepted_keys(&self) -> Vec<[u8; 32]> {
        self.key.filter(|_| self.has_decided).into_iter().collect()
    }
}

pub(crate) fn latest() -> Target {
    Target::Latest { object: object(), allow_stored: true }
}

pub(crate) fn get(relay: &Relay, target: Target, path: &Path) -> Result<Summary, DownloadError> {
    get_with_key(relay, target, path, None)
}

/// As [`get`], with a trust that reports `key` for all packets.
pub(crate) fn get_with_key(
    relay: &Relay,
    target: Target,
    path: &Path,
    key: Option<[u8; 32]>,
) -> Result<Summary, DownloadError> {
    let mut client = relay.connect();
    let mut host = TestHost { key, ..TestHost::new(PartFile::new(path)) };
    host.download(&mut client, target, DownloadOptions::default())
}

/// The Data in a frame: its name, and its number if it is a segment of the object.
pub(crate) fn segment_of(frame: &[u8]) -> (Name, Option<u64>) {
    let view = LpView::decode(frame).unwrap();
    let name = DataView::decode(view.fragment.unwrap()).unwrap().name;
    let segment = name.last().unwrap().as_segment().filter(|_| name.components().count() == 4);
    (name.to_name(), segment)
}

pub(crate) fn corrupt_segment(mut frame: Vec<u8>) -> Option<Vec<u8>> {
    let middle = frame.len() / 2;
    frame[middle] ^= 1;
    Some(frame)
}

/// A published file, served through a relay.
pub(crate) struct RelayedFile {
    pub(crate) dir: TempDir,
    pub(crate) relay: Relay,
    pub(crate) serving: Serving,
    len: usize,
}

impl RelayedFile {
    pub(crate) fn new(
        len: usize,
        meddle: impl FnMut(u64, Vec<u8>) -> Option<Vec<u8>> + Send + 'static,
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let relay = Relay::start(dir.path(), Box::new(meddle));
        let (_, store) = published_file(dir.path(), len);
        let serving = Serving::start(&relay, store);
        Self { dir, relay, serving, len }
    }

    pub(crate) fn honest(len: usize) -> Self {
        Self::new(len, |_, frame| Some(frame))
    }

    pub(crate) fn target(&self) -> PathBuf {
        self.dir.path().join("got")
    }

    pub(crate) fn try_get(&self, target: Target) -> Result<Summary, DownloadError> {
        get(&self.relay, target, &self.target())
    }

    /// Fetches it unchanged.
    pub(crate) fn get(&self, target: Target) -> Summary {
        let summary = self.try_get(target).unwrap();
        assert!(std::fs::read(self.target()).unwrap() == content(self.len), "{}", self.len);
        assert_eq!(summary.octets, self.len as u64);
        summary
    }
}

/// The version of published files.
pub(crate) fn version() -> Target {
    Target::Version { versioned: object().append_version(7).clone() }
}
