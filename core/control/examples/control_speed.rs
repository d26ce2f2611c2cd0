//! Measures a controller of many routers and objects: memory in bytes, and the time of each
//! operation.
//!
//!     cargo run --release -p weir-control --example control_speed -- ROUTERS OBJECTS [PLANNED]
//!
//! `--json` prints one JSON object instead of lines.
//!
//! The first `PLANNED` objects get plans, by default all. Half of the routers have stores that hold
//! all objects together; the others request them. Each keeper reports its parts, and one more
//! router holds each object completely.

use std::time::{Duration, Instant};

use weir_base::{Instant as Moment, NS_PER_MS, Rng};
use weir_control::message::{
    Change, Decision, FaceReport, RouterReport, Tier, Update, UpdateNumber,
};
use weir_control::{Controller, ControllerConfig, File, Segments};
use weir_wire::Name;

/// Links of a router in addition to its two in the ring, on average twice that: both ends count.
const CHORDS: usize = 2;
const PREFIXES_EVERY: usize = 10;
const SEGMENTS: u64 = 10_000;
const PACKET_BYTES: u64 = 8200;
const CHANGES_PER_UPDATE: usize = 1000;

struct Network {
    routers: usize,
    faces: Vec<Vec<(usize, u64)>>,
    store_bytes: u64,
}

impl Network {
    fn new(routers: usize, objects: usize, rng: &mut Rng) -> Self {
        let mut faces = vec![Vec::new(); routers];
        let mut link = |a: usize, b: usize, ms: u64| {
            faces[a].push((b, ms));
            faces[b].push((a, ms));
        };
        for at in 0..routers {
            link(at, (at + 1) % routers, 1 + u64::from(rng.below(20)));
            for _ in 0..CHORDS {
                link(at, rng.below(routers as u32) as usize, 1 + u64::from(rng.below(40)));
            }
        }
        let content = objects as u64 * SEGMENTS * PACKET_BYTES;
        Self { routers, faces, store_bytes: content / (routers as u64 / 2) * 2 }
    }

    fn report(&self, router: usize, ms_more: u64, generation: u64) -> RouterReport {
        let face = |&(other, ms): &(usize, u64)| FaceReport {
            remote: format!("udp4://192.0.2.1:{other}"),
            round_trip_ns: Some((ms + ms_more) * NS_PER_MS),
            ..FaceReport::default()
        };
        let is_producer = router.is_multiple_of(PREFIXES_EVERY);
        RouterReport {
            uris: vec![format!("udp4://192.0.2.1:{router}")],
            store_bytes: if keeps(router) { self.store_bytes } else { 1 << 20 },
            disk_bytes: self.store_bytes,
            faces: self.faces[router].iter().map(face).collect(),
            prefixes: is_producer.then(|| prefix(router)).into_iter().collect(),
            generation,
            ..RouterReport::default()
        }
    }
}

fn keeps(router: usize) -> bool {
    router % 2 == 1
}

fn prefix(router: usize) -> Name {
    format!("/site{router:04}").parse().expect("a name")
}

fn name(router: usize) -> String {
    format!("router{router:04}")
}

fn object(number: usize, routers: usize) -> Name {
    let producer = number % routers / PREFIXES_EVERY * PREFIXES_EVERY;
    let name = format!("/site{producer:04}/run{:03}/events-{number:07}.root/v=1", number / 1000);
    name.parse().expect("a name")
}

#[derive(Default)]
struct Times(Vec<Duration>);

impl Times {
    fn take<T>(&mut self, act: impl FnOnce() -> T) -> T {
        let begin = Instant::now();
        let result = act();
        self.0.push(begin.elapsed());
        result
    }
}

/// Prints results: lines during the run, or JSON at the end.
struct Output {
    json: Option<serde_json::Map<String, serde_json::Value>>,
}

