use super::*;

fn model(queues: usize, threshold: usize, load: f64) -> Model {
    Model::new(queues, threshold, load).unwrap()
}

/// Erlang's loss formula by its stable recursion.
fn erlang(servers: usize, load: f64) -> Vec<f64> {
    let mut loss = vec![1.0];
    for count in 1..=servers {
        let last = load * loss[count - 1];
        loss.push(last / (count as f64 + last));
    }
    loss
}

/// The largest difference of any figure of two solutions with the same shape.
fn distance(one: &Solution, other: &Solution) -> f64 {
    one.distance_by(other, |one, two| (one - two).abs())
}

#[test]
fn chain_and_renewal_agree_to_rounding() {
    for (queues, threshold) in [(1, 1), (1, 9), (2, 1), (2, 2), (3, 3), (4, 4), (5, 2), (5, 4)] {
        for load in [0.1, 0.7, 1.0, 1.9, 3.3, 5.0, 9.0] {
            let model = model(queues, threshold, load);
            let chain = chain(&model, &ChainOptions::default()).unwrap();
            let renewal = renewal(&model).unwrap();
            let distance = distance(&chain.solution, &renewal.solution);
            assert!(distance < 2e-12, "{model:?}: {distance:e}");
            assert!(chain.residual < 4e-14, "{model:?}: {:e}", chain.residual);
        }
    }
}

/// `mm1-drop-x`, one queue with a dropping threshold (paper nb-cache, Fig. 6): M/M/1/K in closed
/// form, `p_n = load^n / (1 + load + ... + load^K)`.
fn mm1_drop(threshold: usize, load: f64) -> Result<Solution, NQueueError> {
    let model = Model::new(1, threshold, load)?;
    // Weights relative to the likelier end, so that none overflows.
    let last = model.threshold as i32;
    let weight = |packets: i32| {
        if load <= 1.0 { load.powi(packets) } else { load.powi(packets - last) }
    };
    let (mut sum, mut packets) = (0.0, 0.0);
    for count in 0..=last {
        sum += weight(count);
        packets += f64::from(count) * weight(count);
    }
    let blocking = weight(last) / sum;
    Ok(Solution::from_queues(vec![QueueSolution {
        mean_packets: packets / sum,
        utilisation: load * (1.0 - blocking),
        blocking,
    }]))
}

#[test]
fn one_queue_matches_closed_form() {
    for threshold in [1, 2, 10, 64, 300] {
        for load in [0.01, 0.5, 1.0, 1.2, 20.0, 1e4] {
            let closed = mm1_drop(threshold, load).unwrap();
            let renewal = renewal(&model(1, threshold, load)).unwrap();
            let distance = distance(&closed, &renewal.solution) / threshold as f64;
            assert!(distance < 1e-11, "{threshold} {load}: {distance:e}");
        }
    }
}

#[test]
fn queues_of_one_packet_are_erlangs_servers() {
    for (queues, load) in [(10, 4.0), (100, 90.0), (1000, 1000.0), (1000, 1200.0), (1000, 100.0)] {
        let loss = erlang(queues, load);
        let solution = renewal(&model(queues, 1, load)).unwrap().solution;
        for (index, queue) in solution.queues.iter().enumerate() {
            if loss[index + 1] < 1e-290 {
                break; // The reference is inaccurate here.
            }
            let blocking = loss[index + 1] / loss[index];
            let error = (queue.blocking / blocking - 1.0).abs();
            assert!(error < 1e-10, "queue {index} of {queues}: {error:e}");
        }
        assert!((solution.loss - loss[queues]).abs() < 1e-12);
        assert!((solution.packets - load * (1.0 - loss[queues])).abs() < 1e-9);
    }
}

