//! The store stage: finds what memory, disks and the stores of other shards have for an Interest.

use weir_base::Instant;
use weir_store::{Lookup, ShardAnswer};

use crate::content::decision::{ForwardingAction, StoreOutcome, StoredData};
use crate::incoming::{IncomingInterest, QueueState};
use crate::input::MissReports;
use crate::io::Event;
use crate::router::Router;
use crate::scope::is_localhost;
use crate::table::pit::AwaitedSource;

/// One in this many misses of an object's segments is reported.
const MISS_PERIOD: u64 = 64;

impl Router {
    /// Looks up the content store. With a pending entry it skips the lookup, as NFD does: memory
    /// had nothing when the entry was created. The source that the entry waits for then decides
    /// what follows.
    #[inline(always)]
    pub(crate) fn look_up(&mut self, incoming: &IncomingInterest<'_>) -> StoreOutcome {
        if let Some(index) = incoming.pit_index
            && let entry = self.tables.pit.entry(index)
            && entry.has_downstreams()
        {
            return StoreOutcome::Continue(match entry.awaits {
                AwaitedSource::Disk(waiter) => {
                    let since = self.content.disk.reads.waiter(waiter).since;
                    self.decide_for_pending(incoming, index, since)
                }
                AwaitedSource::Shards(query) => {
                    let since = self.content.queries.waiter(query).since;
                    self.decide_for_pending(incoming, index, since)
                }
                AwaitedSource::Bypass { .. } if self.tables.is_waiting(index, incoming) => {
                    // A retransmission: the next hop has not answered, so the disk is tried now.
                    ForwardingAction::RetryDisk
                }
                AwaitedSource::Bypass { .. }
                | AwaitedSource::Upstream
                | AwaitedSource::Announced => ForwardingAction::Forward,
            });
        }
        if incoming.interest.can_be_prefix && self.egress.is_sharded() {
            return self.look_up_prefix(incoming);
        }
        match self.content.store.lookup(self.now, &incoming.query) {
            Lookup::Hit(hit) => {
                // A hit in memory is marked only if the Interest waited in front of a blocking
                // store and found that queue over the threshold.
                let is_marked = incoming.received.queue_state == QueueState::QueuedAndMarked;
                StoreOutcome::Answer(StoredData { packet: hit.packet, is_marked })
            }
            Lookup::OnDisk(found) => {
                self.content.disk.neighbours.note_interest_from(self.now, &incoming.face);
                self.wait_or_bypass(incoming, found)
            }
            Lookup::Miss => {
                let is_reported = match self.content.reported_misses {
                    MissReports::Off => false,
                    MissReports::Local => incoming.face.is_local(),
                    MissReports::All => true,
                };
                if is_reported {
                    self.report_miss(incoming);
                }
                StoreOutcome::Continue(ForwardingAction::Forward)
            }
        }
    }

    /// Decides about an Interest whose entry at `index` has waited for a disk or for other shards
    /// since `since`. An Interest from another face waits together with the first one. A
    /// retransmission also goes upstream, but not before the strategy's suppression interval, and
    /// only if there is a next hop.
    fn decide_for_pending(
        &self,
        incoming: &IncomingInterest<'_>,
        index: u32,
        since: Instant,
    ) -> ForwardingAction {
        let entry = self.tables.pit.entry(index);
        // It already went upstream, so the strategy handles further transmissions.
        if entry.has_upstreams() {
            return ForwardingAction::Forward;
        }
        if !self.tables.is_waiting(index, incoming) {
            return ForwardingAction::Aggregate;
        }
        let strategy = self.tables.strategy(incoming.interest.name);
        let is_early = self.now.ns_since(since) < strategy.retransmission_ns(entry);
        if is_early || !self.has_next_hop(incoming.received.origin(), incoming.interest) {
            ForwardingAction::Suppress
        } else {
            ForwardingAction::Hedge
        }
    }

    /// Looks up an Interest with CanBePrefix on a router of several shards. Data with exactly this
    /// name in memory answers it at once. Other Data must be compared with what the other shards
    /// have.
    #[cold]
    #[inline(never)]
    fn look_up_prefix(&mut self, incoming: &IncomingInterest<'_>) -> StoreOutcome {
        let answer = self.content.store.lookup_shard(self.now, &incoming.query);
        if let ShardAnswer::Memory { packet, is_whole_name, .. } = answer
            // With a full PIT the Interest cannot wait for the other shards, so any Data in memory
            // answers it.
            && (is_whole_name || !self.make_room(incoming))
        {
            self.content.store.count_hit(&packet);
            let is_marked = incoming.received.queue_state == QueueState::QueuedAndMarked;
            return StoreOutcome::Answer(StoredData { packet, is_marked });
        }
        StoreOutcome::QueryShards
    }

    /// Reports that the store lacks an object, once for every 64 of its segments.
    #[cold]
    fn report_miss(&mut self, incoming: &IncomingInterest<'_>) {
        let name = incoming.interest.name;
        let segment = name.last().and_then(|component| component.as_segment()).unwrap_or(0);
        if segment > 0 && segment.is_multiple_of(MISS_PERIOD) && !is_localhost(name) {
            let (ingress, is_local) = (incoming.received.face, incoming.face.is_local());
            let object = name.parent().to_name();
            self.egress.push_event(Event::Missed { ingress, is_local, object });
        }
    }
}
