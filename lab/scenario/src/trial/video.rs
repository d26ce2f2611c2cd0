//! Live video: viewers of channels behind a cache server.

use serde::{Deserialize, Serialize};
use weir_base::NS_PER_S;
use weir_base::units::{Size, Time};

/// Limits on what one machine can run.
const VIEWERS_MAX: u32 = 10_000;
const CHANNELS_MAX: u32 = 1_000;

/// `[trial.video]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields, default)]
pub struct Video {
    pub delivery: Delivery,
    pub viewers: u32,
    pub channels: u32,
    /// Exponent of the Zipf law by which viewers choose channels.
    pub alpha: f64,
    pub quality: QualityChoice,
    /// How long a viewer stays with a channel.
    pub stay: Time,
    /// How long viewers watch before the measurement.
    pub warm_up: Time,
    /// How long the measurement takes.
    pub time: Time,
    /// Size of the cache server's memory cache, and of its disk cache.
    pub cache: Size,
    /// Whether the most popular channel is sent live, by ffmpeg over RTMP.
    pub rtmp: bool,
}

/// The settings of the paper socket-api, section 7.
impl Default for Video {
    fn default() -> Self {
        Self {
            delivery: Delivery::Tcp,
            viewers: 150,
            channels: 48,
            alpha: 1.4,
            quality: QualityChoice::One,
            stay: Time { ns: 600 * NS_PER_S },
            warm_up: Time { ns: 30 * NS_PER_S },
            time: Time { ns: 600 * NS_PER_S },
            cache: Size { bytes: 1 << 30 },
            rtmp: false,
        }
    }
}

impl Video {
    /// What is wrong with the settings.
    pub(crate) fn invalid(&self) -> Option<&'static str> {
        if !(1..=VIEWERS_MAX).contains(&self.viewers) {
            return Some("needs 1 to 10000 `viewers`");
        }
        if !(1..=CHANNELS_MAX).contains(&self.channels) {
            return Some("needs 1 to 1000 `channels`");
        }
        if !(0.0..=10.0).contains(&self.alpha) {
            return Some("needs an `alpha` of 0 to 10");
        }
        if self.stay.ns == 0 || self.time.ns == 0 {
            return Some("measures nothing; write more than 0s for `stay` and `time`");
        }
        None
    }
}

/// How viewers reach the cache server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Delivery {
    /// Each has a connection to it.
    #[default]
    Tcp,
    /// Through gateway fronts, routers and a gateway origin.
    Named,
}

/// Which of the qualities a viewer takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QualityChoice {
    /// All viewers of a channel take the same one.
    #[default]
    One,
    /// Each viewer draws one for each channel that it watches.
    Drawn,
    /// The highest that four fifths of the measured throughput allow.
    Adaptive,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_settings_are_named() {
        let video = Video::default();
        assert_eq!(video.invalid(), None);
        for (video, what) in [
            (Video { viewers: 0, ..video.clone() }, "`viewers`"),
            (Video { viewers: 10_001, ..video.clone() }, "`viewers`"),
            (Video { channels: 0, ..video.clone() }, "`channels`"),
            (Video { alpha: f64::NAN, ..video.clone() }, "`alpha`"),
            (Video { alpha: -0.1, ..video.clone() }, "`alpha`"),
            (Video { stay: Time { ns: 0 }, ..video.clone() }, "`stay`"),
        ] {
            let message = video.invalid().expect("a message");
            assert!(message.contains(what), "{message}");
        }
    }
}
