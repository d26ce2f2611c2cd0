//! What an origin needs to know of HLS playlists and DASH manifests (RFC 8216; ISO 23009-1).

use std::num::NonZeroUsize;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::header::{self, HeaderMap};
use lru::LruCache;
use reqwest::Url;

/// Lower bound of the freshness of a playlist that is about to change, or late.
const FRESHNESS_MIN: Duration = Duration::from_millis(100);
/// Upper bound of a target duration. It bounds how long requests wait.
const TARGET_MAX: Duration = Duration::from_secs(20);
/// How far ahead of a playlist a reload may block (RFC 8216bis, section 6.2.5.2).
const SEQUENCES_AHEAD_MAX: u64 = 2;
/// Upper bound of folders with live playlists.
const FOLDERS_MAX: NonZeroUsize = NonZeroUsize::new(4096).unwrap();
/// For how long a playlist that is no longer requested counts as live.
const LIVE_TIME: Duration = Duration::from_secs(60);
const SEQUENCE_PARAMETER: &str = "_HLS_msn";
const PART_PARAMETER: &str = "_HLS_part";

/// A playlist that grows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Playlist {
    /// Upper bound of the duration of its segments.
    pub(super) target: Duration,
    /// Whether the server answers blocking reloads itself.
    pub(super) can_block: bool,
    /// The number of the segment that is added next.
    next_sequence: u64,
    /// Parts of that segment, so far.
    parts: u64,
}

/// The segment, and perhaps the part of it, that a playlist must have (`_HLS_msn`, `_HLS_part`).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Reload {
    sequence: u64,
    part: Option<u64>,
}

impl Playlist {
    /// Whether the path is that of a playlist or manifest.
    pub(super) fn has_extension(url: &Url) -> bool {
        let path = url.path().to_ascii_lowercase();
        [".m3u8", ".m3u", ".mpd"].iter().any(|extension| path.ends_with(extension))
    }

    /// The playlist of live media in this content, if it is one.
    pub(super) fn parse(content: &[u8]) -> Option<Self> {
        let text = str::from_utf8(content).ok()?;
        let text = text.trim_start_matches('\u{feff}');
        if text.starts_with("#EXTM3U") { Self::parse_hls(text) } else { Self::parse_dash(text) }
    }

    fn parse_hls(text: &str) -> Option<Self> {
        let (mut target, mut first, mut segments, mut parts) = (None, 0, 0, 0);
        let mut can_block = false;
        for line in text.lines() {
            let (tag, value) = line.split_once(':').unwrap_or((line, ""));
            match tag.trim_end() {
                "#EXT-X-TARGETDURATION" => target = value.trim().parse().ok(),
                "#EXT-X-MEDIA-SEQUENCE" => first = value.trim().parse().ok()?,
                "#EXTINF" => (segments, parts) = (segments + 1, 0),
                "#EXT-X-PART" => parts += 1,
                "#EXT-X-SERVER-CONTROL" => can_block |= value.contains("CAN-BLOCK-RELOAD=YES"),
                "#EXT-X-ENDLIST" => return None,
                _ => {}
            }
        }
        let next_sequence = u64::checked_add(first, segments)?;
        Some(Self { target: duration(target?), can_block, next_sequence, parts })
    }

    fn parse_dash(text: &str) -> Option<Self> {
        let head = text.get(text.find("<MPD")?..)?;
        let head = &head[..head.find('>')?];
        let attribute = |name: &str| {
            let (_, rest) = head.split_once(&format!("{name}=\""))?;
            rest.split_once('"').map(|(value, _)| value)
        };
        if attribute("type") != Some("dynamic") {
            return None;
        }
        let period = attribute("minimumUpdatePeriod").and_then(iso_seconds);
        let target = duration(period.or(attribute("maxSegmentDuration").and_then(iso_seconds))?);
        Some(Self { target, can_block: false, next_sequence: 0, parts: 0 })
    }

    pub(super) fn contains(&self, reload: Reload) -> bool {
        let is_started = reload
            .part
            .is_some_and(|part| reload.sequence == self.next_sequence && part < self.parts);
        reload.sequence < self.next_sequence || is_started
    }

