//! Live channels: which segments of video exist, and the names of playlists.

use weir_base::{Instant, NS_PER_S};
use weir_transport::{METADATA_KEYWORD, Metadata};
use weir_wire::{DataView, Name, NameView};

use super::{Names, Naming, Sizes, WorkloadError};

/// A player begins with this segment of a playlist, counted from its end (RFC 8216, 6.3.3).
const BEGIN_BEFORE_END: u64 = 3;

/// Channels in several qualities. A stream is one quality of one channel. It is cut into numbered
/// segments of video, each an object of the collection. The channels' segments begin at different
/// times, spread over the length of a segment. Before the run each stream has `listed` segments.
///
/// The playlist of a stream is the RDR metadata of the stream's name. Its version is the number of
/// the newest segment, which says all that a player needs.
#[derive(Clone, Debug)]
pub(crate) struct LiveChannels {
    channels: u64,
    /// Bit rate of each quality, lowest first.
    rates_bps: Vec<f64>,
    segment_ns: u64,
    listed: u64,
    playlists: Naming,
}

impl LiveChannels {
    /// `None` if the objects of `plan` are not live.
    pub(super) fn new(plan: &Names) -> Result<Option<Self>, WorkloadError> {
        let Some(live) = &plan.live else { return Ok(None) };
        let Sizes::List { bytes } = &plan.sizes else {
            let problem = "must list one size for each quality of a live channel";
            return Err(WorkloadError::value("sizes", problem));
        };
        if live.segment_ns == 0 || live.listed < BEGIN_BEFORE_END {
            let problem = format!(
                "needs segments longer than 0 ns, and at least {BEGIN_BEFORE_END} in a playlist"
            );
            return Err(WorkloadError::value("live", problem));
        }
        let segment_s = live.segment_ns as f64 / NS_PER_S as f64;
        Ok(Some(Self {
            channels: plan.popularity.object_count(),
            rates_bps: bytes.iter().map(|&bytes| bytes as f64 * 8.0 / segment_s).collect(),
            segment_ns: live.segment_ns,
            listed: live.listed,
            playlists: Naming::new(&format!("{}/playlist", plan.prefix.trim_end_matches('/')), 0)?,
        }))
    }

    pub(crate) fn qualities(&self) -> u64 {
        self.rates_bps.len() as u64
    }

    pub(crate) fn segment_ns(&self) -> u64 {
        self.segment_ns
    }

    pub(crate) fn stream(&self, channel: u64, quality: u64) -> u64 {
        channel * self.qualities() + quality
    }

    /// The highest quality of at most `bps`, or the lowest one.
    pub(crate) fn quality_within(&self, bps: f64) -> u64 {
        let lower = self.rates_bps.iter().filter(|&&rate| rate <= bps).count() as u64;
        lower.saturating_sub(1)
    }

    fn streams(&self) -> u64 {
        self.channels * self.qualities()
    }

    /// The object of a segment of video. Object numbers grow with time. Modulo the number of
    /// qualities they are the quality, as [`Sizes::List`] needs.
    pub(crate) fn object(&self, stream: u64, number: u64) -> u64 {
        number * self.streams() + stream
    }

    fn number_of(&self, object: u64) -> u64 {
        object / self.streams()
    }

    /// Time of the stream's encoder at `now`. A segment begins at each multiple of its length.
    fn encoder_ns(&self, stream: u64, now: Instant) -> u64 {
        let channel = stream / self.qualities();
        let offset = u128::from(self.segment_ns) * u128::from(channel) / u128::from(self.channels);
        now.as_ns() + offset as u64
    }

    /// Number of the newest complete segment.
    pub(crate) fn newest(&self, stream: u64, now: Instant) -> u64 {
        self.listed - 1 + self.encoder_ns(stream, now) / self.segment_ns
    }

    /// Time until the next segment is complete, ns.
    pub(crate) fn fresh_ns(&self, stream: u64, now: Instant) -> u64 {
        self.segment_ns - self.encoder_ns(stream, now) % self.segment_ns
    }

    /// The segment with which a player begins.
    pub(crate) fn first_of_player(&self, newest: u64) -> u64 {
        newest + 1 - BEGIN_BEFORE_END
    }

    /// The oldest segment in the playlist.
    pub(crate) fn oldest_listed(&self, newest: u64) -> u64 {
        newest + 1 - self.listed
    }

    /// The oldest object that the server still has. A segment stays for as long as a playlist that
    /// lists it may be in use (RFC 8216, 6.2.2).
    pub(crate) fn oldest_object(&self, now: Instant) -> u64 {
        // No encoder is behind that of the first channel.
        self.object(0, self.newest(0, now).saturating_sub(2 * self.listed))
    }

    /// Whether a segment of video is complete and not removed yet.
    pub(crate) fn has(&self, object: u64, now: Instant) -> bool {
        let (stream, number) = (object % self.streams(), self.number_of(object));
        number <= self.newest(stream, now) && object >= self.oldest_object(now)
    }

    /// The name whose metadata is the playlist of a stream.
    pub(crate) fn playlist(&self, stream: u64) -> Name {
        self.playlists.object_name(stream)
    }

