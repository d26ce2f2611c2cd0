//! Generates open-loop load: single Interests at times that do not depend on answers.

use weir_base::{Instant, NS_PER_S, Rng};
use weir_transport::PathId;
use weir_wire::{DataView, InterestView, LpHeader};

use super::unanswered::Unanswered;
use super::{AppInput, AppOutbox, ConsumerCore};
use crate::app::interest::InterestTemplate;
use crate::event::EventKind;
use crate::workload::random::{below, mix};
use crate::workload::{
    ArrivalProcess, ConsumerPlan, Demand, ObjectChooser, Popularity, WorkloadError,
};

/// Limit on the Interests that a plan may keep in flight.
const IN_FLIGHT_MAX: f64 = (1 << 22) as f64;
/// The limit on Interests in flight is this many times their mean, plus `IN_FLIGHT_LEAST`.
const IN_FLIGHT_SPARE: f64 = 2.0;
const IN_FLIGHT_LEAST: f64 = 1024.0;

/// An open loop. Interests leave regardless of the answers to earlier ones.
#[derive(Debug)]
pub(super) struct OpenLoop {
    process: ArrivalProcess,
    next: Option<Instant>,
    segments: SegmentChooser,
    template: InterestTemplate,
    nonces: Rng,
    unanswered: Unanswered,
    /// Above this limit, the oldest Interest counts as timed out.
    in_flight_max: usize,
}

impl OpenLoop {
    pub(super) fn new(
        plan: &ConsumerPlan,
        core: &ConsumerCore,
        seed: u64,
    ) -> Result<Self, WorkloadError> {
        let Demand::Arrivals { arrivals } = &plan.demand else { unreachable!("the caller looked") };
        let mut process = ArrivalProcess::new(arrivals, plan.start_ns, mix(seed ^ 1))?;
        let lifetime_ns = core.lifetime_ns as f64;
        let in_flight = arrivals.peak_rate_hz() * lifetime_ns / NS_PER_S as f64;
        if in_flight > IN_FLIGHT_MAX {
            let problem = format!(
                "keeps {in_flight:.0} Interests in flight if none is answered within lifetime_ms; \
                 shorten that, or stay below {IN_FLIGHT_MAX}"
            );
            return Err(WorkloadError::value("rate_hz", problem));
        }
        let next = Some(Instant::from_ns(process.next_ns())).filter(|&at| at < core.stop);
        Ok(Self {
            process,
            next,
            segments: SegmentChooser::new(&plan.names.popularity, mix(seed ^ 2))?,
            template: InterestTemplate::new(plan.lifetime_ms),
            nonces: Rng::from_seed(mix(seed)),
            unanswered: Unanswered::new(core.lifetime_ns),
            in_flight_max: (IN_FLIGHT_SPARE * in_flight + IN_FLIGHT_LEAST) as usize,
        })
    }

    pub(super) fn packet(
        &mut self,
        core: &mut ConsumerCore,
        input: &AppInput,
        out: &mut AppOutbox,
    ) {
        let is_known = match input.header.nack {
            Some(reason) => self.refused(core, &input.packet, reason.code(), out),
            None => self.answered(core, input, out),
        };
        core.stats.malformed += u64::from(is_known.is_none());
    }

    /// Handles a Nack; `None` if its Interest is not ours.
    fn refused(
        &mut self,
        core: &mut ConsumerCore,
        packet: &[u8],
        reason: u64,
        out: &mut AppOutbox,
    ) -> Option<()> {
        let interest = InterestView::decode(packet).ok()?;
        let parsed = core.collection.naming().parse(interest.name.value())?;
        let (object, segment) = (parsed.object, parsed.segment);
        if self.unanswered.take(object, segment, interest.nonce).is_some() {
            core.stats.nacked += 1;
            out.events.push(EventKind::NackReceived { object, segment, reason });
        } else {
            core.stats.unwanted += 1;
        }
        Some(())
    }

