//! Our own controller: the window that the path fills without a queue, and a short queue beside it.
//! `docs/controllers/weir.md` has the equations.

use weir_base::{Instant, NS_PER_MS, NS_PER_S};

use super::cubic::Cubic;
use super::sources::{RoundTrips, Sources};
use super::{
    Allowance, Congestion, CongestionControl, FromConfig, LossDetection, Marks, PathRules, Sample,
    WindowBounds,
};
use crate::controller_constants;

/// It has no constants to tune.
#[derive(Debug, Default)]
pub(crate) struct WeirConfig;

controller_constants!(WeirConfig {});

/// Window at the start, in Interests (RFC 6928).
const INITIAL_WINDOW: f64 = 10.0;
/// Smallest window, in Interests: one is answered while the other is on the way.
const WINDOW_MIN: f64 = 2.0;
/// Smallest queue that is kept, in packets, so that the bottleneck always has one to send.
const QUEUE_MIN_PACKETS: f64 = 2.0;
/// A queue shorter than this cannot be told from a host's threads that wait for their turn.
const QUEUE_MIN_NS: f64 = 0.25 * NS_PER_MS as f64;
/// Rounds in which the rate does not grow by a quarter that end startup (BBR).
const FULL_ROUNDS: u32 = 3;
const FULL_GROWTH: f64 = 1.25;
/// Packets whose distances tell the rate of a bottleneck, and the part of a round trip that they
/// are taken over at least: threads hand them over in batches.
const RATE_PACKETS: u32 = 16;
const RATE_PARTS: f64 = 4.0;
/// The step of growth where there is no queue, as a part of the window.
const STEP_PARTS: f64 = 16.0;
/// A queue is deep that is so many times what it should be, and this part of the round trip, or a
/// larger part of that.
const DEEP_TARGETS: f64 = 4.0;
const DEEP_PARTS: f64 = 16.0;
const DEEPEST_PARTS: f64 = 4.0;
/// Rounds after a decrease that tell little of the window: the gap has to fill.
const REFILL_ROUNDS: u32 = 2;
/// A queue that is so many times what it should be, for so many rounds, is not ours.
const LONG_QUEUE: f64 = 1.1;
const LONG_QUEUE_ROUNDS: u32 = 12;
/// What of the content on the way is left for a round, so that the queue is seen to vanish, and
/// other flows see the path without it.
const DRAIN_FACTOR: f64 = 0.75;
/// A queue of which more than this is left by then is not ours. It is no queue at all if it changes
/// by less than this part.
const CUT_LEAVES_MAX: f64 = 0.4;
const STEADY_CHANGE: f64 = 0.01;
/// Rounds after which a queue that is not ours is taken for that of flows that fill it: others of
/// our kind drain it by then.
const INEFFECTIVE_ROUNDS: u32 = 4;
/// Rounds of competing with flows that fill the queue, until it is tried again without. A path does
/// not become longer twice in this time.
const COMPETE_ROUNDS: u64 = 64;
/// How often the window shrinks for a round, whether there is a queue or not.
const DRAIN_INTERVAL_NS: u64 = 10 * NS_PER_S;
const DRAIN_ROUNDS: u64 = 64;
/// A mark that is a whole signal costs all of the queue, but not more than this part of the window.
const MARK_PARTS: f64 = 8.0;
/// Losses up to this part of what was asked for are not taken for congestion, which shows in the
/// delay.
const LOSS_SHARE_MAX: f64 = 1.0 / 50.0;
const LOSS_CHECK_ANSWERS: u32 = 400;
/// What more of them leave of the queue that is kept, and a refusal of the window (as in `cubic`).
const LOSS_QUEUE_FACTOR: f64 = 0.5;
const LOSS_FACTOR: f64 = 0.7;
/// By which part the queue that is kept grows again each round.
const QUEUE_GROWTH: f64 = 1.0 / 64.0;
/// What a decrease leaves at least.
const DECREASE_MAX: f64 = 0.25;
/// How much faster than the window alone Interests may leave: in startup, and after it.
const PACE_STARTUP: f64 = 2.0;
const PACE: f64 = 1.05;
/// Shorter round trips are not paced: drivers' timers are not as fine.
const PACED_RTT_NS: f64 = 2.0 * NS_PER_MS as f64;