    /// Whether the requested segment is so late that the client does not follow this playlist.
    pub(super) fn is_far_from(&self, reload: Reload) -> bool {
        reload.sequence > self.next_sequence.saturating_add(SEQUENCES_AHEAD_MAX)
    }

    /// How long it is fresh: until the next segment is due. It is known for a time of `unchanged`.
    pub(super) fn freshness(&self, fields: &HeaderMap, unchanged: Duration) -> Duration {
        let time = |name| {
            let value = fields.get(name)?.to_str().ok()?;
            httpdate::parse_http_date(value).ok()
        };
        let modified = time(header::LAST_MODIFIED).zip(time(header::DATE));
        let stated = modified.and_then(|(modified, date)| date.duration_since(modified).ok());
        let since = unchanged.max(stated.unwrap_or_default());
        self.target.saturating_sub(since).max(FRESHNESS_MIN)
    }
}

fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(TARGET_MAX).min(TARGET_MAX)
}

/// Seconds in a duration such as `PT2.5S` or `PT1M2S`, without days.
fn iso_seconds(text: &str) -> Option<f64> {
    let (mut seconds, mut rest) = (0.0, text.strip_prefix("PT")?);
    for (unit, factor) in [('H', 3600.0), ('M', 60.0), ('S', 1.0)] {
        if let Some((number, after)) = rest.split_once(unit) {
            seconds += number.parse::<f64>().ok()? * factor;
            rest = after;
        }
    }
    (rest.is_empty() && seconds > 0.0).then_some(seconds)
}

impl Reload {
    /// The segment that a URL waits for, and the URL of the playlist itself.
    pub(super) fn of(url: &Url) -> Option<(Self, Url)> {
        let number = |name: &str| {
            url.query_pairs().find(|(key, _)| key == name).and_then(|(_, it)| it.parse().ok())
        };
        let reload = Self { sequence: number(SEQUENCE_PARAMETER)?, part: number(PART_PARAMETER) };
        let is_other = |pair: &&str| {
            let name = pair.split('=').next().unwrap_or_default();
            name != SEQUENCE_PARAMETER && name != PART_PARAMETER
        };
        let others: Vec<&str> = url.query()?.split('&').filter(is_other).collect();
        let mut playlist = url.clone();
        playlist
            .set_query(Some(&others.join("&")).filter(|query| !query.is_empty()).map(|it| &**it));
        Some((reload, playlist))
    }
}

/// The folders that have live playlists, of those received last.
pub(super) struct LiveFolders(Mutex<LruCache<String, (Duration, Instant)>>);

impl LiveFolders {
    pub(super) fn new() -> Self {
        Self(Mutex::new(LruCache::new(FOLDERS_MAX)))
    }

    /// Notes that a playlist with this target duration is live.
    pub(super) fn add(&self, playlist: &Url, target: Duration) {
        let mut folders = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        folders.put(folder_of(playlist.path()).to_owned(), (target, Instant::now()));
    }

    /// The target duration of a live playlist in the folder of a file, or in one above.
    pub(super) fn target_near(&self, file: &Url) -> Option<Duration> {
        let folders = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut folder = folder_of(file.path());
        loop {
            let found = folders.peek(folder);
            if let Some((target, _)) = found.filter(|(_, seen)| seen.elapsed() < LIVE_TIME) {
                return Some(*target);
            }
            if folder.is_empty() {
                return None;
            }
            folder = folder_of(folder);
        }
    }
}

/// What precedes the last slash.
fn folder_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

#[cfg(test)]
mod tests {
    use http::header::HeaderValue;

    use super::*;

    const LIVE: &str = "#EXTM3U\n#EXT-X-VERSION:9\n#EXT-X-TARGETDURATION:4\n\
        #EXT-X-SERVER-CONTROL:CAN-BLOCK-RELOAD=YES,PART-HOLD-BACK=1.0\n\
        #EXT-X-MEDIA-SEQUENCE:10\n#EXTINF:4.0,\na.ts\n#EXT-X-PART:DURATION=1,URI=\"b.1\"\n\
        #EXTINF:4.0,\nb.ts\n#EXT-X-PART:DURATION=1,URI=\"c.1\"\n";

