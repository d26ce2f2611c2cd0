//! What follows from a plan alone, for whoever runs it otherwise than [`Network`] does: with the
//! same draws, both ask for the same things at the same times.
//!
//! [`Network`]: crate::Network

use weir_base::{Packet, Rng};
use weir_wire::Name;

use crate::error::PlanError;
use crate::hash::{Part, seed_of};
use crate::network;
use crate::plan::{Plan, Role, RouterPlan};

impl Plan {
    /// The seed of a consumer or producer.
    #[must_use]
    pub fn app_seed(&self, node: usize) -> u64 {
        seed_of(self.seed, Part::App, node as u64)
    }

    /// The seed of a link.
    #[must_use]
    pub fn link_seed(&self, link: usize) -> u64 {
        seed_of(self.seed, Part::Link, 2 * link as u64)
    }

    /// Refuses what contradicts itself.
    ///
    /// # Errors
    /// As [`Network::new`](crate::Network::new).
    pub fn check(&self) -> Result<(), PlanError> {
        network::validate(self)
    }

    /// The Data that is in the store of a router from the start
    /// ([`RouterPlan::store_filled`](crate::plan::RouterPlan::store_filled)), in the order in which
    /// it is put there; what does not fit is left out by whoever puts it there.
    ///
    /// # Errors
    /// A producer of the plan is wrong.
    pub fn stored_at_start(
        &self,
        node: usize,
    ) -> Result<impl Iterator<Item = Packet> + use<>, PlanError> {
        let share = match self.nodes.get(node).map(|node| &node.role) {
            Some(Role::Router(router)) if router.store_bytes > 0 => router.store_filled,
            _ => 0.0,
        };
        let mut producers = network::producers_of(self)?;
        let chosen = match share > 0.0 {
            true => {
                let mut rng = Rng::from_seed(seed_of(self.seed, Part::Fill, node as u64));
                network::choose_segments(&producers, share, &mut rng)
            }
            false => Vec::new(),
        };
        Ok(chosen.into_iter().filter_map(move |(producer, object, segment)| {
            Some(producers.get_mut(&producer)?.segment(object, segment))
        }))
    }

    /// The Data that is on the disks of a router from the start
    /// ([`DiskPlan::filled_objects`](crate::plan::DiskPlan::filled_objects) and
    /// [`DiskPlan::filled`](crate::plan::DiskPlan::filled)), in the order in which it is put there;
    /// only what can be asked for, where all consumers follow traces.
    ///
    /// # Errors
    /// A producer of the plan is wrong.
    pub fn on_disk_at_start(
        &self,
        node: usize,
    ) -> Result<impl Iterator<Item = Packet> + use<>, PlanError> {
        let mut producers = network::producers_of(self)?;
        let chosen = match self.nodes.get(node).map(|node| &node.role) {
            Some(Role::Router(RouterPlan { disk: Some(disk), .. })) => {
                let mut rng = Rng::from_seed(seed_of(self.seed, Part::FillDisk, node as u64));
                network::choose_on_disk(self, &producers, disk, &mut rng)
            }
            _ => Vec::new(),
        };
        Ok(chosen.into_iter().filter_map(move |(producer, object, segment)| {
            Some(producers.get_mut(&producer)?.segment(object, segment))
        }))
    }
}

/// A prefix that nobody asks for: the entries of [`RouterPlan::fib_filler`] are those of 0 on.
///
/// [`RouterPlan::fib_filler`]: crate::plan::RouterPlan::fib_filler
#[must_use]
pub fn filler_prefix(number: u32) -> Name {
    network::filler_name(number)
}
