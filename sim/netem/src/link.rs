use std::collections::VecDeque;

use weir_base::{Instant, NS_PER_S, Rng};

use crate::config::{Jitter, LinkConfig, Loss};
use crate::random::{self, Chance};

/// What happens to a frame that is sent.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Transit {
    /// It arrives at this time, unless the link goes down before ([`LinkModel::cuts`]).
    Arrives(Instant),
    Dropped(LinkDrop),
}

/// Why a frame does not arrive.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum LinkDrop {
    /// The queue would exceed `queue_bytes_max`.
    QueueBytes,
    /// The queue would exceed `queue_packets_max`.
    QueuePackets,
    /// Lost on the wire.
    Loss,
    Down,
}

/// Counters of a link. Bytes exclude the overhead.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkStats {
    pub offered_frames: u64,
    pub offered_bytes: u64,
    /// Frames that [`LinkModel::survives`] counted as arrived.
    pub delivered_frames: u64,
    pub delivered_bytes: u64,
    /// Frames dropped because of `queue_bytes_max`.
    pub dropped_queue_bytes: u64,
    /// Frames dropped because of `queue_packets_max`.
    pub dropped_queue_packets: u64,
    /// Frames lost on the wire.
    pub dropped_loss: u64,
    /// Frames sent while the link was down.
    pub dropped_down: u64,
    /// Frames in flight when the link went down, as counted by [`LinkModel::survives`].
    pub lost_in_cuts: u64,
    /// Frames delayed to arrive out of order.
    pub reordered_frames: u64,
    /// Time spent sending, ns. Divided by the elapsed time, it gives the utilisation.
    pub busy_ns: u64,
    /// Longest queue in bytes.
    pub queue_bytes_peak: u64,
    /// Longest queue in frames.
    pub queue_packets_peak: u32,
}

impl LinkStats {
    /// Frames that did not arrive.
    pub fn dropped_frames(&self) -> u64 {
        self.dropped_queue_bytes
            + self.dropped_queue_packets
            + self.dropped_loss
            + self.dropped_down
            + self.lost_in_cuts
    }
}

#[derive(Copy, Clone, Debug)]
struct QueuedFrame {
    /// When it leaves the queue and its sending starts.
    starts_ns: u64,
    bytes: u64,
}

/// State of [`Loss`].
#[derive(Copy, Clone, Debug)]
struct LossState {
    is_bad: bool,
    good_to_bad: Chance,
    bad_to_good: Chance,
    in_good: Chance,
    in_bad: Chance,
}

impl LossState {
    fn new(loss: &Loss, rng: &mut Rng) -> Self {
        let never = Chance::new(0.0);
        match *loss {
            Loss::None => Self::fixed(never),
            Loss::Independent { probability } => Self::fixed(Chance::new(probability)),
            Loss::GilbertElliott { good_to_bad, bad_to_good, loss_good, loss_bad } => Self {
                is_bad: Chance::new(loss.bad_share()).happens(rng),
                good_to_bad: Chance::new(good_to_bad),
                bad_to_good: Chance::new(bad_to_good),
                in_good: Chance::new(loss_good),
                in_bad: Chance::new(loss_bad),
            },
        }
    }

    fn fixed(chance: Chance) -> Self {
        let never = Chance::new(0.0);
        Self {
            is_bad: false,
            good_to_bad: never,
            bad_to_good: never,
            in_good: chance,
            in_bad: chance,
        }
    }

    #[inline]
    fn loses(&mut self, rng: &mut Rng) -> bool {
        // The state may change before each frame, in the Gilbert-Elliott model.
        let step = if self.is_bad { self.bad_to_good } else { self.good_to_bad };
        self.is_bad ^= step.happens(rng);
        let chance = if self.is_bad { self.in_bad } else { self.in_good };
        chance.happens(rng)
    }
}

/// One direction of a link. It computes when each frame arrives, or why it is dropped.
///
/// **Rate.** Frames are sent one after another. The model carries fractions of a nanosecond from
/// frame to frame, so the rate is exact over any number of frames.
///
/// **Queue.** Waiting frames are limited in bytes and in number. The frame being sent does not
/// count, so a queue of 0 still carries frames that find the link idle.
///
/// **Time.** Times must not decrease. An earlier time counts as the latest one given.
///
/// **Down.** A link that is down drops every frame. Going down also empties the queue and loses the
/// frames in flight. Their arrivals were already announced, so the caller must do two things: store
/// [`cuts`](Self::cuts) with each frame it sends, and call [`survives`](Self::survives) on arrival.
#[derive(Clone, Debug)]
pub struct LinkModel {
    config: LinkConfig,
    /// The rate without a fault that reduces it.
    full_rate_bps: Option<u64>,
    loss: LossState,
    reorders: Chance,
    is_up: bool,
    cuts: u32,
    /// The latest time given.
    now_ns: u64,
    /// When the last frame has left, rounded down; `busy_rest` holds the fraction in units of `1 /
    /// rate` ns.
    busy_until_ns: u64,
    busy_rest: u64,
    /// No later frame may arrive before this time, unless it is reordered.
    latest_arrival_ns: u64,
    waiting: VecDeque<QueuedFrame>,
    waiting_bytes: u64,
    loss_rng: Rng,
    jitter_rng: Rng,
    reorder_rng: Rng,
    stats: LinkStats,
}

