//! The prefixes of pending Interests with CanBePrefix in other shards. Data of this shard may
//! satisfy them.

use alloc::vec::Vec;

use weir_base::{Instant, NS_PER_MS, Slab, Table, TimerWheel};
use weir_wire::NameView;

use crate::table::pit::LengthCount;

/// A PIT entry with CanBePrefix of another shard, the home of its name.
struct Watch {
    hash: u64,
    components: u16,
    home: u16,
    /// The index of the entry in the PIT of its home.
    entry: u32,
}

/// The watches of other shards. They expire with their entries, so a lost message leaves nothing
/// behind.
pub(crate) struct Watches {
    table: Table,
    watches: Slab<Watch>,
    timers: TimerWheel,
    lengths: LengthCount,
    watches_max: usize,
    expired: Vec<u32>,
}

impl Watches {
    /// `watches_max` is the number of entries in all PITs of other shards.
    pub(crate) fn new(now: Instant, watches_max: usize) -> Self {
        Self {
            table: Table::with_capacity(0),
            watches: Slab::new(),
            // The same tick as the PIT's, so that both expire together.
            timers: TimerWheel::new(NS_PER_MS, now),
            lengths: LengthCount::default(),
            watches_max,
            expired: Vec::new(),
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.watches.is_empty()
    }

    fn find(&self, home: u16, entry: u32, hash: u64) -> Option<u32> {
        self.table.find(hash, |index| {
            let watch = &self.watches[index];
            (watch.home, watch.entry, watch.hash) == (home, entry, hash)
        })
    }

    /// `home` watches for an entry until this time. Repeated calls change the time.
    pub(crate) fn set(
        &mut self,
        home: u16,
        entry: u32,
        hash: u64,
        components: u16,
        until: Instant,
    ) {
        let index = match self.find(home, entry, hash) {
            Some(index) => index,
            None if self.watches.len() >= self.watches_max => return,
            None => {
                let index = self.watches.insert(Watch { hash, components, home, entry });
                self.table.insert(hash, index);
                self.lengths.add(usize::from(components));
                index
            }
        };
        self.timers.schedule(index, until);
    }

    pub(crate) fn end(&mut self, home: u16, entry: u32, hash: u64) {
        if let Some(index) = self.find(home, entry, hash) {
            self.timers.cancel(index);
            self.remove(index);
        }
    }

    fn remove(&mut self, index: u32) {
        let watch = self.watches.remove(index);
        self.table.remove(watch.hash, index);
        self.lengths.remove(usize::from(watch.components));
    }

    pub(crate) fn expire(&mut self, now: Instant) {
        let mut expired = core::mem::take(&mut self.expired);
        self.timers.advance(now, &mut expired);
        for index in expired.drain(..) {
            self.remove(index);
        }
        self.expired = expired;
    }

    /// The home shards that watch for Data of this name, as a bit set. `hashes` has the hashes of
    /// its proper prefixes, shortest first. Only hashes are compared; the home compares the names.
    pub(crate) fn home_shards_of(&self, name: NameView<'_>, hashes: &[u64]) -> u64 {
        let mut homes = 0;
        for (components, &hash) in (1..name.component_count()).zip(hashes) {
            if self.lengths.any(components) {
                self.table.for_each_candidate(hash, |index| {
                    let watch = &self.watches[index];
                    if watch.hash == hash && usize::from(watch.components) == components {
                        homes |= 1 << watch.home;
                    }
                });
            }
        }
        homes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_wire::Name;

    fn at(ms: u64) -> Instant {
        Instant::from_ns(ms * NS_PER_MS)
    }

    #[test]
    fn watches_are_renewed_and_ended() {
        let mut watches = Watches::new(at(0), 4);
        let name: Name = "/a/b/c".parse().unwrap();
        let homes = |watches: &Watches| watches.home_shards_of(name.as_view(), &[10, 20]);
        watches.set(1, 7, 10, 1, at(5));
        watches.set(2, 7, 20, 2, at(5));
        watches.set(3, 7, 20, 1, at(5));
        assert_eq!(homes(&watches), 0b110, "the third is of another length");
        watches.set(1, 7, 10, 1, at(9));
        watches.expire(at(6));
        assert_eq!(homes(&watches), 0b010);
        watches.end(1, 8, 10);
        watches.end(2, 7, 10);
        assert_eq!(homes(&watches), 0b010);
        watches.end(1, 7, 10);
        assert!(watches.is_empty());
        (0..9).for_each(|entry| watches.set(1, entry, 10, 1, at(20)));
        assert_eq!(watches.watches.len(), 4, "bounded");
        watches.expire(at(21));
        assert!(watches.is_empty());
    }
}
