//! The Unix socket: where it is and who may connect.

use std::path::PathBuf;
use std::str::FromStr;

use anyhow::bail;
use serde::Deserialize;

/// Where the Unix socket is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum UnixChoice {
    /// The first of the usual places that may be created.
    Auto,
    /// No Unix socket.
    None,
    Path(PathBuf),
}

impl FromStr for UnixChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "auto" => Self::Auto,
            "none" => Self::None,
            "" => return Err("write a path, \"auto\", or \"none\" for no Unix socket".into()),
            path => Self::Path(path.strip_prefix("unix://").unwrap_or(path).into()),
        })
    }
}

/// Permission bits of a file, in octal digits as `chmod` takes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ModeText(pub(crate) u32);

impl FromStr for ModeText {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match u32::from_str_radix(text, 8) {
            Ok(mode) if mode <= 0o777 && text.len() >= 3 => Ok(Self(mode)),
            _ => Err(format!("`{text}` is no mode of a file; write octal digits, as \"0660\"")),
        }
    }
}

/// A group by name or number; empty for none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct GroupText(pub(crate) String);

impl GroupText {
    pub(super) fn resolve(&self) -> anyhow::Result<Option<u32>> {
        let text = self.0.as_str();
        if text.is_empty() {
            return Ok(None);
        }
        let known = nix::unistd::Group::from_name(text).ok().flatten().map(|group| group.gid);
        match known.map_or_else(|| text.parse().ok(), |group| Some(group.as_raw())) {
            Some(group) => Ok(Some(group)),
            None => bail!(
                "[faces] `unix_group`: this machine has no group `{text}`; make it with `groupadd \
                 {text}`, or give the name of one that there is"
            ),
        }
    }
}
