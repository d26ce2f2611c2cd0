use std::collections::BTreeMap;

use super::*;
use crate::folder::Folder;
use crate::metric::Measured;
use crate::record::Record;
use crate::scenario::Scenario;

const SCENARIO: &str = r#"[scenario]
id = "s"
title = "S"
[run]
duration = "1s"
seeds = 3
[topology]
generator = "line"
nodes = 1
[[producer]]
id = "p"
at = "first"
size = "1B"
segment = "1B"
[[consumer]]
id = "c"
at = "first"
of = "p"
window = 1
[[sweep]]
axis = "window"
path = "consumer.c.window"
values = [1, 2]
[[metric]]
id = "y"
measure = "goodput"
over_time = true
per_node = true
[factorial]
response = "y"
factors = { W = "window" }
"#;

fn experiment() -> Experiment {
    let folder = Folder::Disk("/".into());
    let scenario = Scenario::parse("s.toml", SCENARIO, folder).expect("readable");
    scenario.experiment(Size::Smoke).expect("right")
}

/// Point 0: 10 + seed; point 1: twice that. A series that grows by that much a second.
fn results() -> Results {
    let mut results = Results::default();
    for point in 0..2 {
        for seed in 1..=3u64 {
            let y = (10.0 + seed as f64) * (point + 1) as f64;
            let measured = Measured {
                values: BTreeMap::from([("y".to_owned(), Some(y))]),
                nodes: BTreeMap::from([("y".to_owned(), vec![("c".to_owned(), Some(y / 2.0))])]),
                series: BTreeMap::from([(
                    "y".to_owned(),
                    (0..10).map(|i| (f64::from(i) / 10.0, y * f64::from(i) / 10.0)).collect(),
                )]),
                distributions: BTreeMap::new(),
            };
            let record = Record {
                point,
                coordinates: Vec::new(),
                seed,
                measured,
                simulated: None,
                real: None,
            };
            results.records.insert((point, seed), record);
        }
    }
    results
}

fn claims(text: &str) -> Result<Claims, ScenarioError> {
    let folder = tempfile::tempdir().expect("folder");
    std::fs::write(folder.path().join("claims.toml"), text).expect("written");
    std::fs::write(folder.path().join("t.csv"), "A,y\n-1,1\n1,3\n").expect("written");
    let folder = Folder::Disk(folder.path().to_path_buf());
    Claims::load(&Paper { id: "x".into(), folder })
}

fn claim_of(lines: &str) -> Result<Claim, ScenarioError> {
    let head = "paper = \"x\"\n[[claim]]\nid = \"i\"\nfigure = \"f\"\nmetric = \"m\"\n";
    let scenario = if lines.contains("data =") { "" } else { "scenario = \"s\"\n" };
    Ok(claims(&format!("{head}{scenario}{lines}"))?.claims.remove(0))
}

fn evaluated(lines: &str) -> ClaimResult {
    let claim = claim_of(lines).unwrap_or_else(|error| panic!("{error}"));
    let experiment = experiment();
    claim.check(Some(&experiment)).unwrap_or_else(|error| panic!("{error}"));
    claim.evaluate(Some(&experiment), &results())
}

fn measured(measure: &str) -> f64 {
    let result = evaluated(&format!("measure = \"{measure}\"\nat_least = 0\n"));
    result.measured.unwrap_or(f64::NAN)
}

#[test]
fn expressions_are_computed() {
    for (text, expected) in [
        ("1 + 2 * 3", 7.0),
        ("(1 + 2) * 3 - -1", 10.0),
        ("8 / 2 / 2", 2.0),
        ("1.5e3", 1500.0),
        ("max(1, 2) + min(3, 4) + abs(-5)", 10.0),
        ("mean(y, window=1)", 12.0),
        ("mean(y)", 18.0),
        ("mean(y, window=2) / mean(y, window=1)", 2.0),
        ("max_over(y) - min_over(y)", 12.0),
        ("mean(y, window=1, node=c)", 6.0),
        ("node_max(y, window=2)", 12.0),
        ("slope(y, 0, 1, window=1)", 12.0),
        ("time_mean(y, 0.15, 0.35, window=1)", 3.0),
        ("first_time(y, 6, window=1)", 0.5 + 0.1 / 3.0),
        ("effect(W)", 6.0),
        ("variation(W)", 100.0),
        ("rank(W)", 1.0),
    ] {
        let value = measured(text);
        assert!((value - expected).abs() < 1e-9, "{text} = {value}, not {expected}");
    }
}

