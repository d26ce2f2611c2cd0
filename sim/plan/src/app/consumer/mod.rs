//! Consumers.

mod arrivals;
mod limit;
mod objects;
mod pending;
mod window;

use weir_base::{Instant, NS_PER_MS, Packet, Pool, Rng};
use weir_wire::{DataView, InterestView, LpHeader, NackReason};

use self::arrivals::OpenLoop;
use self::objects::ObjectLoop;
use self::pending::{Entry, Pending};
use self::window::WindowLoop;
use super::encode::InterestTemplate;
use super::{AppInput, AppOutbox};
use crate::event::EventKind;
use crate::workload::random::mix;
use crate::workload::{Collection, ConsumerPlan, Demand, WorkloadError, WrongData};

/// Octets of blocks at rest: a large network has thousands of consumers.
const POOL_BYTES: usize = 1 << 16;
/// InterestLifetime at most: a day.
const LIFETIME_MAX_MS: u64 = 86_400_000;

/// What a consumer did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConsumerStats {
    /// Interests sent.
    pub interests: u64,
    /// Interests answered with the right octets.
    pub answered: u64,
    /// Interests not answered within their lifetime.
    pub timed_out: u64,
    /// Interests refused.
    pub nacked: u64,
    /// Data with wrong octets.
    pub damaged: u64,
    /// Data that nobody waited for: too late, or a second time.
    pub unwanted: u64,
    /// Packets that could not be decoded, or are not of this consumer's names.
    pub malformed: u64,
    /// Objects complete.
    pub objects_completed: u64,
    /// Objects given up.
    pub objects_failed: u64,
}

/// Asks for what its plan says, and checks every octet that it gets.
#[derive(Debug)]
pub struct Consumer {
    core: Core,
    mode: Mode,
}

#[derive(Debug)]
enum Mode {
    Arrivals(OpenLoop),
    Window(WindowLoop),
    Objects(Box<ObjectLoop>),
}

/// What all ways of asking share.
#[derive(Debug)]
struct Core {
    collection: Collection,
    template: InterestTemplate,
    pending: Pending,
    pool: Pool,
    nonces: Rng,
    start: Instant,
    /// When nothing new is asked for any more.
    stop: Instant,
    /// When nothing is sent any more.
    end: Instant,
    /// The time of the last call.
    now: Instant,
    stats: ConsumerStats,
}

/// A Data of one of our names.
struct Answer<'a> {
    object: u64,
    segment: u64,
    header: &'a LpHeader,
    packet: &'a Packet,
    data: &'a DataView<'a>,
    is_right: bool,
}

/// A Nack of one of our Interests.
struct Refusal {
    object: u64,
    segment: u64,
    nonce: Option<u32>,
    reason: NackReason,
}

impl Consumer {
    /// The consumer of `plan`. It asks for nothing new from `stop_ns` on, and sends nothing at all
    /// from `duration_ns` on, so that all of its Interests are over one lifetime later.
    ///
    /// # Errors
    /// A value of the plan is out of range.
    pub fn new(plan: &ConsumerPlan, duration_ns: u64, seed: u64) -> Result<Self, WorkloadError> {
        let lifetime_ms = plan.lifetime_ms;
        if lifetime_ms == 0 || lifetime_ms > LIFETIME_MAX_MS {
            let problem = format!("is {lifetime_ms}; it must be from 1 to {LIFETIME_MAX_MS}");
            return Err(WorkloadError::value("lifetime_ms", problem));
        }
        let stop_ns = plan.stop_ns.unwrap_or(duration_ns).min(duration_ns);
        let core = Core {
            collection: Collection::new(&plan.names)?,
            template: InterestTemplate::new(lifetime_ms),
            pending: Pending::new(lifetime_ms * NS_PER_MS),
            pool: Pool::new(POOL_BYTES),
            nonces: Rng::from_seed(mix(seed)),
            start: Instant::from_ns(plan.start_ns),
            stop: Instant::from_ns(stop_ns),
            end: Instant::from_ns(duration_ns),
            now: Instant::ZERO,
            stats: ConsumerStats::default(),
        };
        core.collection.check_trace(&plan.names.popularity)?;
        let mode = match &plan.demand {
            Demand::Arrivals { .. } => Mode::Arrivals(OpenLoop::new(plan, &core, seed)?),
            Demand::Window { .. } | Demand::Controlled { .. } => {
                Mode::Window(WindowLoop::new(plan, seed)?)
            }
            Demand::Objects { .. } => Mode::Objects(Box::new(ObjectLoop::new(plan, &core, seed)?)),
        };
        Ok(Self { core, mode })
    }

