//! Segments that producers can generate again, so that simulated disks need not store their bytes.

use weir_base::Packet;
use weir_wire::NameView;

use crate::peek::Peek;
use weir_plan::app::Producer;

/// One segment of a producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentRef {
    /// Index in [`ProducerSet`].
    producer: u32,
    object: u64,
    segment: u64,
}

/// All producers of a plan.
#[derive(Debug, Default)]
pub(crate) struct ProducerSet {
    producers: Vec<Producer>,
}

impl ProducerSet {
    pub(crate) fn new(producers: impl IntoIterator<Item = Producer>) -> Self {
        Self { producers: producers.into_iter().collect() }
    }

    /// The segment that equals this Data byte for byte, if a producer makes it.
    pub(crate) fn find(&mut self, packet: &Packet) -> Option<SegmentRef> {
        let peek = Peek::of(packet)?;
        let name = NameView::from_value(peek.name_value(packet)).ok()?;
        (0..self.producers.len()).find_map(|index| {
            let producer = &mut self.producers[index];
            let parsed = producer.collection().naming().parse(name.value())?;
            let (object, segment) = (parsed.object, parsed.segment);
            let collection = producer.collection();
            let has_it = parsed.digest.is_none()
                && object < collection.object_count()
                && segment < collection.shape(object).segments;
            let producer_number = index as u32;
            (has_it && *producer.segment(object, segment) == **packet).then_some(SegmentRef {
                producer: producer_number,
                object,
                segment,
            })
        })
    }

    /// Generates the Data again.
    pub(crate) fn generate(&mut self, segment: &SegmentRef) -> Packet {
        self.producers[segment.producer as usize].segment(segment.object, segment.segment)
    }
}
