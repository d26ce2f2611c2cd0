//! `weir`: Weir's own congestion controller. It fills the path and keeps a short queue.
//!
//! The idea: the delay of answers shows the queue. For each [source](Sources) the controller knows
//! the round trip without a queue, its *base*. An answer that takes longer has waited. Let `q` be
//! the mean wait over one round, and `X` the rate of answers. Then `Q = X * q` Interests of this
//! flow are queued (Little's law). The controller changes its window `W` until `Q` equals a small
//! target `K`.
//!
//! `K` is `sqrt(W) / 2` packets, but at least two packets and one Interest. The root makes flows
//! fair: all flows see the same `q`, and `K / X` is the same for all only at equal rates.
//!
//! A *round* lasts as long as the slowest answer of the previous round. After a change of the
//! window, answers to Interests sent before the change are not judged (`Weir::begin_settling`).
//!
//! 1. `Startup`: `W` grows by one for each answer, and at most doubles in a round. It ends when
//!    eight answers in a row are late, or after three rounds in which `X` grows by less than a
//!    quarter.
//! 2. `Measure`: `W` stays. The bottleneck has a queue now, so the distance between answers shows
//!    its rate `X`.
//! 3. `Drain`: `W` is three quarters of `X * base` for a round. The queue vanishes, and all flows
//!    of the bottleneck see the path without it. Then `W = X * base + K`.
//! 4. `Steady`, once a round: excess losses and marks decrease `W`. Otherwise `Weir::hold_queue`
//!    corrects it towards `Q = K`.
//! 5. `Compete`: a queue that stays after a drain belongs to other flows. `W` follows [`Cubic`] for
//!    64 rounds. Then a drain tests whether they are gone.
//!
//! Example: 40 Mbit/s, base 100 ms, packets of 1 kB. The path holds 500 packets and `X` is 5
//! packets a millisecond. `W` is `500 + Q`, and `K` is about 11. In the steady state:
//!
//! | `q`    | `Q`  | step                                                             |
//! |--------|------|------------------------------------------------------------------|
//! | 1.0 ms |  5.0 | below `K / 2`: `W += W / 16`, a probe for more capacity          |
//! | 2.0 ms | 10.0 | `W += (K - Q) / 2`, a small correction                           |
//! | 5.0 ms | 25.0 | above `2 K`: `W = X * base + K`, from 525 to 511                 |
//! | 10 ms  | 50.0 | deep: above `4 K` and a sixteenth of the base: a drain, then 511 |
//!
//! The controller must never judge answers to Interests sent under another window. It must accept a
//! lasting delay as a longer path at most once in 64 rounds, because each mistake adds the queue of
//! others to the base. `docs/controllers/weir.md` has measurements.

use weir_base::{Instant, NS_PER_MS, NS_PER_S};

use super::cubic::Cubic;
use super::sources::{RoundTrips, Sources};
use super::{
    Allowance, Congestion, CongestionControl, FromConfig, LossDetection, Marks, PathRules, Sample,
    WindowBounds,
};
use crate::controller_constants;

/// `weir` has no constants to tune.
#[derive(Debug, Default)]
pub(crate) struct WeirConfig;

controller_constants!(WeirConfig {});

