//! `/metrics` in the Prometheus text format. Each scrape takes one [`Snapshot`]; nothing is counted
//! here.

mod disk;
mod extra;
mod health;
mod http;

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use weir_base::{Counter, CounterKind, Counters, Exposition};
use weir_forward::{DropReason, LatencyHistogram};
use weir_link::{LinkCounters, LinkDrop};

use crate::error::StartError;
use crate::mailbox::ControlSender;
use crate::snapshot::Snapshot;
pub use extra::ExtraMetric;
pub(crate) use extra::ExtraMetrics;
use http::{Answer, HttpServer, Request};

/// A router that does not answer within this time is reported as unavailable.
const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(5);

/// The HTTP server and its threads.
pub(crate) struct MetricsServer {
    server: HttpServer,
}

impl MetricsServer {
    pub(crate) fn start(
        address: SocketAddr,
        control: ControlSender,
        extra: ExtraMetrics,
    ) -> Result<Self, StartError> {
        let handler = move |request: &Request<'_>| answer(request, &control, &extra);
        let server = HttpServer::start(address, Box::new(handler))
            .map_err(|error| StartError::Metrics { address, reason: error.to_string() })?;
        Ok(Self { server })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.address
    }
}

impl fmt::Debug for MetricsServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MetricsServer({})", self.server.address)
    }
}

fn answer(request: &Request<'_>, control: &ControlSender, outer: &ExtraMetrics) -> Answer {
    let plain = |status, text: &str| {
        let content_type = "text/plain; charset=utf-8";
        Answer { status, content_type, body: text.to_owned() }
    };
    match (request.method, request.path) {
        ("GET", "/metrics") => match control.snapshot(SNAPSHOT_TIMEOUT) {
            Some(snapshot) => {
                let form = Exposition::wanted(request.accept);
                let (content_type, body) = (form.content_type(), form.of(encode(snapshot, outer)));
                Answer { status: "200 OK", content_type, body }
            }
            None => {
                plain("503 Service Unavailable", "the router is stopping or does not respond\n")
            }
        },
        ("GET", "/health") => health::health(control),
        ("GET", "/ready") => health::ready(control),
        ("GET", _) => plain("404 Not Found", "there are /metrics, /health and /ready\n"),
        _ => plain("405 Method Not Allowed", "only GET is served here\n"),
    }
}

