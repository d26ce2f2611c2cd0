use std::collections::BTreeMap;

use weir_scenario::{Folder, Scenario};

use super::*;
use crate::metric::Measured;
use crate::record::Record;

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

const WIDE: &str = "band = [-1e9, 1e9]\nband_reason = \"any\"\n";

fn experiment() -> Experiment {
    let folder = Folder::Disk("/".into());
    let scenario = Scenario::parse("s.toml", SCENARIO, folder).expect("readable");
    scenario.experiment(Size::Smoke).expect("right")
}

/// Point 0 has 10 + seed, and point 1 twice that. A series grows by that much per second.
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
                ..Measured::default()
            };
            let record = Record {
                point,
                coordinates: Vec::new(),
                seed,
                measured,
                simulated: None,
                real: None,
                missing: None,
            };
            results.records.insert((point, seed), record);
        }
    }
    results
}

fn claims(text: &str) -> Result<Claims, ScenarioError> {
    let folder = tempfile::tempdir().expect("folder");
    std::fs::write(folder.path().join("claims.toml"), text).expect("written");
    std::fs::create_dir(folder.path().join("scenarios")).expect("made");
    std::fs::write(folder.path().join("scenarios/s.toml"), SCENARIO).expect("written");
    let folder = Folder::Disk(folder.path().to_path_buf());
    Claims::load(&Paper { id: "x".into(), folder })
}

fn claim_of(lines: &str) -> Result<Claim, ScenarioError> {
    let head = "paper = \"x\"\n[[claim]]\nid = \"i\"\nfigure = \"f\"\nmetric = \"m\"\n";
    Ok(claims(&format!("{head}scenario = \"s\"\n{lines}"))?.claims.remove(0))
}

fn evaluated(lines: &str) -> ClaimResult {
    let claim = claim_of(lines).unwrap_or_else(|error| panic!("{error}"));
    let experiment = experiment();
    claim.check(Some(&experiment)).unwrap_or_else(|error| panic!("{error}"));
    claim.evaluate(Some(&experiment), &results(), None)
}

fn measured(measure: &str) -> f64 {
    let result = evaluated(&format!("measure = \"{measure}\"\n{WIDE}"));
    result.measured.unwrap_or(f64::NAN)
}

