//! Runs a consumer of the transport in the time of the run.

use std::collections::VecDeque;

use weir_base::{Instant, Packet};
use weir_transport::{
    Consumer, ConsumerConfig, ConsumerEvent, ConsumerInput, ConsumerOutbox, ControllerConfig,
    Controllers, PacketId, PathId, RangeId, Target, TraceEvent, TraceKind, Verdict, Verification,
    VerifyId,
};
use weir_wire::{DataView, LpHeader};

use super::{AppInput, AppOutbox, ConsumerCore};
use crate::app::content::Content;
use crate::event::EventKind;
use crate::workload::{ConsumerPlan, WorkloadError};

/// Limit on Interests in flight.
pub(super) const WINDOW_MAX: u32 = 1 << 16;

/// Receives the progress of a transport consumer.
pub(super) trait FetchListener {
    /// The object of a range; `None` when the range is over.
    fn object_of(&self, range: RangeId) -> Option<u64>;
    /// The first Interest for segment 0 of a range leaves.
    fn on_first_interest(&mut self, core: &ConsumerCore, range: RangeId, out: &mut AppOutbox);
    /// A segment of a range arrived with the correct bytes.
    fn on_segment(&mut self, range: RangeId);
    /// The Data of the metadata arrived; returns whether it is right. Only targets that have to be
    /// discovered have metadata.
    fn on_metadata(&mut self, _: &mut ConsumerCore, _: &Packet, _: &mut AppOutbox) -> Verdict {
        unreachable!("this target has no metadata")
    }
    /// Another event occurred. The listener appends inputs for the consumer to `inputs`.
    fn on_event(
        &mut self,
        core: &mut ConsumerCore,
        event: ConsumerEvent,
        inputs: &mut Vec<ConsumerInput>,
        out: &mut AppOutbox,
    );
}

#[derive(Debug)]
pub(super) struct Fetch {
    consumer: Consumer,
    inputs: Vec<ConsumerInput>,
    out: ConsumerOutbox,
    /// Segments received since the consumer's last call.
    answers: Vec<ReceivedSegment>,
    /// Damaged segments, which are requested again.
    refused: Vec<ReceivedSegment>,
    /// Content comparisons in progress, in the order in which they end.
    checks: VecDeque<PendingCheck>,
    /// Interests in flight at the end of the run that are still unanswered.
    unanswered_at_end: Option<u32>,
}

/// A Data that answered a segment.
#[derive(Clone, Copy, Debug)]
struct ReceivedSegment {
    range: RangeId,
    segment: u64,
    path: PathId,
    asked_at: Instant,
    is_marked: bool,
}

/// A packet whose content is being compared with what was produced.
#[derive(Debug)]
struct PendingCheck {
    ends: Instant,
    op: VerifyId,
    packet: Packet,
    answer: ReceivedSegment,
    rtt_ns: u64,
}

/// The transport configuration of a plan.
pub(super) fn config(
    plan: &ConsumerPlan,
    controllers: Controllers,
    controller: &str,
    window: Option<u32>,
) -> Result<ConsumerConfig, WorkloadError> {
    let ControllerConfig { controller, constants } =
        controllers.parse(controller).map_err(|error| {
            WorkloadError::value("controller", format!("is `{controller}`: {error}"))
        })?;
    if let Some(window) = window.filter(|window| !(1..=WINDOW_MAX).contains(window)) {
        let problem = format!("is {window}; write a number from 1 to {WINDOW_MAX}");
        return Err(WorkloadError::value("window", problem));
    }
    Ok(ConsumerConfig {
        lifetime_ms: plan.lifetime_ms,
        controller,
        constants,
        window,
        decrease_interval_ns: plan.decrease_interval_ns,
        waits_for_lifetime: plan.waits_for_lifetime,
        // The consumers of the papers retry within their window. This keeps recorded results
        // comparable.
        sets_aside: false,
        chunk_segments: plan.chunk_units,
        schedule: plan.schedule,
        holdings: plan.holdings,
        reader_segments_max: u32::MAX,
        verification: Verification::ByDriver,
        look_for_manifest: false,
        trace: true,
        ..ConsumerConfig::default()
    })
}

/// The same for whole objects, whose windows stay within the transport's own limit.
pub(super) fn config_of_objects(
    plan: &ConsumerPlan,
    controllers: Controllers,
    controller: &str,
    window: Option<u32>,
) -> Result<ConsumerConfig, WorkloadError> {
    let config = config(plan, controllers, controller, window)?;
    if window.is_some_and(|window| window > config.window_max) {
        let problem = format!("is out of range; write a number from 1 to {}", config.window_max);
        return Err(WorkloadError::value("window", problem));
    }
    Ok(config)
}

