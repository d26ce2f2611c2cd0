//! One growing object with many subscribers. Some join in the middle.

use std::time::Duration;

use serde_json::Value;
use weir_base::NS_PER_S;
use weir_scenario::trial::Trial;
use weir_socket::ProducerOptions;

use super::super::RealError;
use super::super::testbed::Testbed;
use super::processes::{GroupProcessId, ProcessGroup};
use super::report::TrialReport;
use super::role::{Role, late_count};
use super::{number, routers_at, samples};

/// Limit on the subscribers of a process, because each has some open files.
const PER_PROCESS_MAX: u32 = 100;

/// Runs the measurement. A missed message is an error.
pub(super) fn measure(
    trial: &Trial,
    group: &mut ProcessGroup<'_>,
    testbed: &Testbed<'_>,
) -> Result<TrialReport, RealError> {
    let routers = routers_at(testbed);
    let (last, others) = routers.split_last().expect("a plan has routers");
    let at = if others.is_empty() { &routers[..] } else { others };
    let (publisher, ready) = group.start_role(Role::Publish, trial, last, 0, "")?;
    let key = ready["key"].as_str().unwrap_or_default().to_owned();
    let mut crowds = Vec::new();
    for (index, share) in shares(trial.subscribers, at.len() as u32).into_iter().enumerate() {
        let own = Trial { subscribers: share, ..trial.clone() };
        let at = &at[index % at.len()];
        crowds.push((group.start_role(Role::Subscribe, &own, at, 0, &key)?.0, late_count(&own)));
    }
    group.send_line(publisher, "begin")?;
    group.value(publisher, "half")?;
    // After this, no subscriber gets older metadata from a router, which would name fewer messages.
    std::thread::sleep(stale_after(routers.len()));
    for &(id, _) in &crowds {
        group.send_line(id, "join")?;
    }
    for &(id, _) in &crowds {
        group.value(id, "joined")?;
    }
    group.send_line(publisher, "continue")?;
    let done = group.value(publisher, "messages")?;
    let messages = number(group, publisher, &done, "messages")?;
    let mut report = TrialReport::default();
    let (mut late, half) = (0, u64::from(trial.count.div_ceil(2)));
    for (id, late_here) in crowds {
        let got = group.value(id, "delays_s")?;
        let (first, next) = (list(&got["first"]), list(&got["next"]));
        if !is_whole(&first, &next, late_here, half, messages) {
            let what = format!("got {first:?} to {next:?} of {messages} messages");
            return Err(group.failure(id, &what));
        }
        samples(&mut report, "message-delay", &got["delays_s"]);
        samples(&mut report, "join-time", &got["joins_s"]);
        late += late_here;
    }
    let counted = Counted::new(group, publisher, &done["counted"])?;
    report.add("message-interests", counted.interests / counted.messages);
    report.add("message-octets", counted.octets / counted.messages);
    report.add("message-cpu", counted.cpu_ns / NS_PER_S as f64 / counted.messages);
    if late > 0 {
        let metadata = number(group, publisher, &done["joining"], "metadata")?;
        report.add("join-interests", metadata as f64 / f64::from(late));
    }
    Ok(report)
}

fn list(of: &Value) -> Vec<u64> {
    of.as_array().into_iter().flatten().filter_map(Value::as_u64).collect()
}

/// Time after which no router in a line of this length has fresh metadata from before. Each router
/// starts a new freshness period when it receives them from the next one.
fn stale_after(routers: usize) -> Duration {
    let fresh_ns = ProducerOptions::default().metadata_freshness.ns;
    Duration::from_nanos(fresh_ns.saturating_mul(routers as u64 + 1))
}

/// Subscribers of each process, with equally many processes at each router.
fn shares(subscribers: u32, routers: u32) -> Vec<u32> {
    let processes = subscribers.div_ceil(PER_PROCESS_MAX).next_multiple_of(routers);
    let processes = processes.min(subscribers);
    let share = |index| (subscribers + index) / processes;
    (0..processes).map(share).collect()
}

/// Whether every subscriber received all messages from its first to the last. The initial
/// subscribers start with the very first message, and late ones with a message that was the newest
/// when they joined.
fn is_whole(first: &[u64], next: &[u64], late: u32, half: u64, messages: u64) -> bool {
    let Some(early) = first.len().checked_sub(late as usize) else { return false };
    let (early, late) = first.split_at(early);
    next.len() == first.len()
        && next.iter().all(|&next| next == messages)
        && early.iter().all(|&first| first == 0)
        && late.iter().all(|first| (half - 1..messages).contains(first))
}

/// The cost of publishing the messages.
struct Counted {
    messages: f64,
    interests: f64,
    octets: f64,
    cpu_ns: f64,
}

impl Counted {
    fn new(
        group: &mut ProcessGroup<'_>,
        id: GroupProcessId,
        of: &Value,
    ) -> Result<Self, RealError> {
        let mut read = |key| Ok::<f64, RealError>(number(group, id, of, key)? as f64);
        Ok(Self {
            messages: read("messages")?,
            interests: read("interests")?,
            octets: read("octets")?,
            cpu_ns: read("cpu_ns")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads_subscribers_over_processes() {
        assert_eq!(shares(10, 2), [5, 5]);
        assert_eq!(shares(1, 2), [1]);
        assert_eq!(shares(101, 2), [50, 51]);
        assert_eq!(shares(1000, 2), [100; 10]);
        assert_eq!(shares(1001, 2).iter().sum::<u32>(), 1001);
        assert_eq!(shares(1001, 2).len(), 12);
    }

    #[test]
    fn detects_missed_messages() {
        assert!(is_whole(&[0, 0, 4, 5], &[10; 4], 2, 5, 10));
        assert!(!is_whole(&[0, 1, 4, 5], &[10; 4], 2, 5, 10), "the first message");
        assert!(!is_whole(&[0, 0, 3, 5], &[10; 4], 2, 5, 10), "older than the newest");
        assert!(!is_whole(&[0, 0, 4, u64::MAX], &[10; 4], 2, 5, 10), "nothing");
        assert!(!is_whole(&[0, 0, 4, 5], &[10, 10, 9, 10], 2, 5, 10), "the last message");
        assert!(!is_whole(&[0, 0, 4], &[10; 4], 2, 5, 10), "a subscriber");
    }
}
