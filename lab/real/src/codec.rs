//! Events of one process in a file: a few octets each, so that writing them costs little.
//!
//! A record is the time since the record before (ns), a tag, and the fields of that kind in their
//! order; numbers are LEB128. Kinds that applications do not have are JSON.

use std::io::{self, Read, Write};

use weir_plan::event::EventKind;

/// What a writer gathers before it writes.
const BLOCK_BYTES: usize = 1 << 20;

mod tag {
    pub(super) const INTEREST_SENT: u8 = 0;
    pub(super) const INTEREST_REPEATED: u8 = 1;
    pub(super) const DATA: u8 = 2;
    pub(super) const DATA_MARKED: u8 = 3;
    pub(super) const NACK: u8 = 4;
    pub(super) const TIMED_OUT: u8 = 5;
    pub(super) const OBJECT_STARTED: u8 = 6;
    pub(super) const OBJECT_COMPLETED: u8 = 7;
    pub(super) const OBJECT_FAILED: u8 = 8;
    pub(super) const WINDOW: u8 = 9;
    pub(super) const JSON: u8 = 255;
}

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

    /// Events come in the order of time.
    pub(super) fn write(&mut self, at_ns: u64, kind: &EventKind) -> io::Result<()> {
        let at_ns = at_ns.max(self.last_ns);
        put(&mut self.block, at_ns - self.last_ns);
        self.last_ns = at_ns;
        encode(&mut self.block, kind);
        if self.block.len() >= BLOCK_BYTES { self.flush() } else { Ok(()) }
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.sink.write_all(&self.block)?;
        self.block.clear();
        self.sink.flush()
    }
}

fn encode(block: &mut Vec<u8>, kind: &EventKind) {
    let mut record = |tag: u8, fields: &[u64]| {
        block.push(tag);
        fields.iter().for_each(|&field| put(block, field));
    };
    match *kind {
        EventKind::InterestSent { object, segment, is_repeated } => {
            let tag = if is_repeated { tag::INTEREST_REPEATED } else { tag::INTEREST_SENT };
            record(tag, &[object, segment]);
        }
        EventKind::DataReceived {
            object,
            segment,
            content_bytes,
            packet_bytes,
            rtt_ns,
            is_marked,
        } => {
            let tag = if is_marked { tag::DATA_MARKED } else { tag::DATA };
            let (content, packet) = (u64::from(content_bytes), u64::from(packet_bytes));
            record(tag, &[object, segment, content, packet, rtt_ns]);
        }
        EventKind::NackReceived { object, segment, reason } => {
            record(tag::NACK, &[object, segment, reason]);
        }
        EventKind::TimedOut { object, segment } => record(tag::TIMED_OUT, &[object, segment]),
        EventKind::ObjectStarted { object } => record(tag::OBJECT_STARTED, &[object]),
        EventKind::ObjectCompleted { object, content_bytes, elapsed_ns } => {
            record(tag::OBJECT_COMPLETED, &[object, content_bytes, elapsed_ns]);
        }
        EventKind::ObjectFailed { object } => record(tag::OBJECT_FAILED, &[object]),
        EventKind::Window { window, outstanding } => {
            record(tag::WINDOW, &[window.to_bits(), u64::from(outstanding)]);
        }
        ref other => {
            let text = serde_json::to_vec(other).expect("an event is plain data");
            block.push(tag::JSON);
            put(block, text.len() as u64);
            block.extend_from_slice(&text);
        }
    }
}

fn put(block: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        block.push(number as u8 | 0x80);
        number >>= 7;
    }
    block.push(number as u8);
}

/// Reads what [`EventWriter`] wrote.
#[derive(Debug)]
pub(super) struct EventReader<R: Read> {
    source: R,
    last_ns: u64,
}

impl<R: Read> EventReader<R> {
    pub(super) fn new(source: R) -> Self {
        Self { source, last_ns: 0 }
    }

    /// The next event and its time; `None` at the end.
    pub(super) fn read(&mut self) -> io::Result<Option<(u64, EventKind)>> {
        let mut first = [0];
        if self.source.read(&mut first)? == 0 {
            return Ok(None);
        }
        self.last_ns = self.last_ns.saturating_add(self.number_from(first[0])?);
        let kind = self.kind()?;
        Ok(Some((self.last_ns, kind)))
    }

    fn kind(&mut self) -> io::Result<EventKind> {
        let tag = self.octet()?;
        Ok(match tag {
            tag::INTEREST_SENT | tag::INTEREST_REPEATED => EventKind::InterestSent {
                object: self.number()?,
                segment: self.number()?,
                is_repeated: tag == tag::INTEREST_REPEATED,
            },
            tag::DATA | tag::DATA_MARKED => EventKind::DataReceived {
                object: self.number()?,
                segment: self.number()?,
                content_bytes: self.small()?,
                packet_bytes: self.small()?,
                rtt_ns: self.number()?,
                is_marked: tag == tag::DATA_MARKED,
            },
            tag::NACK => EventKind::NackReceived {
                object: self.number()?,
                segment: self.number()?,
                reason: self.number()?,
            },
            tag::TIMED_OUT => {
                EventKind::TimedOut { object: self.number()?, segment: self.number()? }
            }
            tag::OBJECT_STARTED => EventKind::ObjectStarted { object: self.number()? },
            tag::OBJECT_COMPLETED => EventKind::ObjectCompleted {
                object: self.number()?,
                content_bytes: self.number()?,
                elapsed_ns: self.number()?,
            },
            tag::OBJECT_FAILED => EventKind::ObjectFailed { object: self.number()? },
            tag::WINDOW => EventKind::Window {
                window: f64::from_bits(self.number()?),
                outstanding: self.small()?,
            },
            tag::JSON => self.json()?,
            unknown => return Err(damaged(&format!("there is no kind {unknown}"))),
        })
    }

    fn json(&mut self) -> io::Result<EventKind> {
        let len = self.small()?;
        let mut text = Vec::new();
        (&mut self.source).take(u64::from(len)).read_to_end(&mut text)?;
        serde_json::from_slice(&text).map_err(|error| damaged(&error.to_string()))
    }

    fn small(&mut self) -> io::Result<u32> {
        u32::try_from(self.number()?).map_err(|_| damaged("a number is too large"))
    }

    fn number(&mut self) -> io::Result<u64> {
        let first = self.octet()?;
        self.number_from(first)
    }

    fn number_from(&mut self, first: u8) -> io::Result<u64> {
        let (mut number, mut octet, mut shift) = (u64::from(first & 0x7f), first, 7);
        while octet >= 0x80 {
            octet = self.octet()?;
            if shift > 63 {
                return Err(damaged("a number does not end"));
            }
            number |= u64::from(octet & 0x7f) << shift;
            shift += 7;
        }
        Ok(number)
    }

    fn octet(&mut self) -> io::Result<u8> {
        let mut octet = [0];
        self.source.read_exact(&mut octet)?;
        Ok(octet[0])
    }
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the file of events is damaged: {what}"))
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
    fn what_was_written_is_read() {
        let octets = encoded();
        let mut reader = EventReader::new(&octets[..]);
        let read: Vec<_> = std::iter::from_fn(|| reader.read().unwrap()).collect();
        assert_eq!(read, events());
    }

    #[test]
    fn a_damaged_file_is_an_error_and_no_panic() {
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
