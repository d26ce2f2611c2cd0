//! Checks that each link direction carries at most one Data or Nack for each Interest.
//!
//! The record lives at the end of a link that answers. An Interest counts once the link has
//! delivered it there. An answer counts when it leaves. Frames lost before or after those points
//! therefore do not matter: they allow no second answer and cause no violation.

use std::collections::hash_map::Entry;

use weir_wire::DataView;

use crate::peek::{Peek, ends_in_digest, prefix_ends};
use weir_plan::hash::{HashedMap, of_octets};

/// Open Interests of one name, by their expiry in ns. An answer that leaves later than the expiry
/// is solicited by none of them.
///
/// A name nearly always has one open Interest, so the latest expiry is stored without an
/// allocation.
#[derive(Clone, Debug)]
struct OpenInterests {
    last_ns: u64,
    /// Expiry of the other Interests, ascending and no later than `last_ns`.
    earlier_ns: Vec<u64>,
}

impl OpenInterests {
    fn new(expires_ns: u64) -> Self {
        Self { last_ns: expires_ns, earlier_ns: Vec::new() }
    }

    /// Adds an Interest after it drops the expired ones.
    fn add(&mut self, now_ns: u64, expires_ns: u64) {
        if self.last_ns < now_ns {
            *self = Self::new(expires_ns);
            return;
        }
        self.earlier_ns.retain(|&at_ns| at_ns >= now_ns);
        let earlier_ns = self.last_ns.min(expires_ns);
        self.last_ns = self.last_ns.max(expires_ns);
        let at = self.earlier_ns.partition_point(|&at_ns| at_ns <= earlier_ns);
        self.earlier_ns.insert(at, earlier_ns);
    }

    /// Consumes the unexpired Interest that expires first. Returns whether there was one, and
    /// whether none is left.
    fn take(&mut self, now_ns: u64) -> (bool, bool) {
        if self.last_ns < now_ns {
            return (false, true);
        }
        // If all earlier ones have expired, this consumes the Interest of `last_ns`. The caller
        // then removes the entry.
        let void = self.earlier_ns.partition_point(|&at_ns| at_ns < now_ns);
        let is_last = void == self.earlier_ns.len();
        self.earlier_ns.drain(..if is_last { void } else { void + 1 });
        (true, is_last)
    }
}

/// Number of names at which the first sweep for expired Interests runs.
const SWEEP_MIN: usize = 64;
/// Separates the keys of Interests with CanBePrefix from the keys of exact names.
const PREFIX_SALT: u64 = 0x5bf0_3635_dcc9_8b87;

/// The Interests that arrived at one end of a link and that it may still answer.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    open: HashedMap<OpenInterests>,
    /// Interests with CanBePrefix since `open` was last empty. While it is 0, prefixes are not
    /// searched.
    prefixes: u32,
    /// Whether an Interest with an implicit digest arrived since `open` was last empty.
    has_digests: bool,
    sweep_at: usize,
}

fn key(name: &[u8], can_be_prefix: bool) -> u64 {
    of_octets(name) ^ if can_be_prefix { PREFIX_SALT } else { 0 }
}

impl Answers {
    /// Records a delivered Interest and returns its lifetime in ns. The node may answer until
    /// `patience_ns` after that lifetime.
    pub(crate) fn on_interest(
        &mut self,
        now_ns: u64,
        packet: &[u8],
        peek: &Peek,
        patience_ns: u64,
    ) -> u64 {
        let name = peek.name_value(packet);
        let (can_be_prefix, lifetime_ms) = peek.selectors(packet);
        let lifetime_ns = lifetime_ms.saturating_mul(1_000_000);
        let expires_ns = now_ns.saturating_add(lifetime_ns).saturating_add(patience_ns);
        self.has_digests |= ends_in_digest(name);
        if self.open.len() >= self.sweep_at.max(SWEEP_MIN) {
            self.sweep(now_ns);
        }
        match self.open.entry(key(name, can_be_prefix)) {
            Entry::Occupied(mut open) => open.get_mut().add(now_ns, expires_ns),
            Entry::Vacant(place) => {
                self.prefixes += u32::from(can_be_prefix);
                place.insert(OpenInterests::new(expires_ns));
            }
        }
        lifetime_ns
    }

