//! Failures in runs with real processes: clear errors, and no processes or files left behind.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use weir_netem::LinkConfig;
use weir_plan::event::{Event, EventKind};
use weir_plan::workload::{ConsumerPlan, Demand, Popularity, ProducerPlan};
use weir_plan::{DiskPlan, Fault, FaultPlan, LinkPlan, NodePlan, Plan, Role, RoutePlan, Transport};
use weir_plan_fixture::{MS, PlanBuilder, S, consumer, names, producer, router};
use weir_real::{self as real, RealError, RealOptions, RealReport};
use weir_tests::{Host, Process, TEST_TIMEOUT, wait_until, weir_binary};

/// A consumer with a window of 4 Interests, a router without store, and a producer.
fn plan(transport: Transport, duration_ns: u64) -> Plan {
    let names = names("/data", Popularity::Sequential { objects: 1000 }, 1000, 1000);
    let demand = Demand::Window { window: 4, count: None };
    let asker = ConsumerPlan { lifetime_ms: 500, ..consumer(names.clone(), demand) };
    let source = ProducerPlan { freshness_ms: 1000, delay_ns: 2 * MS, ..producer(names) };
    let link = |a, b| {
        let link = LinkPlan::local(a, b, &LinkConfig::default());
        LinkPlan { is_local: false, transport, ..link }
    };
    let mut builder = PlanBuilder::new(1, duration_ns);
    (builder.plan.drain_ns, builder.plan.sample_ns) = (2 * S, 200 * MS);
    let edge = builder.node("edge", Role::Router(router(0)));
    let asker = builder.node("asker", Role::Consumer(asker));
    let source = builder.node("source", Role::Producer(source));
    builder.connect(link(asker, edge));
    let to_source = builder.connect(link(edge, source));
    builder.route(edge, "/data", to_source);
    builder.plan
}

/// The same with a second router, which has its own producer and a link to the consumer.
fn plan_of_two_links(duration_ns: u64) -> Plan {
    let mut plan = plan(Transport::Udp, duration_ns);
    for (node, name) in [(0, "other edge"), (2, "other source")] {
        plan.nodes.push(NodePlan { name: name.into(), ..plan.nodes[node].clone() });
    }
    plan.links.extend([(1, 3), (3, 4)].map(|(a, b)| LinkPlan { a, b, ..plan.links[0].clone() }));
    plan.routes.push(RoutePlan { node: 3, prefix: "/data".into(), link: 3, cost: 0 });
    if let Role::Consumer(consumer) = &mut plan.nodes[1].role {
        consumer.schedule = "parallel".parse().expect("a schedule");
    }
    plan
}

/// Bytes that arrived over each link of the consumer until a time.
fn bytes_by_path(events: &[Event], until_ns: u64) -> [u64; 2] {
    let mut bytes = [0; 2];
    for event in events.iter().filter(|event| event.at_ns <= until_ns) {
        if let EventKind::PathSample { path, content_bytes, .. } = event.kind {
            bytes[path as usize] = content_bytes;
        }
    }
    bytes
}

#[test]
fn a_consumer_with_two_links_uses_both() {
    let host = Host::new();
    let (result, events) = run(&plan_of_two_links(S), &options(&host.path("run")));
    result.expect("it runs");
    let bytes = bytes_by_path(&events, S);
    assert!(bytes[0] > 0 && bytes[1] > 0, "{bytes:?}");
}

/// The consumer is not notified that its second link is down. It continues over the first.
#[test]
fn transfer_uses_the_remaining_link() {
    let host = Host::new();
    let mut plan = plan_of_two_links(5 * S);
    plan.faults.push(FaultPlan { at_ns: S, fault: Fault::LinkDown { link: 2, for_ns: 4 * S } });
    let (result, events) = run(&plan, &options(&host.path("run")));
    result.expect("it runs");
    // On a busy machine the link may go down later than it should.
    let [before, after] = [3 * S, 9 * S / 2].map(|at_ns| bytes_by_path(&events, at_ns));
    let [first, second] = [after[0] - before[0], after[1] - before[1]];
    assert!(first > 10 * second, "{before:?} {after:?}");
}

fn options(keep: &Path) -> RealOptions {
    RealOptions {
        program: weir_binary().to_path_buf(),
        keep: Some(keep.to_path_buf()),
        ..RealOptions::default()
    }
}

fn run(plan: &Plan, options: &RealOptions) -> (Result<RealReport, RealError>, Vec<Event>) {
    let mut events = Vec::new();
    let result = real::run(plan, options, &mut events);
    (result, events)
}