impl LinkModel {
    /// An idle link that is up. All random numbers come from `seed`. Loss, jitter and reordering
    /// use separate streams, so changing one leaves the others as they are.
    ///
    /// Invalid values are clamped: a rate of 0 becomes 1 bit/s, and a probability the nearest valid
    /// one.
    pub fn new(config: LinkConfig, seed: u64) -> Self {
        let mut loss_rng = random::stream(seed, 0);
        Self {
            loss: LossState::new(&config.loss, &mut loss_rng),
            reorders: Chance::new(config.reorder.map_or(0.0, |reorder| reorder.probability)),
            full_rate_bps: config.rate_bps,
            config,
            is_up: true,
            cuts: 0,
            now_ns: 0,
            busy_until_ns: 0,
            busy_rest: 0,
            latest_arrival_ns: 0,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            loss_rng,
            jitter_rng: random::stream(seed, 1),
            reorder_rng: random::stream(seed, 2),
            stats: LinkStats::default(),
        }
    }

    /// Sends a frame of `bytes` bytes at `now`.
    #[inline]
    pub fn send(&mut self, now: Instant, bytes: u32) -> Transit {
        let now_ns = self.advance(now);
        self.stats.offered_frames += 1;
        self.stats.offered_bytes += u64::from(bytes);
        if !self.is_up {
            self.stats.dropped_down += 1;
            return Transit::Dropped(LinkDrop::Down);
        }
        let left_ns = match self.config.rate_bps {
            None => now_ns,
            Some(rate_bps) => match self.transmit(now_ns, bytes, rate_bps.max(1)) {
                Ok(left_ns) => left_ns,
                Err(drop) => return Transit::Dropped(drop),
            },
        };
        // A frame that is lost on the wire has still used the link.
        if self.loss.loses(&mut self.loss_rng) {
            self.stats.dropped_loss += 1;
            return Transit::Dropped(LinkDrop::Loss);
        }
        Transit::Arrives(Instant::from_ns(self.arrival_ns(left_ns)))
    }

    /// Removes frames from the queue whose sending has started by `now`.
    #[inline]
    fn advance(&mut self, now: Instant) -> u64 {
        self.now_ns = self.now_ns.max(now.as_ns());
        while let Some(first) = self.waiting.front()
            && first.starts_ns <= self.now_ns
        {
            self.waiting_bytes -= first.bytes;
            self.waiting.pop_front();
        }
        self.now_ns
    }

    /// Computes when the frame's last bit leaves.
    #[inline]
    fn transmit(&mut self, now_ns: u64, bytes: u32, rate_bps: u64) -> Result<u64, LinkDrop> {
        let wire_bytes = u64::from(bytes) + u64::from(self.config.overhead_bytes);
        if self.busy_until_ns > now_ns {
            self.enqueue(wire_bytes)?;
        // The link was idle, so no fraction of a nanosecond carries over.
        } else if self.busy_until_ns < now_ns {
            self.busy_until_ns = now_ns;
            self.busy_rest = 0;
        }
        // A frame has at most 2^33 bytes; below 2^31 the product fits in 64 bits.
        let (sending_ns, rest) = match (wire_bytes * 8).checked_mul(NS_PER_S) {
            Some(work) if work <= u64::MAX - self.busy_rest => {
                let work = work + self.busy_rest;
                (work / rate_bps, work % rate_bps)
            }
            _ => {
                let work =
                    u128::from(wire_bytes * 8) * u128::from(NS_PER_S) + u128::from(self.busy_rest);
                let rate_bps = u128::from(rate_bps);
                (u64::try_from(work / rate_bps).unwrap_or(u64::MAX), (work % rate_bps) as u64)
            }
        };
        self.busy_until_ns = self.busy_until_ns.saturating_add(sending_ns);
        self.busy_rest = rest;
        self.stats.busy_ns = self.stats.busy_ns.saturating_add(sending_ns);
        Ok(self.busy_until_ns)
    }

