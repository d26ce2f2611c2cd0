//! Stores verified segments.

use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crc_fast::CrcAlgorithm;
use crossbeam_channel::{Receiver, Sender, unbounded};
use nix::errno::Errno;
use nix::sys::uio::pwritev;
use weir_base::Packet;
use weir_wire::DataView;

use super::notifier::Notifier;

/// CRC-32C of a segment's content.
pub(crate) fn checksum(content: &[u8]) -> u32 {
    crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, content) as u32
}

/// Upper bound of slices in one system call (Linux, IOV_MAX).
const WRITE_SLICES_MAX: usize = 1024;

/// Writes segments at their offsets in a file. All segments but the last have the same size.
#[derive(Debug)]
pub struct FileSink {
    file: File,
    segment_size: u64,
    checksums: Mutex<Checksums>,
}

impl Drop for FileSink {
    fn drop(&mut self) {
        // The file may be locked. Closing it is not enough: a child process that was forked in the
        // meantime also has it open, and would keep the lock.
        let _ = self.file.unlock();
    }
}

/// CRC-32C of each segment, by number; 0 for segments that are not stored.
pub(crate) type Checksums = Vec<u32>;

impl FileSink {
    /// A sink that stores segment `i` at byte `i * segment_size`. `checksums` are those of segments
    /// already stored.
    pub(crate) fn new(file: File, segment_size: u64, checksums: Checksums) -> Self {
        Self { file, segment_size, checksums: Mutex::new(checksums) }
    }

    /// The checksums of the stored segments.
    pub(crate) fn checksums(&self) -> MutexGuard<'_, Checksums> {
        self.checksums.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record_checksums(&self, segments: &[(u64, &[u8])]) {
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

    /// Bytes of Content in each segment but the last.
    pub(crate) fn segment_size(&self) -> u64 {
        self.segment_size
    }

    pub(crate) fn file(&self) -> &File {
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
        // A full disk first causes a short write without an error. Writing the rest returns the
        // error.
        let rest: Vec<u8> =
            run.iter().flat_map(|piece| piece.iter().copied()).skip(written).collect();
        std::os::unix::fs::FileExt::write_all_at(&self.file, &rest, offset as u64 + written as u64)
    }

    /// Stores the Contents of segments in ascending order. Several threads may do so at once, each
    /// segment once.
    pub(crate) fn store(&self, segments: &[(u64, &[u8])]) -> io::Result<()> {
        let mut rest = segments;
        while let Some(&(first, _)) = rest.first() {
            let mut len = 1;
            while len < rest.len().min(WRITE_SLICES_MAX)
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
        self.record_checksums(segments);
        Ok(())
    }
}

/// Writes the Contents of packets to a stream on its own thread, because a stream may be slow.
pub(crate) struct StreamWriter {
    batches: Option<Sender<Vec<Packet>>>,
    results: Receiver<io::Result<u32>>,
    thread: Option<JoinHandle<()>>,
}

impl StreamWriter {
    /// A writer that notifies after each batch.
    pub(crate) fn new(mut out: Box<dyn Write + Send>, notifier: Notifier) -> io::Result<Self> {
        let (batches, taken) = unbounded::<Vec<Packet>>();
        let (sender, results) = unbounded();
        let thread = std::thread::Builder::new().name("write".into()).spawn(move || {
            for batch in taken {
                let result = write_contents(&mut *out, &batch);
                let is_over = result.is_err();
                if sender.send(result).is_err() || is_over {
                    // Writing more would leave a gap.
                    notifier.notify();
                    return;
                }
                notifier.notify();
            }
        })?;
        Ok(Self { batches: Some(batches), results, thread: Some(thread) })
    }

    /// Queues Data to be written, after earlier Data.
    pub(crate) fn write(&self, batch: Vec<Packet>) {
        // A failed writer reports its error in its results.
        let _ = self.batches.as_ref().expect("open until finished").send(batch);
    }

    /// How many packets were written since the last call.
    pub(crate) fn take_written(&self) -> io::Result<u32> {
        self.results.try_iter().try_fold(0, |sum, written| Ok(sum + written?))
    }

    /// Waits until everything is written.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.batches = None;
        if let Some(thread) = self.thread.take() {
            // A panic in a thread has been printed already.
            let _ = thread.join();
        }
        self.take_written().map(|_| ())
    }
}

fn write_contents(out: &mut dyn Write, batch: &[Packet]) -> io::Result<u32> {
    for packet in batch {
        out.write_all(DataView::decode(packet).expect("decoded by the consumer").content)?;
    }
    out.flush()?;
    Ok(batch.len() as u32)
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

    /// Batches in an order that is not that of the segments.
    fn store_all_segments(sink: &FileSink) {
        for batch in [50..100, 0..7, 9..50, 7..9] {
            let contents: Vec<_> = batch.map(|segment| (segment, content(segment))).collect();
            let batch: Vec<_> = contents.iter().map(|(i, content)| (*i, &content[..])).collect();
            sink.store(&batch).unwrap();
        }
    }

    #[test]
    fn writes_segments_at_their_offsets() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let sink = FileSink::new(File::create(&path).unwrap(), 10, Checksums::new());
        store_all_segments(&sink);
        sink.store(&[(3, &content(3)), (5, &content(5)), (6, &content(6))]).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), expected());
    }

    #[test]
    fn reports_full_disk() {
        let file = File::options().write(true).open("/dev/full").unwrap();
        let error =
            FileSink::new(file, 10, Checksums::new()).store(&[(0, &content(0))]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }

    #[test]
    fn unlocks_despite_forked_child() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("part");
        let file = File::create(&path).unwrap();
        file.lock().unwrap();
        // Shares the open file, and so the lock, as the child of a `fork` does.
        let of_child = file.try_clone().unwrap();
        let sink = FileSink::new(file, 10, Checksums::new());
        let other = File::open(&path).unwrap();
        assert!(other.try_lock().is_err());
        drop(sink);
        other.try_lock().unwrap();
        drop(of_child);
    }
}