/// What one round of answers told.
#[derive(Copy, Clone, Debug, Default)]
struct RoundStats {
    answers: u32,
    packets: u64,
    marked_packets: u64,
    /// Marks among them are whole signals.
    has_signal: bool,
    bytes: u64,
    was_window_limited: bool,
}

/// What the window does.
#[derive(Clone, Debug)]
enum Phase {
    /// It doubles in each round. The rate of the best one, and how many were no better.
    Startup { rate: f64, full_rounds: u32 },
    /// It stays, while answers that come late tell the rate of the bottleneck.
    Measure { began: Instant, answers: u32, packets: u32 },
    /// It is low for a round, so that the queue vanishes. The window to go on with.
    Drain { window: f64 },
    /// It keeps a short queue.
    Steady,
    /// Others fill the queue, and it competes until a round.
    Compete { cubic: Cubic, until: u64 },
}

/// A decrease because of a deep queue, until it is known whether it helped.
#[derive(Copy, Clone, Debug)]
struct QueueCut {
    /// The window before, and what it brought, in Interests a nanosecond.
    window: f64,
    rate: f64,
    /// The mean delay before, and lately.
    queueing_ns: f64,
    last_ns: f64,
    /// Rounds in which it was still there.
    ineffective_rounds: u32,
    /// It came slowly, as no longer path does.
    is_slow: bool,
}

impl QueueCut {
    fn new(window: f64, rate: f64, queueing_ns: f64, is_slow: bool) -> Self {
        Self { window, rate, queueing_ns, last_ns: queueing_ns, ineffective_rounds: 0, is_slow }
    }
}

#[derive(Copy, Clone, Debug)]
struct Round {
    trips: RoundTrips,
    /// Interests answered, a nanosecond.
    rate: f64,
    /// Interests of ours that waited at the bottleneck, and that may.
    queue: f64,
    target: f64,
}

/// Keeps a short queue by the delay of answers, each held against the shortest of its own
/// [source](Sources); hears marks, and losses when there are more of them than links have; competes
/// as [`Cubic`] does while others fill the queue.
#[derive(Clone, Debug)]
pub(crate) struct Weir {
    window: f64,
    window_max: f64,
    phase: Phase,
    sources: Sources,
    stats: RoundStats,
    round_began: Option<Instant>,
    round_window: f64,
    /// Answers to Interests from this place on end the round.
    round_end: u64,
    rounds: u64,
    answered_at: Instant,
    /// The place that the next Interest takes.
    next_order: u64,
    /// Only answers to Interests from this place on tell of the present window, which is set since
    /// then.
    settling: Option<(u64, Instant)>,
    /// Rounds since it was set last.
    rounds_since_change: u32,
    /// Rounds in a row without a queue.
    empty_rounds: u32,
    cut: Option<QueueCut>,
    /// Interests a nanosecond in the last round with no more of a queue than there should be.
    uncongested_rate: f64,
    /// Rounds in a row with too long a queue.
    long_queue_rounds: u32,
    /// Until this round a delay that stays is not taken for a longer path again.
    no_rebase_until: u64,
    last_drain: Option<(Instant, u64)>,
    /// Bits that come for an Interest, and what a round trip takes without a queue, in the mean.
    interest_bits: f64,
    base_ns: f64,
    /// Answers since losses were judged last, and how many were lost before.
    answers_since_check: u32,
    lost_at_check: u64,
    /// A longer queue than this is lost, in Interests.
    queue_max: f64,
}

impl Weir {
    /// Interests of ours that may wait at the bottleneck: one at least, since a chunk comes as a
    /// burst, and half the root of the packets of the window, so that flows of
    /// one bottleneck, who all see the same delay, come to equal shares; the mean is far below what
    /// a router marks for.
    fn queue_target(&self, rate: f64, packets: f64) -> f64 {
        let root = root(self.window * packets);
        let target = (root / 2.0).max(QUEUE_MIN_PACKETS).max(rate * packets * QUEUE_MIN_NS);
        (target / packets).max(1.0).min(self.queue_max)
    }

