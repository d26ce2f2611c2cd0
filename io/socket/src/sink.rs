//! Where verified segments go.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crc_fast::CrcAlgorithm;
use nix::errno::Errno;
use nix::sys::uio::pwritev;

/// CRC-32C of a segment's content.
pub(crate) fn checksum(content: &[u8]) -> u32 {
    crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, content) as u32
}

/// Takes segments from several threads at once, in any order, each once.
pub trait SegmentSink: Send + Sync {
    /// Stores the Contents of segments, in ascending order of their numbers.
    ///
    /// # Errors
    /// What the system says, or that the segments do not fit together.
    fn store(&self, segments: &[(u64, &[u8])]) -> io::Result<()>;

    /// Segments stored that still take memory, because others must go before them. More of them
    /// come only while there are few.
    fn waiting(&self) -> u64 {
        0
    }
}

/// Most pieces in one call of the system (Linux, IOV_MAX).
const PIECES_MAX: usize = 1024;

/// Writes every segment to its place in a file. All segments but the last are of one size.
#[derive(Debug)]
pub struct FileSink {
    file: File,
    segment_size: u64,
    checksums: Mutex<Checksums>,
}

/// CRC-32C of the octets of each segment, by number; 0 for those that are not there.
pub(crate) type Checksums = Vec<u32>;

impl FileSink {
    /// A sink that puts segment `i` at octet `i * segment_size`. `checksums` are those of the
    /// segments that the file holds already.
    pub(crate) fn new(file: File, segment_size: u64, checksums: Checksums) -> Self {
        Self { file, segment_size, checksums: Mutex::new(checksums) }
    }

    /// The checksums of what was stored so far.
    pub(crate) fn checksums(&self) -> MutexGuard<'_, Checksums> {
        self.checksums.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_checksums(&self, segments: &[(u64, &[u8])]) {
        let fresh: Vec<u32> = segments.iter().map(|(_, content)| checksum(content)).collect();
        let mut checksums = self.checksums();
        for (&(segment, _), checksum) in segments.iter().zip(fresh) {
            let index = segment as usize;
            if index >= checksums.len() {
                checksums.resize(index + 1, 0);
            }
            checksums[index] = checksum;
        }
    }

    /// The file.
    pub fn file(&self) -> &File {
        &self.file
    }

    fn write_run(&self, first: u64, run: &[IoSlice<'_>]) -> io::Result<()> {
        let wanted: usize = run.iter().map(|piece| piece.len()).sum();
        let offset = first.checked_mul(self.segment_size).and_then(|at| i64::try_from(at).ok());
        let offset = offset.ok_or_else(|| io::Error::from(io::ErrorKind::FileTooLarge))?;
        let written = loop {
            match pwritev(&self.file, run, offset) {
                Err(Errno::EINTR) => {}
                result => break result?,
            }
        };
        if written == wanted {
            return Ok(());
        }
        // A full disk shows as a short write first: ask again for the rest, which then fails with
        // the reason.
        let rest: Vec<u8> =
            run.iter().flat_map(|piece| piece.iter().copied()).skip(written).collect();
        std::os::unix::fs::FileExt::write_all_at(&self.file, &rest, offset as u64 + written as u64)
    }
}

impl SegmentSink for FileSink {
    fn store(&self, segments: &[(u64, &[u8])]) -> io::Result<()> {
        let mut rest = segments;
        while let Some(&(first, _)) = rest.first() {
            let mut len = 1;
            while len < rest.len().min(PIECES_MAX)
                && rest[len].0 == first + len as u64
                && rest[len - 1].1.len() as u64 == self.segment_size
            {
                len += 1;
            }
            let (run, tail) = rest.split_at(len);
            let pieces: Vec<IoSlice<'_>> =
                run.iter().map(|(_, content)| IoSlice::new(content)).collect();
            self.write_run(first, &pieces)?;
            rest = tail;
        }
        self.note_checksums(segments);
        Ok(())
    }
}

/// Writes segments to a stream in their order. What comes too early waits in memory.
pub struct OrderedSink<W> {
    state: Mutex<Ordered<W>>,
    /// What `Ordered::waiting` holds, readable while another thread writes.
    waiting: AtomicU64,
}

struct Ordered<W> {
    out: W,
    next: u64,
    waiting: BTreeMap<u64, Vec<u8>>,
}

impl<W: Write + Send> OrderedSink<W> {
    /// A sink that begins with segment 0.
    pub fn new(out: W) -> Self {
        let state = Mutex::new(Ordered { out, next: 0, waiting: BTreeMap::new() });
        Self { state, waiting: AtomicU64::new(0) }
    }
}

impl<W: Write + Send> SegmentSink for OrderedSink<W> {
    fn store(&self, segments: &[(u64, &[u8])]) -> io::Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let result = state.store(segments);
        self.waiting.store(state.waiting.len() as u64, Ordering::Release);
        result
    }

    fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Acquire)
    }
}

impl<W: Write> Ordered<W> {
    fn store(&mut self, segments: &[(u64, &[u8])]) -> io::Result<()> {
        let Self { out, next, waiting } = self;
        for &(segment, content) in segments {
            if segment != *next {
                waiting.insert(segment, content.to_vec());
                continue;
            }
            out.write_all(content)?;
            *next += 1;
            while let Some(content) = waiting.remove(next) {
                out.write_all(&content)?;
                *next += 1;
            }
        }
        out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(segment: u64) -> Vec<u8> {
        let len = if segment == 99 { 3 } else { 10 };
        vec![segment as u8; len]
    }

    fn expected() -> Vec<u8> {
        (0..100).flat_map(content).collect()
    }

    /// Batches in an order that is not the segments'.
    fn store_all(sink: &dyn SegmentSink) {
        for batch in [50..100, 0..7, 9..50, 7..9] {
            let contents: Vec<_> = batch.map(|segment| (segment, content(segment))).collect();
            let batch: Vec<_> = contents.iter().map(|(i, content)| (*i, &content[..])).collect();
            sink.store(&batch).unwrap();
        }
    }

    #[test]
    fn files_hold_segments_in_their_places() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let sink = FileSink::new(File::create(&path).unwrap(), 10, Checksums::new());
        store_all(&sink);
        sink.store(&[(3, &content(3)), (5, &content(5)), (6, &content(6))]).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), expected());
    }

    #[test]
    fn streams_get_segments_in_order() {
        let mut out = Vec::new();
        let sink = OrderedSink::new(&mut out);
        sink.store(&[(1, &content(1)), (2, &content(2))]).unwrap();
        assert_eq!(sink.waiting(), 2);
        sink.store(&[(0, &content(0))]).unwrap();
        assert_eq!(sink.waiting(), 0);
        drop(sink);
        assert_eq!(out, expected()[..30]);

        out.clear();
        store_all(&OrderedSink::new(&mut out));
        assert_eq!(out, expected());
    }

    #[test]
    fn a_full_disk_is_an_error() {
        let file = File::options().write(true).open("/dev/full").unwrap();
        let error =
            FileSink::new(file, 10, Checksums::new()).store(&[(0, &content(0))]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }
}
