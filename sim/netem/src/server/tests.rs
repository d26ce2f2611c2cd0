use proptest::prelude::*;

use super::*;

fn at(ns: u64) -> Instant {
    Instant::from_ns(ns)
}

fn server<T>(parallelism: u32, capacity: u32) -> Server<T> {
    let service = ServiceTime::Constant { ns: 10 };
    Server::new(ServerConfig { service, parallelism, capacity }, 1)
}

#[test]
fn jobs_are_served_one_after_another() {
    let mut server = server(1, 3);
    assert_eq!(server.next_completion(), None);
    for job in 0..3 {
        assert_eq!(server.offer(at(job), job), Ok(()));
    }
    assert!(server.is_full());
    assert_eq!(server.offer(at(3), 3), Err(3));
    assert_eq!(server.next_completion(), Some(at(10)));
    assert_eq!(server.complete(at(9)), None);
    assert_eq!(server.complete(at(10)), Some(0));
    assert_eq!(server.complete(at(10)), None);
    assert_eq!((server.len(), server.waiting()), (2, 1));
    // Polled late: the third job started when the second ended.
    assert_eq!(server.complete_timed(at(35)), Some((at(20), 1)));
    assert_eq!(server.complete_timed(at(35)), Some((at(30), 2)));
    assert!(server.is_empty());
    assert_eq!(server.busy_ns(at(40)), 30);
}

#[test]
fn ended_jobs_free_their_slots() {
    let mut server = server(1, 1);
    assert_eq!(server.offer(at(0), 'a'), Ok(()));
    assert_eq!(server.offer(at(9), 'b'), Err('b'));
    assert_eq!(server.offer(at(10), 'b'), Ok(()));
    assert_eq!(server.complete_timed(at(99)), Some((at(10), 'a')));
    assert_eq!(server.complete_timed(at(99)), Some((at(20), 'b')));
}

#[test]
fn idle_server_takes_next_job() {
    let mut server = server(2, 10);
    for (job, service_ns) in [('a', 100), ('b', 30), ('c', 30), ('d', 10)] {
        assert_eq!(server.offer_with(at(0), job, service_ns), Ok(()));
    }
    let mut order = Vec::new();
    while let Some(next) = server.next_completion() {
        order.push((next.as_ns(), server.complete(next).unwrap()));
    }
    assert_eq!(order, [(30, 'b'), (60, 'c'), (70, 'd'), (100, 'a')]);
    assert_eq!(server.busy_ns(at(500)), 170);
}

#[test]
fn simultaneous_ends_keep_start_order() {
    let mut server = server(3, 10);
    for job in 0..9 {
        assert_eq!(server.offer(at(0), job), Ok(()));
    }
    let out: Vec<_> = std::iter::from_fn(|| server.complete(at(30))).collect();
    assert_eq!(out, (0..9).collect::<Vec<_>>());
}

#[test]
fn stall_delays_all_jobs() {
    let mut server = server(1, 10);
    assert_eq!(server.offer(at(0), 'a'), Ok(()));
    assert_eq!(server.offer(at(0), 'b'), Ok(()));
    server.stall(at(4), at(104));
    assert_eq!(server.busy_ns(at(50)), 4);
    // Within the first stall, so only 20 longer.
    server.stall(at(60), at(124));
    server.stall(at(70), at(90));
    assert_eq!(server.busy_ns(at(126)), 6);
    assert_eq!(server.complete_timed(at(200)), Some((at(130), 'a')));
    assert_eq!(server.complete_timed(at(200)), Some((at(140), 'b')));
    // A job that arrives during a stall waits for its end.
    server.stall(at(300), at(400));
    assert_eq!(server.offer(at(310), 'c'), Ok(()));
    assert_eq!(server.next_completion(), Some(at(410)));
    assert_eq!(server.busy_ns(at(405)), 25);
}

#[test]
fn clearing_gives_every_job_back() {
    let mut server = server(1, 10);
    for job in 0..4 {
        assert_eq!(server.offer(at(0), job), Ok(()));
    }
    server.busy_ns(at(10));
    let mut jobs: Vec<_> = server.clear().collect();
    jobs.sort_unstable();
    assert_eq!(jobs, [0, 1, 2, 3]);
    assert!(server.is_empty());
    assert_eq!(server.next_completion(), None);
}

/// Steady-state probabilities of 0 to K jobs in M/M/c/K.
fn closed_form(load: f64, servers: u32, capacity: u32) -> Vec<f64> {
    let mut weights = vec![1.0];
    for jobs in 1..=capacity {
        let last: f64 = weights[weights.len() - 1];
        weights.push(last * load / f64::from(jobs.min(servers)));
    }
    let sum: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / sum).collect()
}

struct Measured {
    blocking: f64,
    jobs: f64,
    utilisation: f64,
}

