//! Distinguishes the sources of answers by their round trips alone.
//!
//! Content comes from stores at several distances, and Data does not name its store. One path with
//! one queue keeps the packets of one source in order. Three rules follow:
//!
//! 1. An answer that was overtaken by another answer of its source comes from a farther source.
//! 2. An answer that is an eighth faster than any before comes from a nearer source.
//! 3. Any other longer round trip is a queue, or the path has become longer.
//!
//! Answers with different path labels of hICN come from different sources. The rules then
//! distinguish the sources behind each label. Without labels, a queue in front of a near source
//! would look like a far source as soon as it delays answers as much.

use weir_base::NS_PER_MS;

use super::Sample;

/// Upper bound of sources. The one with the fewest recent answers is replaced.
const SOURCES_MAX: usize = 4;
/// Round trips that differ by less than this fraction (an eighth) belong to one source.
const SAME_DIVISOR: f64 = 8.0;
/// A source without an answer for this many rounds is forgotten.
const IDLE_ROUNDS_MAX: u32 = 64;
/// This many consecutive answers must be late to show a queue. An answer is late if it exceeds the
/// base by the base divided by `LATE_DIVISOR`, and by at least `LATE_NS`. RFC 9406 uses an eighth,
/// but by then startup has doubled the window.
const LATE_ANSWERS: u32 = 8;
/// An answer of several packets counts as at most this many: three chunks in a row are enough.
const LATE_WEIGHT_MAX: u32 = 3;
const LATE_DIVISOR: f64 = 16.0;
const LATE_NS: f64 = NS_PER_MS as f64;

/// One distance at which content is stored.
#[derive(Copy, Clone, Debug)]
struct Source {
    label: Option<u8>,
    /// The round trip without a queue, in nanoseconds: the least mean of a round.
    base_ns: f64,
    /// No mean of a round is known yet.
    is_new: bool,
    /// Mean of the last round in which it answered.
    mean_ns: f64,
    sum_ns: f64,
    least_ns: f64,
    answers: u32,
    idle_rounds: u32,
    /// One past the order of the latest Interest that it answered, and that Interest's round trip.
    answered_end: u64,
    front_rtt_ns: f64,
    /// Consecutive late answers.
    late_answers: u32,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Sources {
    /// In no order.
    all: [Option<Source>; SOURCES_MAX],
    round_slowest_ns: f64,
    slowest_ns: f64,
}

/// Means over the answers of a round, in nanoseconds.
#[derive(Copy, Clone, Debug)]
pub(super) struct RoundTrips {
    pub(super) rtt_ns: f64,
    pub(super) base_ns: f64,
    pub(super) queueing_ns: f64,
}

impl Sources {
    /// Adds the round trip of an Interest. Returns whether the latest answers of its source were
    /// all late.
    pub(super) fn add(&mut self, sample: &Sample, rtt_ns: f64) -> bool {
        let &Sample { sent_order: order, packets, label, .. } = sample;
        self.round_slowest_ns = self.round_slowest_ns.max(rtt_ns);
        let at = self.source_of(label, order, rtt_ns);
        let Some(source) = &mut self.all[at] else { return false };
        source.least_ns = if source.answers == 0 { rtt_ns } else { source.least_ns.min(rtt_ns) };
        source.sum_ns += rtt_ns;
        source.answers += 1;
        if order >= source.answered_end {
            (source.answered_end, source.front_rtt_ns) = (order + 1, rtt_ns);
        }
        let is_late = rtt_ns - source.base_ns > (source.base_ns / LATE_DIVISOR).max(LATE_NS);
        source.late_answers =
            if is_late { source.late_answers + packets.min(LATE_WEIGHT_MAX) } else { 0 };
        source.late_answers >= LATE_ANSWERS
    }

    /// The source of an answer. It is the farthest one whose base is not clearly above the answer's
    /// round trip. If there is none, or if rule 1 excludes it, the answer starts a new source.
    fn source_of(&mut self, label: Option<u8>, order: u64, rtt_ns: f64) -> usize {
        let known = self.all.iter().enumerate().filter_map(|(at, source)| Some((at, (*source)?)));
        let known = known.filter(|(_, source)| source.label == label);
        let nearer =
            known.filter(|(_, source)| source.base_ns * (1.0 - 1.0 / SAME_DIVISOR) <= rtt_ns);
        let farthest = nearer.max_by(|one, other| one.1.base_ns.total_cmp(&other.1.base_ns));
        match farthest {
            Some((at, source))
                if order >= source.answered_end
                    || rtt_ns
                        <= source.base_ns.max(source.front_rtt_ns) * (1.0 + 1.0 / SAME_DIVISOR) =>
            {
                at
            }
            _ => self.insert(label, rtt_ns),
        }
    }

