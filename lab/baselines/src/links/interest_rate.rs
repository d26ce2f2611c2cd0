use std::collections::VecDeque;
use std::sync::Arc;

use weir_base::{Instant, NS_PER_S};
use weir_link::{ChoiceError, Discipline, DisciplineKind, DisciplineOptions, LinkDrop, Load};
use weir_link::{Outgoing, Outlet, PacketKind, read_options};

pub(super) const KIND: DisciplineKind =
    DisciplineKind { name: "interest-rate", read: |options| Ok(Arc::new(Config::read(options)?)) };

/// How many Interests may leave.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct Config {
    /// Interests per second in the long run, at least 1.
    interests_per_s: u32,
    /// Interests that may leave at once after a pause, at least 1.
    burst: u32,
    /// Limit on waiting Interests; more are dropped.
    held_max: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self { interests_per_s: 1000, burst: 32, held_max: 1024 }
    }
}

impl Config {
    fn read(options: &str) -> Result<Self, ChoiceError> {
        let mut config = Self::default();
        let set = |key: &str, value: &str| value.parse().is_ok_and(|value| config.set(key, value));
        read_options(("queue discipline", KIND.name), options, set)?;
        Ok(config)
    }

    /// Sets option `key` to `value`. Returns false if the option does not exist or rejects the
    /// value.
    fn set(&mut self, key: &str, value: u64) -> bool {
        let field = match key {
            "interests_per_s" => &mut self.interests_per_s,
            "burst" => &mut self.burst,
            "held_max" => &mut self.held_max,
            _ => return false,
        };
        let least = u64::from(key != "held_max");
        let allowed = u32::try_from(value).ok().filter(|_| value >= least);
        allowed.inspect(|&value| *field = value).is_some()
    }

    fn interval_ns(&self) -> u64 {
        (NS_PER_S / u64::from(self.interests_per_s.max(1))).max(1)
    }

    fn tolerance_ns(&self) -> u64 {
        u64::from(self.burst.max(1) - 1) * self.interval_ns()
    }
}

/// Limits Interests to a rate with a token bucket. Data and Nacks pass unshaped.
#[derive(Debug)]
struct InterestRate {
    config: Config,
    waiting: VecDeque<Outgoing>,
    load: Load,
    /// When the bucket is full: the theoretical arrival time of the generic cell rate algorithm
    /// (ITU-T I.371).
    full_at: Instant,
}

impl InterestRate {
    /// When the bucket has a token for one more Interest.
    fn token_at(&self) -> Instant {
        let tolerance_ns = self.config.tolerance_ns();
        Instant::from_ns(self.full_at.as_ns().saturating_sub(tolerance_ns))
    }

    fn take_token(&mut self, now: Instant) {
        self.full_at = self.full_at.max(now).plus_ns(self.config.interval_ns());
    }

    fn enqueue_interest(&mut self, outgoing: Outgoing) {
        let outgoing = outgoing.detached();
        self.load.add(outgoing.packet.len());
        self.waiting.push_back(outgoing);
    }

    fn send_oldest(&mut self, out: &mut Outlet<'_>) {
        let Some(outgoing) = self.waiting.pop_front() else { return };
        self.load.remove(outgoing.packet.len());
        if let Err(reason) = out.send(outgoing) {
            out.counters.drops.count(reason);
        }
    }
}

impl DisciplineOptions for Config {
    fn make(&self, _seed: u64) -> Box<dyn Discipline> {
        Box::new(InterestRate {
            config: *self,
            waiting: VecDeque::new(),
            load: Load::default(),
            full_at: Instant::ZERO,
        })
    }
}

impl Discipline for InterestRate {
    fn enqueue(
        &mut self,
        now: Instant,
        outgoing: Outgoing,
        out: &mut Outlet<'_>,
    ) -> Result<(), LinkDrop> {
        if outgoing.kind != PacketKind::Interest {
            return out.send(outgoing);
        }
        if self.waiting.is_empty() && self.token_at() <= now {
            self.take_token(now);
            return out.send(outgoing);
        }
        if self.waiting.len() >= self.config.held_max as usize {
            return Err(LinkDrop::InterestRate);
        }
        self.enqueue_interest(outgoing);
        out.counters.out_interests_delayed += 1;
        Ok(())
    }

    fn poll(&mut self, now: Instant, out: &mut Outlet<'_>) {
        while !self.waiting.is_empty() && self.token_at() <= now {
            self.take_token(now);
            self.send_oldest(out);
        }
    }

    fn next_wakeup(&self) -> Option<Instant> {
        (!self.waiting.is_empty()).then(|| self.token_at())
    }

    fn load(&self) -> Load {
        self.load
    }

    fn drop_newest(&mut self) -> Option<Outgoing> {
        let newest = self.waiting.pop_back()?;
        self.load.remove(newest.packet.len());
        Some(newest)
    }

    fn release(&mut self, _now: Instant, out: &mut Outlet<'_>) {
        while !self.waiting.is_empty() {
            self.send_oldest(out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read() {
        let config = Config { interests_per_s: 5000, burst: 64, held_max: 1024 };
        assert_eq!(Config::read("interests_per_s=5000  burst=64"), Ok(config));
        for option in ["burst=0", "burst", "burst=x", "interests_per_s=5000000000", "depth=3"] {
            let expected = format!(
                "invalid option `{option}` of the queue discipline `interest-rate`: there is no \
                 such option, or it cannot have this value"
            );
            assert_eq!(Config::read(option).unwrap_err().to_string(), expected);
        }
    }
}
