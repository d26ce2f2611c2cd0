//! Socket options by name: those of the Rust sockets, and router, trust, signing and range.

use std::fmt::Display;
use std::ops::Range;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use weir_binding::{SharedTrust, Signing, TrustSettings, read_hicn_key};
use weir_crypto::{KeyChainError, UserTrust};
use weir_face::FaceUri;
use weir_socket::{ConsumerOptions, OptionInfo, ProducerOptions};
use weir_wire::Name;

/// Consumers: whether unsigned content (digest only) is accepted.
const ALLOW_UNSIGNED: &str = "allow_unsigned";
/// Consumers: whether content is accepted whose signature cannot be verified.
const ACCEPT_UNVERIFIED: &str = "accept_unverified";
/// Consumers: certificate files, separated by colons.
const ANCHORS: &str = "anchors";
const BETWEEN_ANCHORS: char = ':';
/// Consumers: a file with the key of an hICN producer.
const HICN_KEY: &str = "hicn_key";
/// Consumers: the first byte, and optionally the number of bytes.
const RANGE: &str = "range";
const RANGE_COMMA: char = ',';
/// Producers: the signing key.
const SIGN: &str = "sign";
const SIGN_DIGEST: &str = "digest";
/// Both: the router's address.
const ROUTER: &str = "router";
/// The default value of `router` and `sign`.
const DEFAULT: &str = "default";

/// What a consumer fetches, and which signers it trusts.
#[derive(Clone)]
pub(crate) struct ConsumerSettings {
    pub(crate) options: ConsumerOptions,
    trust: TrustSettings,
    /// Range of bytes; it may extend beyond the end of the object.
    pub(crate) range: Range<u64>,
}

impl ConsumerSettings {
    pub(crate) fn new(options: ConsumerOptions) -> Self {
        Self { options, trust: TrustSettings::default(), range: 0..u64::MAX }
    }

    /// Whether the whole object is requested.
    pub(crate) fn is_whole(&self) -> bool {
        self.range == (0..u64::MAX)
    }

    /// The trust settings for content below a name.
    ///
    /// # Errors
    /// ENOKEY: the user's keys, or a file that existed when it was set, cannot be read.
    pub(crate) fn trust(&self, name: &Name) -> Result<SharedTrust, Errno> {
        SharedTrust::new(name.clone(), &self.trust).map_err(|_| Errno::ENOKEY)
    }
}

/// How a producer publishes.
#[derive(Clone)]
pub(crate) struct ProducerSettings {
    pub(crate) options: ProducerOptions,
    pub(crate) signing: Signing,
}

/// Options that depend on the type of the socket.
#[derive(Clone)]
pub(crate) enum Role {
    Consumer(ConsumerSettings),
    Producer(ProducerSettings),
}

#[derive(Clone)]
pub(crate) struct Options {
    /// The router's address; `None`: the default.
    pub(crate) router: Option<String>,
    pub(crate) role: Role,
}

fn is_in(table: &[OptionInfo], name: &str) -> Result<(), Errno> {
    table.iter().any(|info| info.name == name).then_some(()).ok_or(Errno::ENOPROTOOPT)
}

fn invalid(_: impl Display) -> Errno {
    Errno::EINVAL
}

/// Parses a router address. The host is not resolved yet.
fn router_from(text: &str) -> Result<Option<String>, Errno> {
    match text {
        DEFAULT => return Ok(None),
        path if path.starts_with('/') => {}
        uri => FaceUri::check(uri).map_err(invalid)?,
    }
    Ok(Some(text.to_owned()))
}

fn signing_from(text: &str) -> Result<Signing, Errno> {
    match text {
        DEFAULT => Ok(Signing::Default),
        SIGN_DIGEST => Ok(Signing::Digest),
        name if name.starts_with('/') => name.parse().map(Signing::Key).map_err(invalid),
        _ => Err(Errno::EINVAL),
    }
}

/// Parses a list of certificate files.
fn anchors_from(text: &str) -> Result<Vec<PathBuf>, Errno> {
    let files = text.split(BETWEEN_ANCHORS).filter(|path| !path.is_empty());
    let anchors: Vec<PathBuf> = files.map(|path| Path::new(path).to_owned()).collect();
    UserTrust::new(Name::new(), None, &anchors).map_err(unusable_file)?;
    Ok(anchors)
}

/// Parses the name of a file with a key of hICN; without a name there is none.
fn hicn_key_from(text: &str) -> Result<Option<PathBuf>, Errno> {
    if text.is_empty() {
        return Ok(None);
    }
    read_hicn_key(Path::new(text)).map_err(unusable_file)?;
    Ok(Some(text.into()))
}

fn unusable_file(error: KeyChainError) -> Errno {
    match error {
        KeyChainError::Io { source, .. } => {
            source.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
        }
        error => invalid(error),
    }
}

fn range_from(text: &str) -> Result<Range<u64>, Errno> {
    let number = |text: &str| text.trim().parse::<u64>().map_err(invalid);
    let (first, len) = match text.split_once(RANGE_COMMA) {
        Some((first, len)) => (number(first)?, number(len)?),
        None => (number(text)?, u64::MAX),
    };
    Ok(first..first.saturating_add(len))
}

