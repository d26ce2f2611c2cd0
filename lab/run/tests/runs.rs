//! Runs small scenarios in the simulator. Equal seeds give equal records, interrupted runs resume,
//! merged parts equal one run, and papers give the expected verdicts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use weir_run::{
    ClaimResult, PaperOptions, PaperSession, Program, Progress, RecordError, RunError, RunOptions,
    Session, SessionError, SessionOptions, merge,
};
use weir_scenario::{Arm, Size};

fn program(commit: &str) -> Program {
    Program {
        version: "0".into(),
        commit: commit.into(),
        command: "test".into(),
        date: "2026-01-01 00:00:00".into(),
        machine: "test".into(),
    }
}

fn order(reference: &str, out: &Path) -> SessionOptions {
    SessionOptions {
        reference: reference.into(),
        size: Size::Smoke,
        seed: None,
        arm: None,
        out: Some(out.to_path_buf()),
    }
}

fn session(reference: &str, out: &Path) -> Session {
    Session::new(&order(reference, out), &program("c")).unwrap_or_else(|error| panic!("{error}"))
}

/// Every record, byte for byte.
fn records(out: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(out.join("tasks")).expect("records");
    let record = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        (name, std::fs::read(&path).expect("readable"))
    };
    entries.map(record).collect()
}

