//! Metrics of faces. Their number does not grow with peers that come and go: faces that peers
//! created are summed by transport, and the sums include faces that have closed.

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use weir_link::{LinkCounters, LinkDrop};

use super::encode_counters;
use crate::snapshot::{FaceSnapshot, RemovedKind, Snapshot};

/// The most faces with series of their own. Further ones are summed by transport.
const LISTED_MAX: usize = 1000;

/// The label `remote` of faces that their peers created, and of faces beyond [`LISTED_MAX`].
const ON_DEMAND: &str = "on-demand";
const OTHERS: &str = "others";

/// One face, or several whose series are summed.
#[derive(Default)]
struct Row {
    counters: LinkCounters,
    queue_bytes: u64,
    /// Whether a face of them has a socket. `None` for faces that their peers created, which always
    /// have one.
    is_up: Option<bool>,
}

impl Row {
    fn add(&mut self, face: &FaceSnapshot) {
        self.counters += &face.counters;
        self.queue_bytes += face.queue_bytes;
        if !face.is_on_demand {
            self.is_up = Some(self.is_up.unwrap_or(false) || face.up);
        }
    }
}

/// Transport and remote end.
type Key<'a> = (&'a str, &'a str);

fn rows(snapshot: &Snapshot) -> BTreeMap<Key<'_>, Row> {
    let mut rows: BTreeMap<Key<'_>, Row> = BTreeMap::new();
    for removed in snapshot.removed_faces.iter().filter(|sum| sum.kind != RemovedKind::Listed) {
        rows.entry((removed.transport, ON_DEMAND)).or_default().counters += &removed.counters;
    }
    let mut listed = 0;
    for face in &snapshot.faces {
        let mut key = (face.transport, face.uri.as_str());
        if face.is_on_demand {
            key.1 = ON_DEMAND;
        } else if !rows.contains_key(&key) {
            listed += 1;
            if listed > LISTED_MAX {
                key.1 = OTHERS;
            }
        }
        rows.entry(key).or_default().add(face);
    }
    rows
}

pub(super) fn encode(
    snapshot: &Snapshot,
    encoder: &mut DescriptorEncoder,
) -> Result<(), fmt::Error> {
    let rows = rows(snapshot);
    traffic(&rows, encoder)?;
    let help = "Congestion marks set on packets sent, by face: its egress queue was long";
    let marks = rows.iter().map(|(&key, row)| (labels(key), row.counters.marks_set));
    encode_counters(encoder, "face_congestion_marks", help, marks)?;
    let help = "Interests that the queue discipline delayed before sending, by face";
    let delayed = rows.iter().map(|(&key, row)| (labels(key), row.counters.out_interests_delayed));
    encode_counters(encoder, "face_delayed_interests", help, delayed)?;
    let queues = rows.iter().map(|(&key, row)| (labels(key), row.queue_bytes));
    encode_gauges(encoder, "face_queue_bytes", "Bytes in the egress queue, by face", queues)?;
    let help = "1 if the face has a socket, 0 while its peer cannot be reached";
    let states = rows.iter().filter_map(|(&key, row)| Some((labels(key), row.is_up?.into())));
    encode_gauges(encoder, "face_up", help, states)?;
    transports(snapshot, encoder)
}

fn labels<'a>((transport, remote): Key<'a>) -> [(&'static str, &'a str); 2] {
    [("transport", transport), ("remote", remote)]
}

fn encode_gauges<'a, const N: usize>(
    encoder: &mut DescriptorEncoder,
    name: &str,
    help: &str,
    values: impl IntoIterator<Item = ([(&'static str, &'a str); N], u64)>,
) -> Result<(), fmt::Error> {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (labels, value) in values {
        family.encode_family(&labels)?.encode_gauge(&value)?;
    }
    Ok(())
}