#[test]
fn expressions_are_computed() {
    for (text, expected) in [
        ("1 + 2 * 3 + 0 * mean(y)", 7.0),
        ("(1 + 2) * 3 - -1 + 0 * mean(y)", 10.0),
        ("8 / 2 / 2 + 0 * mean(y)", 2.0),
        ("1.5e3 + 0 * mean(y)", 1500.0),
        ("max(1, 2) + min(3, 4) + abs(-5) + 0 * mean(y)", 10.0),
        ("mean(y, window=1)", 12.0),
        ("mean(y)", 18.0),
        ("mean(y, window=2) / mean(y, window=1)", 2.0),
        ("max_over(y) - min_over(y)", 12.0),
        ("over_best(y, y, window=2)", 2.0),
        ("over_best(y, y, window=1)", 0.5),
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
fn arms_are_compared_seed_by_seed() {
    let (experiment, mut other) = (experiment(), results());
    for record in other.records.values_mut() {
        let seed = record.seed as f64;
        record.measured.values.values_mut().flatten().for_each(|y| *y /= seed);
    }
    let claim = claim_of(&format!(
        "arm = \"real\"\ncompared_arm = \"sim\"\nmeasure = \"mean(y, window=1)\"\n{WIDE}"
    ));
    let claim = claim.unwrap_or_else(|error| panic!("{error}"));
    let result = claim.evaluate(Some(&experiment), &results(), Some(&other));
    // 1, 2 and 3 times as much.
    assert_eq!(result.measured, Some(2.0));
    assert!(result.interval.is_some_and(|[low, high]| low < 1.0 && high > 3.0), "{result:?}");
    let alone = claim.evaluate(Some(&experiment), &results(), None);
    assert!(alone.measured.is_none() && alone.cause.contains("both arms"), "{}", alone.cause);
    other.records.remove(&(0, 2));
    let part = claim.evaluate(Some(&experiment), &results(), Some(&other));
    assert!(part.measured.is_none() && part.cause.contains("missing"), "{}", part.cause);
    for lines in [
        format!("compared_arm = \"sim\"\nmeasure = \"mean(y)\"\n{WIDE}"),
        format!("arm = \"sim\"\ncompared_arm = \"sim\"\nmeasure = \"mean(y)\"\n{WIDE}"),
        "arm = \"real\"\ncompared_arm = \"sim\"\norder = [\"mean(y)\", \"1\"]\n".to_owned(),
    ] {
        let error = claim_of(&lines).expect_err(&lines).to_string();
        assert!(error.contains("give both"), "{error}");
    }
}

#[test]
fn claims_without_measurement_are_rejected() {
    let band = "band = [0, 1]\nband_reason = \"any\"\n";
    for (lines, reason) in [
        (format!("measure = \"1 + 1\"\n{band}"), "names no metric"),
        ("order = [\"2\", \"1\"]\n".into(), "names no metric"),
        (format!("measure = \"mean(y)\"\nsizes = []\n{band}"), "is empty"),
        ("measure = \"mean(y)\"\nband = [0, 1]\nband_reason = \" \"\n".into(), "band_reason"),
    ] {
        let error = claim_of(&lines).expect_err("nothing is measured").to_string();
        assert!(error.contains(reason), "{error}");
    }
    let twice = claim_of(&format!("measure = \"mean(y, window=1, window=2)\"\n{band}"));
    let error = twice.expect("readable").check(Some(&experiment())).expect_err("one axis twice");
    assert!(error.to_string().contains("given twice"), "{error}");
    let head = "paper = \"x\"\n[[claim]]\nid = \"i\"\nfigure = \"f\"\nmetric = \"m\"\n";
    for (lines, reason) in [
        (format!("scenario = \"t\"\nmeasure = \"mean(y)\"\n{band}"), "no scenario \"t\""),
        (format!("arm = \"sim\"\nmeasure = \"nqueue_loss(1, 2, 3)\"\n{band}"), "no arms"),
    ] {
        let error = claims(&format!("{head}{lines}")).expect_err("refused").to_string();
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn a_ratio_has_the_interval_of_its_seeds() {
    let ratio = evaluated(&format!("measure = \"mean(y, window=2) / mean(y, window=1)\"\n{WIDE}"));
    assert_eq!(ratio.interval, Some([2.0, 2.0]));
    let mean = evaluated(&format!("measure = \"mean(y, window=1)\"\n{WIDE}"));
    // 11, 12, 13: 12 +- t(2) / sqrt(3) = 2.484.
    let [low, high] = mean.interval.expect("measured");
    assert!((high - 14.484).abs() < 1e-3 && (low - 9.516).abs() < 1e-3);
}

#[test]
fn interval_decides_the_verdict() {
    use Verdict::{Better, Differs, NotMeasured, Reproduced};
    // The interval is 9.516 to 14.484.
    for (band, better, verdict) in [
        ("[9, 15]", "", Reproduced),
        ("[12, 15]", "", NotMeasured),
        ("[9, 12]", "", NotMeasured),
        ("[1, 9]", "", Differs),
        ("[15, 20]", "", Differs),
        ("[1, 9]", "above", Better),
        ("[1, 9]", "below", Differs),
        ("[15, 20]", "below", Better),
        ("[9, 12]", "above", Reproduced),
        ("[9, 12]", "below", NotMeasured),
        ("[12, 15]", "below", Reproduced),
        ("[10, 14]", "below", NotMeasured),
    ] {
        let better = match better {
            "" => String::new(),
            side => format!("better = {{ side = \"{side}\", reason = \"faster\" }}\n"),
        };
        let result = evaluated(&format!(
            "measure = \"mean(y, window=1)\"\nband = {band}\nband_reason = \"r\"\n{better}"
        ));
        assert_eq!(result.verdict, verdict, "{band} {better}");
        assert_eq!(result.cause == "faster", verdict == Better);
    }
}

#[test]
fn order_needs_a_certain_lead() {
    for (order, verdict, measured) in [
        ("\"mean(y, window=2)\", \"mean(y, window=1)\"", Verdict::Reproduced, 0.5),
        ("\"mean(y, window=1)\", \"mean(y, window=2)\"", Verdict::Differs, -0.5),
        ("\"2\", \"1\", \"1\"", Verdict::Differs, 0.0),
        ("\"0\", \"0\"", Verdict::Differs, 0.0),
        // 11 to 13 compared with 12: one seed is above and one is below.
        ("\"mean(y, window=1)\", \"12\"", Verdict::NotMeasured, 0.0),
    ] {
        let result = evaluated(&format!("order = [{order}, \"-9 + 0 * mean(y)\"]\n"));
        assert_eq!(result.verdict, verdict, "{order}");
        assert!((result.measured.expect("measured") - measured).abs() < 0.01, "{order}");
        assert_eq!(result.band, [0.0, 1.0]);
    }
}

#[test]
fn missing_results_are_not_measured() {
    for measure in ["first_time(y, 11, window=1)", "mean(y, window=1) / 0"] {
        let result = evaluated(&format!("measure = \"{measure}\"\n{WIDE}"));
        assert_eq!((result.measured, result.verdict), (None, Verdict::NotMeasured), "{measure}");
        assert!(result.cause.contains("Some seed gave no number"));
    }
    let other_size = evaluated(&format!("measure = \"mean(y)\"\nsizes = [\"full\"]\n{WIDE}"));
    assert_eq!(other_size.verdict, Verdict::NotMeasured);
    let claim = claim_of(&format!("measure = \"mean(y, window=1)\"\n{WIDE}")).expect("right");
    let none = claim.evaluate(Some(&experiment()), &Results::default(), None);
    assert_eq!((none.verdict, none.cause.as_str()), (Verdict::NotMeasured, "Runs are missing."));
    let mut two_seeds = experiment();
    two_seeds.seeds.pop();
    let result = claim.evaluate(Some(&two_seeds), &results(), None);
    assert_eq!((result.verdict, result.measured), (Verdict::NotMeasured, Some(11.5)));
    assert_eq!(result.cause, "A verdict takes 3 seeds; these are 2.");
}

/// Three claims: one that differs and two experiments. The second experiment is not reproduced.
fn settled(shown_by: &str) -> Vec<ClaimResult> {
    let one = |id: &str, band: &str| {
        format!(
            "[[claim]]\nid = \"{id}\"\nfigure = \"f\"\nmetric = \"m\"\nscenario = \"s\"\n\
             measure = \"mean(y, window=1)\"\nband = {band}\nband_reason = \"r\"\n"
        )
    };
    let all = claims(&format!(
        "paper = \"x\"\n{}cause = {{ text = \"Slower disk.\", shown_by = [{shown_by}] }}\n{}{}",
        one("differs", "[1, 2]"),
        one("sure", "[9, 15]") + "kind = \"experiment\"\n",
        one("unsure", "[12, 15]") + "kind = \"experiment\"\n"
    ))
    .unwrap_or_else(|error| panic!("{error}"));
    let evaluate = |claim: &Claim| claim.evaluate(Some(&experiment()), &results(), None);
    let mut found: Vec<ClaimResult> = all.claims.iter().map(evaluate).collect();
    assign_causes(&all.claims, &mut found);
    found
}

#[test]
fn cause_needs_reproduced_experiments() {
    let found = settled("\"sure\"");
    assert!(found[0].is_shown && !found[0].is_unexplained());
    assert_eq!(found[0].cause, "Slower disk. Shown by sure.");
    let found = settled("\"sure\", \"unsure\"");
    assert!(found[0].is_unexplained());
    assert_eq!(found[0].cause, "Slower disk. Not shown by this run: see unsure.");
}

#[test]
fn models_need_no_scenario() {
    let head = "paper = \"x\"\n[[claim]]\nid = \"i\"\nfigure = \"f\"\nmetric = \"m\"\n";
    // Erlang's loss of two servers at load 1 is 1/5.
    let text = format!("{head}measure = \"nqueue_loss(2, 1, 1)\"\n{WIDE}");
    let claim = claims(&text).unwrap_or_else(|error| panic!("{error}")).claims.remove(0);
    let result = claim.evaluate(None, &Results::default(), None);
    assert!((result.measured.expect("a number") - 0.2).abs() < 1e-9);
    assert_eq!(result.verdict, Verdict::Reproduced);
    let limit = "pipeline_limit(4700, 1e9, 4000, 1e9, 4000, 0.25, 0, 1, 1)";
    let text = format!("{head}measure = \"{limit}\"\n{WIDE}");
    let claim = claims(&text).unwrap_or_else(|error| panic!("{error}")).claims.remove(0);
    assert_eq!(claim.evaluate(None, &Results::default(), None).measured, Some(4700.0));
    let wrong = claims(&format!("{head}measure = \"mean(y)\"\n{WIDE}")).expect_err("no scenario");
    assert!(wrong.to_string().contains("`mean` is about results; name the `scenario`"), "{wrong}");
}

#[test]
fn invalid_claims_name_their_line() {
    let wide = |lines: &str| format!("{lines}\n{WIDE}");
    for (lines, expected) in [
        (
            wide("measure = \"mean(y\""),
            "x/claims.toml:7: claim[0].measure: in \"mean(y\": the end where `,` or `)`",
        ),
        (wide("measure = \"y\""), "`y` stands alone; write a function such as mean(y)"),
        (wide("measure = \"meen(y)\""), "there is no function `meen`; did you mean `mean`?"),
        (wide("measure = \"slope(y)\""), "`slope` takes 1 name and 2 numbers, not 1 and 0"),
        (wide("measure = \"nqueue_loss(1)\""), "`nqueue_loss` takes 3 numbers and nothing else"),
        (wide("measure = \"1 1\""), "\"1\" where an operator or the end should be"),
        ("measure = \"mean(y)\"".into(), "claim[0]: is either a `measure` with a `band`"),
        (
            "measure = \"mean(y)\"\nband = [1]\nband_reason = \"r\"".into(),
            "x/claims.toml:8: claim[0].band",
        ),
        (
            "measure = \"mean(y)\"\nband = [2, 1]\nband_reason = \"r\"".into(),
            "x/claims.toml:8: claim[0].band: needs two finite numbers, the lower one first",
        ),
        (
            "measure = \"mean(y)\"\nband = [1, 2]".into(),
            "x/claims.toml:8: claim[0].band: lacks its reason",
        ),
        ("band = [1, 2]\nband_reason = \"r\"".into(), "claim[0]: is either"),
        (wide("order = [\"1\", \"2\"]"), "claim[0]: is either"),
        (
            wide("measure = \"1\"\nat_least = 1"),
            "x/claims.toml:8: claim[0]: unknown key `at_least`",
        ),
        (
            wide("measure = \"mean(y)\"\ncause = { text = \"t\", shown_by = [] }"),
            "claim[0].cause: names no experiment",
        ),
        (
            wide("measure = \"mean(y)\"\ncause = { text = \"t\", shown_by = [\"j\"] }"),
            "claim[0].cause: there is no other claim \"j\"",
        ),
    ] {
        let error = claim_of(&lines).expect_err(&lines).to_string();
        assert!(error.contains(expected), "{lines}\n  gave     {error}\n  expected {expected}");
    }
    for (measure, expected) in [
        ("mean(z)", "x/claims.toml:2: claim \"i\": the scenario has no metric \"z\""),
        ("mean(y, windows=1)", "the sweep has no axis \"windows\"; did you mean `window`?"),
        ("mean(y, window=3)", "axis \"window\" has no value \"3\""),
        ("variation(WX)", "there is no effect \"WX\"; did you mean `W`?"),
    ] {
        let claim = claim_of(&format!("measure = \"{measure}\"\n{WIDE}")).expect("parsed");
        let error = claim.check(Some(&experiment())).expect_err(measure).to_string();
        assert!(error.contains(expected), "{measure}\n  gave     {error}\n  expected {expected}");
    }
}

fn recorded(id: &str, verdict: Verdict, commit: &str) -> RecordedClaim {
    let result = ClaimResult { id: id.into(), verdict, ..settled("\"sure\"").remove(1) };
    let (rule, date) = (String::new(), "2026-01-02".into());
    RecordedClaim { result, rule, arm: Some(Arm::Sim), commit: commit.into(), date }
}

#[test]
fn recorded_verdicts_stay_until_remeasured() {
    let none = Claims { paper: "x".into(), title: String::new(), claims: Vec::new() };
    let before = RecordedVerdicts {
        paper: "x".into(),
        size: Size::Full,
        claims: vec![
            recorded("stays", Verdict::Reproduced, "old"),
            recorded("again", Verdict::Reproduced, "old"),
            recorded("gone", Verdict::Reproduced, "old"),
            RecordedClaim {
                result: ClaimResult {
                    band: [7.0, 8.0],
                    ..recorded("rule", Verdict::Differs, "").result
                },
                ..recorded("rule", Verdict::Differs, "old")
            },
        ],
    };
    let not_run = |id: &str| {
        let recorded = recorded(id, Verdict::NotMeasured, "new");
        let result = ClaimResult { measured: None, interval: None, ..recorded.result };
        RecordedClaim { result, arm: None, ..recorded }
    };
    let new =
        vec![recorded("again", Verdict::NotMeasured, "new"), not_run("stays"), not_run("rule")];
    let after = RecordedVerdicts::update(Some(before), &none, Size::Full, new);
    let all: Vec<(&str, Verdict, &str)> = after
        .claims
        .iter()
        .map(|one| (one.result.id.as_str(), one.result.verdict, one.commit.as_str()))
        .collect();
    let expected = [
        ("again", Verdict::NotMeasured, "new"),
        ("stays", Verdict::Reproduced, "old"),
        ("rule", Verdict::NotMeasured, "new"),
    ];
    assert_eq!(all, expected);
}

#[test]
fn readme_shows_recorded_verdicts() {
    let folder = tempfile::tempdir().expect("folder");
    let readme = folder.path().join("README.md");
    let file = |size, claims| RecordedVerdicts { paper: "x".into(), size, claims };
    let mut not_run = recorded("two", Verdict::NotMeasured, "c1");
    (not_run.result.measured, not_run.arm) = (None, None);
    let mut undecided = recorded("three", Verdict::NotMeasured, "c1");
    undecided.result.cause = "a cause of many words ".repeat(10);
    let full =
        file(Size::Full, vec![recorded("one", Verdict::Reproduced, "c1"), not_run, undecided]);
    std::fs::write(&readme, "# Paper\n").expect("written");
    let error = full.write(folder.path()).expect_err("no marks").to_string();
    assert!(error.contains("has no place for the verdicts"), "{error}");
    let marks = "# Paper\n<!-- verdicts: written by `weir lab reproduce --record` -->\nold\n\
                 <!-- end of verdicts -->\nThe rest.\n";
    std::fs::write(&readme, marks).expect("written");
    full.write(folder.path()).expect("written");
    let found = ["two", "three"].map(|id| recorded(id, Verdict::Reproduced, "c2"));
    let smoke = file(Size::Smoke, found.to_vec());
    smoke.write(folder.path()).expect("written");
    let text = std::fs::read_to_string(&readme).expect("there");
    assert!(text.contains("2 reproduced, 0 better, 0 differs, 1 not measured"), "{text}");
    assert!(text.contains("| reproduced | sim-full |"), "{text}");
    assert!(text.contains("| reproduced | sim-smoke |"), "{text}");
    assert!(text.contains("\n- `three` not measured: a cause of many words"), "{text}");
    assert!(text.lines().all(|line| line.starts_with('|') || line.len() <= 100), "{text}");
    assert!(!text.contains("old") && text.ends_with("<!-- end of verdicts -->\nThe rest.\n"));
    assert_eq!(RecordedVerdicts::read(folder.path(), Size::Full).expect("there"), Some(full));
    let damaged = folder.path().join("expected/full.json");
    std::fs::write(&damaged, "{").expect("written");
    let before = std::fs::read(folder.path().join("expected/smoke.json")).expect("there");
    let error = file(Size::Smoke, Vec::new()).write(folder.path()).expect_err("damaged");
    assert!(error.to_string().contains("fix the file or restore it"), "{error}");
    assert_eq!(std::fs::read(folder.path().join("expected/smoke.json")).expect("there"), before);
}
