//! The reference of all metrics, `docs/metrics.md`. Each program's tests compare one section of it
//! with what the program exports. `WEIR_WRITE_METRICS=1` writes the section.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use weir_base::Exposition;

/// One metric as it is exported.
#[derive(Debug, Default)]
struct Metric {
    kind: String,
    help: String,
    /// The names of the labels, in the order of the first sample.
    labels: Vec<String>,
}

/// Compares one section of the reference with the metrics in `open_metrics`. Metrics in `hidden`
/// belong to another section. Also runs `promtool check metrics`, if it is installed.
///
/// # Panics
/// The section differs, or promtool finds a fault.
pub fn check(section: &str, open_metrics: &str, hidden: &[&str]) {
    let text = Exposition::Text.of(open_metrics.to_owned());
    let mut rows = String::from("\n| metric | type | labels | meaning |\n|---|---|---|---|\n");
    for (name, metric) in metrics_of(&text) {
        if hidden.iter().any(|prefix| name.starts_with(prefix)) {
            continue;
        }
        assert!(!metric.help.is_empty(), "{name} has no help");
        let labels = metric.labels.iter().map(|label| format!("`{label}`"));
        let labels = labels.collect::<Vec<_>>().join(", ");
        let help = metric.help.replace('|', "\\|");
        let _ = writeln!(rows, "| `{name}` | {} | {labels} | {help} |", metric.kind);
    }
    rows.push('\n');
    compare(section, &rows);
    run_promtool(&text);
}

/// All metrics of a text in format 0.0.4, by name.
fn metrics_of(text: &str) -> BTreeMap<String, Metric> {
    let mut metrics: BTreeMap<String, Metric> = BTreeMap::new();
    for line in text.lines() {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|row| row.split_once(' '))
        {
            let help = help.trim_end_matches('.').to_owned();
            metrics.entry(name.to_owned()).or_default().help = help;
        } else if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|row| row.split_once(' '))
        {
            metrics.entry(name.to_owned()).or_default().kind = kind.to_owned();
        } else if let Some((name, labels)) = line.split_once('{') {
            // The samples of a histogram have the suffix `_bucket` and the label `le`.
            let name = name.strip_suffix("_bucket").unwrap_or(name);
            let names = labels.split("\",").filter_map(|label| label.split_once("=\""));
            let names = names.map(|(label, _)| label.to_owned()).filter(|label| label != "le");
            let metric = metrics.entry(name.to_owned()).or_default();
            if metric.labels.is_empty() {
                metric.labels = names.collect();
            }
        }
    }
    metrics
}

fn page() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md")
}

/// Compares or writes the lines between the two comments that mark a section.
///
/// # Panics
/// They differ.
pub fn compare(section: &str, rows: &str) {
    let path = page();
    let page = fs::read_to_string(&path).expect("docs/metrics.md");
    let begin = format!("<!-- begin: {section} -->\n");
    let end = format!("<!-- end: {section} -->");
    let (before, rest) = page.split_once(&begin).unwrap_or_else(|| panic!("no {begin}"));
    let (present, after) = rest.split_once(&end).unwrap_or_else(|| panic!("no {end}"));
    if std::env::var_os("WEIR_WRITE_METRICS").is_some_and(|value| value == "1") {
        fs::write(&path, format!("{before}{begin}{rows}{end}{after}")).expect("docs/metrics.md");
        return;
    }
    let differs = present.lines().zip(rows.lines()).find(|(old, new)| old != new);
    assert!(
        present == rows,
        "docs/metrics.md, section {section}, is not what the program exports (run the tests with \
         WEIR_WRITE_METRICS=1 to write it): {differs:?}\n{rows}"
    );
}

/// Runs `promtool check metrics`, which must print nothing.
fn run_promtool(text: &str) {
    let started = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut promtool) = started else {
        let words = "no program `promtool` (Debian's package `prometheus`): the form of metrics is \
                     NOT tested\n";
        let _ = std::io::stderr().write_all(words.as_bytes());
        return;
    };
    let mut input = promtool.stdin.take().expect("a pipe");
    input.write_all(text.as_bytes()).expect("promtool reads");
    drop(input);
    let output = promtool.wait_with_output().expect("promtool ends");
    let found = [output.stdout, output.stderr].concat();
    let found = String::from_utf8_lossy(&found);
    assert!(output.status.success() && found.is_empty(), "promtool: {found}\n{text}");
}
