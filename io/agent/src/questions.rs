//! Limits the questions to the controller about missed objects. Applications may request anything,
//! so the number of questions is limited, and the excess is counted.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use weir_control::message::Decision;
use weir_runtime::Miss;
use weir_wire::Name;

use crate::shared::Counters;

/// Maximum number of questions per second. An object that is left out is missed again 64 segments
/// later.
const PER_SECOND_MAX: u32 = 64;
/// Maximum number of these for hosts without a router. The rest is reserved for applications on
/// this machine, however much hosts request.
const FOR_HOSTS_MAX: u32 = PER_SECOND_MAX / 2;
/// When an object may be asked about again: after the decision `Small` or `Planned`, and after any
/// other decision or no answer.
const RETRY_AFTER: Duration = Duration::from_secs(60);
const RETRY_SOON: Duration = Duration::from_secs(5);
/// Maximum number of remembered objects: all that can be asked about before the first may be asked
/// about again.
const REMEMBERED_MAX: usize = PER_SECOND_MAX as usize * (RETRY_AFTER.as_secs() as usize + 1);
/// Minimum time between two warnings about questions left out.
const WARN_INTERVAL: Duration = Duration::from_secs(60);

/// A second, and the questions in it: in all, and for hosts.
#[derive(Clone, Copy, Debug)]
struct RateWindow {
    began: Instant,
    total: u32,
    for_hosts: u32,
}

/// The questions asked, and when each may be asked again.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    retry_at: BTreeMap<Name, Instant>,
    window: Option<RateWindow>,
    /// When the next warning about questions left out may be logged.
    next_warning: Option<Instant>,
}

impl Questions {
    /// Whether to ask about an object now. If so, the question counts against the limits. Otherwise
    /// it counts as left out, unless the object was asked about recently. No question is allowed
    /// while the controller does not answer (`answers` is false).
    pub(crate) fn may_ask(
        &mut self,
        now: Instant,
        Miss { is_local, object, .. }: &Miss,
        answers: bool,
        counters: &Counters,
    ) -> bool {
        if self.retry_at.get(object).is_some_and(|again| now < *again) {
            return false;
        }
        let mut window = match self.window {
            Some(window) if now.duration_since(window.began) < Duration::from_secs(1) => window,
            _ => {
                // Expired objects are removed once a second, so the cost does not depend on how
                // many names are requested.
                self.retry_at.retain(|_, again| now < *again);
                RateWindow { began: now, total: 0, for_hosts: 0 }
            }
        };
        self.window = Some(window);
        let has_share = *is_local || window.for_hosts < FOR_HOSTS_MAX;
        let has_room = window.total < PER_SECOND_MAX && self.retry_at.len() < REMEMBERED_MAX;
        if !answers || !has_share || !has_room {
            let left_out = counters.questions_left_out.fetch_add(1, Ordering::Relaxed) + 1;
            if self.next_warning.is_none_or(|at| now >= at) {
                self.next_warning = Some(now + WARN_INTERVAL);
                tracing::warn!(
                    left_out,
                    "too many large objects are missed; the controller is asked about some of \
                     them only"
                );
            }
            return false;
        }
        counters.questions.fetch_add(1, Ordering::Relaxed);
        window.total += 1;
        window.for_hosts += u32::from(!is_local);
        self.window = Some(window);
        // This applies if no answer arrives. `note_answer` replaces it.
        self.retry_at.insert(object.clone(), now + RETRY_SOON);
        true
    }

    /// Records an answer.
    pub(crate) fn note_answer(&mut self, now: Instant, object: Name, decision: Decision) {
        let again = match decision {
            Decision::Small | Decision::Planned => RETRY_AFTER,
            Decision::Unknown | Decision::NoRoom => RETRY_SOON,
        };
        self.retry_at.insert(object, now + again);
    }
}

#[cfg(test)]
mod tests {
    use weir_base::FaceId;

    use super::*;

    fn name(number: u64) -> Name {
        format!("/a/{number}").parse().unwrap()
    }

    /// A miss of a local application, or of a host.
    fn missed(is_local: bool, number: u64) -> Miss {
        Miss { ingress: FaceId(300), is_local, object: name(number) }
    }

    #[test]
    fn limits_rate_and_counts_the_rest() {
        let (mut questions, counters, began) =
            (Questions::default(), Counters::default(), Instant::now());
        let mut asked = 0;
        for number in 0..10_000 {
            // Ten seconds.
            let now = began + Duration::from_millis(number);
            if questions.may_ask(now, &missed(true, number), true, &counters) {
                questions.note_answer(now, name(number), Decision::Planned);
                asked += 1;
            }
        }
        assert_eq!(asked, 10 * u64::from(PER_SECOND_MAX));
        assert_eq!(counters.questions.load(Ordering::Relaxed), asked);
        assert_eq!(counters.questions_left_out.load(Ordering::Relaxed), 10_000 - asked);
        assert!(questions.retry_at.len() <= REMEMBERED_MAX);
    }

    /// Also when all objects asked about are still remembered.
    #[test]
    fn hosts_get_at_most_half() {
        let (mut questions, counters, began) =
            (Questions::default(), Counters::default(), Instant::now());
        for second in 0..200 {
            // First a flood of hosts, then applications, then both again.
            let now = began + Duration::from_secs(second);
            let mut asked = |is_local: bool, kind: u64, count: u64| {
                let first = (second * 10 + kind) * 10_000;
                let may = (first..first + count).filter(|number| {
                    let may = questions.may_ask(now, &missed(is_local, *number), true, &counters);
                    if may {
                        questions.note_answer(now, name(*number), Decision::Planned);
                    }
                    may
                });
                may.count() as u32
            };
            assert_eq!(asked(false, 0, 1000), FOR_HOSTS_MAX, "{second}");
            assert_eq!(asked(true, 1, 10), 10, "{second}");
            assert_eq!(asked(false, 2, 10), 0, "{second}");
            assert_eq!(asked(true, 3, 1000), PER_SECOND_MAX - FOR_HOSTS_MAX - 10, "{second}");
        }
    }

    #[test]
    fn repeats_questions_only_after_a_wait() {
        let (mut questions, counters, began) =
            (Questions::default(), Counters::default(), Instant::now());
        let may = |questions: &mut Questions, after_s, answers| {
            let now = began + Duration::from_secs(after_s);
            questions.may_ask(now, &missed(true, 1), answers, &counters)
        };
        assert!(!may(&mut questions, 0, false));
        assert!(may(&mut questions, 0, true));
        assert!(!may(&mut questions, 4, true));
        assert!(may(&mut questions, 6, true));
        questions.note_answer(began, name(1), Decision::Planned);
        assert!(!may(&mut questions, 59, true));
        assert!(may(&mut questions, 61, true));
        assert_eq!(counters.questions_left_out.load(Ordering::Relaxed), 1);
    }
}
