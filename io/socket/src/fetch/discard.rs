//! An output that writes nothing.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use weir_base::Packet;
use weir_transport::{Delivery, Metadata};

use super::notifier::Notifier;
use super::output::{Opened, Output, OutputError, PacketReader};

/// Discards the segments of a range, except for the first packet that arrives. Clones share that
/// packet.
#[derive(Clone, Debug)]
pub struct DiscardOutput {
    segments: Range<u64>,
    packets_max: u32,
    first: Arc<Mutex<Option<Packet>>>,
}

impl DiscardOutput {
    /// Fetches these segments. At most `packets_max` of them wait for earlier ones.
    pub fn new(segments: Range<u64>, packets_max: u32) -> Self {
        Self { segments, packets_max, first: Arc::default() }
    }

    /// Takes the first packet that has arrived.
    pub fn take_first(&self) -> Option<Packet> {
        self.first.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Output for DiscardOutput {
    fn is_quick(&self) -> bool {
        true
    }

    fn open(&mut self, _metadata: &Metadata) -> Result<Opened, OutputError> {
        let reader = Box::new(DiscardReader { first: Some(self.first.clone()), packets: 0 });
        let (segments, packets_max) = (self.segments.clone(), self.packets_max);
        Ok(Opened::Reader { reader, segments, packets_max })
    }
}

struct DiscardReader {
    /// Where the first packet goes, until it has arrived.
    first: Option<Arc<Mutex<Option<Packet>>>>,
    /// Packets since the last report.
    packets: u32,
}

impl PacketReader for DiscardReader {
    fn take(&mut self, packets: &mut Vec<Delivery>) {
        self.packets += packets.len() as u32;
        for delivery in packets.drain(..) {
            if let Some(first) = self.first.take() {
                *first.lock().unwrap_or_else(PoisonError::into_inner) = Some(delivery.packet);
            }
        }
    }

    fn set_notifier(&mut self, _notifier: Notifier) {}

    fn take_consumed(&mut self) -> Option<u32> {
        Some(std::mem::take(&mut self.packets))
    }
}

#[cfg(test)]
mod tests {
    use weir_transport::{PacketId, RangeId};

    use super::*;

    /// A packet whose only byte is its segment number.
    fn delivery(segment: u8) -> Delivery {
        let id = PacketId::Segment(segment.into());
        Delivery { range: RangeId(0), id, packet: Packet::from(&[segment][..]), is_verified: true }
    }

    #[test]
    fn keeps_the_first_packet_only() {
        let mut output = DiscardOutput::new(3..9, 7);
        let metadata = Metadata::new("/object/v=1".parse().unwrap());
        let Opened::Reader { mut reader, segments, packets_max } = output.open(&metadata).unwrap()
        else {
            panic!("it is a reader")
        };
        assert_eq!((segments, packets_max), (3..9, 7));
        assert!(output.take_first().is_none());
        let mut packets: Vec<Delivery> = (3..6).map(delivery).collect();
        reader.take(&mut packets);
        assert!(packets.is_empty());
        reader.take(&mut Vec::from([delivery(6)]));
        assert_eq!((reader.take_consumed(), reader.take_consumed()), (Some(4), Some(0)));
        assert_eq!(output.take_first().as_deref(), Some(&[3][..]));
    }
}
