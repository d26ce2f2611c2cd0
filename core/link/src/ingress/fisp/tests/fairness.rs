//! Shares of a bottleneck among many consumers.

use super::*;

/// Ten receivers behind a face of 8 Mbit/s, 20 ms from their Data, and the bytes that each
/// receives.
struct Crowd {
    link: Link,
    now: Instant,
    /// Data in flight to the face, and its arrival.
    coming: VecDeque<(Instant, Packet)>,
    got_bytes: Vec<u64>,
    /// Data for which the queue of 100,000 bytes had no room.
    lost: u64,
}

impl Crowd {
    fn new(options: &str) -> Self {
        let link = shaping(options);
        Self { link, now: START, coming: VecDeque::new(), got_bytes: vec![0; 10], lost: 0 }
    }

    /// Names with `dead` are not answered.
    fn on_interest(&mut self, packet: &[u8]) {
        let uri = weir_wire::InterestView::decode(packet).unwrap().name.to_string();
        if uri.ends_with("dead") {
            return;
        }
        self.coming.push_back((self.now.plus_ns(20 * NS_PER_MS), data(&uri, 992)));
    }

    /// Simulates a millisecond in which receiver `i` sends `asks[i]` Interests.
    fn step(&mut self, number: u64, asks: &[u64]) {
        self.step_with(number, asks, 0);
    }

    /// The same, after `dead` Interests of the first receiver for names that nothing answers.
    fn step_with(&mut self, number: u64, asks: &[u64], dead: u64) {
        for nth in 0..dead {
            let received =
                receive(&mut self.link, self.now, asking(&format!("/f0/x/{number}.{nth}.dead")));
            if let Received::Packet { packet, .. } = received {
                self.on_interest(&packet);
            }
        }
        for (flow, &count) in asks.iter().enumerate() {
            for nth in 0..count {
                let uri = format!("/f{flow}/x/{number}.{nth}");
                let received = receive(&mut self.link, self.now, asking(&uri));
                if let Received::Packet { packet, .. } = received {
                    self.on_interest(&packet);
                }
            }
        }
        self.link.poll(self.now);
        while let Some((_, packet)) = self.link.take_released(self.now) {
            self.on_interest(&packet);
        }
        while let Some((_, packet)) = self.coming.pop_front_if(|(at, _)| *at <= self.now) {
            match self.link.queue_bytes() + packet.len() as u64 > 100_000 {
                true => self.lost += 1,
                false => answer(&mut self.link, self.now, packet),
            }
        }
        // The line transmits one Data in a millisecond. Nacks are nearly free.
        let mut left = 1;
        while left > 0
            && let Some(frame) = self.link.take_frame()
        {
            let Ok(packet) = frame.into_bare() else { continue };
            let (_, body) = tlv::read_single(&packet).unwrap();
            let uri = tlv::Reader::new(body).next_element().unwrap().unwrap();
            let flow = weir_wire::NameView::from_value(uri.value).unwrap().to_string();
            let flow: usize = flow[2..3].parse().unwrap();
            self.got_bytes[flow] += packet.len() as u64;
            left -= 1;
        }
        self.now = self.now.plus_ns(NS_PER_MS);
    }

    /// Jain's fairness index of the received bytes.
    fn fairness(&self) -> f64 {
        let sum: u64 = self.got_bytes.iter().sum();
        let squares: u64 = self.got_bytes.iter().map(|bytes| bytes * bytes).sum();
        (sum * sum) as f64 / (self.got_bytes.len() as u64 * squares) as f64
    }
}

/// Nine receivers request their tenth of the line, and one requests all of it. Then all request
/// more than there is.
#[test]
fn abuser_gets_only_its_share() {
    for (others_every_ms, abuser) in [(10, 1), (10, 3), (4, 3)] {
        let mut crowd = Crowd::new("held_max=500");
        for number in 0..20_000 {
            let mut asks = [0; 10];
            for (flow, count) in asks.iter_mut().enumerate() {
                *count = u64::from((number + flow as u64).is_multiple_of(others_every_ms));
            }
            asks[0] = abuser;
            crowd.step(number, &asks);
        }
        let Crowd { got_bytes, lost, .. } = &crowd;
        let fairness = crowd.fairness();
        assert!(fairness >= 0.95, "{fairness}: {got_bytes:?}");
        assert_eq!(*lost, 0, "the queue does not overflow");
        let sum: u64 = got_bytes.iter().sum();
        assert!(sum > 19_000_000, "the line is used: {sum}");
        assert_eq!(crowd.link.counters().drops[LinkDrop::QueueFull], 0);
    }
}

