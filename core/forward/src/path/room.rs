//! Room in the PIT: whose pending Interests give way when it is full, and the end of those that
//! closed faces have left behind.

use core::cmp::Reverse;

use arrayvec::ArrayVec;
use weir_base::Instant;
use weir_wire::{NackReason, NameView};

use crate::egress::OutNack;
use crate::io::Outbox;
use crate::packet::{Asked, ReceivedPacket};
use crate::router::Router;
use crate::table::pit::entry_bytes_max;
use crate::table::prefixes::PrefixHashes;
use crate::table::refusals::Holder;

/// Entries that are looked at to find out who has the most.
const SAMPLE: usize = 32;
/// Entries of a sample that give way at most: enough that few Interests need a sample.
const DISPLACED_MAX: usize = 8;
/// Samples that one Interest may take: a large one needs the room of many small ones.
const ROUNDS_MAX: usize = 8;
/// How much more than others somebody must have to give way to them: those who have about the same
/// do not displace each other.
const EXCESS: u64 = 2;

/// An entry of a sample.
#[derive(Clone, Copy)]
struct Sampled {
    index: u32,
    bytes: u64,
    is_local: bool,
    holder: Holder,
}

/// A set of entries with something in common.
#[derive(Clone, Copy)]
enum Share {
    Host(u64),
    Prefix(usize),
    /// What a host has under a prefix.
    HostUnder(Holder),
}

impl Share {
    fn has(self, holder: Holder) -> bool {
        match self {
            Self::Host(host) => holder.host == host,
            Self::Prefix(prefix) => holder.prefix == prefix,
            Self::HostUnder(own) => holder.host == own.host && holder.prefix == own.prefix,
        }
    }

    fn bytes(self, sample: &[Sampled]) -> u64 {
        sample.iter().filter(|one| self.has(one.holder)).map(|one| one.bytes).sum()
    }

    /// The greatest of the shares that `share` makes of the entries of a sample.
    fn greatest(sample: &[Sampled], share: impl Fn(Holder) -> Self) -> Option<(u64, Self)> {
        let shares = sample.iter().map(|one| share(one.holder));
        shares.map(|share| (share.bytes(sample), share)).max_by_key(|(bytes, _)| *bytes)
    }
}

/// Whose entries of a sample give way to `asker`: those of the host that has the most, or under the
/// prefix that has the most. Within such a prefix, those of the host that has the most there.
fn heaviest(sample: &[Sampled], asker: Holder) -> Option<Share> {
    let host = Share::greatest(sample, |holder| Share::Host(holder.host))?;
    let prefix = Share::greatest(sample, |holder| Share::Prefix(holder.prefix))?;
    let is_more = |bytes: u64, own: Share| bytes > EXCESS * own.bytes(sample);
    let (bytes, share) = if host.0 >= prefix.0 { host } else { prefix };
    if !share.has(asker) {
        // It has more of the one kind; what the asker has of the same kind is compared.
        let own = match share {
            Share::Prefix(_) => Share::Prefix(asker.prefix),
            Share::Host(_) | Share::HostUnder(_) => Share::Host(asker.host),
        };
        return is_more(bytes, own).then_some(share);
    }
    if let Share::Host(_) = share {
        return None;
    }
    let under = |holder: Holder| match share.has(holder) {
        true => Share::HostUnder(holder),
        // Of no entry: no number is of both a host and a face.
        false => Share::HostUnder(Holder { host: u64::MAX, ..holder }),
    };
    let (bytes, share) = Share::greatest(sample, under)?;
    is_more(bytes, Share::HostUnder(asker)).then_some(share)
}

impl Router {
    /// Whether the PIT takes what is asked. When it is full, entries of others may end for it: see
    /// [`heaviest`]. Entries of this host's own programs end for one another only.
    #[inline(always)]
    pub(crate) fn make_room(
        &mut self,
        now: Instant,
        received: &ReceivedPacket<'_>,
        asked: &Asked<'_>,
        out: &mut Outbox,
    ) -> bool {
        let Asked { face, pending, .. } = asked;
        let is_waiting = pending.is_some_and(|index| self.is_waiting(index, received.face));
        if !is_waiting && face.waits_for() >= self.config.pit_entries_per_face_max {
            return false;
        }
        if self.pit.has_much_room() {
            return true;
        }
        let (entries, bytes) = match pending {
            Some(index) => (0, self.pit.downstream_bytes(*index, !is_waiting)),
            None => (1, entry_bytes_max(received.packet.len())),
        };
        bytes == 0
            || self.pit.has_room(entries, bytes)
            || self.displace_others(now, asked, (entries, bytes), out)
    }