/// Initial window, in Interests (RFC 6928).
const INITIAL_WINDOW: f64 = 10.0;
/// Smallest window, in Interests: one is answered while the other travels.
const WINDOW_MIN: f64 = 2.0;
/// Smallest target queue, in packets, so that the bottleneck always has one to send.
const QUEUE_MIN_PACKETS: f64 = 2.0;
/// Smallest target queue, as a delay. A shorter delay may also come from threads that wait for a
/// processor.
const QUEUE_MIN_NS: f64 = 0.25 * NS_PER_MS as f64;
/// Startup ends after `FULL_ROUNDS` rounds in which the rate grows by less than `FULL_GROWTH` (as
/// in BBR).
const FULL_ROUNDS: u32 = 3;
const FULL_GROWTH: f64 = 1.25;
/// The rate is measured over at least this many packets, and at least a round trip divided by
/// `RATE_DIVISOR`. Shorter times are misleading, because threads hand packets over in batches.
const RATE_PACKETS: u32 = 16;
const RATE_DIVISOR: f64 = 4.0;
/// Without a queue, a step of growth is the window divided by this.
const STEP_DIVISOR: f64 = 16.0;
/// A queue is deep if it exceeds `DEEP_TARGETS` times its target and the base divided by
/// `DEEP_DIVISOR`. One above the base divided by `DEEPEST_DIVISOR` is deep in any case.
const DEEP_TARGETS: f64 = 4.0;
const DEEP_DIVISOR: f64 = 16.0;
const DEEPEST_DIVISOR: f64 = 4.0;
/// After a change the window needs this many rounds before growth is judged: the gap has to fill.
const REFILL_ROUNDS: u32 = 2;
/// A queue above `LONG_QUEUE` times its target for this many rounds belongs to other flows.
const LONG_QUEUE: f64 = 1.1;
const LONG_QUEUE_ROUNDS: u32 = 12;
/// A drain sends this share of the path's capacity for one round. The queue vanishes, so that other
/// flows also see the path without it.
const DRAIN_FACTOR: f64 = 0.75;
/// A drain was ineffective if more than `CUT_LEAVES_MAX` of the delay remains. A remaining delay
/// that changes by less than `STEADY_CHANGE` is a longer path and no queue.
const CUT_LEAVES_MAX: f64 = 0.4;
const STEADY_CHANGE: f64 = 0.01;
/// After this many ineffective rounds the queue is attributed to flows that fill it. Flows of
/// `weir` drain theirs earlier.
const INEFFECTIVE_ROUNDS: u32 = 4;
/// How many rounds the controller competes before it tests again. In this time it accepts no second
/// longer path.
const COMPETE_ROUNDS: u64 = 64;
/// A drain happens at least this often, so that the base stays known.
const DRAIN_INTERVAL_NS: u64 = 10 * NS_PER_S;
const DRAIN_ROUNDS: u64 = 64;
/// A mark that is a signal by itself removes the whole queue from the window, but at most the
/// window divided by this.
const MARK_PARTS: f64 = 8.0;
/// Losses up to this share are attributed to links, because congestion shows in the delay. The
/// share is taken over at most `LOSS_CHECK_ANSWERS` answers.
const LOSS_SHARE_MAX: f64 = 1.0 / 50.0;
const LOSS_CHECK_ANSWERS: u32 = 400;
/// Excess losses multiply the queue limit by the first factor. A Nack multiplies the window by the
/// second (as in `cubic`).
const LOSS_QUEUE_FACTOR: f64 = 0.5;
const LOSS_FACTOR: f64 = 0.7;
/// The queue limit recovers by this share a round.
const QUEUE_GROWTH: f64 = 1.0 / 64.0;
/// A decrease leaves at least this share of the window.
const DECREASE_MAX: f64 = 0.25;
/// The pace exceeds one window per round trip by this factor: during startup, and later.
const PACE_STARTUP: f64 = 2.0;
const PACE: f64 = 1.05;
/// Shorter round trips are not paced, because timers of drivers are coarser.
const PACED_RTT_NS: f64 = 2.0 * NS_PER_MS as f64;

/// Sums over the answers of one round.
#[derive(Copy, Clone, Debug, Default)]
struct RoundStats {
    answers: u32,
    packets: u64,
    marked_packets: u64,
    /// At least one mark is a signal by itself (see [`Sample::mark`]).
    has_signal: bool,
    bytes: u64,
    was_window_limited: bool,
}

/// What the window does. The module's text explains the phases.
#[derive(Clone, Debug)]
enum Phase {
    /// Doubles the window each round. `rate` is the best so far; `full_rounds` rounds were no
    /// better.
    Startup { rate: f64, full_rounds: u32 },
    /// Keeps the window and counts answers since `began`, to measure the rate.
    Measure { began: Instant, answers: u32, packets: u32 },
    /// Keeps the window low for a round. `window` is the one to continue with.
    Drain { window: f64 },
    /// Keeps a short queue.
    Steady,
    /// Competes with flows that fill the queue, until round `until`.
    Compete { cubic: Cubic, until: u64 },
}