impl Fetch {
    /// Starts now or at the plan's start time, whichever is later.
    pub(super) fn new(
        target: Target,
        config: ConsumerConfig,
        seed: u64,
        core: &ConsumerCore,
    ) -> Self {
        let add = |&path: &PathId| core.added(path);
        Self {
            consumer: Consumer::new(target, config, seed, core.now.max(core.start)),
            inputs: core.paths.iter().map(add).collect(),
            out: ConsumerOutbox::default(),
            answers: Vec::new(),
            refused: Vec::new(),
            checks: VecDeque::new(),
            unanswered_at_end: None,
        }
    }

    /// Queues an input for the consumer's next call.
    pub(super) fn push(&mut self, input: ConsumerInput) {
        self.inputs.push(input);
    }

    pub(super) fn push_packet(&mut self, AppInput { path, header, packet }: AppInput) {
        self.inputs.push(ConsumerInput::Packet { path, header, packet });
    }

    pub(super) fn set_path(&mut self, path: PathId, is_there: bool, core: &ConsumerCore) {
        // After the end of the run there is no next call.
        if self.unanswered_at_end.is_none() {
            self.inputs.push(match is_there {
                true => core.added(path),
                false => ConsumerInput::RemovePath { path },
            });
        }
    }

    /// Ends the run: nothing is sent any more, but Data that arrives within a lifetime still
    /// counts.
    pub(super) fn end(&mut self, core: &ConsumerCore) {
        if self.unanswered_at_end.is_none() {
            self.unanswered_at_end = Some(self.in_flight());
            let remove = |&path: &PathId| ConsumerInput::RemovePath { path };
            self.inputs.extend(core.paths.iter().map(remove));
        }
    }

    /// Handles all inputs and everything that is due.
    pub(super) fn process(
        &mut self,
        core: &mut ConsumerCore,
        listener: &mut impl FetchListener,
        out: &mut AppOutbox,
    ) {
        let is_due = self.consumer.next_wakeup().is_some_and(|at| at <= core.now);
        if !is_due && self.inputs.is_empty() && !self.has_check(core.now) {
            return;
        }
        // Verdicts of checks are inputs of the consumer, so handling repeats until none is left.
        loop {
            self.consumer.handle(core.now, &mut self.inputs, &mut self.out);
            for index in 0..self.out.trace.len() {
                self.on_trace(core, self.out.trace[index], listener, out);
            }
            self.out.trace.clear();
            for event in self.out.events.drain(..) {
                listener.on_event(core, event, &mut self.inputs, out);
            }
            for (path, wire) in self.out.interests.iter() {
                out.packets.push((path, LpHeader::default(), core.pool.copy(wire)));
            }
            self.out.interests.clear();
            self.begin_checks(core, listener, out);
            while self.has_check(core.now) {
                self.end_check(core, listener, out);
            }
            if self.inputs.is_empty() {
                return;
            }
        }
    }

    fn on_trace(
        &mut self,
        core: &mut ConsumerCore,
        event: TraceEvent,
        listener: &mut impl FetchListener,
        out: &mut AppOutbox,
    ) {
        let object = listener.object_of(event.range);
        let (Some(object), PacketId::Segment(segment)) = (object, event.id) else { return };
        match event.kind {
            TraceKind::Sent { is_resend } => {
                if segment == 0 && !is_resend {
                    listener.on_first_interest(core, event.range, out);
                }
                core.stats.interests += 1;
                out.events.push(EventKind::InterestSent {
                    object,
                    segment,
                    is_repeated: is_resend,
                });
            }
            // The Data counts only after its content was compared, so it is kept until then.
            TraceKind::Answered { rtt_ns, is_marked } => {
                let asked_at = Instant::from_ns(core.now.as_ns().saturating_sub(rtt_ns));
                let TraceEvent { range, path, .. } = event;
                self.answers.push(ReceivedSegment { range, segment, path, asked_at, is_marked });
                self.unanswered_at_end =
                    self.unanswered_at_end.map(|count| count.saturating_sub(1));
            }
            TraceKind::TimedOut | TraceKind::Lost => {
                core.timed_out(object, segment, out);
            }
            TraceKind::Nacked { reason } => {
                core.stats.nacked += 1;
                let reason = reason.code();
                out.events.push(EventKind::NackReceived { object, segment, reason });
            }
        }
    }

