//! Routers and their controller as processes. A file larger than any store is divided among the
//! routers and read again without its producer. No transfer waits for the controller (paper
//! multipath-cache-management, sections 3.3 and 5).

mod network;
mod numbers;
#[path = "../../../io/controller/tests/server_postgres/postgres.rs"]
mod postgres;
mod several;
mod transfer;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use weir_tests::{Host, Router, random_file};

use self::network::{Controller, MIB, MIDDLE, Network, ROUTER_TIMEOUT, start, wait_until};
use self::transfer::{Transfer, hex};

#[test]
fn file_in_parts_is_read_without_producer() {
    let network = Network::start();
    let (_producer, versioned, hash) = network.put("/data/large");
    assert_eq!(network.get("/data/large", "first"), hash);

    network.wait_for_parts(&versioned);
    network.read_without_producer(&versioned, &hash);
}

/// Regression: the first version kept its space until it was withdrawn, so the routers stored only
/// a part of the second.
#[test]
fn second_version_is_read_without_producer() {
    let network = Network::start();
    let (producer, first, hash) = network.put("/data/large");
    assert_eq!(network.get(&first, "first"), hash);
    network.wait_for_parts(&first);
    drop(producer);

    let (_producer, second, hash) = network.put_content("/data/large", 6);
    assert_eq!(network.get(&second, "first"), hash);
    network.wait_for_parts(&second);
    assert_eq!(network.parts_of(&first), [] as [Value; 0]);
    network.read_without_producer(&second, &hash);
}

/// The `rate` of a `[[face]]` decides what a router stores. The three routers differ only in their
/// links.
#[test]
fn face_rates_decide_the_placement() {
    for (at, fast) in MIDDLE.into_iter().enumerate().skip(1) {
        let mut rates = ["1Mbit"; 3];
        rates[at] = "1Gbit";
        let network = Network::with_rates(rates);
        let told = || {
            let links = network.controller.request("GET", "/v1/links", None);
            let links = links.as_array().expect("links").clone().into_iter();
            let of_edge = links.filter(|link| link["from"] == "edge");
            let rate = |link: Value| (link["to"].clone(), link["rate_bps"].clone());
            of_edge.map(rate).collect::<Vec<_>>()
        };
        wait_until("the rates of all links", || {
            let rate = |name: &str| if name == fast { 1_000_000_000 } else { 1_000_000 };
            let told = told();
            MIDDLE.iter().all(|name| told.contains(&(json!(name), json!(rate(name)))))
        });
        let (_producer, versioned, hash) = network.put("/data/large");
        assert_eq!(network.get(&versioned, "first"), hash);
        network.wait_for_parts(&versioned);
        let parts = network.parts_of(&versioned);
        assert!(parts.iter().all(|part| part["router"] == fast), "{parts:?}");
        network.read_without_producer(&versioned, &hash);
    }
}

/// Two routers use the same name and token, as after copying a configuration file.
#[test]
fn second_router_of_a_name_is_refused() {
    let network = Network::start();
    let (_producer, versioned, hash) = network.put("/data/large");
    let config = network.host.path("one.toml");
    let arguments = ["-c", config.to_str().expect("UTF-8")].map(str::to_owned).to_vec();
    let twin = Router::start_at_with(&network.host, "twin", &arguments);
    wait_until("the second router logs it", || {
        twin.process.log().contains("another router already reports as one")
    });
    let controller_of =
        |router: &Router| router.weir_json(&["status", "controller"])["controller"].take();
    wait_until("its status says so", || {
        let text = controller_of(&twin)["problem"].to_string();
        text.contains("another router has this router's name")
    });
    let first = controller_of(&network.routers["one"]);
    assert_eq!((&first["reachable"], &first["problem"]), (&true.into(), &Value::Null), "{first}");
    assert!(
        first["generation"].as_u64() > Some(0) && first["reported_unix_ms"].is_u64(),
        "{first}"
    );
    let state = || network.controller.request("GET", "/v1/state", None);
    wait_until("the operator sees it", || state()["twins"][0][0] == "one");
    assert!(state()["twins"][0][1].to_string().contains(&twin.udp()), "{}", state()["twins"]);
    drop(twin);
    // The network continues with the first router.
    assert_eq!(network.get(&versioned, "first"), hash);
    network.wait_for_parts(&versioned);
    network.read_without_producer(&versioned, &hash);
}