#[test]
fn a_ratio_has_the_interval_of_its_seeds() {
    let ratio = evaluated("measure = \"mean(y, window=2) / mean(y, window=1)\"\nat_least = 2\n");
    assert_eq!((ratio.low, ratio.high), (Some(2.0), Some(2.0)));
    let mean = evaluated("measure = \"mean(y, window=1)\"\nat_least = 2\n");
    // 11, 12, 13: t(2) / sqrt(3) = 2.484.
    assert!((mean.high.expect("measured") - 14.484).abs() < 1e-3);
}

#[test]
fn rules_hold_or_not() {
    let y = "measure = \"mean(y, window=1)\"\n";
    for (rule, holds) in [
        ("at_least = 12", true),
        ("at_least = 12.1", false),
        ("at_most = 12", true),
        ("at_most = 11.9", false),
        ("at_least = 1\nat_most = 11", false),
        ("paper = 11\nwithin = 0.1", true),
        ("paper = 10\nwithin = 0.1", false),
        ("paper = 10\nwithin_absolute = 2", true),
        ("order = [\"mean(y, window=2)\", \"mean(y, window=1)\"]", true),
        ("order = [\"mean(y, window=1)\", \"mean(y, window=2)\"]", false),
        ("order = [\"1\", \"1\"]", false),
    ] {
        assert_eq!(evaluated(&format!("{y}{rule}\n")).holds, Some(holds), "{rule}");
    }
    let order = evaluated("order = [\"mean(y, window=2)\", \"mean(y, window=1)\"]\n");
    assert_eq!(order.measured, Some(2.0));
    assert_eq!(evaluated(&format!("{y}at_least = 99\nsizes = [\"full\"]\n")).holds, None);
}

#[test]
fn what_cannot_be_measured_with_every_seed_does_not_hold() {
    for measure in ["first_time(y, 11, window=1)", "mean(y, window=1) / 0"] {
        let result = evaluated(&format!("measure = \"{measure}\"\nat_least = 1\n"));
        assert_eq!((result.measured, result.holds), (None, Some(false)), "{measure}");
        assert!(result.note.contains("Not measured with every seed"));
    }
}

#[test]
fn nothing_is_said_of_runs_that_are_missing() {
    let claim = claim_of("measure = \"mean(y, window=1)\"\nat_least = 1\n")
        .unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(claim.evaluate(Some(&experiment()), &Results::default()).holds, None);
}

#[test]
fn tables_of_a_paper_need_no_scenario() {
    let claim = claim_of("data = \"t.csv\"\nmeasure = \"variation(A)\"\npaper = 100\nwithin = 0\n")
        .unwrap_or_else(|error| panic!("{error}"));
    claim.check(None).expect("right");
    assert_eq!(claim.evaluate(None, &Results::default()).holds, Some(true));
}

#[test]
fn wrong_claims_are_refused_with_their_line() {
    for (lines, expected) in [
        (
            "measure = \"mean(y\"\nat_least = 0",
            "x/claims.toml:7: claim[0].measure: in \"mean(y\": the end where `,` or `)`",
        ),
        ("measure = \"y\"\nat_least = 0", "`y` stands alone; write a function such as mean(y)"),
        (
            "measure = \"meen(y)\"\nat_least = 0",
            "there is no function `meen`; did you mean `mean`?",
        ),
        ("measure = \"slope(y)\"\nat_least = 0", "`slope` takes 1 name and 2 numbers, not 1 and 0"),
        ("measure = \"1 1\"\nat_least = 0", "\"1\" where an operator or the end should be"),
        ("measure = \"mean(y)\"", "claim[0]: has no rule"),
        (
            "measure = \"mean(y)\"\nwithin = 0.1",
            "x/claims.toml:8: claim[0].within: compares with `paper`",
        ),
        ("at_least = 1", "claim[0]: lacks `measure`"),
        ("measure = \"1\"\nat_leest = 1", "x/claims.toml:8: claim[0]: unknown key `at_leest`"),
        (
            "data = \"no.csv\"\nmeasure = \"1\"\nat_least = 0",
            "x/claims.toml:6: claim[0].data: cannot read",
        ),
    ] {
        let error = claim_of(lines).expect_err(lines).to_string();
        assert!(error.contains(expected), "{lines}\n  gave     {error}\n  expected {expected}");
    }
    for (measure, expected) in [
        ("mean(z)", "x/claims.toml:2: claim \"i\": the scenario has no metric \"z\""),
        ("mean(y, windows=1)", "the sweep has no axis \"windows\"; did you mean `window`?"),
        ("mean(y, window=3)", "axis \"window\" has no value \"3\""),
        ("variation(WX)", "there is no effect \"WX\"; did you mean `W`?"),
    ] {
        let claim = claim_of(&format!("measure = \"{measure}\"\nat_least = 0\n")).expect("parsed");
        let error = claim.check(Some(&experiment())).expect_err(measure).to_string();
        assert!(error.contains(expected), "{measure}\n  gave     {error}\n  expected {expected}");
    }
}
