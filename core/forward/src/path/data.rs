//! The Data path (NFD, incoming Data, unsolicited Data and outgoing Data pipelines).

use alloc::vec::Vec;
use core::iter::repeat_n;

use weir_base::{FaceId, Instant, NS_PER_MS, Packet};
use weir_store::NameHashes;
use weir_wire::{DataView, NameView, PitToken, tlv};

use crate::content::busy::Mark;
use crate::io::{DataSource, Outbox, UnsolicitedPolicy};
use crate::packet::ReceivedPacket;
use crate::router::Router;
use crate::scope::is_localhost;
use crate::shard::{Echo, Message};
use crate::stats::DropReason;
use crate::table::faces::Face;
use crate::table::measurements::FlightEnd;
use crate::table::pit::AwaitedSource;
use crate::table::prefixes::hash_proper_prefixes;
use crate::table::records::OutRecord;

impl Router {
    /// **scope -> PIT match -> store -> every downstream** -> egress.
    pub(crate) fn on_data(
        &mut self,
        now: Instant,
        received: &ReceivedPacket<'_>,
        data: &DataView<'_>,
        hashes: &NameHashes,
        out: &mut Outbox,
    ) {
        self.stats.in_data += 1;
        let Some(&face) = self.faces.find(received.face) else {
            return self.stats.drop_packet(DropReason::UnknownFace);
        };
        if !face.is_local() && is_localhost(data.name) {
            return self.stats.drop_packet(DropReason::Scope);
        }
        let mut matched = core::mem::take(&mut self.matched);
        matched.clear();
        self.find_pending(data, hashes.whole, &mut matched);
        let mut homes = 0;
        if self.is_sharded() {
            if !self.watches.is_empty() {
                homes = self.homes_of(data);
            }
            let is_exact = matched.iter().any(|&index| !self.pit.entry(index).can_be_prefix);
            if !is_exact && self.is_misled(received, data, out) {
                self.matched = matched;
                return;
            }
        }
        let token = Some(&received.header.pit_token);
        let refusal = self.keep_asked(&face, token, &mut matched, out);
        if matched.is_empty() {
            self.matched = matched;
            let no_cache = received.header.no_cache;
            return match homes {
                0 => self.on_unsolicited(now, &face, no_cache, refusal, data, *hashes),
                homes => self.have_judged(received, homes, out),
            };
        }
        self.satisfy(now, received, face, data, hashes, (&matched, homes), out);
        self.matched = matched;
    }

    /// Leaves the entries whose Interest was sent to `face`, from which Data with this PIT token
    /// came; none where it came in the name of a peer that would have returned the token of such an
    /// Interest. Without a token its source is proven. Returns why, when there were some and none
    /// is left.
    #[inline]
    pub(crate) fn keep_asked(
        &mut self,
        face: &Face,
        token: Option<&PitToken>,
        matched: &mut Vec<u32>,
        out: &mut Outbox,
    ) -> Option<DropReason> {
        if let [index] = matched[..]
            && self.pit.entry(index).is_first_asked(face.id())
            && !face.has_secret_tokens()
        {
            return None;
        }
        self.keep_asked_of(face, token, matched, out)
    }

    #[inline(never)]
    fn keep_asked_of(
        &mut self,
        face: &Face,
        token: Option<&PitToken>,
        matched: &mut Vec<u32>,
        out: &mut Outbox,
    ) -> Option<DropReason> {
        if matched.is_empty() || self.config.data_source == DataSource::Any {
            return None;
        }
        let pit = &self.pit;
        let is_asked = |record: OutRecord| record.face == face.id();
        matched.retain(|&index| pit.entry(index).upstreams().any(is_asked));
        if matched.is_empty() {
            return Some(DropReason::NotAsked);
        }
        if let Some(token) = token.filter(|_| face.has_secret_tokens()) {
            let (id, kind) = (face.id(), face.tokens());
            let secret = |&index: &u32| self.sender.secret_token(id, kind, pit.entry(index));
            let has_token = matched.iter().map(secret).any(|secret| *token == secret);
            if !self.is_believed(face.id(), Echo::Data, has_token, out) {
                matched.clear();
                return Some(DropReason::Spoofed);
            }
        }
        None
    }

    /// Whether a packet is its peer's, which comes in the name of a peer that strangers can send in
    /// the name of: it bears the PIT token of its Interest, or the peer returns none. What one
    /// shard learns of a peer the others are told.
    pub(crate) fn is_believed(
        &mut self,
        face: FaceId,
        echo: Echo,
        has_token: bool,
        out: &mut Outbox,
    ) -> bool {
        let echoes = self.faces.echoes(face, echo);
        if has_token && !echoes {
            self.faces.set_echoes(face, echo);
            self.tell_others(|| Message::Echoes { face, echo }, out);
        }
        has_token || !echoes
    }

