//! The processes of the demo: two routers, a producer, and one consumer for each fetch.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::Serialize;
use serde_json::Value;

use crate::transfer::Interrupted;

/// How long a process may take to end after SIGTERM.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// The report of one fetch.
pub(super) struct Fetched {
    pub(super) seconds: f64,
    pub(super) interests: u64,
    pub(super) served_by: Vec<Served>,
}

/// The number of segments that one source has sent. The counts of the stores are their cache hits;
/// the producer sent the remaining segments.
#[derive(Serialize)]
pub(super) struct Served {
    /// `store of router 1`, `store of router 2` or `producer`.
    pub(super) source: String,
    pub(super) packets: u64,
}

/// A child process, killed on drop. Its standard error goes to a file that an error message quotes.
struct Process {
    title: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    fn start(title: &str, dir: &Path, command: &mut Command) -> anyhow::Result<Self> {
        let log = dir.join(format!("{}.log", title.replace(' ', "-")));
        let errors = std::fs::File::create(&log)
            .with_context(|| format!("cannot write {}", log.display()))?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(errors);
        // Hold the lock during the spawn: otherwise `stop_all` could miss the new process.
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        ensure!(!running.is_stopped, Interrupted(""));
        let child = command.spawn().with_context(|| format!("cannot start the {title}"))?;
        running.pids.push(child.id());
        Ok(Self { title: title.to_owned(), child, log })
    }

    /// Reads the first line of output, a JSON object that says that the process is ready.
    fn ready(&mut self, output: &mut BufReader<ChildStdout>) -> anyhow::Result<Value> {
        let mut line = String::new();
        output.read_line(&mut line)?;
        serde_json::from_str(&line).map_err(|_| self.failure("did not start"))
    }

    fn failure(&self, what: &str) -> anyhow::Error {
        if RUNNING.lock().unwrap_or_else(PoisonError::into_inner).is_stopped {
            return Interrupted("").into();
        }
        match std::fs::read_to_string(&self.log).unwrap_or_default().trim_end() {
            // The log is empty most likely because it could not be written.
            "" => anyhow::anyhow!(
                "the {} {what} and left no message (is the disk full? see TMPDIR)",
                self.title
            ),
            log => anyhow::anyhow!("the {} {what}:\n{log}", self.title),
        }
    }

