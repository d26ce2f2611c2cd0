//! Which pending Interests end when the PIT is full and another one wants its place.

use core::cmp::Reverse;

use arrayvec::ArrayVec;
use weir_wire::NameView;

use crate::table::refusals::Holder;
use crate::tables::Tables;

/// Entries that are drawn at random to find the holder with the largest share.
pub(crate) const SAMPLE: usize = 32;
/// Entries of a sample that are evicted at most: enough that few Interests need a sample.
const VICTIMS_MAX: usize = 8;
/// A holder's entries are evicted only if it has more than this many times the share of the
/// requester. Holders of about the same share do not evict each other.
const EXCESS: u64 = 2;

#[derive(Clone, Copy)]
struct Sampled {
    index: u32,
    bytes: u64,
    is_local: bool,
    holder: Holder,
}

/// A set of entries with something in common.
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

    /// The greatest of the shares that `share` makes of the entries of a sample.
    fn greatest(sample: &[Sampled], share: impl Fn(Holder) -> Self) -> Option<(u64, Self)> {
        let shares = sample.iter().map(|entry| share(entry.holder));
        shares.map(|share| (share.bytes(sample), share)).max_by_key(|(bytes, _)| *bytes)
    }

    /// The share of a sample whose entries are evicted for `requester`: that of the host or of the
    /// prefix with the most bytes. Within its own prefix, that of the host with the most there.
    fn share_to_evict(sample: &[Sampled], requester: Holder) -> Option<Self> {
        let host = Self::greatest(sample, |holder| Self::Host(holder.host))?;
        let prefix = Self::greatest(sample, |holder| Self::Prefix(holder.prefix))?;
        let is_more = |bytes: u64, own: Self| bytes > EXCESS * own.bytes(sample);
        let (bytes, share) = if host.0 >= prefix.0 { host } else { prefix };
        if !share.has(requester) {
            // Compared with what the requester has of the same kind.
            let own = match share {
                Self::Prefix(_) => Self::Prefix(requester.prefix),
                Self::Host(_) | Self::HostUnder(_) => Self::Host(requester.host),
            };
            return is_more(bytes, own).then_some(share);
        }
        if let Self::Host(_) = share {
            return None;
        }
        let under = |holder: Holder| match share.has(holder) {
            true => Self::HostUnder(holder),
            // An empty share: no number belongs to both a host and a face.
            false => Self::HostUnder(Holder { host: u64::MAX, ..holder }),
        };
        let (bytes, share) = Self::greatest(sample, under)?;
        is_more(bytes, Self::HostUnder(requester)).then_some(share)
    }
}

impl Tables {
    /// Entries to evict for an Interest of `requester`, out of one random sample. None if no holder
    /// has much more than the requester. `kept` is never among them. Entries of programs of this
    /// host are evicted for one another only.
    pub(crate) fn victims(
        &mut self,
        requester: Holder,
        is_local: bool,
        kept: Option<u32>,
    ) -> ArrayVec<u32, SAMPLE> {
        let mut sample = ArrayVec::<Sampled, SAMPLE>::new();
        let mut orphans = ArrayVec::new();
        for index in self.random_entries() {
            if Some(index) == kept {
                continue;
            }
            match self.sampled(index) {
                Some(sampled) => sample.push(sampled),
                None => orphans.push(index),
            }
        }
        if !orphans.is_empty() {
            return orphans;
        }
        // Entries of other hosts are evicted for this host's, never the other way round.
        let has_remote = sample.iter().any(|entry| !entry.is_local);
        sample.retain(|entry| !entry.is_local || is_local && !has_remote);
        let Some(share) = PitShare::share_to_evict(&sample, requester) else {
            return ArrayVec::new();
        };
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

    /// The holder of an entry; `None` if all its downstreams have closed. If several wait, the
    /// entry counts for the one that would be evicted last.
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
