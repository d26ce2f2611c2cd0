use alloc::vec::Vec;
use core::fmt;

use weir_base::{Instant, Packet, PacketMut, Pool};
use weir_wire::PACKET_SIZE_MAX;
use weir_wire::lp::{LpFraming, LpHeader};

use super::config::{CodecConfig, FRAGMENT_COUNT_MAX};
use crate::counters::{DropCounters, LinkDrop};

/// Octets of memory of a partial packet beside its buffer and its early fragments.
const PARTIAL_BYTES: usize = 2 * size_of::<PartialPacket>();
/// Octets of memory of an early fragment's place in its list, which doubles as it grows.
const EARLY_BYTES: usize = 2 * size_of::<(u32, Packet)>();
/// Lists of early fragments that are kept for use again, and their longest.
const SPARE_LISTS_MAX: usize = 4;
const SPARE_LIST_LEN_MAX: usize = 32;

/// Fields that matter here only by being there.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct HeaderExtras {
    pub(crate) has_policy: bool,
    pub(crate) has_announcement: bool,
}

/// A fragment as it came: the header of its LpPacket and its piece of the packet.
pub(crate) struct Fragment<'a> {
    pub(crate) framing: LpFraming,
    pub(crate) header: LpHeader,
    pub(crate) extras: HeaderExtras,
    pub(crate) octets: &'a [u8],
}

/// A packet put together, with the header of its fragment 0.
pub(crate) struct ReassembledPacket {
    pub(crate) header: LpHeader,
    pub(crate) extras: HeaderExtras,
    pub(crate) packet: Packet,
}

/// Packets of one sender of which some fragments are here. Identifiers and deadlines lie in columns
/// of their own, since every fragment searches the former and a full table the latter.
#[derive(Debug, Default)]
pub(crate) struct Reassembly {
    ids: Vec<u64>,
    deadlines: Vec<Instant>,
    partials: Vec<PartialPacket>,
    bytes: usize,
    /// Not later than the earliest of `deadlines`.
    earliest: Instant,
    /// Emptied lists of early fragments, for the next partials.
    spare: Vec<Vec<(u32, Packet)>>,
}

struct PartialPacket {
    /// Of fragment 0, once it is here.
    header: Option<(LpHeader, HeaderExtras)>,
    /// Highest mark on any fragment: NFD may mark any of them, and none is to be lost.
    congestion_mark: u64,
    frag_count: u32,
    /// Fragments 0 up to this one are in `buffer`.
    appended: u32,
    /// Fragments beyond a gap, highest index first. Copies, so that they hold no receive blocks.
    early: Vec<(u32, Packet)>,
    buffer: PacketMut,
    filled: usize,
    early_len: usize,
    /// Octets of memory this partial holds.
    charge: usize,
}

impl fmt::Debug for PartialPacket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Partial")
            .field("frag_count", &self.frag_count)
            .field("appended", &self.appended)
            .field("early", &self.early.len())
            .finish_non_exhaustive()
    }
}

impl Reassembly {
    /// Takes one fragment of several. `Ok(None)` means that more are needed.
    pub(crate) fn accept(
        &mut self,
        now: Instant,
        fragment: &Fragment<'_>,
        config: &CodecConfig,
        pool: &mut Pool,
        drops: &mut DropCounters,
    ) -> Result<Option<ReassembledPacket>, LinkDrop> {
        self.expire(now, drops);
        let LpFraming { sequence, frag_index: index, frag_count: count, .. } = fragment.framing;
        if count == 0 || count > FRAGMENT_COUNT_MAX {
            return Err(LinkDrop::FragmentCount);
        }
        if index >= count {
            return Err(LinkDrop::FragmentIndex);
        }
        let sequence = sequence.ok_or(LinkDrop::FragmentUnnumbered)?;
        let id = sequence.wrapping_sub(index);
        let (index, count) = (index as u32, count as u32);
        let deadline = now.plus_ns(config.reassembly_timeout_ns());
        let known = self.ids.iter().rposition(|&known| known == id);
        if let Some(at) = known {
            if self.partials[at].frag_count != count {
                return Err(LinkDrop::FragmentMismatch);
            }
            if self.partials[at].has(index) {
                return Err(LinkDrop::FragmentDuplicate);
            }
        }
        let fragment_len = fragment.octets.len();
        let size = if known.is_some() { fragment_len } else { size_estimate(fragment_len, count) };
        let at = match self.make_room(id, Pool::footprint(size), config, drops) {
            Some(at) => at,
            None => self.begin(id, count, size, pool),
        };
        let partial = &mut self.partials[at];
        if partial.filled + partial.early_len + fragment.octets.len() > PACKET_SIZE_MAX {
            self.remove(at);
            return Err(LinkDrop::ReassembledTooLarge);
        }
        let charge_before = partial.charge;
        partial.add(index, fragment, pool);
        let is_complete = partial.appended == partial.frag_count;
        self.bytes += partial.charge - charge_before;
        self.deadlines[at] = deadline;
        self.earliest = if self.ids.len() == 1 { deadline } else { self.earliest.min(deadline) };
        Ok(is_complete.then(|| self.remove(at).into_packet(&mut self.spare)))
    }

    /// Gives up the packets whose time has come.
    pub(crate) fn expire(&mut self, now: Instant, drops: &mut DropCounters) {
        if self.ids.is_empty() || now < self.earliest {
            return;
        }
        for at in (0..self.ids.len()).rev() {
            if self.deadlines[at] <= now {
                self.discard(at);
                drops.count(LinkDrop::ReassemblyTimeout);
            }
        }
        self.earliest = self.deadlines.iter().copied().min().unwrap_or(Instant::FAR_FUTURE);
    }