    fn insert(&mut self, label: Option<u8>, rtt_ns: f64) -> usize {
        let idle = |source: &Option<Source>| {
            source.map_or((u32::MAX, 0), |source| (source.idle_rounds, u32::MAX - source.answers))
        };
        let places = self.all.iter().enumerate();
        let at = places.max_by_key(|(_, source)| idle(source)).map_or(0, |(at, _)| at);
        self.all[at] = Some(Source {
            label,
            base_ns: rtt_ns,
            is_new: true,
            mean_ns: rtt_ns,
            sum_ns: 0.0,
            least_ns: rtt_ns,
            answers: 0,
            idle_rounds: 0,
            answered_end: 0,
            front_rtt_ns: rtt_ns,
            late_answers: 0,
        });
        at
    }

    /// Discards the answers of the round so far.
    pub(super) fn begin_round(&mut self) {
        self.round_slowest_ns = 0.0;
        for source in self.all.iter_mut().flatten() {
            (source.sum_ns, source.answers, source.late_answers) = (0.0, 0, 0);
        }
    }

    /// Ends a round and returns the means of its answers; `None` if none was timed.
    pub(super) fn end_round(&mut self) -> Option<RoundTrips> {
        self.slowest_ns = 0.0;
        self.end_partial_round()
    }

    /// As [`Sources::end_round`], for a part of a round: far sources may not have answered yet.
    pub(super) fn end_partial_round(&mut self) -> Option<RoundTrips> {
        self.slowest_ns = self.slowest_ns.max(core::mem::take(&mut self.round_slowest_ns));
        let (mut answers, mut rtt_ns, mut base_ns) = (0, 0.0, 0.0);
        for place in &mut self.all {
            let Some(source) = place else { continue };
            if source.answers == 0 {
                source.idle_rounds += 1;
                if source.idle_rounds > IDLE_ROUNDS_MAX {
                    *place = None;
                }
                continue;
            }
            let mean_ns = source.sum_ns / f64::from(source.answers);
            // The mean of few answers may be too low by about its own error, which would make all
            // later answers look queued.
            let doubt_ns = (mean_ns - source.least_ns) / root(source.answers);
            if source.is_new || mean_ns + doubt_ns < source.base_ns {
                source.base_ns = mean_ns + doubt_ns;
                source.is_new = false;
            }
            answers += source.answers;
            rtt_ns += source.sum_ns;
            base_ns += source.base_ns * f64::from(source.answers);
            source.idle_rounds = 0;
            source.mean_ns = mean_ns;
            (source.sum_ns, source.answers) = (0.0, 0);
        }
        let count = f64::from(answers);
        (answers > 0).then(|| RoundTrips {
            rtt_ns: rtt_ns / count,
            base_ns: base_ns / count,
            queueing_ns: ((rtt_ns - base_ns) / count).max(0.0),
        })
    }

    /// Whether all recent answers came from one distance.
    pub(super) fn is_single(&self) -> bool {
        self.all.iter().flatten().filter(|source| source.idle_rounds == 0).count() == 1
    }

    /// Whether the latest answers of any source were all late.
    pub(super) fn has_late_source(&self) -> bool {
        self.all.iter().flatten().any(|source| source.late_answers >= LATE_ANSWERS)
    }

    /// The base of the nearest source with recent answers, in nanoseconds.
    pub(super) fn nearest_ns(&self) -> f64 {
        let bases = self.all.iter().flatten().filter(|source| source.idle_rounds == 0);
        bases.map(|source| source.base_ns).fold(f64::INFINITY, f64::min)
    }

    /// Takes the present round trips as those without a queue.
    pub(super) fn rebase(&mut self) {
        for source in self.all.iter_mut().flatten().filter(|source| source.idle_rounds == 0) {
            source.base_ns = source.mean_ns;
        }
    }

    /// The slowest answer of the last round, in nanoseconds. A round lasts this long.
    pub(super) fn slowest_ns(&self) -> u64 {
        self.slowest_ns as u64
    }
}

/// The square root of a small number, to one part in sixteen.
fn root(count: u32) -> f64 {
    f64::from((count << 8).isqrt()) / 16.0
}

#[cfg(test)]
mod tests {
    use weir_base::Instant;

    use super::*;
    use crate::congestion::tests;

    const MS: f64 = NS_PER_MS as f64;

    fn sample(order: u64) -> Sample {
        tests::sample(Instant::ZERO, 0, order)
    }