    /// See [`App::handle`](super::App::handle).
    pub fn handle(&mut self, now: Instant, inputs: &mut Vec<AppInput>, out: &mut AppOutbox) {
        self.core.now = now;
        if now >= self.core.end {
            match &mut self.mode {
                Mode::Arrivals(_) => {}
                Mode::Window(window) => window.end(),
                Mode::Objects(objects) => objects.end(&mut self.core),
            }
        }
        for input in inputs.drain(..) {
            self.packet(&input, out);
        }
        while let Some(slot) = self.core.pending.next_expired(now) {
            self.expired(slot, out);
        }
        match &mut self.mode {
            Mode::Arrivals(arrivals) => arrivals.advance(&mut self.core, out),
            Mode::Window(window) => window.advance(&mut self.core, out),
            Mode::Objects(objects) => objects.advance(&mut self.core, out),
        }
        self.core.pending.tidy();
    }

    fn packet(&mut self, input: &AppInput, out: &mut AppOutbox) {
        let core = &mut self.core;
        if let Some(reason) = input.header.nack {
            let refused = InterestView::decode(&input.packet).ok().and_then(|interest| {
                let asked = core.collection.naming().parse(interest.name.value())?;
                let (object, segment) = (asked.object, asked.segment);
                Some(Refusal { object, segment, nonce: interest.nonce, reason })
            });
            match refused {
                Some(refusal) => self.refused(input, &refusal, out),
                None => core.stats.malformed += 1,
            }
            return;
        }
        let Some((data, asked)) = DataView::decode(&input.packet)
            .ok()
            .and_then(|data| Some((data, core.collection.naming().parse(data.name.value())?)))
        else {
            core.stats.malformed += 1;
            return;
        };
        let (object, segment) = (asked.object, asked.segment);
        let check = core.collection.check(object, segment, &data);
        if let Err(wrong) = check {
            core.damaged(object, segment, wrong, out);
        }
        let answer = Answer {
            object,
            segment,
            header: &input.header,
            packet: &input.packet,
            data: &data,
            is_right: check.is_ok(),
        };
        match &mut self.mode {
            Mode::Objects(objects) => objects.answered(core, &answer, out),
            // The Interest stays: it will not be answered within its lifetime.
            _ if !answer.is_right => {}
            Mode::Window(window) => window.answered(core, &answer, out),
            Mode::Arrivals(_) => {
                core.take_all(&answer, out, |_| {});
            }
        }
    }

    fn refused(&mut self, input: &AppInput, refusal: &Refusal, out: &mut AppOutbox) {
        let Refusal { object, segment, nonce, reason } = *refusal;
        let core = &mut self.core;
        let slot = core.pending.find(object, segment, |entry| Some(entry.nonce) == nonce);
        let Some(slot) = slot else {
            core.stats.unwanted += 1;
            return;
        };
        core.stats.nacked += 1;
        out.events.push(EventKind::NackReceived { object, segment, reason: reason.code() });
        match &mut self.mode {
            Mode::Arrivals(_) => {
                core.pending.remove(slot);
            }
            Mode::Window(window) => {
                let entry = core.pending.remove(slot);
                window.refused(core, entry, reason, out);
            }
            Mode::Objects(objects) => objects.refused(core, slot, input, out),
        }
    }

    fn expired(&mut self, slot: u32, out: &mut AppOutbox) {
        let Some(entry) = self.core.timed_out(slot, out) else { return };
        match &mut self.mode {
            Mode::Arrivals(_) => {
                self.core.pending.remove(slot);
            }
            Mode::Window(window) => window.expired(&mut self.core, slot, out),
            Mode::Objects(objects) if objects.has(entry.owner) => {}
            Mode::Objects(_) => {
                self.core.pending.remove(slot);
            }
        }
    }

    /// See [`App::next_wakeup`](super::App::next_wakeup).
    pub fn next_wakeup(&self) -> Option<Instant> {
        let core = &self.core;
        let next = match &self.mode {
            Mode::Arrivals(arrivals) => arrivals.next_wakeup(),
            Mode::Window(window) => window.next_wakeup(core),
            Mode::Objects(objects) => objects.next_wakeup(core),
        };
        [next, core.pending.next_deadline()].into_iter().flatten().min()
    }

    /// See [`App::is_done`](super::App::is_done).
    pub fn is_done(&self) -> bool {
        self.core.pending.is_quiet()
            && match &self.mode {
                Mode::Arrivals(arrivals) => arrivals.next_wakeup().is_none(),
                Mode::Window(window) => window.is_done(&self.core),
                Mode::Objects(objects) => objects.is_done(&self.core),
            }
    }

