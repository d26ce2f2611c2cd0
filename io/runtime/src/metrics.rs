//! `/metrics` in the Prometheus text format. Each scrape takes one [`Snapshot`]; nothing is counted
//! here.

mod contents;
mod disk;
mod extra;
mod faces;
mod health;
mod http;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, NoLabelSet};
use prometheus_client::metrics::MetricType;
use weir_base::{Counter, CounterKind, Counters, Exposition};
use weir_forward::{DropReason, LatencyHistogram};
use weir_store::PrefixCounts;

use crate::mailbox::ControlSender;
use crate::snapshot::Snapshot;
pub use extra::ExtraMetric;
pub(crate) use extra::ExtraMetrics;
use http::{Answer, HttpServer, Request};

/// A router that does not answer within this time is reported as unavailable.
const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(5);

/// What the pages show.
#[derive(Clone, Debug)]
pub(crate) struct MetricsPages {
    pub(crate) control: ControlSender,
    pub(crate) extra: ExtraMetrics,
    /// Whether `/contents` is served.
    pub(crate) has_contents: bool,
}

/// The HTTP server and its threads.
pub(crate) struct MetricsServer {
    server: HttpServer,
}

impl MetricsServer {
    pub(crate) fn start(address: SocketAddr, pages: MetricsPages) -> io::Result<Self> {
        let handler = move |request: &Request<'_>| pages.answer(request);
        Ok(Self { server: HttpServer::start(address, Box::new(handler))? })
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

impl MetricsPages {
    fn answer(&self, request: &Request<'_>) -> Answer {
        let plain = |status, text: &str| {
            let content_type = "text/plain; charset=utf-8";
            Answer { status, content_type, body: text.to_owned() }
        };
        match (request.method, request.path) {
            ("GET", "/metrics") => match self.control.snapshot(SNAPSHOT_TIMEOUT) {
                Some(snapshot) => {
                    let form = Exposition::wanted(request.accept);
                    let body = form.of(encode(snapshot, &self.extra));
                    Answer { status: "200 OK", content_type: form.content_type(), body }
                }
                None => {
                    plain("503 Service Unavailable", "the router is stopping or does not respond\n")
                }
            },
            ("GET", "/contents") if self.has_contents => {
                contents::answer(request.query, &self.control)
            }
            ("GET", "/contents") => plain("404 Not Found", contents::OFF),
            ("GET", "/health") => health::health(&self.control),
            ("GET", "/ready") => health::ready(&self.control),
            ("GET", _) => {
                plain("404 Not Found", "there are /metrics, /contents, /health and /ready\n")
            }
            _ => plain("405 Method Not Allowed", "only GET is served here\n"),
        }
    }
}

pub(crate) fn encode(snapshot: Snapshot, outer: &ExtraMetrics) -> String {
    let mut registry = weir_metrics::new_registry();
    let collector = SnapshotCollector(snapshot, outer.clone());
    registry.sub_registry_with_prefix("weir").register_collector(Box::new(collector));
    weir_metrics::encode(&registry)
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct DropLabels {
    layer: &'static str,
    reason: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct PrefixLabels {
    prefix: String,
}

#[derive(Debug)]
struct SnapshotCollector(Snapshot, ExtraMetrics);

impl Collector for SnapshotCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        faces::encode(&self.0, &mut encoder)?;
        self.drops(&mut encoder)?;
        self.tables(&mut encoder)?;
        if !self.0.router.store_prefixes.0.is_empty() {
            self.prefixes(&mut encoder)?;
        }
        self.shared_memory(&mut encoder)?;
        if !self.0.disks.is_empty() {
            disk::encode(&self.0, &mut encoder)?;
        }
        self.latency(&mut encoder)?;
        self.state(&mut encoder)?;
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
    fn drops(&self, encoder: &mut DescriptorEncoder) -> Result<(), fmt::Error> {
        let link = self.0.link_drops.iter().map(|&(reason, n)| ("link", reason.name(), n));
        let forward = DropReason::ALL
            .into_iter()
            .zip(self.0.router.drops)
            .map(|(reason, n)| ("forward", reason.label(), n));
        let decoder = self.0.router.malformed.iter().map(|(&reason, &n)| ("decoder", reason, n));
        let runtime = self.0.runtime_drops.iter().map(|&(reason, n)| ("runtime", reason, n));
        let rows = link.chain(forward).chain(decoder).chain(runtime);
        let help = "Packets dropped and connections closed, by layer and reason; layer decoder \
                    splits the reason malformed of layer forward";
        encode_counters(
            encoder,
            "drops",
            help,
            rows.map(|(layer, reason, n)| (DropLabels { layer, reason }, n)),
        )
    }

    fn tables(&self, encoder: &mut DescriptorEncoder) -> Result<(), fmt::Error> {
        encode_table(encoder, &self.0.router)?;
        encode_table(encoder, &self.0.router.store)?;
        encode_table(encoder, &self.0.management)
    }

    fn prefixes(&self, encoder: &mut DescriptorEncoder) -> Result<(), fmt::Error> {
        let rows = |count: fn(&PrefixCounts) -> u64| {
            let rows = self.0.router.store_prefixes.0.iter();
            rows.map(move |(name, counts)| {
                (PrefixLabels { prefix: name.to_string() }, count(counts))
            })
        };
        let help = "Interests that the store answered with Data below the prefix; Data counts for \
                    its longest prefix in [metrics] prefixes";
        encode_counters(encoder, "store_prefix_hits", help, rows(|counts| counts.hits))?;
        let help = "Interests for names below the prefix that the store could not answer";
        encode_counters(encoder, "store_prefix_misses", help, rows(|counts| counts.misses))?;
        let help = "Bytes of Data below the prefix that the store answered with";
        encode_counters(
            encoder,
            "store_prefix_served_bytes",
            help,
            rows(|counts| counts.served_bytes),
        )
    }

    fn shared_memory(&self, encoder: &mut DescriptorEncoder) -> Result<(), fmt::Error> {
        let Some(memory) = &self.0.shared_memory else { return Ok(()) };
        let gauges = [
            ("shared_memory_faces", "Faces that use shared memory now", memory.faces),
            ("shared_memory_bytes", "Memory shared with applications now", memory.used_bytes),
            (
                "shared_memory_max_bytes",
                "Limit on memory shared with applications",
                memory.bytes_max,
            ),
        ];
        for (name, help, value) in gauges {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            metric.encode_gauge(&value)?;
        }
        let help = "Offers of shared memory accepted; refused offers and broken rings are in drops";
        encoder
            .encode_descriptor("shared_memory_offers_accepted", help, None, MetricType::Counter)?
            .encode_counter::<NoLabelSet, _, u64>(&memory.taken, None)
    }

    fn state(&self, encoder: &mut DescriptorEncoder) -> Result<(), fmt::Error> {
        let help = "1 if the router is ready; 0 while it stops, or reads the index of its disks";
        encoder
            .encode_descriptor("ready", help, None, MetricType::Gauge)?
            .encode_gauge(&u64::from(self.0.is_ready))?;
        let Some(expires) = self.0.anchor_expires_unix_s else { return Ok(()) };
        let help =
            "When the first trust anchor of the configuration expires, in seconds since 1970";
        encoder
            .encode_descriptor(
                "trust_anchor_expiry_timestamp_seconds",
                help,
                None,
                MetricType::Gauge,
            )?
            .encode_gauge(&expires)
    }

    fn latency(&self, encoder: &mut DescriptorEncoder) -> Result<(), fmt::Error> {
        let help = "Time from sending an Interest to a next hop to receiving its Data";
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
mod tests;
