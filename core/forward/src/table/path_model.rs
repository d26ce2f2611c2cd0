//! A model of what lies behind a next hop: a path there and back, and a queue that this router
//! shares with other routers.

use weir_base::Instant;

use crate::table::queue_estimator::{QueueEstimator, ServerPreference};

/// Number of round-trip times that the average of the wait for others covers.
const ROUND_TRIPS: f64 = 32.0;
/// 1 / weight of an answer in averages over answers.
const ANSWERS: f64 = 256.0;
/// From this many pairs of answers on, they determine the service time.
const PAIRS_MIN: f64 = 3.0;
/// The largest load by others that the model assumes.
const LOAD_MAX: f64 = 0.97;
/// A wait below this share of the base round-trip time counts as none.
const WAIT_MIN: f64 = 1e-3;
/// Number of round-trip times after which a burst has passed. Interests that are then still in
/// flight form a standing queue.
const STANDING_QUEUE_RTTS: f64 = 128.0;
/// 1 / weight of a longer sample in the base round-trip time. Without this weight, the base could
/// not rise.
const BASE_ANSWERS: f64 = 65_536.0;
/// If another source answers an Interest, its late Data may arrive within this many average
/// round-trip times.
const STRAY_ROUND_TRIPS: f64 = 2.0;

/// An exponentially weighted average that is unbiased from the first sample on.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    weight: f64,
    value: f64,
}

impl Mean {
    /// `gain` is the weight of the sample, 0 to 1.
    fn add(&mut self, sample: f64, gain: f64) {
        self.weight += (1.0 - self.weight) * gain;
        self.value += (sample - self.value) * gain / self.weight;
    }
}

/// The effect of other traffic on the queue behind a next hop.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CrossTraffic {
    /// How long an Interest waits for other traffic, ns.
    pub(crate) wait_ns: f64,
    /// Total additional wait of other Interests because of one more Interest, ns.
    pub(crate) delay_to_others_ns: f64,
    /// Their arrival rate, 1/ns.
    pub(crate) rate: f64,
}

/// A model of the queue behind a next hop, learned from the Interests sent there.
#[derive(Clone, Debug)]
pub(crate) struct PathModel {
    /// How this router's own Interests there queue behind each other.
    estimator: QueueEstimator,
    /// The base round-trip time: the shortest one, ns.
    base_ns: f64,
    /// Until then, Data may arrive that answers an earlier Interest of the same name.
    stray_until: Instant,
    mean_ns: Mean,
    /// The wait for others, ns: round-trip times without the base and without the wait behind this
    /// router's own Interests.
    cross_wait_ns: Mean,
    /// The difference between two round-trip times, if the second Interest was sent before the
    /// first was served. With a queue it is one service time.
    step_ns: Mean,
    pairs: f64,
    /// When the last answered Interest was sent, and its round-trip time.
    last: Option<(Instant, f64)>,
    answered_at: Instant,
    /// Number of Interests sent there, and how many of them the adaptive policy has accounted for.
    /// It chose this hop for them, or counted them with `take_unexpected`.
    sent: u64,
    accounted: u64,
    /// Interests in flight there by choice.
    chosen_in_flight: u32,
    /// Time that Interests spent elsewhere since this hop was last used, ns.
    pub(crate) spent_elsewhere_ns: f64,
    /// The smallest `chosen_in_flight` in the previous period and in this one.
    least_in_flight: [u32; 2],
    span_began: Instant,
    /// Whether a standing queue was found. The number in flight by choice is then limited to what
    /// the path holds.
    is_full: bool,
}

impl Default for PathModel {
    fn default() -> Self {
        Self {
            estimator: QueueEstimator::new(ServerPreference::Most),
            base_ns: 0.0,
            stray_until: Instant::ZERO,
            mean_ns: Mean::default(),
            cross_wait_ns: Mean::default(),
            step_ns: Mean::default(),
            pairs: 0.0,
            last: None,
            answered_at: Instant::ZERO,
            sent: 0,
            accounted: 0,
            chosen_in_flight: 0,
            spent_elsewhere_ns: 0.0,
            least_in_flight: [0; 2],
            span_began: Instant::ZERO,
            is_full: false,
        }
    }
}

impl PathModel {
    pub(crate) fn is_known(&self) -> bool {
        self.estimator.is_known()
    }

    /// Number of answers that the model is based on.
    pub(crate) fn answers(&self) -> u64 {
        self.estimator.answers()
    }

