//! Comparisons with other protocols: TCP by iperf3, HTTPS by nginx and curl. The script
//! `lab/socket-api/comparison.py` runs these programs. If one is missing, the record says what to
//! install.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{from_str, json};
use weir_scenario::trial::{Trial, TrialKind};

use super::super::RealError;
use super::processes::{ProcessGroup, find, write};
use super::report::TrialReport;

const SCRIPT: &str = include_str!("../../../socket-api/comparison.py");
/// The measures of the script.
const MEASURES: [&str; 2] = ["goodput", "fairness"];

/// The output of the script.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Answer {
    samples: BTreeMap<String, Vec<f64>>,
    missing: Option<String>,
}

pub(super) fn measure(
    trial: &Trial,
    group: &mut ProcessGroup<'_>,
) -> Result<TrialReport, RealError> {
    let Some(python) = find("python3") else {
        return Ok(TrialReport::missing("python3 is not installed here; install python3"));
    };
    write(&group.dir().join("comparison.py"), SCRIPT.as_bytes())?;
    let id = group.program(&python, &["comparison.py", &arguments(trial)])?;
    let (text, is_done) = group.output(id)?;
    match from_str::<Answer>(&text) {
        Ok(answer) if is_done => Ok(report(answer)),
        _ => Err(group.failure(id, "gave no result")),
    }
}

fn arguments(trial: &Trial) -> String {
    json!({
        "what": if trial.what == TrialKind::Tcp { "tcp" } else { "https" },
        "size": trial.size.bytes,
        "transfers": trial.transfers,
        "mtu": trial.mtu,
        "offload": trial.offload,
    })
    .to_string()
}

fn report(answer: Answer) -> TrialReport {
    let samples = |measure| Some((measure, answer.samples.get(measure)?.clone()));
    let samples = MEASURES.into_iter().filter_map(samples).collect();
    TrialReport { samples, missing: answer.missing }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;
    use std::process::{Command, Output};

    const SHELL: &str = "#!/bin/sh\n";

    /// Fake versions of the programs that the script runs, with a folder for their files.
    struct FakePrograms(tempfile::TempDir);

    impl FakePrograms {
        fn new(programs: &[(&str, &str)]) -> Self {
            let folder = tempfile::tempdir().expect("a folder");
            std::fs::create_dir(folder.path().join("bin")).expect("a folder");
            for (name, text) in programs {
                let path = folder.path().join("bin").join(name);
                std::fs::write(&path, text).expect("a file");
                let mode = std::fs::Permissions::from_mode(0o755);
                std::fs::set_permissions(&path, mode).expect("it may be executed");
            }
            Self(folder)
        }

        fn run(&self, what: &str) -> Output {
            let path = format!("{}:/usr/bin:/bin", self.0.path().join("bin").display());
            let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../socket-api/comparison.py");
            let trial = json!({
                "what": what, "size": 1000, "transfers": 2, "mtu": 1500, "offload": false,
            });
            Command::new("python3")
                .arg(script)
                .arg(trial.to_string())
                .current_dir(self.0.path())
                .env("PATH", path)
                .output()
                .expect("python3")
        }

        fn answer(&self, what: &str) -> TrialReport {
            let output = self.run(what);
            assert!(output.status.success(), "{output:?}");
            report(serde_json::from_slice(&output.stdout).expect("JSON"))
        }
    }

    /// Listens on the port of its configuration, and copies the file that it serves to `served`.
    const NGINX: &str = r#"#!/usr/bin/env python3
import re, socket, sys, time
text = open(sys.argv[sys.argv.index("-c") + 1]).read()
server = socket.create_server(("127.0.0.1", int(re.search(r"listen 127.0.0.1:(\d+) ssl", text)[1])))
open("served", "wb").write(open("www/content", "rb").read())
time.sleep(60)
"#;

    /// A fake curl. The first transfer takes 1 ms and creates `got`, the second takes 2 ms.
    fn curl(size: u32) -> String {
        format!(
            "{SHELL}echo \"$@\" >>curl.log\n\
             mkdir got 2>/dev/null && time=0.001 || time=0.002\n\
             echo '{{\"time_total\":'$time',\"size_download\":{size}}}'\n"
        )
    }

    #[test]
    fn tcp_runs_in_its_own_namespace() {
        let iperf = "[ \"$1\" = --server ] && exit 0\n\
                     echo '{\"end\":{\"sum_received\":{\"bits_per_second\":5e9}}}'\n";
        let log = format!("{SHELL}echo \"$0 $@\" >>calls.log\n");
        let programs = FakePrograms::new(&[
            ("unshare", &format!("{log}while [ \"$1\" != sh ]; do shift; done\nexec \"$@\"\n")),
            ("ip", &log),
            ("ethtool", &log),
            ("iperf3", &format!("{log}{iperf}")),
        ]);
        let report = programs.answer("tcp");
        assert_eq!(report.samples["goodput"], [5e9]);
        let calls = std::fs::read_to_string(programs.0.path().join("calls.log")).expect("calls");
        for call in [
            "unshare --map-root-user --net --pid --fork --kill-child sh -c",
            "ip link set lo up mtu 1500",
            "ethtool -K lo tso off gso off gro off",
            "iperf3 --client 127.0.0.1 --bytes 1000 --json",
        ] {
            assert!(calls.contains(call), "{call}: {calls}");
        }
    }

    #[test]
    fn denied_namespace_is_reported_as_missing() {
        let refused = format!("{SHELL}echo refused >&2\nexit 1\n");
        let other = ["ip", "ethtool", "iperf3"].map(|name| (name, SHELL));
        let programs = FakePrograms::new(&[&[("unshare", &refused[..])], &other[..]].concat());
        let missing = programs.answer("tcp").missing.expect("a reason");
        assert!(missing.contains("(refused); user namespaces, or root, are needed"), "{missing}");
    }

    #[test]
    fn transfers_by_https_are_added_and_compared() {
        let programs =
            FakePrograms::new(&[("nginx", NGINX), ("curl", &curl(1000)), ("openssl", SHELL)]);
        let report = programs.answer("https");
        // 1000 bytes in 1 ms and in 2 ms: 8 and 4 Mbit/s.
        assert_eq!(report.samples["goodput"], [12e6]);
        assert!((report.samples["fairness"][0] - 0.9).abs() < 1e-9, "{report:?}");
        let served = std::fs::read(programs.0.path().join("served")).expect("content");
        assert_eq!(served.len(), 1000);
        let calls = std::fs::read_to_string(programs.0.path().join("curl.log")).expect("calls");
        assert_eq!(calls.matches("--tlsv1.3").count(), 2, "{calls}");
        assert!(calls.contains("https://localhost:"), "{calls}");
    }

    #[test]
    fn incomplete_file_is_an_error() {
        let programs =
            FakePrograms::new(&[("nginx", NGINX), ("curl", &curl(999)), ("openssl", SHELL)]);
        let output = programs.run("https");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && errors.contains("did not get the file"), "{errors}");
    }

    #[test]
    fn missing_program_names_its_package() {
        let programs = FakePrograms::new(&[("ip", SHELL), ("unshare", SHELL)]);
        let missing = programs.answer("tcp").missing.expect("a reason");
        for program in ["iperf3", "ethtool"] {
            let is_installed = ["/usr/bin", "/usr/sbin", "/bin", "/sbin", "/usr/local/sbin"]
                .iter()
                .any(|folder| Path::new(folder).join(program).exists());
            assert!(is_installed || missing.contains(program), "{missing}");
        }
    }
}