    #[cold]
    #[inline(never)]
    fn displace_others(
        &mut self,
        now: Instant,
        asked: &Asked<'_>,
        (entries, bytes): (usize, u64),
        out: &mut Outbox,
    ) -> bool {
        let prefix = self.prefix_of(asked.query.name);
        let face = self.faces.get(asked.face.slot(), asked.face.id());
        let Some((_, host)) = face else { return false };
        let asker = Holder { host, prefix };
        if self.refusals.has(now, asker) {
            return false;
        }
        for _ in 0..ROUNDS_MAX {
            if !self.displace_some(now, asked, asker, out) {
                break;
            }
            if self.pit.has_room(entries, bytes) {
                return true;
            }
        }
        self.refusals.add(now, asker);
        false
    }

    /// Ends entries of one sample. Returns whether any gave way.
    fn displace_some(
        &mut self,
        now: Instant,
        asked: &Asked<'_>,
        asker: Holder,
        out: &mut Outbox,
    ) -> bool {
        let mut sample = ArrayVec::<Sampled, SAMPLE>::new();
        let mut displaced = ArrayVec::<u32, SAMPLE>::new();
        for index in self.random_entries() {
            if Some(index) == asked.pending {
                continue;
            }
            match self.sampled(index) {
                Some(sampled) => sample.push(sampled),
                // Whoever waited there is gone.
                None => displaced.push(index),
            }
        }
        if displaced.is_empty() {
            // Other hosts' entries give way to this host's, never the other way round.
            let has_remote = sample.iter().any(|one| !one.is_local);
            let is_local = asked.face.is_local();
            sample.retain(|one| !one.is_local || is_local && !has_remote);
            let Some(share) = heaviest(&sample, asker) else { return false };
            let of_share = sample.iter().filter(|one| share.has(one.holder));
            displaced.extend(of_share.map(|one| one.index).take(DISPLACED_MAX));
        }
        for index in displaced.iter().copied() {
            self.stats.displaced += 1;
            self.end_with_nack(now, index, OutNack::own(NackReason::Congestion), out);
        }
        true
    }

    /// Entries drawn at random, each once.
    fn random_entries(&mut self) -> ArrayVec<u32, SAMPLE> {
        let mut drawn = ArrayVec::new();
        for _ in 0..SAMPLE {
            match self.pit.draw(&mut self.rng) {
                Some(index) if !drawn.contains(&index) => drawn.push(index),
                _ => {}
            }
        }
        drawn
    }

    /// What is to be known of an entry; nothing when all that waited there are gone. Where several
    /// wait it counts for the one that would be displaced last.
    fn sampled(&mut self, index: u32) -> Option<Sampled> {
        let entry = self.pit.entry(index);
        let name = NameView::from_value(entry.name_value()).expect("the PIT holds valid names");
        let prefix = self.prefix_of(name);
        let records = entry.downstreams();
        let faces = records.filter_map(|record| self.faces.get(record.face_slot, record.face));
        let (face, host) =
            faces.max_by_key(|(face, _)| (face.is_local(), Reverse(face.waits_for())))?;
        let holder = Holder { host, prefix };
        Some(Sampled { index, bytes: entry.bytes(), is_local: face.is_local(), holder })
    }

    /// A number for the FIB prefix of a name.
    fn prefix_of(&self, name: NameView<'_>) -> usize {
        let mut hashes = PrefixHashes::default();
        hashes.add(&self.config.hash_key, name, self.fib.lengths());
        self.fib.prefix_number(name, &hashes)
    }

    /// Looks at some more entries for those that only closed faces wait for.
    #[inline]
    pub(crate) fn end_orphans(&mut self, now: Instant) {
        if self.orphans.is_due(now) {
            self.end_some_orphans(now);
        }
    }

    #[cold]
    #[inline(never)]
    fn end_some_orphans(&mut self, now: Instant) {
        for index in self.orphans.advance(now) {
            if let Some(entry) = self.pit.get(index)
                && entry
                    .downstreams()
                    .all(|record| self.faces.get(record.face_slot, record.face).is_none())
            {
                self.finish_unsatisfied(now, index);
            }
        }
    }
}
