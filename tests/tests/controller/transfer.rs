//! Transfers that a test can pause.

use std::io::Read;
use std::process::{Child, Command, Stdio};

use sha2::{Digest as _, Sha256};
use weir_tests::weir_binary;

use crate::network::Network;

/// `weir get` to standard output. It pauses when the test stops reading.
pub(crate) struct Transfer(Child);

impl Transfer {
    pub(crate) fn start(network: &Network, name: &str) -> Self {
        let mut command: Command = network.host.command(weir_binary());
        command
            .args(["get", name, "-o", "-"])
            .env("NDN_CLIENT_TRANSPORT", network.routers["edge"].unix());
        let child = command.stdout(Stdio::piped()).stdin(Stdio::null()).spawn();
        Self(child.expect("weir get starts"))
    }

    /// Reads the next bytes.
    pub(crate) fn read(&mut self, count: usize) -> Vec<u8> {
        let mut octets = vec![0; count];
        let output = self.0.stdout.as_mut().expect("it is piped");
        output.read_exact(&mut octets).expect("the transfer continues");
        octets
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.0.try_wait().expect("state of the child").is_none()
    }

    /// Reads the remaining bytes. The command must succeed.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        let mut octets = Vec::new();
        let output = self.0.stdout.as_mut().expect("it is piped");
        output.read_to_end(&mut octets).expect("the rest");
        assert!(self.0.wait().expect("it ends").success());
        octets
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        // Both calls fail only if the process has already ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// SHA-256 in hexadecimal.
pub(crate) fn hex(octets: &[u8]) -> String {
    Sha256::digest(octets).iter().map(|octet| format!("{octet:02x}")).collect()
}