    #[test]
    fn reads_live_playlists() {
        let playlist = Playlist::parse(LIVE.as_bytes()).unwrap();
        let target = Duration::from_secs(4);
        let expected = Playlist { target, can_block: true, next_sequence: 12, parts: 1 };
        assert_eq!(playlist, expected);
        for (sequence, part, is_contained) in [
            (11, None, true),
            (12, None, false),
            (12, Some(0), true),
            (12, Some(1), false),
            (13, Some(0), false),
        ] {
            let reload = Reload { sequence, part };
            assert_eq!(playlist.contains(reload), is_contained, "{reload:?}");
        }
        assert!(!playlist.is_far_from(Reload { sequence: 14, part: None }));
        assert!(playlist.is_far_from(Reload { sequence: 15, part: None }));
    }

    #[test]
    fn content_that_does_not_grow_is_no_live_playlist() {
        let ended = format!("{LIVE}#EXT-X-ENDLIST\n");
        let master = "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\nlow.m3u8\n";
        let evil = "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXT-X-MEDIA-SEQUENCE:18446744073709551615\n\
            #EXTINF:1,\na\n";
        for text in [&ended, master, evil, "<MPD type=\"static\">", "", "hello"] {
            assert_eq!(Playlist::parse(text.as_bytes()), None, "{text}");
        }
        assert_eq!(Playlist::parse(&[0xFF; 20]), None);
    }

    #[test]
    fn reads_dash_manifests() {
        for (period, seconds) in [("PT2S", 2.0), ("PT1M2.5S", 20.0), ("PT0.5S", 0.5)] {
            let text = format!("<?xml?>\n<MPD type=\"dynamic\" minimumUpdatePeriod=\"{period}\">");
            let target = Playlist::parse(text.as_bytes()).unwrap().target;
            assert_eq!(target, Duration::from_secs_f64(seconds), "{period}");
        }
    }

    #[test]
    fn fresh_until_next_segment_is_due() {
        let playlist = Playlist::parse(LIVE.as_bytes()).unwrap();
        let second = Duration::from_secs(1);
        let none = HeaderMap::new();
        assert_eq!(playlist.freshness(&none, second), 3 * second);
        assert_eq!(playlist.freshness(&none, 9 * second), FRESHNESS_MIN);
        let fields: HeaderMap = [
            (header::LAST_MODIFIED, HeaderValue::from_static("Mon, 01 Jan 2024 00:00:00 GMT")),
            (header::DATE, HeaderValue::from_static("Mon, 01 Jan 2024 00:00:02 GMT")),
        ]
        .into_iter()
        .collect();
        assert_eq!(playlist.freshness(&fields, second), 2 * second);
    }

    #[test]
    fn files_below_live_playlist_are_near() {
        let folders = LiveFolders::new();
        let target = Duration::from_secs(2);
        folders.add(&"http://h/tv/c1/a.m3u8".parse().unwrap(), target);
        for (url, found) in [
            ("http://h/tv/c1/5.ts", Some(target)),
            ("http://h/tv/c1/low/5.ts", Some(target)),
            ("http://h/tv/5.ts", None),
            ("http://h/tv/c10/5.ts", None),
        ] {
            assert_eq!(folders.target_near(&url.parse().unwrap()), found, "{url}");
        }
    }

    #[test]
    fn finds_blocking_reloads() {
        let of = |url: &str| Reload::of(&url.parse().unwrap());
        let (reload, url) = of("http://h/a.m3u8?x=1&_HLS_msn=5&_HLS_part=2").unwrap();
        assert_eq!(reload, Reload { sequence: 5, part: Some(2) });
        assert_eq!(url.as_str(), "http://h/a.m3u8?x=1");
        let (_, url) = of("http://h/a.m3u8?_HLS_msn=5").unwrap();
        assert_eq!(url.as_str(), "http://h/a.m3u8");
        assert_eq!(of("http://h/a.m3u8?_HLS_msn=x"), None);
        assert_eq!(of("http://h/a.m3u8"), None);
    }
}
