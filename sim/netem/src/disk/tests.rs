use super::*;

fn at(ns: u64) -> Instant {
    Instant::from_ns(ns)
}

fn op(id: u64, kind: DiskOpKind, bytes: u32) -> DiskOp {
    DiskOp { id, kind, bytes }
}

fn config() -> DiskConfig {
    DiskConfig {
        read: ServiceTime::Constant { ns: 100 },
        write: ServiceTime::Constant { ns: 1_000 },
        read_ns_per_kib: 10,
        write_ns_per_kib: 20,
        ..DiskConfig::default()
    }
}

#[test]
fn reads_and_writes_take_configured_time() {
    let mut disk = DiskModel::new(config(), 1);
    disk.submit(at(0), op(1, DiskOpKind::Read, 8192)).unwrap();
    disk.submit(at(0), op(2, DiskOpKind::Write, 512)).unwrap();
    assert_eq!(disk.next_completion(), Some(at(180)));
    assert_eq!(disk.complete(at(179)), None);
    let first = disk.complete(at(5_000)).unwrap();
    let second = disk.complete(at(5_000)).unwrap();
    assert_eq!((first.id, first.at, first.result), (1, at(180), Ok(())));
    assert_eq!((second.id, second.at, second.op.kind), (2, at(1_190), DiskOpKind::Write));
    assert_eq!(disk.server.busy_ns(at(5_000)), 1_190);
}

#[test]
fn queue_bound_excludes_active_operation() {
    let mut disk = DiskModel::new(DiskConfig { queue_max: 3, parallelism: 2, ..config() }, 1);
    for id in 0..5 {
        disk.submit(at(0), op(id, DiskOpKind::Read, 0)).unwrap();
    }
    let refused = op(5, DiskOpKind::Read, 0);
    assert_eq!(disk.submit(at(99), refused), Err(DiskFull(refused)));
    assert_eq!((disk.server.len(), disk.server.waiting(), disk.server.is_full()), (5, 3, true));
    assert_eq!(disk.submit(at(100), refused), Ok(()));
}

#[test]
fn errors_have_configured_rate_and_time() {
    let count = 50_000u64;
    let mut disk = DiskModel::new(DiskConfig { error_probability: 0.1, ..config() }, 3);
    let mut errors = 0;
    for id in 0..count {
        let now = at(id * 1_000_000);
        disk.submit(now, op(id, DiskOpKind::Read, 0)).unwrap();
        let done = disk.complete(now.plus_ns(100)).unwrap();
        assert_eq!(done.at, now.plus_ns(100));
        errors += u64::from(done.result == Err(DiskError));
    }
    let share = errors as f64 / count as f64;
    assert!((share - 0.1).abs() < 5.0 * (0.09 / count as f64).sqrt(), "{share}");
}

#[test]
fn stalled_disk_resumes() {
    let mut disk = DiskModel::new(config(), 1);
    disk.submit(at(0), op(1, DiskOpKind::Read, 0)).unwrap();
    disk.stall(at(50), at(1_050));
    disk.submit(at(60), op(2, DiskOpKind::Read, 0)).unwrap();
    assert_eq!(disk.complete(at(1_099)), None);
    assert_eq!(disk.complete(at(9_999)).unwrap().at, at(1_100));
    assert_eq!(disk.complete(at(9_999)).unwrap().at, at(1_200));
    assert!(disk.server.is_empty());
}

#[test]
fn same_seed_gives_same_result() {
    let run = |seed| {
        let read = ServiceTime::Exponential { mean_ns: 1_000 };
        let mut disk =
            DiskModel::new(DiskConfig { read, error_probability: 0.2, ..config() }, seed);
        for id in 0..500 {
            disk.submit(at(id * 900), op(id, DiskOpKind::Read, 100)).unwrap();
        }
        std::iter::from_fn(|| disk.complete(at(1 << 40))).collect::<Vec<_>>()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn configurations_are_read_and_checked() {
    let text =
        "queue_max = 100\nread = { exponential = { mean = \"414/s\" } }\nread_ns_per_kib = 40";
    let config: DiskConfig = toml::from_str(text).unwrap();
    assert_eq!(config.read, ServiceTime::Exponential { mean_ns: 2_415_459 });
    assert_eq!((config.parallelism, config.queue_max), (1, 100));
    assert_eq!(config.check(), Ok(()));
    assert!(toml::from_str::<DiskConfig>("queue = 4").is_err());
    let mut bad = config.clone();
    bad.error_probability = 1.5;
    assert!(matches!(bad.check(), Err(ConfigError::Probability { .. })));
    bad = DiskConfig { parallelism: 0, ..config };
    assert_eq!(bad.check(), Err(ConfigError::Zero("parallelism")));
}

#[test]
fn crash_discards_queued_operations() {
    let mut disk = DiskModel::new(DiskConfig { parallelism: 2, ..config() }, 1);
    for id in [7, 3, 5] {
        disk.submit(at(0), op(id, DiskOpKind::Read, 0)).unwrap();
    }
    let ids: Vec<u64> = disk.clear().iter().map(|op| op.id).collect();
    assert_eq!(ids, [3, 5, 7]);
    assert_eq!((disk.server.len(), disk.next_completion()), (0, None));
    disk.submit(at(500), op(9, DiskOpKind::Read, 0)).unwrap();
    assert_eq!(disk.next_completion(), Some(at(600)));
}

#[test]
fn errors_begin_and_end() {
    let mut disk = DiskModel::new(config(), 1);
    let fails = |disk: &mut DiskModel, now| {
        disk.submit(at(now), op(now, DiskOpKind::Read, 0)).unwrap();
        disk.complete(at(now + 100)).unwrap().result.is_err()
    };
    assert!(!fails(&mut disk, 0));
    disk.set_error_probability(1.0);
    assert!(fails(&mut disk, 200));
    disk.set_error_probability(0.0);
    assert!(!fails(&mut disk, 400));
}