/// Loss, packets and the last queue's blocking from power series at integer points, computed with
/// 60 digits in interval arithmetic (python-flint).
#[test]
fn agrees_with_sixty_digits() {
    let cases = [
        (3, 64, 2.7, 7.647047757496623e-05, 132.09478391175824, 0.0002949575558462655),
        (4, 40, 4.0, 0.02128305998242267, 136.75393142160067, 0.0851320754674214),
        (12, 8, 11.0, 0.013652920666197325, 78.0729015594443, 0.296799855121149),
        (20, 5, 18.0, 0.011022170874857016, 81.11446170026883, 0.43956458221711453),
        (25, 4, 30.0, 0.17164301250867509, 95.45741538839036, 0.8453131014147514),
    ];
    for (queues, threshold, load, loss, packets, blocking) in cases {
        let result = renewal(&model(queues, threshold, load)).unwrap();
        let last = result.solution.queues[queues - 1].blocking;
        assert!((result.solution.loss / loss - 1.0).abs() < 1e-11, "{:?}", result.solution.loss);
        assert!((result.solution.packets - packets).abs() < 1e-10, "{:?}", result.solution.packets);
        assert!((last / blocking - 1.0).abs() < 1e-11, "{last:?}");
        assert!(result.error_estimate < 1e-8);
    }
}

/// `renewal` itself asserts conservation. The estimate comes from samples further apart.
#[test]
fn a_hundred_deep_queues_at_any_load() {
    for per_server in [0.1, 0.5, 0.9, 1.0, 1.2] {
        let result = renewal(&model(100, 64, per_server * 100.0)).unwrap();
        assert!(result.error_estimate < 1e-8, "{per_server}: {:e}", result.error_estimate);
        if per_server > 1.0 {
            // No server is ever idle, so the loss is the load beyond the capacity of all servers.
            assert!((result.solution.loss * 120.0 - 20.0).abs() < 1e-9);
        }
    }
}

#[test]
#[ignore = "takes a minute on a busy machine; prints the time of 1,000 queues"]
fn a_thousand_deep_queues_at_any_load() {
    for per_server in [0.1, 0.3, 0.5, 0.9, 0.99, 1.0, 1.01, 1.2] {
        let start = std::time::Instant::now();
        let result = renewal(&model(1000, 64, per_server * 1000.0)).unwrap();
        println!(
            "load {per_server}: estimate {:.1e}, loss {:e}, packets {}, {:?}",
            result.error_estimate,
            result.solution.loss,
            result.solution.packets,
            start.elapsed()
        );
        assert!(result.error_estimate < 1e-8);
    }
}

#[test]
#[ignore = "takes a minute on a busy machine; prints the time of a million states"]
fn a_million_states() {
    for load in [0.5, 4.5, 9.0] {
        let start = std::time::Instant::now();
        let model = model(6, 9, load);
        let result = chain(&model, &ChainOptions::default()).unwrap();
        let distance = distance(&result.solution, &renewal(&model).unwrap().solution);
        println!(
            "load {load}: {} sweeps, residual {:.1e}, {distance:.1e} from renewal, {:?}",
            result.sweeps,
            result.residual,
            start.elapsed()
        );
        assert!(distance < 1e-11);
    }
}

/// The paper's matrix (Eq. 15) from the diagram, with the first equation replaced by Eq. 12, solved
/// by elimination.
fn solve_by_matrix(model: &Model) -> Vec<(Vec<usize>, f64)> {
    let diagram = diagram(model);
    let count = diagram.states.len();
    let mut rows = vec![vec![0.0; count + 1]; count];
    for step in &diagram.moves {
        let rate = match step.kind {
            MoveKind::Arrival => model.load(),
            MoveKind::Service => 1.0,
        };
        rows[step.from][step.from] += rate;
        rows[step.to][step.from] -= rate;
    }
    rows[0] = vec![1.0; count + 1];
    for column in 0..count {
        let pivot = (column..count)
            .max_by(|one, two| rows[*one][column].abs().total_cmp(&rows[*two][column].abs()))
            .unwrap();
        rows.swap(column, pivot);
        let (above, below) = rows.split_at_mut(column + 1);
        let pivot = &above[column];
        for row in below {
            let factor = row[column] / pivot[column];
            row.iter_mut().zip(pivot).for_each(|(value, pivot)| *value -= factor * pivot);
        }
    }
    let mut shares = vec![0.0; count];
    for row in (0..count).rev() {
        let known: f64 = (row + 1..count).map(|at| rows[row][at] * shares[at]).sum();
        shares[row] = (rows[row][count] - known) / rows[row][row];
    }
    diagram.states.into_iter().zip(shares).collect()
}