    /// Records an Interest that is sent there. Returns whether the adaptive policy chose this hop
    /// for it.
    pub(crate) fn on_sent(&mut self) -> bool {
        let is_chosen = self.accounted > self.sent;
        self.chosen_in_flight += u32::from(is_chosen);
        self.sent += 1;
        self.spent_elsewhere_ns = 0.0;
        is_chosen
    }

    /// An Interest that was sent by choice is no longer in flight.
    pub(crate) fn on_flight_end(&mut self) {
        // The model may have been dropped and created again since.
        self.chosen_in_flight = self.chosen_in_flight.saturating_sub(1);
    }

    /// Announces that the policy chose this hop for the next Interest.
    pub(crate) fn expect_send(&mut self) {
        self.accounted += 1;
    }

    /// Interests sent there by other strategies since the last call.
    pub(crate) fn take_unexpected(&mut self) -> u64 {
        let sent = self.sent.saturating_sub(self.accounted);
        self.accounted = self.sent;
        sent
    }

    /// An Interest sent at `since`, with `ahead` others in flight, was answered or has failed.
    /// Without `is_data` it was refused or timed out: a quick refusal must not shorten the base
    /// round-trip time.
    pub(crate) fn on_answer(&mut self, now: Instant, since: Instant, ahead: u32, is_data: bool) {
        let took_ns = now.ns_since(since).max(1) as f64;
        // This may be late Data of an earlier Interest, or a refusal from nearby.
        if took_ns < self.base_ns && (now < self.stray_until || !is_data) {
            return;
        }
        self.estimator.on_departure(now, ahead, took_ns as u64);
        if self.base_ns == 0.0 || took_ns < self.base_ns {
            self.base_ns = took_ns;
        } else {
            self.base_ns += (took_ns - self.base_ns) / BASE_ANSWERS;
        }
        self.mean_ns.add(took_ns, 1.0 / ANSWERS);
        // The weight depends on time, not on the number of answers, because the answers to a burst
        // describe one moment.
        let elapsed_ns = now.ns_since(self.answered_at) as f64;
        self.answered_at = now;
        let gain = elapsed_ns / (elapsed_ns + ROUND_TRIPS * self.mean_ns.value);
        // The base round-trip time and this router's own queue explain one part. Other traffic has
        // caused the rest.
        let rest_ns = took_ns - self.base_ns - self.own_wait_ns(ahead);
        self.cross_wait_ns.add(rest_ns, gain.max(1e-9));
        if let Some((last_since, last_ns)) = self.last.replace((since, took_ns)) {
            // The second Interest was sent while the first one still waited, so it was served next.
            // The two differ by one service time.
            let is_behind = (since.ns_since(last_since) as f64) < last_ns - self.base_ns;
            if since >= last_since && is_behind {
                self.step_ns.add((took_ns - last_ns).abs(), 1.0 / ANSWERS);
                self.pairs += 1.0;
            }
        }
    }

    /// Another source has answered an Interest that is still in flight there. If the same name is
    /// requested again, the late Data would seem to answer it at once, and the path would look too
    /// short.
    pub(crate) fn on_overtaken(&mut self, now: Instant) {
        self.stray_until = now.plus_ns((STRAY_ROUND_TRIPS * self.mean_ns.value) as u64);
    }

    /// How long an Interest waits for `ahead` others of this router, ns.
    pub(crate) fn own_wait_ns(&self, ahead: u32) -> f64 {
        self.estimator.expected_ns(ahead) - self.estimator.unloaded_ns()
    }

    /// The time between two answers while the queue there is not empty, ns; 0 without a queue.
    pub(crate) fn interval_ns(&self) -> f64 {
        let interval_ns = self.estimator.interval_ns();
        if interval_ns < WAIT_MIN * self.base_ns { 0.0 } else { interval_ns }
    }

    /// Whether one more Interest may be sent there by choice.
    ///
    /// A standing queue of such Interests gains nothing. They wait there instead of here, and make
    /// others wait. Consumers with windows fill any queue that they may use. If more Interests stay
    /// in flight than the path holds, no more are sent until the number has fallen. Interests whose
    /// Data is not stored here do not count, because they must go there anyway.
    pub(crate) fn has_room(&mut self, now: Instant) -> bool {
        let interval_ns = self.interval_ns();
        if interval_ns == 0.0 {
            return true;
        }
        self.least_in_flight[1] = self.least_in_flight[1].min(self.chosen_in_flight);
        if now.ns_since(self.span_began) as f64 > STANDING_QUEUE_RTTS * self.base_ns {
            self.least_in_flight = [self.least_in_flight[1], self.chosen_in_flight];
            self.span_began = now;
        }
        // The smallest number in flight over two periods is a standing queue.
        let staying = f64::from(self.least_in_flight[0].min(self.least_in_flight[1]));
        let room = (self.base_ns / interval_ns).max(1.0);
        // Two bounds prevent that the state changes with every Interest.
        self.is_full = staying > if self.is_full { room / 2.0 } else { room };
        !self.is_full || f64::from(self.chosen_in_flight) < room
    }

