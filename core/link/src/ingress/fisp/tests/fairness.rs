//! Shares of a bottleneck among many consumers.

use super::*;

/// Ten receivers behind a face of 8 Mbit/s, their Data 20 ms away. What each gets, in octets.
struct Crowd {
    link: Link,
    now: Instant,
    /// Data that is on its way to the face, and when it comes.
    coming: VecDeque<(Instant, Packet)>,
    got_bytes: Vec<u64>,
    /// Data for which the queue, of 100,000 octets, had no room.
    lost: u64,
}

impl Crowd {
    fn new(options: &str) -> Self {
        let link = shaping(options);
        Self { link, now: START, coming: VecDeque::new(), got_bytes: vec![0; 10], lost: 0 }
    }

    /// Nothing answers the names that say so.
    fn on_interest(&mut self, packet: &[u8]) {
        let uri = weir_wire::InterestView::decode(packet).unwrap().name.to_string();
        if uri.ends_with("dead") {
            return;
        }
        self.coming.push_back((self.now.plus_ns(20 * NS_PER_MS), data(&uri, 992)));
    }

    /// A millisecond in which receiver `i` sends `asks[i]` Interests.
    fn step(&mut self, number: u64, asks: &[u64]) {
        self.step_with(number, asks, 0);
    }

    /// The same with `dead` Interests of the first one for what nothing answers before.
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
        // A millisecond of the line: one Data. Nacks cost next to nothing.
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

    /// Jain's index of what they got.
    fn fairness(&self) -> f64 {
        let sum: u64 = self.got_bytes.iter().sum();
        let squares: u64 = self.got_bytes.iter().map(|bytes| bytes * bytes).sum();
        (sum * sum) as f64 / (self.got_bytes.len() as u64 * squares) as f64
    }
}

/// Nine ask for their tenth of the line and one for all of it, then all for more than there is.
#[test]
fn one_abuser_among_ten_takes_no_more_than_its_share() {
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

/// One asks for names that nothing answers until those expire, and then for more Data than there is
/// room for, again and again; or for both at once. It must not get more by it than its share, nor
/// keep the line from the others.
#[test]
fn expiry_buys_no_burst() {
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
            // Who gets less than its share by asking for what is not there harms itself alone.
            let others = crowd.got_bytes[1..].iter().sum::<u64>() / 9;
            crowd.got_bytes[0] = crowd.got_bytes[0].max(others);
            let fairness = crowd.fairness();
            assert!(fairness >= 0.95, "{fairness}: {:?}", crowd.got_bytes);
        }
    }
}

/// Regression: a flow whose Interests lived for less than it takes them to be late was forgotten as
/// soon as they had expired, with what held it to its share.
#[test]
fn who_rests_is_still_held_to_its_share() {
    let mut link = shaping("gamma=1 held_max=100");
    // What goes on of twenty Interests that live for 300 ms and are not answered.
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

/// The same without shaping: the measure can fail.
#[test]
fn without_shaping_an_abuser_takes_what_it_asks_for() {
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

/// Interests that nothing answers count for others no longer than half a second, and after the
/// first there are never many that do.
#[test]
fn names_that_nothing_answers_keep_little_from_others() {
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
