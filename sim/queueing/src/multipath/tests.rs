use super::*;

const MS: u64 = 1_000_000;

fn path(latency_ms: u64, pipeline_depth: u32, rate_bps: u64, segments: u64) -> Path {
    Path { latency_ns: latency_ms * MS, pipeline_depth, rate_bps, segments }
}

fn run(paths: &[Path], options: SimulationOptions) -> Simulation {
    let simulation = simulate(paths, &options).unwrap();
    let segments: u64 = paths.iter().map(|path| path.segments).sum();
    assert_eq!(simulation.paths.iter().map(|path| path.segments).sum::<u64>(), segments);
    simulation
}

#[test]
fn the_papers_example() {
    // 100 segments of 10 ms each over one path, and over three paths with a pipeline of 5.
    let paths = [path(10, 5, 1_000_000_000, 34), path(10, 5, 1_000_000_000, 33)];
    let paths = [paths[0], paths[1], path(10, 5, 1_000_000_000, 33)];
    let latencies = latencies(&paths, 1024).unwrap();
    assert_eq!(latencies.default_ns, 1000.0 * MS as f64);
    assert_eq!(latencies.pipelined_ns, 200.0 * MS as f64);
    assert!((latencies.multipath_ns - 200.0 / 3.0 * MS as f64).abs() < 1.0);
}

#[test]
fn stop_and_wait_matches_the_formula() {
    let paths = [path(10, 1, 10_000_000, 100)];
    let simulation = run(&paths, SimulationOptions::default());
    assert_eq!(simulation.total_ns as f64, latencies(&paths, 1024).unwrap().default_ns);
    assert_eq!(simulation.paths[0].mean_latency_ns, 10.0 * MS as f64);
    assert_eq!(simulation.paths[0].queue_packets, 1);
}

#[test]
fn pipeline_gain_ends_at_bandwidth_delay() {
    // 1250 bytes at 10 Mbit/s take 1 ms, so ten packets fill a path of 10 ms.
    let options = SimulationOptions { packet_bytes: 1250, ..SimulationOptions::default() };
    let total = |depth| {
        let paths = [path(10, depth, 10_000_000, 1000)];
        let limited = latencies(&paths, 1250).unwrap();
        (run(&paths, options), limited)
    };
    let (five, formula) = total(5);
    let error = five.total_ns as f64 / formula.pipelined_ns - 1.0;
    assert!((0.0..0.01).contains(&error), "{error}");
    assert!((five.total_ns as f64 / formula.limited_ns - 1.0).abs() < 0.01);
    let (forty, formula) = total(40);
    // The formula gives 250 ms. The link needs 1 s, and packets wait three times the latency.
    assert_eq!(formula.pipelined_ns, 250.0 * MS as f64);
    assert_eq!(forty.total_ns, 1009 * MS);
    assert_eq!(forty.total_ns as f64, formula.limited_ns);
    assert!(forty.paths[0].mean_latency_ns > 39.0 * MS as f64);
    assert_eq!(forty.paths[0].queue_packets, 40);
}

#[test]
fn short_queue_drops_from_a_deep_pipeline() {
    let deep = [path(10, 40, 10_000_000, 1000)];
    let options = SimulationOptions { packet_bytes: 1250, ..SimulationOptions::default() };
    let long = run(&deep, options);
    let short = run(&deep, SimulationOptions { queue_packets_max: 8, ..options });
    assert_eq!((long.paths[0].drops, long.paths[0].retransmissions), (0, 0));
    assert!(short.paths[0].drops > 0);
    assert_eq!(short.paths[0].drops, short.paths[0].retransmissions);
    assert!(short.total_ns > long.total_ns);
}

#[test]
fn unequal_paths_wait_for_the_slowest() {
    let paths = [path(10, 4, 1_000_000_000, 500), path(100, 4, 1_000_000_000, 500)];
    let formulas = latencies(&paths, 1024).unwrap();
    let simulation = run(&paths, SimulationOptions::default());
    // The formula takes the mean of both paths; the transfer ends with the later one.
    let factor = simulation.total_ns as f64 / formulas.multipath_ns;
    assert!((1.75..1.85).contains(&factor), "{factor}");
    assert!((simulation.total_ns as f64 / formulas.limited_ns - 1.0).abs() < 0.01);
    let mut divided = paths;
    divide(&mut divided, 1000, 1024, Split::Proportional);
    assert_eq!(divided.iter().map(|path| path.segments).sum::<u64>(), 1000);
    assert_eq!(divided[0].segments, 909);
    let better = run(&divided, SimulationOptions::default());
    assert!(better.total_ns * 5 < simulation.total_ns, "{better:?}");
    let dynamic = run(&paths, SimulationOptions { dynamic: true, ..SimulationOptions::default() });
    assert!(dynamic.total_ns < better.total_ns * 105 / 100, "{dynamic:?}");
    assert!(dynamic.paths[0].segments > 8 * dynamic.paths[1].segments);
}

#[test]
fn paths_that_share_a_link_share_its_rate() {
    let paths = [path(10, 10, 100_000_000, 500); 3];
    let options = SimulationOptions { packet_bytes: 1250, ..SimulationOptions::default() };
    let apart = run(&paths, options);
    let shared = run(&paths, SimulationOptions { shared_rate_bps: Some(20_000_000), ..options });
    // 1500 packets of 0.5 ms each, for any number of paths.
    assert!(shared.total_ns > 750 * MS && shared.total_ns < 770 * MS, "{}", shared.total_ns);
    assert!(apart.total_ns < 520 * MS);
    assert!(shared.shared_queue_packets > 5);
}

#[test]
fn result_is_deterministic() {
    let paths = [path(10, 40, 10_000_000, 300), path(25, 7, 4_000_000, 200)];
    let options =
        SimulationOptions { queue_packets_max: 5, dynamic: true, ..SimulationOptions::default() };
    assert_eq!(run(&paths, options), run(&paths, options));
}

#[test]
fn invalid_transfers_are_rejected() {
    let fine = path(10, 1, 1_000_000, 1);
    let options = SimulationOptions::default();
    let refused = |path: Path| simulate(&[fine, path], &options).unwrap_err();
    assert_eq!(simulate(&[], &options), Err(MultipathError::NoPaths));
    assert_eq!(refused(Path { pipeline_depth: 0, ..fine }), MultipathError::Depth { path: 2 });
    assert_eq!(refused(Path { rate_bps: 0, ..fine }), MultipathError::Rate { path: 2 });
    let slow = Path { rate_bps: 100_000, ..fine };
    assert!(matches!(refused(slow), MultipathError::Latency { path: 2, .. }));
    let none = Path { segments: 0, ..fine };
    assert_eq!(latencies(&[none], 1024), Err(MultipathError::Segments(0)));
    assert_eq!(latencies(&[fine], 0), Err(MultipathError::PacketBytes));
    let queue = SimulationOptions { queue_packets_max: 0, ..options };
    assert_eq!(simulate(&[fine], &queue), Err(MultipathError::Queue));
    let shared = SimulationOptions { shared_rate_bps: Some(0), ..options };
    assert_eq!(simulate(&[fine], &shared), Err(MultipathError::SharedRate));
}
