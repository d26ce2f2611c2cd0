//! The dashboards and alerts in `docs/monitoring` use only metrics of the reference, and each alert
//! has a runbook.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

fn docs(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(path)
}

fn read(path: &str) -> String {
    let path = docs(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The names of metrics that the reference lists. A histogram has three series.
fn known_metrics() -> BTreeSet<String> {
    let page = read("metrics.md");
    let (tables, _) = page.split_once("## Names that changed").expect("the last section");
    let mut known = BTreeSet::from(["up".to_owned()]);
    for line in tables.lines().filter_map(|line| line.strip_prefix("| `")) {
        let (name, rest) = line.split_once("` | ").expect("a name and a type");
        if rest.starts_with("histogram") {
            known.extend(["_bucket", "_sum", "_count"].map(|suffix| format!("{name}{suffix}")));
        } else {
            known.insert(name.to_owned());
        }
    }
    assert!(known.len() > 100, "{known:?}");
    known
}

/// The words of an expression that begin like a metric of Weir. Words in quotation marks are values
/// of labels.
fn metrics_in(expression: &str) -> BTreeSet<String> {
    let outside = expression.split('"').step_by(2);
    let words =
        outside.flat_map(|part| part.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'));
    let is_metric = |word: &&str| word.starts_with("weir_") || word.starts_with("process_");
    words.filter(is_metric).map(str::to_owned).collect()
}

fn assert_known(source: &str, expression: &str) {
    let unknown: Vec<String> =
        metrics_in(expression).difference(&known_metrics()).cloned().collect();
    assert!(unknown.is_empty(), "{source}: {unknown:?} are not in docs/metrics.md: {expression}");
}

#[test]
fn dashboards_use_existing_metrics() {
    for name in ["router.json", "controller.json"] {
        let dashboard: Value = serde_json::from_str(&read(&format!("monitoring/{name}"))).unwrap();
        let panels = dashboard["panels"].as_array().expect("panels");
        assert!(panels.len() >= 10, "{name}");
        let mut numbers = BTreeSet::new();
        for panel in panels {
            let title = panel["title"].as_str().expect("a title");
            assert!(numbers.insert(panel["id"].as_u64()), "{name}, {title}: its id is not unique");
            for target in panel["targets"].as_array().expect("targets") {
                let expression = target["expr"].as_str().expect("an expression");
                assert!(!metrics_in(expression).is_empty(), "{name}, {title}: {expression}");
                assert_known(&format!("{name}, {title}"), expression);
            }
        }
    }
}

#[test]
fn alerts_use_existing_metrics_and_have_runbooks() {
    let rules = read("monitoring/weir.rules.yml");
    let tests = read("monitoring/weir.rules.test.yml");
    let runbooks = read("runbooks.md");
    let alerts: Vec<&str> = rules.split("      - alert: ").skip(1).collect();
    assert!(alerts.len() >= 15, "{}", alerts.len());
    for alert in &alerts {
        let name = alert.lines().next().expect("a name");
        let (_, expression) = alert.split_once("expr:").expect("an expression");
        let (expression, _) = expression.split_once("labels:").expect("labels");
        assert!(!metrics_in(expression).is_empty() || expression.contains("up{"), "{name}");
        assert_known(name, expression);
        let anchor = format!("docs/runbooks.md#{}\n", name.to_lowercase());
        assert!(alert.contains(&anchor), "{name} does not link to {anchor}");
        assert!(runbooks.contains(&format!("\n## {name}\n")), "{name} has no runbook");
        assert!(tests.contains(&format!("alertname: {name}\n")), "{name} has no test");
    }
    let sections = runbooks.lines().filter(|line| line.starts_with("## ")).count();
    assert_eq!(sections, alerts.len(), "each runbook has an alert");
}

#[test]
fn promtool_accepts_and_tests_the_alerts() {
    for words in [["check", "rules", "weir.rules.yml"], ["test", "rules", "weir.rules.test.yml"]] {
        let output = Command::new("promtool").args(words).current_dir(docs("monitoring")).output();
        let Ok(output) = output else {
            let words = "no program `promtool` (Debian's package `prometheus`): alerts are NOT \
                         tested\n";
            let _ = std::io::stderr().write_all(words.as_bytes());
            return;
        };
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {text}{errors}");
    }
}
