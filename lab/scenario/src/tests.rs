use std::collections::BTreeSet;
use std::path::PathBuf;

use weir_plan::workload::{Arrivals, Demand, LivePlan, Popularity, QualityChoice, Sizes};
use weir_plan::{Fault, LinkPackets, Role, Transport};
use weir_transport::NameMapping;
use weir_wire::Name;

use super::*;

/// A valid scenario; tests change one line of it.
const GOOD: &str = r#"[scenario]
id = "good"
title = "Good"

[run]
duration = "1s"
sample = "100ms"

[topology]
generator = "line"
nodes = 3

[link]
delay = "5ms"
rate = "10Mbit/s"

[router.store]
bytes = "1MiB"

[[producer]]
id = "p"
at = "last"
objects = 10
size = "10kB"
segment = "1000B"

[[consumer]]
id = "c"
at = "first"
of = "p"
rate = "100pps"

[[sweep]]
axis = "delay"
path = "producer.p.delay"
values = ["1ms", "20ms"]

[[metric]]
id = "goodput"
measure = "goodput"

[[plot]]
id = "goodput"
x = "delay"
y = "goodput"
"#;

fn read(text: &str) -> Result<Experiment, ScenarioError> {
    let folder = Folder::Disk(PathBuf::from("/no-such-folder"));
    Scenario::parse("test.toml", text, folder)?.experiment(Size::Smoke)
}

/// The error of reading `GOOD` with the line that begins with `line` replaced by `instead`.
fn error(line: &str, instead: &str) -> String {
    assert!(GOOD.lines().any(|l| l.starts_with(line)), "no line begins with {line}");
    let mut replaced = false;
    let lines: Vec<&str> = GOOD
        .lines()
        .map(|l| {
            let is_it = !replaced && l.starts_with(line);
            replaced |= is_it;
            if is_it { instead } else { l }
        })
        .collect();
    match read(&lines.join("\n")) {
        Ok(_) => format!("{instead:?} was accepted"),
        Err(error) => error.to_string(),
    }
}