fn run(session: &Session, options: &RunOptions) -> (usize, usize) {
    let (tasks, resumed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let on_progress = |progress: Progress| {
        if let Progress::Started { tasks: t, resumed: r } = progress {
            tasks.store(t, Ordering::Relaxed);
            resumed.store(r, Ordering::Relaxed);
        }
    };
    session.run(options, &on_progress).unwrap_or_else(|error| panic!("{error}"));
    (tasks.into_inner(), resumed.into_inner())
}

const TREE: &str = "examples/tree";

#[test]
fn records_do_not_depend_on_task_order() {
    let (a, b) = (tempfile::tempdir().expect("a"), tempfile::tempdir().expect("b"));
    run(&session(TREE, a.path()), &RunOptions { jobs: Some(1), ..RunOptions::default() });
    run(&session(TREE, b.path()), &RunOptions { jobs: Some(4), ..RunOptions::default() });
    let records = records(a.path());
    assert_eq!(records.len(), 8, "4 points, 2 seeds");
    assert!(records == self::records(b.path()));
    assert_ne!(records["00000-1.json"], records["00000-2.json"]);
    let text = String::from_utf8_lossy(&records["00000-1.json"]).into_owned();
    assert!(text.contains("event_hash"), "{text}");
}

#[test]
fn interrupted_run_resumes() {
    let (whole, cut) = (tempfile::tempdir().expect("a"), tempfile::tempdir().expect("b"));
    run(&session(TREE, whole.path()), &RunOptions::default());
    let options = RunOptions { jobs: Some(1), ..RunOptions::default() };
    let first = session(TREE, cut.path());
    let done = AtomicUsize::new(0);
    let stop_after_three = |progress: Progress| {
        if matches!(progress, Progress::Finished { .. })
            && done.fetch_add(1, Ordering::Relaxed) == 2
        {
            options.stop.store(true, Ordering::Relaxed);
        }
    };
    let stopped = first.run(&options, &stop_after_three);
    assert!(matches!(stopped, Err(SessionError::Run(RunError::Interrupted))), "{stopped:?}");
    assert_eq!(records(cut.path()).len(), 3);
    let outcome = first.report().expect("a report of an incomplete run");
    assert_eq!(outcome.runs, (3, 8));
    let html = std::fs::read_to_string(&outcome.report).expect("a page");
    assert!(html.contains("3 of 8 runs are complete"));
    let kept = std::fs::metadata(cut.path().join("tasks/00000-1.json")).expect("there");
    assert_eq!(run(&session(TREE, cut.path()), &RunOptions::default()), (5, 3));
    let still = std::fs::metadata(cut.path().join("tasks/00000-1.json")).expect("there");
    assert_eq!(kept.modified().expect("a time"), still.modified().expect("a time"));
    assert!(records(whole.path()) == records(cut.path()));
}

#[test]
fn foreign_results_are_not_resumed() {
    let out = tempfile::tempdir().expect("folder");
    run(&session("examples/line", out.path()), &RunOptions::default());
    let refused = |session: Session| match session.run(&RunOptions::default(), &|_| ()) {
        Err(SessionError::Record(RecordError::DifferentRun { difference, .. })) => difference,
        other => panic!("{other:?}"),
    };
    let newer = Session::new(&order("examples/line", out.path()), &program("d")).expect("right");
    assert!(refused(newer).contains("another commit"));
    assert!(refused(session("examples/star", out.path())).contains("another scenario"));
    let one = SessionOptions { seed: Some(9), ..order("examples/line", out.path()) };
    assert!(refused(Session::new(&one, &program("c")).expect("right")).contains("other seeds"));
    let fresh = RunOptions { fresh: true, ..RunOptions::default() };
    let newer = Session::new(&order("examples/line", out.path()), &program("d")).expect("right");
    assert_eq!(run(&newer, &fresh), (6, 0));
}

#[test]
fn merged_parts_equal_the_whole_run() {
    let folder = tempfile::tempdir().expect("folder");
    let whole = folder.path().join("whole");
    run(&session(TREE, &whole), &RunOptions::default());
    let parts: Vec<PathBuf> = (1..=3)
        .map(|part| {
            let out = folder.path().join(format!("part-{part}"));
            run(
                &session(TREE, &out),
                &RunOptions { part: Some((part, 3)), ..RunOptions::default() },
            );
            out
        })
        .collect();
    assert_eq!(records(&parts[0]).len(), 3);
    assert_eq!(records(&parts[2]).len(), 2);
    let elapsed_s = |folder: &Path| {
        let text = std::fs::read_to_string(folder.join("run.json")).expect("run.json");
        let run: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        run["elapsed_s"].as_f64().expect("a number")
    };
    let all_s: f64 = parts.iter().map(|part| elapsed_s(part)).sum();
    let merged = merge(&parts, &program("c")).unwrap_or_else(|error| panic!("{error}"));
    assert!((elapsed_s(&parts[0]) - all_s).abs() < 1e-9);
    merge(&parts, &program("c")).unwrap_or_else(|error| panic!("{error}"));
    assert!((elapsed_s(&parts[0]) - all_s).abs() < 1e-9, "the time was added twice");
    let merged = merged.report().expect("a report");
    assert_eq!(merged.runs, (8, 8));
    assert!(records(&whole) == records(&parts[0]));
    session(TREE, &whole).report().expect("a report");
    for file in ["metrics.csv", "summary.csv", "figures/hit-ratio.csv", "figures/rtt.svg"] {
        let read = |folder: &Path| std::fs::read(folder.join(file)).expect(file);
        assert!(read(&whole) == read(&parts[0]), "{file} differs");
    }
    let other = folder.path().join("other");
    run(&session("examples/line", &other), &RunOptions::default());
    let mixed = merge(&[parts[0].clone(), other], &program("c"));
    assert!(mixed.is_err(), "results of two scenarios were merged");
    assert!(merge(&[folder.path().join("none")], &program("c")).is_err());
}

#[test]
fn tree_caches_serve_hits() {
    let out = tempfile::tempdir().expect("folder");
    let session = session(TREE, out.path());
    run(&session, &RunOptions::default());
    let outcome = session.report().expect("a report");
    let hits = |capacity: &str, exponent: &str| {
        let wanted = [("capacity", capacity), ("exponent", exponent)]
            .map(|(axis, label)| (axis.to_owned(), label.to_owned()));
        let point = outcome.points.iter().find(|point| point.coordinates == wanted);
        point.expect("the point").metrics["hit_ratio"].expect("measured").mean
    };
    assert!(hits("500", "0.6") > hits("50", "0.6"), "larger stores hit more");
    assert!(hits("50", "1") > hits("50", "0.6"), "steeper popularity hits more");
    for file in ["report.html", "metrics.csv", "figures/hit-ratio.png", "scenario.toml"] {
        let length = std::fs::metadata(out.path().join(file)).expect(file).len();
        assert!(length > 100, "{file} has {length} bytes");
    }
}

#[test]
fn a_lossless_line_delivers_everything() {
    let out = tempfile::tempdir().expect("folder");
    let session = session("examples/line", out.path());
    run(&session, &RunOptions::default());
    let outcome = session.report().expect("a report");
    for point in &outcome.points {
        let value = |metric: &str| point.metrics[metric].expect("measured").mean;
        let window: f64 = point.coordinates[0].1.parse().expect("a number");
        // Two links of 5 ms each way, or a full link queue.
        assert!(value("rtt") >= 0.02, "{}", value("rtt"));
        let bound = (window * 8_000.0 / 0.02).min(20e6);
        assert!(value("goodput") <= bound, "{} {bound}", value("goodput"));
        assert!(value("goodput") >= 0.6 * bound, "{} {bound}", value("goodput"));
        assert_eq!(value("loss"), 0.0);
    }
}

/// `expected/smoke.json`, as a reader of the file sees it.
#[derive(serde::Deserialize)]
struct RecordedVerdicts {
    claims: Vec<RecordedClaim>,
}

#[derive(serde::Deserialize)]
struct RecordedClaim {
    #[serde(flatten)]
    result: ClaimResult,
    arm: Option<Arm>,
}

#[test]
fn papers_match_expected_smoke_verdicts() {
    let papers = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for paper in weir_scenario::papers() {
        let folder = papers.join(&paper.id);
        if !folder.join("claims.toml").is_file() {
            continue;
        }
        let kept = std::fs::read(folder.join("expected/smoke.json")).unwrap_or_else(|_| {
            panic!("write it: weir lab reproduce lab/{} --smoke --arm sim --record", paper.id)
        });
        let kept: RecordedVerdicts = serde_json::from_slice(&kept).expect("verdicts");
        let out = tempfile::tempdir().expect("folder");
        let order = PaperOptions {
            reference: paper.id.clone(),
            size: Size::Smoke,
            arm: Some(Arm::Sim),
            scenarios: Vec::new(),
            seed: None,
            out: Some(out.path().to_path_buf()),
        };
        let paper = PaperSession::new(&order, &program("c")).expect("claims");
        for session in &paper.sessions {
            run(session, &RunOptions::default());
        }
        let (found, _) = paper.report().expect("a report");
        for (found, kept) in found.claims.iter().zip(&kept.claims) {
            if kept.arm != Some(Arm::Real) {
                assert_eq!(*found, kept.result, "lab/{}/expected/smoke.json", order.reference);
            }
        }
        assert_eq!(found.claims.len(), kept.claims.len());
    }
}