pub(crate) fn encode(snapshot: Snapshot, outer: &ExtraMetrics) -> String {
    let mut registry = Registry::with_prefix("weir");
    registry.register_collector(Box::new(SnapshotCollector(snapshot, outer.clone())));
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = prometheus_client::encoding::text::encode(&mut text, &registry);
    text
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct FaceKindLabels {
    face: u64,
    remote: String,
    direction: &'static str,
    kind: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct FaceDirectionLabels {
    face: u64,
    remote: String,
    direction: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct FaceOutcomeLabels {
    face: u64,
    remote: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct FaceLabels {
    face: u64,
    remote: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct DropLabels {
    layer: &'static str,
    reason: &'static str,
}

#[derive(Debug)]
struct SnapshotCollector(Snapshot, ExtraMetrics);

impl Collector for SnapshotCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        self.face_counters(&mut encoder)?;
        self.drops(&mut encoder)?;
        self.tables(&mut encoder)?;
        self.shared_memory(&mut encoder)?;
        if !self.0.disks.is_empty() {
            disk::encode(&self.0, &mut encoder)?;
        }
        self.latency(&mut encoder)?;
        self.1.encode(&mut encoder)
    }
}

/// Encodes one counter for each label set.
fn encode_counters<L: EncodeLabelSet>(
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

/// Encodes all metrics of a table of counters. Rows of one metric are adjacent in the table and
/// differ in their label.
fn encode_table<T: Counters>(encoder: &mut DescriptorEncoder, stats: &T) -> Result<(), fmt::Error> {
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

/// The help text of a counter: the first sentence of its documentation, without link markup, and
/// without the full stop, which the encoder adds.
fn help_of(counter: &Counter) -> String {
    // Keep only the text of a link.
    let mut pieces = counter.help.trim().split("](");
    let mut text = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        text.push_str(piece.split_once(')').map_or(piece, |(_, rest)| rest));
    }
    let text = text.replace(['[', ']', '`'], "");
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
                (
                    FaceKindLabels { face: face.id.0, remote: face.uri.clone(), direction, kind },
                    count,
                )
            })
        });
        encode_counters(
            encoder,
            "packets",
            "Packets received and sent, by face, direction and kind",
            packets,
        )?;
        let octets = self.0.faces.iter().flat_map(|face| {
            [("in", face.counters.in_bytes), ("out", face.counters.out_bytes)].map(
                |(direction, count)| {
                    (
                        FaceDirectionLabels {
                            face: face.id.0,
                            remote: face.uri.clone(),
                            direction,
                        },
                        count,
                    )
                },
            )
        });
        encode_counters(
            encoder,
            "octets",
            "Bytes received and sent, by face and direction",
            octets,
        )?;
        let marks = self.0.faces.iter().map(|face| {
            (FaceLabels { face: face.id.0, remote: face.uri.clone() }, face.counters.marks_set)
        });
        encode_counters(
            encoder,
            "congestion_marks",
            "Congestion marks set on packets sent, by face",
            marks,
        )?;
        self.link_outcomes(encoder)?;
        let mut queues = encoder.encode_descriptor(
            "egress_queue_bytes",
            "Bytes in the egress queue, by face",
            None,
            MetricType::Gauge,
        )?;
        for face in &self.0.faces {
            let labels = FaceLabels { face: face.id.0, remote: face.uri.clone() };
            queues.encode_family(&labels)?.encode_gauge(&face.queue_bytes)?;
        }
        Ok(())
    }

    /// Outcomes at faces' links, apart from packets sent and received.
    fn link_outcomes(&self, encoder: &mut DescriptorEncoder) -> Result<(), fmt::Error> {
        let help = "Frames with link reliability, by face and outcome; given-up counts packets";
        self.encode_outcomes(encoder, "reliability", help, |c| {
            [
                ("acknowledged", c.acknowledged),
                ("retransmitted", c.retransmitted),
                ("given-up", c.given_up),
                ("unprotected", c.unprotected),
                ("duplicate", c.drops[LinkDrop::SequenceDuplicate]),
            ]
        })?;
        let help = "Run frames and the Interests in them, received and sent, by face";
        self.encode_outcomes(encoder, "runs", help, |c| {
            [
                ("received", c.in_runs),
                ("interests-received", c.in_run_interests),
                ("sent", c.out_runs),
                ("interests-sent", c.out_run_interests),
            ]
        })?;
        let delayed = self.0.faces.iter().map(|face| {
            let labels = FaceLabels { face: face.id.0, remote: face.uri.clone() };
            (labels, face.counters.out_interests_delayed)
        });
        let help = "Interests that the queue discipline delayed before sending, by face";
        encode_counters(encoder, "delayed_interests", help, delayed)?;
        let help = "Interests that shaping held back, by face and outcome; refused ones got a Nack";
        self.encode_outcomes(encoder, "shaped_interests", help, |c| {
            [
                ("held", c.interests_held),
                ("released", c.interests_released),
                ("refused", c.drops[LinkDrop::ShapingFull]),
                ("expired", c.drops[LinkDrop::ShapingExpired]),
            ]
        })
    }

    /// Encodes one counter with a label for each outcome at each face.
    fn encode_outcomes<const N: usize>(
        &self,
        encoder: &mut DescriptorEncoder,
        name: &str,
        help: &str,
        rows: impl Fn(&LinkCounters) -> [(&'static str, u64); N],
    ) -> Result<(), fmt::Error> {
        let outcomes = self.0.faces.iter().flat_map(|face| {
            let rows = rows(&face.counters).into_iter().filter(|&(_, count)| count > 0);
            rows.map(|(outcome, count)| {
                (FaceOutcomeLabels { face: face.id.0, remote: face.uri.clone(), outcome }, count)
            })
        });
        encode_counters(encoder, name, help, outcomes)
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
        let help =
            "Packets dropped, by layer and reason; layer decoder splits malformed of layer forward";
        encode_counters(
            encoder,
            "drops",
            help,
            rows.map(|(layer, reason, n)| (DropLabels { layer, reason }, n)),
        )
    }

    fn tables(&self, encoder: &mut DescriptorEncoder) -> Result<(), fmt::Error> {
        let faces = self.0.faces.len() as u64;
        encoder
            .encode_descriptor("faces", "Faces that exist now", None, MetricType::Gauge)?
            .encode_gauge(&faces)?;
        encode_table(encoder, &self.0.router)?;
        encode_table(encoder, &self.0.router.store)?;
        encode_table(encoder, &self.0.management)
    }

    fn shared_memory(&self, encoder: &mut DescriptorEncoder) -> Result<(), fmt::Error> {
        let Some(memory) = &self.0.shared_memory else { return Ok(()) };
        let gauges = [
            ("shared_memory_faces", "Faces that use shared memory now", memory.faces),
            (
                "shared_memory_bytes",
                "Bytes of memory shared with applications now",
                memory.used_bytes,
            ),
            (
                "shared_memory_bytes_max",
                "Limit on bytes shared with applications",
                memory.bytes_max,
            ),
        ];
        for (name, help, value) in gauges {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            metric.encode_gauge(&value)?;
        }
        let help = "Offers of shared memory accepted; refused offers and broken rings are in drops";
        encoder
            .encode_descriptor("shared_memory_taken", help, None, MetricType::Counter)?
            .encode_counter::<NoLabelSet, _, u64>(&memory.taken, None)
    }

    fn latency(&self, encoder: &mut DescriptorEncoder) -> Result<(), fmt::Error> {
        let help = "Time from sending an Interest upstream to receiving its Data";
        write_histogram(encoder, "upstream_latency_seconds", help, &self.0.router.upstream_latency)
    }
}

/// Shorter times are counted in one bucket.
const BUCKET_NS_MIN: u64 = 1000;

fn write_histogram(
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

    #[test]
    fn text_names_faces_drops_sizes_and_latency() {
        let mut snapshot = Snapshot::default();
        let mut counters =
            LinkCounters { in_data: 7, out_bytes: 99, retransmitted: 3, ..Default::default() };
        counters.drops.count(weir_link::LinkDrop::QueueFull);
        counters.drops.count(weir_link::LinkDrop::ShapingFull);
        counters.interests_held = 3;
        snapshot.add_link_drops(counters.drops.iter().map(|(_, count)| count));
        snapshot.faces.push(FaceSnapshot {
            id: FaceId(256),
            uri: "udp4://192.0.2.1:6363".into(),
            local_uri: String::new(),
            thread: 0,
            up: true,
            counters,
            queue_bytes: 5,
            down_drops: 0,
            expires_in_ns: None,
            heard_ns_ago: None,
        });
        snapshot.management.readvertise_failures = 2;
        for time_ns in [300, 10_000, 12_000] {
            snapshot.router.upstream_latency.record(time_ns);
        }
        let text = encode(snapshot, &ExtraMetrics::default());
        let face = "face=\"256\",remote=\"udp4://192.0.2.1:6363\"";
        for line in [
            format!("weir_packets_total{{{face},direction=\"in\",kind=\"data\"}} 7"),
            format!("weir_octets_total{{{face},direction=\"out\"}} 99"),
            format!("weir_egress_queue_bytes{{{face}}} 5"),
            format!("weir_reliability_total{{{face},outcome=\"retransmitted\"}} 3"),
            format!("weir_shaped_interests_total{{{face},outcome=\"held\"}} 3"),
            format!("weir_shaped_interests_total{{{face},outcome=\"refused\"}} 1"),
            "weir_drops_total{layer=\"link\",reason=\"egress-queue-full\"} 1".into(),
            "weir_drops_total{layer=\"forward\",reason=\"pit-full\"} 0".into(),
            "weir_pit_entries 0".into(),
            "weir_management_commands_total 0".into(),
            "weir_readvertise_failures_total 2".into(),
            "weir_upstream_latency_seconds_bucket{le=\"0.000001023\"} 1".into(),
            "weir_upstream_latency_seconds_bucket{le=\"0.000016383\"} 3".into(),
            "weir_upstream_latency_seconds_bucket{le=\"+Inf\"} 3".into(),
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn help_has_no_rustdoc_markup() {
        let mut snapshot = Snapshot::default();
        snapshot.disks.push(crate::DiskSnapshot {
            path: "/d".into(),
            engine: "threads",
            capacity_bytes: 99,
            counters: weir_disk::DiskCounters::default(),
            is_dead: false,
        });
        let text = encode(snapshot, &ExtraMetrics::default());
        for line in text.lines().filter(|line| line.starts_with("# HELP")) {
            assert!(!line.contains("::") && !line.contains("]("), "{line}");
            assert!(!line.contains("bit n"), "{line}");
        }
        let linked = "Kept by [`Store`](crate::Store), not lost. More.";
        let counter = Counter { help: linked, ..weir_store::StoreStats::TABLE[0] };
        assert_eq!(help_of(&counter), "Kept by Store, not lost");
    }

    #[test]
    fn disk_metrics_need_disks() {
        assert!(!encode(Snapshot::default(), &ExtraMetrics::default()).contains("disk_"));
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
        let text = encode(snapshot, &ExtraMetrics::default());
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