    /// The stream whose playlist an Interest of this name requests.
    pub(crate) fn stream_of(&self, name: NameView<'_>) -> Option<u64> {
        name.last()?.is_keyword(METADATA_KEYWORD).then_some(())?;
        self.playlists.parse_object(name.parent().value()).filter(|&it| it < self.streams())
    }

    /// Name and content of the playlist that lists segments up to `newest`.
    pub(crate) fn playlist_packet(&self, stream: u64, newest: u64) -> (Name, Vec<u8>) {
        let mut versioned = self.playlist(stream);
        versioned.append_version(newest);
        let mut name = self.playlist(stream);
        name.append_keyword(METADATA_KEYWORD).append_version(newest).append_segment(0);
        (name, Metadata::new(versioned).encode())
    }

    /// The newest segment of a playlist; `None` unless it is as the server made it.
    pub(crate) fn newest_of(&self, stream: u64, data: &DataView<'_>, now: Instant) -> Option<u64> {
        let newest = data.name.parent().last()?.as_version()?;
        let (name, content) = self.playlist_packet(stream, newest);
        let is_right = data.name == name.as_view() && *data.content == content[..];
        (is_right && newest <= self.newest(stream, now)).then_some(newest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Collection, LivePlan, Popularity};

    const S: u64 = NS_PER_S;

    /// Four channels in two qualities of 4 and 12 kbit/s, with segments of 2 s.
    fn names() -> Names {
        Names {
            prefix: "/tv".into(),
            components: 0,
            popularity: Popularity::Sequential { objects: 4 },
            sizes: Sizes::List { bytes: [1000, 3000].into() },
            segment_bytes: 1000,
            live: Some(LivePlan { segment_ns: 2 * S, listed: 5 }),
        }
    }

    fn channels() -> LiveChannels {
        LiveChannels::new(&names()).unwrap().unwrap()
    }

    fn at_ms(ms: u64) -> Instant {
        Instant::from_ns(ms * NS_PER_S / 1000)
    }

    #[test]
    fn segments_exist_from_their_end_on() {
        let channels = channels();
        // The encoder of channel 3 is three quarters of a segment ahead of that of channel 0.
        for (channel, ms, newest, fresh_ms) in [
            (0, 0, 4, 2000),
            (0, 1999, 4, 1),
            (0, 2000, 5, 2000),
            (3, 0, 4, 500),
            (3, 499, 4, 1),
            (3, 500, 5, 2000),
            (1, 61_000, 34, 500),
        ] {
            let stream = channels.stream(channel, 1);
            let now = at_ms(ms);
            assert_eq!(channels.newest(stream, now), newest, "channel {channel} at {ms} ms");
            assert_eq!(channels.fresh_ns(stream, now), fresh_ms * S / 1000);
            assert!(channels.has(channels.object(stream, newest), now));
            assert!(!channels.has(channels.object(stream, newest + 1), now));
        }
    }

    #[test]
    fn segments_leave_after_two_playlists() {
        let channels = channels();
        let now = at_ms(60_000);
        assert_eq!(channels.newest(0, now), 34);
        assert_eq!(channels.oldest_listed(34), 30);
        assert_eq!(channels.first_of_player(34), 32);
        for stream in 0..8 {
            assert!(channels.has(channels.object(stream, 24), now), "{stream}");
            assert!(!channels.has(channels.object(stream, 23), now), "{stream}");
        }
    }

    #[test]
    fn objects_have_the_size_of_their_quality() {
        let (channels, collection) = (channels(), Collection::new(&names()).unwrap());
        for (channel, quality, number, bytes) in [(0, 0, 7, 1000), (3, 1, 0, 3000), (2, 0, 9, 1000)]
        {
            let object = channels.object(channels.stream(channel, quality), number);
            assert_eq!(channels.number_of(object), number);
            assert_eq!(collection.shape(object).bytes, bytes);
        }
    }

    #[test]
    fn quality_is_the_highest_within_a_rate() {
        for (bps, quality) in [(0.0, 0), (3999.0, 0), (4000.0, 0), (11_999.0, 0), (12_000.0, 1)] {
            assert_eq!(channels().quality_within(bps), quality, "{bps}");
        }
    }

    #[test]
    fn only_playlists_have_a_stream() {
        let stream = |uri: &str| channels().stream_of(uri.parse::<Name>().unwrap().as_view());
        assert_eq!(stream("/tv/playlist/00000007/32=metadata"), Some(7));
        for uri in [
            "/tv/playlist/00000008/32=metadata",
            "/tv/playlist/00000007",
            "/tv/playlist/00000007/32=metadata/54=%01/50=%00",
            "/tv/playlist/7/32=metadata",
            "/tv/00000007/32=metadata",
            "/",
        ] {
            assert_eq!(stream(uri), None, "{uri}");
        }
    }

    #[test]
    fn invalid_channels_are_rejected() {
        let live = LivePlan { segment_ns: 2 * S, listed: 5 };
        for names in [
            Names { sizes: Sizes::Fixed { bytes: 1 }, ..names() },
            Names { live: Some(LivePlan { segment_ns: 0, ..live.clone() }), ..names() },
            Names { live: Some(LivePlan { listed: 2, ..live }), ..names() },
        ] {
            assert!(Collection::new(&names).is_err(), "{names:?}");
        }
    }
}
