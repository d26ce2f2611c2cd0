use weir_base::{Instant, NS_PER_S, Rng};
use weir_wire::{RUN_SPAN_MAX, RunOffer};

/// While there are runs to send, an offer of this age is renewed.
const RENEW_NS: u64 = NS_PER_S;
/// How long an offer is valid. It expires after three unanswered questions.
const LIFETIME_NS: u64 = 4 * NS_PER_S;
/// Each unanswered question doubles the wait for the next one, at most this many times.
const DOUBLINGS_MAX: u32 = 6;
/// Maximum number of announcements by the initiating end, while the peer has not sent an offer.
const ANNOUNCEMENTS_MAX: u8 = 3;

/// Whether one frame may carry several Interests (`docs/run-interests.md`), and which end sends the
/// first offer.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum RunsConfig {
    /// Runs are neither sent nor accepted.
    #[default]
    Off,
    /// Runs are accepted. They are sent only to a peer that has sent an offer. Other peers see no
    /// difference.
    Accept,
    /// As [`Self::Accept`], and this end sends the first offer.
    Initiate,
}

/// The state of the negotiation about runs with the peer.
#[derive(Debug)]
pub(crate) struct Offers {
    is_initiator: bool,
    /// The peer has sent an offer.
    is_known: bool,
    /// A random number that answers must repeat. Otherwise an attacker who forges the peer's
    /// address could make this end send runs to a program that does not know them.
    cookie: u32,
    /// The span of runs that the peer accepts until [`Self::until`].
    span: u8,
    until: Instant,
    /// The earliest time of the next question.
    query_at: Instant,
    unanswered: u32,
    announcements: u8,
    announce_at: Instant,
}

impl Offers {
    /// `None` if runs are off. The cookie is derived from `seed`.
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

    /// The maximum span of segment numbers of a run now; 0 if none may be sent.
    pub(crate) fn span(&self, now: Instant) -> u8 {
        if now < self.until { self.span } else { 0 }
    }

    /// Whether this end may send a question now, if there is a run to send.
    pub(crate) fn may_query(&self, now: Instant) -> bool {
        (self.is_initiator || self.is_known) && self.query_at <= now
    }

    pub(crate) fn query(&mut self, now: Instant) -> RunOffer {
        self.query_at = now.plus_ns(RENEW_NS << self.unanswered.min(DOUBLINGS_MAX));
        self.unanswered += 1;
        RunOffer { span_max: RUN_SPAN_MAX, question: self.cookie, answer: 0 }
    }

    /// The announcement of an initiating end, if one is due. The peer may then send a question.
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

    /// The connection has ended. The next peer may be another program.
    pub(crate) fn reset(&mut self) {
        (self.is_known, self.until, self.query_at) = (false, Instant::ZERO, Instant::ZERO);
        (self.unanswered, self.announcements, self.announce_at) = (0, 0, Instant::ZERO);
    }

    /// Handles an offer of the peer. Returns the reply, if the offer contains a question.
    pub(crate) fn on_offer(&mut self, now: Instant, offer: RunOffer) -> Option<RunOffer> {
        self.is_known = true;
        if offer.answer == self.cookie {
            // A run has at least two Interests.
            self.span = if offer.span_max < 2 { 0 } else { offer.span_max };
            self.until = now.plus_ns(LIFETIME_NS);
            self.query_at = now.plus_ns(RENEW_NS);
            self.unanswered = 0;
        }
        let question = Some(offer.question).filter(|&question| question != 0);
        question.map(|answer| RunOffer { span_max: RUN_SPAN_MAX, question: 0, answer })
    }
}
