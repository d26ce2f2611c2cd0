//! Fills stores and disks before a run begins.

use weir_base::{Instant, Packet};
use weir_forward::{Command, Input, Outbox, Router, RouterConfig};
use weir_store::StoreConfig;
use weir_store::disk::{Admission, DiskTierConfig, OfferAt};
use weir_wire::LpHeader;

use super::disk::ProducerSet;
use super::shards::Shards;

/// Number of Data packets inserted before the resulting disk operations run.
const BATCH: usize = 64;
/// Memory tier of the temporary store that fills the disks, bytes.
const RAM_BYTES: u64 = 1 << 20;

/// Inserts Data into the stores of shards until one Data does not fit. Calls `each` with each Data
/// first.
pub(super) fn fill_store(
    shards: &mut Shards,
    packets: impl IntoIterator<Item = Packet>,
    mut each: impl FnMut(&Packet),
) {
    let mut out = Outbox::default();
    shards.configure_stores(Instant::ZERO, &mut out, |store| StoreConfig { admit: true, ..store });
    for packet in packets {
        each(&packet);
        let shard = shards.shard_of(&LpHeader::default(), &packet);
        let router = shards.router_mut(shard);
        // The first eviction shows that the store is full.
        if !router.preload(Instant::ZERO, &packet) || router.stats().store.evictions > 0 {
            break;
        }
    }
    shards.configure_stores(Instant::ZERO, &mut out, |store| store);
}

/// Writes Data to the disks of shards until one does not fit. The shards must be replaced
/// afterwards.
pub(super) fn fill_disks(
    shards: &mut Shards,
    packets: impl IntoIterator<Item = Packet>,
    producers: &mut ProducerSet,
) {
    shards.set_routers(|config| filler(config.clone()));
    for (number, packet) in packets.into_iter().enumerate() {
        let shard = shards.shard_of(&LpHeader::default(), &packet);
        shards.router_mut(shard).preload(Instant::ZERO, &packet);
        if number % BATCH == 0 {
            shards.finish_disk_ops_of(shard, Outbox::default(), producers);
            if shards.router_mut(shard).stats().store.disk.evictions > 0 {
                break;
            }
        }
    }
    for shard in 0..shards.count() {
        let mut out = Outbox::default();
        let flush = Input::Command(Command::FlushStore { transaction: 0 });
        shards.router_mut(shard).handle(Instant::ZERO, &mut [flush], &mut out);
        shards.finish_disk_ops_of(shard, out, producers);
    }
}

/// A shard that writes every Data to its disks.
fn filler(config: RouterConfig) -> Router {
    let disk = config.disk.map(|disk| DiskTierConfig {
        admission: Admission::All,
        offer_at: OfferAt::Arrival,
        write_backlog_bytes_max: u64::MAX,
        write_delay_max_ns: 0,
        ..disk
    });
    let store = StoreConfig { capacity_bytes: RAM_BYTES, admit: true, ..config.store };
    Router::new(Instant::ZERO, RouterConfig { disk, store, ..config })
}
