use weir_base::{Instant, NS_PER_S, Rng};
use weir_wire::{RUN_SPAN_MAX, RunOffer};

/// An offer is asked for again when it is this old, while runs are there to be sent.
const RENEW_NS: u64 = NS_PER_S;
/// How long an offer holds: three questions without an answer, and it lapses.
const LIFETIME_NS: u64 = 4 * NS_PER_S;
/// A question without an answer doubles the wait for the next one, this often at most.
const DOUBLINGS_MAX: u32 = 6;
/// How often an end that begins says so without being asked.
const ANNOUNCEMENTS_MAX: u8 = 3;

/// Whether one frame may stand for several Interests (`docs/run-interests.md`), and who speaks of
/// it first.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum RunsConfig {
    /// There are no runs, sent or received.
    #[default]
    Off,
    /// Runs are taken, and sent to a neighbour that has spoken of them: strangers see nothing.
    Accept,
    /// The same, and this end begins to speak of them.
    Initiate,
}

/// What the two ends of a link have told each other of runs.
#[derive(Debug)]
pub(crate) struct Offers {
    is_initiator: bool,
    /// The other end has spoken of runs.
    is_known: bool,
    /// What answers to this end repeat. Not to be guessed: whoever can send in the other end's name
    /// could else have runs sent to a program that does not know them.
    cookie: u32,
    /// How far runs may reach until [`Self::until`].
    span: u8,
    until: Instant,
    /// Not before then is the other end asked again.
    query_at: Instant,
    unanswered: u32,
    announcements: u8,
    announce_at: Instant,
}

impl Offers {
    /// `None` where there are no runs. The cookie follows from `seed`.
    pub(crate) fn new(config: RunsConfig, seed: u64) -> Option<Self> {
        (config != RunsConfig::Off).then(|| Self {
            is_initiator: config == RunsConfig::Initiate,
            is_known: false,
            cookie: Rng::from_seed(!seed).next_u32().max(1),
            span: 0,
            until: Instant::ZERO,
            query_at: Instant::ZERO,
            unanswered: 0,
            announcements: 0,
            announce_at: Instant::ZERO,
        })
    }

    /// How many segment numbers a run may reach over now; 0: none may be sent.
    pub(crate) fn span(&self, now: Instant) -> u8 {
        if now < self.until { self.span } else { 0 }
    }

    /// Whether it is time to ask, should there be a run to send.
    pub(crate) fn may_query(&self, now: Instant) -> bool {
        (self.is_initiator || self.is_known) && self.query_at <= now
    }

    pub(crate) fn query(&mut self, now: Instant) -> RunOffer {
        self.query_at = now.plus_ns(RENEW_NS << self.unanswered.min(DOUBLINGS_MAX));
        self.unanswered += 1;
        RunOffer { span_max: RUN_SPAN_MAX, question: self.cookie, answer: 0 }
    }

    /// What an end that begins says to whoever may be there, so that it may be asked.
    pub(crate) fn announce(&mut self, now: Instant) -> Option<RunOffer> {
        let is_due = self.is_initiator
            && !self.is_known
            && self.announcements < ANNOUNCEMENTS_MAX
            && self.announce_at <= now;
        is_due.then(|| {
            self.announce_at = now.plus_ns(RENEW_NS << self.announcements);
            self.announcements += 1;
            RunOffer { span_max: RUN_SPAN_MAX, question: 0, answer: 0 }
        })
    }

    /// The connection is gone, and who is there next may be another program.
    pub(crate) fn reset(&mut self) {
        (self.is_known, self.until, self.query_at) = (false, Instant::ZERO, Instant::ZERO);
        (self.unanswered, self.announcements, self.announce_at) = (0, 0, Instant::ZERO);
    }

    /// The other end has sent an offer; the answer to it, if it wants one.
    pub(crate) fn on_offer(&mut self, now: Instant, offer: RunOffer) -> Option<RunOffer> {
        self.is_known = true;
        if offer.answer == self.cookie {
            // A run has two Interests at least.
            self.span = if offer.span_max < 2 { 0 } else { offer.span_max };
            self.until = now.plus_ns(LIFETIME_NS);
            self.query_at = now.plus_ns(RENEW_NS);
            self.unanswered = 0;
        }
        let question = Some(offer.question).filter(|&question| question != 0);
        question.map(|answer| RunOffer { span_max: RUN_SPAN_MAX, question: 0, answer })
    }
}