#[test]
fn files_are_listed_and_withdrawn_by_commands() {
    let host = Host::new();
    let controller = Controller::start(&host);
    let token = host.write("token", controller.token.as_bytes());
    let url = format!("http://{}", controller.address);
    let reached = ["--controller", &url, "--controller-token-file", token.to_str().expect("UTF-8")];
    let run = |words: &[&str]| {
        let all = [&["controller", "file"], words, &reached].concat();
        host.spawn("", &all).finish()
    };
    let none = run(&["list"]).success().output;
    assert!(none.contains("no file is registered"), "{none}");
    for name in ["/data/a/v=1", "/data/a/v=2", "/data/b%20b/v=1"] {
        let file = json!({"name": name, "segments": 100, "size_bytes": MIB, "packet_bytes": 8400});
        controller.request("POST", "/v1/files", Some(&file));
    }
    let list = run(&["list"]).success().output;
    assert!(list.contains("/data/a/v=2") && list.contains("operator test"), "{list}");
    assert!(list.contains("no, /data/a/v=2 is newer"), "{list}");
    let told = run(&["remove", "/data/b%20b/v=1"]).success().output;
    assert_eq!(told.trim(), "withdrew /data/b%20b/v=1");
    let list: Value = serde_json::from_str(&run(&["list", "--json"]).success().output).unwrap();
    let names: Vec<&Value> = list.as_array().unwrap().iter().map(|file| &file["name"]).collect();
    assert_eq!(names, ["/data/a/v=1", "/data/a/v=2"]);
    assert_eq!((&list[0]["newer"], &list[1]["newer"]), (&json!("/data/a/v=2"), &Value::Null));

    // Each error says what to do next.
    let refusals = [
        (vec!["remove", "/data/a"], "/data/a is not registered; `weir controller file list`"),
        (vec!["remove", "/data/a/v=1", "--database", "x"], "use --controller URL"),
    ];
    for (words, text) in refusals {
        let error = run(&words).failure();
        assert!(error.contains(text), "{error}");
    }
    let wrong = host.write("wrong", b"weir-0-0");
    let away = format!("http://127.0.0.1:{}", host.free_port());
    let refusals = [
        (&*url, &wrong, "`weir controller token list`"),
        (&*away, &token, "check that the controller runs and that --controller is its address"),
    ];
    for (url, token, text) in refusals {
        let token = token.to_str().expect("UTF-8");
        let words = ["--controller", url, "--controller-token-file", token];
        let all = [&["controller", "file", "list"][..], &words].concat();
        let error = host.spawn("", &all).finish().failure();
        assert!(error.contains(text), "{error}");
    }
    assert_eq!(controller.versions().len(), 2);
}

#[test]
fn transfers_survive_a_controller_restart() {
    let mut network = Network::start();
    let (_producer, versioned, hash) = network.put("/data/large");
    assert_eq!(network.get("/data/large", "first"), hash);
    network.wait_for_parts(&versioned);

    network.controller.process.signal(Signal::SIGKILL);
    // Routes and stored parts stay.
    network.read_without_producer(&versioned, &hash);

    network.restart_controller(&versioned);
    // The new controller has the same plan.
    network.read_without_producer(&versioned, &hash);
}