    /// What is on the way was sent under another window.
    fn begin_settling(&mut self) {
        self.settling = Some((self.next_order, self.answered_at));
        self.rounds_since_change = 0;
    }

    fn set_window(&mut self, window: f64) {
        self.window = window.clamp(WINDOW_MIN.min(self.window_max), self.window_max);
    }

    /// Another window, of which only answers to come tell.
    fn enter_phase(&mut self, phase: Phase, window: f64) {
        self.phase = phase;
        (self.empty_rounds, self.long_queue_rounds) = (0, 0);
        self.set_window(window);
        self.begin_settling();
    }

    /// A round with less than `filled`, what the path holds without a queue; then `window`.
    fn drain(&mut self, filled: f64, window: f64) {
        let least = DECREASE_MAX * self.window;
        let drained = (DRAIN_FACTOR * filled).clamp(least, self.window.max(least));
        self.enter_phase(Phase::Drain { window: window.max(least) }, drained);
    }

    fn begin_round(&mut self, sample: &Sample) {
        self.stats = RoundStats::default();
        self.round_began = Some(sample.now);
        self.round_window = self.window;
        self.round_end = sample.next_order;
    }

    /// Answers begin to tell of the present window. Those before told of the last one to its end.
    fn end_settling(&mut self, sample: &Sample) {
        self.settling = None;
        if let (Some(cut), Some(round)) = (&mut self.cut, self.sources.end_partial_round())
            && cut.ineffective_rounds == 0
        {
            cut.queueing_ns = cut.queueing_ns.max(round.queueing_ns);
            cut.last_ns = round.queueing_ns;
        }
        self.sources.begin_round();
        self.begin_round(sample);
    }

    fn end_round(&mut self, sample: &Sample, elapsed_ns: u64) {
        self.rounds += 1;
        self.rounds_since_change += 1;
        let Some(trips) = self.sources.end_round() else { return };
        let tally = self.stats;
        let rate = match self.phase {
            // A few answers tell whether there is a queue.
            Phase::Drain { window } => window / trips.base_ns,
            // The first answers of all come at once.
            _ => f64::from(tally.answers) / (elapsed_ns as f64).max(trips.rtt_ns),
        };
        self.interest_bits = 8.0 * tally.bytes as f64 / f64::from(tally.answers);
        self.base_ns = trips.base_ns;
        self.queue_max *= 1.0 + QUEUE_GROWTH;
        let target = self.queue_target(rate, tally.packets as f64 / f64::from(tally.answers));
        let round = Round { trips, rate, queue: rate * trips.queueing_ns, target };
        if matches!(self.phase, Phase::Compete { .. }) {
            self.on_competing_round(sample.now, &round);
        } else if self.has_excess_loss(sample.lost) {
            self.on_lossy_round(&round);
        } else if tally.marked_packets > 0 && self.rounds_since_change > REFILL_ROUNDS {
            self.on_marked_round(&round);
        } else {
            self.on_clean_round(sample.now, &round);
        }
    }

    /// After a round that had neither losses nor marks.
    fn on_clean_round(&mut self, now: Instant, round: &Round) {
        match &mut self.phase {
            Phase::Drain { window } => {
                let window = *window;
                if !self.cut_was_ineffective(round) {
                    self.enter_phase(Phase::Steady, window);
                }
            }
            Phase::Startup { rate: best, full_rounds } => {
                *full_rounds = if round.rate >= FULL_GROWTH * *best { 0 } else { *full_rounds + 1 };
                *best = best.max(round.rate);
                if *full_rounds >= FULL_ROUNDS {
                    self.enter_phase(Phase::Steady, round.rate * round.trips.rtt_ns + round.target);
                }
            }
            Phase::Steady => self.hold_queue(now, round),
            Phase::Measure { .. } | Phase::Compete { .. } => {}
        }
    }

