//! Reads a router's counters from `/metrics`. Unlike a dataset of its management, this adds no
//! packets to the counters.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use weir_base::{CounterKind, Counters};
use weir_plan::event::{Queue, RouterSample};

/// How long a router may take to reply.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Data that a store has inserted and evicted since its router started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StoreCounts {
    pub(super) insertions: u64,
    pub(super) evictions: u64,
}

/// Queues before a router's disks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Queues {
    pub(super) reads: u32,
    pub(super) writes: u32,
    pub(super) interests: u32,
}

impl Queues {
    /// The queues as events name them.
    pub(super) fn lengths(self) -> [(Queue, u32); 3] {
        [
            (Queue::DiskReads, self.reads),
            (Queue::DiskWrites, self.writes),
            (Queue::DiskBlocked, self.interests),
        ]
    }
}

/// The counters of a router since it started, and its queues. `address` serves its metrics.
pub(super) fn fetch(address: SocketAddr) -> io::Result<(RouterSample, Queues)> {
    let text = fetch_text(address)?;
    let length = |name| u32::try_from(value_of(&text, name)).unwrap_or(u32::MAX);
    let queues = Queues {
        reads: length("weir_disk_reads_waiting"),
        writes: length("weir_disk_writes_waiting"),
        interests: length("weir_disk_interests_waiting"),
    };
    Ok((parse(&text), queues))
}

/// The counters of its store that a sample lacks.
pub(super) fn fetch_store(address: SocketAddr) -> io::Result<StoreCounts> {
    let text = fetch_text(address)?;
    Ok(StoreCounts {
        insertions: value_of(&text, "weir_store_insertions_total"),
        evictions: value_of(&text, "weir_store_evictions_total"),
    })
}

/// Records that a router has written to its disks or dropped for lack of space.
pub(super) fn fetch_disk(address: SocketAddr) -> io::Result<u64> {
    let text = fetch_text(address)?;
    let counters = ["weir_disk_writes_total", "weir_disk_full_total"];
    Ok(counters.iter().map(|name| value_of(&text, name)).sum())
}

/// A gauge without labels, by name.
pub(super) fn fetch_gauge(address: SocketAddr, name: &str) -> io::Result<u64> {
    fetch_text(address).map(|text| value_of(&text, name))
}

fn value_of(text: &str, name: &str) -> u64 {
    let mut rows = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    rows.find_map(|value| value.parse().ok()).unwrap_or(0)
}

fn fetch_text(address: SocketAddr) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, WAIT_MAX)?;
    stream.set_read_timeout(Some(WAIT_MAX))?;
    stream.set_nodelay(true)?;
    // With HTTP/1.0, the reply is not chunked.
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no HTTP answer"))?;
    if !head.lines().next().is_some_and(|line| line.contains(" 200 ")) {
        let what = head.lines().next().unwrap_or_default().to_owned();
        return Err(io::Error::other(what));
    }
    Ok(body.to_owned())
}

/// Sums up the metrics of a sample, and ignores others.
fn parse(text: &str) -> RouterSample {
    let mut sample = RouterSample::default();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some((key, value)) = line.rsplit_once(' ') else {
            continue;
        };
        let Ok(value) = value.parse::<u64>() else {
            continue;
        };
        let (name, labels) = key.split_once('{').unwrap_or((key, ""));
        let has = |label: &str| labels.contains(label);
        let is_in = has("direction=\"in\"");
        let field = match name {
            "weir_face_packets_total" if has("kind=\"interest\"") && is_in => {
                &mut sample.in_interests
            }
            "weir_face_packets_total" if has("kind=\"interest\"") => &mut sample.out_interests,
            "weir_face_packets_total" if has("kind=\"data\"") && is_in => &mut sample.in_data,
            "weir_face_packets_total" if has("kind=\"data\"") => &mut sample.out_data,
            "weir_face_packets_total" if is_in => &mut sample.in_nacks,
            "weir_face_packets_total" => &mut sample.out_nacks,
            "weir_face_bytes_total" if is_in => &mut sample.in_bytes,
            "weir_face_bytes_total" => &mut sample.out_bytes,
            // The drops of the decoder repeat those that the forwarder counts as malformed.
            "weir_drops_total" if !has("layer=\"decoder\"") => &mut sample.dropped,
            "weir_store_hits_total" => &mut sample.store_hits,
            "weir_store_misses_total" => &mut sample.store_misses,
            "weir_store_entries" => &mut sample.store_entries,
            "weir_pit_entries" => &mut sample.pit_entries,
            _ => continue,
        };
        *field += value;
    }
    sample.disk = table(text);
    sample.busy = table(text);
    sample.disk_answer_ns = answer_ns(text);
    sample
}

