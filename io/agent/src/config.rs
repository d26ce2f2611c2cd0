//! How an agent is started.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::access::Access;
use crate::error::AgentError;

/// What an agent has to know.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    pub access: Access,
    /// The router's name: 1 to 64 of `A-Z a-z 0-9 . _ -`.
    pub name: String,
    /// FaceUris under which other routers reach this one, the best first, in canonical form.
    pub uris: Vec<String>,
    /// What links carry each way at most, in bits per second, by the FaceUri of the other end,
    /// where the operator has said so.
    pub rates_bps: BTreeMap<String, u64>,
    /// How often the controller is told what has changed.
    pub interval: Duration,
    /// Routes that a controller may set at most, those to parts of files included.
    pub routes_max: usize,
    /// Where the last configuration is kept, for a start while the controller is away.
    pub state_file: Option<PathBuf>,
    /// Whether orders to fetch ahead of demand are followed.
    pub prefetch: bool,
    /// Whether it asks about what hosts without a router of their own miss, too, and not only
    /// applications of this machine.
    pub asks_for_hosts: bool,
}

impl AgentConfig {
    pub(crate) fn check(&self) -> Result<(), AgentError> {
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
