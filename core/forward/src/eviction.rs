//! Which pending Interests a full PIT evicts for a new one: fair shares by host and by prefix.
//!
//! A PIT is full when it has reached its maximum number of entries or of bytes. An attacker can
//! fill it with Interests for names that do not exist. The PIT therefore gives no one more than a
//! fair share while others need room. A **holder** is a host together with a FIB prefix. Random
//! samples estimate the shares, so no per-holder counters are kept, and an attacker cannot make the
//! search slow.
//!
//! The steps for an Interest that finds the PIT full (`make_room` and `evict_others` in
//! `path/pending.rs`, `Tables::victims` here):
//!
//! 1. A face that already waits for its maximum number of entries is refused at once.
//! 2. A holder that was refused within the last millisecond is refused again without a sample.
//! 3. 32 entries are drawn at random. Each counts for the host of one of its downstreams.
//! 4. If all downstreams of some of these entries have closed, these entries are evicted, and no
//!    others.
//! 5. Entries of programs on this host are removed from the sample. They stay only if the requester
//!    is local and the sample has no entry of another host.
//! 6. The bytes of the sample are summed by host and by prefix. The largest sum is the candidate.
//! 7. If the requester is not part of the candidate, entries are evicted if the sum exceeds
//!    [`EXCESS`] times the requester's own sum of the same kind. If the requester is part of it, a
//!    host evicts none of its own entries. For a prefix, step 6 is repeated for the hosts under
//!    this prefix.
//! 8. At most 8 of the candidate's entries end, each with a Congestion Nack. If there is still no
//!    room, the next sample is drawn, up to 8 samples for an Interest. Then the Interest is
//!    refused.
//!
//! Example, with entries of 500 bytes. A sample has 24 entries of host A under `/a`, and 6 of host
//! B and 2 of host C under `/b`. The sums are A 12,000, B 3,000, C 1,000, `/a` 12,000 and `/b`
//! 4,000, so host A is the candidate.
//!
//! | requester | compared | result |
//! |---|---|---|
//! | C | 12,000 > 2 * 1,000 | 8 entries of A are evicted |
//! | B | 12,000 > 2 * 3,000 | 8 entries of A are evicted |
//! | A | its own share is the largest | A is refused, and no sample is drawn for 1 ms |
//!
//! If many hosts flood one prefix, the prefix has the largest sum. Only entries under this prefix
//! are then evicted for Interests for other prefixes.
//!
//! Eviction must never do the following:
//!
//! - evict an entry of a local program for another host
//! - evict the entry that the Interest joins
//! - let holders of about the same share evict each other in turn
//! - draw more than 8 samples for one Interest

use core::cmp::Reverse;

use arrayvec::ArrayVec;
use weir_wire::NameView;

use crate::table::refusals::Holder;
use crate::tables::Tables;

/// Entries in one random sample.
pub(crate) const SAMPLE: usize = 32;
/// Maximum number of evicted entries for a sample, so that one sample makes room for several
/// Interests.
const VICTIMS_MAX: usize = 8;
/// An entry is evicted only if its holder has more than this many times the requester's share.
/// Without the factor, holders of about the same share would evict each other in turn.
const EXCESS: u64 = 2;

#[derive(Clone, Copy)]
struct Sampled {
    index: u32,
    bytes: u64,
    is_local: bool,
    holder: Holder,
}

/// A set of entries that have a holder in common.
#[derive(Clone, Copy)]
enum PitShare {
    Host(u64),
    Prefix(usize),
    /// Entries of one host under one prefix.
    HostUnder(Holder),
}

impl PitShare {
    fn has(self, holder: Holder) -> bool {
        match self {
            Self::Host(host) => holder.host == host,
            Self::Prefix(prefix) => holder.prefix == prefix,
            Self::HostUnder(own) => holder.host == own.host && holder.prefix == own.prefix,
        }
    }

    fn bytes(self, sample: &[Sampled]) -> u64 {
        sample.iter().filter(|entry| self.has(entry.holder)).map(|entry| entry.bytes).sum()
    }

