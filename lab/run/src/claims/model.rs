//! Functions of claims that evaluate the analytical models (paper nb-cache, II and IV).

use weir_queueing::nqueue::{self, ChainOptions, Model, SimulateOptions};
use weir_queueing::pipeline::{Pipeline, Probabilities};

/// Name and number of arguments.
pub(super) const FUNCTIONS: &[(&str, usize)] = &[
    ("nqueue_packets", 3),
    ("nqueue_waiting", 3),
    ("nqueue_loss", 3),
    ("nqueue_utilisation", 3),
    ("nqueue_simulation_error", 3),
    ("pipeline_limit", 9),
    ("pipeline_stage", 9),
];

/// The number of arguments of a function; `None` if it does not exist.
pub(super) fn numbers_of(name: &str) -> Option<usize> {
    FUNCTIONS.iter().find(|(known, _)| *known == name).map(|(_, count)| *count)
}

/// Evaluates a function of [`FUNCTIONS`]; `None` if the model rejects its arguments.
///
/// The functions `nqueue_*(queues, threshold, load)` solve the balance equations (Eq. 8 to 15):
/// packets in the system, waiting packets, loss, and utilisation. `nqueue_simulation_error` is the
/// largest difference of loss, packets and utilisation between the equations and a simulation, in
/// half-widths of its 95 % interval. `pipeline_limit` and `pipeline_stage(mu1, .., mu5, alpha,
/// beta, theta, phi)` give the largest arrival rate and the number of the stage that limits it (Eq.
/// 7).
pub(super) fn value(name: &str, numbers: &[f64]) -> Option<f64> {
    let count = |at: usize| {
        let number = *numbers.get(at)?;
        (number.fract() == 0.0 && (0.0..1e6).contains(&number)).then_some(number as usize)
    };
    if let Some(wanted) = name.strip_prefix("pipeline_") {
        let rates: [f64; 5] = numbers.get(..5)?.try_into().ok()?;
        let &[store_hit, pit_hit, fib_hit, caching] = numbers.get(5..9)? else { return None };
        let probabilities = Probabilities { store_hit, pit_hit, fib_hit, caching };
        let (stage, limit) = Pipeline::new(rates, probabilities).ok()?.bottleneck();
        return Some(if wanted == "limit" { limit } else { stage.number() as f64 });
    }
    let model = Model::new(count(0)?, count(1)?, *numbers.get(2)?).ok()?;
    let found = nqueue::chain(&model, &ChainOptions::default()).ok()?.solution;
    let servers = model.queues() as f64;
    Some(match name {
        "nqueue_packets" => found.packets,
        "nqueue_waiting" => found.packets - servers * found.utilisation,
        "nqueue_loss" => found.loss,
        "nqueue_utilisation" => found.utilisation,
        _ => {
            let options = SimulateOptions { arrivals: 200_000, ..SimulateOptions::default() };
            // A simulation cannot distinguish anything rarer than one arrival from never.
            let least = 1.0 / options.arrivals as f64;
            let simulated = nqueue::simulate(&model, &options).ok()?;
            let (mean, half) = (&simulated.solution, &simulated.half_widths);
            let pairs = [
                (found.loss, mean.loss, half.loss),
                (found.packets, mean.packets, half.packets),
                (found.utilisation, mean.utilisation, half.utilisation),
            ];
            pairs
                .into_iter()
                .map(|(one, two, half)| (one - two).abs() / half.max(least))
                .fold(0.0, f64::max)
        }
    })
}