/// A decrease because of a deep queue, kept until it is known whether it helped.
#[derive(Copy, Clone, Debug)]
struct QueueCut {
    /// The window before the decrease, and its rate in Interests per nanosecond.
    window: f64,
    rate: f64,
    /// The mean delay before the decrease, and in the latest round.
    queueing_ns: f64,
    last_ns: f64,
    /// Rounds in which the queue was still there.
    ineffective_rounds: u32,
    /// The queue grew slowly. A longer path would have appeared at once, so this is a queue.
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
    /// Interests answered per nanosecond.
    rate: f64,
    /// Interests of this flow that wait at the bottleneck, and how many may.
    queue: f64,
    target: f64,
}

/// See the module's text.
#[derive(Clone, Debug)]
pub(crate) struct Weir {
    window: f64,
    window_max: f64,
    phase: Phase,
    sources: Sources,
    stats: RoundStats,
    round_began: Option<Instant>,
    round_window: f64,
    /// The round ends with an answer to an Interest from this order on.
    round_end: u64,
    rounds: u64,
    answered_at: Instant,
    /// The order of the next Interest.
    next_order: u64,
    /// The window was changed at this time, and only answers to Interests from this order on are
    /// judged.
    settling: Option<(u64, Instant)>,
    /// Rounds since the window changed.
    rounds_since_change: u32,
    /// Consecutive rounds without a queue.
    empty_rounds: u32,
    cut: Option<QueueCut>,
    /// Interests per nanosecond in the latest round whose queue was within twice its target.
    uncongested_rate: f64,
    /// Consecutive rounds with too long a queue.
    long_queue_rounds: u32,
    /// Before this round a lasting delay is not accepted as a longer path.
    no_rebase_until: u64,
    last_drain: Option<(Instant, u64)>,
    /// Mean bits of the answer to an Interest, and the mean base.
    interest_bits: f64,
    base_ns: f64,
    /// Answers since losses were last checked, and losses at that time.
    answers_since_check: u32,
    lost_at_check: u64,
    /// Upper bound of the queue, in Interests: longer ones overflow or are marked.
    queue_max: f64,
}

impl Weir {
    /// The target queue `K`, in Interests. Half the root of the window in packets makes the flows
    /// of one bottleneck fair. It is at least one Interest, because a chunk arrives as a burst. On
    /// average it stays far below the level at which routers mark.
    fn queue_target(&self, rate: f64, packets: f64) -> f64 {
        let root = root(self.window * packets);
        let target = (root / 2.0).max(QUEUE_MIN_PACKETS).max(rate * packets * QUEUE_MIN_NS);
        (target / packets).max(1.0).min(self.queue_max)
    }

    /// The window has changed. Interests in flight were sent under the last one, so their answers
    /// are not judged.
    fn begin_settling(&mut self) {
        self.settling = Some((self.next_order, self.answered_at));
        self.rounds_since_change = 0;
    }

    fn set_window(&mut self, window: f64) {
        self.window = window.clamp(WINDOW_MIN.min(self.window_max), self.window_max);
    }

    /// Enters a phase with another window. Only later answers are judged.
    fn enter_phase(&mut self, phase: Phase, window: f64) {
        self.phase = phase;
        (self.empty_rounds, self.long_queue_rounds) = (0, 0);
        self.set_window(window);
        self.begin_settling();
    }

    /// Empties the queue: sends less for a round than `filled`, the Interests that the path holds
    /// without a queue. Continues with `window`.
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

    /// Answers to the present window begin. The earlier ones belong to the last window. They show
    /// how long the queue was when it was cut.
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
            // In a drain only the delay matters, so a few answers are enough. Too few to measure a
            // rate: it is that of the window to continue with.
            Phase::Drain { window } => window / trips.base_ns,
            // The first answers arrive in a burst. Dividing by no less than the round trip keeps
            // them from showing too high a rate.
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

