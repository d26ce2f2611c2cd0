//! The destination of a download: a file, a stream, or memory.

use std::io::{self, Write};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use weir_transport::{Delivery, Metadata, SegmentSet};

use super::directory::Directory;
use super::notifier::Notifier;
use super::sink::FileSink;

/// The destination of one object's segments.
pub trait Output: Send {
    /// Whether all methods are fast enough for the network thread.
    fn is_quick(&self) -> bool {
        false
    }

    /// Opens the output. Called once, when the object is known. Unless the output
    /// [is quick](Output::is_quick), a pool thread calls it.
    fn open(&mut self, metadata: &Metadata) -> Result<Opened, OutputError>;

    /// Sets the [keys](weir_security::trust::Trust::accepted_keys) that have verified packets of
    /// the object so far. Called before [`Output::open`], and before the segments are saved.
    fn set_keys(&mut self, keys: Vec<[u8; 32]>) {
        let _ = keys;
    }

    /// The file for segments, once their size is known.
    fn sink(&mut self, segment_size: u64) -> Result<Arc<FileSink>, OutputError> {
        let _ = segment_size;
        unreachable!("a stream takes no segments")
    }

    /// Makes stored segments durable; `have` lists them. Called regularly and when the download
    /// ends early, perhaps on another thread than the rest.
    fn save(&mut self, have: &SegmentSet) -> io::Result<()> {
        let _ = have;
        Ok(())
    }

    /// The last [`Output::save`] of a download that ends early. No more segments will be stored, so
    /// this may drop some of them to save the others.
    fn save_last(&mut self, have: &SegmentSet) -> io::Result<()> {
        self.save(have)
    }

    /// Nothing was stored and nothing will be: removes all traces.
    fn abandon(&mut self) {}

    /// The file to sync before [`Output::finish`].
    fn file(&self) -> Option<&FileSink> {
        None
    }

    /// The directory to sync after [`Output::finish`], so that the file's name survives a power
    /// failure.
    fn directory(&self) -> Option<&Directory> {
        None
    }

    /// The object is complete. `is_synced`: its [`Output::file`] has been synced since.
    fn finish(&mut self, is_synced: bool) -> Result<(), OutputError> {
        let _ = is_synced;
        Ok(())
    }
}

/// Takes packets without blocking. Another thread consumes them.
pub trait PacketReader: Send {
    /// Takes packets that follow those of earlier calls.
    fn take(&mut self, packets: &mut Vec<Delivery>);

    /// Sets what to notify when [`PacketReader::take_consumed`] has news. Called first, once.
    fn set_notifier(&mut self, notifier: Notifier);

    /// How many packets were consumed since the last call; `None` if there is no reader any more.
    fn take_consumed(&mut self) -> Option<u32>;
}

pub enum Opened {
    /// A file: segments arrive in any order, each has its offset.
    File {
        have: SegmentSet,
        /// Bytes of Content in each segment but the last, if known from an earlier attempt.
        segment_size: Option<u64>,
        /// The keys that verified `have`, except those that were [set](Output::set_keys). Unless
        /// this download accepts one of them as well, it must discard `have`.
        unconfirmed_keys: Vec<[u8; 32]>,
    },
    /// A stream: bytes in order.
    Stream(Box<dyn Write + Send>),
    /// Packets in order, perhaps of only a part of the object.
    Reader {
        reader: Box<dyn PacketReader>,
        segments: Range<u64>,
        /// Upper bound of packets that wait in the reader. More wait in the consumer.
        packets_max: u32,
    },
    /// Nothing to do: the object is complete and right.
    Complete,
}