/// Regression: while a router was stopped for a moment, its part was requested from the producer.
/// A killed router is not waited for.
#[test]
fn transfer_survives_stopped_and_killed_keeper() {
    let mut network = Network::start();
    let (_producer, versioned, hash) = network.put("/data/large");
    assert_eq!(network.get("/data/large", "first"), hash);
    network.wait_for_parts(&versioned);
    network.read_without_producer(&versioned, &hash);

    // The router with the last part gets many Interests at once from a consumer that reaches it.
    let keeper = network.parts_of(&versioned).pop().expect("parts")["router"].clone();
    let keeper = MIDDLE.into_iter().find(|name| keeper == **name).expect("one of the three");
    let signal = |network: &mut Network, signal| {
        network.routers.get_mut(keeper).expect("it was started").process.signal(signal);
    };
    // Repeat the test, as on a busy machine the router may be stopped for too long.
    wait_until("a reading that waits for the keeper", || {
        let (before, asked) = (network.state(), network.edge_interests_to(keeper));
        signal(&mut network, Signal::SIGSTOP);
        let transfer = Transfer::start(&network, &versioned);
        // Do not count the Interests that measure round trips. Continue the router quickly, within
        // a second.
        wait_until("Interests to the keeper", || network.edge_interests_to(keeper) > asked + 5);
        std::thread::sleep(Duration::from_millis(100));
        signal(&mut network, Signal::SIGCONT);
        assert_eq!(hex(&transfer.finish()), hash);
        network.producer_was_not_used(&before)
    });

    let before = network.producer_interests();
    signal(&mut network, Signal::SIGKILL);
    assert_eq!(network.get(&versioned, "third"), hash);
    assert!(network.producer_interests() > before, "no other router has its part");
}

/// A running download of a withdrawn file completes while the producer serves it.
#[test]
fn withdrawn_file_is_read_to_its_end() {
    let network = Network::start();
    let (_producer, versioned, hash) = network.put("/data/large");
    let mut transfer = Transfer::start(&network, "/data/large");
    let mut read = transfer.read(4 * MIB);
    network.wait_for_parts(&versioned);
    network.controller.withdraw_all();
    wait_until("the end of the plan", || network.parts_of(&versioned).is_empty());
    assert!(transfer.is_running(), "it has four of 24 MiB");
    read.extend(transfer.finish());
    assert_eq!(hex(&read), hash);
    wait_until("nothing of it at the edge", || {
        let strategies = network.routers["edge"].weir_json(&["strategy", "list"]);
        !strategies.to_string().contains("part~")
    });
    assert_eq!(network.get(&versioned, "second"), hash);
}

/// The controller was suspended for a while. Routers that reported meanwhile count as alive.
#[test]
fn stopped_controller_loses_no_router() {
    let mut network = Network::start();
    let (_producer, versioned, hash) = network.put("/data/large");
    assert_eq!(network.get("/data/large", "first"), hash);
    network.wait_for_parts(&versioned);
    let parts = network.parts_of(&versioned);
    network.controller.process.signal(Signal::SIGSTOP);
    std::thread::sleep(ROUTER_TIMEOUT + Duration::from_secs(5));
    network.read_without_producer(&versioned, &hash);
    // Ignore earlier events: on a busy machine a router may have been lost before.
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_millis();
    network.controller.process.signal(Signal::SIGCONT);
    // Wait until all routers have reported again.
    let configuration = |name: &str| {
        let routers = network.controller.request("GET", "/v1/routers", None);
        let mut routers = routers.as_array().expect("routers").clone().into_iter();
        routers.find(|router| router["name"] == name).map(|router| router["seen_ms"].clone())
    };
    let seen = MIDDLE.map(configuration);
    wait_until("news of all", || {
        seen.iter().zip(MIDDLE).all(|(seen, name)| configuration(name) != *seen)
    });
    let events = network.controller.request("GET", "/v1/events?count=1000", None);
    let mut events = events.as_array().expect("events").iter();
    let lost = events.find(|event| {
        event["action"] == "router lost" && event["at_ms"].as_u64().map(u128::from) >= Some(since)
    });
    assert_eq!(lost, None);
    assert_eq!(network.parts_of(&versioned), parts);
}

