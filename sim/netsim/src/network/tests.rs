//! What a plan cannot say: the queue disciplines of single faces.

use weir_netem::LinkConfig;
use weir_plan::event::{Event, EventKind};
use weir_plan::workload::{Arrivals, ConsumerPlan, Demand, Names, Popularity, ProducerPlan, Sizes};
use weir_plan::{LinkPlan, NodePlan, Plan, Role, RoutePlan, RouterPlan, Transport};

use super::Network;

const S: u64 = 1_000_000_000;

/// A consumer that asks 100 times a second, a router, a producer.
fn plan() -> Plan {
    let names = Names {
        prefix: "/p".into(),
        components: 0,
        popularity: Popularity::Sequential { objects: 1000 },
        sizes: Sizes::Fixed { bytes: 100 },
        segment_bytes: 100,
    };
    let demand = Demand::Arrivals { arrivals: Arrivals::Constant { rate_hz: 100.0 } };
    let consumer = ConsumerPlan {
        start_ns: 0,
        stop_ns: None,
        lifetime_ms: 4000,
        verify_ns: 0,
        decrease_interval_ns: None,
        waits_for_lifetime: false,
        chunk_units: 1,
        names: names.clone(),
        demand,
    };
    let producer = ProducerPlan { names, freshness_ms: 1000, delay_ns: 0 };
    let roles =
        [Role::Consumer(consumer), Role::Router(RouterPlan::default()), Role::Producer(producer)];
    let named = |(number, role)| NodePlan { name: format!("n{number}"), role };
    let link = |a, b| LinkPlan {
        a,
        b,
        a_to_b: LinkConfig::default(),
        b_to_a: LinkConfig::default(),
        is_local: true,
        transport: Transport::Unix,
        mtu: 8800,
        reliability: false,
    };
    Plan {
        seed: 1,
        duration_ns: S,
        drain_ns: 5 * S,
        sample_ns: 0,
        nodes: roles.into_iter().enumerate().map(named).collect(),
        links: vec![link(0, 1), link(1, 2)],
        routes: vec![RoutePlan { node: 1, prefix: "/p".into(), link: 1, cost: 0 }],
        faults: Vec::new(),
    }
}

/// How many Data the consumer has after a second, and in the end, with `discipline` at its face.
fn received(discipline: &str) -> (usize, usize) {
    let mut network = Network::new(&plan()).unwrap();
    let mut config = network.ends[0].link.config().clone();
    config.egress.discipline = discipline.parse().unwrap();
    network.ends[0].link.set_config(config);
    let mut events: Vec<Event> = Vec::new();
    network.run_until(S, &mut events).unwrap();
    let count = |events: &[Event]| {
        let is_data = |event: &&Event| matches!(event.kind, EventKind::DataReceived { .. });
        events.iter().filter(is_data).count()
    };
    let early = count(&events);
    network.run(&mut events).unwrap();
    (early, count(&events))
}

#[test]
fn the_timers_of_a_discipline_are_honoured() {
    assert_eq!(received("fifo"), (100, 100));
    // One at once and one each 50 ms; those that still wait come in the time to drain.
    assert_eq!(received("interest-rate interests_per_s=20 burst=1"), (20, 100));
}
