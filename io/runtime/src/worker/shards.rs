//! Which packet thread a packet belongs to. Only routers of several threads have this.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use weir_base::{FaceId, HashKey};
use weir_forward::shard::shard_of_packet;
use weir_wire::LpHeader;

use crate::cross::CrossPorts;
use crate::message::ToWorker;
use crate::worker::face::FaceIdHasher;

/// The other packet threads, seen from one.
pub(crate) struct Shards {
    pub(crate) key: HashKey,
    pub(crate) count: u16,
    pub(crate) ports: CrossPorts,
    /// Faces that other threads own.
    pub(crate) owners: HashMap<FaceId, u16, BuildHasherDefault<FaceIdHasher>>,
    /// For what must not get lost to a full ring.
    pub(crate) siblings: Vec<crossbeam_channel::Sender<ToWorker>>,
}

impl Shards {
    /// The shard of a packet, or `None` when it is no packet: any shard may count it.
    #[inline]
    pub(super) fn shard_of(&self, header: &LpHeader, packet: &[u8]) -> Option<u16> {
        shard_of_packet(&self.key, header, packet, self.count)
    }
}