/// Why an output cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{} is being written by another process; wait until it ends", path.display())]
    InUse { path: PathBuf },
    /// The object exceeds the memory reserved for it.
    #[error("the object is larger than {max_bytes} bytes")]
    TooLarge { max_bytes: u64 },
    /// A file of that name exists that no earlier download of this object left unchanged.
    #[error(
        "{} exists, and is not what an earlier download of this object left there", path.display()
    )]
    Exists { path: PathBuf },
    /// The name is a symbolic link.
    #[error(
        "{} is a symbolic link; downloads do not follow links, so use the name of the file",
        path.display()
    )]
    SymbolicLink { path: PathBuf },
    #[error("it is a file, but {} is a local directory", path.display())]
    Directory { path: PathBuf },
    /// The name is a device, a pipe or a socket.
    #[error("{} is a device, a pipe or a socket; choose the name of a file", path.display())]
    Special { path: PathBuf },
    /// Another program has replaced or removed the part file.
    #[error(
        "{} was replaced or removed by another program during the download; start it again",
        path.display()
    )]
    Replaced {
        /// The part file.
        path: PathBuf,
    },
    /// The name is reserved for the part files of other downloads.
    #[error("{} is a name reserved for unfinished downloads; choose another", path.display())]
    Reserved { path: PathBuf },
}

/// Memory, for objects of limited size. Clones share it.
#[derive(Clone, Debug)]
pub struct MemoryOutput(Arc<Memory>);

#[derive(Debug)]
struct Memory {
    octets: Mutex<Vec<u8>>,
    /// Bytes reserved of the available memory, released at the end.
    reserved: AtomicU64,
    available: Arc<AtomicU64>,
    max_bytes: u64,
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.available.fetch_add(*self.reserved.get_mut(), Ordering::Relaxed);
    }
}

impl MemoryOutput {
    /// An output of at most `max_bytes` bytes.
    pub fn new(max_bytes: u64) -> Self {
        Self::with_available(max_bytes, Arc::new(AtomicU64::new(max_bytes)))
    }

    /// An output that shares this one's limit.
    pub fn sharing_limit(&self) -> Self {
        Self::with_available(self.0.max_bytes, self.0.available.clone())
    }

    fn with_available(max_bytes: u64, room: Arc<AtomicU64>) -> Self {
        let (octets, taken) = (Mutex::default(), AtomicU64::new(0));
        Self(Arc::new(Memory { octets, reserved: taken, available: room, max_bytes }))
    }

    /// Takes the bytes written so far. The last clone releases their memory.
    pub fn take(&self) -> Vec<u8> {
        std::mem::take(&mut self.0.octets.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

struct MemoryWriter(MemoryOutput);

impl Write for MemoryWriter {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        let memory = &self.0.0;
        let (len, relaxed) = (octets.len() as u64, Ordering::Relaxed);
        let left = memory.available.fetch_update(relaxed, relaxed, |room| room.checked_sub(len));
        if left.is_err() {
            let error = OutputError::TooLarge { max_bytes: memory.max_bytes };
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, error));
        }
        memory.reserved.fetch_add(len, relaxed);
        let mut all = memory.octets.lock().unwrap_or_else(PoisonError::into_inner);
        all.extend_from_slice(octets);
        Ok(octets.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Output for MemoryOutput {
    fn open(&mut self, _metadata: &Metadata) -> Result<Opened, OutputError> {
        Ok(Opened::Stream(Box::new(MemoryWriter(self.clone()))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_output_is_bounded() {
        let metadata = Metadata::new("/some/object".parse().unwrap());
        let mut output = MemoryOutput::new(10);
        let Opened::Stream(mut out) = output.open(&metadata).unwrap() else {
            panic!("it is a stream")
        };
        out.write_all(b"00001111").unwrap();
        assert_eq!(out.write_all(b"2222").unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        let mut sharing = output.sharing_limit();
        let Opened::Stream(mut other) = sharing.open(&metadata).unwrap() else {
            panic!("it is a stream")
        };
        assert_eq!(other.write_all(b"222").unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(output.take(), b"00001111");
        drop((out, output));
        other.write_all(b"0000222222").unwrap();
        assert_eq!(sharing.take(), b"0000222222");
    }
}
