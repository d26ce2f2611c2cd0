//! What a router counts, from its `/metrics`: unlike datasets of management, asking for them
//! leaves no packets in the counters.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use weir_plan::event::{DiskSample, Queue, RouterSample};

/// How long a router may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a store has taken in and given up since its router started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StoreCounts {
    pub(super) insertions: u64,
    pub(super) evictions: u64,
}

/// What waits because of a router's disks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Queues {
    pub(super) reads: u32,
    pub(super) writes: u32,
    pub(super) interests: u32,
}

impl Queues {
    /// As events tell of them.
    pub(super) fn lengths(self) -> [(Queue, u32); 3] {
        [
            (Queue::DiskReads, self.reads),
            (Queue::DiskWrites, self.writes),
            (Queue::DiskBlocked, self.interests),
        ]
    }
}

/// The counters of the router whose metrics are at `address`, since it started, and its queues.
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

/// Those of its store that a sample lacks.
pub(super) fn fetch_store(address: SocketAddr) -> io::Result<StoreCounts> {
    let text = fetch_text(address)?;
    Ok(StoreCounts {
        insertions: value_of(&text, "weir_store_insertions_total"),
        evictions: value_of(&text, "weir_store_evictions_total"),
    })
}

/// Records that a router has written to its disks, or had no room for.
pub(super) fn fetch_disk(address: SocketAddr) -> io::Result<u64> {
    let text = fetch_text(address)?;
    let counters = ["weir_disk_writes_total", "weir_disk_no_room_total"];
    Ok(counters.iter().map(|name| value_of(&text, name)).sum())
}

/// One that has no labels, by its name.
pub(super) fn fetch_gauge(address: SocketAddr, name: &str) -> io::Result<u64> {
    fetch_text(address).map(|text| value_of(&text, name))
}

fn value_of(text: &str, name: &str) -> u64 {
    let mut rows = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    rows.find_map(|value| value.parse().ok()).unwrap_or(0)
}

fn fetch_text(address: SocketAddr) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    // HTTP/1.0, so that the answer comes in one piece.
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

/// Sums up the metrics that a sample is made of; others are left alone.
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
            "weir_packets_total" if has("kind=\"interest\"") && is_in => &mut sample.in_interests,
            "weir_packets_total" if has("kind=\"interest\"") => &mut sample.out_interests,
            "weir_packets_total" if has("kind=\"data\"") && is_in => &mut sample.in_data,
            "weir_packets_total" if has("kind=\"data\"") => &mut sample.out_data,
            "weir_packets_total" if is_in => &mut sample.in_nacks,
            "weir_packets_total" => &mut sample.out_nacks,
            "weir_octets_total" if is_in => &mut sample.in_bytes,
            "weir_octets_total" => &mut sample.out_bytes,
            // It tells what the forwarder counts as malformed once more.
            "weir_drops_total" if !has("layer=\"decoder\"") => &mut sample.dropped,
            "weir_store_hits_total" => &mut sample.store_hits,
            "weir_store_misses_total" => &mut sample.store_misses,
            "weir_store_entries" => &mut sample.store_entries,
            "weir_pit_entries" => &mut sample.pit_entries,
            _ => match disk_field(name, labels, &mut sample.disk) {
                Some(field) => field,
                None => continue,
            },
        };
        *field += value;
    }
    sample.disk.disk_answer_ns = answer_ns(text);
    sample
}

/// What a metric of the disks is counted in.
fn disk_field<'a>(name: &str, labels: &str, disk: &'a mut DiskSample) -> Option<&'a mut u64> {
    let has = |label: &str| labels.contains(label);
    Some(match name {
        "weir_disk_entries" => &mut disk.disk_entries,
        "weir_disk_reads_total" => &mut disk.disk_reads,
        "weir_disk_reads_shared_total" => &mut disk.disk_reads_shared,
        "weir_disk_reads_refused_total" | "weir_disk_interests_refused_total" => {
            &mut disk.disk_reads_refused
        }
        "weir_disk_answered_total" => &mut disk.disk_answers,
        "weir_disk_writes_total" => &mut disk.disk_writes,
        "weir_disk_written_bytes_total" => &mut disk.disk_written_bytes,
        "weir_disk_passed_by_total" => &mut disk.disk_writes_passed_by,
        "weir_disk_evictions_total" => &mut disk.disk_evictions,
        "weir_disk_filter_negatives_total" => &mut disk.filter_negatives,
        "weir_disk_filter_false_positives_total" => &mut disk.filter_false_positives,
        "weir_disk_read_errors_total" | "weir_disk_write_errors_total" => &mut disk.disk_errors,
        "weir_disk_damaged_total" => &mut disk.disk_damaged,
        "weir_disk_bypassed_total" if has("\"queue-full\"") => &mut disk.bypass_threshold,
        "weir_disk_bypassed_total" if has("\"slower\"") => &mut disk.bypass_adaptive,
        "weir_disk_bypassed_total" if has("\"probe\"") => &mut disk.bypass_probe,
        "weir_disk_bypassed_total" => &mut disk.bypass_stalled,
        "weir_disk_waited_over_threshold_total" => &mut disk.waited_over_threshold,
        "weir_disk_marked_total" => &mut disk.store_marks,
        "weir_disk_alphas_sent_total" => &mut disk.alphas_out,
        "weir_disk_betas_sent_total" => &mut disk.betas_out,
        "weir_disk_alphas_received_total" => &mut disk.alphas_in,
        "weir_disk_betas_received_total" => &mut disk.betas_in,
        _ => return None,
    })
}

