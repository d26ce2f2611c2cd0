//! The source of live channels: writes segments and playlists into the folder that nginx serves.
//!
//! All channels repeat the same encoded segments. A stamp makes each segment one of its channel.
//! Channels publish one after another, evenly spread over the duration of a segment.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant, SystemTime};

use serde_json::json;

use super::super::hls::{
    INDEX, LOOP_SEGMENTS, MASTER, QUALITIES, SEGMENT_NS, channel_name, master_text, media_text,
};
use super::super::stamp::{Content, Stamp};
use super::{RoleError, RoleSpec, input_lines, print_line, print_ready};

/// Segments of a playlist.
const WINDOW: u64 = 6;
/// Segments that stay after they have left the playlist. A client may still fetch them.
const OLD_SEGMENTS: u64 = 6;

/// The folder of encoded segments, and the one that nginx serves, in the source's folder.
pub(in super::super) const ENCODED: &str = "encoded";
pub(in super::super) const SERVED: &str = "www";

pub(super) fn broadcast(spec: &RoleSpec) -> Result<(), RoleError> {
    let lines = input_lines();
    let source = Source::new(spec)?;
    source.begin()?;
    print_ready()?;
    let (start, channels) = (Instant::now(), u64::from(source.channels));
    let mut latest = Duration::ZERO;
    for turn in 0.. {
        let due = start + Duration::from_nanos(SEGMENT_NS / channels * turn);
        answer_until(&lines, due, latest)?;
        latest = latest.max(due.elapsed());
        source.publish((turn % channels) as u32, WINDOW + turn / channels)?;
    }
    Ok(())
}

/// Waits for `due`. Reports how late the source has been to each line of input.
fn answer_until(lines: &Receiver<String>, due: Instant, latest: Duration) -> Result<(), RoleError> {
    loop {
        match lines.recv_timeout(due.saturating_duration_since(Instant::now())) {
            Ok(_) => print_line(&json!({ "latest_ns": latest.as_nanos() as u64 }))?,
            Err(RecvTimeoutError::Timeout) => return Ok(()),
            Err(RecvTimeoutError::Disconnected) => return Err(RoleError::Orphaned),
        }
    }
}

struct Source {
    served: PathBuf,
    channels: u32,
    /// Whether another program writes the first channel.
    is_first_live: bool,
    /// By quality and place in the loop.
    encoded: Vec<Vec<(Vec<u8>, Content)>>,
}

impl Source {
    fn new(spec: &RoleSpec) -> Result<Self, RoleError> {
        let folder = Path::new(&spec.at);
        let segment = |quality: &str, place: u64| {
            let bytes = fs::read(folder.join(ENCODED).join(format!("{quality}-{place}.ts")))?;
            let content = Content::of(&bytes);
            Ok::<_, io::Error>((bytes, content))
        };
        let encoded = QUALITIES
            .iter()
            .map(|quality| (0..LOOP_SEGMENTS).map(|place| segment(quality.name, place)).collect())
            .collect::<io::Result<Vec<Vec<_>>>>()?;
        let video = &spec.trial.video;
        Ok(Self {
            served: folder.join(SERVED),
            channels: video.channels,
            is_first_live: video.rtmp,
            encoded,
        })
    }

    /// Writes what all channels have at the start.
    fn begin(&self) -> Result<(), RoleError> {
        for channel in 0..self.channels {
            let folder = self.served.join(channel_name(channel));
            fs::create_dir_all(&folder)?;
            replace(&folder.join(MASTER), &[&master_text()])?;
            for quality in QUALITIES {
                fs::create_dir_all(folder.join(quality.name))?;
            }
            for number in 0..WINDOW {
                self.publish(channel, number)?;
            }
        }
        Ok(())
    }

    /// Publishes a segment of a channel in all qualities, and removes an old one.
    fn publish(&self, channel: u32, number: u64) -> Result<(), RoleError> {
        let folder = self.served.join(channel_name(channel));
        for (quality, of) in (0..).zip(&QUALITIES) {
            let folder = folder.join(of.name);
            if channel == 0 && self.is_first_live {
                remove_old(&folder)?;
                continue;
            }
            let place = (number % LOOP_SEGMENTS) as usize;
            let (bytes, content) = &self.encoded[quality as usize][place];
            let stamp = Stamp { channel, quality, number }.packet(*content);
            replace(&folder.join(format!("{number}.ts")), &[&stamp, bytes])?;
            let end = number + 1;
            let first = end.saturating_sub(WINDOW);
            replace(&folder.join(INDEX), &[&media_text(first, end)])?;
            if let Some(old) = first.checked_sub(OLD_SEGMENTS + 1) {
                fs::remove_file(folder.join(format!("{old}.ts")))?;
            }
        }
        Ok(())
    }
}

/// Writes a file. Readers see all of it or none.
fn replace(path: &Path, pieces: &[&[u8]]) -> io::Result<()> {
    let temporary = path.with_extension("new");
    let mut file = fs::File::create(&temporary)?;
    pieces.iter().try_for_each(|piece| file.write_all(piece))?;
    fs::rename(temporary, path)
}

/// Removes the old segments that another program has written.
fn remove_old(folder: &Path) -> io::Result<()> {
    let age = Duration::from_nanos(SEGMENT_NS * (WINDOW + OLD_SEGMENTS));
    let Some(limit) = SystemTime::now().checked_sub(age) else { return Ok(()) };
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "ts")
            && fs::metadata(&path)?.modified()? < limit
        {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::super::hls::Playlist;
    use super::super::super::stamp::{PACKET_BYTES, SegmentCheck};
    use super::*;

    fn source(served: &Path) -> Source {
        let content = |fill: u8| {
            let mut packet = vec![fill; PACKET_BYTES];
            packet[0] = 0x47;
            (packet.clone(), Content::of(&packet))
        };
        let encoded = (0..4).map(|_| (0..5).map(content).collect()).collect();
        Source { served: served.to_path_buf(), channels: 2, is_first_live: false, encoded }
    }

    #[test]
    fn publishes_stamped_segments_and_removes_old_ones() {
        let folder = tempfile::tempdir().expect("a folder");
        let source = source(folder.path());
        source.begin().expect("channels");
        for number in WINDOW..30 {
            source.publish(1, number).expect("a segment");
        }
        let folder = folder.path().join("c2/720p");
        let playlist = fs::read(folder.join("index.m3u8")).expect("a playlist");
        let playlist = Playlist::parse(&playlist).expect("a playlist");
        assert_eq!((playlist.first, playlist.end()), (24, 30));
        let mut files: Vec<String> = fs::read_dir(&folder)
            .expect("a folder")
            .map(|entry| entry.expect("a file").file_name().into_string().expect("a name"))
            .collect();
        files.sort();
        let expected = (18..30).map(|number| format!("{number}.ts"));
        assert_eq!(files, expected.chain(["index.m3u8".to_owned()]).collect::<Vec<_>>());
        let mut check = SegmentCheck::new();
        check.update(&fs::read(folder.join("29.ts")).expect("a segment"));
        assert_eq!(check.finish(), Ok(Some(Stamp { channel: 1, quality: 2, number: 29 })));
    }
}
