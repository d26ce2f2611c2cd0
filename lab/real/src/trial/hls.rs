//! HLS (RFC 8216): the qualities of a channel and its playlists.

use m3u8_rs::{MasterPlaylist, MediaPlaylist, MediaSegment, Resolution, VariantStream};
use weir_base::NS_PER_S;

/// Duration of a segment.
pub(super) const SEGMENT_NS: u64 = 2 * NS_PER_S;
/// Segments of a channel that are encoded once. A channel repeats them.
pub(super) const LOOP_SEGMENTS: u64 = 5;
/// File name of playlists.
pub(super) const MASTER: &str = "master.m3u8";
pub(super) const INDEX: &str = "index.m3u8";

/// One of the encodings of a channel.
pub(super) struct Quality {
    pub(super) name: &'static str,
    pub(super) width: u64,
    pub(super) height: u64,
    pub(super) rate_bps: u64,
}

/// The qualities, from the lowest. The paper names the first and the last rate, and takes all from
/// the table of a live platform, whose upper ends these are.
pub(super) const QUALITIES: [Quality; 4] = [
    Quality { name: "360p", width: 640, height: 360, rate_bps: 1_000_000 },
    Quality { name: "480p", width: 854, height: 480, rate_bps: 2_000_000 },
    Quality { name: "720p", width: 1280, height: 720, rate_bps: 4_000_000 },
    Quality { name: "1080p", width: 1920, height: 1080, rate_bps: 6_000_000 },
];

/// The path of a channel at the origin. Channels are numbered from 0, and named from 1.
pub(super) fn channel_name(channel: u32) -> String {
    format!("c{}", channel + 1)
}

/// The playlist of a channel's qualities.
pub(super) fn master_text() -> Vec<u8> {
    let variant = |quality: &Quality| VariantStream {
        uri: format!("{}/{INDEX}", quality.name),
        bandwidth: quality.rate_bps,
        resolution: Some(Resolution { width: quality.width, height: quality.height }),
        ..VariantStream::default()
    };
    let playlist = MasterPlaylist {
        version: Some(3),
        variants: QUALITIES.iter().map(variant).collect(),
        ..MasterPlaylist::default()
    };
    let mut text = Vec::new();
    playlist.write_to(&mut text).expect("writing to memory cannot fail");
    text
}

/// The playlist of the segments from `first` to before `end`, in one quality.
pub(super) fn media_text(first: u64, end: u64) -> Vec<u8> {
    let segment = |number: u64| MediaSegment {
        uri: format!("{number}.ts"),
        duration: (SEGMENT_NS / NS_PER_S) as f32,
        // The timestamps of the encoding begin again.
        discontinuity: number > 0 && number.is_multiple_of(LOOP_SEGMENTS),
        ..MediaSegment::default()
    };
    let playlist = MediaPlaylist {
        version: Some(3),
        target_duration: SEGMENT_NS / NS_PER_S,
        media_sequence: first,
        // Discontinuities before the first segment.
        discontinuity_sequence: first.saturating_sub(1) / LOOP_SEGMENTS,
        segments: (first..end).map(segment).collect(),
        ..MediaPlaylist::default()
    };
    let mut text = Vec::new();
    playlist.write_to(&mut text).expect("writing to memory cannot fail");
    text
}

/// A playlist of segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Playlist {
    pub(super) target_ns: u64,
    /// Number of the first segment.
    pub(super) first: u64,
    pub(super) segments: Vec<Segment>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) uri: String,
    pub(super) duration_ns: u64,
}

impl Playlist {
    /// Reads a playlist; `None` if it is not a playlist of segments.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let playlist = m3u8_rs::parse_media_playlist_res(text).ok()?;
        if playlist.target_duration == 0 || playlist.segments.is_empty() {
            return None;
        }
        let segment = |segment: MediaSegment| Segment {
            uri: segment.uri,
            duration_ns: (f64::from(segment.duration) * NS_PER_S as f64) as u64,
        };
        Some(Self {
            target_ns: playlist.target_duration.saturating_mul(NS_PER_S),
            first: playlist.media_sequence,
            segments: playlist.segments.into_iter().map(segment).collect(),
        })
    }

    /// The number after the last segment.
    pub(super) fn end(&self) -> u64 {
        self.first.saturating_add(self.segments.len() as u64)
    }
}

/// One of the streams of a playlist of qualities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Variant {
    pub(super) uri: String,
    pub(super) rate_bps: u64,
}

/// The streams of a playlist of qualities, from the lowest rate; `None` if it has none.
pub(super) fn variants(text: &[u8]) -> Option<Vec<Variant>> {
    let playlist = m3u8_rs::parse_master_playlist_res(text).ok()?;
    let variant = |of: VariantStream| Variant { uri: of.uri, rate_bps: of.bandwidth };
    let mut variants: Vec<Variant> = playlist.variants.into_iter().map(variant).collect();
    variants.sort_by_key(|variant| variant.rate_bps);
    (!variants.is_empty()).then_some(variants)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_playlists_can_be_read() {
        let playlist = Playlist::parse(&media_text(8, 14)).expect("a playlist");
        assert_eq!((playlist.first, playlist.end()), (8, 14));
        assert_eq!(playlist.target_ns, SEGMENT_NS);
        assert_eq!(playlist.segments[0], Segment { uri: "8.ts".into(), duration_ns: SEGMENT_NS });
        let variants = variants(&master_text()).expect("qualities");
        let uris: Vec<&str> = variants.iter().map(|variant| variant.uri.as_str()).collect();
        let expected =
            ["360p/index.m3u8", "480p/index.m3u8", "720p/index.m3u8", "1080p/index.m3u8"];
        assert_eq!(uris, expected);
        assert_eq!(variants[3].rate_bps, 6_000_000);
    }

    #[test]
    fn discontinuities_are_numbered_through() {
        for (first, end, sequence, marked) in [
            (0, 6, 0, vec![5]),
            (5, 11, 0, vec![5, 10]),
            (6, 12, 1, vec![10]),
            (11, 17, 2, vec![15]),
        ] {
            let text = media_text(first, end);
            let playlist = m3u8_rs::parse_media_playlist_res(&text).expect("a playlist");
            assert_eq!(playlist.discontinuity_sequence, sequence, "{first}");
            let found: Vec<u64> = (first..end)
                .zip(&playlist.segments)
                .filter(|(_, segment)| segment.discontinuity)
                .map(|(number, _)| number)
                .collect();
            assert_eq!(found, marked, "{first}");
        }
    }

    #[test]
    fn reads_playlists_of_nginx_rtmp() {
        let text = b"#EXTM3U\n#EXT-X-VERSION:3\n#EXT-X-MEDIA-SEQUENCE:9\n\
            #EXT-X-TARGETDURATION:3\n#EXTINF:2.000,\n9.ts\n#EXTINF:2.480,\n10.ts\n";
        let playlist = Playlist::parse(text).expect("a playlist");
        assert_eq!((playlist.first, playlist.end(), playlist.target_ns), (9, 11, 3 * NS_PER_S));
        assert_eq!(playlist.segments[1].uri, "10.ts");
        assert!(playlist.segments[1].duration_ns.abs_diff(2_480_000_000) < 1000);
    }

    #[test]
    fn other_texts_are_no_playlists() {
        for text in [&b""[..], b"<html>404</html>", b"#EXTM3U\n", &master_text()] {
            assert_eq!(Playlist::parse(text), None, "{}", String::from_utf8_lossy(text));
        }
        assert_eq!(variants(&media_text(0, 6)), None);
        assert_eq!(variants(b"<html>"), None);
    }
}
