//! A receiver that requests more than its link carries, regardless of marks and losses.

use crate::common;

use common::{MS, PlanBuilder, S, consumer, count, names, producer, received};
use weir_netem::LinkConfig;
use weir_netsim::{Network, Summary};
use weir_plan::event::EventKind;
use weir_plan::workload::{Arrivals, Demand, Popularity};
use weir_plan::{Plan, RouterPlan};

/// 600 Interests per second for 2 s at 4 Mbit/s, which carry 480 packets of 1,040 bytes per second.
fn plan(shaping: &str) -> Plan {
    let mut builder = PlanBuilder::new(3, 2 * S);
    let router = builder.router(RouterPlan { shaping: shaping.into(), ..RouterPlan::default() });
    let content = names("/p", Popularity::Sequential { objects: 10_000 }, 1000, 1000);
    let arrivals = Arrivals::Constant { rate_hz: 600.0 };
    builder.local = LinkConfig {
        rate_bps: Some(4_000_000),
        delay_ns: 5 * MS,
        queue_bytes_max: 100_000,
        ..LinkConfig::default()
    };
    builder.consumer(router, consumer(content.clone(), Demand::Arrivals { arrivals }));
    builder.local =
        LinkConfig { rate_bps: Some(20_000_000), delay_ns: 50 * MS, ..LinkConfig::default() };
    builder.producer(router, producer(content));
    builder.plan.sample_ns = 100 * MS;
    builder.plan
}

/// Interests sent, Data received, and frames that links dropped.
fn run(shaping: &str) -> (Summary, usize, usize, u64) {
    let (summary, events) = common::run(&plan(shaping));
    let sent = count(&events, |kind| matches!(kind, EventKind::InterestSent { .. }));
    let lost = events.iter().filter_map(|event| match event.kind {
        EventKind::LinkSample { dropped, .. } => Some(dropped),
        _ => None,
    });
    (summary, sent, received(&events), lost.max().unwrap_or(0))
}

#[test]
fn shaping_prevents_queue_overflow() {
    let (_, sent, received, lost) = run("none");
    assert_eq!(sent, 1200);
    assert!(lost > 50 && received < 1150, "{received} received, {lost} lost");

    let (summary, sent, received, lost) = run("fisp capacity=100000");
    assert_eq!((sent, received, lost), (1200, 1200, 0));
    let (again, ..) = run("fisp capacity=100000");
    assert_eq!(summary, again, "one seed, one result");
}

/// Interests over the limit get a Nack, and none is lost silently.
#[test]
fn refused_interests_get_nacks() {
    let (_, sent, received, lost) = run("fisp capacity=100000 held_max=20");
    assert_eq!((sent, lost), (1200, 0));
    assert!((900..1100).contains(&received), "{received}");
}

#[test]
fn invalid_shaping_is_rejected() {
    let error = Network::new(&plan("fisp gamma=x")).err().expect("refused").to_string();
    assert!(error.contains("shaping") && error.contains("gamma=x"), "{error}");
}