    /// The effect of other traffic on the queue there. `service_ns` is the assumed service time
    /// while none was measured.
    ///
    /// The model is one server with steady arrivals. An Interest of load `l` waits `l / (1 - l)`
    /// service times. One more Interest delays all others until the queue is empty again.
    pub(crate) fn cross_traffic(&self, service_ns: f64) -> CrossTraffic {
        let wait_ns = self.cross_wait_ns.value;
        if wait_ns <= WAIT_MIN * self.base_ns {
            return CrossTraffic::default();
        }
        let is_seen = self.pairs > PAIRS_MIN;
        let service_ns = if is_seen { self.step_ns.value } else { service_ns }.max(1.0);
        let load = (wait_ns / (wait_ns + service_ns)).min(LOAD_MAX);
        let delay_to_others_ns = wait_ns * load / (1.0 - load);
        CrossTraffic { wait_ns, delay_to_others_ns, rate: load / service_ns }
    }

    /// Expected time of an Interest that waits for others, but not for Interests of this router,
    /// ns.
    pub(crate) fn expected_ns(&self, others: &CrossTraffic) -> f64 {
        self.base_ns + others.wait_ns
    }
}

#[cfg(test)]
mod tests {
    use weir_base::NS_PER_MS;

    use super::*;

    /// A server with a service time of 1 ms and nothing in front of it.
    fn model_of_single_server() -> (PathModel, Instant) {
        let mut model = PathModel::default();
        let mut now = Instant::from_ns(NS_PER_MS);
        for ahead in (0..8).cycle().take(800) {
            let took_ns = (u64::from(ahead) + 1) * NS_PER_MS;
            now = now.plus_ns(took_ns);
            model.on_sent();
            model.take_unexpected();
            model.on_answer(now, Instant::from_ns(now.as_ns() - took_ns), ahead, true);
        }
        assert!((model.interval_ns() - 1e6).abs() < 1e4, "{}", model.interval_ns());
        (model, now)
    }

    /// Queries for long enough that a standing queue must have been detected.
    fn has_room_for_long(model: &mut PathModel, now: &mut Instant) -> bool {
        let mut has_room = true;
        for _ in 0..1_000 {
            *now = now.plus_ns(NS_PER_MS);
            has_room = model.has_room(*now);
        }
        has_room
    }

    #[test]
    fn chosen_interests_form_no_standing_queue() {
        let (mut model, mut now) = model_of_single_server();
        for _ in 0..4 {
            model.expect_send();
            assert!(model.on_sent());
        }
        assert!(model.has_room(now), "a burst may pass");
        assert!(!has_room_for_long(&mut model, &mut now));
        (0..4).for_each(|_| model.on_flight_end());
        assert!(has_room_for_long(&mut model, &mut now));
    }

    #[test]
    fn required_interests_use_no_room() {
        let (mut model, mut now) = model_of_single_server();
        for _ in 0..4 {
            assert!(!model.on_sent());
        }
        assert!(has_room_for_long(&mut model, &mut now));
    }

    /// A later Interest of the same name may be answered by Data sent for an earlier one.
    #[test]
    fn stray_data_does_not_shorten_base_rtt() {
        let mut model = PathModel::default();
        let mut now = Instant::ZERO;
        let mut answer = |model: &mut PathModel, took_ms: u64| {
            let since = now;
            now = now.plus_ns(took_ms * NS_PER_MS);
            model.on_answer(now, since, 0, true);
            now
        };
        for _ in 0..100 {
            let at = answer(&mut model, 10);
            model.on_overtaken(at);
        }
        answer(&mut model, 4);
        assert!((model.base_ns - 1e7).abs() < 1.0);
        for _ in 0..3 {
            answer(&mut model, 10);
        }
        answer(&mut model, 4);
        assert_eq!(model.base_ns, 4e6, "the path is shorter now");
    }
}
