//! Our own controller: the window that the path fills without a queue, and a short queue beside it.
//! `docs/controllers/weir.md` has the equations.

use weir_base::{Instant, NS_PER_MS, NS_PER_S};

use super::constants::constants;
use super::cubic::Cubic;
use super::sources::{RoundTrips, Sources};
use super::{Allowance, Congestion, CongestionControl, Make, Marks, Rules, Sample, WindowBounds};

/// It has no constants to tune.
#[derive(Debug, Default)]
pub(crate) struct WeirConfig;

constants!(WeirConfig {});

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
/// The step of growth where there has been no queue for two rounds, as a part of the window.
const STEP_PARTS: f64 = 8.0;
/// A mark that is a whole signal costs this part of the window at least, however few there are.
const MARK_PARTS: f64 = 8.0;
/// Losses up to this part of what was asked for are not taken for congestion, which shows in the
/// delay; of so many Interests at least.
const LOSS_SHARE_MAX: f64 = 1.0 / 50.0;
const LOSS_OF: u32 = 100;
/// What more of them leave of the window (as in `cubic`), and of the queue that is kept.
const LOSS_FACTOR: f64 = 0.7;
const LOSS_QUEUE_FACTOR: f64 = 0.5;
/// By which part the queue that is kept grows again each round.
const QUEUE_GROWTH: f64 = 1.0 / 64.0;
/// What a decrease leaves at least.
const DECREASE_MAX: f64 = 0.25;
/// A smaller window has not helped if more of the delay than this is left, and has cost something
/// if less of the rate; the path has become longer if nearly all of the delay is left.
const HELPED: f64 = 0.4;
const COST: f64 = 0.9;
/// The same where content comes from several distances: which of it is asked for varies.
const COST_OF_SEVERAL: f64 = 0.75;
const LONGER: f64 = 0.98;
/// A window below the first shrinks to this part of it at the end of startup, which shows whether
/// the queue is its own.
const TRIED_WINDOW: f64 = 32.0;
const TRIED_FACTOR: f64 = 0.75;
/// Rounds of competing with flows that fill the queue, until it is tried again without.
const RIVAL_ROUNDS: u64 = 64;
/// How often the window shrinks for a round so that others see the path without our queue, and to
/// what part.
const DRAIN_INTERVAL_NS: u64 = 10 * NS_PER_S;
const DRAIN_ROUNDS: u64 = 64;
const DRAIN_FACTOR: f64 = 0.875;
/// How much faster than the window alone Interests may leave: in startup, and after it.
const PACE_STARTUP: f64 = 2.0;
const PACE: f64 = 1.25;
/// Shorter round trips are not paced: drivers' timers are not as fine.
const PACED_RTT_NS: f64 = 2.0 * NS_PER_MS as f64;

/// What one round of answers told.
#[derive(Copy, Clone, Debug, Default)]
struct Tally {
    answers: u32,
    packets: u64,
    marked_packets: u64,
    /// Marks among them are whole signals.
    has_signal: bool,
    bytes: u64,
    is_limited: bool,
}

/// A decrease because of a queue, until it is known whether it helped.
#[derive(Copy, Clone, Debug)]
struct Cut {
    /// The window before, and what it brought: Interests a nanosecond, and the mean delay.
    window: f64,
    rate: f64,
    queueing_ns: f64,
}

impl Cut {
    fn of(window: f64, round: &RoundTrips) -> Self {
        Self { window, rate: window / round.rtt_ns, queueing_ns: round.queueing_ns }
    }

    /// Whether `window` has cost rate and left a queue. A queue of ours would have kept the rate up
    /// until it was gone.
    fn is_vain(&self, window: f64, round: &RoundTrips) -> bool {
        let cost = if round.sources > 1 { COST_OF_SEVERAL } else { COST };
        round.queueing_ns > HELPED * self.queueing_ns && window / round.rtt_ns < cost * self.rate
    }
}