    /// Appends the entries that `data` matches by name, whatever they ask of its freshness.
    #[inline(always)]
    pub(crate) fn find_pending(&mut self, data: &DataView<'_>, hash: u64, matched: &mut Vec<u32>) {
        self.find_by_name(data, hash, matched);
        if self.pit.wants_digest(data.name.component_count()) {
            self.find_by_digest(data, matched);
        }
    }

    #[inline(always)]
    fn find_by_name(&mut self, data: &DataView<'_>, hash: u64, matched: &mut Vec<u32>) {
        self.pit.matches(data.name, hash, matched);
        if self.pit.has_prefixes() {
            self.prefix_hashes.clear();
            let key = &self.config.hash_key;
            hash_proper_prefixes(key, data.name, &mut self.prefix_hashes);
            self.pit.matches_by_prefix(data.name, &self.prefix_hashes, matched);
        }
    }

    #[inline(never)]
    fn find_by_digest(&mut self, data: &DataView<'_>, matched: &mut Vec<u32>) {
        let digest = data.implicit_digest();
        self.full_name.clear();
        self.full_name.extend_from_slice(data.name.value());
        self.full_name
            .extend_from_slice(&[tlv::IMPLICIT_SHA256_DIGEST_COMPONENT as u8, digest.len() as u8]);
        self.full_name.extend_from_slice(&digest);
        let hash = self.config.hash_key.hash(&self.full_name);
        let full_name = NameView::from_value(&self.full_name).expect("a name and one component");
        self.pit.matches(full_name, hash, matched);
    }

    pub(crate) fn store(
        &mut self,
        now: Instant,
        data: &DataView<'_>,
        hashes: NameHashes,
        source: FaceId,
    ) -> Option<Packet> {
        let key = &self.config.hash_key;
        let prefixes = |path: &mut Vec<u64>| hash_proper_prefixes(key, data.name, path);
        // Identifiers of faces are given in a row: 32 bits tell those that there are apart.
        self.store.insert(now, data, hashes, source.0 as u32, prefixes, &mut self.pool)
    }

    /// Data that is not asked for, or was refused for this reason.
    #[cold]
    #[inline(never)]
    pub(crate) fn on_unsolicited(
        &mut self,
        now: Instant,
        face: &Face,
        no_cache: bool,
        refusal: Option<DropReason>,
        data: &DataView<'_>,
        hashes: NameHashes,
    ) {
        // Management tells of events whether somebody waits for them or not.
        if face.id() != FaceId::INTERNAL {
            self.stats.drop_packet(refusal.unwrap_or(DropReason::Unsolicited));
        }
        let is_admitted = match self.config.unsolicited {
            UnsolicitedPolicy::DropAll => false,
            UnsolicitedPolicy::AdmitLocal => face.is_local(),
            UnsolicitedPolicy::AdmitNetwork => !face.is_local(),
            UnsolicitedPolicy::AdmitAll => true,
        };
        if is_admitted && !no_cache {
            self.store(now, data, hashes, face.id());
        }
    }

    #[expect(clippy::too_many_arguments, reason = "one stage of the path, called once")]
    fn satisfy(
        &mut self,
        now: Instant,
        received: &ReceivedPacket<'_>,
        face: Face,
        data: &DataView<'_>,
        hashes: &NameHashes,
        (matched, homes): (&[u32], u64),
        out: &mut Outbox,
    ) {
        let stored = match received.header.no_cache {
            true => None,
            false => self.store(now, data, *hashes, received.face),
        };
        // The stored copy is sent on: a slice of what was received would pin a whole receive block.
        let outruns_disk = stored.is_some() && self.store.has_disk() && self.outruns_disk(now);
        let packet = stored.unwrap_or_else(|| received.packet.clone());
        let mut source = (received.face, received.header.congestion_mark);
        let is_marked = outruns_disk
            || self.config.busy.mark == Mark::Ecn && self.is_marked_for_bypass(matched);
        if is_marked {
            source.1 = source.1.max(1);
        }
        let sent = self.stats.out_data;
        let shown = (homes != 0).then(|| packet.clone());
        self.send_down(now, source, face.is_ad_hoc(), packet, data, matched, out);
        if is_marked {
            self.stats.busy.marked += self.stats.out_data - sent;
        }
        if let Some(packet) = shown {
            self.show((source, false), packet, homes, !matched.is_empty(), out);
        }
    }

