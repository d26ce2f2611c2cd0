//! Measures the round-trip times of links.
//!
//! The prober sends an Interest to one face, for a name below `/localhop` that does not exist. Any
//! router that speaks NDNLPv2 answers with a Nack and does not forward it. The reported time must
//! describe the link, not its load. So it is the least of the last five samples, and a new value is
//! reported only if it differs clearly.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_base::{Backoff, FaceId};
use weir_client::Client;
use weir_manage::{FaceScope, FaceStatus, LinkType};
use weir_wire::{DataView, Interest, InterestView, LpHeader, Name};

use crate::shared::AgentShared;

/// Maximum number of measured faces.
const FACES_MAX: usize = 256;
/// Time between two probes of any faces.
const PROBE_INTERVAL: Duration = Duration::from_millis(50);
/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_secs(1);
/// A face is probed again after this many reporting intervals.
const PERIOD_INTERVALS: u32 = 5;
/// Number of samples whose minimum is the round-trip time.
const SAMPLES: usize = 5;
/// Samples before the first report. The first packets on a link take longer.
const SAMPLES_MIN: usize = 3;
/// Consecutive unanswered probes after which a face is probed less often.
const FAILURES_TOLERATED: u32 = 3;
/// The longest wait between two probes of a face, in periods.
const PERIODS_MAX: u64 = 64;
/// A new value is reported if it differs by more than a fifth of the reported one, and by more than
/// a millisecond. The controller computes all routes again after each report.
const CHANGE_DIVISOR: u64 = 5;
const CHANGE_NS: u64 = 1_000_000;

/// The samples of one face.
#[derive(Debug, Default)]
struct FaceRoundTrip {
    /// The last samples, and how many there were in all.
    round_trips_ns: [u64; SAMPLES],
    count: usize,
    failures: u32,
    /// When the next probe is due; at once if it is none.
    due: Option<Instant>,
    reported_ns: Option<u64>,
}

impl FaceRoundTrip {
    /// Adds a sample. Returns whether a new value must be reported.
    fn add_sample(&mut self, round_trip_ns: u64) -> bool {
        self.failures = 0;
        self.round_trips_ns[self.count % SAMPLES] = round_trip_ns;
        self.count += 1;
        if self.count < SAMPLES_MIN {
            return false;
        }
        let known = &self.round_trips_ns[..self.count.min(SAMPLES)];
        let least_ns = known.iter().copied().min().unwrap_or(round_trip_ns);
        let has_changed = self.reported_ns.is_none_or(|told_ns| {
            least_ns.abs_diff(told_ns) > (told_ns / CHANGE_DIVISOR).max(CHANGE_NS)
        });
        if has_changed {
            self.reported_ns = Some(least_ns);
        }
        has_changed
    }

    /// The wait before the next probe.
    fn next_wait(&self, period: Duration) -> Duration {
        match self.failures {
            0 if self.count < SAMPLES_MIN => Duration::ZERO,
            failures => {
                let period_ns = period.as_nanos() as u64;
                let waits = Backoff::new(period_ns, period_ns * PERIODS_MAX);
                Duration::from_nanos(
                    waits.delay_ns(failures.saturating_sub(FAILURES_TOLERATED) + 1),
                )
            }
        }
    }
}

/// The thread that sends probes.
pub(crate) struct RoundTripProber {
    shared: Arc<AgentShared>,
    period: Duration,
    client: Option<Client>,
    faces: BTreeMap<FaceId, FaceRoundTrip>,
}

impl RoundTripProber {
    pub(crate) fn new(shared: Arc<AgentShared>, interval: Duration) -> Self {
        let period = interval * PERIOD_INTERVALS;
        Self { shared, period, client: None, faces: BTreeMap::new() }
    }

    pub(crate) fn run(mut self) {
        let mut refreshed: Option<Instant> = None;
        while self.shared.pause(PROBE_INTERVAL) {
            let is_due = refreshed.is_none_or(|refreshed| refreshed.elapsed() >= self.period);
            let measured = if is_due { self.refresh_faces() } else { Ok(()) };
            if is_due {
                refreshed = Some(Instant::now());
            }
            if measured.and_then(|()| self.measure_next()).is_err() {
                // Retry later with a new connection.
                self.client = None;
                refreshed = Some(Instant::now());
            }
        }
    }

    fn refresh_faces(&mut self) -> Result<(), String> {
        let client = match &mut self.client {
            Some(client) => client,
            none => {
                let mut client = self.shared.connect().map_err(|error| error.to_string())?;
                // The sender may choose the face of an Interest (NextHopFaceId) only with local
                // fields.
                client.enable_local_fields().map_err(|error| error.to_string())?;
                none.insert(client)
            }
        };
        let statuses: Vec<FaceStatus> =
            client.dataset("faces/list").map_err(|error| error.to_string())?;
        let is_link = |status: &&FaceStatus| {
            let info = &status.info;
            info.scope == FaceScope::NonLocal && info.link_type == LinkType::PointToPoint
        };
        let links = statuses.iter().filter(is_link).map(|status| status.info.face_id);
        let mut former = std::mem::take(&mut self.faces);
        self.faces = links
            .take(FACES_MAX)
            .map(|face| (face, former.remove(&face).unwrap_or_default()))
            .collect();
        // The faces left in `former` no longer exist, so their times must disappear.
        if !former.is_empty() {
            self.publish();
        }
        Ok(())
    }

