//! A Slurm cluster of one node: Debian's munged, slurmctld and slurmd, with files and ports of
//! their own.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::sweep::{kill, parent, wait_until};

pub(crate) struct Cluster {
    folder: tempfile::TempDir,
    munged: Child,
    controller: Child,
    node: Child,
}

impl Cluster {
    /// `None`: this machine has no Slurm, or does not let the test start it.
    pub(crate) fn start() -> Option<Self> {
        for program in ["munged", "slurmctld", "slurmd", "sbatch"] {
            if !["/usr/sbin", "/usr/bin"].iter().any(|at| Path::new(at).join(program).exists()) {
                println!(
                    "NOT tested: no {program}; `cargo xtask test` installs the packages slurmctld, \
                     slurmd, slurm-client and munge as root"
                );
                return None;
            }
        }
        if !nix::unistd::geteuid().is_root() {
            println!("NOT tested: slurmd needs root");
            return None;
        }
        let folder = tempfile::tempdir().expect("folder");
        write_files(folder.path());
        let at = folder.path().display().to_string();
        let mut munged = Command::new("/usr/sbin/munged");
        munged.args(["--foreground", "--force", "--num-threads=1"]);
        for file in ["socket", "key-file", "pid-file", "log-file", "seed-file"] {
            munged.arg(format!("--{file}={at}/munge/{file}"));
        }
        let munged = spawn(&mut munged, folder.path(), "munged");
        let socket = folder.path().join("munge/socket");
        wait_until("munge's socket", || socket.exists());
        let mut controller = Command::new("/usr/sbin/slurmctld");
        let controller = spawn(controller.arg("-D"), folder.path(), "slurmctld");
        let node = node(folder.path());
        let mut cluster = Self { folder, munged, controller, node };
        wait_until("an idle node", || {
            cluster.assert_running();
            cluster.state_of_node().contains("idle")
        });
        Some(cluster)
    }

    pub(crate) fn configuration(&self) -> PathBuf {
        self.folder.path().join("slurm.conf")
    }

    /// Runs a command of Slurm, and returns its output.
    pub(crate) fn command(&self, command: &mut Command) -> String {
        let output = command.env("SLURM_CONF", self.configuration()).output().expect("started");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Kills the node: its daemon, its job, and the daemon that watches the job.
    pub(crate) fn lose_node(&mut self, job: i32) {
        self.node.kill().expect("killed");
        self.node.wait().expect("waited");
        kill(parent(job));
        kill(job);
    }

    /// Waits until the controller has noticed that the node is lost, and has queued its job again.
    pub(crate) fn wait_for_requeue(&self) {
        wait_until("the node is down", || self.state_of_node().contains("down"));
        wait_until("the job is queued again", || {
            let mut squeue = Command::new("squeue");
            self.command(squeue.args(["--noheader", "--format=%T"])).contains("PENDING")
        });
    }

    pub(crate) fn start_node(&mut self) {
        self.node = node(self.folder.path());
    }

    fn state_of_node(&self) -> String {
        self.command(Command::new("sinfo").args(["--noheader", "--format=%T"]))
    }

    fn assert_running(&mut self) {
        let programs = [
            ("munged", &mut self.munged),
            ("slurmctld", &mut self.controller),
            ("slurmd", &mut self.node),
        ];
        for (name, child) in programs {
            if let Some(status) = child.try_wait().expect("waited") {
                let log = std::fs::read_to_string(self.folder.path().join(format!("{name}.out")));
                panic!("{name}: {status}: {}", log.unwrap_or_default());
            }
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for child in [&mut self.node, &mut self.controller, &mut self.munged] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn node(folder: &Path) -> Child {
    let mut node = Command::new("/usr/sbin/slurmd");
    spawn(node.args(["-D", "-N", "node1"]), folder, "slurmd")
}

fn spawn(command: &mut Command, folder: &Path, name: &str) -> Child {
    let open = |log: &Path| std::fs::File::options().create(true).append(true).open(log);
    let log = open(&folder.join(format!("{name}.out"))).expect("a log");
    command
        .env("SLURM_CONF", folder.join("slurm.conf"))
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a log"))
        .stderr(log)
        .spawn()
        .expect("started")
}

/// Writes the configuration and munge's key.
fn write_files(folder: &Path) {
    for name in ["munge", "state", "spool"] {
        std::fs::create_dir(folder.join(name)).expect("a folder");
    }
    let key = folder.join("munge/key-file");
    let random = std::fs::read("/proc/sys/kernel/random/uuid").expect("random");
    std::fs::write(&key, random.repeat(4)).expect("a key");
    for (path, mode) in [(key, 0o400), (folder.join("munge"), 0o711)] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("a mode");
    }
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("a name");
    let host = host.trim().split('.').next().expect("a name");
    let ports = [0, 0].map(|port| TcpListener::bind(("127.0.0.1", port)).expect("a port"));
    let [controller, node] = ports.map(|port| port.local_addr().expect("an address").port());
    let at = folder.display();
    // A credential expires soon, so that a job is soon queued again when its node is lost.
    let text = format!(
        "ClusterName=weir
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={controller}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={at}/munge/socket,cred_expire=5
CredType=cred/munge
StateSaveLocation={at}/state
SlurmdSpoolDir={at}/spool
SlurmctldPidFile={at}/slurmctld.pid
SlurmdPidFile={at}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=0,sched_interval=1
MpiDefault=none
MailProg=/bin/true
ReturnToService=2
SlurmdTimeout=4
SlurmdParameters=config_overrides
NodeName=node1 NodeHostname={host} NodeAddr=127.0.0.1 Port={node} CPUs=2 RealMemory=16384
PartitionName=main Nodes=node1 Default=YES MaxTime=INFINITE State=UP
"
    );
    std::fs::write(folder.join("slurm.conf"), text).expect("written");
}
