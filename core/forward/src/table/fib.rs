//! The forwarding information base.

use alloc::vec::Vec;
use core::cell::Cell;

use weir_base::{FaceId, HashKey, Instant, NS_PER_S};
use weir_wire::{InterestView, Name, NameView};

use crate::endpoints::Origin;
use crate::io::NextHop;
use crate::table::measurements::Measurements;
use crate::table::prefixes::{PrefixHashes, PrefixTable};

/// A next hop of a FIB entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FibNextHop {
    pub(crate) face: FaceId,
    pub(crate) cost: u64,
    /// Its index in [`Measurements`].
    pub(crate) measurement: u32,
    /// This next hop sent false Data, so others are preferred.
    pub(crate) is_distrusted: bool,
}

impl FibNextHop {
    /// A face that is not a next hop of the FIB.
    pub(crate) const fn unmeasured(face: FaceId) -> Self {
        Self { face, cost: 0, measurement: u32::MAX, is_distrusted: false }
    }

    /// Lower is better.
    fn rank(&self) -> (bool, u64, FaceId) {
        (self.is_distrusted, self.cost, self.face)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct FibEntry {
    /// Sorted: next hops that are not distrusted first, then by rising cost.
    pub(crate) next_hops: Vec<FibNextHop>,
}

pub(crate) struct Fib {
    entries: PrefixTable<FibEntry>,
    /// Incremented by every change.
    version: u32,
    last: Cell<CachedLookup>,
    /// The distrusted next hop of each prefix, and until when.
    distrusted: Vec<(Instant, Name, FaceId)>,
}

/// The result of the last lookup, valid for names with the same prefix.
#[derive(Clone, Copy, Default)]
struct CachedLookup {
    prefix_run: u64,
    version: u32,
    position: Option<u32>,
}

/// Maximum number of delegations of a forwarding hint that are tried.
pub(crate) const DELEGATIONS_MAX: usize = 8;

const DISTRUST_NS: u64 = 60 * NS_PER_S;
/// Maximum number of distrusted next hops; beyond it the oldest is trusted again.
const DISTRUSTED_MAX: usize = 256;

/// A set of next hops of an Interest, by position. It is valid until the FIB changes. Next hops
/// beyond the 64th are in no set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HopSet {
    bits: u64,
    version: u32,
}

/// Where an Interest may go: the next hops of a FIB entry, or the face that its sender chose.
pub(crate) enum NextHops<'a> {
    Fib(&'a FibEntry),
    Chosen([FibNextHop; 1]),
    None,
}

impl NextHops<'_> {
    pub(crate) fn as_slice(&self) -> &[FibNextHop] {
        match self {
            Self::Fib(entry) => &entry.next_hops,
            Self::Chosen(hop) => hop,
            Self::None => &[],
        }
    }
}

impl HopSet {
    pub(crate) fn is_empty(self) -> bool {
        self.bits == 0
    }

    pub(crate) fn insert(&mut self, position: usize) {
        if position < u64::BITS as usize {
            self.bits |= 1 << position;
        }
    }

    pub(crate) fn contains(self, position: usize) -> bool {
        position < u64::BITS as usize && self.bits & 1 << position != 0
    }

    /// The set with only this position.
    pub(crate) fn only(self, position: usize) -> Self {
        Self { bits: 1 << position, ..self }
    }
}

