use super::*;

fn model(queues: usize, threshold: usize, load: f64) -> Model {
    Model::new(queues, threshold, load).unwrap()
}

/// Erlang's loss formula, whose recursion is stable.
fn erlang(servers: usize, load: f64) -> Vec<f64> {
    let mut loss = vec![1.0];
    for count in 1..=servers {
        let last = load * loss[count - 1];
        loss.push(last / (count as f64 + last));
    }
    loss
}

#[test]
fn chain_and_renewal_agree_to_rounding() {
    for (queues, threshold) in [(1, 1), (1, 9), (2, 1), (2, 2), (3, 3), (4, 4), (5, 2), (5, 4)] {
        for load in [0.1, 0.7, 1.0, 1.9, 3.3, 5.0, 9.0] {
            let model = model(queues, threshold, load);
            let chain = chain(&model, &ChainOptions::default()).unwrap();
            let renewal = renewal(&model).unwrap();
            let distance = chain.solution.distance(&renewal.solution);
            assert!(distance < 2e-12, "{model:?}: {distance:e}");
            assert!(chain.residual < 4e-14, "{model:?}: {:e}", chain.residual);
        }
    }
}

#[test]
fn one_queue_is_the_closed_form() {
    for threshold in [1, 2, 10, 64, 300] {
        for load in [0.01, 0.5, 1.0, 1.2, 20.0, 1e4] {
            let closed = mm1_drop(threshold, load).unwrap();
            let renewal = renewal(&model(1, threshold, load)).unwrap();
            let distance = closed.distance(&renewal.solution) / threshold as f64;
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
                break; // The reference loses digits.
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
        (3, 64, 2.7, 7.6470477574966235106e-5, 132.09478391175824794, 2.9495755584626549372e-4),
        (4, 40, 4.0, 0.021283059982422671694, 136.75393142160066887, 0.085132075467421395953),
        (12, 8, 11.0, 0.013652920666197326061, 78.072901559444297083, 0.29679985512114897997),
        (20, 5, 18.0, 0.011022170874857016539, 81.114461700268828289, 0.43956458221711451669),
        (25, 4, 30.0, 0.17164301250867508610, 95.457415388390352877, 0.84531310141475137929),
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

#[test]
fn a_thousand_queues() {
    for per_server in [0.1, 0.5, 1.0, 1.2] {
        let start = std::time::Instant::now();
        let result = renewal(&model(1000, 64, per_server * 1000.0)).unwrap();
        eprintln!(
            "{per_server} {:e} {} loss {} packets {} {:?}",
            result.error_estimate,
            result.samples,
            result.solution.loss,
            result.solution.packets,
            start.elapsed()
        );
    }
}
