//! Options by name: those of the sockets in Rust, and whom to believe and how to sign.

use nix::errno::Errno;
use weir_binding::Signing;
use weir_socket::{ConsumerOptions, OptionInfo, ProducerOptions};

/// Consumers: whether content without signature will do.
const ALLOW_UNSIGNED: &str = "allow_unsigned";
/// Producers: what is signed with.
const SIGN: &str = "sign";
const SIGN_DEFAULT: &str = "default";
const SIGN_DIGEST: &str = "digest";

/// The options of a socket.
#[derive(Clone)]
pub(crate) enum Options {
    Consumer { options: ConsumerOptions, allow_unsigned: bool },
    Producer { options: ProducerOptions, signing: Signing },
}

fn is_in(table: &[OptionInfo], name: &str) -> Result<(), Errno> {
    table.iter().any(|info| info.name == name).then_some(()).ok_or(Errno::ENOPROTOOPT)
}

impl Options {
    /// Changes one by the text `name=value`.
    ///
    /// # Errors
    /// ENOPROTOOPT: there is no such option; EINVAL: it cannot have that value.
    pub(crate) fn set(&mut self, text: &[u8]) -> Result<(), Errno> {
        let text = std::str::from_utf8(text).map_err(|_| Errno::EINVAL)?;
        let (name, value) = text.split_once('=').ok_or(Errno::EINVAL)?;
        let (name, value) = (name.trim(), value.trim());
        match self {
            Self::Consumer { allow_unsigned, .. } if name == ALLOW_UNSIGNED => {
                *allow_unsigned = value.parse().map_err(|_| Errno::EINVAL)?;
                return Ok(());
            }
            Self::Producer { signing, .. } if name == SIGN => {
                *signing = match value {
                    SIGN_DEFAULT => Signing::Default,
                    SIGN_DIGEST => Signing::Digest,
                    _ => return Err(Errno::EINVAL),
                };
                return Ok(());
            }
            Self::Consumer { options, .. } => {
                is_in(ConsumerOptions::TABLE, name)?;
                options.set(name, value)
            }
            Self::Producer { options, .. } => {
                is_in(ProducerOptions::TABLE, name)?;
                options.set(name, value)
            }
        }
        .map_err(|_| Errno::EINVAL)
    }

    /// The value of one.
    ///
    /// # Errors
    /// ENOPROTOOPT: there is no such option.
    pub(crate) fn get(&self, name: &[u8]) -> Result<String, Errno> {
        let name = std::str::from_utf8(name).map_err(|_| Errno::ENOPROTOOPT)?;
        match self {
            Self::Consumer { allow_unsigned, .. } if name == ALLOW_UNSIGNED => {
                return Ok(allow_unsigned.to_string());
            }
            Self::Producer { signing, .. } if name == SIGN => {
                let is_digest = *signing == Signing::Digest;
                return Ok(if is_digest { SIGN_DIGEST } else { SIGN_DEFAULT }.into());
            }
            Self::Consumer { options, .. } => options.get(name),
            Self::Producer { options, .. } => options.get(name),
        }
        .map_err(|_| Errno::ENOPROTOOPT)
    }
}