fn range_text(range: &Range<u64>) -> String {
    match range.end {
        u64::MAX => range.start.to_string(),
        end => format!("{}{RANGE_COMMA}{}", range.start, end - range.start),
    }
}

impl Options {
    /// Sets an option by the text `name=value`.
    ///
    /// # Errors
    /// ENOPROTOOPT: unknown option. EINVAL: invalid value, or the option can no longer change after
    /// bind. An error of the system about an anchor file.
    pub(crate) fn set(&mut self, text: &[u8], is_bound: bool) -> Result<(), Errno> {
        let text = std::str::from_utf8(text).map_err(invalid)?;
        let (name, value) = text.split_once('=').ok_or(Errno::EINVAL)?;
        let (name, value) = (name.trim(), value.trim());
        let is_late = is_bound && (name == ROUTER || matches!(self.role, Role::Producer(_)));
        if is_late {
            return Err(Errno::EINVAL);
        }
        match (&mut self.role, name) {
            (_, ROUTER) => self.router = router_from(value)?,
            (Role::Consumer(settings), ALLOW_UNSIGNED) => {
                settings.trust.allow_unsigned = value.parse().map_err(invalid)?;
            }
            (Role::Consumer(settings), ACCEPT_UNVERIFIED) => {
                settings.trust.accept_unverified = value.parse().map_err(invalid)?;
            }
            (Role::Consumer(settings), ANCHORS) => settings.trust.anchors = anchors_from(value)?,
            (Role::Consumer(settings), HICN_KEY) => {
                settings.trust.hicn_key = hicn_key_from(value)?;
            }
            (Role::Consumer(settings), RANGE) => settings.range = range_from(value)?,
            (Role::Consumer(settings), _) => {
                is_in(ConsumerOptions::TABLE, name)?;
                settings.options.set(name, value).map_err(invalid)?;
            }
            (Role::Producer(settings), SIGN) => settings.signing = signing_from(value)?,
            (Role::Producer(settings), _) => {
                is_in(ProducerOptions::TABLE, name)?;
                settings.options.set(name, value).map_err(invalid)?;
            }
        }
        Ok(())
    }

    /// The value of an option.
    ///
    /// # Errors
    /// ENOPROTOOPT: unknown option.
    pub(crate) fn get(&self, name: &[u8]) -> Result<String, Errno> {
        let name = std::str::from_utf8(name).map_err(|_| Errno::ENOPROTOOPT)?;
        let found = match (&self.role, name) {
            (_, ROUTER) => return Ok(self.router.clone().unwrap_or_else(|| DEFAULT.into())),
            (Role::Consumer(settings), ALLOW_UNSIGNED) => {
                return Ok(settings.trust.allow_unsigned.to_string());
            }
            (Role::Consumer(settings), ACCEPT_UNVERIFIED) => {
                return Ok(settings.trust.accept_unverified.to_string());
            }
            (Role::Consumer(settings), ANCHORS) => {
                let anchors = settings.trust.anchors.iter().map(|path| path.display().to_string());
                return Ok(anchors.collect::<Vec<_>>().join(&BETWEEN_ANCHORS.to_string()));
            }
            (Role::Consumer(settings), HICN_KEY) => {
                let path = settings.trust.hicn_key.as_ref();
                return Ok(path.map(|path| path.display().to_string()).unwrap_or_default());
            }
            (Role::Consumer(settings), RANGE) => return Ok(range_text(&settings.range)),
            (Role::Consumer(settings), _) => settings.options.get(name),
            (Role::Producer(settings), SIGN) => {
                return Ok(match &settings.signing {
                    Signing::Default => DEFAULT.into(),
                    Signing::Digest => SIGN_DIGEST.into(),
                    Signing::Key(name) => name.to_string(),
                });
            }
            (Role::Producer(settings), _) => settings.options.get(name),
        };
        found.map_err(|_| Errno::ENOPROTOOPT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_round_trip() {
        for (text, range) in
            [("0", 0..u64::MAX), ("5,10", 5..15), ("7", 7..u64::MAX), ("3,0", 3..3)]
        {
            assert_eq!(range_from(text), Ok(range.clone()));
            assert_eq!(range_text(&range), text);
        }
        assert_eq!(range_from("18446744073709551615,9"), Ok(u64::MAX..u64::MAX));
        for bad in ["", ",", "5,", ",5", "-1", "1-5", "18446744073709551616", "1,2,3"] {
            assert_eq!(range_from(bad), Err(Errno::EINVAL), "{bad}");
        }
    }

    #[test]
    fn addresses_of_routers_may_be_paths() {
        for good in
            ["/run/nfd.sock", "unix:///run/nfd.sock", "tcp4://127.0.0.1", "udp://router.example"]
        {
            assert_eq!(router_from(good), Ok(Some(good.to_owned())));
        }
        assert_eq!(router_from("default"), Ok(None));
        for bad in ["", "nowhere", "tcp4://[::1]", "gopher://a"] {
            assert_eq!(router_from(bad), Err(Errno::EINVAL), "{bad}");
        }
    }
}
