//! `/metrics` in the Prometheus text form. Every scrape takes one [`Snapshot`]; nothing is counted
//! here.

mod disk;

use std::fmt;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use tiny_http::{Header, Method, Response, Server};
use weir_base::{Counter, CounterKind, Counters};
use weir_forward::{DropReason, LatencyHistogram};

use crate::error::StartError;
use crate::mailbox::ControlSender;
use crate::snapshot::Snapshot;

const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// A router that does not answer within this time is reported as unavailable.
const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the thread gets for ending.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// The HTTP server and its thread.
pub(crate) struct MetricsServer {
    server: Arc<Server>,
    thread: Option<JoinHandle<()>>,
    pub(crate) address: SocketAddr,
}

impl MetricsServer {
    pub(crate) fn start(address: SocketAddr, control: ControlSender) -> Result<Self, StartError> {
        let failed = |reason: String| StartError::Metrics { address, reason };
        let listener = TcpListener::bind(address).map_err(|error| failed(error.to_string()))?;
        let bound = listener.local_addr().map_err(|error| failed(error.to_string()))?;
        let server = Server::from_listener(listener, None)
            .map(Arc::new)
            .map_err(|error| failed(error.to_string()))?;
        let serving = Arc::clone(&server);
        let thread = std::thread::Builder::new()
            .name("weir-metrics".into())
            .spawn(move || serve(&serving, &control))
            .map_err(|source| StartError::System { what: "the metrics thread", source })?;
        Ok(Self { server, thread: Some(thread), address: bound })
    }
}

