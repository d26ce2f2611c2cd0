//! A `weir router` under test.

use std::ffi::OsStr;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::{Finished, Host, Networks, Process, wait_until, weir_binary};

/// An empty list of arguments.
const NONE: &[&str] = &[];

/// A running router with a Unix socket, a TCP and a UDP port on 127.0.0.1.
#[derive(Debug)]
pub struct Router {
    /// The process, for signals and its log.
    pub process: Process,
    /// The host of the router and of its clients.
    pub host: Host,
    socket: PathBuf,
    port: u16,
}

impl Router {
    /// A router with default options, on a new host.
    #[must_use]
    pub fn on_new_host() -> Self {
        Self::start(&Host::new())
    }

    /// A router without store, so that all Data comes from producers.
    pub fn without_store(host: &Host) -> Self {
        Self::start_with(host, &["--store", "0"])
    }

    /// A router with default options.
    pub fn start(host: &Host) -> Self {
        Self::start_with(host, NONE)
    }

    /// A router with a Unix socket of this name, instead of `router.sock`.
    pub fn start_at(host: &Host, socket: &str) -> Self {
        Self::start_at_with(host, socket, NONE)
    }

    /// A router with additional arguments.
    pub fn start_with(host: &Host, arguments: &[impl AsRef<OsStr>]) -> Self {
        Self::start_at_with(host, "router.sock", arguments)
    }

    /// Starts a router and waits until it is ready.
    ///
    /// # Panics
    /// If it ends, or is not ready within [`crate::TEST_TIMEOUT`].
    pub fn start_at_with(host: &Host, socket: &str, arguments: &[impl AsRef<OsStr>]) -> Self {
        Self::start_as(host, host.command(weir_binary()), socket, arguments)
    }

    /// Starts a router after a shell line that affects its process, such as `ulimit -v N`.
    ///
    /// # Panics
    /// As [`Self::start_at_with`].
    pub fn start_after(host: &Host, line: &str, arguments: &[impl AsRef<OsStr>]) -> Self {
        let mut command = host.command(Path::new("sh"));
        command.arg("-c").arg(format!("{line} && exec \"$0\" \"$@\"")).arg(weir_binary());
        Self::start_as(host, command, "router.sock", arguments)
    }

    /// Starts a router with another command, which gets the arguments of the router.
    ///
    /// # Panics
    /// As [`Self::start_at_with`].
    pub fn start_as(
        host: &Host,
        mut command: Command,
        socket: &str,
        arguments: &[impl AsRef<OsStr>],
    ) -> Self {
        let port = host.free_port();
        let address = format!("127.0.0.1:{port}");
        command.arg("router").args(["--udp", &address, "--tcp", &address]);
        Self::wait_for(host, command, socket, port, arguments)
    }

    /// Starts a router in a network of its own, without TCP and UDP ports.
    ///
    /// # Panics
    /// As [`Self::start_at_with`].
    pub fn start_in(
        host: &Host,
        networks: &Networks,
        network: &str,
        arguments: &[impl AsRef<OsStr>],
    ) -> Self {
        let mut command = networks.command(host, network, weir_binary());
        command.args(["router", "--udp", "none", "--tcp", "none"]);
        Self::wait_for(host, command, network, 0, arguments)
    }

    /// Starts a router and waits for its ready line. It accepts connections before, but does not
    /// answer commands while it opens its disks. Then waits for its Unix socket, and for its TCP
    /// port unless that is 0.
    fn wait_for(
        host: &Host,
        mut command: Command,
        socket: &str,
        port: u16,
        arguments: &[impl AsRef<OsStr>],
    ) -> Self {
        let title = format!("weir router {socket}");
        let socket = host.path(socket);
        command.arg("--unix").arg(&socket).args(arguments);
        let mut process = Process::start(&title, command);
        wait_until("the router is ready", || {
            assert!(process.is_running(), "the router ended:\n{}", process.log());
            let log = process.log();
            if !log.contains("weir router is ready") && !log.contains(r#""ready":true"#) {
                return false;
            }
            let accepts_tcp = || port == 0 || TcpStream::connect(("127.0.0.1", port)).is_ok();
            UnixStream::connect(&socket).is_ok() && accepts_tcp()
        });
        Self { process, host: host.clone(), socket, port }
    }

    /// FaceUri of the Unix socket.
    pub fn unix(&self) -> String {
        format!("unix://{}", self.socket.display())
    }

    /// FaceUri of the TCP port.
    pub fn tcp(&self) -> String {
        format!("tcp4://127.0.0.1:{}", self.port)
    }

    /// FaceUri of the UDP port.
    pub fn udp(&self) -> String {
        format!("udp4://127.0.0.1:{}", self.port)
    }

    /// TCP and UDP port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn socket(&self) -> &PathBuf {
        &self.socket
    }

    /// Starts `weir`, connected to this router over its Unix socket.
    pub fn spawn(&self, arguments: &[&str]) -> Process {
        self.host.spawn(&self.unix(), arguments)
    }

    /// Runs `weir` with this router until it ends.
    pub fn weir(&self, arguments: &[&str]) -> Finished {
        self.spawn(arguments).finish()
    }

    /// Runs a `weir` command with `--json`, and returns its output.
    ///
    /// # Panics
    /// If the command fails or prints no JSON.
    pub fn weir_json(&self, arguments: &[&str]) -> Value {
        self.weir(&[arguments, &["--json"]].concat()).success().json()
    }

    /// Adds a route to a FaceUri.
    ///
    /// # Panics
    /// If the router refuses.
    pub fn add_route(&self, prefix: &str, next_hop: &str) {
        self.weir(&["route", "add", prefix, next_hop]).success();
    }

    /// Starts `weir put` with these arguments, waits until it serves, and returns its report.
    ///
    /// # Panics
    /// If it ends.
    pub fn put(&self, arguments: &[&str]) -> (Process, Value) {
        let process = self.spawn(&[&["put", "--json"], arguments].concat());
        let report = process.json_line();
        (process, report)
    }

    /// As [`Self::put`] for one object. Returns the name with its version.
    ///
    /// # Panics
    /// If it ends.
    pub fn put_object(&self, arguments: &[&str]) -> (Process, String) {
        let (process, report) = self.put(arguments);
        let name = report["name"].as_str().unwrap_or_else(|| panic!("no name: {report}"));
        (process, name.to_owned())
    }
}
