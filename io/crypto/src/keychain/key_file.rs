//! One file per key: a header of two lines, then PKCS#8 PEM, which OpenSSL can read.

use std::path::{Path, PathBuf};

use weir_security::{identity_of, is_key_name};
use weir_wire::{Name, NameView};

use super::{KeyChainError, files};
use crate::pem::{PEM_LEN_MAX, is_encrypted};
use crate::private_key::KeyType;
use aws_lc_rs::digest;

/// How many characters of a name appear in a file name.
const STEM_LEN_MAX: usize = 48;

/// What a key's file states without decryption.
#[derive(Clone, Debug)]
pub struct KeyEntry {
    /// `/<identity>/KEY/<key id>`.
    pub name: Name,
    pub key_type: KeyType,
    /// Whether a passphrase protects it.
    pub is_encrypted: bool,
    pub path: PathBuf,
}

impl KeyEntry {
    pub fn identity(&self) -> NameView<'_> {
        identity_of(self.name.as_view()).expect("checked when the entry was read")
    }
}

/// The header before the PEM text.
pub(super) fn header(name: &Name, key_type: KeyType) -> String {
    format!("name: {name}\ntype: {key_type}\n")
}

/// The name in a header, if any.
pub(super) fn name_in(text: &str) -> Option<Name> {
    header_field(text, "name").and_then(|uri| uri.parse::<Name>().ok())
}

/// The header's content, and the complete text.
pub(super) type KeyFile = (KeyEntry, zeroize::Zeroizing<String>);

/// Reads a key's file; `None` if it does not exist.
pub(super) fn read(path: &Path) -> Result<Option<KeyFile>, KeyChainError> {
    let text = files::read_text(path, PEM_LEN_MAX)?.map(zeroize::Zeroizing::new);
    let Some(text) = text else { return Ok(None) };
    let malformed = || KeyChainError::MalformedKeyFile { path: path.to_owned() };
    let name = name_in(&text).filter(|name| is_key_name(name.as_view())).ok_or_else(malformed)?;
    let key_type =
        header_field(&text, "type").and_then(|t| t.parse().ok()).ok_or_else(malformed)?;
    let is_encrypted = is_encrypted(&text);
    Ok(Some((KeyEntry { name, key_type, is_encrypted, path: path.to_owned() }, text)))
}

/// The file name, without extension, for `name`: readable, and unique by a hash.
pub(super) fn file_stem(name: NameView<'_>) -> String {
    let uri = name.to_string();
    let readable: String = uri
        .trim_matches('/')
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .take(STEM_LEN_MAX)
        .collect();
    let hash = digest::digest(&digest::SHA256, name.value());
    format!("{}-{}", readable.trim_matches('-'), hex::encode(&hash.as_ref()[..8]))
}

fn header_field<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.lines()
        .take_while(|line| !line.starts_with("-----"))
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))
        .map(str::trim)
}