impl std::ops::Drop for MetricsServer {
    /// Ends the thread, unless it is stuck with a client that does not read its answer: then it
    /// ends with the process.
    fn drop(&mut self) {
        self.server.unblock();
        let Some(thread) = self.thread.take() else { return };
        let deadline = Instant::now() + STOP_TIMEOUT;
        while !thread.is_finished() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        if thread.is_finished() {
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for MetricsServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MetricsServer({})", self.address)
    }
}

fn serve(server: &Server, control: &ControlSender) {
    for request in server.incoming_requests() {
        let path = request.url().split('?').next().unwrap_or_default();
        let answer = match (request.method(), path) {
            (Method::Get, "/metrics") => scrape(control),
            (Method::Get, _) => (404, "the metrics are at /metrics\n".to_owned()),
            _ => (405, "only GET is served here\n".to_owned()),
        };
        let (status, body) = answer;
        let kind = if status == 200 { CONTENT_TYPE } else { "text/plain; charset=utf-8" };
        let header = Header::from_bytes("Content-Type", kind).expect("a valid header");
        let response = Response::from_string(body).with_status_code(status).with_header(header);
        // A client that went away has no further use for an answer.
        let _ = request.respond(response);
    }
}

fn scrape(control: &ControlSender) -> (u16, String) {
    match control.snapshot(SNAPSHOT_TIMEOUT) {
        Some(snapshot) => (200, encode(snapshot)),
        None => (503, "the router is stopping or does not answer\n".to_owned()),
    }
}

/// A snapshot in the text form.
pub(crate) fn encode(snapshot: Snapshot) -> String {
    let mut registry = Registry::with_prefix("weir");
    registry.register_collector(Box::new(SnapshotCollector(snapshot)));
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = prometheus_client::encoding::text::encode(&mut text, &registry);
    text
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct FaceKind {
    face: u64,
    remote: String,
    direction: &'static str,
    kind: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct FaceOctets {
    face: u64,
    remote: String,
    direction: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Face {
    face: u64,
    remote: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Drop {
    layer: &'static str,
    reason: &'static str,
}

#[derive(Debug)]
struct SnapshotCollector(Snapshot);

impl Collector for SnapshotCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        self.face_counters(&mut encoder)?;
        self.drops(&mut encoder)?;
        self.tables(&mut encoder)?;
        if !self.0.disks.is_empty() {
            disk::encode(&self.0, &mut encoder)?;
        }
        self.latency(&mut encoder)
    }
}

/// Writes one counter for each label set.
fn counters<L: EncodeLabelSet>(
    encoder: &mut DescriptorEncoder,
    name: &str,
    help: &str,
    values: impl IntoIterator<Item = (L, u64)>,
) -> Result<(), fmt::Error> {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (labels, value) in values {
        family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&value, None)?;
    }
    Ok(())
}

/// Writes every metric that a table of counters declares. Rows of one metric stand together in the
/// table and differ in their label.
fn table<T: Counters>(encoder: &mut DescriptorEncoder, stats: &T) -> Result<(), fmt::Error> {
    let rows = stats.rows().filter_map(|(counter, value)| Some((counter.metric?, counter, value)));
    for rows in rows.collect::<Vec<_>>().chunk_by(|(one, ..), (other, ..)| one == other) {
        let (name, first, _) = rows[0];
        let is_total = first.kind == CounterKind::Total;
        let kind = if is_total { MetricType::Counter } else { MetricType::Gauge };
        let mut family = encoder.encode_descriptor(name, &help_of(first), None, kind)?;
        for (_, counter, value) in rows {
            match counter.label {
                None if is_total => family.encode_counter::<NoLabelSet, _, u64>(value, None)?,
                None => family.encode_gauge(value)?,
                Some(label) => {
                    let labels = [label];
                    let mut metric = family.encode_family(&labels)?;
                    match is_total {
                        true => metric.encode_counter::<NoLabelSet, _, u64>(value, None)?,
                        false => metric.encode_gauge(value)?,
                    }
                }
            }
        }
    }
    Ok(())
}

/// The first sentence of a counter's documentation, without marks of links and without the full
/// stop, which the encoder adds.
fn help_of(counter: &Counter) -> String {
    let text = counter.help.trim().replace(['[', ']', '`'], "");
    text.split_once(". ").map_or(text.trim_end_matches('.'), |(first, _)| first).to_owned()
}

impl SnapshotCollector {
    fn face_counters(&self, encoder: &mut DescriptorEncoder) -> Result<(), fmt::Error> {
        let packets = self.0.faces.iter().flat_map(|face| {
            let c = &face.counters;
            let rows = [
                ("in", "interest", c.in_interests),
                ("in", "data", c.in_data),
                ("in", "nack", c.in_nacks),
                ("out", "interest", c.out_interests),
                ("out", "data", c.out_data),
                ("out", "nack", c.out_nacks),
            ];
            rows.map(|(direction, kind, count)| {
                (FaceKind { face: face.id.0, remote: face.uri.clone(), direction, kind }, count)
            })
        });
        counters(encoder, "packets", "Packets by face, direction and kind", packets)?;
        let octets = self.0.faces.iter().flat_map(|face| {
            [("in", face.counters.in_bytes), ("out", face.counters.out_bytes)].map(
                |(direction, count)| {
                    (FaceOctets { face: face.id.0, remote: face.uri.clone(), direction }, count)
                },
            )
        });
        counters(encoder, "octets", "Octets by face and direction", octets)?;
        let marks = self.0.faces.iter().map(|face| {
            (Face { face: face.id.0, remote: face.uri.clone() }, face.counters.marks_set)
        });
        counters(encoder, "congestion_marks", "Congestion marks set, by face", marks)?;
        let mut queues = encoder.encode_descriptor(
            "egress_queue_bytes",
            "Octets waiting to be sent, by face",
            None,
            MetricType::Gauge,
        )?;
        for face in &self.0.faces {
            let labels = Face { face: face.id.0, remote: face.uri.clone() };
            queues.encode_family(&labels)?.encode_gauge(&face.queue_bytes)?;
        }
        Ok(())
    }

    fn drops(&self, encoder: &mut DescriptorEncoder) -> Result<(), fmt::Error> {
        let link = self.0.link_drops.iter().map(|&(reason, n)| ("link", reason.name(), n));
        let forward = DropReason::ALL
            .into_iter()
            .zip(self.0.router.drops)
            .map(|(reason, n)| ("forward", reason.label(), n));
        let decoder = self.0.router.malformed.iter().map(|(&reason, &n)| ("decoder", reason, n));
        let runtime = self.0.runtime_drops.iter().map(|&(reason, n)| ("runtime", reason, n));
        let rows = link.chain(forward).chain(decoder).chain(runtime);
        let help = "Packets dropped, by layer and reason; decoder details forward's malformed";
        counters(encoder, "drops", help, rows.map(|(layer, reason, n)| (Drop { layer, reason }, n)))
    }

    fn tables(&self, encoder: &mut DescriptorEncoder) -> Result<(), fmt::Error> {
        let faces = self.0.faces.len() as u64;
        encoder
            .encode_descriptor("faces", "Faces", None, MetricType::Gauge)?
            .encode_gauge(&faces)?;
        table(encoder, &self.0.router)?;
        table(encoder, &self.0.router.store)
    }

    fn latency(&self, encoder: &mut DescriptorEncoder) -> Result<(), fmt::Error> {
        let help = "Time from an Interest sent to its Data";
        histogram(encoder, "upstream_latency_seconds", help, &self.0.router.upstream_latency)
    }
}

/// Shorter times are counted together.
const BUCKET_NS_MIN: u64 = 1000;

fn histogram(
    encoder: &mut DescriptorEncoder,
    name: &str,
    help: &str,
    latency: &LatencyHistogram,
) -> Result<(), fmt::Error> {
    let mut shorter = 0;
    let buckets = latency.buckets().filter_map(|(end_ns, count)| {
        if end_ns < BUCKET_NS_MIN {
            shorter += count;
            return None;
        }
        let end = if end_ns == u64::MAX { f64::INFINITY } else { end_ns as f64 / 1e9 };
        Some((end, count + std::mem::take(&mut shorter)))
    });
    let buckets: Vec<(f64, u64)> = buckets.collect();
    encoder
        .encode_descriptor(name, help, None, MetricType::Histogram)?
        .encode_histogram::<NoLabelSet>(latency.sum() as f64 / 1e9, latency.count(), &buckets, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::FaceSnapshot;
    use weir_base::FaceId;
    use weir_link::LinkCounters;

    #[test]
    fn text_names_faces_drops_sizes_and_latency() {
        let mut snapshot = Snapshot::default();
        let mut counters = LinkCounters { in_data: 7, out_bytes: 99, ..Default::default() };
        counters.drops.count(weir_link::LinkDrop::QueueFull);
        snapshot.add_link_drops(counters.drops.iter().map(|(_, count)| count));
        snapshot.faces.push(FaceSnapshot {
            id: FaceId(256),
            uri: "udp4://192.0.2.1:6363".into(),
            local_uri: String::new(),
            up: true,
            counters,
            queue_bytes: 5,
            down_drops: 0,
            expires_in_ns: None,
        });
        for time_ns in [300, 10_000, 12_000] {
            snapshot.router.upstream_latency.record(time_ns);
        }
        let text = encode(snapshot);
        let face = "face=\"256\",remote=\"udp4://192.0.2.1:6363\"";
        for line in [
            format!("weir_packets_total{{{face},direction=\"in\",kind=\"data\"}} 7"),
            format!("weir_octets_total{{{face},direction=\"out\"}} 99"),
            format!("weir_egress_queue_bytes{{{face}}} 5"),
            "weir_drops_total{layer=\"link\",reason=\"egress-queue-full\"} 1".into(),
            "weir_drops_total{layer=\"forward\",reason=\"pit-full\"} 0".into(),
            "weir_pit_entries 0".into(),
            "weir_upstream_latency_seconds_bucket{le=\"0.000001023\"} 1".into(),
            "weir_upstream_latency_seconds_bucket{le=\"0.000016383\"} 3".into(),
            "weir_upstream_latency_seconds_bucket{le=\"+Inf\"} 3".into(),
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }
    #[test]
    fn disks_are_told_of_when_there_are_any() {
        assert!(!encode(Snapshot::default()).contains("disk_"));
        let mut snapshot = Snapshot::default();
        snapshot.disks.push(crate::DiskSnapshot {
            path: "/d".into(),
            engine: "threads",
            capacity_bytes: 99,
            counters: weir_disk::DiskCounters { reads: 4, ..Default::default() },
            is_dead: false,
        });
        snapshot.router.store.disk.damaged = 3;
        snapshot.router.store.disk.filter_saturated = 5;
        snapshot.router.busy.bypassed_stalled = 2;
        let text = encode(snapshot);
        for line in [
            "weir_disk_damaged_total 3",
            "weir_disk_filter_saturated 5",
            "weir_disk_bypassed_total{reason=\"stalled\"} 2",
            "weir_disk_device_reads_total{disk=\"/d\"} 4",
            "weir_disk_device_capacity_bytes{disk=\"/d\"} 99",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }
}