    fn begin_checks(
        &mut self,
        core: &mut ConsumerCore,
        listener: &mut impl FetchListener,
        app_out: &mut AppOutbox,
    ) {
        let Self { out, answers, refused, checks, inputs, .. } = self;
        for op in out.verify.drain(..) {
            let PacketId::Segment(segment) = op.id else {
                let verdict = listener.on_metadata(core, &op.packet, app_out);
                inputs.push(ConsumerInput::Verified { op: op.op, verdict });
                continue;
            };
            let is_same =
                |answer: &ReceivedSegment| (answer.range, answer.segment) == (op.range, segment);
            let answer = match answers.iter().position(is_same) {
                Some(at) => answers.swap_remove(at),
                // A second Data for a segment whose first Data was damaged.
                None => *refused.iter().find(|&answer| is_same(answer)).expect("it was answered"),
            };
            let rtt_ns = core.now.ns_since(answer.asked_at);
            let (op, packet, ends) = (op.op, op.packet, core.check_ends());
            checks.push_back(PendingCheck { ends, op, packet, answer, rtt_ns });
        }
        answers.clear();
    }

    fn has_check(&self, now: Instant) -> bool {
        self.checks.front().is_some_and(|check| check.ends <= now)
    }

    /// Ends the first comparison.
    fn end_check(
        &mut self,
        core: &mut ConsumerCore,
        listener: &mut impl FetchListener,
        out: &mut AppOutbox,
    ) {
        let Some(PendingCheck { op, packet, answer, rtt_ns, .. }) = self.checks.pop_front() else {
            return;
        };
        let ReceivedSegment { range, segment, path, is_marked, .. } = answer;
        // The range was abandoned in the meantime.
        let Some(object) = listener.object_of(range) else {
            self.inputs.push(ConsumerInput::Verified { op, verdict: Verdict::Good });
            return;
        };
        let data = DataView::decode(&packet).expect("the consumer decoded it");
        let verdict = match core.collection.check(object, segment, &data) {
            Ok(()) => {
                listener.on_segment(range);
                core.path_bytes[usize::from(path.0)] += data.content.len() as u64;
                core.received((object, segment), &data, rtt_ns, is_marked, out);
                self.refused.retain(|it| (it.range, it.segment) != (range, segment));
                Verdict::Good
            }
            Err(wrong) => {
                core.damaged(object, segment, wrong, out);
                self.refused.push(answer);
                // With the digest of the correct Data, the retransmitted Interest cannot be
                // answered by a damaged copy in a store.
                let mut right = Content::new(core.collection.clone(), data.freshness_ms);
                let digest = Some(right.digest(object, segment));
                Verdict::Bad { reason: wrong.to_string(), digest }
            }
        };
        self.inputs.push(ConsumerInput::Verified { op, verdict });
    }

    /// Latest time of the next [`Fetch::process`].
    pub(super) fn next_wakeup(&self, core: &ConsumerCore) -> Option<Instant> {
        let left_over = self.unanswered_at_end.filter(|&count| count > 0);
        let given_up = left_over.map(|_| core.end.plus_ns(core.lifetime_ns));
        let given_up = given_up.filter(|&at| at > core.now);
        let checked = self.checks.front().map(|check| check.ends);
        [self.consumer.next_wakeup(), given_up, checked].into_iter().flatten().min()
    }

    /// Whether it needs no more calls without new inputs. Everything is answered, or the run is
    /// over and the Interests in flight have expired.
    pub(super) fn is_over(&self, core: &ConsumerCore) -> bool {
        self.checks.is_empty()
            && (self.consumer.has_ended()
                || self.unanswered_at_end.is_some_and(|count| {
                    count == 0 || core.now >= core.end.plus_ns(core.lifetime_ns)
                }))
    }

    pub(super) fn in_flight(&self) -> u32 {
        self.unanswered_at_end.unwrap_or_else(|| self.consumer.stats().outstanding)
    }

    /// Packets that could not be decoded, and Data without an Interest.
    #[cfg(test)]
    pub(super) fn unexpected_packets(&self) -> (u64, u64) {
        let stats = self.consumer.stats();
        (stats.malformed, stats.unwanted)
    }

    /// Sum of the windows of all links in use, in chunks.
    pub(super) fn window(&self) -> f64 {
        self.consumer.stats().window
    }

    /// Window of a link in chunks; 0 while the link is unused.
    pub(super) fn window_of(&self, path: PathId) -> f64 {
        self.consumer.window_of(path).unwrap_or(0.0)
    }
}
