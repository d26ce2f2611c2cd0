//! Round-trip time and loss for each path label of hICN.
//!
//! Routers of hICN write into each Data an octet that depends on the faces that it passed. So
//! behind one router, the label distinguishes Data of several upstream paths. Each label has its
//! own least round-trip time. With one for all, each answer of a longer path would look queued.
//!
//! No signature covers the label, and two paths may have the same one. So a label changes how a
//! delay is judged, never whether Data is accepted or an Interest is sent. Routers may also write
//! labels that mean nothing. If more than four are in use at a time, all are ignored until that
//! ends.
//!
//! A lost Interest has no label. It counts for the label of the latest answer, as in hICN's
//! library.

use alloc::vec::Vec;

/// Most labels of a path. The least recently seen one is replaced, so that random labels use no
/// memory.
pub(crate) const LABELS_MAX: usize = 16;
/// Most labels in use at a time: the most recently seen ones.
const LABELS_IN_USE: usize = 4;
/// An answer whose label is not in use adds this to `strays`. Any other answer subtracts 1.
const STRAY_WEIGHT: u32 = 16;
/// Labels are ignored while `strays` is greater. The first labels of a path are strays too: four
/// of them add exactly this much, so they are used.
const STRAYS_MAX: u32 = LABELS_IN_USE as u32 * STRAY_WEIGHT;
/// Each round trip moves the smoothed one by the difference divided by this (RFC 6298).
const SMOOTHING: u64 = 8;

/// Measurements of the Data with one label.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelStats {
    pub label: u8,
    /// Answered chunks.
    pub answers: u64,
    /// Lost and timed-out chunks.
    pub losses: u64,
    /// Nanoseconds.
    pub rtt_smoothed_ns: Option<u64>,
    /// Nanoseconds.
    pub rtt_min_ns: Option<u64>,
}

/// The labels of one path.
#[derive(Clone, Debug, Default)]
pub(crate) struct Labels {
    /// The most recently seen one last.
    all: Vec<LabelStats>,
    /// Grows with answers whose label is not in use, see [`STRAY_WEIGHT`]. At most twice
    /// [`STRAYS_MAX`].
    strays: u32,
}

impl Labels {
    /// A Data with this label completed a chunk.
    pub(crate) fn on_answer(&mut self, label: u8, rtt_ns: Option<u64>) {
        let found = self.all.iter().position(|stats| stats.label == label);
        let is_in_use = found.is_some_and(|at| at + LABELS_IN_USE >= self.all.len());
        self.strays = if is_in_use {
            self.strays.saturating_sub(1)
        } else {
            (self.strays + STRAY_WEIGHT).min(2 * STRAYS_MAX)
        };
        let mut stats = match found {
            // Usually it is the last one already.
            Some(at) => self.all.remove(at),
            None => LabelStats { label, ..LabelStats::default() },
        };
        stats.answers += 1;
        if let Some(rtt_ns) = rtt_ns {
            let smoothed_ns = stats.rtt_smoothed_ns.unwrap_or(rtt_ns);
            let rest_ns = smoothed_ns - smoothed_ns / SMOOTHING;
            stats.rtt_smoothed_ns = Some(rest_ns + rtt_ns / SMOOTHING);
            stats.rtt_min_ns = Some(stats.rtt_min_ns.map_or(rtt_ns, |min_ns| min_ns.min(rtt_ns)));
        }
        if self.all.len() >= LABELS_MAX {
            self.all.remove(0);
        }
        self.all.push(stats);
    }

    /// Whether labels distinguish paths. If not, the path must ignore them.
    pub(crate) fn are_usable(&self) -> bool {
        self.strays <= STRAYS_MAX
    }

    /// The least round-trip time of a label; `None` before its first, and while labels are
    /// ignored.
    pub(crate) fn rtt_min_ns(&self, label: u8) -> Option<u64> {
        // The label of an answer is usually one of the last.
        let stats = self.all.iter().rev().find(|stats| stats.label == label)?;
        stats.rtt_min_ns.filter(|_| self.are_usable())
    }

    pub(crate) fn on_loss(&mut self) {
        if let Some(latest) = self.all.last_mut() {
            latest.losses += 1;
        }
    }

    pub(crate) fn all(&self) -> &[LabelStats] {
        &self.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_have_their_own_round_trips() {
        let mut labels = Labels::default();
        for _ in 0..100 {
            labels.on_answer(1, Some(1_000_000));
            labels.on_answer(2, Some(80_000_000));
        }
        labels.on_loss();
        let expected = [(1, 100, 0, 1_000_000), (2, 100, 1, 80_000_000)];
        let found = labels.all().iter().map(|stats| {
            (stats.label, stats.answers, stats.losses, stats.rtt_smoothed_ns.unwrap())
        });
        assert!(found.eq(expected));
    }

    #[test]
    fn random_labels_use_bounded_memory() {
        let mut labels = Labels::default();
        labels.on_loss();
        for at in 0..1000_u32 {
            labels.on_answer(at as u8, None);
            assert!(labels.all().len() <= LABELS_MAX);
        }
        assert_eq!(labels.all().last().unwrap().label, 999_u32 as u8);
    }

    /// Labels of four paths are used from the first answer on. Labels of more are ignored, and used
    /// again when the others are gone.
    #[test]
    fn many_labels_are_ignored() {
        let mut labels = Labels::default();
        let mut usable_of = |labels_in_turn: u32, answers: u32| {
            (0..answers)
                .filter(|at| {
                    let label = (at % labels_in_turn) as u8;
                    labels.on_answer(label, Some(u64::from(label) + 1));
                    labels.rtt_min_ns(label) == Some(u64::from(label) + 1)
                })
                .count()
        };
        // The first four are strays: 4 * 16 = 64, the maximum. The other 96 reduce that to 0.
        assert_eq!(usable_of(4, 100), 100);
        // Four labels in use, then only strays. The first four of these reach 64, the next one 80.
        assert_eq!(usable_of(5, 1000), 4 + 4);
        // All are strays, and the sum stays at its bound, 128.
        assert_eq!(usable_of(256, 1000), 0);
        // The first four are strays again. Then 63 answers reduce 128 to 65, and the next one
        // reaches 64.
        assert_eq!(usable_of(4, 1000), 1000 - (4 + 63));
    }
}