    /// Sends SIGTERM and waits for the end.
    fn stop(mut self) -> anyhow::Result<()> {
        kill(Pid::from_raw(self.child.id() as i32), Signal::SIGTERM)
            .with_context(|| format!("cannot stop the {}", self.title))?;
        let deadline = Instant::now() + STOP_TIMEOUT;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait()? {
                ensure!(status.success(), self.failure("failed when it was stopped"));
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        bail!(self.failure("did not stop within 10 s"))
    }
}

/// The child processes that [`stop_all`] kills.
struct Running {
    pids: Vec<u32>,
    is_stopped: bool,
}

static RUNNING: Mutex<Running> = Mutex::new(Running { pids: Vec::new(), is_stopped: false });

/// Kills all child processes and prevents new ones. A thread that waits for a child then continues
/// and cleans up.
pub(super) fn stop_all() {
    let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    running.is_stopped = true;
    for &pid in &running.pids {
        // Fails if the process has already ended.
        let _ = kill(Pid::from_raw(pid as i32), Signal::SIGKILL);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        running.pids.retain(|&pid| pid != self.child.id());
        // Both calls fail only if the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Router {
    process: Process,
    socket: PathBuf,
}

/// Two routers joined by UDP, and a producer at router 1 until it is stopped.
pub(super) struct Network {
    dir: PathBuf,
    routers: [Router; 2],
    producer: Option<Process>,
}

impl Network {
    pub(super) fn start(dir: &Path, store_bytes: u64) -> anyhow::Result<Self> {
        let addresses = [free_udp_address()?, free_udp_address()?];
        let routers = [
            start_router(dir, 1, &addresses[0], store_bytes, "")?,
            // Router 2 sends Interests to router 1, where the producer registers its name.
            start_router(
                dir,
                2,
                &addresses[1],
                store_bytes,
                &format!("[[face]]\nuri = \"udp://{}\"\nroutes = [\"/demo\"]\n", addresses[0]),
            )?,
        ];
        Ok(Self { dir: dir.to_owned(), routers, producer: None })
    }

    /// Starts a producer of `file` at router 1 and returns the name with its version.
    pub(super) fn put(&mut self, file: &Path, name: &str) -> anyhow::Result<String> {
        let mut command = weir(&self.dir, Some(&self.routers[0]))?;
        command.arg("put").arg(file).arg(name).arg("--json");
        let mut producer = Process::start("producer", &self.dir, &mut command)?;
        let mut output = BufReader::new(producer.child.stdout.take().expect("piped"));
        let ready = producer.ready(&mut output)?;
        self.producer = Some(producer);
        let versioned = ready["name"].as_str().context("the producer names no version")?;
        Ok(versioned.to_owned())
    }

    /// Fetches `name` at router 2 into the file `target`.
    pub(super) fn get(&self, name: &str, target: &Path) -> anyhow::Result<Fetched> {
        let before = self.store_hits()?;
        let mut command = weir(&self.dir, Some(&self.routers[1]))?;
        command.arg("get").arg(name).arg("-o").arg(target).arg("--json");
        let report = run_to_end("consumer", &self.dir, &mut command)?;
        let number = |key: &str| {
            report[key].as_u64().with_context(|| format!("the consumer reports no {key}"))
        };
        let after = self.store_hits()?;
        let mut served_by = Vec::new();
        let mut left = number("segments")?;
        // Count from the consumer towards the producer. A store also counts hits for metadata and
        // retransmissions, so its share is at most the segments that are left.
        for (number, (after, before)) in after.iter().zip(before).enumerate().rev() {
            let hits = (after - before).min(left);
            left -= hits;
            served_by
                .push(Served { source: format!("store of router {}", number + 1), packets: hits });
        }
        served_by.push(Served { source: "producer".to_owned(), packets: left });
        served_by.retain(|served| served.packets > 0);
        served_by.sort_by(|one, other| one.source.cmp(&other.source));
        let seconds = report["seconds"].as_f64().context("the consumer reports no seconds")?;
        Ok(Fetched { seconds, interests: number("interests")?, served_by })
    }

    /// Store hits of each router since its start.
    fn store_hits(&self) -> anyhow::Result<[u64; 2]> {
        let mut hits = [0; 2];
        for (hits, router) in hits.iter_mut().zip(&self.routers) {
            let mut command = weir(&self.dir, Some(router))?;
            command.args(["cs", "info", "--json"]);
            let info = run_to_end("store status", &self.dir, &mut command)?;
            *hits = info["hits"].as_u64().context("the router reports no hits")?;
        }
        Ok(hits)
    }

    pub(super) fn stop_producer(&mut self) -> anyhow::Result<()> {
        self.producer.take().map_or(Ok(()), Process::stop)
    }

    pub(super) fn stop(mut self) -> anyhow::Result<()> {
        self.stop_producer()?;
        self.routers.into_iter().try_for_each(|router| router.process.stop())
    }
}

fn start_router(
    dir: &Path,
    number: usize,
    udp: &str,
    store_bytes: u64,
    faces: &str,
) -> anyhow::Result<Router> {
    let socket = dir.join(format!("router{number}.sock"));
    let config = dir.join(format!("router{number}.toml"));
    std::fs::write(&config, format!("[faces]\ntcp = []\n{faces}"))?;
    let mut command = weir(dir, None)?;
    command.arg("router").arg("--config").arg(&config).arg("--unix").arg(&socket);
    command.args(["--udp", udp, "--store", &store_bytes.to_string(), "--json"]);
    let mut process = Process::start(&format!("router {number}"), dir, &mut command)?;
    let mut output = BufReader::new(process.child.stdout.take().expect("piped"));
    process.ready(&mut output)?;
    Ok(Router { process, socket })
}

/// A `weir` command with the demo's own keys, connected to `router`.
fn weir(dir: &Path, router: Option<&Router>) -> anyhow::Result<Command> {
    let program = std::env::current_exe().context("cannot find the weir program itself")?;
    let mut command = Command::new(program);
    command.env("WEIR_HOME", dir.join("home"));
    if let Some(router) = router {
        command.env("NDN_CLIENT_TRANSPORT", format!("unix://{}", router.socket.display()));
    }
    Ok(command)
}

fn run_to_end(title: &str, dir: &Path, command: &mut Command) -> anyhow::Result<Value> {
    let mut process = Process::start(title, dir, command)?;
    let mut output = String::new();
    process.child.stdout.take().expect("piped").read_to_string(&mut output)?;
    let status = process.child.wait()?;
    ensure!(status.success(), process.failure("failed"));
    serde_json::from_str(&output).with_context(|| format!("the {title} printed no JSON"))
}

/// A loopback address whose port is currently free. Another program may take the port before the
/// router binds it; the router then fails to start.
fn free_udp_address() -> anyhow::Result<String> {
    let socket = UdpSocket::bind("127.0.0.1:0").context("cannot open a UDP port on loopback")?;
    Ok(socket.local_addr()?.to_string())
}