    /// Keeps the queue at its target.
    fn hold_queue(&mut self, now: Instant, round: &Round) {
        let &Round { trips, rate, queue, target } = round;
        let is_squeezed = self.has_standing_queue(queue / target);
        if queue <= 2.0 * target && !is_squeezed {
            self.cut = None;
            self.uncongested_rate = rate;
            if self.stats.was_window_limited && self.rounds_since_change > REFILL_ROUNDS {
                self.adjust_window(now, round);
            }
            return;
        }
        let filled = (rate * trips.base_ns).min(self.window - queue);
        let parts = trips.queueing_ns / trips.base_ns;
        let is_deep = parts > 1.0 / DEEPEST_PARTS
            || parts > 1.0 / DEEP_PARTS && queue > DEEP_TARGETS * target;
        if is_deep || is_squeezed {
            let cut =
                QueueCut::new(self.window, self.uncongested_rate, trips.queueing_ns, is_squeezed);
            self.cut.get_or_insert(cut);
            self.drain(filled, filled + target);
        } else if self.rounds_since_change > REFILL_ROUNDS {
            self.enter_phase(Phase::Steady, (filled + target).max(DECREASE_MAX * self.window));
        }
    }

    /// A queue of this length is lost somewhere.
    fn on_lossy_round(&mut self, round: &Round) {
        if round.queue >= 1.0 {
            self.queue_max = round.queue * LOSS_QUEUE_FACTOR;
        }
        match self.phase {
            Phase::Drain { window } => self.enter_phase(Phase::Steady, window),
            _ => {
                let filled = round.rate * round.trips.base_ns;
                self.decrease_window((filled / self.window).clamp(DECREASE_MAX, 1.0));
            }
        }
    }

    fn on_marked_round(&mut self, round: &Round) {
        let mut decrease = self.stats.marked_packets as f64 / self.stats.packets as f64 / 2.0;
        if self.stats.has_signal {
            self.queue_max = (round.queue * LOSS_QUEUE_FACTOR).max(1.0);
            decrease = decrease.max((round.queue / self.window).min(1.0 / MARK_PARTS));
        }
        self.decrease_window(1.0 - decrease);
    }

    /// The bottleneck has a queue since a while, and sends as fast as it can.
    fn end_measurement(&mut self, elapsed_ns: u64, answers: u32, packets: u32) {
        let Some(round) = self.sources.end_partial_round() else { return };
        let rate = f64::from(answers) / elapsed_ns as f64;
        let filled = (rate * round.base_ns).min(self.window);
        let target = self.queue_target(rate, f64::from(packets) / f64::from(answers));
        self.drain(filled, filled + target);
    }

    /// Whether more is lost than what links lose: three deviations above it.
    fn has_excess_loss(&mut self, lost: u64) -> bool {
        // It takes a round trip and more to find what was lost before the last decrease.
        if self.rounds_since_change < 2 {
            (self.answers_since_check, self.lost_at_check) = (0, lost);
        }
        if lost < self.lost_at_check {
            // They were only late.
            (self.queue_max, self.lost_at_check) = (f64::INFINITY, lost);
        }
        let expected = LOSS_SHARE_MAX * f64::from(self.answers_since_check);
        let is_losing = (lost - self.lost_at_check) as f64 > expected + 3.0 * root(expected);
        if self.answers_since_check >= LOSS_CHECK_ANSWERS || is_losing {
            (self.answers_since_check, self.lost_at_check) = (0, lost);
        }
        is_losing
    }

    /// Whether the queue is there although there was a round without any of ours; what is done
    /// then.
    fn cut_was_ineffective(&mut self, round: &Round) -> bool {
        let Some(cut) = &mut self.cut else { return false };
        let &Round { trips, queue, target, .. } = round;
        let queueing_ns = trips.queueing_ns;
        // A small queue may be that of others of our kind, but only while it is short beside the
        // round trip: a flow that rivals have left next to nothing has a small part of a long one.
        let is_small = queue <= 2.0 * target && queueing_ns <= trips.base_ns / DEEPEST_PARTS;
        if is_small || queueing_ns <= CUT_LEAVES_MAX * cut.queueing_ns {
            return false;
        }
        let is_steady = (queueing_ns - cut.last_ns).abs() <= STEADY_CHANGE * queueing_ns;
        cut.last_ns = queueing_ns;
        cut.ineffective_rounds += 1;
        let cut = *cut;
        if is_steady && !cut.is_slow && self.rounds >= self.no_rebase_until {
            // The path is longer, and the bottleneck what it was, as far as is known.
            self.cut = None;
            self.no_rebase_until = self.rounds + COMPETE_ROUNDS;
            self.sources.rebase();
            self.base_ns = trips.rtt_ns;
            self.enter_phase(Phase::Steady, cut.window.max(cut.rate * trips.rtt_ns));
        } else if is_steady || cut.ineffective_rounds >= INEFFECTIVE_ROUNDS {
            self.cut = None;
            let cubic = Cubic::past_slow_start(cut.window, self.window_max);
            let until = self.rounds + COMPETE_ROUNDS;
            self.no_rebase_until = until + COMPETE_ROUNDS;
            self.enter_phase(Phase::Compete { cubic, until }, cut.window);
        } else {
            self.begin_settling();
        }
        true
    }