    /// Handles a Data, which answers every Interest for its name; `None` if there is none.
    fn answered(
        &mut self,
        core: &mut ConsumerCore,
        input: &AppInput,
        out: &mut AppOutbox,
    ) -> Option<()> {
        let data = DataView::decode(&input.packet).ok()?;
        let parsed = core.collection.naming().parse(data.name.value())?;
        let (object, segment) = (parsed.object, parsed.segment);
        if let Err(wrong) = core.collection.check(object, segment, &data) {
            // Nothing will answer the Interest any more.
            core.damaged(object, segment, wrong, out);
            return Some(());
        }
        let is_marked = input.header.congestion_mark != 0;
        let mut is_wanted = false;
        while let Some(entry) = self.unanswered.take(object, segment, None) {
            is_wanted = true;
            let rtt_ns = core.now.ns_since(entry.sent_at);
            core.received((object, segment), &data, rtt_ns, is_marked, out);
        }
        core.stats.unwanted += u64::from(!is_wanted);
        Some(())
    }

    pub(super) fn advance(&mut self, core: &mut ConsumerCore, out: &mut AppOutbox) {
        while let Some(entry) = self.unanswered.take_expired(core.now) {
            core.timed_out(entry.object, entry.segment, out);
        }
        while let Some(at) = self.next.filter(|&at| at <= core.now) {
            debug_assert!(at < core.stop);
            self.next = Some(Instant::from_ns(self.process.next_ns())).filter(|&at| at < core.stop);
            if !core.may_send() {
                // The caller was late, and the run is over.
                self.next = None;
                return;
            }
            if self.unanswered.len() >= self.in_flight_max
                && let Some(oldest) = self.unanswered.take_oldest()
            {
                core.timed_out(oldest.object, oldest.segment, out);
            }
            self.send(core, out);
        }
    }

    fn send(&mut self, core: &mut ConsumerCore, out: &mut AppOutbox) {
        let (object, segment) = self.segments.next_segment(core);
        let nonce = self.nonces.next_u32();
        self.unanswered.insert(core.now, object, segment, nonce);
        let naming = core.collection.naming();
        let packet = self.template.write(naming, object, segment, nonce, &mut core.pool);
        core.stats.interests += 1;
        out.events.push(EventKind::InterestSent { object, segment, is_repeated: false });
        out.packets.push((PathId::default(), LpHeader::default(), packet));
    }

    pub(super) fn next_wakeup(&self) -> Option<Instant> {
        [self.next, self.unanswered.next_end()].into_iter().flatten().min()
    }

    #[cfg(test)]
    pub(super) fn outstanding(&self) -> usize {
        self.unanswered.len()
    }
}

/// Chooses single segments. A trace names them. Sequential popularity takes all segments of one
/// object after another. Any other popularity takes a random segment of a random object.
#[derive(Debug)]
pub(super) struct SegmentChooser {
    objects: ObjectChooser,
    rng: Rng,
    is_sequential: bool,
    /// Current object, its next segment, and its number of segments.
    current: Option<(u64, u64, u64)>,
}

impl SegmentChooser {
    fn new(popularity: &Popularity, seed: u64) -> Result<Self, WorkloadError> {
        Ok(Self {
            objects: ObjectChooser::new(popularity, seed)?,
            rng: Rng::from_seed(mix(seed)),
            is_sequential: matches!(popularity, Popularity::Sequential { .. }),
            current: None,
        })
    }

    fn next_segment(&mut self, core: &ConsumerCore) -> (u64, u64) {
        if let Some((object, segment, segments)) = self.current {
            self.current = (segment + 1 < segments).then_some((object, segment + 1, segments));
            return (object, segment);
        }
        let (object, segment) = self.objects.next_request();
        if let Some(segment) = segment {
            return (object, segment);
        }
        let segments = core.collection.shape(object).segments;
        if !self.is_sequential {
            return (object, if segments == 1 { 0 } else { below(&mut self.rng, segments) });
        }
        self.current = (segments > 1).then_some((object, 1, segments));
        (object, 0)
    }
}