#[test]
fn the_papers_matrix_gives_the_same() {
    for (queues, threshold, load) in [(2, 1, 0.8), (2, 2, 3.0), (3, 2, 1.5), (4, 1, 9.0)] {
        let model = model(queues, threshold, load);
        let states = solve_by_matrix(&model);
        let mean = |figure: &dyn Fn(&[usize]) -> f64| -> f64 {
            states.iter().map(|(lengths, share)| share * figure(lengths)).sum()
        };
        let packets = mean(&|lengths| lengths.iter().sum::<usize>() as f64);
        let busy = |lengths: &[usize]| lengths.iter().filter(|length| **length > 0).count();
        let utilisation = mean(&|lengths| busy(lengths) as f64 / queues as f64);
        let solution = chain(&model, &ChainOptions::default()).unwrap().solution;
        assert!((solution.packets - packets).abs() < 1e-12, "{model:?}");
        assert!((solution.utilisation - utilisation).abs() < 1e-12, "{model:?}");
        assert!((solution.loss - states[states.len() - 1].1).abs() < 1e-13, "{model:?}");
    }
}

#[test]
fn diagrams_are_those_of_figure_8() {
    let diagram = diagram(&model(2, 1, 0.0));
    let moves: Vec<String> = diagram
        .moves
        .iter()
        .map(|step| {
            let (from, to) = (diagram.label(step.from), diagram.label(step.to));
            format!("{from}-{to}{}", if step.kind == MoveKind::Arrival { 'a' } else { 's' })
        })
        .collect();
    let expected = ["00-10a", "01-11a", "01-00s", "10-11a", "10-00s", "11-01s", "11-10s"];
    assert_eq!(moves, expected);
    let larger = super::diagram(&model(2, 2, 0.0));
    // 8 arrivals, one from each state except 22; 12 services, 6 for each queue.
    assert_eq!((larger.states.len(), larger.moves.len()), (9, 20));
    let dot = larger.to_dot("bypass-2*3");
    assert!(dot.starts_with("digraph \"bypass-2*3\" {"));
    assert_eq!(dot.matches("label = \"μ\"").count(), 12);
}

#[test]
fn simulation_agrees_with_the_renewal_method() {
    let options = SimulateOptions { replications: 10, arrivals: 100_000, ..Default::default() };
    for (queues, threshold, load) in [(1, 10, 0.9), (5, 2, 4.0), (200, 8, 190.0)] {
        let model = model(queues, threshold, load);
        let exact = renewal(&model).unwrap().solution;
        let result = simulate(&model, &options).unwrap();
        // Twice the half-width is about 4.5 standard errors; a little is added for events that
        // never occurred.
        let close =
            |found: f64, exact: f64, width: f64| (found - exact).abs() <= 2.0 * width + 2e-4;
        let (found, width) = (&result.solution, &result.half_widths);
        assert!(close(found.loss, exact.loss, width.loss), "{model:?}");
        assert!(close(found.packets, exact.packets, width.packets), "{model:?}");
        assert!(close(found.utilisation, exact.utilisation, width.utilisation), "{model:?}");
        let mut beyond = 0;
        for index in 0..queues {
            let (found, exact) = (found.queues[index], exact.queues[index]);
            let packets = width.queues[index].mean_packets;
            beyond += usize::from(!close(found.mean_packets, exact.mean_packets, packets));
            beyond += usize::from(!close(
                found.utilisation,
                exact.utilisation,
                width.queues[index].utilisation,
            ));
        }
        assert!(beyond <= queues / 50, "{model:?}: {beyond} figures of queues are off");
    }
}