    fn enqueue(&mut self, wire_bytes: u64) -> Result<(), LinkDrop> {
        if self.waiting.len() >= self.config.queue_packets_max as usize {
            self.stats.dropped_queue_packets += 1;
            return Err(LinkDrop::QueuePackets);
        }
        if self.waiting_bytes + wire_bytes > self.config.queue_bytes_max {
            self.stats.dropped_queue_bytes += 1;
            return Err(LinkDrop::QueueBytes);
        }
        self.waiting.push_back(QueuedFrame { starts_ns: self.busy_until_ns, bytes: wire_bytes });
        self.waiting_bytes += wire_bytes;
        self.stats.queue_bytes_peak = self.stats.queue_bytes_peak.max(self.waiting_bytes);
        self.stats.queue_packets_peak =
            self.stats.queue_packets_peak.max(self.waiting.len() as u32);
        Ok(())
    }

    #[inline]
    fn arrival_ns(&mut self, left_ns: u64) -> u64 {
        let delay_ns = self.config.delay_ns;
        let delay_ns = match self.config.jitter {
            Jitter::None => delay_ns,
            Jitter::Uniform { max_ns } => {
                delay_ns.saturating_add(random::up_to(&mut self.jitter_rng, max_ns))
            }
            Jitter::Normal { sigma_ns } => {
                let extra = random::normal(&mut self.jitter_rng) * sigma_ns as f64;
                // The cast saturates.
                delay_ns.saturating_add_signed(extra.round() as i64)
            }
        };
        // Jitter alone never reorders: a frame arrives no earlier than the one before it.
        let arrival_ns = left_ns.saturating_add(delay_ns).max(self.latest_arrival_ns);
        if let Some(reorder) = self.config.reorder
            && self.reorders.happens(&mut self.reorder_rng)
        {
            self.stats.reordered_frames += 1;
            return arrival_ns.saturating_add(reorder.extra_ns);
        }
        self.latest_arrival_ns = arrival_ns;
        arrival_ns
    }

    /// Takes the link up or down. Going down empties the queue and loses frames in flight, see
    /// [`LinkModel`].
    pub fn set_up(&mut self, up: bool) {
        if self.is_up && !up {
            self.cuts = self.cuts.wrapping_add(1);
            self.waiting.clear();
            self.waiting_bytes = 0;
            self.busy_until_ns = self.now_ns;
            self.busy_rest = 0;
            // Later frames need not arrive after frames that were lost.
            self.latest_arrival_ns = self.now_ns;
        }
        self.is_up = up;
    }

    /// Whether the link is up.
    pub fn is_up(&self) -> bool {
        self.is_up
    }

    /// How often the link went down. Store it with each frame that is sent.
    #[inline]
    pub fn cuts(&self) -> u32 {
        self.cuts
    }

    /// Whether an announced frame arrives, given [`cuts`](Self::cuts) when it was sent. Counts the
    /// frame as delivered or lost, so call it once for each frame, at its arrival.
    ///
    /// Counting on sending would not work: a link that goes down would have to decrease the
    /// counter.
    #[inline]
    pub fn survives(&mut self, cuts_when_sent: u32, bytes: u32) -> bool {
        let survives = self.cuts == cuts_when_sent;
        if survives {
            self.stats.delivered_frames += 1;
            self.stats.delivered_bytes += u64::from(bytes);
        } else {
            self.stats.lost_in_cuts += 1;
        }
        survives
    }

    /// Bytes waiting at `now`, with overhead and without the frame being sent.
    pub fn queue_bytes(&mut self, now: Instant) -> u64 {
        self.advance(now);
        self.waiting_bytes
    }

    /// Frames waiting at `now`, without the one being sent.
    pub fn queue_packets(&mut self, now: Instant) -> u32 {
        self.advance(now);
        self.waiting.len() as u32
    }

    /// The counters so far.
    pub fn stats(&self) -> &LinkStats {
        &self.stats
    }

    pub fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// Reduces the rate to a fraction of the configured one, for frames sent from now on. Frames
    /// sent before keep their times.
    pub fn set_rate_share(&mut self, share: f64) {
        let full = self.full_rate_bps;
        self.set_rate(full.map(|rate_bps| (rate_bps as f64 * share).round() as u64));
    }

    fn set_rate(&mut self, rate_bps: Option<u64>) {
        // Converts the fraction of a nanosecond to units of the new rate.
        self.busy_rest = match (self.config.rate_bps, rate_bps) {
            (Some(old), Some(new)) => {
                let rest = u128::from(self.busy_rest) * u128::from(new.max(1));
                (rest / u128::from(old.max(1))) as u64
            }
            _ => 0,
        };
        self.config.rate_bps = rate_bps;
    }
}

#[cfg(test)]
mod tests;
