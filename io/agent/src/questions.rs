//! Which large objects a controller is asked about. Applications ask for whatever they like: what
//! follows from it is bounded, and what is left out is counted.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use weir_control::message::Decision;
use weir_runtime::Miss;
use weir_wire::Name;

use crate::shared::Counters;

/// Questions in a second at most. What is left out is missed again 64 segments later.
const PER_SECOND_MAX: u32 = 64;
/// Those of them that may be for hosts elsewhere: the others are left to applications of this
/// machine, however much anybody else asks for.
const FOR_HOSTS_MAX: u32 = PER_SECOND_MAX / 2;
/// How soon an object is asked about again: if there was an answer to go by, and if there was none.
const RETRY_AFTER: Duration = Duration::from_secs(60);
const RETRY_SOON: Duration = Duration::from_secs(5);
/// Objects that are remembered: as many as can be asked about before the first may be again.
const REMEMBERED_MAX: usize = PER_SECOND_MAX as usize * (RETRY_AFTER.as_secs() as usize + 1);
/// How often it is told that questions were left out.
const WARN_INTERVAL: Duration = Duration::from_secs(60);

/// A second, and how many questions were asked in it, by all and for hosts elsewhere.
#[derive(Clone, Copy, Debug)]
struct RateWindow {
    began: Instant,
    asked: u32,
    for_hosts: u32,
}

/// What has been asked, and when something may be asked again.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    retry_at: BTreeMap<Name, Instant>,
    window: Option<RateWindow>,
    /// When it may be told that questions are left out.
    next_warning: Option<Instant>,
}

impl Questions {
    /// Whether to ask about an object now, which is then done; what is not, and was not asked about
    /// lately, counts as left out. Nothing is asked if the controller `answers` nothing.
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
        let mut second = match self.window {
            Some(second) if now.duration_since(second.began) < Duration::from_secs(1) => second,
            _ => {
                // Once a second: who asks for many names has none of them looked at often.
                self.retry_at.retain(|_, again| now < *again);
                RateWindow { began: now, asked: 0, for_hosts: 0 }
            }
        };
        self.window = Some(second);
        let has_share = *is_local || second.for_hosts < FOR_HOSTS_MAX;
        let has_room = second.asked < PER_SECOND_MAX && self.retry_at.len() < REMEMBERED_MAX;
        if !answers || !has_share || !has_room {
            let left_out = counters.questions_left_out.fetch_add(1, Ordering::Relaxed) + 1;
            if self.next_warning.is_none_or(|tell| now >= tell) {
                self.next_warning = Some(now + WARN_INTERVAL);
                tracing::warn!(
                    left_out,
                    "more large objects are missed here than the controller is asked about"
                );
            }
            return false;
        }
        counters.questions.fetch_add(1, Ordering::Relaxed);
        second.asked += 1;
        second.for_hosts += u32::from(!is_local);
        self.window = Some(second);
        self.retry_at.insert(object.clone(), now + RETRY_SOON);
        true
    }

    /// Takes note of an answer.
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

    /// A miss of an application, or of a host elsewhere.
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

    /// Also for so long that all that was asked about is remembered.
    #[test]
    fn hosts_get_at_most_half() {
        let (mut questions, counters, began) =
            (Questions::default(), Counters::default(), Instant::now());
        for second in 0..200 {
            // A flood from elsewhere first, then applications, then it goes on.
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
