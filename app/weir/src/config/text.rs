//! Value types of configuration files: names, addresses and times, with their limits.

use std::str::FromStr;
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use weir_base::units::Time;
use weir_face::FaceUri;
use weir_forward::PREFIX_COMPONENTS_MAX;
use weir_hicn::HicnName;
use weir_runtime::StrategyKind;
use weir_wire::Name;

/// Implements `Deserialize` through `FromStr`.
macro_rules! deserialize_text {
    ($($type:ty),*) => {$(
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
            }
        }
    )*};
}

pub(super) use deserialize_text;

deserialize_text!(UriText, Prefix, StrategyName);

pub(super) fn to_time(duration: Duration) -> Time {
    Time { ns: u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX) }
}

pub(super) fn positive<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    match usize::deserialize(deserializer)? {
        0 => Err(D::Error::custom("a limit of 0 would permit nothing; use at least 1")),
        count if count > u32::MAX as usize => {
            Err(D::Error::custom(format!("{count} is too large; use at most {}", u32::MAX)))
        }
        count => Ok(count),
    }
}

pub(super) fn nonzero_time<E: serde::de::Error>(time: Time, remedy: &str) -> Result<Time, E> {
    if time.ns == 0 { Err(E::custom(remedy)) } else { Ok(time) }
}

/// The address of a router: `udp://host:6363`, `tcp://host` or `unix:///path`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UriText(pub(crate) String);

impl FromStr for UriText {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = [
            "udp",
            "udp4",
            "udp6",
            "tcp",
            "tcp4",
            "tcp6",
            "ws",
            "wss",
            "unix",
            "hicn+udp",
            "hicn+udp4",
            "hicn+udp6",
            "hicn+tun",
        ];
        match text.split_once("://") {
            Some((scheme, rest)) if known.contains(&scheme) && !rest.is_empty() => {
                FaceUri::check(text).map_err(|error| error.to_string())?;
                Ok(Self(text.to_owned()))
            }
            _ => Err(format!(
                "`{text}` is not a face address; write udp://HOST:PORT, tcp://HOST:PORT, \
                 ws://HOST:PORT, wss://HOST/PATH, unix:///PATH or, for hICN packets, \
                 hicn+udp://HOST:PORT, such as \"udp://192.0.2.7:6363\""
            )),
        }
    }
}

/// A name prefix in URI form, such as `/a/b`, or an hICN prefix such as `hicn:2001:db8:7::/48`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Prefix(pub(crate) Name);

impl FromStr for Prefix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // An hICN prefix has at most 9 components, so its length needs no check.
        if let Some(name) = HicnName::parse_uri(text) {
            return name.map(Self).map_err(|error| error.to_string());
        }
        if !text.starts_with('/') && !text.starts_with("ndn:") {
            return Err(format!(
                "`{text}` is not a prefix; a prefix starts with a slash, as in \"/{text}\""
            ));
        }
        let name = Name::from_str(text)
            .map_err(|error| format!("`{text}` is not a name: {error}; write it like \"/a/b\""))?;
        let count = name.component_count();
        if count > PREFIX_COMPONENTS_MAX {
            return Err(format!(
                "the prefix has {count} components; use at most {PREFIX_COMPONENTS_MAX}"
            ));
        }
        Ok(Self(name))
    }
}

/// A strategy: a full name, or the part after `/localhost/nfd/strategy/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StrategyName(pub(crate) Name);

impl FromStr for StrategyName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = StrategyKind::WORDS;
        let whole = if known.contains(&text) {
            format!("/localhost/nfd/strategy/{text}")
        } else if text.starts_with("/localhost/nfd/strategy/") {
            text.to_owned()
        } else {
            return Err(format!(
                "`{text}` is not a strategy; use one of {known:?}, or a full name such as \
                 \"/localhost/nfd/strategy/best-route/v=5\""
            ));
        };
        Name::from_str(&whole).map(Self).map_err(|error| format!("`{text}` is not a name: {error}"))
    }
}
