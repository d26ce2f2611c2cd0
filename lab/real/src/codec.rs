//! Events of one process in a file, a few bytes each, so that writing them is cheap.
//!
//! A record is the time since the previous record in nanoseconds, then the event in the encoding of
//! the crate `postcard`.

use std::io::{self, BufRead, Write};

use weir_plan::event::EventKind;

/// Bytes that a writer buffers.
const BLOCK_BYTES: usize = 1 << 20;
/// Maximum text length in a record.
const TEXT_BYTES_MAX: usize = 1 << 16;

/// Writes events in large blocks.
#[derive(Debug)]
pub(super) struct EventWriter<W: Write> {
    sink: W,
    block: Vec<u8>,
    last_ns: u64,
}

impl<W: Write> EventWriter<W> {
    pub(super) fn new(sink: W) -> Self {
        Self { sink, block: Vec::with_capacity(BLOCK_BYTES + 4096), last_ns: 0 }
    }

    /// Appends an event. Times must not decrease.
    pub(super) fn write(&mut self, at_ns: u64, kind: &EventKind) -> io::Result<()> {
        let at_ns = at_ns.max(self.last_ns);
        let record = (at_ns - self.last_ns, kind);
        self.last_ns = at_ns;
        postcard::to_io(&record, &mut self.block).map_err(io::Error::other)?;
        if self.block.len() >= BLOCK_BYTES { self.flush() } else { Ok(()) }
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.sink.write_all(&self.block)?;
        self.block.clear();
        self.sink.flush()
    }
}

/// Reads the output of [`EventWriter`].
#[derive(Debug)]
pub(super) struct EventReader<R: BufRead> {
    source: R,
    texts: Vec<u8>,
    last_ns: u64,
}

impl<R: BufRead> EventReader<R> {
    pub(super) fn new(source: R) -> Self {
        Self { source, texts: vec![0; TEXT_BYTES_MAX], last_ns: 0 }
    }

    /// The next event and its time; `None` at the end.
    pub(super) fn read(&mut self) -> io::Result<Option<(u64, EventKind)>> {
        if self.source.fill_buf()?.is_empty() {
            return Ok(None);
        }
        let record: (u64, EventKind) = postcard::from_io((&mut self.source, &mut self.texts))
            .map_err(|error| {
                let message = format!("the file of events is damaged: {error}");
                io::Error::new(io::ErrorKind::InvalidData, message)
            })?
            .0;
        self.last_ns = self.last_ns.saturating_add(record.0);
        Ok(Some((self.last_ns, record.1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_plan::event::{Queue, RouterSample};

    fn events() -> Vec<(u64, EventKind)> {
        let (object, segment) = (7, u64::MAX);
        vec![
            (0, EventKind::InterestSent { object, segment, is_repeated: false }),
            (5, EventKind::InterestSent { object, segment, is_repeated: true }),
            (
                1 << 40,
                EventKind::DataReceived {
                    object,
                    segment,
                    content_bytes: 8000,
                    packet_bytes: 8192,
                    rtt_ns: 123_456_789,
                    is_marked: true,
                },
            ),
            (1 << 40, EventKind::NackReceived { object, segment, reason: 150 }),
            (1 << 41, EventKind::TimedOut { object, segment }),
            (1 << 41, EventKind::ObjectStarted { object }),
            (1 << 42, EventKind::ObjectCompleted { object, content_bytes: 1 << 50, elapsed_ns: 9 }),
            (1 << 43, EventKind::ObjectFailed { object }),
            (1 << 43, EventKind::Window { window: 17.25, outstanding: 3 }),
            (1 << 44, EventKind::QueueLength { queue: Queue::Link(3), packets: 4 }),
            (
                u64::MAX,
                EventKind::RouterSample(Box::new(RouterSample {
                    in_interests: 3,
                    ..Default::default()
                })),
            ),
        ]
    }

    fn encoded() -> Vec<u8> {
        let mut octets = Vec::new();
        let mut writer = EventWriter::new(&mut octets);
        for (at_ns, kind) in events() {
            writer.write(at_ns, &kind).unwrap();
        }
        writer.flush().unwrap();
        octets
    }

    #[test]
    fn events_survive_a_round_trip() {
        let octets = encoded();
        let mut reader = EventReader::new(&octets[..]);
        let read: Vec<_> = std::iter::from_fn(|| reader.read().unwrap()).collect();
        assert_eq!(read, events());
    }

    #[test]
    fn damaged_file_is_an_error() {
        let octets = encoded();
        for cut in 0..octets.len() {
            let mut reader = EventReader::new(&octets[..cut]);
            while let Ok(Some(_)) = reader.read() {}
        }
        let mut rng = weir_base::Rng::from_seed(1);
        for _ in 0..2000 {
            let mut octets = octets.clone();
            let at = rng.next_u64() as usize % octets.len();
            octets[at] = rng.next_u64() as u8;
            let mut reader = EventReader::new(&octets[..]);
            while let Ok(Some(_)) = reader.read() {}
        }
        assert!(EventReader::new(&[0, 200][..]).read().is_err());
        assert!(EventReader::new(&[0x80; 12][..]).read().is_err());
    }
}
