//! Round-trip time and loss for each path label of hICN.
//!
//! Routers of hICN write into each Data an octet that depends on the faces that it passed. So
//! behind one router, the label distinguishes Data of several upstream paths. No signature covers
//! the label, and two paths may have the same one. Nothing but statistics depends on it.
//!
//! A lost Interest has no label. It counts for the label of the latest answer, as in hICN's
//! library.

use alloc::vec::Vec;

/// Most labels of a path. The least recently seen one is replaced, so that random labels use no
/// memory.
pub(crate) const LABELS_MAX: usize = 16;
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
}

/// The labels of one path, the most recently seen one last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Labels(Vec<LabelStats>);

impl Labels {
    /// A Data with this label completed a chunk.
    pub(crate) fn on_answer(&mut self, label: u8, rtt_ns: Option<u64>) {
        let found = self.0.iter().position(|stats| stats.label == label);
        let mut stats = match found {
            // Usually it is the last one already.
            Some(at) => self.0.remove(at),
            None => LabelStats { label, ..LabelStats::default() },
        };
        stats.answers += 1;
        if let Some(rtt_ns) = rtt_ns {
            let smoothed_ns = stats.rtt_smoothed_ns.unwrap_or(rtt_ns);
            let rest_ns = smoothed_ns - smoothed_ns / SMOOTHING;
            stats.rtt_smoothed_ns = Some(rest_ns + rtt_ns / SMOOTHING);
        }
        if self.0.len() >= LABELS_MAX {
            self.0.remove(0);
        }
        self.0.push(stats);
    }

    pub(crate) fn on_loss(&mut self) {
        if let Some(latest) = self.0.last_mut() {
            latest.losses += 1;
        }
    }

    pub(crate) fn all(&self) -> &[LabelStats] {
        &self.0
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
}