    /// When [`expire`](Self::expire) may have something to do; may be early, never late.
    pub(crate) fn next_wakeup(&self) -> Option<Instant> {
        (!self.ids.is_empty()).then_some(self.earliest)
    }

    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Deadline, identifier and octets of memory of each partial packet.
    pub(crate) fn partials(&self) -> impl Iterator<Item = (Instant, u64, usize)> {
        let rows = self.deadlines.iter().zip(&self.ids).zip(&self.partials);
        rows.map(|((&deadline, &id), partial)| (deadline, id, partial.charge))
    }

    /// Gives up a partial packet. False if there is none of this identifier.
    pub(crate) fn discard_id(&mut self, id: u64) -> bool {
        let at = self.ids.iter().rposition(|&known| known == id);
        at.map(|at| self.discard(at)).is_some()
    }

    /// Gives back the memory of empty tables.
    pub(crate) fn shrink(&mut self) {
        if self.ids.is_empty() {
            *self = Self::default();
        }
    }

    fn begin(&mut self, id: u64, frag_count: u32, size: usize, pool: &mut Pool) -> usize {
        let buffer = pool.alloc(size);
        let charge = Pool::footprint(buffer.capacity()) + PARTIAL_BYTES;
        self.bytes += charge;
        self.ids.push(id);
        self.deadlines.push(Instant::FAR_FUTURE);
        self.partials.push(PartialPacket {
            header: None,
            congestion_mark: 0,
            frag_count,
            appended: 0,
            early: self.spare.pop().unwrap_or_default(),
            buffer,
            filled: 0,
            early_len: 0,
            charge,
        });
        self.ids.len() - 1
    }

    /// Gives up the messages idle longest, other than `keep`, until there is room for `needed`
    /// octets and one more message. Returns where `keep` then lies.
    fn make_room(
        &mut self,
        keep: u64,
        needed: usize,
        config: &CodecConfig,
        drops: &mut DropCounters,
    ) -> Option<usize> {
        loop {
            let kept_at = self.ids.iter().rposition(|&id| id == keep);
            let is_new = kept_at.is_none();
            let is_full = is_new && self.ids.len() >= config.partials_max.max(1);
            if !is_full && self.bytes + needed <= config.partial_bytes_max {
                return kept_at;
            }
            let others = (0..self.ids.len()).filter(|&at| Some(at) != kept_at);
            let Some(oldest) = others.min_by_key(|&at| self.deadlines[at]) else {
                return kept_at;
            };
            self.discard(oldest);
            drops.count(LinkDrop::ReassemblyFull);
        }
    }

    fn remove(&mut self, at: usize) -> PartialPacket {
        self.ids.swap_remove(at);
        self.deadlines.swap_remove(at);
        let partial = self.partials.swap_remove(at);
        self.bytes -= partial.charge;
        partial
    }

    fn discard(&mut self, at: usize) {
        let early = self.remove(at).early;
        keep_spare(&mut self.spare, early);
    }
}

/// Keeps a list for the next partial packet, unless it grew long or there are enough.
fn keep_spare(spare: &mut Vec<Vec<(u32, Packet)>>, mut early: Vec<(u32, Packet)>) {
    if spare.len() < SPARE_LISTS_MAX && early.capacity() <= SPARE_LIST_LEN_MAX {
        early.clear();
        spare.push(early);
    }
}

/// How much one buffer for all fragments must hold, as far as the first to come tells. Fragment 0
/// is shorter than the others by its headers, hence the margin.
fn size_estimate(fragment_len: usize, frag_count: u32) -> usize {
    ((fragment_len + 64) * frag_count as usize).min(PACKET_SIZE_MAX)
}

impl PartialPacket {
    fn has(&self, index: u32) -> bool {
        index < self.appended || self.early_position(index).is_ok()
    }

    fn early_position(&self, index: u32) -> Result<usize, usize> {
        self.early.binary_search_by(|(early, _)| index.cmp(early))
    }

    fn add(&mut self, index: u32, fragment: &Fragment<'_>, pool: &mut Pool) {
        self.congestion_mark |= fragment.header.congestion_mark;
        if index == 0 {
            self.header = Some((fragment.header.clone(), fragment.extras));
        }
        if index != self.appended {
            let at = self.early_position(index).expect_err("duplicates are refused before");
            self.early.insert(at, (index, pool.copy(fragment.octets)));
            self.early_len += fragment.octets.len();
            self.charge += Pool::footprint(fragment.octets.len()) + EARLY_BYTES;
            return;
        }
        self.append(fragment.octets, pool);
        while self.early.last().is_some_and(|&(next, _)| next == self.appended) {
            let (_, octets) = self.early.pop().expect("just looked at");
            self.early_len -= octets.len();
            self.append(&octets, pool);
        }
    }

    fn append(&mut self, octets: &[u8], pool: &mut Pool) {
        let end = self.filled + octets.len();
        if end > self.buffer.capacity() {
            let mut larger = pool.alloc(PACKET_SIZE_MAX);
            larger[..self.filled].copy_from_slice(&self.buffer[..self.filled]);
            self.charge += Pool::footprint(larger.capacity());
            self.buffer = larger;
        }
        self.buffer[self.filled..end].copy_from_slice(octets);
        self.filled = end;
        self.appended += 1;
    }

    fn into_packet(self, spare: &mut Vec<Vec<(u32, Packet)>>) -> ReassembledPacket {
        debug_assert!(self.early.is_empty());
        keep_spare(spare, self.early);
        let (mut header, extras) = self.header.expect("fragment 0 is among all");
        header.congestion_mark = self.congestion_mark;
        ReassembledPacket { header, extras, packet: self.buffer.freeze(self.filled) }
    }
}