impl Fib {
    pub(crate) fn new() -> Self {
        Self {
            entries: PrefixTable::new(),
            version: 0,
            last: Cell::default(),
            distrusted: Vec::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Bit `n` is set if a lookup needs the hash of the first `n` components.
    #[inline]
    pub(crate) fn lengths(&self) -> u64 {
        self.entries.lengths()
    }

    /// Like [`Self::lengths`], for a name of this [prefix
    /// run](crate::incoming::ReceivedPacket::prefix_run). No hash is needed if the last lookup was
    /// for the same run.
    #[inline]
    pub(crate) fn lengths_after(&self, prefix_run: u64) -> u64 {
        if self.last_of(prefix_run).is_some() { 0 } else { self.lengths() }
    }

    /// The last lookup, if it was for the same prefix run.
    #[inline]
    fn last_of(&self, prefix_run: u64) -> Option<CachedLookup> {
        Some(self.last.get()).filter(|last| {
            prefix_run != 0 && (last.prefix_run, last.version) == (prefix_run, self.version)
        })
    }

    /// The entry of the longest prefix of a name in this prefix run.
    #[inline(always)]
    fn find(
        &self,
        name: NameView<'_>,
        hashes: &PrefixHashes,
        prefix_run: u64,
    ) -> Option<&FibEntry> {
        let position = match self.last_of(prefix_run) {
            Some(last) => last.position,
            None => {
                let position = self.entries.longest_slot(name, hashes);
                // Names of a run share the result only if no prefix in the FIB is as long as the
                // whole name.
                if self.lengths() >> name.component_count().min(63) == 0 {
                    self.last.set(CachedLookup { prefix_run, version: self.version, position });
                }
                position
            }
        };
        self.entries.value(position)
    }

    pub(crate) fn no_hops(&self) -> HopSet {
        HopSet { bits: 0, version: self.version }
    }

    /// Returns `hops`, or `None` if the FIB has changed since.
    pub(crate) fn still_valid(&self, hops: HopSet) -> Option<HopSet> {
        Some(hops).filter(|hops| hops.version == self.version)
    }

    /// Replaces the next hops of a prefix, and returns the new ones among them. An empty list
    /// removes the prefix. Next hops that stay keep their measurements.
    pub(crate) fn set(
        &mut self,
        now: Instant,
        prefix: Name,
        next_hops: &[NextHop],
        key: &HashKey,
        measurements: &mut Measurements,
    ) -> Vec<FibNextHop> {
        // A new version makes the cached lookup and all sets of next hops invalid.
        self.version = self.version.wrapping_add(1);
        let before = self.entries.remove(prefix.as_view(), key);
        let mut before = before.map_or_else(Vec::new, |entry| entry.next_hops);
        let (mut all, mut new) = (Vec::new(), Vec::new());
        for &NextHop { face, cost } in next_hops {
            let old = before.iter().position(|old| old.face == face);
            match old.map(|at| before.swap_remove(at)) {
                Some(old) => all.push(FibNextHop { cost, ..old }),
                None => {
                    let measurement = measurements.insert(now);
                    let mut distrusted = self.distrusted.iter();
                    let is_distrusted =
                        distrusted.any(|(_, of, hop)| (of, *hop) == (&prefix, face));
                    let hop = FibNextHop { face, cost, measurement, is_distrusted };
                    all.push(hop);
                    new.push(hop);
                }
            }
        }
        // `before` now holds only the next hops that the prefix loses.
        before.iter().for_each(|old| measurements.retire(old.measurement));
        all.sort_by_key(FibNextHop::rank);
        new.sort_by_key(|hop| (hop.cost, hop.face));
        if !all.is_empty() {
            self.entries.insert(prefix, FibEntry { next_hops: all }, key);
        }
        new
    }

    #[inline]
    pub(crate) fn longest_match(
        &self,
        name: NameView<'_>,
        hashes: &PrefixHashes,
    ) -> Option<&FibEntry> {
        self.entries.longest_match(name, hashes)
    }

    /// The measurements of the next hops of all prefixes below or above `prefix`.
    pub(crate) fn measurements_around(&self, prefix: NameView<'_>) -> impl Iterator<Item = u32> {
        let entries = self.entries.iter().filter(move |(name, _)| {
            prefix.is_prefix_of(name.as_view()) || name.as_view().is_prefix_of(prefix)
        });
        entries.flat_map(|(_, entry)| entry.next_hops.iter().map(|hop| hop.measurement))
    }

    /// Distrusts the next hop that sent false Data of `name`. For a while, others of its prefix are
    /// preferred. `source` is the value that [`Store::insert`](weir_store::Store::insert) received.
    pub(crate) fn distrust(
        &mut self,
        now: Instant,
        name: NameView<'_>,
        key: &HashKey,
        hashes: &PrefixHashes,
        source: u32,
    ) {
        let Some(prefix) = self.entries.longest_prefix(name, hashes) else { return };
        let hops = self.longest_match(name, hashes).map_or(&[][..], |entry| &entry.next_hops);
        let Some(face) = hops.iter().map(|hop| hop.face).find(|face| face.0 as u32 == source)
        else {
            return;
        };
        self.distrusted.retain(|(_, of, distrusted)| (of, *distrusted) != (&prefix, face));
        if self.distrusted.len() >= DISTRUSTED_MAX {
            let (_, prefix, face) = self.distrusted.remove(0);
            self.set_distrusted(&prefix, face, false, key);
        }
        self.set_distrusted(&prefix, face, true, key);
        self.distrusted.push((now.plus_ns(DISTRUST_NS), prefix, face));
    }

    /// Ends the distrust of next hops whose time is over. The list is sorted by time.
    pub(crate) fn expire_distrust(&mut self, now: Instant, key: &HashKey) {
        while self.distrusted.first().is_some_and(|(until, ..)| *until <= now) {
            let (_, prefix, face) = self.distrusted.remove(0);
            self.set_distrusted(&prefix, face, false, key);
        }
    }

    fn set_distrusted(&mut self, prefix: &Name, face: FaceId, is_distrusted: bool, key: &HashKey) {
        let Some(entry) = self.entries.get_mut(prefix.as_view(), key) else { return };
        for hop in entry.next_hops.iter_mut().filter(|hop| hop.face == face) {
            hop.is_distrusted = is_distrusted;
        }
        entry.next_hops.sort_by_key(FibNextHop::rank);
        self.version = self.version.wrapping_add(1);
    }

    /// The longest prefix of a name that is in the FIB.
    pub(crate) fn longest_prefix(&self, name: NameView<'_>, hashes: &PrefixHashes) -> Option<Name> {
        self.entries.longest_prefix(name, hashes)
    }

    /// A number that identifies the longest prefix of a name, until the FIB changes.
    pub(crate) fn prefix_number(&self, name: NameView<'_>, hashes: &PrefixHashes) -> usize {
        self.longest_match(name, hashes).map_or(0, |entry| core::ptr::from_ref(entry).addr())
    }

    /// The next hops of an Interest, by rising cost. `is_home` means that its forwarding hint names
    /// this network.
    pub(crate) fn look_up(
        &self,
        key: &HashKey,
        interest: &InterestView<'_>,
        origin: Origin<'_>,
        is_home: bool,
    ) -> NextHops<'_> {
        let mut hashes = PrefixHashes::default();
        hashes.add(key, interest.name, self.lengths());
        self.next_hops(key, interest, &hashes, origin, is_home)
    }

    /// Like [`Self::look_up`], with the hashes of the name's prefixes. Returns the face that the
    /// sender has chosen, or the next hops of the name. With a forwarding hint, returns the next
    /// hops of the first delegation that has any.
    #[inline(always)]
    pub(crate) fn next_hops(
        &self,
        key: &HashKey,
        interest: &InterestView<'_>,
        hashes: &PrefixHashes,
        origin: Origin<'_>,
        is_home: bool,
    ) -> NextHops<'_> {
        if let Some(face) = origin.header.next_hop_face {
            return NextHops::Chosen([FibNextHop::unmeasured(FaceId(face))]);
        }
        let entry = match interest.forwarding_hint.is_empty() || is_home {
            true => self.find(interest.name, hashes, origin.prefix_run),
            false => interest.forwarding_hint.iter().take(DELEGATIONS_MAX).find_map(|delegation| {
                let mut hashes = PrefixHashes::default();
                hashes.add(key, delegation, self.entries.lengths());
                self.entries.longest_match(delegation, &hashes)
            }),
        };
        entry.map_or(NextHops::None, NextHops::Fib)
    }
}