/// The replaced line of `GOOD`, its replacement, and the error.
const WRONG: &[(&str, &str, &str)] = &[
    ("id = \"good\"", "id = \"a b\"", "test.toml:2: scenario.id: is \"a b\"; write letters"),
    ("title", "titel = \"x\"", "test.toml:3: scenario: unknown key `titel`; did you mean `title`?"),
    ("title", "", "test.toml:1: scenario: lacks `title`"),
    (
        "duration",
        "duration = \"1\"",
        "test.toml:6: run.duration: \"1\" has no unit; write \"1ms\" or \"1s\"",
    ),
    ("duration", "duration = 1", "test.toml:6: run.duration: \"1\" has no unit; write"),
    ("duration", "duration = \"1s", "test.toml:6: "),
    ("duration", "duration = { smoke = \"1s\" }", "test.toml:6: a value by size has both sizes"),
    (
        "duration",
        "duration = \"1s\"\nwarm_up = \"2s\"",
        "test.toml:7: run.warm_up: the warm-up takes the whole",
    ),
    (
        "duration",
        "duration = \"1s\"\nseeds = [1, 1]",
        "test.toml:7: run.seeds: is empty or has a seed twice",
    ),
    ("[run]", "[runs]", "test.toml:5: unknown key `runs`; did you mean `run`?"),
    (
        "generator",
        "generator = \"lines\"",
        "test.toml:10: topology.generator: unknown value \"lines\"; did you mean `line`?",
    ),
    (
        "generator",
        "generator = \"tree\"",
        "test.toml:11: topology.generator: unknown key `nodes`; one of depth, fan_out",
    ),
    (
        "generator",
        "generator = \"line\"\nfile = \"x\"",
        "test.toml:9: topology: [topology] has exactly one of",
    ),
    ("nodes", "nodes = -1", "test.toml:11: topology.generator.nodes: is -1; write a whole number"),
    (
        "nodes",
        "nodes = 99999999999999999999",
        "test.toml:11: 99999999999999999999 is too large; write a smaller number",
    ),
    ("nodes", "nodes = 0", "test.toml:9: topology: line with nodes = 0"),
    (
        "delay",
        "delay = \"5mss\"",
        "test.toml:14: link.delay: \"mss\" in \"5mss\" is no unit of duration",
    ),
    ("delay", "loss = 2", "test.toml:14: link.loss: write a number from 0 to 1"),
    ("rate = \"10M", "rate = \"0Mbit/s\"", "test.toml:15: link.rate: write a rate above 0"),
    ("rate = \"10M", "local = true", "link: a local link has no rate, delay or loss"),
    (
        "bytes",
        "bytes = \"1MiB\"\npackets = 3",
        "test.toml:19: router.store.packets: the store has both",
    ),
    (
        "bytes",
        "policy = \"lur\"",
        "test.toml:18: router.store.policy: unknown value \"lur\"; did you mean `lru`?",
    ),
    (
        "bytes",
        "filled = 1.5",
        "test.toml:18: router.store.filled: \"1.5\" is too large; the most is 1",
    ),
    (
        "at = \"last\"",
        "at = \"r9\"",
        "test.toml:22: producer[0].at: the topology has no node \"r9\"; did you mean `r0`?",
    ),
    (
        "at = \"last\"",
        "at = \"producers\"",
        "test.toml:22: producer[0].at: \"producers\" selects no node",
    ),
    (
        "of = ",
        "start = \"3s\"\nstop = \"2s\"\nof = \"p\"",
        "test.toml:31: consumer[0].stop: is 2s, but `start` is 3s",
    ),
    (
        "[router.store]",
        "[router]\nmarking = \"rem q_min=2MB q_max=1MB\"\n[router.store]",
        "router.marking: invalid marking policy `rem`: q_min=2MB and q_max=1MB",
    ),
    (
        "[router.store]",
        "[router]\nshaping = \"fisp min=0.9 max=0.7\"\n[router.store]",
        "router.shaping: invalid Interest shaping `fisp`: min=0.9 and max=0.7",
    ),
    ("segment", "segment = \"9KiB\"", "test.toml:25: producer[0].segment: must be from 1B to 8KiB"),
    (
        "size",
        "sizes_file = \"none.csv\"",
        "test.toml:24: producer[0].sizes_file: cannot read /no-such-folder/none.csv",
    ),
    (
        "of = ",
        "of = \"q\"",
        "test.toml:30: consumer[0].of: no [[producer]] has the id \"q\"; did you mean `p`?",
    ),
    (
        "of = ",
        "of = \"p\"\nspread = 2",
        "test.toml:31: consumer[0].spread: `spread` is 2, but group \"p\" has 1",
    ),
    ("rate = \"100pps\"", "", "test.toml:27: consumer[0]: does not say what it requests"),
    (
        "rate = \"100pps\"",
        "rate = \"100\"",
        "test.toml:31: consumer[0].rate: \"100\" has no unit; write \"100pps\"",
    ),
    (
        "rate = \"100pps\"",
        "rate = \"1pps\"\nexponent = 0.8",
        "test.toml:32: consumer[0].exponent: has no meaning",
    ),
    (
        "rate = \"100pps\"",
        "rate = \"1pps\"\npopularity = \"zipf\"",
        "test.toml:27: consumer[0]: lacks `exponent`",
    ),
    (
        "rate = \"100pps\"",
        "rate = \"1pps\"\npopularity = \"trace\"\ntrace = \"gone.csv\"",
        "test.toml:33: consumer[0].trace: cannot read /no-such-folder/gone.csv",
    ),
    (
        "path",
        "path = \"consumer.c.rates\"",
        "test.toml:36: consumer[0]: unknown key `rates`; did you mean `rate`?",
    ),
    (
        "path",
        "path = \"consumer.d.rate\"",
        "test.toml:36: the path `consumer.d.rate` does not exist",
    ),
    (
        "path",
        "path = \"metric.goodput.id\"",
        "test.toml:35: sweep[0].path: the path `metric.goodput.id` cannot be swept",
    ),
    (
        "values",
        "values = []",
        "test.toml:36: sweep[0]: the values of `producer.p.delay` must be a list of at least one",
    ),
    (
        "values",
        "values = [\"1ms\", \"1ms\"]",
        "test.toml:36: sweep[0]: axis \"delay\" has \"1ms\" twice",
    ),
    (
        "values",
        "values = [\"1ms\"]\nlabels = [\"a\", \"b\"]",
        "test.toml:37: sweep[0].labels: has 2 texts for 1",
    ),
    ("values", "values = [\"1ms\", \"1\"]", "test.toml:36: producer[0].delay: \"1\" has no unit"),
    (
        "measure",
        "measure = \"godput\"",
        "test.toml:40: metric[0].measure: unknown measure \"godput\"; did you mean `goodput`?",
    ),
    ("measure", "measure = \"queue-length\"", "needs a queue; write"),
    (
        "measure",
        "measure = \"goodput\"\nat = \"d\"",
        "metric \"goodput\" is at \"d\", which is neither",
    ),
    ("measure", "measure = \"goodput\"\nstatistic = \"max\"", "has no samples; remove"),
    (
        "x = ",
        "x = \"delays\"",
        "test.toml:44: plot[0].x: the sweep has no axis \"delays\"; did you mean `delay`?",
    ),
    ("x = ", "x = \"time\"", "metric \"goodput\" is not recorded that way; write over_time = true"),
    (
        "y = ",
        "y = \"goodputs\"",
        "test.toml:45: plot[0].y: no [[metric]] has the id \"goodputs\"; did you mean",
    ),
    ("y = ", "y = \"goodput\"\nseries = \"delay\"", "axis \"delay\" is used twice in this plot"),
];