#[test]
fn same_seed_gives_same_result() {
    let model = model(3, 4, 2.5);
    let options = SimulateOptions { replications: 3, arrivals: 2_000, ..Default::default() };
    let one = simulate(&model, &options).unwrap();
    assert_eq!(one, simulate(&model, &options).unwrap());
    assert_ne!(one, simulate(&model, &SimulateOptions { seed: 2, ..options }).unwrap());
}

#[test]
fn nothing_arrives() {
    let model = model(3, 2, 0.0);
    let options = SimulateOptions { arrivals: 10, ..Default::default() };
    let solutions = [
        renewal(&model).unwrap().solution,
        chain(&model, &ChainOptions::default()).unwrap().solution,
        simulate(&model, &options).unwrap().solution,
    ];
    for solution in solutions {
        assert_eq!((solution.loss, solution.packets, solution.utilisation), (0.0, 0.0, 0.0));
    }
}

#[test]
fn json_has_documented_fields() {
    let solution = mm1_drop(1, 1.0).unwrap();
    let text = serde_json::to_string(&solution).unwrap();
    let queue = r#"{"mean_packets":0.5,"utilisation":0.5,"blocking":0.5}"#;
    let expected = format!(r#"{{"loss":0.5,"packets":0.5,"utilisation":0.5,"queues":[{queue}]}}"#);
    assert_eq!(text, expected);
}

#[test]
fn invalid_models_are_rejected() {
    assert_eq!(Model::new(0, 1, 1.0), Err(NQueueError::Queues(0)));
    assert_eq!(Model::new(1, 0, 1.0), Err(NQueueError::Threshold(0)));
    assert_eq!(Model::new(1, 1, -0.1), Err(NQueueError::Load(-0.1)));
    assert!(Model::new(1, 1, f64::NAN).is_err());
    let many = chain(&model(10, 9, 1.0), &ChainOptions::default()).unwrap_err().to_string();
    assert!(many.contains("10^10 = 10000000000 states"), "{many}");
    assert!(many.contains("use the renewal method"), "{many}");
    let more = chain(&model(1000, 64, 1.0), &ChainOptions::default()).unwrap_err().to_string();
    assert!(more.contains("about 1e1813 states"), "{more}");
    let deep = renewal(&model(1, 5000, 1.0)).unwrap_err().to_string();
    assert!(deep.contains("at most 1024"), "{deep}");
    let once = SimulateOptions { replications: 1, ..Default::default() };
    assert!(matches!(simulate(&model(1, 1, 1.0), &once), Err(NQueueError::Replications { .. })));
    let sure = SimulateOptions { confidence: 1.0, ..Default::default() };
    assert_eq!(simulate(&model(1, 1, 1.0), &sure), Err(NQueueError::Confidence(1.0)));
    let few = ChainOptions { sweeps_max: 1, ..Default::default() };
    let stopped = chain(&model(3, 3, 2.0), &few);
    assert!(matches!(stopped, Err(NQueueError::Convergence { sweeps: 1, .. })), "{stopped:?}");
}

/// At high loads `rate * (1 - blocking)` cancelled: utilisations exceeded 1, and the code panicked.
#[test]
fn the_highest_loads_have_a_solution_or_an_error() {
    for (queues, threshold) in [(1, 1), (1, 64), (3, 2), (20, 8)] {
        for exponent in 0..13 {
            let model = Model::new(queues, threshold, 10f64.powi(exponent)).unwrap();
            let Ok(RenewalSolution { solution, .. }) = renewal(&model) else { continue };
            for queue in &solution.queues {
                assert!((0.0..=1.0).contains(&queue.utilisation), "{model:?}: {queue:?}");
                assert!((0.0..=1.0).contains(&queue.blocking), "{model:?}: {queue:?}");
            }
        }
    }
}
