//! Several networks on one machine, each a network namespace of Linux.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::Host;

/// Makes the namespaces that the other arguments name, then runs the script `$0`. Prints `ready`,
/// and keeps them until standard input ends.
const MAKE_SCRIPT: &str = r#"exec 2>&1
set -e
mount -t tmpfs tmpfs /run
for network in "$@"; do
    ip netns add "$network"
    ip -n "$network" link set lo up
done
eval "$0"
echo ready
exec cat"#;

/// Network namespaces in a private mount namespace. They are removed on drop.
#[derive(Debug)]
pub struct Networks {
    holder: Child,
    /// Closing it ends the holder.
    _stdin: ChildStdin,
    is_root: bool,
}

impl Networks {
    /// Makes networks with these names, and runs a shell script that configures them, with
    /// `ip -n NAME`. Returns `None` and prints the reason if that is not possible.
    ///
    /// # Panics
    /// If reading the output of the script fails.
    pub fn make(names: &[&str], script: &str) -> Option<Self> {
        let is_root = nix::unistd::geteuid().is_root();
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "--net"]);
        if !is_root {
            unshare.args(["--user", "--map-root-user"]);
        }
        unshare.args(["sh", "-c", MAKE_SCRIPT, script]).args(names);
        let started = unshare.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut holder = match started {
            Ok(holder) => holder,
            Err(error) => {
                eprintln!("NOT tested with several networks: unshare does not start: {error}");
                return None;
            }
        };
        let stdin = holder.stdin.take().expect("standard input is piped");
        let mut lines = BufReader::new(holder.stdout.take().expect("output is piped")).lines();
        let mut log = String::new();
        loop {
            match lines.next().map(|line| line.expect("the output of the script")) {
                Some(line) if line == "ready" => break,
                Some(line) => log += &format!("{line}\n"),
                None => {
                    eprintln!("NOT tested with several networks: they cannot be made here: {log}");
                    let _ = holder.wait();
                    return None;
                }
            }
        }
        Some(Self { holder, _stdin: stdin, is_root })
    }

    /// `program` in a network, otherwise as [`Host::command`].
    pub fn command(&self, host: &Host, network: &str, program: &Path) -> Command {
        let mut command = host.command(Path::new("nsenter"));
        if !self.is_root {
            command.args(["--user", "--preserve-credentials"]);
        }
        let folder = host.path("");
        command.args(["--mount", "--target", &self.holder.id().to_string(), "nsenter"]);
        command.arg(format!("--net=/run/netns/{network}"));
        command.args(["sh", "-c", r#"cd "$0" && exec "$@""#]).arg(folder).arg(program);
        command
    }

    /// Runs a shell script in a network, and returns its output.
    ///
    /// # Panics
    /// If it fails.
    pub fn shell(&self, host: &Host, network: &str, script: &str) -> String {
        let mut command = self.command(host, network, Path::new("sh"));
        let output = command.args(["-c", script]).output().expect("nsenter starts");
        assert!(output.status.success(), "{script}: {output:?}");
        String::from_utf8(output.stdout).expect("UTF-8")
    }
}

impl Drop for Networks {
    fn drop(&mut self) {
        // Fails only if the process has already ended.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}
