//! `beside_tcp` as a process: the smallest run that it can make.

use std::process::Command;

use serde_json::Value;

/// Asks for a table of the right shape, and for nothing of what a busy machine changes.
#[test]
fn transfers_of_ndn_and_tcp_share_a_link() {
    let words = "--pipelines weir --tcp cubic --repetitions 1 --jobs 1 --offset 200ms \
                 --warm-up 300ms --time 700ms --json";
    let output = Command::new(env!("CARGO_BIN_EXE_beside_tcp"))
        .args(words.split_whitespace())
        .env("WEIR_BIN", weir_tests::weir_binary())
        .output()
        .expect("it starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(3) {
        assert!(errors.contains("not allowed here"), "{errors}");
        println!("skipped: {errors}");
        return;
    }
    assert!(output.status.success(), "{errors}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let pairs = report["pairs"].as_array().expect("pairs");
    let names: Vec<(&str, &str)> = pairs
        .iter()
        .map(|pair| (pair["first"].as_str().expect("text"), pair["second"].as_str().expect("text")))
        .collect();
    let (weir, tcp, nothing) = ("weir", "TCP cubic", "nothing");
    assert_eq!(names, [(weir, nothing), (tcp, nothing), (weir, tcp), (tcp, weir), (tcp, tcp)]);
    for pair in pairs {
        let run = &pair["runs"][0];
        let mbps = [0, 1].map(|index| run["mbps"][index].as_f64().expect("a number"));
        // The link is 40 Mbit/s, and a frame may have begun before the window.
        assert!(mbps.iter().all(|&mbps| mbps >= 0.0) && mbps[0] + mbps[1] < 40.1, "{pair}");
        // What was not judged has no median.
        assert_eq!(pair["first_mbps"].is_null(), run["is_judged"] == false, "{pair}");
    }
}