    /// Divides a sample into shares by `share`. Returns the largest share, with its bytes.
    fn greatest(sample: &[Sampled], share: impl Fn(Holder) -> Self) -> Option<(u64, Self)> {
        let shares = sample.iter().map(|entry| share(entry.holder));
        shares.map(|share| (share.bytes(sample), share)).max_by_key(|(bytes, _)| *bytes)
    }

    /// The share of a sample whose entries are evicted for `requester` (steps 6 and 7).
    fn share_to_evict(sample: &[Sampled], requester: Holder) -> Option<Self> {
        let host = Self::greatest(sample, |holder| Self::Host(holder.host))?;
        let prefix = Self::greatest(sample, |holder| Self::Prefix(holder.prefix))?;
        let is_more = |bytes: u64, own: Self| bytes > EXCESS * own.bytes(sample);
        let (bytes, share) = if host.0 >= prefix.0 { host } else { prefix };
        if !share.has(requester) {
            // The requester's own share must be of the same kind to be comparable.
            let own = match share {
                Self::Prefix(_) => Self::Prefix(requester.prefix),
                Self::Host(_) | Self::HostUnder(_) => Self::Host(requester.host),
            };
            return is_more(bytes, own).then_some(share);
        }
        if let Self::Host(_) = share {
            return None;
        }
        // The requester is part of the largest prefix. The hosts under this prefix are compared
        // next.
        let under = |holder: Holder| match share.has(holder) {
            true => Self::HostUnder(holder),
            // An empty share: no host has this number.
            false => Self::HostUnder(Holder { host: u64::MAX, ..holder }),
        };
        let (bytes, share) = Self::greatest(sample, under)?;
        is_more(bytes, Self::HostUnder(requester)).then_some(share)
    }
}

impl Tables {
    /// Entries to evict for an Interest of `requester`, from one random sample. Empty if no holder
    /// has much more than the requester. Never includes `kept`, the entry that the Interest joins.
    pub(crate) fn victims(
        &mut self,
        requester: Holder,
        is_local: bool,
        kept: Option<u32>,
    ) -> ArrayVec<u32, SAMPLE> {
        let mut sample = ArrayVec::<Sampled, SAMPLE>::new();
        let mut closed = ArrayVec::new();
        for index in self.random_entries() {
            if Some(index) == kept {
                continue;
            }
            match self.sampled(index) {
                // Step 3: the holder of each drawn entry.
                Some(sampled) => sample.push(sampled),
                None => closed.push(index),
            }
        }
        // Step 4: entries that no downstream waits for are evicted first.
        if !closed.is_empty() {
            return closed;
        }
        // Step 5: entries of other hosts are evicted for local Interests, never the other way
        // round.
        let has_remote = sample.iter().any(|entry| !entry.is_local);
        sample.retain(|entry| !entry.is_local || is_local && !has_remote);
        // Steps 6 and 7: the share to reduce, if any.
        let Some(share) = PitShare::share_to_evict(&sample, requester) else {
            return ArrayVec::new();
        };
        // Step 8: at most 8 of its entries.
        let of_share = sample.iter().filter(|entry| share.has(entry.holder));
        of_share.map(|entry| entry.index).take(VICTIMS_MAX).collect()
    }

    fn random_entries(&mut self) -> ArrayVec<u32, SAMPLE> {
        let mut drawn = ArrayVec::new();
        for _ in 0..SAMPLE {
            match self.pit.sample(&mut self.rng) {
                Some(index) if !drawn.contains(&index) => drawn.push(index),
                _ => {}
            }
        }
        drawn
    }

    /// The holder of an entry; `None` if all its downstreams have closed. An entry with several
    /// downstreams counts for a local downstream, or otherwise for the downstream whose face has
    /// the fewest entries.
    fn sampled(&self, index: u32) -> Option<Sampled> {
        let entry = self.pit.entry(index);
        let name = NameView::from_value(entry.name_value()).expect("the PIT holds valid names");
        let prefix = self.prefix_number(name);
        let records = entry.downstreams();
        let faces = records.filter_map(|record| self.faces.get(record.face_slot, record.face));
        let (face, host) =
            faces.max_by_key(|(face, _)| (face.is_local(), Reverse(face.pending_count())))?;
        let holder = Holder { host, prefix };
        Some(Sampled { index, bytes: entry.bytes(), is_local: face.is_local(), holder })
    }
}
