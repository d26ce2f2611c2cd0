//! The network devices that have multicast faces.

use std::fmt;
use std::net::SocketAddr;

use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use weir_runtime::MulticastConfig;

/// Longest name of a network device of Linux, in bytes.
const DEVICE_NAME_MAX: usize = 15;

/// `multicast` in `[faces]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MulticastChoice {
    /// All devices, for each address family in which the router listens on all addresses.
    Auto,
    None,
    /// These devices, for both address families.
    Devices(Vec<String>),
}

impl MulticastChoice {
    /// `listens`: where the router listens for UDP peers.
    pub(super) fn resolve(&self, listens: &[SocketAddr]) -> MulticastConfig {
        let is_open = |address: &SocketAddr| address.ip().is_unspecified();
        let open = || listens.iter().filter(|address| is_open(address));
        match self {
            Self::Auto => MulticastConfig {
                devices: None,
                has_ipv4: open().any(SocketAddr::is_ipv4),
                has_ipv6: open().any(SocketAddr::is_ipv6),
            },
            Self::None => MulticastConfig::default(),
            Self::Devices(names) => {
                MulticastConfig { devices: Some(names.clone()), has_ipv4: true, has_ipv6: true }
            }
        }
    }
}

impl<'de> Deserialize<'de> for MulticastChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ChoiceVisitor)
    }
}

struct ChoiceVisitor;

impl<'de> Visitor<'de> for ChoiceVisitor {
    type Value = MulticastChoice;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"auto\", \"none\", or names of network devices, such as [\"eth0\"]")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<MulticastChoice, E> {
        match text {
            "auto" => Ok(MulticastChoice::Auto),
            "none" => Ok(MulticastChoice::None),
            other => Err(E::custom(format!(
                "`{other}` is unknown; write \"auto\", \"none\", or names of network devices, \
                 such as [\"eth0\"]"
            ))),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut names: A) -> Result<MulticastChoice, A::Error> {
        let mut devices = Vec::new();
        while let Some(name) = names.next_element::<String>()? {
            let is_word = matches!(&*name, "auto" | "none");
            let is_bad = name.is_empty() || name.len() > DEVICE_NAME_MAX;
            if is_word {
                return Err(A::Error::custom(format!("write multicast = \"{name}\", not a list")));
            }
            if is_bad || name.contains(|char: char| char.is_control() || "/: ".contains(char)) {
                return Err(A::Error::custom(format!(
                    "`{name}` names no network device; `ip link` lists those of this machine"
                )));
            }
            devices.push(name);
        }
        Ok(MulticastChoice::Devices(devices))
    }
}