/// Keeps a short queue by the delay of answers, each held against the shortest of its own
/// [source](Sources); hears marks, and losses when there are more of them than links have; competes
/// as [`Cubic`] does while others fill the queue.
#[derive(Clone, Debug)]
pub(crate) struct Weir {
    window: f64,
    window_max: f64,
    sources: Sources,
    tally: Tally,
    round_began: Option<Instant>,
    round_window: f64,
    /// Answers to Interests from this place on end the round.
    round_end: u64,
    rounds: u64,
    answered_at: Instant,
    /// The place that the next Interest takes.
    next_order: u64,
    /// Only answers to Interests from this place on tell of the present window.
    settles: Option<u64>,
    startup: Option<Startup>,
    /// Rounds in a row without a queue.
    empty_rounds: u32,
    cut: Option<Cut>,
    /// In place of all this while others fill the queue, until a round.
    rival: Option<(Cubic, u64)>,
    /// Rounds since the last decrease.
    fresh_rounds: u32,
    /// The window to come back to after a drain.
    drained: Option<f64>,
    drain_at: Option<(Instant, u64)>,
    pacing_bps: Option<u64>,
    /// Answers since losses were judged last, and how many were lost before.
    judged: u32,
    lost: u64,
    /// A longer queue than this is lost, in Interests.
    queue_max: f64,
}

#[derive(Copy, Clone, Debug, Default)]
struct Startup {
    rate: f64,
    full_rounds: u32,
}

impl Startup {
    /// Whether the rate has stopped growing.
    fn is_full(&mut self, rate: f64) -> bool {
        let is_grown = rate >= FULL_GROWTH * self.rate;
        self.rate = self.rate.max(rate);
        self.full_rounds = if is_grown { 0 } else { self.full_rounds + 1 };
        self.full_rounds >= FULL_ROUNDS
    }
}

impl Weir {
    /// Interests of ours that may wait at the bottleneck: one at least, since a chunk comes as a
    /// burst, and half the root of the packets of the window, so that flows of
    /// one bottleneck, who all see the same delay, come to equal shares; the mean is far below what
    /// a router marks for.
    fn queue_target(&self, rate: f64, packets: f64) -> f64 {
        let root = ((self.window * packets * 256.0) as u64).isqrt() as f64 / 16.0;
        let target = (root / 2.0).max(QUEUE_MIN_PACKETS).max(rate * packets * QUEUE_MIN_NS);
        (target / packets).max(1.0).min(self.queue_max)
    }

    /// What is on the way was sent under another window.
    fn settle(&mut self) {
        self.settles = Some(self.next_order);
        self.fresh_rounds = 0;
    }

    fn set_window(&mut self, window: f64) {
        self.window = window.clamp(WINDOW_MIN.min(self.window_max), self.window_max);
    }

    fn end_startup(&mut self) {
        self.startup = None;
        self.empty_rounds = 0;
        self.settle();
        self.set_window(self.window / 2.0);
    }

    /// Startup has met a queue, in a round that has lasted so long. The window has doubled since
    /// the Interests left that tell of it.
    fn meet_queue(&mut self, elapsed_ns: u64) {
        let (rtt_ns, queueing_ns) = self.sources.late_ns();
        let window = self.window / 2.0;
        let rate = f64::from(self.tally.answers) / elapsed_ns.max(1) as f64;
        self.end_startup();
        self.cut = Some(Cut { window, rate: rate.min(window / rtt_ns), queueing_ns });
        if window < TRIED_WINDOW {
            self.set_window(window * TRIED_FACTOR);
        }
    }

    fn begin_round(&mut self, sample: &Sample) {
        self.tally = Tally::default();
        self.round_began = Some(sample.now);
        self.round_window = self.window;
        self.round_end = sample.next_order;
    }

