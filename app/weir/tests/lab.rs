//! `weir lab` from the command line: exit codes, JSON output and files.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn weir(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weir"))
        .current_dir(folder)
        .arg("lab")
        .args(arguments)
        .output()
        .expect("started")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The JSON output of a successful run.
fn object(folder: &Path, arguments: &[&str]) -> Value {
    let output = weir(folder, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn runs_a_scenario_and_rewrites_its_report() {
    let folder = tempfile::tempdir().expect("folder");
    let line = ["run", "examples/line", "--smoke", "--seed", "3", "--json"];
    let ran = object(folder.path(), &line);
    assert_eq!(ran["scenario"], "line");
    assert_eq!(ran["seeds"], serde_json::json!([3]));
    assert_eq!(ran["points"].as_array().expect("points").len(), 3);
    assert!(ran["points"][0]["metrics"]["goodput"]["mean"].as_f64().expect("a number") > 1e6);
    assert_ne!(ran["commit"], "");
    let out = ran["out"].as_str().expect("a folder");
    assert_eq!(out, "lab-results/other/line-smoke-seed3");
    let report = folder.path().join(out).join("report.html");
    let page = std::fs::read_to_string(&report).expect("a page");
    assert!(page.contains("weir lab run examples/line --smoke"));
    std::fs::remove_file(&report).expect("removed");
    let again = object(folder.path(), &["report", out, "--json"]);
    assert_eq!(again["points"], ran["points"]);
    assert!(report.is_file());
    let again = weir(folder.path(), &line);
    assert!(text(&again.stderr).contains("3 runs already done"), "{}", text(&again.stderr));
}

#[test]
fn writes_events_on_request() {
    let folder = tempfile::tempdir().expect("folder");
    let line = ["run", "examples/line", "--smoke", "--seed", "1", "--out", "o", "--events"];
    assert!(weir(folder.path(), &line).status.success());
    let events =
        std::fs::read_to_string(folder.path().join("o/events/00000-1.csv")).expect("events");
    assert!(events.starts_with("at_ns,node,event,"));
    assert!(events.lines().any(|line| line.contains(",consumer,data-received,")));
}

#[test]
fn bad_input_exits_with_2_and_runs_nothing() {
    let folder = tempfile::tempdir().expect("folder");
    std::fs::write(folder.path().join("bad.toml"), "[scenario]\nid = \"x\"\ntitel = \"y\"\n")
        .expect("written");
    for (arguments, expected) in [
        (&["run", "bad.toml"][..], "bad.toml:3: scenario: unknown key `titel`"),
        (&["run", "examples/lin"], "did you mean `examples/line`?"),
        (&["run", "examples/tree", "--arm", "real"], "has no arm \"real\""),
        (&["run", "examples/tree", "--part", "3/2"], "1 <= K <= N"),
        (&["reproduce", "nb-cash"], "did you mean `nb-cache`?"),
        (&["report", "nowhere"], "nowhere has no results"),
        (&["draw", "geant", "-o", "g.gif"], "must end in .svg or .png"),
    ] {
        let output = weir(folder.path(), arguments);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
    assert!(!folder.path().join("lab-results").exists());
}

#[test]
fn unexplained_difference_exits_with_3() {
    let folder = tempfile::tempdir().expect("folder");
    let paper = folder.path().join("paper");
    std::fs::create_dir(&paper).expect("made");
    // Erlang's formula: two servers without a queue lose 1/5 at load 1.
    let claims = |band: &str| {
        format!(
            "paper = \"p\"\n[[claim]]\nid = \"loss\"\nfigure = \"Eq. 11\"\nmetric = \"lost\"\n\
             measure = \"nqueue_loss(2, 1, 1)\"\nband = {band}\nband_reason = \"exact\"\n"
        )
    };
    let marks = "<!-- verdicts: written by `weir lab reproduce --record` -->\n\
                 <!-- end of verdicts -->\n";
    std::fs::write(paper.join("README.md"), marks).expect("written");
    std::fs::write(paper.join("claims.toml"), claims("[0.1999, 0.2001]")).expect("written");
    let found = object(folder.path(), &["reproduce", "paper", "--record", "--json"]);
    let claim = &found["claims"][0];
    assert_eq!(claim["verdict"], "reproduced");
    for key in ["id", "figure", "paper", "band", "measured", "interval", "verdict", "cause"] {
        assert!(claim.get(key).is_some(), "{key}");
    }
    let kept = std::fs::read_to_string(paper.join("expected/full.json")).expect("recorded");
    assert!(kept.contains("\"commit\""), "{kept}");
    let readme = std::fs::read_to_string(paper.join("README.md")).expect("there");
    assert!(readme.contains("| Eq. 11 | lost |"), "{readme}");
    std::fs::write(paper.join("claims.toml"), claims("[0.3, 0.4]")).expect("written");
    let output = weir(folder.path(), &["reproduce", "paper"]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("loss"));
    let output = weir(folder.path(), &["reproduce", "nb-cache", "--scenario", "fig61"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("did you mean `fig16`?"), "{}", text(&output.stderr));
}

#[test]
fn writes_job_files_and_drawings() {
    let folder = tempfile::tempdir().expect("folder");
    let job =
        ["run", "examples/tree", "--smoke", "--job", "slurm", "--parts", "4", "--out", "jobs"];
    assert!(weir(folder.path(), &job).status.success());
    let script = std::fs::read_to_string(folder.path().join("jobs/tree.sbatch")).expect("a script");
    assert!(script.contains("weir lab run examples/tree --smoke"));
    assert!(script.contains("--array=1-4"));
    let all: Vec<&str> = "--router-cores 0,2 --app-cores 1 --jobs 2 --events --seed 7"
        .split(' ')
        .chain(job[1..].iter().copied())
        .collect();
    assert!(weir(folder.path(), &[&["run"], &all[..]].concat()).status.success());
    let script = std::fs::read_to_string(folder.path().join("jobs/tree.sbatch")).expect("a script");
    for option in ["'--router-cores=0,2'", "--app-cores=1", "--events=csv", "--seed=7"] {
        assert!(script.contains(option), "{option} in {script}");
    }
    assert!(script.contains("--cpus-per-task=2"), "{script}");
    for option in ["--fresh", "--json", "--part=1/2"] {
        let refused = weir(folder.path(), &[&job[..], &[option]].concat());
        assert_eq!(refused.status.code(), Some(2), "{option}: {}", text(&refused.stderr));
    }
    assert!(weir(folder.path(), &["draw", "geant", "-o", "geant.png"]).status.success());
    let picture = std::fs::read(folder.path().join("geant.png")).expect("a picture");
    assert!(picture.starts_with(b"\x89PNG"));
    assert!(weir(folder.path(), &["draw", "examples/tree", "-o", "tree.svg"]).status.success());
    let list = object(folder.path(), &["list", "--json"]);
    assert!(list.as_array().expect("a list").iter().any(|row| row["scenario"] == "nb-cache/fig2"));
}