    /// Drops expired Interests, so that memory use follows the number of open ones.
    fn sweep(&mut self, now_ns: u64) {
        self.open.retain(|_, open| open.last_ns >= now_ns);
        if self.open.is_empty() {
            self.prefixes = 0;
            self.has_digests = false;
        }
        self.sweep_at = 2 * self.open.len();
    }

    /// Drops everything: the node that would have answered has crashed.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Records that a Data leaves. Returns false if no unexpired Interest matches it.
    pub(crate) fn on_data(&mut self, now_ns: u64, packet: &[u8], peek: &Peek) -> bool {
        let name = peek.name_value(packet);
        self.take(now_ns, of_octets(name))
            || self.prefixes > 0 && self.take_prefix(now_ns, name)
            || self.has_digests && self.take_digest(now_ns, packet, name)
    }

    /// Records that a Nack leaves. Returns false if its Interest has expired or never arrived.
    pub(crate) fn on_nack(&mut self, now_ns: u64, packet: &[u8], peek: &Peek) -> bool {
        let (can_be_prefix, _) = peek.selectors(packet);
        self.take(now_ns, key(peek.name_value(packet), can_be_prefix))
    }

    #[inline]
    fn take(&mut self, now_ns: u64, key: u64) -> bool {
        let Entry::Occupied(mut entry) = self.open.entry(key) else {
            return false;
        };
        let (is_valid, is_used_up) = entry.get_mut().take(now_ns);
        if is_used_up {
            entry.remove();
        }
        is_valid
    }

    /// Tries the longest prefix first. Fewest Data match it, so no later Data loses its Interest to
    /// this one.
    fn take_prefix(&mut self, now_ns: u64, name: &[u8]) -> bool {
        let ends = prefix_ends(name);
        let mut lengths = std::iter::once(name.len()).chain(ends.into_iter().rev());
        lengths.any(|end| self.take(now_ns, key(&name[..end], true)))
    }