/// Processes whose command line contains a file in `folder`: their IDs and command lines.
fn processes_of(folder: &Path) -> Vec<(i32, String)> {
    let folder = folder.display().to_string();
    let entries = std::fs::read_dir("/proc").expect("/proc");
    let mut found: Vec<(i32, String)> = entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
        .filter_map(|id| {
            let line = std::fs::read(format!("/proc/{id}/cmdline")).ok()?;
            Some((id, String::from_utf8_lossy(&line).replace('\0', " ")))
        })
        .filter(|(_, line)| line.contains(&folder) && !line.contains(" child "))
        .collect();
    found.sort_unstable();
    found
}

/// Waits until the events or samples of a node show that it runs, and returns its process ID.
fn await_process(folder: &Path, file: &str) -> i32 {
    let deadline = Instant::now() + TEST_TIMEOUT;
    let all_run = || (0..3).all(|node| folder.join(format!("node-{node}.log")).exists());
    loop {
        let found = processes_of(folder);
        if let Some((id, _)) = found.iter().find(|(_, line)| line.contains(file))
            && found.len() == 3
            && all_run()
        {
            // Usually the start is complete after this time. The test must pass in both cases.
            std::thread::sleep(Duration::from_millis(300));
            return *id;
        }
        assert!(Instant::now() < deadline, "no process has {file}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Runs a long plan, disturbs it, and returns its error.
fn error_after(file: &str, disturb: impl FnOnce(i32, &RealOptions)) -> RealError {
    let host = Host::new();
    let folder = host.path("run");
    let options = options(&folder);
    let result = std::thread::scope(|scope| {
        let running = scope.spawn(|| run(&plan(Transport::Unix, 300 * S), &options).0);
        disturb(await_process(&folder, file), &options);
        running.join().expect("no panic")
    });
    assert_eq!(processes_of(&folder), [], "nothing is left behind");
    result.expect_err("it was disturbed")
}

fn sigkill(id: i32) {
    kill(Pid::from_raw(id), Signal::SIGKILL).expect("killed");
}

#[test]
fn error_names_dead_application() {
    for (file, title) in [("node-1.json", "consumer `asker`"), ("node-2.json", "producer `source`")]
    {
        let text = error_after(file, |id, _| sigkill(id)).to_string();
        assert!(text.contains(title) && text.contains("signal: 9"), "{text}");
    }
}

#[test]
fn error_names_dead_router_first() {
    let text = error_after("node-0.toml", |id, _| sigkill(id)).to_string();
    assert!(text.contains("the router `edge`") && text.contains("signal: 9"), "{text}");
}

#[test]
fn run_can_be_interrupted() {
    let error =
        error_after("node-0.toml", |_, options| options.stop.store(true, Ordering::Relaxed));
    assert!(matches!(error, RealError::Interrupted), "{error}");
}

#[test]
fn start_failures_are_errors() {
    let host = Host::new();
    let good = plan(Transport::Unix, S);
    let text_of = |options: &RealOptions| run(&good, options).0.unwrap_err().to_string();

    let nowhere = RealOptions { program: "/no/such/program".into(), ..RealOptions::default() };
    let text = text_of(&nowhere);
    assert!(text.contains("/no/such/program") && text.contains("edge"), "{text}");

    let file = host.write("file", b"");
    let text = text_of(&options(&file));
    assert!(text.contains(&file.display().to_string()), "{text}");

    let core = RealOptions { cpu_router: vec![900], ..options(&host.path("core")) };
    let text = text_of(&core);
    assert!(text.contains("router `edge`") && text.contains("900"), "{text}");
}

#[test]
fn refuses_plans_for_simulator_only() {
    let good = plan(Transport::Unix, S);
    let shaped = LinkConfig { delay_ns: MS, ..LinkConfig::default() };
    let mut cases = Vec::new();
    let mut case = |part: &'static str, change: &dyn Fn(&mut Plan)| {
        let mut plan = good.clone();
        change(&mut plan);
        cases.push((part, plan));
    };
    case("not ideal", &|plan| plan.links[0].a_to_b = shaped.clone());
    case("which needs `udp`", &|plan| {
        let fault = Fault::LinkDown { link: 0, for_ns: MS };
        plan.faults.push(FaultPlan { at_ns: 0, fault });
    });
    case("only the simulator can", &|plan| {
        let fault = Fault::StoreStall { node: 0, for_ns: MS };
        plan.faults.push(FaultPlan { at_ns: 0, fault });
    });
    case("only the simulator can", &|plan| {
        let fault = Fault::WrongBytes { link: 0, for_ns: MS, probability: 0.5 };
        plan.faults.push(FaultPlan { at_ns: 0, fault });
    });
    case("links to routers", &|plan| plan.links.truncate(1));
    case("two routers over a Unix socket", &|plan| {
        let second = NodePlan { name: "second".into(), role: plan.nodes[0].role.clone() };
        plan.nodes.push(second);
        let link = LinkPlan { a: 0, b: 3, ..plan.links[0].clone() };
        plan.links.push(link);
    });
    case("shares its disk", &|plan| {
        let Role::Router(router) = &mut plan.nodes[0].role else { panic!("no router") };
        let shared_as = Some("ssd".to_owned());
        router.disk = Some(DiskPlan { shared_as, ..DiskPlan::default() });
    });
    for (part, plan) in cases {
        let error = run(&plan, &RealOptions::default()).0.unwrap_err();
        assert!(matches!(error, RealError::Unsupported(_)), "{error}");
        assert!(error.to_string().contains(part), "{error} lacks {part}");
    }
}

/// A crashed router loses its store and restarts with its routes. The consumer continues.
#[test]
fn router_crashes_and_restarts() {
    for transport in [Transport::Unix, Transport::Udp] {
        let host = Host::new();
        let mut plan = plan(transport, 3 * S);
        let fault = Fault::Crash { node: 0, for_ns: 300 * MS };
        plan.faults.push(FaultPlan { at_ns: S, fault });
        let (result, events) = run(&plan, &options(&host.path("run")));
        result.unwrap_or_else(|error| panic!("{transport:?}: {error}"));
        let times = |begins: bool| {
            let event = events
                .iter()
                .find(|event| event.kind == EventKind::FaultChanged { fault: 0, begins });
            event.expect("the fault").at_ns
        };
        let (down_ns, up_ns) = (times(true), times(false));
        let data = |after: u64| {
            events
                .iter()
                .filter(|event| matches!(event.kind, EventKind::DataReceived { .. }))
                .filter(|event| event.at_ns > after)
                .count()
        };
        assert!(down_ns >= S && up_ns >= S + 300 * MS);
        assert!(data(0) > data(down_ns), "it ran before");
        assert!(data(up_ns) > 0, "it runs again");
    }
}

/// A link loses Interests while it is down, and none afterwards.
#[test]
fn link_goes_down_and_up() {
    let mut plan = plan(Transport::Udp, 3 * S);
    let fault = Fault::LinkDown { link: 1, for_ns: 700 * MS };
    plan.faults.push(FaultPlan { at_ns: S, fault });
    let host = Host::new();
    let (result, events) = run(&plan, &options(&host.path("run")));
    let report = result.expect("it ends well");
    assert!(report.emulator_utilisation > 0.0);
    let timed_out =
        events.iter().filter(|event| matches!(event.kind, EventKind::TimedOut { .. })).count();
    assert!(timed_out >= 4, "every Interest of the window was lost at least once: {timed_out}");
    let is_data = |event: &&Event| matches!(event.kind, EventKind::DataReceived { .. });
    let last = events.iter().rfind(is_data).expect("Data came");
    assert!(last.at_ns > 1700 * MS, "Data came after the link came up");
    let dropped: u64 = events
        .iter()
        .filter_map(|event| match event.kind {
            EventKind::LinkSample { link: 1, dropped, .. } => Some(dropped),
            _ => None,
        })
        .sum();
    assert!(dropped >= 4);
}

/// Prefixes without a purpose fill the FIB before the run starts, and do not disturb it.
#[test]
fn router_starts_with_a_large_fib() {
    let mut plan = plan(Transport::Unix, S);
    let Role::Router(router) = &mut plan.nodes[0].role else { panic!("a router") };
    router.fib_filler = 20_000;
    let host = Host::new();
    let (result, events) = run(&plan, &options(&host.path("run")));
    result.expect("it ends well");
    assert!(events.iter().any(|event| matches!(event.kind, EventKind::DataReceived { .. })));
}

/// The profiles of routers contain their functions.
#[test]
fn routers_are_profiled() {
    let host = Host::new();
    let options = RealOptions { profile: Some(host.path("profile")), ..options(&host.path("run")) };
    run(&plan(Transport::Unix, S), &options).0.expect("it ends well");
    let text = std::fs::read_to_string(host.path("profile").join("edge.csv")).expect("a profile");
    assert!(text.starts_with("function,self_percent,samples\n"), "{text}");
}

/// When the coordinator is killed, the kernel kills its child processes.
#[test]
fn children_end_with_their_parent() {
    let host = Host::new();
    let mut command = host.command(Path::new("sh"));
    let script = "\"$0\" lab child --parent $$ -- router --unix r.sock --udp none --tcp none \
                  --json & wait";
    command.args(["-c", script]).arg(weir_binary());
    let mut parent = Process::start("a parent", command);
    let router = parent.json_line()["pid"].as_i64().expect("its number") as i32;
    parent.signal(Signal::SIGKILL);
    wait_until("the router ends with its parent", || {
        let status = std::fs::read_to_string(format!("/proc/{router}/status"));
        status.map_or(true, |status| status.contains("State:\tZ"))
    });
}
