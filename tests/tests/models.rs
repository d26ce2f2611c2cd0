//! `weir model` from the command line.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use weir_tests::weir_binary;

/// Table 5 of paper ccnx-measurement.
const TABLE_5: &str = "A,B,C,D,y
-1,-1,-1,-1,25\n1,-1,-1,-1,27\n-1,1,-1,-1,21\n1,1,-1,-1,18
-1,-1,1,-1,97\n1,-1,1,-1,103\n-1,1,1,-1,46\n1,1,1,-1,48
-1,-1,-1,1,26\n1,-1,-1,1,24\n-1,1,-1,1,15\n1,1,-1,1,13
-1,-1,1,1,61\n1,-1,1,1,59\n-1,1,1,1,31\n1,1,1,1,28\n";

fn model(arguments: &[&str]) -> Output {
    Command::new(weir_binary()).arg("model").args(arguments).output().expect("weir starts")
}

fn text(arguments: &[&str]) -> String {
    let output = model(arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&text(arguments)).expect("JSON")
}

fn refused(arguments: &[&str]) -> String {
    let output = model(arguments);
    assert!(!output.status.success() && output.stdout.is_empty(), "{arguments:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn write(folder: &Path, name: &str, content: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, content).expect("file");
    path.to_string_lossy().into_owned()
}

#[test]
fn three_methods_print_the_same_object() {
    let base = ["nqueue", "--queues", "3", "--threshold", "2", "--load", "2", "--json"];
    let with = |method: &str| json(&[&base[..], &["--method", method]].concat());
    let renewal = json(&base);
    let keys: Vec<&String> = renewal.as_object().expect("object").keys().collect();
    assert_eq!(keys.len(), 4, "{keys:?}");
    assert_eq!(renewal["queues"].as_array().map(Vec::len), Some(3));
    assert_eq!(renewal["queues"][0].as_object().map(serde_json::Map::len), Some(3));
    let (chain, simulated) = (with("chain"), with("simulate"));
    for key in ["loss", "packets", "utilisation"] {
        let exact = renewal[key].as_f64().expect("number");
        assert!((chain[key].as_f64().expect("number") - exact).abs() < 1e-12, "{key}");
        assert!((simulated[key].as_f64().expect("number") - exact).abs() < 0.01, "{key}");
        assert!(simulated["half_widths"][key].as_f64().expect("number") > 0.0, "{key}");
    }
}

#[test]
fn factorial_reproduces_published_table() {
    let folder = tempfile::tempdir().expect("folder");
    let file = write(folder.path(), "runs.csv", TABLE_5);
    let analysis = json(&["factorial", &file, "--json"]);
    let first = &analysis["effects"][0];
    assert_eq!(first["effect"], "C");
    assert!((first["variation_percent"].as_f64().expect("number") - 50.7).abs() < 0.05);
    let broken = write(folder.path(), "broken.csv", "A,y\n-1,3\n1,x\n");
    let message = refused(&["factorial", &broken]);
    assert!(message.contains("broken.csv: line 3: y is `x`"), "{message}");
}

#[test]
fn pipelines_and_paths_print_tables_and_objects() {
    let pipeline =
        ["pipeline", "--rates", "4700,4700,4000,4000,4000", "--arrivals", "3000", "--sweep"];
    assert!(text(&pipeline).contains("bottleneck: 1 store, Interests"));
    let report = json(&[&pipeline[..], &["--json"]].concat());
    assert_eq!(report["bottleneck"], "store_read");
    assert_eq!(report["sweep"].as_array().map(Vec::len), Some(21));
    let paths = ["multipath", "--segments", "100", "--path", "10,5", "--path", "10,5"];
    assert!(text(&paths).contains("multipath: simulated"));
    let report = json(&[&paths[..], &["--json"]].concat());
    assert_eq!(report["formulas"]["default_ns"], 1e9);
    let simulated = report["simulation"]["total_ns"].as_f64().expect("number");
    assert!(simulated > report["formulas"]["multipath_ns"].as_f64().expect("number"));
}

#[test]
fn figures_and_diagrams_are_written() {
    let folder = tempfile::tempdir().expect("folder");
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let size =
        |name: &str| std::fs::metadata(folder.path().join(name)).map_or(0, |file| file.len());
    let small = ["nqueue", "--queues", "2", "--threshold", "2", "--diagram"];
    for name in ["d.dot", "d.svg", "d.png"] {
        text(&[&small[..], &[path(name).as_str()]].concat());
        assert!(size(name) > 500, "{name}");
    }
    text(&["nqueue", "--plot", &path("nine.svg"), "--cases", "mm1-drop-2,bypass-2*2"]);
    text(&["pipeline", "--rates", "1,2,3,4,5", "--plot", &path("limits.csv")]);
    assert!(size("nine.svg") > 2000 && size("limits.csv") > 2000);
}

#[test]
fn refuses_bad_arguments_with_advice() {
    let of = |queues, load, more: &[&'static str]| {
        let base = ["nqueue", "--queues", queues, "--threshold", "9", "--load", load];
        refused(&[&base[..], more].concat())
    };
    assert!(of("0", "1", &[]).contains("a model of 0 queues: give 1"));
    assert!(of("2", "-1", &[]).contains("a load of -1: give"));
    let large = of("20", "1", &["--method", "chain"]);
    assert!(large.contains("10^20") && large.contains("use the renewal method"), "{large}");
    assert!(refused(&["pipeline", "--rates", "1,2"]).contains("2 numbers; it needs five"));
    let hit = refused(&["pipeline", "--rates", "1,2,3,4,5", "--store-hit", "1.5"]);
    assert!(hit.contains("alpha is 1.5: give a probability between 0 and 1"), "{hit}");
    assert!(refused(&["multipath", "--path", "10,0"]).contains("pipeline depth of 0"));
}