    fn end_round(&mut self, sample: &Sample, elapsed_ns: u64) {
        let tally = self.tally;
        self.rounds += 1;
        self.fresh_rounds += 1;
        let Some(round) = self.sources.end_round() else { return };
        // The first answers of all come at once.
        let rate = f64::from(tally.answers) / (elapsed_ns as f64).max(round.rtt_ns);
        self.pace(&tally, &round);
        self.queue_max *= 1.0 + QUEUE_GROWTH;
        let target = self.queue_target(rate, tally.packets as f64 / f64::from(tally.answers));
        let queue = rate * round.queueing_ns;
        if self.rival.is_some() {
            self.compete(sample.now, queue, &round, target);
        } else if self.is_losing(sample.lost) {
            if queue >= 1.0 {
                self.queue_max = queue * LOSS_QUEUE_FACTOR;
            }
            let filled = rate * round.base_ns / self.window;
            self.shrink(filled.clamp(DECREASE_MAX, 1.0));
        } else if tally.marked_packets > 0 {
            let share = tally.marked_packets as f64 / tally.packets as f64;
            let least = if tally.has_signal { 1.0 / MARK_PARTS } else { 0.0 };
            self.shrink(1.0 - (share / 2.0).max(least));
        } else if let Some(window) = self.drained.take() {
            self.set_window(window);
            self.settle();
        } else if let Some(startup) = &mut self.startup {
            if startup.is_full(rate) {
                self.end_startup();
            }
        } else if let Some(cut) = self.cut
            && cut.is_vain(self.window, &round)
        {
            self.undo(cut, &round);
        } else if queue > 2.0 * target {
            self.empty_rounds = 0;
            let cut = Cut::of(self.window, &round);
            self.cut.get_or_insert(cut);
            let window = (self.window - queue).min(rate * round.base_ns) + target;
            self.set_window(window.max(DECREASE_MAX * self.window));
            self.settle();
        } else {
            self.cut = None;
            if tally.is_limited {
                self.approach(rate, queue, target);
            }
            self.drain(sample.now);
        }
    }

    fn pace(&mut self, tally: &Tally, round: &RoundTrips) {
        let factor = if self.startup.is_some() { PACE_STARTUP } else { PACE };
        let bits = 8.0 * tally.bytes as f64 / f64::from(tally.answers);
        let bps = factor * self.window * bits / round.base_ns * NS_PER_S as f64;
        self.pacing_bps = (round.base_ns >= PACED_RTT_NS).then_some(bps as u64);
    }

    /// Whether more is lost than what links lose.
    fn is_losing(&mut self, lost: u64) -> bool {
        // It takes a round trip and more to find what was lost before the last decrease.
        if self.fresh_rounds < 2 {
            (self.judged, self.lost) = (0, lost);
        }
        if lost < self.lost {
            // They were only late.
            (self.queue_max, self.lost) = (f64::INFINITY, lost);
        }
        let share = (lost - self.lost) as f64 / f64::from(self.judged.max(LOSS_OF));
        if self.judged >= LOSS_OF || share > LOSS_SHARE_MAX {
            (self.judged, self.lost) = (0, lost);
        }
        share > LOSS_SHARE_MAX
    }

    /// A smaller window has not shortened the queue.
    fn undo(&mut self, cut: Cut, round: &RoundTrips) {
        self.empty_rounds = 0;
        self.cut = None;
        self.settle();
        if round.queueing_ns > LONGER * cut.queueing_ns {
            // The bottleneck is what it was, as far as is known.
            self.sources.rebase();
            self.set_window(cut.window.max(cut.rate * round.rtt_ns));
        } else {
            self.set_window(cut.window);
            let rival = Cubic::past_slow_start(cut.window, self.window_max);
            self.rival = Some((rival, self.rounds + RIVAL_ROUNDS));
        }
    }

    /// Others fill the queue.
    fn compete(&mut self, now: Instant, queue: f64, round: &RoundTrips, target: f64) {
        let Some((rival, until)) = &mut self.rival else { return };
        if self.tally.marked_packets > 0 {
            rival.on_congestion(now, Congestion::Mark);
        }
        if queue <= target {
            self.rival = None;
        } else if self.rounds >= *until {
            // Are they still there?
            self.rival = None;
            self.cut = Some(Cut::of(self.window, round));
            self.set_window((self.window - queue).max(self.window / 2.0));
            self.settle();
        }
    }

    /// Comes nearer to the queue that should be.
    fn approach(&mut self, rate: f64, queue: f64, target: f64) {
        if queue >= target / 2.0 {
            self.empty_rounds = 0;
            self.set_window(self.window + (target - queue) / 2.0);
            return;
        }
        self.empty_rounds += 1;
        match self.empty_rounds {
            1 => self.set_window(self.window + target),
            2 => self.set_window(self.window + (self.window / STEP_PARTS).max(target)),
            // There is much more room than before.
            _ => self.startup = Some(Startup { rate, ..Startup::default() }),
        }
    }

