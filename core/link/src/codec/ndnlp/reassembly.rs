use alloc::vec::Vec;
use core::fmt;

use weir_base::{Instant, Packet, PacketMut, Pool};
use weir_wire::PACKET_SIZE_MAX;
use weir_wire::lp::{LpFraming, LpHeader};

use crate::codec::config::{CodecConfig, FRAGMENT_COUNT_MAX};
use crate::counters::{DropCounters, LinkDrop};

/// Memory of a partial packet in bytes, without its buffer and its early fragments.
const PARTIAL_BYTES: usize = 2 * size_of::<PartialPacket>();
/// Memory of an early fragment in its list, in bytes. Up to half of the list is unused, because the
/// list doubles when it grows.
const EARLY_BYTES: usize = 2 * size_of::<(u32, Packet)>();
/// Number of early-fragment lists that are kept for reuse, and their maximum length.
const SPARE_LISTS_MAX: usize = 4;
const SPARE_LIST_LEN_MAX: usize = 32;

/// Whether certain header fields are present. Their values do not matter here.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct HeaderExtras {
    pub(crate) has_policy: bool,
    pub(crate) has_announcement: bool,
}

/// A received fragment: the header of its LpPacket, and its bytes of the packet.
pub(crate) struct Fragment<'a> {
    pub(crate) framing: LpFraming,
    pub(crate) header: LpHeader,
    pub(crate) extras: HeaderExtras,
    /// PrefixAnnouncement.
    pub(crate) announcement: Option<&'a [u8]>,
    pub(crate) octets: &'a [u8],
}

/// A complete packet with the header of its fragment 0.
pub(crate) struct ReassembledPacket {
    pub(crate) header: LpHeader,
    pub(crate) extras: HeaderExtras,
    pub(crate) announcement: Option<Packet>,
    pub(crate) packet: Packet,
}

/// Reassembles the fragments of one sender into packets.
///
/// Fragments of a packet have consecutive Sequence numbers. `Sequence - FragIndex` is therefore the
/// same for all of them, and identifies the packet. For each fragment, [`Reassembly::accept`] does
/// the following:
///
/// 1. Partial packets whose deadline has passed are dropped.
/// 2. The fragment is refused if FragCount is 0 or above 400, if FragIndex is not below FragCount,
///    or if it has no Sequence. It is also refused if the packet is known with another FragCount,
///    or already has this fragment.
/// 3. If there are too many partial packets, or they use too much memory, the longest idle ones are
///    dropped. The packet of this fragment is never dropped.
/// 4. For a new packet, one buffer is allocated. Its size follows from the first fragment that
///    arrives: `(length + 64) * FragCount`, at most 8800 bytes.
/// 5. If all fragments together exceed the largest packet (8800 bytes), the packet is dropped.
/// 6. The next fragment in order is appended to the buffer, followed by early fragments that now
///    fit. A fragment beyond a gap is copied to `early`.
/// 7. With the last fragment, the packet is complete. It has the header of fragment 0, and the
///    congestion marks of all fragments. Otherwise the deadline moves to 500 ms from now (10 s with
///    reliability).
///
/// Example: a packet of four fragments has the Sequences 100 to 103, so its identifier is 100. They
/// arrive as 100, 102, 101, 103. Fragment 0 is appended. Fragment 2 is early. Fragment 1 is
/// appended, and then fragment 2 from `early`. Fragment 3 completes the packet.
///
/// It must never combine fragments of two packets. It must never keep a receive block in use, so it
/// copies all fragments. It must never use more memory than configured, except for the packet of
/// the latest fragment.
///
/// Identifiers and deadlines are stored in columns of their own. Every fragment searches the
/// identifiers, and a full table searches the deadlines.
#[derive(Debug, Default)]
pub(crate) struct Reassembly {
    ids: Vec<u64>,
    deadlines: Vec<Instant>,
    partials: Vec<PartialPacket>,
    bytes: usize,
    /// A lower bound of `deadlines`.
    earliest: Instant,
    /// Emptied lists of early fragments, for reuse.
    spare: Vec<Vec<(u32, Packet)>>,
}

