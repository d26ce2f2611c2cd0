//! The processes of a trial: `weir lab trial FILE`.
//!
//! They exchange lines with the coordinator over standard input and output. A process prints
//! `{"ready":true,...}`, receives commands, and prints its measurements. It exits when its standard
//! input closes.

mod answers;
mod channels;
mod costs;
mod echo;
mod many;
mod publisher;
mod subscribers;
mod transfer;
mod viewers;

use std::io::{self, BufRead as _, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use weir_face::FaceUri;
use weir_scenario::trial::{Algorithm, PREFIX, Trial};
use weir_security::Verifier;
use weir_socket::{Session, SocketError};
use weir_transport::NameMapping;
use weir_wire::Name;

pub(super) use self::channels::{ENCODED, SERVED};
pub(super) use self::subscribers::late_count;
pub(super) use self::viewers::AudienceCounts;

use super::keys;

/// The content of the file for `weir lab trial`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct RoleSpec {
    pub(super) role: Role,
    pub(super) trial: Trial,
    /// FaceUri of its router; the address to connect to, for a relay or a client; addresses of HTTP
    /// servers separated by commas, for viewers; the folder of a channel source; or empty.
    pub(super) at: String,
    /// Its number among the processes of its role.
    pub(super) index: u32,
    /// What verifies, in hexadecimal; or empty.
    pub(super) key: String,
    pub(super) seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Role {
    /// Publishes an object.
    Produce,
    /// Fetches an object on each command.
    Consume,
    /// Creates a packet for each Interest.
    Answer,
    /// Requests such packets, one after another.
    Ask,
    /// Returns messages.
    EchoServer,
    /// Forwards messages.
    EchoRelay,
    /// Sends messages and waits for their return.
    EchoClient,
    /// Signs, verifies, and computes digests.
    Cryptography,
    /// Publishes without consumers.
    Publication,
    /// Creates sockets and measures their memory.
    Sockets,
    /// Publishes a growing object.
    Publish,
    /// Follows such an object with many consumers.
    Subscribe,
    /// Writes live channels as files.
    Broadcast,
    /// Watches them over HTTP.
    Watch,
}

/// Why a process ended early.
#[derive(Debug, thiserror::Error)]
pub enum RoleError {
    /// Its file is invalid.
    #[error("cannot use {0}: {1}")]
    Spec(String, String),
    /// A system call failed.
    #[error(transparent)]
    System(#[from] io::Error),
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// A step failed, or its result is not as expected.
    #[error("{0}")]
    Failed(String),
    /// The coordinator has exited.
    #[error("the coordinator has exited")]
    Orphaned,
}

/// Runs the role in the file at `path`.
pub fn run_part(path: &Path) -> Result<(), RoleError> {
    let bad = |reason: String| RoleError::Spec(path.display().to_string(), reason);
    let text = std::fs::read(path).map_err(|error| bad(error.to_string()))?;
    let spec: RoleSpec = serde_json::from_slice(&text).map_err(|error| bad(error.to_string()))?;
    let done = match spec.role {
        Role::Produce => transfer::produce(&spec),
        Role::Consume => transfer::consume(&spec),
        Role::Answer => answers::answer(&spec),
        Role::Ask => answers::ask(&spec),
        Role::EchoServer => echo::serve(&spec),
        Role::EchoRelay => echo::relay(&spec),
        Role::EchoClient => echo::client(&spec),
        Role::Cryptography => costs::cryptography(&spec),
        Role::Publication => costs::publication(&spec),
        Role::Sockets => many::sockets(&spec),
        Role::Publish => publisher::publish(&spec),
        Role::Subscribe => subscribers::subscribe(&spec),
        Role::Broadcast => channels::broadcast(&spec),
        Role::Watch => viewers::watch(&spec),
    };
    match done {
        // Standard input has closed, which is how most processes end.
        Err(RoleError::Orphaned) => Ok(()),
        done => done,
    }
}

impl RoleSpec {
    fn router(&self) -> Result<FaceUri, RoleError> {
        self.at.parse().map_err(|error| RoleError::Failed(format!("{}: {error}", self.at)))
    }

    fn session(&self) -> Result<Session, RoleError> {
        Ok(Session::connect(&self.router()?)?)
    }

    /// The prefix of this process and its counterpart.
    fn prefix(&self) -> Name {
        let mut name = trial_prefix();
        name.append_str(&self.index.to_string());
        name
    }

    /// How its names become those of the network.
    fn mapping(&self) -> Result<NameMapping, RoleError> {
        let index = u16::try_from(self.index);
        let index = index.map_err(|_| RoleError::Failed("at most 65,536 of a role".into()))?;
        Ok(self.trial.mapping(index))
    }

    fn verifier(&self) -> Result<Arc<dyn Verifier>, RoleError> {
        let verifying_key = octets(&self.key).ok_or_else(|| RoleError::Failed("no key".into()))?;
        keys::verifier(self.trial.signature, &verifying_key).map_err(RoleError::Failed)
    }

    fn is_signed(&self) -> bool {
        self.trial.signature != Algorithm::None
    }
}

fn trial_prefix() -> Name {
    PREFIX.parse().expect("a name")
}

fn print_line(value: &Value) -> Result<(), RoleError> {
    let mut out = io::stdout().lock();
    writeln!(out, "{value}")?;
    Ok(out.flush()?)
}

fn print_ready() -> Result<(), RoleError> {
    print_line(&json!({ "ready": true }))
}

/// The next command line.
fn read_input_line() -> Result<String, RoleError> {
    let mut line = String::new();
    match io::stdin().lock().read_line(&mut line)? {
        0 => Err(RoleError::Orphaned),
        _ => Ok(line.trim_end().to_owned()),
    }
}

/// The command lines. The channel ends with standard input.
fn input_lines() -> Receiver<String> {
    let (lines, told_lines) = channel();
    std::thread::spawn(move || {
        while let Ok(line) = read_input_line()
            && lines.send(line).is_ok()
        {}
    });
    told_lines
}

pub(super) fn digits(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

fn octets(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok()).collect()
}

/// Incompressible bytes, the same for the same number.
pub(super) fn content(len: u64, number: u64) -> Vec<u8> {
    let mut octets = vec![0; len as usize];
    weir_base::Rng::from_seed(number + 1).fill(&mut octets);
    octets
}