    /// Whether the queue stays too long although the window becomes smaller.
    fn has_standing_queue(&mut self, parts: f64) -> bool {
        self.long_queue_rounds = if parts > LONG_QUEUE { self.long_queue_rounds + 1 } else { 0 };
        self.long_queue_rounds >= LONG_QUEUE_ROUNDS
    }

    /// Others fill the queue.
    fn on_competing_round(&mut self, now: Instant, round: &Round) {
        let Phase::Compete { cubic, until } = &mut self.phase else { return };
        if self.stats.marked_packets > 0 {
            cubic.on_congestion(now, Congestion::Mark);
        }
        if self.rounds >= *until {
            // Are they still there?
            let filled = self.window - round.queue;
            self.cut = Some(QueueCut::new(self.window, round.rate, round.trips.queueing_ns, true));
            self.drain(filled, filled + round.target);
        }
    }

    /// Comes nearer to the queue that should be.
    fn adjust_window(&mut self, now: Instant, round: &Round) {
        let &Round { rate, queue, target, .. } = round;
        if queue >= target / 2.0 {
            self.empty_rounds = 0;
            self.set_window(self.window + (target - queue) / 2.0);
            self.drain_if_due(now);
            return;
        }
        self.empty_rounds += 1;
        match self.empty_rounds {
            1 => self.set_window(self.window + (self.window / STEP_PARTS).max(target)),
            // What comes now was asked for before that.
            2 => {}
            // There is much more room than before.
            _ => self.phase = Phase::Startup { rate, full_rounds: 0 },
        }
    }

    fn drain_if_due(&mut self, now: Instant) {
        let (at, round) = *self.last_drain.get_or_insert((now, self.rounds));
        if now.ns_since(at) >= DRAIN_INTERVAL_NS && self.rounds >= round + DRAIN_ROUNDS {
            self.last_drain = Some((now, self.rounds));
            self.drain(self.window, self.window);
        }
    }

    /// Congestion that is none of our measuring.
    fn decrease_window(&mut self, factor: f64) {
        self.cut = None;
        self.enter_phase(Phase::Steady, self.window * factor);
    }
}

/// The square root of a number, to a part in sixteen.
fn root(number: f64) -> f64 {
    ((number * 256.0) as u64).isqrt() as f64 / 16.0
}

impl FromConfig for Weir {
    type Config = WeirConfig;

    fn from_config(_config: WeirConfig, bounds: WindowBounds) -> Self {
        Self {
            window: bounds.initial_or(INITIAL_WINDOW).min(bounds.max()),
            window_max: bounds.max(),
            phase: Phase::Startup { rate: 0.0, full_rounds: 0 },
            sources: Sources::default(),
            stats: RoundStats::default(),
            round_began: None,
            round_window: bounds.initial_or(INITIAL_WINDOW),
            round_end: 0,
            rounds: 0,
            answered_at: Instant::ZERO,
            next_order: 0,
            settling: None,
            rounds_since_change: 0,
            empty_rounds: 0,
            cut: None,
            uncongested_rate: 0.0,
            long_queue_rounds: 0,
            no_rebase_until: 0,
            last_drain: None,
            interest_bits: 0.0,
            base_ns: 0.0,
            answers_since_check: 0,
            lost_at_check: 0,
            queue_max: f64::INFINITY,
        }
    }
}

