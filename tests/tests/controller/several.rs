//! Several controllers of one PostgreSQL database (decision 0028).

use nix::sys::signal::Signal;
use weir_tests::Host;

use crate::network::{Controller, MIB, Network, wait_until};
use crate::postgres::Postgres;
use crate::transfer::{Transfer, hex};

/// The last three digits of a plan number, which identify the controller that made it.
fn planner_id(controller: &Controller, object: &str) -> Option<u64> {
    let plans = controller.request("GET", "/v1/plans", None);
    let mut plans = plans.as_array().expect("plans").iter();
    let plan = plans.find(|plan| plan["object"] == object)?;
    plan["number"].as_u64().map(|number| number % 1000)
}

fn run_of(controller: &Controller) -> u64 {
    controller.request("GET", "/health", None)["run"].as_u64().expect("a number")
}

#[test]
fn second_controller_replaces_a_killed_one() {
    let server = Postgres::start();
    let database = server.url(&server.database(""));
    let host = Host::new();
    let [one, other] = [(); 2].map(|()| Controller::with(&host, &database));
    let (first, second) = (run_of(&one), run_of(&other));
    assert_ne!(first, second);
    let mut network = Network::of(host, one, vec![other], 24 * MIB);
    let (_producer, versioned, hash) = network.put("/data/large");

    let mut transfer = Transfer::start(&network, "/data/large");
    let mut read = transfer.read(4 * MIB);
    wait_until("a plan", || planner_id(&network.controller, &versioned).is_some());
    // Kill the controller that made the plan. On a busy machine, this may be the second one.
    let is_by_first = planner_id(&network.controller, &versioned) == Some(first);
    let survivor = if is_by_first { second } else { first };
    assert!(transfer.is_running(), "it has four of 24 MiB");
    let mut killed = network.others.pop().expect("the other");
    if is_by_first {
        std::mem::swap(&mut network.controller, &mut killed);
    }
    killed.process.signal(Signal::SIGKILL);
    read.extend(transfer.finish());
    assert_eq!(hex(&read), hash);

    // The other controller continues with the plans of the first.
    network.wait_for_parts(&versioned);
    network.read_without_producer(&versioned, &hash);
    wait_until("that it has begun and knows that the other is gone", || {
        let health = network.controller.request("GET", "/health", None);
        health["waits"] == false && !health["others"].to_string().contains(&killed.address)
    });

    // It also plans and routes for new files.
    network.controller.withdraw_all();
    let (_another, versioned, hash) = network.put("/data/larger");
    assert_eq!(network.get("/data/larger", "third"), hash);
    network.wait_for_parts(&versioned);
    assert_eq!(planner_id(&network.controller, &versioned), Some(survivor));
    network.read_without_producer(&versioned, &hash);
}
