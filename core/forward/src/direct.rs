//! What a simulator asks of a shard beside packets.

use weir_base::{Instant, Packet};
use weir_store::Query;
use weir_wire::{DataView, InterestView, PacketView};

use crate::router::{Router, hash_name};

impl Router {
    /// Stores a Data as if it had been asked for and had come just now, with no trace in PIT and
    /// packet counters: to begin with a store that is not empty. Whether it is a Data and in the
    /// store now.
    pub fn preload(&mut self, now: Instant, packet: &Packet) -> bool {
        let Ok(data) = DataView::decode(packet) else { return false };
        let hashes = hash_name(&self.config.hash_key, &PacketView::Data(data));
        self.store(now, &data, hashes).is_some()
    }

    /// Whether the store would answer this Interest now. Changes nothing, counters included.
    #[must_use]
    pub fn would_hit(&self, now: Instant, packet: &Packet) -> bool {
        let Ok(interest) = InterestView::decode(packet) else { return false };
        let hashes = hash_name(&self.config.hash_key, &PacketView::Interest(interest));
        self.store.has_answer(
            now,
            &Query {
                name: interest.name,
                hashes,
                can_be_prefix: interest.can_be_prefix,
                must_be_fresh: interest.must_be_fresh,
            },
        )
    }
}