    /// Whether Data is marked because it comes faster than disks write it: so consumers slow down
    /// before memory for what waits to be written runs out.
    #[inline(never)]
    fn outruns_disk(&mut self, now: Instant) -> bool {
        if self.config.busy.mark == Mark::Off {
            return false;
        }
        let backlog = self.store.write_backlog(now);
        backlog.is_some_and(|backlog| self.disk.write_marks.is_next_marked(now, backlog))
    }

    /// Whether one of these entries has passed by a disk whose queue earns its Data a mark.
    #[cold]
    fn is_marked_for_bypass(&self, matched: &[u32]) -> bool {
        let is_marked = |&index: &u32| {
            matches!(self.pit.entry(index).awaits, AwaitedSource::Bypass { is_marked: true, .. })
        };
        matched.iter().any(is_marked)
    }

    /// Sends Data to everybody who waits at the entries in `matched`, which end. `source` is where
    /// it comes from and its congestion mark.
    #[expect(clippy::too_many_arguments, reason = "one stage of two paths")]
    #[inline(always)]
    pub(crate) fn send_down(
        &mut self,
        now: Instant,
        source: (FaceId, u64),
        may_return: bool,
        packet: Packet,
        data: &DataView<'_>,
        matched: &[u32],
        out: &mut Outbox,
    ) {
        self.downstreams.clear();
        self.send_down_more(now, source, may_return, packet, data, matched, out);
    }

    /// The same, but to those in `downstreams`, who have got it.
    #[expect(clippy::too_many_arguments, reason = "one stage of three paths")]
    #[inline(always)]
    pub(crate) fn send_down_more(
        &mut self,
        now: Instant,
        source: (FaceId, u64),
        may_return: bool,
        packet: Packet,
        data: &DataView<'_>,
        matched: &[u32],
        out: &mut Outbox,
    ) {
        let served = self.downstreams.len();
        let may_repeat = matched.len() > 1 || served > 0;
        for &index in matched {
            let may = (may_return, may_repeat);
            self.finish_satisfied(now, index, source, may, data.freshness_ms);
        }
        if may_repeat {
            // The table's order of entries is not the same in every shard layout.
            self.downstreams[served..].sort_unstable_by(|(face, token), (other, other_token)| {
                (face, token.as_slice()).cmp(&(other, other_token.as_slice()))
            });
        }
        let downstreams = &self.downstreams[served..];
        for (to, packet) in downstreams.iter().zip(repeat_n(packet, downstreams.len())) {
            if let Some(egress) = self.faces.find(to.0) {
                let to = (to, egress.is_local());
                self.sender.data(to, source, data.name, packet, &mut self.stats, out);
            }
        }
    }

    /// Ends an entry that is answered. Adds those who wait there to `downstreams`, each face once
    /// for each PIT token.
    #[inline(always)]
    fn finish_satisfied(
        &mut self,
        now: Instant,
        index: u32,
        source: (FaceId, u64),
        (may_return, may_repeat): (bool, bool),
        freshness_ms: u64,
    ) {
        let from = source.0;
        let entry = self.pit.entry(index);
        for record in entry.all_downstreams(&[entry.downstream_here()]) {
            self.faces.end_wait(record.face_slot, record.face);
            if record.expiry <= now || (record.face == from && !may_return) {
                continue;
            }
            let downstream = (record.face, record.pit_token);
            if !may_repeat || !self.downstreams.contains(&downstream) {
                self.downstreams.push(downstream);
            }
        }
        for record in entry.all_upstreams(&[entry.upstream_here()]) {
            if record.face == from {
                self.stats.upstream_latency.record(now.ns_since(record.sent_at));
                let is_first = record.is_sent_once();
                self.measurements.answer(now, record.flight, is_first);
            } else {
                let is_store = from == FaceId::CONTENT_STORE;
                let end = if is_store { FlightEnd::Store } else { FlightEnd::OtherNextHop };
                self.measurements.end(now, record.flight, end);
            }
            // Data that stays fresh for long answers a looping Interest from the store.
            let freshness_ns = freshness_ms.saturating_mul(NS_PER_MS);
            if entry.must_be_fresh && freshness_ns < self.dead_nonces.lifetime_ns() {
                self.dead_nonces.insert(now, entry.hash, record.nonce);
            }
        }
        self.detach_wait_state(now, index, Some(source));
        self.stats.satisfied += 1;
        self.pool.recycle(self.pit.remove(index));
    }
}
