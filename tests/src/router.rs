//! A `weir router` under test.

use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::{Finished, PATIENCE, Process, Site, weir_binary};

#[derive(Debug, Clone, Default)]
pub struct RouterOptions {
    /// Name of its Unix socket in the folder of the site; `router.sock` if empty.
    pub socket: String,
    /// More arguments for `weir router`.
    pub arguments: Vec<String>,
}

/// A running router with a Unix socket, a TCP and a UDP port on 127.0.0.1.
#[derive(Debug)]
pub struct Router {
    /// The process, for signals and its log.
    pub process: Process,
    socket: PathBuf,
    port: u16,
}

impl Router {
    /// Starts a router with the defaults.
    pub fn start(site: &Site) -> Self {
        Self::start_with(site, &RouterOptions::default())
    }

    /// Starts a router and waits until it takes connections.
    ///
    /// # Panics
    /// If it ends, or is not ready within [`PATIENCE`].
    pub fn start_with(site: &Site, options: &RouterOptions) -> Self {
        Self::start_as(site, site.command(weir_binary()), options)
    }

    /// The same after a line of shell, run in the process that becomes the router: `ulimit -v N`.
    ///
    /// # Panics
    /// As [`Self::start_with`].
    pub fn start_after(site: &Site, line: &str, options: &RouterOptions) -> Self {
        let mut command = site.command(Path::new("sh"));
        command.arg("-c").arg(format!("{line} && exec \"$0\" \"$@\"")).arg(weir_binary());
        Self::start_as(site, command, options)
    }

    /// The same by a command of somebody's own, which gets the arguments of a router.
    ///
    /// # Panics
    /// As [`Self::start_with`].
    pub fn start_as(site: &Site, mut command: Command, options: &RouterOptions) -> Self {
        let name = if options.socket.is_empty() { "router.sock" } else { &options.socket };
        let socket = site.path(name);
        let port = site.free_port();
        let address = format!("127.0.0.1:{port}");
        command.arg("router").arg("--unix").arg(&socket);
        command.args(["--udp", &address, "--tcp", &address]).args(&options.arguments);
        let mut process = Process::start(&format!("weir router {name}"), command);
        let deadline = Instant::now() + PATIENCE;
        while UnixStream::connect(&socket).is_err() || TcpStream::connect(&address).is_err() {
            assert!(process.is_running(), "the router ended:\n{}", process.log());
            assert!(Instant::now() < deadline, "the router is not ready:\n{}", process.log());
            thread::sleep(Duration::from_millis(10));
        }
        Self { process, socket, port }
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

    /// Runs `weir` against this router, over its Unix socket, to its end.
    pub fn weir(&self, site: &Site, arguments: &[&str]) -> Finished {
        site.weir(&self.unix(), arguments).finish()
    }

    /// What a `weir` command prints with `--json`.
    ///
    /// # Panics
    /// If the command fails or prints no JSON.
    pub fn weir_json(&self, site: &Site, arguments: &[&str]) -> Value {
        let mut with_json = arguments.to_vec();
        with_json.push("--json");
        self.weir(site, &with_json).success().json()
    }
}