/// Packets and bytes, by face and direction.
fn traffic(
    rows: &BTreeMap<Key<'_>, Row>,
    encoder: &mut DescriptorEncoder,
) -> Result<(), fmt::Error> {
    let packets = rows.iter().flat_map(|(&key, row)| {
        let c = &row.counters;
        let counts = [
            ("in", "interest", c.in_interests),
            ("in", "data", c.in_data),
            ("in", "nack", c.in_nacks),
            ("out", "interest", c.out_interests),
            ("out", "data", c.out_data),
            ("out", "nack", c.out_nacks),
        ];
        counts.map(|(direction, kind, count)| {
            let [transport, remote] = labels(key);
            ([transport, remote, ("direction", direction), ("kind", kind)], count)
        })
    });
    let help = "NDN packets received (in) and sent (out), by face and kind";
    encode_counters(encoder, "face_packets", help, packets)?;
    let bytes = rows.iter().flat_map(|(&key, row)| {
        [("in", row.counters.in_bytes), ("out", row.counters.out_bytes)].map(
            |(direction, count)| {
                let [transport, remote] = labels(key);
                ([transport, remote, ("direction", direction)], count)
            },
        )
    });
    let help = "Bytes received (in) and sent (out) with link headers, by face";
    encode_counters(encoder, "face_bytes", help, bytes)
}

/// A transport, and one of the values that a metric distinguishes.
type TransportLabels<'a> = [(&'static str, &'a str); 2];

/// What links do apart from packets sent and received, summed by transport over all faces.
fn transports(snapshot: &Snapshot, encoder: &mut DescriptorEncoder) -> Result<(), fmt::Error> {
    let mut sums: BTreeMap<&str, (u64, LinkCounters)> = BTreeMap::new();
    for removed in snapshot.removed_faces.iter().filter(|sum| sum.kind != RemovedKind::Upgraded) {
        sums.entry(removed.transport).or_default().1 += &removed.counters;
    }
    for face in &snapshot.faces {
        let (count, counters) = sums.entry(face.transport).or_default();
        *count += 1;
        *counters += &face.counters;
    }
    let help = "Faces that exist now: connections to applications and routers, by transport";
    let counts = sums.iter().map(|(&transport, &(count, _))| ([("transport", transport)], count));
    encode_gauges(encoder, "faces", help, counts)?;
    let mut by = |name: &str, help: &str, label, values: &dyn Fn(&LinkCounters) -> Values| {
        let rows = sums.iter().flat_map(|(&transport, (_, counters))| {
            values(counters).into_iter().map(move |(value, count)| {
                let labels: TransportLabels<'_> = [("transport", transport), (label, value)];
                (labels, count)
            })
        });
        encode_counters(encoder, name, help, rows)
    };
    let help = "Frames with link reliability, by transport and outcome; given-up counts packets";
    by("link_reliability", help, "outcome", &reliability)?;
    let help = "Frames with several Interests (runs) received and sent, by transport";
    by("link_runs", help, "direction", &|c| vec![("in", c.in_runs), ("out", c.out_runs)])?;
    let help = "Interests in runs received and sent, by transport";
    by("link_run_interests", help, "direction", &|c| {
        vec![("in", c.in_run_interests), ("out", c.out_run_interests)]
    })?;
    let help =
        "Interests that shaping held back, by transport and outcome; refused ones got a Nack";
    by("link_shaped_interests", help, "outcome", &shaping)
}

type Values = Vec<(&'static str, u64)>;

fn reliability(counters: &LinkCounters) -> Values {
    vec![
        ("acknowledged", counters.acknowledged),
        ("retransmitted", counters.retransmitted),
        ("given-up", counters.given_up),
        ("unprotected", counters.unprotected),
        ("duplicate", counters.drops[LinkDrop::SequenceDuplicate]),
    ]
}

fn shaping(counters: &LinkCounters) -> Values {
    vec![
        ("held", counters.interests_held),
        ("released", counters.interests_released),
        ("refused", counters.drops[LinkDrop::ShapingFull]),
        ("expired", counters.drops[LinkDrop::ShapingExpired]),
    ]
}
