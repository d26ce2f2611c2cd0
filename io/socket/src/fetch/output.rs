//! What becomes of a download: a file, a stream, or memory.

use std::io::{self, Write};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use weir_transport::{Delivery, Metadata, SegmentSet};

use super::directory::Directory;
use super::notifier::Notifier;
use super::sink::FileSink;

/// Where the segments of one object are to go.
pub trait Output: Send {
    /// Whether all of this takes so little time that the network thread may do it.
    fn is_quick(&self) -> bool {
        false
    }

    /// Called once, when it is known what is to be fetched, from another thread than the rest
    /// unless it [is quick](Output::is_quick).
    fn open(&mut self, metadata: &Metadata) -> Result<Opened, OutputError>;

    /// What takes the segments of a file, once their size is known.
    fn sink(&mut self, segment_size: u64) -> Result<Arc<FileSink>, OutputError> {
        let _ = segment_size;
        unreachable!("a stream takes no segments")
    }

    /// Makes what is there last; `stored` are the segments stored so far. Called now and then and
    /// when the download ends early, perhaps from another thread than the rest.
    fn save(&mut self, have: &SegmentSet) -> io::Result<()> {
        let _ = have;
        Ok(())
    }

    /// The last [`Output::save`] of a download that ends early: nothing more will be stored, so
    /// that something of it may be given up to note the rest.
    fn save_last(&mut self, have: &SegmentSet) -> io::Result<()> {
        self.save(have)
    }

    /// Nothing was stored and nothing will be: leaves no trace.
    fn abandon(&mut self) {}

    /// The file that has to be written out before [`Output::finish`].
    fn file(&self) -> Option<&FileSink> {
        None
    }

    /// The directory that has to be written out after [`Output::finish`], so that the file's name
    /// survives a power failure.
    fn directory(&self) -> Option<&Directory> {
        None
    }

    /// The object is whole. `is_synced`: its [`Output::file`] has been written out since.
    fn finish(&mut self, is_synced: bool) -> Result<(), OutputError> {
        let _ = is_synced;
        Ok(())
    }
}

/// Takes packets and never waits: whoever reads them has a thread of its own.
pub trait PacketReader: Send {
    /// Takes packets, after all that were given before.
    fn take(&mut self, packets: &mut Vec<Delivery>);

    /// Gives it what it notifies when [`PacketReader::take_consumed`] has something to say. Called first,
    /// once.
    fn set_notifier(&mut self, notifier: Notifier);

    /// How many packets it is done with since the last call; `None` if nobody reads any more.
    fn take_consumed(&mut self) -> Option<u32>;
}

pub enum Opened {
    /// Segments in any order, each in its place.
    File {
        have: SegmentSet,
        /// Octets of Content in each segment but the last, as far as known from before.
        segment_size: Option<u64>,
    },
    /// Octets in their order.
    Stream(Box<dyn Write + Send>),
    /// Packets in their order, a part of the object perhaps.
    Reader {
        reader: Box<dyn PacketReader>,
        segments: Range<u64>,
        /// Packets at most that wait with the reader; more wait with the consumer.
        packets_max: u32,
    },
    /// Nothing: all of it is there, and right.
    Complete,
}

/// Why an output cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// The system refuses.
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    /// Another process writes the same file.
    #[error("{} is being written by another process", path.display())]
    InUse { path: PathBuf },
    /// The object does not fit into memory set aside for it.
    #[error("the object is larger than {max_bytes} octets")]
    TooLarge { max_bytes: u64 },
    /// A file has the name, and no earlier download of the object left it like that.
    #[error(
        "{} exists, and is not what an earlier download of this object left there", path.display()
    )]
    Exists { path: PathBuf },
    /// The name is that of a symbolic link.
    #[error("{} is a symbolic link, which downloads do not write through", path.display())]
    SymbolicLink { path: PathBuf },
    /// The name is that of a directory.
    #[error("{} is a directory here and a file there", path.display())]
    Directory { path: PathBuf },
    /// The name is that of a device, a pipe or a socket, where a file should be.
    #[error("{} is a device, a pipe or a socket, and not a file", path.display())]
    Special { path: PathBuf },
    /// Another program has replaced or removed the unfinished file.
    #[error("{} was replaced or removed by another program during the download", path.display())]
    Replaced {
        /// The unfinished file.
        path: PathBuf,
    },
    /// The name is that of a file which a download of another name keeps.
    #[error("{} is a name that downloads use while they go on; choose another", path.display())]
    Reserved { path: PathBuf },
}

/// Memory, for objects of bounded size. Clones share it.
#[derive(Clone, Debug)]
pub struct MemoryOutput(Arc<Memory>);

#[derive(Debug)]
struct Memory {
    octets: Mutex<Vec<u8>>,
    /// Octets taken of the room, given back at the end.
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
    /// An output of at most `max_bytes` octets.
    pub fn new(max_bytes: u64) -> Self {
        Self::with_available(max_bytes, Arc::new(AtomicU64::new(max_bytes)))
    }

    /// An output that shares its room with this one: together they hold what fits into it.
    pub fn sharing_limit(&self) -> Self {
        Self::with_available(self.0.max_bytes, self.0.available.clone())
    }

    fn with_available(max_bytes: u64, room: Arc<AtomicU64>) -> Self {
        let (octets, taken) = (Mutex::default(), AtomicU64::new(0));
        Self(Arc::new(Memory { octets, reserved: taken, available: room, max_bytes }))
    }

    /// Takes the octets written so far. Their room is given back with the last clone.
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
        let mut beside = output.sharing_limit();
        let Opened::Stream(mut other) = beside.open(&metadata).unwrap() else {
            panic!("it is a stream")
        };
        assert_eq!(other.write_all(b"222").unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(output.take(), b"00001111");
        drop((out, output));
        other.write_all(b"0000222222").unwrap();
        assert_eq!(beside.take(), b"0000222222");
    }
}
