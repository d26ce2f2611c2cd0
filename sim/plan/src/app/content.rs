//! Generates the Data of a collection on request.

use weir_base::{Instant, NS_PER_MS, Packet, Pool};
use weir_security::sha256;
use weir_transport::{Answer, ObjectId, SegmentTemplate, Source};
use weir_wire::{InterestView, Name, NameView, SignatureInfo, signature_type};

use crate::workload::{Collection, LiveChannels};

/// Generates Data with a NullSignature.
#[derive(Clone, Debug)]
pub(super) struct Content {
    collection: Collection,
    template: SegmentTemplate,
    /// The object that the template belongs to.
    current: Option<u64>,
    /// The value of its name, kept to reuse its memory.
    name: Vec<u8>,
    live: LiveState,
}

/// State of a server of live channels.
#[derive(Clone, Debug, Default)]
struct LiveState {
    now: Instant,
    /// Requests since they were last taken: Interests for a playlist, or for the first packet of a
    /// segment of video.
    requests: u64,
}

impl Content {
    /// The Data of `collection` with the given FreshnessPeriod.
    pub(super) fn new(collection: Collection, freshness_ms: u64) -> Self {
        let info = SignatureInfo::new(signature_type::NULL);
        let template = SegmentTemplate::new(Name::new().as_view(), freshness_ms, 0, &info);
        let live = LiveState::default();
        Self { collection, template, current: None, name: Vec::new(), live }
    }

    /// Sets the time, which decides what exists of live channels.
    pub(super) fn set_now(&mut self, now: Instant) {
        self.live.now = now;
    }

    /// Requests to a server of live channels since the last call.
    pub(super) fn take_requests(&mut self) -> u64 {
        std::mem::take(&mut self.live.requests)
    }

    pub(super) fn collection(&self) -> &Collection {
        &self.collection
    }

    pub(super) fn packet(&mut self, object: u64, segment: u64, pool: &mut Pool) -> Packet {
        let shape = self.collection.shape(object);
        if self.current != Some(object) {
            self.current = Some(object);
            self.collection.naming().write_object(object, &mut self.name);
            self.template.set_object(&self.name, shape.last_segment());
        }
        let content_len = shape.content_bytes(segment);
        let mut block = pool.alloc(self.template.frame(segment, content_len, 0).len);
        let frame = self.template.write(segment, content_len, &[], &mut block);
        self.collection.fill(object, segment, &mut block[frame.content]);
        block.freeze(frame.len)
    }

    /// The implicit digest of a segment's Data.
    #[cold]
    pub(super) fn digest(&mut self, object: u64, segment: u64) -> [u8; 32] {
        sha256(&[&self.packet(object, segment, &mut Pool::new(0))])
    }
}

impl LiveState {
    /// The playlist that an Interest requests. Routers may answer with it until it changes.
    fn playlist(&mut self, channels: &LiveChannels, name: NameView<'_>) -> Option<Packet> {
        let stream = channels.stream_of(name)?;
        self.requests += 1;
        let (name, content) = channels.playlist_packet(stream, channels.newest(stream, self.now));
        let freshness_ms = channels.fresh_ns(stream, self.now) / NS_PER_MS;
        let info = SignatureInfo::new(signature_type::NULL);
        let template = SegmentTemplate::new(name.as_view().parent(), freshness_ms, 0, &info);
        let mut packet = vec![0; template.frame(0, content.len(), 0).len];
        let frame = template.write(0, content.len(), &[], &mut packet);
        packet[frame.content].copy_from_slice(&content);
        packet.truncate(frame.len);
        Some(packet.into())
    }
}

impl Source for Content {
    fn find(&mut self, interest: &InterestView<'_>) -> Answer {
        let Self { collection, live, .. } = self;
        let channels = collection.live();
        if let Some(channels) = channels
            && let Some(packet) = live.playlist(channels, interest.name)
        {
            return Answer::Packet(packet);
        }
        let parsed = collection.naming().parse(interest.name.value()).filter(|parsed| {
            let exists = match channels {
                Some(channels) => channels.has(parsed.object, live.now),
                None => parsed.object < collection.object_count(),
            };
            exists && parsed.segment < collection.shape(parsed.object).segments
        });
        match parsed {
            Some(parsed) => {
                live.requests += u64::from(parsed.segment == 0);
                Answer::Segment { object: ObjectId(parsed.object), segment: parsed.segment }
            }
            None => Answer::NotFound,
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_wire::DataView;

    use super::*;
    use crate::app::tests::names;
    use crate::workload::Sizes;

    #[test]
    fn data_has_expected_name_and_content() {
        let mut pool = Pool::new(1 << 20);
        for (freshness_ms, bytes) in [(0, 0), (0, 1), (5, 999), (5, 1000), (70_000, 1_000_000)] {
            let collection = Collection::new(&names(Sizes::Fixed { bytes }, 1000)).unwrap();
            let shape = collection.shape(7);
            let mut content = Content::new(collection.clone(), freshness_ms);
            for segment in 0..shape.segments {
                let packet = content.packet(7, segment, &mut pool);
                let data = DataView::decode(&packet).unwrap();
                let name = collection.naming().segment_name(7, segment);
                assert_eq!(data.name, name.as_view());
                assert_eq!(data.freshness_ms, freshness_ms);
                assert_eq!(data.signature_info().signature_type, signature_type::NULL);
                collection.check(7, segment, &data).unwrap();
            }
            let total: usize = (0..shape.segments).map(|it| shape.content_bytes(it)).sum();
            assert_eq!(total as u64, bytes);
        }
    }

    #[test]
    fn largest_segment_fits_a_packet() {
        let mut pool = Pool::new(1 << 20);
        let problem = Collection::new(&names(Sizes::Fixed { bytes: 9000 }, 9000)).unwrap_err();
        let text = problem.to_string();
        let room: u32 =
            text.split(" to ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
        let collection = Collection::new(&names(Sizes::Fixed { bytes: u64::MAX }, room)).unwrap();
        let packet = Content::new(collection, u64::MAX).packet(u64::MAX, 1 << 33, &mut pool);
        assert!(packet.len() <= weir_wire::PACKET_SIZE_MAX && packet.len() > 8700);
        assert!(Collection::new(&names(Sizes::Fixed { bytes: 1 }, room + 1)).is_err());
    }
}
