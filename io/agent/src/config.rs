//! The configuration of an agent.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::access::Access;
use crate::error::AgentError;

/// The configuration of an agent.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    pub access: Access,
    /// The router's name: 1 to 64 of `A-Z a-z 0-9 . _ -`.
    pub name: String,
    /// FaceUris under which other routers reach this one, the best first, in canonical form.
    pub uris: Vec<String>,
    /// Capacities of links in bits per second, by the FaceUri of the other end, where the operator
    /// has set them.
    pub rates_bps: BTreeMap<String, u64>,
    /// How often changes are reported.
    pub interval: Duration,
    /// Maximum number of routes that a controller may set, including routes to parts of files.
    pub routes_max: usize,
    /// Where the last configuration is stored, for a start while the controller is unreachable.
    pub state_file: Option<PathBuf>,
    /// Whether the agent follows orders to prefetch.
    pub prefetch: bool,
    /// Whether the agent also asks about misses of hosts that have no router of their own.
    pub asks_for_hosts: bool,
}

impl AgentConfig {
    pub fn check(&self) -> Result<(), AgentError> {
        let is_letter = |octet: u8| octet.is_ascii_alphanumeric() || b"._-".contains(&octet);
        if !(1..=64).contains(&self.name.len()) || !self.name.bytes().all(is_letter) {
            return Err(AgentError::Name(self.name.clone()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_bad_names() {
        let config = |name: &str| AgentConfig {
            access: Access::default(),
            name: name.into(),
            uris: Vec::new(),
            rates_bps: BTreeMap::new(),
            interval: Duration::from_secs(1),
            routes_max: 100,
            state_file: None,
            prefetch: true,
            asks_for_hosts: false,
        };
        assert!(config("edge-1.x_y").check().is_ok());
        for name in ["", "a/b", "a b", &"a".repeat(65)] {
            let refused = config(name).check();
            assert!(matches!(refused, Err(AgentError::Name(_))), "{name}");
        }
    }
}