struct PartialPacket {
    /// The header of fragment 0, when it has arrived.
    header: Option<(LpHeader, HeaderExtras)>,
    /// The PrefixAnnouncement of fragment 0.
    announcement: Option<Packet>,
    /// The marks of all fragments, combined by OR. NFD may mark any fragment, and no mark may be
    /// lost.
    congestion_mark: u64,
    frag_count: u32,
    /// Number of fragments in `buffer`: all from 0 up to the first gap.
    appended: u32,
    /// Fragments beyond a gap, highest index first. They are copies, so they keep no receive block
    /// in use.
    early: Vec<(u32, Packet)>,
    buffer: PacketMut,
    filled: usize,
    early_len: usize,
    /// Memory of this partial packet in bytes.
    charge: usize,
}

impl fmt::Debug for PartialPacket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PartialPacket")
            .field("frag_count", &self.frag_count)
            .field("appended", &self.appended)
            .field("early", &self.early.len())
            .finish_non_exhaustive()
    }
}

impl Reassembly {
    /// Handles one fragment. Returns `Ok(None)` if the packet is not complete yet.
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
        // All fragments of a packet have the same difference of Sequence and FragIndex.
        let id = sequence.wrapping_sub(index);
        let (index, count) = (index as u32, count as u32);
        let deadline = now.plus_ns(config.reassembly_timeout_ns());
        // Newest first: consecutive fragments most often belong to the last packet.
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
        // The first fragment decides the size of the whole buffer. A later fragment usually fits
        // into the buffer. Its room is checked anyway, because it may be early and need a copy.
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
        // Every fragment extends the deadline of its packet.
        let is_complete = partial.appended == partial.frag_count;
        self.bytes += partial.charge - charge_before;
        self.deadlines[at] = deadline;
        self.earliest = if self.ids.len() == 1 { deadline } else { self.earliest.min(deadline) };
        Ok(is_complete.then(|| self.remove(at).into_packet(&mut self.spare)))
    }

    /// Drops the packets that have timed out.
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

    /// When [`expire`](Self::expire) must be called next. The time may be too early, but never too
    /// late.
    pub(crate) fn next_wakeup(&self) -> Option<Instant> {
        (!self.ids.is_empty()).then_some(self.earliest)
    }

    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Deadline, identifier and memory of each partial packet, in bytes.
    pub(crate) fn partials(&self) -> impl Iterator<Item = (Instant, u64, usize)> {
        let rows = self.deadlines.iter().zip(&self.ids).zip(&self.partials);
        rows.map(|((&deadline, &id), partial)| (deadline, id, partial.charge))
    }

    /// Drops a partial packet. Returns whether there was one with this identifier.
    pub(crate) fn discard_id(&mut self, id: u64) -> bool {
        let at = self.ids.iter().rposition(|&known| known == id);
        at.map(|at| self.discard(at)).is_some()
    }

    /// Frees the memory of empty tables.
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
            announcement: None,
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

    /// Drops the packets that have been idle longest, except `keep`, until there is room for
    /// `needed` bytes and one more packet. Returns the new position of `keep`.
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
            // Only the packet itself is left. One packet may exceed the limit.
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

/// Keeps a list for reuse, unless it is long or there are enough.
fn keep_spare(spare: &mut Vec<Vec<(u32, Packet)>>, mut early: Vec<(u32, Packet)>) {
    if spare.len() < SPARE_LISTS_MAX && early.capacity() <= SPARE_LIST_LEN_MAX {
        early.clear();
        spare.push(early);
    }
}

/// The buffer size for all fragments, estimated from the first fragment that arrives. The margin is
/// needed because fragment 0 has less payload than other fragments.
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
            if let Some(announcement) = fragment.announcement {
                self.announcement = Some(Packet::from(announcement));
                self.charge += Pool::footprint(announcement.len());
            }
        }
        // A fragment beyond a gap waits in `early` until the gap is filled.
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
        let (announcement, packet) = (self.announcement, self.buffer.freeze(self.filled));
        ReassembledPacket { header, extras, announcement, packet }
    }
}
