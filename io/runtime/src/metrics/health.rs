//! `/health` and `/ready`, for orchestrators such as Kubernetes.
//!
//! A router is healthy while its control thread and all worker threads respond. It is ready when it
//! also listens and has read the index of its disks. Before that, it works, but serves nothing from
//! disk.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::http::Answer;
use crate::mailbox::ControlSender;
use crate::message::{Readiness, ToControl};

/// A thread that does not respond within this time counts as stuck.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The answer for `/health`.
pub(super) fn health(control: &ControlSender) -> Answer {
    match examine(control) {
        Ok((_, stuck)) => answer(stuck),
        Err(reason) => answer(vec![reason]),
    }
}

/// The answer for `/ready`.
pub(super) fn ready(control: &ControlSender) -> Answer {
    match examine(control) {
        Ok((readiness, mut reasons)) => {
            reasons.extend(reasons_against(&readiness));
            answer(reasons)
        }
        Err(reason) => answer(vec![reason]),
    }
}

fn reasons_against(readiness: &Readiness) -> Vec<String> {
    let mut reasons = Vec::new();
    if readiness.is_stopping {
        reasons.push("the router is stopping".to_owned());
    }
    if readiness.is_recovering {
        reasons.push("the index of the disks is being recovered".to_owned());
    }
    reasons
}

/// Returns the state of the router, and a line for each stuck thread.
fn examine(control: &ControlSender) -> Result<(Readiness, Vec<String>), String> {
    let deadline = Instant::now() + TIMEOUT;
    let left = || deadline.saturating_duration_since(Instant::now());
    let (answer, answered) = crossbeam_channel::bounded(1);
    let (pulse, pulses) = crossbeam_channel::unbounded();
    control.send(ToControl::Examine { pulse, answer });
    let readiness = answered.recv_timeout(left()).map_err(|_| {
        "the control thread does not respond: the router is starting, stopping or stuck".to_owned()
    })?;
    let mut missing: BTreeSet<u16> = (0..readiness.threads).collect();
    while !missing.is_empty() {
        let Ok(worker) = pulses.recv_timeout(left()) else { break };
        missing.remove(&worker);
    }
    let stuck = missing.iter().map(|worker| format!("worker thread {worker} does not respond"));
    Ok((readiness, stuck.collect()))
}

/// 200 without reasons, otherwise 503 with one line for each.
fn answer(reasons: Vec<String>) -> Answer {
    let content_type = "text/plain; charset=utf-8";
    if reasons.is_empty() {
        return Answer { status: "200 OK", content_type, body: "ok\n".into() };
    }
    let body = reasons.iter().map(|reason| format!("{reason}\n")).collect();
    Answer { status: "503 Service Unavailable", content_type, body }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mio::{Poll, Token, Waker};

    use super::*;

    /// Examines a router of two threads. Only `alive` respond.
    fn examined(alive: &'static [u16], is_recovering: bool) -> (Answer, Answer) {
        let poll = Poll::new().unwrap();
        let waker = Waker::new(poll.registry(), Token(0)).unwrap();
        let (sender, receiver) = ControlSender::new(Arc::new(waker));
        let control = std::thread::spawn(move || {
            for _ in 0..2 {
                let Ok(ToControl::Examine { pulse, answer }) = receiver.messages.recv() else {
                    panic!("no examination")
                };
                let readiness = Readiness { threads: 2, is_stopping: false, is_recovering };
                answer.send(readiness).unwrap();
                alive.iter().for_each(|&worker| pulse.send(worker).unwrap());
            }
        });
        let answers = (health(&sender), ready(&sender));
        control.join().unwrap();
        answers
    }

    #[test]
    fn stuck_thread_is_named() {
        let (health, ready) = examined(&[0], false);
        for answer in [health, ready] {
            assert!(answer.status.starts_with("503"));
            assert_eq!(answer.body, "worker thread 1 does not respond\n");
        }
    }

    #[test]
    fn recovering_router_is_healthy_not_ready() {
        let (health, ready) = examined(&[0, 1], true);
        assert_eq!((health.status, &*health.body), ("200 OK", "ok\n"));
        assert!(ready.status.starts_with("503") && ready.body.contains("recovered"));
        let (_, ready) = examined(&[1, 0], false);
        assert_eq!(ready.status, "200 OK");
    }
}