/// One run with Poisson arrivals, after a warm-up.
fn run(load: f64, servers: u32, capacity: u32, seed: u64) -> Measured {
    const MEAN_NS: u64 = 100_000;
    const WARM_UP: u64 = 2_000;
    const ARRIVALS: u64 = 40_000;
    let service = ServiceTime::Exponential { mean_ns: MEAN_NS };
    let mut server = Server::new(ServerConfig { service, parallelism: servers, capacity }, seed);
    let gaps = ServiceTime::Exponential { mean_ns: (MEAN_NS as f64 / load) as u64 };
    let mut rng = random::stream(seed, 99);
    let (mut now_ns, mut start_ns, mut start_busy_ns) = (0, 0, 0);
    let (mut blocked, mut job_ns) = (0u64, 0u64);
    for arrival in 0..WARM_UP + ARRIVALS {
        let next_ns = now_ns + gaps.sample(&mut rng);
        let mut since_ns = now_ns;
        while let Some(end) = server.next_completion().filter(|end| end.as_ns() <= next_ns) {
            job_ns += (end.as_ns() - since_ns) * server.len() as u64;
            since_ns = end.as_ns();
            assert!(server.complete(end).is_some());
        }
        job_ns += (next_ns - since_ns) * server.len() as u64;
        now_ns = next_ns;
        if arrival == WARM_UP {
            (blocked, job_ns, start_ns) = (0, 0, now_ns);
            start_busy_ns = server.busy_ns(at(now_ns));
        }
        blocked += u64::from(server.offer(at(now_ns), ()).is_err());
    }
    let time_ns = (now_ns - start_ns) as f64;
    let busy_ns = (server.busy_ns(at(now_ns)) - start_busy_ns) as f64;
    Measured {
        blocking: blocked as f64 / ARRIVALS as f64,
        jobs: job_ns as f64 / time_ns,
        utilisation: busy_ns / time_ns / f64::from(servers),
    }
}

/// Student's t for 99.9 % and 19 degrees of freedom.
const T_19: f64 = 3.883;

fn assert_within(what: &str, values: &[f64], expected: f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let half_width = T_19 * (squares / (count - 1.0) / count).sqrt();
    assert!(
        (mean - expected).abs() <= half_width,
        "{what}: {mean} +- {half_width}, closed form {expected}"
    );
    // A very wide interval would prove nothing.
    assert!(half_width < 0.08 * expected.max(0.01), "{what}: {mean} +- {half_width}");
}

#[test]
fn m_m_c_k_agrees_with_its_closed_form() {
    for (load, servers, capacity) in
        [(0.8, 1, 10), (1.0, 1, 5), (1.2, 1, 20), (0.95, 1, 1), (3.0, 4, 4), (3.6, 4, 12)]
    {
        let states = closed_form(load, servers, capacity);
        let blocking = states[states.len() - 1];
        let jobs: f64 = states.iter().zip(0u32..).map(|(p, jobs)| p * f64::from(jobs)).sum();
        let utilisation = load * (1.0 - blocking) / f64::from(servers);
        let runs: Vec<_> = (0..20).map(|seed| run(load, servers, capacity, seed)).collect();
        let case = format!("load {load}, {servers} servers, K {capacity}");
        let all = |value: fn(&Measured) -> f64| runs.iter().map(value).collect::<Vec<_>>();
        assert_within(&format!("blocking, {case}"), &all(|run| run.blocking), blocking);
        assert_within(&format!("jobs, {case}"), &all(|run| run.jobs), jobs);
        assert_within(&format!("utilisation, {case}"), &all(|run| run.utilisation), utilisation);
    }
}

#[test]
fn configurations_are_read_and_checked() {
    let config: ServerConfig =
        toml::from_str("capacity = 2000\nservice = { exponential = { mean = \"4000/s\" } }")
            .unwrap();
    assert_eq!(config.service, ServiceTime::Exponential { mean_ns: 250_000 });
    assert_eq!((config.parallelism, config.capacity), (1, 2000));
    assert_eq!(config.check(), Ok(()));
    let none = ServerConfig { parallelism: 0, ..config };
    assert_eq!(none.check(), Err(ConfigError::Zero("parallelism")));
}

proptest! {
    /// A caller that polls late sees the same times as one that polls at once. No job is lost, and
    /// the limit holds.
    #[test]
    fn late_polling_changes_no_times(
        jobs in prop::collection::vec((0u64..50, 0u64..100, any::<bool>()), 1..200),
        parallelism in 1u32..5,
        capacity in 1u32..12,
        stall in prop::option::of((0u64..2_000, 0u64..300)),
    ) {
        let mut prompt = server(parallelism, capacity);
        let mut late = server(parallelism, capacity);
        let (mut from_prompt, mut from_late) = (Vec::new(), Vec::new());
        let (mut now_ns, mut accepted) = (0, 0);
        let mut stall = stall;
        for (id, (gap_ns, service_ns, looks)) in jobs.into_iter().enumerate() {
            now_ns += gap_ns;
            while let Some(next) = prompt.next_completion().filter(|next| next.as_ns() <= now_ns) {
                from_prompt.push(prompt.complete_timed(next).unwrap());
            }
            if let Some((_, length_ns)) = stall.take_if(|stall| stall.0 <= now_ns) {
                prompt.stall(at(now_ns), at(now_ns + length_ns));
                late.stall(at(now_ns), at(now_ns + length_ns));
            }
            let taken = prompt.offer_with(at(now_ns), id, service_ns);
            prop_assert_eq!(taken, late.offer_with(at(now_ns), id, service_ns));
            prop_assert!(prompt.len() <= capacity as usize);
            accepted += usize::from(taken.is_ok());
            if looks {
                from_late.extend(late.complete_timed(at(now_ns)));
            }
            prop_assert_eq!(prompt.busy_ns(at(now_ns)), late.busy_ns(at(now_ns)));
        }
        let end = at(1 << 40);
        from_prompt.extend(std::iter::from_fn(|| prompt.complete_timed(end)));
        from_late.extend(std::iter::from_fn(|| late.complete_timed(end)));
        prop_assert_eq!(&from_prompt, &from_late);
        prop_assert_eq!(from_prompt.len(), accepted);
        prop_assert!(from_prompt.is_sorted_by_key(|&(ended, _)| ended));
    }
}