    fn measure_next(&mut self) -> Result<(), String> {
        let now = Instant::now();
        let is_due =
            |(_, measured): &(&FaceId, &FaceRoundTrip)| measured.due.is_none_or(|due| due <= now);
        // The most overdue face is next. A new face has no due time and comes first.
        let next = self.faces.iter().filter(is_due).min_by_key(|(_, measured)| measured.due);
        let Some(face) = next.map(|(face, _)| *face) else { return Ok(()) };
        let Some(client) = &mut self.client else { return Ok(()) };
        let round_trip = probe(client, face)?;
        let Some(measured) = self.faces.get_mut(&face) else { return Ok(()) };
        let has_changed = match round_trip {
            Some(round_trip) => measured.add_sample(round_trip.as_nanos() as u64),
            None => {
                measured.failures = measured.failures.saturating_add(1);
                false
            }
        };
        measured.due = Some(Instant::now() + measured.next_wait(self.period));
        if has_changed {
            self.publish();
        }
        Ok(())
    }

    fn publish(&self) {
        let reported = self.faces.iter().filter_map(|(face, one)| Some((*face, one.reported_ns?)));
        self.shared.set_round_trips(reported.collect());
    }
}

/// Sends a probe over a face and waits for the Nack. None if there is no answer in time.
fn probe(client: &mut Client, face: FaceId) -> Result<Option<Duration>, String> {
    let Some(path) = client.paths().next() else {
        return Err("the connection to the router is closed".into());
    };
    let mut name = Name::new();
    name.append_str("localhop").append_str("weir").append_str("round-trip");
    name.append_str(&format!("{:016x}", client.random_u64()));
    let nonce = client.random_u64() as u32;
    let lifetime_ms = TIMEOUT.as_millis() as u64;
    let wire = Interest::new(name.clone()).nonce(nonce).lifetime_ms(lifetime_ms).encode();
    let packet = client.pool().copy(&wire);
    let header = LpHeader { next_hop_face: Some(face.0), ..LpHeader::default() };
    let sent_at = client.now();
    if client.send(path, header, packet).is_err() {
        return Ok(None);
    }
    let deadline = sent_at.plus_ns(TIMEOUT.as_nanos() as u64);
    let mut packets = Vec::new();
    while client.now() < deadline {
        client.poll(Some(deadline), &mut packets).map_err(|error| error.to_string())?;
        for packet in packets.drain(..) {
            let is_answer = match packet.header.nack {
                Some(_) => InterestView::decode(&packet.packet)
                    .is_ok_and(|interest| interest.name == name.as_view()),
                None => {
                    DataView::decode(&packet.packet).is_ok_and(|data| data.name == name.as_view())
                }
            };
            if is_answer {
                return Ok(Some(Duration::from_nanos(client.now().ns_since(sent_at))));
            }
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn reports_changes_not_jitter() {
        let mut measured = FaceRoundTrip::default();
        assert!(!measured.add_sample(90 * MS) && !measured.add_sample(40 * MS), "too few samples");
        assert!(measured.add_sample(41 * MS));
        assert_eq!(measured.reported_ns, Some(40 * MS));
        // Queues fill and drain; the link stays the same.
        for round_trip_ms in [60, 45, 40, 80, 47, 33, 35, 47, 39] {
            assert!(!measured.add_sample(round_trip_ms * MS), "{round_trip_ms}");
        }
        let reported: Vec<bool> = (0..6).map(|_| measured.add_sample(100 * MS)).collect();
        assert_eq!(reported.iter().filter(|reported| **reported).count(), 1, "{reported:?}");
        assert_eq!(measured.reported_ns, Some(100 * MS));
        // A shorter time is reported at once.
        assert!(measured.add_sample(20 * MS));
        // Differences below a millisecond do not count.
        let mut near = FaceRoundTrip::default();
        let reported = [MS / 10, MS / 2, MS / 3, MS / 20, MS].map(|ns| near.add_sample(ns));
        assert_eq!(reported, [false, false, true, false, false]);
    }

    #[test]
    fn probes_silent_faces_less_often() {
        let period = Duration::from_secs(5);
        let mut measured = FaceRoundTrip { count: 9, ..FaceRoundTrip::default() };
        let pauses = (0..12).map(|failures| {
            measured.failures = failures;
            measured.next_wait(period).as_secs()
        });
        let pauses: Vec<u64> = pauses.collect();
        assert_eq!(pauses, [5, 5, 5, 5, 10, 20, 40, 80, 160, 320, 320, 320]);
    }
}
