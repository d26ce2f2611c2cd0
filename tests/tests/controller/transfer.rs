//! Transfers that stand still where a test wants it.

use std::io::Read;
use std::process::{Child, Command, Stdio};

use sha2::{Digest as _, Sha256};
use weir_tests::weir_binary;

use crate::network::Network;

/// `weir get` to its standard output: it goes on as far as that is read.
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

    /// The next octets.
    pub(crate) fn read(&mut self, count: usize) -> Vec<u8> {
        let mut octets = vec![0; count];
        let output = self.0.stdout.as_mut().expect("it is piped");
        output.read_exact(&mut octets).expect("the transfer goes on");
        octets
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.0.try_wait().expect("state of the child").is_none()
    }

    /// All that is left. It must end well.
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
        // Both fail only if it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// SHA-256.
pub(crate) fn hex(octets: &[u8]) -> String {
    Sha256::digest(octets).iter().map(|octet| format!("{octet:02x}")).collect()
}