/// The table of counters whose metrics are in `text`.
fn table<T: Counters>(text: &str) -> T {
    let mut table = T::default();
    for (index, counter) in T::TABLE.iter().enumerate() {
        let Some(metric) = counter.metric else { continue };
        let total = if counter.kind == CounterKind::Total { "_total" } else { "" };
        let label = counter.label.map(|(label, value)| format!("{{{label}=\"{value}\"}}"));
        let name = format!("weir_{metric}{total}{}", label.unwrap_or_default());
        *table.number_mut(index) = value_of(text, &name);
    }
    table
}

/// Total time of answers from disk, ns.
fn answer_ns(text: &str) -> u64 {
    let mut rows = text.lines().filter_map(|line| {
        line.strip_prefix("weir_disk_read_latency_seconds_sum")?.trim().parse::<f64>().ok()
    });
    rows.next().map_or(0, |seconds| (seconds * 1e9).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_forward::BusyStats;

    #[test]
    fn metrics_become_a_sample() {
        let text = "\
# HELP weir_face_packets Packets by face, direction and kind.
weir_face_packets_total{transport=\"unix\",remote=\"on-demand\",direction=\"in\",kind=\"interest\"} 5
weir_face_packets_total{transport=\"udp4\",remote=\"udp4://192.0.2.1:6363\",direction=\"in\",kind=\"interest\"} 7
weir_face_packets_total{transport=\"udp4\",remote=\"udp4://192.0.2.1:6363\",direction=\"out\",kind=\"data\"} 6
weir_face_bytes_total{transport=\"udp4\",remote=\"udp4://192.0.2.1:6363\",direction=\"out\"} 600
weir_drops_total{layer=\"link\",reason=\"egress-queue-full\"} 2
weir_drops_total{layer=\"forward\",reason=\"malformed\"} 1
weir_drops_total{layer=\"decoder\",reason=\"type\"} 1
weir_store_hits_total 4
weir_store_entries 9
weir_pit_entries 3
weir_upstream_latency_seconds_sum 0.25
weir_disk_answered_total 3
weir_disk_bypassed_total{reason=\"queue-full\"} 5
weir_disk_bypassed_total{reason=\"stalled\"} 1
weir_disk_read_latency_seconds_sum 0.5
";
        let sample = parse(text);
        let expected = RouterSample {
            in_interests: 12,
            out_data: 6,
            out_bytes: 600,
            dropped: 3,
            store_hits: 4,
            store_entries: 9,
            pit_entries: 3,
            disk_answer_ns: 500_000_000,
            busy: BusyStats {
                answered: 3,
                bypassed_queue_full: 5,
                bypassed_stalled: 1,
                ..BusyStats::default()
            },
            ..RouterSample::default()
        };
        assert_eq!(sample, expected);
        let before = RouterSample { in_interests: 2, store_entries: 1, ..Default::default() };
        let left = sample.since(&before);
        assert_eq!((left.in_interests, left.store_entries), (10, 9));
        assert_eq!(left.after(&before), sample);
    }
}