    /// After a round without excess losses and marks.
    fn on_clean_round(&mut self, now: Instant, round: &Round) {
        match &mut self.phase {
            Phase::Drain { window } => {
                let window = *window;
                // If the cut did not help, that call has already chosen the next phase.
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

    /// Steady state: corrects the window so that the queue stays at its target.
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
        // What the path holds without a queue, estimated in two ways. The smaller one is safe.
        let filled = (rate * trips.base_ns).min(self.window - queue);
        let delay_ratio = trips.queueing_ns / trips.base_ns;
        let is_deep = delay_ratio > 1.0 / DEEPEST_DIVISOR
            || delay_ratio > 1.0 / DEEP_DIVISOR && queue > DEEP_TARGETS * target;
        if is_deep || is_squeezed {
            let cut =
                QueueCut::new(self.window, self.uncongested_rate, trips.queueing_ns, is_squeezed);
            self.cut.get_or_insert(cut);
            self.drain(filled, filled + target);
        } else if self.rounds_since_change > REFILL_ROUNDS {
            self.enter_phase(Phase::Steady, (filled + target).max(DECREASE_MAX * self.window));
        }
    }

    /// A queue of this length overflows somewhere. Limits the queue to half of that, and the window
    /// to what the path holds.
    fn on_lossy_round(&mut self, round: &Round) {
        if round.queue >= 1.0 {
            self.queue_max = round.queue * LOSS_QUEUE_FACTOR;
        }
        match self.phase {
            // The drain has already cut the window, so the losses do not cut it again.
            Phase::Drain { window } => self.enter_phase(Phase::Steady, window),
            _ => {
                let filled = round.rate * round.trips.base_ns;
                self.decrease_window((filled / self.window).clamp(DECREASE_MAX, 1.0));
            }
        }
    }

    fn on_marked_round(&mut self, round: &Round) {
        // In proportion to the share of marked packets (as DCTCP).
        let mut decrease = self.stats.marked_packets as f64 / self.stats.packets as f64 / 2.0;
        if self.stats.has_signal {
            self.queue_max = (round.queue * LOSS_QUEUE_FACTOR).max(1.0);
            decrease = decrease.max((round.queue / self.window).min(1.0 / MARK_PARTS));
        }
        self.decrease_window(1.0 - decrease);
    }

    /// The bottleneck has had a queue for a while and sent at its full rate.
    fn end_measurement(&mut self, elapsed_ns: u64, answers: u32, packets: u32) {
        let Some(round) = self.sources.end_partial_round() else { return };
        let rate = f64::from(answers) / elapsed_ns as f64;
        let filled = (rate * round.base_ns).min(self.window);
        let target = self.queue_target(rate, f64::from(packets) / f64::from(answers));
        self.drain(filled, filled + target);
    }

    /// Whether more was lost than links lose: three standard deviations above 2 % of the answers.
    fn has_excess_loss(&mut self, lost: u64) -> bool {
        // For a round or two after a change, losses of Interests sent before it are still found.
        if self.rounds_since_change < 2 {
            (self.answers_since_check, self.lost_at_check) = (0, lost);
        }
        if lost < self.lost_at_check {
            // Some losses were false: their answers arrived late.
            (self.queue_max, self.lost_at_check) = (f64::INFINITY, lost);
        }
        let expected = LOSS_SHARE_MAX * f64::from(self.answers_since_check);
        let is_losing = (lost - self.lost_at_check) as f64 > expected + 3.0 * root(expected);
        if self.answers_since_check >= LOSS_CHECK_ANSWERS || is_losing {
            (self.answers_since_check, self.lost_at_check) = (0, lost);
        }
        is_losing
    }

    /// Whether the queue remains although this flow has drained its own Interests from it. If so,
    /// decides why: the path has become longer, or other flows fill the queue. While undecided, the
    /// drain continues.
    fn cut_was_ineffective(&mut self, round: &Round) -> bool {
        let Some(cut) = &mut self.cut else { return false };
        let &Round { trips, queue, target, .. } = round;
        let queueing_ns = trips.queueing_ns;
        // A small share of the queue is normal next to other `weir` flows, as long as the delay is
        // short too. With a long delay it means that other flows have almost displaced this one.
        let is_small = queue <= 2.0 * target && queueing_ns <= trips.base_ns / DEEPEST_DIVISOR;
        if is_small || queueing_ns <= CUT_LEAVES_MAX * cut.queueing_ns {
            return false;
        }
        let is_steady = (queueing_ns - cut.last_ns).abs() <= STEADY_CHANGE * queueing_ns;
        cut.last_ns = queueing_ns;
        cut.ineffective_rounds += 1;
        let cut = *cut;
        if is_steady && !cut.is_slow && self.rounds >= self.no_rebase_until {
            // The path is longer. Its bottleneck is probably the same, so the old rate needs a
            // larger window.
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

    /// Whether the queue stays too long for many rounds although the window shrinks.
    fn has_standing_queue(&mut self, parts: f64) -> bool {
        self.long_queue_rounds = if parts > LONG_QUEUE { self.long_queue_rounds + 1 } else { 0 };
        self.long_queue_rounds >= LONG_QUEUE_ROUNDS
    }

    /// Lets [`Cubic`] handle the marks; after 64 rounds tests whether the others are gone.
    fn on_competing_round(&mut self, now: Instant, round: &Round) {
        let Phase::Compete { cubic, until } = &mut self.phase else { return };
        if self.stats.marked_packets > 0 {
            cubic.on_congestion(now, Congestion::Mark);
        }
        if self.rounds >= *until {
            // A drain shows whether the other flows are still there.
            let filled = self.window - round.queue;
            self.cut = Some(QueueCut::new(self.window, round.rate, round.trips.queueing_ns, true));
            self.drain(filled, filled + round.target);
        }
    }

    /// Moves the queue towards its target.
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
            1 => self.set_window(self.window + (self.window / STEP_DIVISOR).max(target)),
            // The answers of this round were requested before that step.
            2 => {}
            // The path has become faster: start up again.
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

    /// Decreases the window for a reason other than the measured queue.
    fn decrease_window(&mut self, factor: f64) {
        self.cut = None;
        self.enter_phase(Phase::Steady, self.window * factor);
    }
}

/// The square root, to one part in sixteen.
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
    /// Uses the delay of an answer, or its evidence about the rate.
    fn observe(&mut self, sample: &Sample) {
        let is_late = sample.rtt_ns.is_some_and(|rtt_ns| {
            // At least 1, because later steps divide by it: a coarse clock may measure 0.
            self.sources.add(sample, rtt_ns.max(1) as f64)
        });
        match &mut self.phase {
            Phase::Startup { .. } if is_late => {
                self.phase = Phase::Measure { began: sample.now, answers: 0, packets: 0 };
            }
            Phase::Startup { .. } if sample.window_limited => {
                // Near sources answer more than once in a round, so growth is bounded by the round.
                self.set_window((self.window + 1.0).min(2.0 * self.round_window));
            }
            Phase::Measure { .. } if !self.sources.has_late_source() => {
                // The delay has passed, so it was only a burst.
                self.phase = Phase::Startup { rate: 0.0, full_rounds: 0 };
            }
            Phase::Measure { began, answers, packets } => {
                *answers += 1;
                *packets += sample.packets;
                let (elapsed_ns, answers, packets) =
                    (sample.now.ns_since(*began), *answers, *packets);
                let round_ns = self.sources.nearest_ns();
                if elapsed_ns as f64 >= round_ns
                    || packets >= RATE_PACKETS && elapsed_ns as f64 >= round_ns / RATE_DIVISOR
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
        // Near sources answer while far ones still answer Interests sent under the old window. So
        // the slowest round trip must pass, too.
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
        // A drain may end early: with a single source, a few answers show the delay.
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

    /// Losses and marks are counted in the samples, so only a Nack acts at once: the router has no
    /// room at all.
    fn on_congestion(&mut self, now: Instant, cause: Congestion) {
        if let Phase::Compete { cubic, .. } = &mut self.phase {
            cubic.on_congestion(now, cause);
        } else if cause == Congestion::Nack {
            self.decrease_window(LOSS_FACTOR);
        }
    }

    /// While other answers arrive, a timeout is one more loss, which the samples count. If none has
    /// arrived for a round trip, the window shrinks at once.
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