impl Weir {
    /// An answer's delay, or what it says of the rate.
    fn observe(&mut self, sample: &Sample) {
        let is_late = sample.rtt_ns.is_some_and(|rtt_ns| {
            // Rates and rounds divide by it: a clock may stand still.
            self.sources.add(sample.sent_order, rtt_ns.max(1) as f64, sample.packets)
        });
        match &mut self.phase {
            Phase::Startup { .. } if is_late => {
                self.phase = Phase::Measure { began: sample.now, answers: 0, packets: 0 };
            }
            Phase::Startup { .. } if sample.window_limited => {
                // Near sources answer more than once in a round.
                self.set_window((self.window + 1.0).min(2.0 * self.round_window));
            }
            Phase::Measure { .. } if !self.sources.has_late_source() => {
                // It was a burst.
                self.phase = Phase::Startup { rate: 0.0, full_rounds: 0 };
            }
            Phase::Measure { began, answers, packets } => {
                *answers += 1;
                *packets += sample.packets;
                let (elapsed_ns, answers, packets) =
                    (sample.now.ns_since(*began), *answers, *packets);
                let round_ns = self.sources.nearest_ns();
                if elapsed_ns as f64 >= round_ns
                    || packets >= RATE_PACKETS && elapsed_ns as f64 >= round_ns / RATE_PARTS
                {
                    self.end_measurement(elapsed_ns.max(1), answers, packets);
                }
            }
            Phase::Compete { cubic, .. } => {
                cubic.on_data(sample);
                let window = cubic.allowance().window;
                self.set_window(window);
            }
            _ => {}
        }
    }
}

impl CongestionControl for Weir {
    fn on_data(&mut self, sample: &Sample) {
        (self.answered_at, self.next_order) = (sample.now, sample.next_order);
        self.answers_since_check += 1;
        // Near sources answer sooner than what was asked for before.
        if let Some((order, since)) = self.settling
            && sample.sent_order >= order
            && sample.now.ns_since(since) >= self.sources.slowest_ns()
        {
            self.end_settling(sample);
        }
        let began = *self.round_began.get_or_insert(sample.now);
        self.stats.answers += 1;
        self.stats.packets += u64::from(sample.packets);
        self.stats.marked_packets += u64::from(sample.marked_packets);
        self.stats.has_signal |= sample.mark.is_sparse();
        self.stats.bytes += sample.bytes as u64;
        self.stats.was_window_limited |= sample.window_limited;
        self.observe(sample);
        let elapsed_ns = sample.now.ns_since(began);
        let is_round = sample.sent_order >= self.round_end
            && elapsed_ns >= self.sources.slowest_ns()
            || matches!(self.phase, Phase::Drain { .. })
                && self.sources.is_single()
                && self.stats.packets >= u64::from(RATE_PACKETS);
        if self.settling.is_none() && is_round {
            self.end_round(sample, elapsed_ns);
            self.begin_round(sample);
        }
    }

    /// Losses are counted, and marks, too. A router that refuses has no room at all.
    fn on_congestion(&mut self, now: Instant, cause: Congestion) {
        if let Phase::Compete { cubic, .. } = &mut self.phase {
            cubic.on_congestion(now, cause);
        } else if cause == Congestion::Nack {
            self.decrease_window(LOSS_FACTOR);
        }
    }

    /// A loss like others, unless nothing else has come either.
    fn on_timeout(&mut self, now: Instant) {
        if now.ns_since(self.answered_at) > self.sources.slowest_ns() {
            self.decrease_window(LOSS_FACTOR);
        } else if let Phase::Compete { cubic, .. } = &mut self.phase {
            cubic.on_congestion(now, Congestion::Loss);
        }
    }

    fn allowance(&self) -> Allowance {
        let factor = match self.phase {
            Phase::Startup { .. } => PACE_STARTUP,
            _ => PACE,
        };
        let bits = factor * self.window * self.interest_bits;
        let is_paced = self.base_ns >= PACED_RTT_NS;
        let pacing_bps = is_paced.then_some((bits / self.base_ns * NS_PER_S as f64) as u64);
        Allowance { window: self.window, pacing_bps }
    }

    fn rules(&self) -> PathRules {
        PathRules {
            loss_detection: LossDetection::AfterSlowestEarly,
            marks: Marks::Unreported,
            ..PathRules::default()
        }
    }
}
