//! What viewers choose, and what they count together.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use weir_base::Rng;
use weir_scenario::trial::Video;

/// The popularity of channels, and the quality of each.
pub(super) struct Lineup {
    /// For each channel the probability that a viewer takes it or a more popular one.
    cumulative: Vec<f64>,
    qualities: Vec<u32>,
}

impl Lineup {
    /// Channel `n`, from 0, is chosen with a probability in proportion to `(n + 1)^-alpha`.
    pub(super) fn new(video: &Video, seed: u64) -> Self {
        let weights = (1..=video.channels).map(|rank| f64::from(rank).powf(-video.alpha));
        let mut cumulative: Vec<f64> = weights
            .scan(0.0, |sum, weight| {
                *sum += weight;
                Some(*sum)
            })
            .collect();
        let sum = cumulative.last().copied().unwrap_or(1.0);
        cumulative.iter_mut().for_each(|part| *part /= sum);
        let mut rng = Rng::from_seed(seed);
        Self { cumulative, qualities: (0..video.channels).map(|_| rng.next_u32()).collect() }
    }

    /// Draws a channel.
    pub(super) fn draw(&self, rng: &mut Rng) -> u32 {
        let unit = rng.unit();
        let channel = self.cumulative.partition_point(|&part| part <= unit);
        channel.min(self.cumulative.len() - 1) as u32
    }

    /// A random number of a channel, the same for all viewers.
    pub(super) fn quality(&self, channel: u32) -> u32 {
        self.qualities[channel as usize]
    }
}

/// Sums since the start, over all viewers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(in super::super::super) struct AudienceCounts {
    pub(in super::super::super) elapsed_ns: u64,
    pub(in super::super::super) requests: u64,
    /// Content bytes of successful requests.
    pub(in super::super::super) octets: u64,
    /// The number of channels with viewers, times the time.
    pub(in super::super::super) channel_ns: u64,
    /// Time in which players had nothing to show.
    pub(in super::super::super) stalled_ns: u64,
    /// The number of failed requests for each reason.
    pub(in super::super::super) failures: BTreeMap<String, u64>,
}

/// Who watches what now, and the sums until now. It knows no clock; times are since its start.
pub(super) struct Audience {
    counts: AudienceCounts,
    /// Viewers of each channel.
    viewers: Vec<u32>,
    channels_watched: u64,
}

impl Audience {
    pub(super) fn new(channels: u32) -> Self {
        Self {
            counts: AudienceCounts::default(),
            viewers: vec![0; channels as usize],
            channels_watched: 0,
        }
    }

    pub(super) fn counts(&mut self, now_ns: u64) -> &AudienceCounts {
        self.pass_time(now_ns);
        &self.counts
    }

    pub(super) fn join(&mut self, channel: u32, now_ns: u64) {
        self.pass_time(now_ns);
        let viewers = &mut self.viewers[channel as usize];
        *viewers += 1;
        self.channels_watched += u64::from(*viewers == 1);
    }

    pub(super) fn leave(&mut self, channel: u32, now_ns: u64) {
        self.pass_time(now_ns);
        let viewers = &mut self.viewers[channel as usize];
        *viewers -= 1;
        self.channels_watched -= u64::from(*viewers == 0);
    }

    pub(super) fn request(&mut self, done: Result<(), String>, octets: u64) {
        self.counts.requests += 1;
        match done {
            Ok(()) => self.counts.octets += octets,
            Err(reason) => *self.counts.failures.entry(reason).or_default() += 1,
        }
    }

    pub(super) fn stalled(&mut self, time_ns: u64) {
        self.counts.stalled_ns += time_ns;
    }

    /// Counts the channels watched until now.
    fn pass_time(&mut self, now_ns: u64) {
        let passed_ns = now_ns - self.counts.elapsed_ns;
        self.counts.channel_ns += self.channels_watched * passed_ns;
        self.counts.elapsed_ns = now_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_watched_follow_the_formula() {
        // The paper has 14, 22 and 26 channels; the sum of 1 - (1 - p)^N is 15.6, 22.3 and 27.0.
        for (alpha, viewers, expected) in
            [(1.4, 50, 15.6), (1.4, 100, 22.3), (1.4, 150, 27.0), (0.7, 50, 26.6), (0.7, 150, 41.8)]
        {
            let lineup = Lineup::new(&Video { alpha, ..Video::default() }, 1);
            let mut rng = Rng::from_seed(7);
            let mut watched = 0;
            for _ in 0..1000 {
                let mut audience = Audience::new(48);
                (0..viewers).for_each(|_| audience.join(lineup.draw(&mut rng), 0));
                watched += audience.channels_watched;
            }
            let mean = watched as f64 / 1000.0;
            assert!((mean - expected).abs() < 0.3, "{mean} instead of {expected}");
        }
    }

    #[test]
    fn a_channel_counts_once_while_it_is_watched() {
        let mut audience = Audience::new(3);
        audience.join(0, 1000);
        audience.join(0, 2000);
        audience.join(2, 2000);
        assert_eq!(audience.counts(5000).channel_ns, 1000 + 2 * 3000);
        audience.leave(0, 5000);
        audience.leave(2, 6000);
        assert_eq!(audience.counts(6000).channel_ns, 7000 + 2 * 1000);
        audience.leave(0, 7000);
        let counts = audience.counts(9000);
        assert_eq!((counts.channel_ns, counts.elapsed_ns), (10_000, 9000));
    }

    #[test]
    fn failed_requests_count_by_reason() {
        let mut audience = Audience::new(1);
        audience.request(Ok(()), 10);
        audience.request(Err("status 404".into()), 5);
        audience.request(Err("status 404".into()), 5);
        let counts = audience.counts(0);
        assert_eq!((counts.requests, counts.octets), (3, 10));
        assert_eq!(counts.failures, BTreeMap::from([("status 404".to_owned(), 2)]));
    }
}