    fn take_digest(&mut self, now_ns: u64, packet: &[u8], name: &[u8]) -> bool {
        let Ok(data) = DataView::decode(packet) else { return false };
        let mut full_name = name.to_vec();
        full_name.extend_from_slice(&[1, 32]);
        full_name.extend_from_slice(&data.implicit_digest());
        self.take(now_ns, of_octets(&full_name)) || self.take(now_ns, key(&full_name, true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_wire::{Data, Interest, Name};

    fn interest(uri: &str, can_be_prefix: bool) -> Vec<u8> {
        let name: Name = uri.parse().unwrap();
        Interest::new(name).can_be_prefix(can_be_prefix).lifetime_ms(1000).encode()
    }

    fn data(uri: &str) -> Vec<u8> {
        Data::new(uri.parse().unwrap()).content([1, 2, 3]).encode_with_digest()
    }

    fn ask(answers: &mut Answers, now_ns: u64, wire: &[u8]) {
        answers.on_interest(now_ns, wire, &Peek::of(wire).unwrap(), 0);
    }

    fn answer(answers: &mut Answers, wire: &[u8]) -> bool {
        answer_at(answers, 0, wire)
    }

    fn answer_at(answers: &mut Answers, now_ns: u64, wire: &[u8]) -> bool {
        answers.on_data(now_ns, wire, &Peek::of(wire).unwrap())
    }

    #[test]
    fn detects_second_data() {
        let mut answers = Answers::default();
        ask(&mut answers, 0, &interest("/a/1", false));
        assert!(!answer(&mut answers, &data("/a/2")), "no open Interest");
        assert!(!answer(&mut answers, &data("/a/1/2")), "not below without CanBePrefix");
        assert!(answer(&mut answers, &data("/a/1")));
        assert!(!answer(&mut answers, &data("/a/1")), "once only");
        ask(&mut answers, 0, &interest("/a/1", false));
        ask(&mut answers, 0, &interest("/a/1", false));
        assert!(answer(&mut answers, &data("/a/1")));
        assert!(answer(&mut answers, &data("/a/1")));
        assert!(!answer(&mut answers, &data("/a/1")));
    }

    #[test]
    fn prefixes_digests_and_nacks() {
        let mut answers = Answers::default();
        ask(&mut answers, 0, &interest("/a", true));
        ask(&mut answers, 0, &interest("/a/b", true));
        assert!(answer(&mut answers, &data("/a/b/1")), "by the longer one");
        assert!(answer(&mut answers, &data("/a/c")));
        assert!(!answer(&mut answers, &data("/a/b/2")));
        let wire = data("/d/1");
        let digest = DataView::decode(&wire).unwrap().implicit_digest();
        let hex: String = digest.iter().map(|octet| format!("{octet:02x}")).collect();
        ask(&mut answers, 0, &interest(&format!("/d/1/sha256digest={hex}"), false));
        assert!(answer(&mut answers, &wire));
        assert!(!answer(&mut answers, &wire));
        let wire = interest("/n", true);
        ask(&mut answers, 0, &wire);
        assert!(answers.on_nack(0, &wire, &Peek::of(&wire).unwrap()));
        assert!(!answers.on_nack(0, &wire, &Peek::of(&wire).unwrap()));
    }

    /// The first Interest expired without an answer; only its retransmission allows one.
    #[test]
    fn expired_interest_allows_no_second_data() {
        const S: u64 = 1_000_000_000;
        let mut answers = Answers::default();
        let wire = interest("/a/1", false);
        ask(&mut answers, 0, &wire);
        assert!(!answer_at(&mut answers, S + 1, &data("/a/1")), "too late");
        ask(&mut answers, 0, &wire);
        ask(&mut answers, 2 * S, &wire);
        assert!(answer_at(&mut answers, 2 * S + 1, &data("/a/1")));
        assert!(!answer_at(&mut answers, 2 * S + 2, &data("/a/1")), "a second one");
        // A retransmission before the expiry allows two answers until then and one afterwards.
        for (answered_ns, count) in [(S, 2), (S + 1, 1)] {
            let mut answers = Answers::default();
            ask(&mut answers, 0, &wire);
            ask(&mut answers, S / 2, &wire);
            let found = (0..3).filter(|_| answer_at(&mut answers, answered_ns, &data("/a/1")));
            assert_eq!(found.count(), count);
        }
        // A later Interest with a shorter lifetime does not shorten the lifetime of the first.
        let short = Interest::new("/a/1".parse().unwrap()).lifetime_ms(100).encode();
        let mut answers = Answers::default();
        ask(&mut answers, 0, &wire);
        ask(&mut answers, S / 2, &short);
        assert!(answer_at(&mut answers, S, &data("/a/1")));
        assert!(!answer_at(&mut answers, S, &data("/a/1")));
        // An expired Interest allows no Nack either.
        ask(&mut answers, 2 * S, &wire);
        let peek = Peek::of(&wire).unwrap();
        assert!(!answers.on_nack(3 * S + 1, &wire, &peek));
    }

    #[test]
    fn memory_follows_open_interests() {
        let mut answers = Answers::default();
        for second in 0..100 {
            for number in 0..100 {
                let wire = interest(&format!("/{second}/{number}"), number % 2 == 0);
                ask(&mut answers, second * 1_000_000_000, &wire);
            }
        }
        assert!(answers.open.len() <= 600, "{}", answers.open.len());
    }
}