/// One receiver requests names that nothing answers until those expire, and then more Data than
/// there is room for, repeatedly, or both at once. It must not get more than its share by this, nor
/// keep the line from the others.
#[test]
fn expired_interests_allow_no_burst() {
    for (period_ms, dead_ms, dead, live) in
        [(4500, 4100, 1, 5), (4500, 4100, 5, 5), (4000, 1, 100, 2), (4000, 4000, 2, 3)]
    {
        for others_every_ms in [10, 4] {
            let mut crowd = Crowd::new("held_max=500");
            for number in 0..20_000 {
                let mut asks = [0; 10];
                for (flow, count) in asks.iter_mut().enumerate() {
                    *count = u64::from((number + flow as u64).is_multiple_of(others_every_ms));
                }
                let is_dead = number % period_ms < dead_ms;
                asks[0] = if is_dead && dead_ms < period_ms { 0 } else { live };
                crowd.step_with(number, &asks, if is_dead { dead } else { 0 });
            }
            let sum: u64 = crowd.got_bytes.iter().sum();
            assert!(sum > 17_000_000, "the line is used: {sum}, {:?}", crowd.got_bytes);
            assert_eq!(crowd.lost, 0, "the queue does not overflow");
            // A receiver that gets less than its share by requesting missing names harms only
            // itself.
            let others = crowd.got_bytes[1..].iter().sum::<u64>() / 9;
            crowd.got_bytes[0] = crowd.got_bytes[0].max(others);
            let fairness = crowd.fairness();
            assert!(fairness >= 0.95, "{fairness}: {:?}", crowd.got_bytes);
        }
    }
}

/// Regression: a flow whose Interests expired before they were late was forgotten at once, together
/// with the limit to its share.
#[test]
fn idle_flow_stays_limited_to_its_share() {
    let mut link = shaping("gamma=1 held_max=100");
    // The Interests that pass, of twenty with a lifetime of 300 ms and no answer.
    let mut burst = |ms: u64| {
        let goes_on = |nth: &u64| {
            let interest = Interest::new(name(&format!("/f/x/{ms}.{nth}"))).lifetime_ms(300);
            let packet = interest.nonce(7).encode().into();
            matches!(receive(&mut link, at_ms(ms), packet), Received::Packet { .. })
        };
        let count = (0..20).filter(goes_on).count();
        released(&mut link, at_ms(ms + 1000));
        count
    };
    let (first, soon, long_after) = (burst(0), burst(1000), burst(20_000));
    assert!(first > 5 && soon <= first / 2 + 1, "{first}, {soon}");
    assert_eq!(long_after, first, "and no longer");
}

/// The same without shaping, to show that the measure can fail.
#[test]
fn abuser_wins_without_shaping() {
    let mut crowd = Crowd::new("");
    crowd.link = Link::new(LinkConfig::stream());
    for number in 0..5000 {
        let mut asks = [0; 10];
        asks[(number % 10) as usize] = 1;
        asks[0] += 3;
        crowd.step(number, &asks);
    }
    assert!(crowd.fairness() < 0.5, "{}", crowd.fairness());
    assert!(crowd.lost > 1000, "the queue overflows");
}

/// Unanswered Interests count for others for at most half a second, and after the first there are
/// only a few.
#[test]
fn unanswered_names_cost_others_little() {
    let mut link = shaping("gamma=1 held_max=100000");
    let mut numbers = 0..;
    let mut waited = 0;
    for ms in 0..30_000 {
        for number in numbers.by_ref().take(2) {
            receive(&mut link, at_ms(ms), asking(&format!("/black/hole/{number}")));
        }
        released(&mut link, at_ms(ms));
        if ms > 15_000 && ms % 10 == 0 {
            let uri = format!("/good/flow/{ms}");
            waited += u64::from(!passes(&mut link, at_ms(ms), &uri));
            answer(&mut link, at_ms(ms), data(&uri, 1000));
            drain(&mut link);
        }
    }
    assert!(waited < 75, "{waited} of 1500 waited");
}