/// The sum of the times that answers from disk took, ns.
fn answer_ns(text: &str) -> u64 {
    let mut rows = text.lines().filter_map(|line| {
        line.strip_prefix("weir_disk_read_latency_seconds_sum")?.trim().parse::<f64>().ok()
    });
    rows.next().map_or(0, |seconds| (seconds * 1e9).round() as u64)
}

/// `now` as if counting had begun at `before`; what is in the tables is not counted.
pub(super) fn since(now: &RouterSample, before: &RouterSample) -> RouterSample {
    RouterSample {
        in_interests: now.in_interests.saturating_sub(before.in_interests),
        in_data: now.in_data.saturating_sub(before.in_data),
        in_nacks: now.in_nacks.saturating_sub(before.in_nacks),
        out_interests: now.out_interests.saturating_sub(before.out_interests),
        out_data: now.out_data.saturating_sub(before.out_data),
        out_nacks: now.out_nacks.saturating_sub(before.out_nacks),
        in_bytes: now.in_bytes.saturating_sub(before.in_bytes),
        out_bytes: now.out_bytes.saturating_sub(before.out_bytes),
        store_hits: now.store_hits.saturating_sub(before.store_hits),
        store_misses: now.store_misses.saturating_sub(before.store_misses),
        dropped: now.dropped.saturating_sub(before.dropped),
        cpu_ns: now.cpu_ns.saturating_sub(before.cpu_ns),
        store_entries: now.store_entries,
        pit_entries: now.pit_entries,
        disk: now.disk.since(&before.disk),
    }
}

/// The counters of a router that lived before and lives again: counts add up.
pub(super) fn sum(now: &RouterSample, before: &RouterSample) -> RouterSample {
    RouterSample {
        in_interests: now.in_interests + before.in_interests,
        in_data: now.in_data + before.in_data,
        in_nacks: now.in_nacks + before.in_nacks,
        out_interests: now.out_interests + before.out_interests,
        out_data: now.out_data + before.out_data,
        out_nacks: now.out_nacks + before.out_nacks,
        in_bytes: now.in_bytes + before.in_bytes,
        out_bytes: now.out_bytes + before.out_bytes,
        store_hits: now.store_hits + before.store_hits,
        store_misses: now.store_misses + before.store_misses,
        dropped: now.dropped + before.dropped,
        cpu_ns: now.cpu_ns + before.cpu_ns,
        store_entries: now.store_entries,
        pit_entries: now.pit_entries,
        disk: now.disk.after(&before.disk),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_become_a_sample() {
        let text = "\
# HELP weir_packets Packets by face, direction and kind.
weir_packets_total{face=\"256\",remote=\"fd://1\",direction=\"in\",kind=\"interest\"} 5
weir_packets_total{face=\"257\",remote=\"fd://2\",direction=\"in\",kind=\"interest\"} 7
weir_packets_total{face=\"257\",remote=\"fd://2\",direction=\"out\",kind=\"data\"} 6
weir_octets_total{face=\"257\",remote=\"fd://2\",direction=\"out\"} 600
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
            disk: DiskSample {
                disk_answers: 3,
                disk_answer_ns: 500_000_000,
                bypass_threshold: 5,
                bypass_stalled: 1,
                ..DiskSample::default()
            },
            ..RouterSample::default()
        };
        assert_eq!(sample, expected);
        let before = RouterSample { in_interests: 2, store_entries: 1, ..Default::default() };
        let left = since(&sample, &before);
        assert_eq!((left.in_interests, left.store_entries), (10, 9));
        assert_eq!(sum(&left, &before), sample);
    }
}