#[test]
fn errors_name_line_and_remedy() {
    let mut wrong = Vec::new();
    for (line, instead, expected) in WRONG {
        let text = error(line, instead);
        if !text.contains(expected) {
            wrong.push(format!("{instead}\n  gave     {text}\n  expected {expected}\n"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.concat());
}

#[test]
fn the_good_scenario_becomes_plans() {
    let experiment = read(GOOD).expect("good");
    assert_eq!(experiment.seeds, [1]);
    assert_eq!(experiment.points.len(), 2);
    assert_eq!(experiment.axes[0].unit, "s");
    assert_eq!(experiment.axes[0].points[1].number, Some(0.02));
    let prepared = experiment.prepare(&experiment.points[1], 7).expect("a plan");
    let plan = &prepared.plan;
    let names: Vec<&str> = plan.nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names, ["r0", "r1", "r2", "p", "c"]);
    assert_eq!((plan.seed, plan.duration_ns, plan.sample_ns), (7, 1_000_000_000, 100_000_000));
    assert_eq!(plan.drain_ns, 5_000_000_000, "a lifetime and a second");
    let Role::Router(router) = &plan.nodes[0].role else { panic!("r0 routes") };
    assert_eq!(router.store.size.bytes, 1 << 20);
    let Role::Consumer(consumer) = &plan.nodes[4].role else { panic!("c asks") };
    assert_eq!(
        consumer.demand,
        Demand::Arrivals { arrivals: Arrivals::Poisson { rate_hz: 100.0 } }
    );
    assert_eq!(consumer.names.popularity, Popularity::Sequential { objects: 10 });
    assert_eq!(consumer.names.prefix, "/p");
    assert_eq!((plan.links[0].a, plan.links[0].b), (0, 1));
    assert_eq!(plan.links[0].a_to_b.delay_ns, 5_000_000);
    assert_eq!(plan.links[0].transport, Transport::Udp);
    assert!(!plan.links[0].is_local);
    assert!(plan.links[2].is_local, "applications are on the router's host");
    let mut routes: Vec<(usize, usize)> = plan.routes.iter().map(|r| (r.node, r.link)).collect();
    routes.sort_unstable();
    assert_eq!(routes, [(0, 0), (1, 1), (2, 2)]);
    assert_eq!(prepared.groups["consumers"], [4]);
}

#[test]
fn a_trial_chooses_the_packets_of_its_links() {
    let text = |packets: &str, link: &str| {
        let [head, tail] = [("[scenario]", "[[producer]]"), ("[[metric]]", "[[plot]]")]
            .map(|(from, to)| &GOOD[GOOD.find(from).unwrap()..GOOD.find(to).unwrap()]);
        let head = head.replace("delay = \"5ms\"\nrate = \"10Mbit/s\"\n", link);
        let head = head.replace("title", "arms = [\"real\"]\ntitle");
        format!("{head}[trial]\nwhat = \"transfer\"\npackets = \"{packets}\"\n{tail}")
    };
    let plan = |packets: &str, link: &str| {
        let experiment = read(&text(packets, link)).expect("a scenario");
        let prepared = experiment.prepare(&experiment.points[0], 1).expect("a plan");
        (prepared.plan, prepared.trial.expect("a trial"))
    };
    let (ndn, trial) = plan("ndn", "");
    assert_eq!(ndn.links[0].packets, LinkPackets::Ndn);
    assert_eq!(ndn.routes[0].prefix, "/trial");
    assert_eq!(trial.mapping(1), NameMapping::Identity);
    let (hicn, trial) = plan("hicn", "");
    assert!(hicn.links.iter().all(|link| link.packets == LinkPackets::Hicn));
    let prefix: Name = hicn.routes[0].prefix.parse().expect("a name");
    for index in [0, 1, u16::MAX] {
        let network = trial.mapping(index).prefix(prefix.as_view());
        assert!(prefix.as_view().is_prefix_of(network.as_view()), "{network}");
    }
    assert_ne!(trial.mapping(0), trial.mapping(1));
    for link in ["runs = true\n", "reliability = true\n", "transport = \"tcp\"\n"] {
        let error = read(&text("hicn", link)).expect_err(link).to_string();
        assert!(error.contains("`packets` of hICN require"), "{error}");
    }
}

#[test]
fn host_links_and_positions_follow_scenario() {
    let folder = tempfile::tempdir().expect("folder");
    let topology = "coordinates = \"geographic\"\n[defaults]\ndelay = \"distance\"\n\
                    [[node]]\nname = \"h\"\nrole = \"consumer\"\nposition = [0, 0]\n\
                    [[node]]\nname = \"r0\"\nposition = [1, 0]\n\
                    [[node]]\nname = \"r1\"\nposition = [2, 0]\n\
                    [[link]]\nbetween = [\"h\", \"r0\"]\n[[link]]\nbetween = [\"h\", \"r1\"]\n\
                    [[link]]\nbetween = [\"r0\", \"r1\"]\n";
    std::fs::write(folder.path().join("t.toml"), topology).expect("written");
    let own = "file = \"t.toml\"\n[topology.positions]\nr1 = [4, 0]\n";
    let text = GOOD
        .replacen("generator = \"line\"\nnodes = 3\n", own, 1)
        .replacen("[link]\ndelay = \"5ms\"\n", "[link]\n", 1)
        .replacen("at = \"last\"", "at = \"r1\"", 1)
        .replacen("at = \"first\"", "at = \"h\"", 1)
        .replacen("rate = \"100pps\"", "window = 4\nschedule = \"round-robin\"", 1)
        .replacen("[[sweep]]", "[[consumer.path]]\nto = \"r1\"\nwindow = 2\n\n[[sweep]]", 1);
    let read = |text: &str| {
        let folder = Folder::Disk(folder.path().to_path_buf());
        Scenario::parse("test.toml", text, folder)?.experiment(Size::Smoke)
    };
    let experiment = read(&text).expect("good");
    let plan = experiment.prepare(&experiment.points[0], 7).expect("a plan").plan;
    plan.check().expect("it can be run");
    let host = plan.nodes.iter().position(|node| node.name == "c").expect("the consumer");
    let own = plan.links.iter().filter(|link| link.b == host);
    let delays: Vec<_> = own.map(|link| link.a_to_b.delay_ns).collect();
    assert_eq!(delays.len(), 2);
    let ratio = delays[1] as f64 / delays[0] as f64;
    assert!((3.99..4.01).contains(&ratio), "{delays:?}");
    let Role::Consumer(consumer) = &plan.nodes[host].role else { panic!("a consumer") };
    assert_eq!(consumer.path_windows, [Some(2)]);
    for (old, new, expected) in [
        ("r1 = [4, 0]", "r9 = [4, 0]", "no node \"r9\""),
        ("[[consumer.path]]\nto = \"r1\"\nwindow = 2\n", "", "a link to \"r1\" that nothing uses"),
        ("file = \"t.toml\"", "builtin = \"geant\"", "nodes of a `file`"),
    ] {
        let error = read(&text.replacen(old, new, 1)).expect_err("wrong");
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn window_consumer_may_have_several_links() {
    let path = "[[consumer.path]]\nto = \"r2\"\nlink = { rate = \"8Mbit\" }\n\n[[sweep]]";
    let text = GOOD.replacen("[[sweep]]", path, 1);
    let refused = read(&text).expect_err("single Interests").to_string();
    assert!(refused.contains("single Interests use one link"), "{refused}");
    let window = "window = 4\nschedule = \"parallel\"\nlink = { delay = \"3ms\" }";
    let text = text.replacen("rate = \"100pps\"", window, 1);
    let experiment = read(&text).expect("good");
    let plan = experiment.prepare(&experiment.points[0], 7).expect("a plan").plan;
    plan.check().expect("it can be run");
    let links: Vec<_> = plan.links.iter().filter(|link| link.b == 4).collect();
    assert_eq!(links.iter().map(|link| link.a).collect::<Vec<_>>(), [0, 2]);
    let rates = links.iter().map(|link| (link.a_to_b.rate_bps, link.a_to_b.delay_ns));
    assert_eq!(rates.collect::<Vec<_>>(), [(None, 3_000_000), (Some(8_000_000), 3_000_000)]);
    let twice = read(&text.replacen("to = \"r2\"", "to = \"r0\"", 1));
    assert!(twice.expect_err("twice").to_string().contains("leads to \"r0\" twice"));
}

#[test]
fn sizes_choose_among_values() {
    let text = GOOD.replace("duration = \"1s\"", "duration = { smoke = \"1s\", full = \"9s\" }");
    let scenario =
        |text: &str| Scenario::parse("t", text, Folder::Disk(PathBuf::new())).expect("readable");
    let full = scenario(&text).experiment(Size::Full).expect("full");
    assert_eq!(full.seeds, [1, 2, 3, 4, 5]);
    let plan = full.prepare(&full.points[0], 1).expect("a plan").plan;
    assert_eq!(plan.duration_ns, 9_000_000_000);
    let text = text.replace("sample =", "seeds = 2\nsample =");
    let error = scenario(&text).experiment(Size::Full).expect_err("2 seeds").to_string();
    assert!(error.contains("a full run has at least 5 seeds"), "{error}");
}

#[test]
fn axes_are_crossed_and_lists_zipped() {
    let text = format!(
        "{GOOD}\n[[sweep]]\naxis = \"medium\"\nlabels = [\"fast\", \"slow\"]\n\
         [sweep.zip]\n\"link.rate\" = [\"1Gbit/s\", \"1Mbit/s\"]\n\
         \"link.delay\" = [\"1ms\", \"2ms\"]\n"
    );
    let experiment = read(&text).expect("good");
    assert_eq!(experiment.points.len(), 4);
    assert_eq!(experiment.point_name(&experiment.points[1]), "delay=1ms medium=slow");
    let link = |point: usize| {
        let plan = experiment.prepare(&experiment.points[point], 1).expect("a plan").plan;
        (plan.links[0].a_to_b.rate_bps, plan.links[0].a_to_b.delay_ns)
    };
    assert_eq!(link(0), (Some(1_000_000_000), 1_000_000));
    assert_eq!(link(3), (Some(1_000_000), 2_000_000));
}

#[test]
fn store_of_n_packets_holds_n() {
    let text = GOOD.replace("bytes = \"1MiB\"", "packets = 100");
    let experiment = read(&text).expect("good");
    let plan = experiment.prepare(&experiment.points[0], 1).expect("a plan").plan;
    let Role::Router(router) = &plan.nodes[0].role else { panic!("r0 routes") };
    // 1,000 bytes of content, a name, a signature, and an index entry.
    let each = router.store.size.bytes / 100;
    assert!((1_050..1_500).contains(&each), "{each}");
}

#[test]
fn topology_hosts_become_applications() {
    let text = GOOD
        .replace("generator = \"line\"\nnodes = 3", "generator = \"dumbbell\"\nleft = 2\nright = 3")
        .replace("at = \"last\"", "at = \"producers\"")
        .replace("at = \"first\"", "at = \"consumers\"");
    let experiment = read(&text).expect("good");
    let prepared = experiment.prepare(&experiment.points[0], 1).expect("a plan");
    assert_eq!(prepared.groups["routers"].len(), 2);
    assert_eq!(prepared.groups["producers"].len(), 3);
    assert_eq!(prepared.groups["consumers"].len(), 2);
    assert_eq!(prepared.plan.links.len(), 6);
    assert!(prepared.plan.links.iter().all(|link| link.a_to_b.delay_ns == 5_000_000));
}

#[test]
fn random_places_follow_the_seed() {
    let text =
        GOOD.replace("nodes = 3", "nodes = 40").replace("at = \"first\"", "at = \"random 5\"");
    let experiment = read(&text).expect("good");
    let links = |seed| {
        let plan = experiment.prepare(&experiment.points[0], seed).expect("a plan").plan;
        plan.links.iter().map(|link| (link.a, link.b)).collect::<Vec<_>>()
    };
    assert_eq!(links(1), links(1));
    assert_ne!(links(1), links(2));
}

#[test]
fn several_crashes_and_table_axes_are_read() {
    let axis =
        "[[sweep]]\naxis = \"delay\"\npath = \"producer.p.delay\"\nvalues = [\"1ms\", \"20ms\"]";
    let tables = "[[sweep]]\naxis = \"delay\"\nlabels = [\"a\", \"b\"]\n[sweep.zip]\n\
        \"topology\" = [{ builtin = \"geant\" }, { generator = \"line\", nodes = 9 }]\n\
        \"fault\" = [[], [{ at = \"1s\", kind = \"crash\", nodes = \"random 4\", for = \"1ms\" }]]";
    let experiment = read(&GOOD.replace(axis, tables)).expect("good");
    let plans: Vec<_> = experiment
        .points
        .iter()
        .map(|point| experiment.prepare(point, 1).expect("a plan").plan)
        .collect();
    assert_eq!(plans[0].faults.len(), 0);
    assert!(plans[0].nodes.len() > 30);
    let crashed: BTreeSet<usize> = plans[1]
        .faults
        .iter()
        .filter_map(|fault| match fault.fault {
            Fault::Crash { node, for_ns: 1_000_000 } if node < 9 => Some(node),
            _ => None,
        })
        .collect();
    assert_eq!((crashed.len(), plans[1].faults.len()), (4, 4));
    let wrong = tables.replace("\"crash\"", "\"store-stall\"");
    let problem = read(&GOOD.replace(axis, &wrong)).expect_err("of crashes alone").to_string();
    assert!(problem.contains("`nodes` is for `crash`"), "{problem}");
}

#[test]
fn hash_covers_what_is_measured() {
    let hash = |text: &str| read(text).expect("good").hash().expect("a hash");
    let good = hash(GOOD);
    assert_eq!(good, hash(&GOOD.replace("title = \"Good\"", "title = \"Better\"")));
    assert_eq!(good, hash(&GOOD.replace("[[plot]]\nid = \"goodput\"", "[[plot]]\nid = \"other\"")));
    assert_ne!(good, hash(&GOOD.replace("delay = \"5ms\"", "delay = \"6ms\"")));
    assert_ne!(good, hash(&GOOD.replace("measure = \"goodput\"", "measure = \"throughput\"")));
}

#[test]
fn built_in_scenarios_are_valid() {
    let mut count = 0;
    for paper in papers() {
        for name in paper.scenario_names() {
            let scenario = paper.scenario(&name).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(scenario.header.id, name, "the file is named after the id");
            for size in [Size::Smoke, Size::Full] {
                let experiment =
                    scenario.experiment(size).unwrap_or_else(|error| panic!("{error}"));
                assert!(!experiment.points.is_empty());
            }
            count += 1;
        }
    }
    assert!(count >= 4, "{count}");
}

#[test]
fn unmeasurable_metrics_are_rejected_by_arm() {
    let with = |arms: &str| {
        let link = "[[metric]]\nid = \"carried\"\nmeasure = \"link-throughput\"\n";
        GOOD.replacen("title = \"Good\"", &format!("title = \"Good\"\narms = {arms}"), 1) + link
    };
    let both = read(&with("[\"sim\", \"real\"]")).expect("right");
    assert!(both.not_measured_in(Arm::Sim).is_empty());
    assert_eq!(both.not_measured_in(Arm::Real), ["carried"]);
    let refused = read(&with("[\"real\"]")).expect_err("no arm measures it").to_string();
    assert!(refused.contains("\"carried\" cannot be measured"), "{refused}");
    let queue = "measure = \"queue-length\"\nqueue = \"store\"\n";
    let text = GOOD.replacen("measure = \"goodput\"\n", queue, 1);
    assert_eq!(read(&text).expect("right").not_measured_in(Arm::Real), ["goodput"]);
}

/// `GOOD` with a disk at the second router, routes by object, and a consumer with a controller.
fn with_disk(consumer: &str) -> Result<Experiment, ScenarioError> {
    let route = "[[route]]\nat = \"r0\"\nof = \"p\"\nobjects = [[0, 2], [9, 9]]\nto = \"r1\"\n";
    let disk = "[[routers]]\nat = \"r1\"\ndisk.filled_ranges = [[0, 4]]\ndisk.rate = \"1kpps\"\n";
    let text = GOOD.replace("rate = \"100pps\"", consumer).replace(
        "[[sweep]]",
        &format!("{route}\n{disk}\n[routes]\nonly_given = true\n\n[[sweep]]"),
    );
    read(&text)
}

#[test]
fn reads_disks_object_routes_and_controllers() {
    let consumer = "popularity = \"turns\"\nrequests = 25\ncontroller = \"nb-cc\"\ncount = 7";
    let experiment = with_disk(consumer).unwrap();
    let plan = experiment.prepare(&experiment.points[0], 1).unwrap().plan;
    let prefixes: Vec<&str> = plan.routes.iter().map(|route| route.prefix.as_str()).collect();
    assert_eq!(prefixes, ["/p/00000000", "/p/00000001", "/p/00000002", "/p/00000009"]);
    let Role::Router(router) = &plan.nodes[1].role else { panic!("r1 is a router") };
    let disk = router.disk.as_ref().expect("it has a disk");
    assert_eq!((disk.filled_ranges.as_slice(), disk.disks), ([(0, 4)].as_slice(), 1));
    assert!(matches!(&plan.nodes[0].role, Role::Router(router) if router.disk.is_none()));
    let consumer = plan.nodes.iter().find_map(|node| match &node.role {
        Role::Consumer(consumer) => Some(consumer),
        _ => None,
    });
    let consumer = consumer.expect("there is one");
    let expected = Demand::Controlled { controller: "nb-cc".into(), window: None, count: Some(7) };
    assert_eq!(consumer.demand, expected);
    let Popularity::Trace { requests } = &consumer.names.popularity else { panic!("a trace") };
    let objects: Vec<u64> = requests.iter().map(|request| request.0).collect();
    assert_eq!(objects, (0..25).map(|number| number % 10).collect::<Vec<u64>>());
    assert!(requests.iter().all(|request| request.1 < 10));
    let error = with_disk("controller = \"nb-cc\"\nrate = \"1kpps\"").unwrap_err().to_string();
    assert!(error.contains("either a `rate` or a `controller`"), "{error}");
    for (wrong, says) in [
        ("cubik", "did you mean `cubic`?"),
        ("icp theta=1", "it has eta, beta"),
        ("chopcop beta_1=0.95", "beta_1=0.95 and beta_2=0.9"),
    ] {
        let error = with_disk(&format!("controller = \"{wrong}\"")).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
    assert!(with_disk("controller = \"chopcop beta_2=0.8 delta=3\"").is_ok());
}

/// The second router shares a disk and a machine with the first, and a consumer has the keys
/// `more`.
fn with_shared(first: &str, second: &str, more: &str) -> Result<Experiment, ScenarioError> {
    let routers =
        format!("[[routers]]\nat = \"r0\"\n{first}\n[[routers]]\nat = \"r1\"\n{second}\n");
    let consumer = format!("controller = \"nb-cc\"\n{more}");
    let text = GOOD.replace("rate = \"100pps\"", &consumer);
    read(&text.replace("[[sweep]]", &format!("{routers}\n[[sweep]]")))
}

#[test]
fn shared_disks_must_agree() {
    let disk = "disk.device = \"ssd\"\ndisk.rate = \"1kpps\"";
    let cpu = "interest = \"9us\", data = \"0us\", read = \"35us\", bypass = \"83us\"";
    let cpu = format!("stages.cpu = {{ {cpu}, machine = \"pc\", cores = 4 }}");
    let router = format!("{disk}\n{cpu}");
    let experiment =
        with_shared(&router, &router, "decrease_interval = \"50ms\"\nlosses = \"lifetime\"")
            .expect("it is right");
    let plan = experiment.prepare(&experiment.points[0], 1).expect("a plan").plan;
    for node in &plan.nodes[..2] {
        let Role::Router(router) = &node.role else { panic!("{} is a router", node.name) };
        let disk = router.disk.as_ref().expect("it has a disk");
        let cpu = router.stages.as_ref().and_then(|stages| stages.cpu.as_ref()).expect("a stage");
        assert_eq!(disk.shared_as.as_deref(), Some("ssd"));
        assert_eq!((cpu.machine.as_deref(), cpu.cores), (Some("pc"), 4));
        let times = [&cpu.interest, &cpu.data, &cpu.read, &cpu.bypass].map(|time| time.mean_ns());
        assert_eq!(times, [9_000.0, 0.0, 35_000.0, 83_000.0]);
    }
    let intervals = plan.nodes.iter().filter_map(|node| match &node.role {
        Role::Consumer(consumer) if consumer.waits_for_lifetime => consumer.decrease_interval_ns,
        _ => None,
    });
    assert!(intervals.count() > 0);
    for (second, more, wanted) in [
        (router.replace("1kpps", "2kpps"), "", "disk.device: differs from that of \"r0\""),
        (router.replace("cores = 4", "cores = 2"), "", "cores: differs from that of \"r0\""),
        (router.replace("machine = \"pc\", ", ""), "", "name the `machine`"),
        (router.clone(), "repeats = \"apart\"", "repeats: has no meaning for this popularity"),
    ] {
        let error = with_shared(&router, &second, more).expect_err(wanted);
        assert!(error.to_string().contains(wanted), "{error}");
        assert!(error.line.is_some(), "{error}");
    }
    let error = with_disk("rate = \"1kpps\"\nlosses = \"lifetime\"").unwrap_err();
    assert!(error.to_string().contains("are not retransmitted"), "{error}");
    let error = with_disk("rate = \"1kpps\"\ndecrease_interval = \"50ms\"").unwrap_err();
    assert!(error.to_string().contains("only a `controller` decreases its window"), "{error}");
}

#[test]
fn reads_live_channels_and_players() {
    let server = "live = { segment = \"2s\", rates = [\"8kbit/s\", \"1Mbit/s\"] }";
    let player = "live = { switch = \"10min\", quality = \"drawn\" }";
    let with = |server: &str, player: &str| {
        read(&GOOD.replace("size = \"10kB\"", server).replace("rate = \"100pps\"", player))
    };
    let experiment = with(server, player).expect("right");
    let plan = experiment.prepare(&experiment.points[0], 1).expect("a plan").plan;
    let Role::Producer(producer) = &plan.nodes[3].role else { panic!("p is a producer") };
    let live = Some(LivePlan { segment_ns: 2_000_000_000, listed: 5 });
    assert_eq!(producer.names.live, live);
    assert_eq!(producer.names.sizes, Sizes::List { bytes: [2000, 250_000].into() });
    let Role::Consumer(consumer) = &plan.nodes[4].role else { panic!("c is a player") };
    assert_eq!(consumer.names.live, live);
    let Demand::Live { switch_ns, quality, .. } = consumer.demand else { panic!("a player") };
    assert_eq!((switch_ns, quality), (600_000_000_000, QualityChoice::Drawn));
    let unsorted = server.replace("8kbit/s", "8Mbit/s");
    for (server, player, wanted) in [
        (server, "rate = \"100pps\"", "needs `live` of its producer"),
        ("size = \"10kB\"", player, "needs `live` of its producer"),
        (&unsorted, player, "lowest first"),
        (&format!("size = \"10kB\"\n{server}"), player, "remove `size`"),
        (server, &format!("count = 3\n{player}"), "excludes `objects`, `rate` and `count`"),
    ] {
        let error = with(server, player).expect_err(wanted);
        assert!(error.to_string().contains(wanted), "{error}");
        assert!(error.line.is_some(), "{error}");
    }
}