    fn drain(&mut self, now: Instant) {
        let (at, round) = *self.drain_at.get_or_insert((now, self.rounds));
        if now.ns_since(at) >= DRAIN_INTERVAL_NS && self.rounds >= round + DRAIN_ROUNDS {
            self.drain_at = Some((now, self.rounds));
            self.drained = Some(self.window);
            self.set_window(self.window * DRAIN_FACTOR);
            self.settle();
        }
    }

    /// Congestion that is none of our measuring.
    fn shrink(&mut self, factor: f64) {
        self.startup = None;
        self.cut = None;
        self.empty_rounds = 0;
        self.settle();
        self.set_window(self.window * factor);
    }
}

impl Make for Weir {
    type Config = WeirConfig;

    fn bounded(_config: WeirConfig, bounds: WindowBounds) -> Self {
        Self {
            window: bounds.initial_or(INITIAL_WINDOW).min(bounds.max()),
            window_max: bounds.max(),
            sources: Sources::default(),
            tally: Tally::default(),
            round_began: None,
            round_window: bounds.initial_or(INITIAL_WINDOW),
            round_end: 0,
            rounds: 0,
            answered_at: Instant::ZERO,
            next_order: 0,
            settles: None,
            startup: Some(Startup::default()),
            empty_rounds: 0,
            cut: None,
            rival: None,
            fresh_rounds: 0,
            drained: None,
            drain_at: None,
            pacing_bps: None,
            judged: 0,
            lost: 0,
            queue_max: f64::INFINITY,
        }
    }
}

impl CongestionControl for Weir {
    fn on_data(&mut self, sample: &Sample) {
        (self.answered_at, self.next_order) = (sample.now, sample.next_order);
        self.judged += 1;
        if self.settles.is_some_and(|order| sample.sent_order >= order) {
            self.settles = None;
            self.sources.begin_round();
            self.begin_round(sample);
        }
        let began = *self.round_began.get_or_insert(sample.now);
        self.tally.answers += 1;
        self.tally.packets += u64::from(sample.packets);
        self.tally.marked_packets += u64::from(sample.marked_packets);
        self.tally.has_signal |= sample.mark.is_sparse();
        self.tally.bytes += sample.bytes as u64;
        self.tally.is_limited |= sample.window_limited;
        if let Some(rtt_ns) = sample.rtt_ns {
            let is_late = self.sources.add(sample.sent_order, rtt_ns as f64, sample.packets);
            if is_late && self.startup.is_some() {
                self.meet_queue(sample.now.ns_since(began));
            }
        }
        if let Some((rival, _)) = &mut self.rival {
            rival.on_data(sample);
            let window = rival.allowance().window;
            self.set_window(window);
        } else if self.startup.is_some() && sample.window_limited {
            // Near sources answer more than once in a round.
            self.set_window((self.window + 1.0).min(2.0 * self.round_window));
        }
        let elapsed_ns = sample.now.ns_since(began);
        if self.settles.is_none()
            && sample.sent_order >= self.round_end
            && elapsed_ns >= self.sources.slowest_ns()
        {
            self.end_round(sample, elapsed_ns);
            self.begin_round(sample);
        }
    }

    /// Losses are counted, and marks, too. A router that refuses has no room at all.
    fn on_congestion(&mut self, now: Instant, cause: Congestion) {
        if let Some((rival, _)) = &mut self.rival {
            rival.on_congestion(now, cause);
        } else if cause == Congestion::Nack {
            self.shrink(LOSS_FACTOR);
        }
    }

    /// A loss like others, unless nothing else has come either.
    fn on_timeout(&mut self, now: Instant) {
        if now.ns_since(self.answered_at) > self.sources.slowest_ns() {
            self.rival = None;
            self.shrink(LOSS_FACTOR);
        } else if let Some((rival, _)) = &mut self.rival {
            rival.on_congestion(now, Congestion::Loss);
        }
    }

    fn allowance(&self) -> Allowance {
        Allowance { window: self.window, pacing_bps: self.pacing_bps }
    }

    fn rules(&self) -> Rules {
        Rules { marks: Marks::Unheard, ..Rules::default() }
    }
}
