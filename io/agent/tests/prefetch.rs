//! The cost of prefetching for a transfer over the same link. Run it with `--nocapture` to see
//! figures.

use crate::common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::wire::{SimulatedLink, relay};
use common::{Producer, RouterWithAgent, TestController, name};
use weir_client::Client;
use weir_control::ControllerConfig;
use weir_control::message::{Configuration, Prefetch};
use weir_io_fixture::wait_until;
use weir_manage::commands::Command;
use weir_manage::{ControlParameters, FaceStatus};
use weir_security::trust::Trust;
use weir_security::{DigestVerifier, Verifier};
use weir_socket::{
    DownloadError, DownloadHost, DownloadId, DownloadOptions, Found, MemoryOutput, Output, Summary,
    download,
};
use weir_transport::{ConsumerConfig, Target, Verification};

/// Segments of the measured transfer: 16 MB, 3.3 s of the link.
const SEGMENTS: u64 = 2000;
const ROUNDS: u64 = 3;

/// Downloads one object and waits for it.
struct TimedDownload {
    target: Option<Target>,
    trust: Arc<dyn Verifier>,
    segments: u64,
}

impl DownloadHost for TimedDownload {
    fn next(&mut self) -> Option<(DownloadId, Target)> {
        Some((DownloadId(0), self.target.take()?))
    }

    fn output(&mut self, _: DownloadId, _: &Found) -> Result<Box<dyn Output>, String> {
        Ok(Box::new(MemoryOutput::new(64 << 20)))
    }

    fn on_ended(
        &mut self,
        _: DownloadId,
        result: Result<Summary, DownloadError>,
    ) -> Result<(), DownloadError> {
        self.segments = result?.segments;
        Ok(())
    }

    fn trust(&mut self, _: DownloadId) -> &mut dyn Trust {
        &mut self.trust
    }

    fn progress(&mut self, _: u64) -> bool {
        true
    }
}

/// The duration of the transfer of a new object.
fn transfer(node: &RouterWithAgent, number: u64) -> Duration {
    let mut client = Client::from_socket_pair(node.router.local_port().connect().unwrap()).unwrap();
    let versioned = name(&format!("/data/front-{number}/v=1"));
    let mut waiting = TimedDownload {
        target: Some(Target::Range { versioned, segments: 0..SEGMENTS }),
        trust: Arc::new(DigestVerifier),
        segments: 0,
    };
    let fetch = ConsumerConfig {
        verification: Verification::Off,
        look_for_manifest: false,
        use_manifest: false,
        ..ConsumerConfig::default()
    };
    let options = DownloadOptions { fetch, threads: 1, ..DownloadOptions::default() };
    let began = Instant::now();
    download(&mut client, options, &mut waiting).unwrap();
    assert_eq!(waiting.segments, SEGMENTS);
    began.elapsed()
}

/// `edge`, connected to `origin` by a link of 40 Mbit/s, 10 ms each way, with a queue of 100 ms.
fn behind_a_link(controller: &TestController) -> (RouterWithAgent, RouterWithAgent, Producer) {
    let (router, uri) = common::router(1, 0, &[]);
    let origin = RouterWithAgent { agent: None, router, uri };
    let producer = Producer::start(&origin.router, "/data", 1_000_000);
    let rate_bps = 40e6;
    let wire = SimulatedLink {
        delay: Duration::from_millis(10),
        rate_bps,
        queue_bytes: rate_bps / 8.0 * 0.1,
    };
    let (router, uri) = common::router(1, 1 << 20, &[&relay(&origin.uri, wire)]);
    let mut edge = RouterWithAgent { agent: None, router, uri };
    let mut client = Client::from_socket_pair(edge.router.local_port().connect().unwrap()).unwrap();
    let faces: Vec<FaceStatus> = client.dataset("faces/list").unwrap();
    let link = faces.iter().find(|face| face.info.uri.starts_with("udp4")).unwrap();
    let parameters = ControlParameters {
        name: Some(name("/data")),
        face_id: Some(link.info.face_id),
        ..ControlParameters::default()
    };
    client.command(Command::RibRegister, &parameters).unwrap();
    edge.start_agent("edge", controller);
    (edge, origin, producer)
}

#[test]
#[ignore = "half a minute, and its figures need idle processors"]
fn prefetch_yields_to_a_transfer() {
    let controller = TestController::start(ControllerConfig::default());
    let (edge, _origin, producer) = behind_a_link(&controller);
    let fetch = |generation: u64, is_on: bool| {
        let object = name(&format!("/data/ahead-{generation}/v=1"));
        let order = Prefetch { object, first: 0, last: 999_999 };
        controller.dictate(Configuration {
            generation,
            prefetch: is_on.then_some(order).into_iter().collect(),
            ..Configuration::default()
        });
    };
    let (mut alone, mut shared, mut ahead, mut ahead_alone) = (vec![], vec![], vec![], vec![]);
    for round in 0..ROUNDS {
        let generation = 1000 + 2 * round;
        fetch(generation, false);
        std::thread::sleep(Duration::from_secs(1));
        alone.push(transfer(&edge, 2 * round).as_secs_f64());
        let before = producer.asked();
        fetch(generation + 1, true);
        wait_until("prefetching has started", || producer.asked() != before);
        // Prefetching uses the whole link before the transfer starts.
        std::thread::sleep(Duration::from_secs(2));
        let began = producer.asked();
        shared.push(transfer(&edge, 2 * round + 1).as_secs_f64());
        let ended = producer.asked();
        ahead.push(ended.saturating_sub(began + SEGMENTS) as f64);
        // Prefetching takes the link again.
        std::thread::sleep(Duration::from_secs(3));
        ahead_alone.push((producer.asked() - ended) as f64 / 3.0);
    }
    let median = |values: &mut Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let (alone_s, shared_s) = (median(&mut alone), median(&mut shared));
    let (ahead, ahead_alone) = (median(&mut ahead), median(&mut ahead_alone));
    println!(
        "16 MB over 40 Mbit/s: {alone_s:.2} s alone ({alone:.2?}), {shared_s:.2} s while \
         prefetching ({shared:.2?}), {:.3} times; meanwhile {ahead:.0} Interests to prefetch, \
         {ahead_alone:.0} a second afterwards",
        shared_s / alone_s
    );
    assert!(shared_s < 2.0 * alone_s, "{shared:?} {alone:?}");
    assert!(ahead_alone > 0.0);
}
