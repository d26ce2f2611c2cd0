//! `weir lab reproduce` of a paper that measures real processes: sockets through routers, compared
//! with programs of the system if they are installed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Measurements that need programs or features this machine may not have.
const MAY_BE_MISSING: [&str; 3] = ["tcp-tso", "tcp", "https"];

fn file_of(scenario: &str) -> PathBuf {
    let paper = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/socket-api/scenarios");
    paper.join(format!("{scenario}.toml"))
}

fn object(folder: &Path, scenario: &str) -> Value {
    outcome(folder, &file_of(scenario), &["--seed", "1"])
}

fn outcome(folder: &Path, scenario: &Path, more: &[&str]) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_weir"))
        .current_dir(folder)
        .args(["lab", "run", &scenario.display().to_string(), "--smoke", "--json"])
        .args(more)
        .output()
        .expect("it starts");
    // Exit code 3: a claim differs, which is normal on another machine.
    let code = output.status.code();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(code, Some(0 | 3)), "{code:?} {errors}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Writes a scenario with other texts, without the paper's claims.
fn changed(folder: &Path, scenario: &str, texts: &[(&str, &str)]) -> PathBuf {
    let mut text = std::fs::read_to_string(file_of(scenario)).expect("the scenario");
    for (from, to) in [("paper = \"socket-api\"\n", "")].iter().chain(texts) {
        assert!(text.contains(from), "{from}");
        text = text.replacen(from, to, 1);
    }
    let file = folder.join("changed.toml");
    std::fs::write(&file, text).expect("a file");
    file
}

/// The metrics of each point, by the labels of its axes.
fn points(outcome: &Value) -> BTreeMap<String, BTreeMap<String, Option<f64>>> {
    let label = |pair: &Value| pair[1].as_str().expect("a label").to_owned();
    let point = |point: &Value| {
        let labels: Vec<String> =
            point["coordinates"].as_array().expect("axes").iter().map(label).collect();
        let metrics = point["metrics"].as_object().expect("metrics");
        let metrics = metrics.iter().map(|(id, found)| (id.clone(), found["mean"].as_f64()));
        (labels.join(" "), metrics.collect())
    };
    outcome["points"].as_array().expect("points").iter().map(point).collect()
}

fn value(of: &BTreeMap<String, Option<f64>>, metric: &str, point: &str) -> f64 {
    let found = of[metric].unwrap_or_else(|| panic!("{point} has no {metric}"));
    assert!(found.is_finite() && found > 0.0, "{point} {metric} {found}");
    found
}

#[test]
fn measures_goodput_fairness_and_cpu_time() {
    let folder = tempfile::tempdir().expect("folder");
    let outcome = object(folder.path(), "table1");
    let points = points(&outcome);
    assert_eq!(points.len(), 24);
    for (point, metrics) in &points {
        if MAY_BE_MISSING.contains(&point.as_str()) && metrics["goodput"].is_none() {
            continue;
        }
        value(metrics, "goodput", point);
        if !MAY_BE_MISSING.contains(&point.as_str()) {
            let fairness = value(metrics, "fairness", point);
            let least = point
                .strip_prefix("none-")
                .map_or(1.0, |count| 1.0 / count.parse::<f64>().expect("a count"));
            assert!((least - 1e-9..=1.0 + 1e-9).contains(&fairness), "{point} {fairness}");
            for metric in ["consumer", "producer", "router", "publication"] {
                value(metrics, metric, point);
            }
        }
    }
    assert!(!outcome["claims"].as_array().expect("claims").is_empty());
    let report = folder.path().join(outcome["report"].as_str().expect("a path"));
    assert!(std::fs::read_to_string(report).expect("a page").contains("packets-ecdsa-192"));
}

#[test]
fn measures_signing_answers_and_sockets() {
    let folder = tempfile::tempdir().expect("folder");
    for (scenario, count, metrics) in [
        ("table2", 48, &["sign", "verify", "hash"][..]),
        ("table3", 8, &["time", "median", "p99"]),
        ("messages", 12, &["median", "p99"]),
        ("publication", 8, &["rate"]),
        ("sockets", 3, &["time"]),
        ("subscribers", 4, &["interests", "octets", "cpu", "delay", "p99", "joining", "join"]),
    ] {
        let points = points(&object(folder.path(), scenario));
        assert_eq!(points.len(), count, "{scenario}");
        for (point, found) in &points {
            for metric in metrics {
                value(found, metric, point);
            }
        }
    }
}

/// A late subscriber must not get stale metadata from a router, as it would then miss the messages
/// published since.
#[test]
fn subscribers_miss_no_message() {
    let folder = tempfile::tempdir().expect("folder");
    let file = changed(
        folder.path(),
        "subscribers",
        &[
            ("gap = { smoke = \"100ms\"", "gap = { smoke = \"0s\""),
            ("values = { smoke = [10, 1000]", "values = { smoke = [1, 10]"),
            ("seeds = { smoke = 3", "seeds = { smoke = 5"),
        ],
    );
    let points = points(&outcome(folder.path(), &file, &[]));
    assert_eq!(points.len(), 4);
    for (point, metrics) in &points {
        // At least one of the two late subscribers sent an Interest.
        assert!(value(metrics, "joining", point) >= 0.5, "{point} {metrics:?}");
    }
}

/// Wrong content ends the run with an error.
#[test]
fn viewers_get_what_was_published() {
    let folder = tempfile::tempdir().expect("folder");
    let file = changed(
        folder.path(),
        "video-real",
        &[
            ("channels = { smoke = 12", "channels = { smoke = 3"),
            ("stay = { smoke = \"20s\"", "stay = { smoke = \"4s\""),
            ("time = { smoke = \"20s\"", "time = { smoke = \"6s\""),
            ("values = { smoke = [24]", "values = { smoke = [9]"),
        ],
    );
    let points = points(&outcome(folder.path(), &file, &["--seed", "1"]));
    assert_eq!(points.len(), 2);
    if points["tcp 9 1.4"]["requests"].is_none() {
        println!("live video is NOT tested: ffmpeg, nginx or Apache Traffic Server is missing");
        return;
    }
    for (point, metrics) in &points {
        for metric in ["requests", "misses", "memory", "cpu", "share", "channels", "viewer"] {
            value(metrics, metric, point);
        }
        assert!(metrics["channels"].is_some_and(|channels| channels <= 3.0), "{point}");
    }
    let [named, tcp] = ["named 9 1.4", "tcp 9 1.4"].map(|point| &points[point]);
    for metric in ["requests", "share"] {
        assert!(named[metric] < tcp[metric], "{metric}: {named:?} {tcp:?}");
    }
}
