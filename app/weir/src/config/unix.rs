//! The Unix socket: its path and its permissions.

use std::path::PathBuf;
use std::str::FromStr;

use anyhow::bail;
use serde::Deserialize;

/// The path of the Unix socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum UnixChoice {
    /// The first usual path that can be created.
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
            "" => return Err("it is empty; use a path, \"auto\", or \"none\"".into()),
            path => Self::Path(path.strip_prefix("unix://").unwrap_or(path).into()),
        })
    }
}

/// Permission bits of a file, in octal as for `chmod`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ModeText(pub(crate) u32);

impl FromStr for ModeText {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match u32::from_str_radix(text, 8) {
            Ok(mode) if mode <= 0o777 && text.len() >= 3 => Ok(Self(mode)),
            _ => Err(format!("`{text}` is not a file mode; write octal digits, such as \"0660\"")),
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
                "[faces] `unix_group`: this machine has no group `{text}`; create it with \
                 `groupadd {text}`, or use an existing group"
            ),
        }
    }
}