    /// See [`App::sample`](super::App::sample).
    pub fn sample(&self) -> Option<EventKind> {
        match &self.mode {
            Mode::Arrivals(_) => None,
            // What is left of a window when all is answered is no window.
            Mode::Window(window) if window.is_done(&self.core) => None,
            Mode::Window(window) => Some(window.sample(&self.core)),
            Mode::Objects(objects) => Some(objects.sample()),
        }
    }

    /// Interests in flight.
    pub fn outstanding(&self) -> usize {
        self.core.pending.len()
    }

    /// What it asks for.
    pub fn collection(&self) -> &Collection {
        &self.core.collection
    }

    /// Counters.
    pub fn stats(&self) -> ConsumerStats {
        self.core.stats
    }
}

impl Core {
    /// Whether there is still something new to ask for.
    fn may_ask(&self) -> bool {
        self.now >= self.start && self.now < self.stop
    }

    fn may_send(&self) -> bool {
        self.now < self.end
    }

    /// Sends an Interest that was sent `sends` times, this one included.
    fn send(&mut self, asked: (u64, u64), owner: u64, sends: u32, out: &mut AppOutbox) {
        let nonce = self.nonces.next_u32();
        self.pending.insert(self.now, asked, owner, nonce, sends);
        self.interest(asked, nonce, sends > 1, out);
    }

    /// Sends the Interest of an entry once more.
    fn send_again(&mut self, slot: u32, out: &mut AppOutbox) {
        let Some(entry) = self.pending.get(slot) else { return };
        let asked = (entry.object, entry.segment);
        let nonce = self.nonces.next_u32();
        self.pending.renew(slot, self.now, nonce);
        self.interest(asked, nonce, true, out);
    }

    fn interest(
        &mut self,
        (object, segment): (u64, u64),
        nonce: u32,
        is_repeated: bool,
        out: &mut AppOutbox,
    ) {
        let naming = self.collection.naming();
        let packet = self.template.write(naming, object, segment, nonce, &mut self.pool);
        self.stats.interests += 1;
        out.events.push(EventKind::InterestSent { object, segment, is_repeated });
        out.packets.push((LpHeader::default(), packet));
    }

    /// Ends all that waits for a Data, and tells `f` of each.
    fn take_all(&mut self, answer: &Answer<'_>, out: &mut AppOutbox, mut f: impl FnMut(&Entry)) {
        let mut entry = self.pending.take(answer.object, answer.segment);
        if entry.is_none() {
            self.stats.unwanted += 1;
        }
        while let Some(taken) = entry {
            self.received(answer, self.now.ns_since(taken.sent_at), out);
            f(&taken);
            entry = self.pending.take(answer.object, answer.segment);
        }
    }

    fn received(&mut self, answer: &Answer<'_>, rtt_ns: u64, out: &mut AppOutbox) {
        self.stats.answered += 1;
        out.events.push(EventKind::DataReceived {
            object: answer.object,
            segment: answer.segment,
            content_bytes: answer.data.content.len() as u32,
            packet_bytes: answer.packet.len() as u32,
            rtt_ns,
            is_marked: answer.header.congestion_mark != 0,
        });
    }

    #[cold]
    fn damaged(&mut self, object: u64, segment: u64, wrong: WrongData, out: &mut AppOutbox) {
        self.stats.damaged += 1;
        out.events.push(EventKind::DamagedData { object, segment });
        if out.violation.is_none() {
            let name = self.collection.naming().segment_name(object, segment);
            out.violation = Some(format!("{name} came with wrong octets: {wrong}"));
        }
    }

    fn timed_out(&mut self, slot: u32, out: &mut AppOutbox) -> Option<Entry> {
        let entry = *self.pending.get(slot)?;
        self.stats.timed_out += 1;
        out.events.push(EventKind::TimedOut { object: entry.object, segment: entry.segment });
        Some(entry)
    }

    fn object_completed(&mut self, object: u64, started: Instant, out: &mut AppOutbox) {
        self.stats.objects_completed += 1;
        out.events.push(EventKind::ObjectCompleted {
            object,
            content_bytes: self.collection.shape(object).bytes,
            elapsed_ns: self.now.ns_since(started),
        });
    }

    fn object_failed(&mut self, object: u64, out: &mut AppOutbox) {
        self.stats.objects_failed += 1;
        out.events.push(EventKind::ObjectFailed { object });
    }
}