    /// Ends a round of answers with these orders after these milliseconds. Returns the means.
    fn round(sources: &mut Sources, answers: &[(u64, f64)]) -> RoundTrips {
        for &(order, rtt_ms) in answers {
            sources.add(&sample(order), rtt_ms * MS);
        }
        sources.end_round().unwrap()
    }

    #[test]
    fn in_order_delay_is_queueing() {
        let mut sources = Sources::default();
        round(&mut sources, &[(0, 100.0), (1, 100.0)]);
        let trips = round(&mut sources, &[(2, 150.0), (3, 160.0), (4, 170.0)]);
        assert_eq!((trips.queueing_ns, sources.is_single()), (60.0 * MS, true));
    }

    #[test]
    fn overtaken_answer_is_a_farther_source() {
        let mut sources = Sources::default();
        round(&mut sources, &[(0, 10.0), (2, 10.0), (4, 10.0)]);
        let trips = round(&mut sources, &[(1, 100.0), (3, 100.0), (6, 10.0)]);
        assert_eq!((trips.queueing_ns, sources.is_single()), (0.0, false));
        // A queue in front of both sources.
        let trips = round(&mut sources, &[(8, 15.0), (5, 105.0), (10, 15.0), (7, 105.0)]);
        assert!((trips.queueing_ns - 5.0 * MS).abs() < 1.0, "{trips:?}");
        // Short delays of single packets cause little overtaking.
        let known = sources.all.iter().flatten().count();
        round(&mut sources, &[(12, 10.0), (11, 11.0), (14, 10.0), (13, 11.0)]);
        assert_eq!(sources.all.iter().flatten().count(), known);
    }

    #[test]
    fn early_answer_is_a_nearer_source() {
        let mut sources = Sources::default();
        round(&mut sources, &[(0, 100.0), (1, 100.0)]);
        let trips = round(&mut sources, &[(2, 10.0), (3, 10.0), (4, 100.0)]);
        assert_eq!((trips.queueing_ns, sources.is_single()), (0.0, false));
        // A slightly faster answer is the same source with a shorter queue.
        let trips = round(&mut sources, &[(5, 95.0), (6, 95.0), (7, 95.0)]);
        assert_eq!((trips.base_ns, trips.queueing_ns), (95.0 * MS, 0.0));
    }

    /// A queue delays answers of the near source until they take as long as those of the far one.
    #[test]
    fn labels_show_queue_of_near_source() {
        let queueing_ms = |near: Option<u8>, far: Option<u8>| {
            let mut sources = Sources::default();
            let mut add = |answers: &[(u64, Option<u8>, f64)]| {
                for &(order, label, rtt_ms) in answers {
                    sources.add(&Sample { label, ..sample(order) }, rtt_ms * MS);
                }
                sources.end_round().unwrap().queueing_ns / MS
            };
            add(&[(0, near, 10.0), (2, near, 10.0), (4, near, 10.0)]);
            add(&[(1, far, 40.0), (3, far, 40.0), (6, near, 10.0)]);
            add(&[(8, near, 40.0), (9, far, 40.0), (10, near, 40.0), (11, far, 40.0)])
        };
        assert_eq!(queueing_ms(None, None), 0.0);
        assert_eq!(queueing_ms(Some(6), Some(4)), 15.0);
    }

    #[test]
    fn rebase_learns_longer_path() {
        let mut sources = Sources::default();
        round(&mut sources, &[(0, 60.0)]);
        assert_eq!(round(&mut sources, &[(1, 160.0)]).queueing_ns, 100.0 * MS);
        sources.rebase();
        assert_eq!(round(&mut sources, &[(2, 160.0)]).queueing_ns, 0.0);
    }

    #[test]
    fn reports_consecutive_late_answers() {
        let mut sources = Sources::default();
        round(&mut sources, &[(0, 100.0)]);
        let late = |sources: &mut Sources, order| sources.add(&sample(order), 110.0 * MS);
        assert!((1..8).all(|order| !late(&mut sources, order)));
        assert!(!sources.add(&sample(8), 101.0 * MS));
        assert!((9..16).all(|order| !late(&mut sources, order)));
        assert!(late(&mut sources, 16));
    }

    #[test]
    fn bounds_number_of_sources() {
        let mut sources = Sources::default();
        for rtt_ms in [800.0, 400.0, 200.0, 100.0, 50.0, 25.0] {
            round(&mut sources, &[(0, rtt_ms)]);
        }
        assert_eq!(sources.all.iter().flatten().count(), SOURCES_MAX);
        for order in 1..100 {
            round(&mut sources, &[(order, 25.0)]);
        }
        assert_eq!(sources.all.iter().flatten().count(), 1, "the others are forgotten");
    }
}