impl Output {
    fn times(&mut self, what: &str, times: Times) {
        let mut all = times.0;
        all.sort_unstable();
        let at = |share: f64| all[((all.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e6;
        let (median_us, p99_us, longest_us) = (at(0.5), at(0.99), at(1.0));
        match &mut self.json {
            Some(json) => {
                let row = serde_json::json!({ "median_us": median_us, "p99_us": p99_us });
                json.insert(what.into(), row);
            }
            None => println!(
                "{what:28} {:8} times, median {median_us:9.1} us, p99 {p99_us:9.1} us, longest \
                 {longest_us:10.1} us",
                all.len()
            ),
        }
    }

    fn line(&self, line: &str) {
        if self.json.is_none() {
            println!("{line}");
        }
    }
}

/// Resident memory of this process in MiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().split(' ').next()?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) / 1024
}

/// All routers report their round-trip times. Then ticks run until nothing changes.
fn reports(
    controller: &mut Controller,
    network: &Network,
    now: &mut Moment,
    ms_more: u64,
) -> (Times, Times) {
    let (mut times, mut ticks) = (Times::default(), Times::default());
    for round in 0..30 {
        for router in 0..network.routers {
            let generation = controller.generation_of(&name(router));
            let report = network.report(router, ms_more, generation);
            let told = times.take(|| controller.report(*now, &name(router), report));
            told.expect("a report");
        }
        for _ in 0..10 {
            *now = now.plus_ns(200 * NS_PER_MS);
            ticks.take(|| controller.tick(*now));
        }
        if round > 0
            && (0..network.routers).all(|router| {
                !controller.configuration(&name(router)).expect("one").routes.is_empty()
            })
        {
            break;
        }
    }
    (times, ticks)
}

fn main() {
    let (flags, numbers): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|word| word.starts_with("--"));
    let json = flags.iter().any(|flag| flag == "--json").then(serde_json::Map::new);
    let mut teller = Output { json };
    let mut numbers = numbers.iter().map(|number| number.parse::<usize>().expect("a number"));
    let routers = numbers.next().unwrap_or(100);
    let objects = numbers.next().unwrap_or(10_000);
    let planned = numbers.next().unwrap_or(objects);
    let mut rng = Rng::from_seed(1);
    let network = Network::new(routers, objects, &mut rng);
    let mut controller = Controller::new(ControllerConfig::default());
    let mut now = Moment::ZERO;
    let (told, ticks) = reports(&mut controller, &network, &mut now, 0);
    teller.times("report, at the beginning", told);
    teller.times("tick, at the beginning", ticks);
    teller.line(&format!(
        "{routers} routers, {} links: {} MiB",
        controller.links_count(),
        resident()
    ));

    let mut files = Times::default();
    for number in 0..objects {
        let file = File {
            name: object(number, routers),
            segments: SEGMENTS,
            size_bytes: SEGMENTS * 8000,
            packet_bytes: PACKET_BYTES,
            manifest: Vec::new(),
        };
        files.take(|| controller.add_file("producer p", file)).expect("a file");
    }
    teller.times("file", files);
    teller.line(&format!("{objects} files: {} MiB", resident()));

    let mut decisions = Times::default();
    let (mut count, mut made) = (0, 0);
    for number in 0..planned {
        let asking = name(rng.below(routers as u32 / 2) as usize * 2);
        let object = object(number, routers);
        let answer = decisions.take(|| controller.forward(&asking, &object)).expect("an answer");
        made += usize::from(answer.decision == Decision::Planned);
        controller.take_events();
        count += 1;
        if count == routers * 32 {
            // The limit is 64 plans a second for each router.
            count = 0;
            now = now.plus_ns(NS_PER_MS * 1000);
            (0..routers).for_each(|router| {
                let generation = controller.generation_of(&name(router));
                let report = network.report(router, 0, generation);
                controller.report(now, &name(router), report).expect("a report");
            });
            controller.tick(now);
        }
    }
    teller.times("decision", decisions);
    teller.line(&format!("{made} of {planned} planned: {} MiB", resident()));
    measure_holdings(&mut controller, &network, objects, now, &mut teller);
    measure_configurations(&controller, routers, &mut teller);
    let (told, ticks) = reports(&mut controller, &network, &mut now, 15);
    teller.times("report, of other links", told);
    teller.times("tick, with other links", ticks);
    teller.line(&format!("at the end: {} MiB", resident()));
    if let Some(json) = teller.json {
        println!("{}", serde_json::Value::Object(json));
    }
}

/// Each keeper reports its parts, and each router reports the complete objects on its disk.
fn measure_holdings(
    controller: &mut Controller,
    network: &Network,
    objects: usize,
    now: Moment,
    teller: &mut Output,
) {
    let mut held: Vec<Vec<Change>> = vec![Vec::new(); network.routers];
    let change = |object: Name, tier, first, last| {
        let (added, removed) = (Segments::range(first, last), Segments::default());
        Change { object, tier, added, removed }
    };
    for plan in controller.plans() {
        for part in &plan.parts {
            let router: usize = part.router["router".len()..].parse().expect("a number");
            let part = change(plan.object.clone(), Tier::Memory, part.first, part.last);
            held[router].push(part);
        }
    }
    for number in 0..objects {
        let router = number * 7 % network.routers;
        let object = object(number, network.routers);
        held[router].push(change(object, Tier::Disk, 0, SEGMENTS - 1));
    }
    let entries: usize = held.iter().map(Vec::len).sum();
    let mut updates = Times::default();
    for (router, changes) in held.into_iter().enumerate() {
        for (number, changes) in (1..).zip(changes.chunks(CHANGES_PER_UPDATE)) {
            let at = UpdateNumber { generation: 1, number };
            let update = Update { at, changes: changes.to_vec() };
            let taken = updates.take(|| controller.update(now, &name(router), update));
            taken.expect("an update");
        }
    }
    teller.times("update of 1,000 changes", updates);
    teller.line(&format!("{entries} holdings: {} MiB", resident()));
    for (bound, count) in controller.limit_counts().filter(|(_, count)| *count > 0) {
        teller.line(&format!("beyond bound {bound}: {count}"));
    }
}

fn measure_configurations(controller: &Controller, routers: usize, teller: &mut Output) {
    let mut configurations = Times::default();
    let (mut bytes, mut rules) = (0, 0);
    for router in 0..routers {
        let found = configurations.take(|| controller.configuration(&name(router)));
        let found = found.expect("a configuration");
        rules = rules.max(found.rules.len());
        bytes = bytes.max(serde_json::to_string(&found).expect("JSON").len());
    }
    teller.times("configuration", configurations);
    teller.line(&format!(
        "the longest configuration: {bytes} bytes of JSON, the most rules: {rules}"
    ));
}