/// `weir put --watch` registers new files and versions, and withdraws removed ones.
#[test]
fn watch_registers_changes_with_controller() {
    let host = Host::new();
    let mut controller = Controller::start(&host);
    let router = Router::start(&host);
    let token = host.write("token", controller.token.as_bytes());
    let url = format!("http://{}", controller.address);
    let reached = ["--controller", &url, "--controller-token-file", token.to_str().expect("UTF-8")];
    std::fs::create_dir(host.path("source")).expect("a folder");
    random_file(&host.path("source/first"), MIB, 1);
    let words = ["put", "source", "/watched", "--watch", "--json", "--repo", "repo"];
    let mut producer = router.spawn(&[&words[..], &reached].concat());
    producer.json_line();
    wait_until("the first is registered", || controller.registered() == ["first"]);
    let first = controller.versions();

    random_file(&host.path("source/first"), MIB, 2);
    random_file(&host.path("source/second"), MIB, 3);
    random_file(&host.path("source/small"), 1000, 4);
    wait_until("both are registered, once", || {
        controller.registered() == ["first", "second"] && controller.versions()[0] != first[0]
    });
    std::fs::rename(host.path("source/second"), host.path("source/third")).expect("renamed");
    std::fs::remove_file(host.path("source/first")).expect("removed");
    wait_until("the first is withdrawn", || controller.registered() == ["third"]);

    // Changes during an outage of the controller are registered after it.
    controller.process.signal(Signal::SIGKILL);
    let _ = controller.process.finish();
    random_file(&host.path("source/fourth"), MIB, 5);
    std::fs::remove_file(host.path("source/third")).expect("removed");
    loop {
        let told = producer.json_line();
        if told["withdrawn"].to_string().contains("/watched/third") {
            break;
        }
    }
    controller.process = start(&host, &controller.address, &controller.database);
    wait_until("it has learnt all", || controller.registered() == ["fourth"]);

    // Restart the producer with only its repository.
    producer.signal(Signal::SIGKILL);
    let _ = producer.finish();
    let versions = controller.versions();
    controller.withdraw_all();
    let words = ["put", "--repo", "repo", "--json"];
    let producer = router.spawn(&[&words[..], &reached].concat());
    producer.json_line();
    wait_until("all of it is registered again", || controller.versions() == versions);
}

/// Prints the ratio of the transfer time with and without a killed controller. Run it with
/// `--ignored --nocapture`.
#[test]
#[ignore = "it measures"]
fn measures_transfer_when_controller_dies() {
    const ROUNDS: usize = 15;
    let mut network = Network::with(768 * MIB);
    let (_producer, versioned, hash) = network.put("/data/large");
    assert_eq!(network.get("/data/large", "first"), hash);
    network.wait_for_parts(&versioned);

    let time = |network: &mut Network, kills: bool| {
        let words = ["get", versioned.as_str(), "-o", "/dev/null"];
        let begun = Instant::now();
        let transfer = network.routers["edge"].spawn(&words);
        std::thread::sleep(Duration::from_millis(200));
        if kills {
            network.controller.process.signal(Signal::SIGKILL);
        }
        transfer.finish().success();
        begun.elapsed().as_secs_f64()
    };
    let mut ratios = Vec::new();
    for round in 0..ROUNDS {
        // Alternate the order of the two measurements.
        let without = (round % 2 == 0).then(|| time(&mut network, false));
        let killed = time(&mut network, true);
        network.restart_controller(&versioned);
        ratios.push(killed / without.unwrap_or_else(|| time(&mut network, false)));
    }
    ratios.sort_by(f64::total_cmp);
    let (least, median, most) = (ratios[0], ratios[ROUNDS / 2], ratios[ROUNDS - 1]);
    println!(
        "with the controller killed a transfer takes {median:.3} ({least:.3} to {most:.3}) times \
         as long"
    );
}
