//! Trust on first use: the file `known-signers.toml`.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use weir_security::trust::KnownSigners;
use weir_wire::{Name, format_timestamp};

use super::files::{self, IfPresent};
use super::{KeyChain, KeyChainError, unix_time_s};

/// Size limit of the file, in bytes: about 100,000 entries.
const FILE_LEN_MAX: usize = 32 * 1024 * 1024;

const PREAMBLE: &str = "\
# Whose key signed what lies below a name, noted when it was first got.
# Another signer is refused. To accept a new one, delete the entry or run
# `weir key trust forget NAME`.

";

/// One entry of `known-signers.toml`.
#[derive(Clone, Eq, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownSigner {
    /// URI of the prefix.
    pub name: String,
    /// SHA-256 of the signer's SubjectPublicKeyInfo, in hexadecimal.
    pub sha256: String,
    /// When it was recorded: `YYYYMMDDThhmmss`, UTC.
    pub since: String,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(default, rename = "signer")]
    signers: Vec<KnownSigner>,
}

impl KeyChain {
    /// The signers known from earlier use, by prefix.
    ///
    /// # Errors
    /// [`KeyChainError::KnownSigners`], or the file cannot be read.
    pub(crate) fn known_signers(&self) -> Result<KnownSigners, KeyChainError> {
        let mut known = KnownSigners::default();
        for entry in self.known_signer_entries()? {
            let (name, digest) = self.parse_entry(&entry)?;
            known.remember(name, digest);
        }
        Ok(known)
    }

    /// The entries of the file.
    ///
    /// # Errors
    /// As `known_signers`.
    pub fn known_signer_entries(&self) -> Result<Vec<KnownSigner>, KeyChainError> {
        let path = self.known_signers_path();
        let Some(text) = files::read_text(&path, FILE_LEN_MAX)? else {
            return Ok(Vec::new());
        };
        let document: Document = toml::from_str(&text)
            .map_err(|error| KeyChainError::KnownSigners { path, reason: error.to_string() })?;
        Ok(document.signers)
    }

    /// Records that the key whose SubjectPublicKeyInfo has this SHA-256 signs names below `prefix`.
    /// Replaces an earlier record.
    ///
    /// # Errors
    /// As [`known_signers`], or the file cannot be written.
    pub(crate) fn remember_signer(
        &self,
        prefix: &Name,
        key_digest: &[u8; 32],
    ) -> Result<(), KeyChainError> {
        self.change_known_signers(|signers| {
            signers.retain(|entry| !is_for(entry, prefix));
            let since = format_timestamp(unix_time_s());
            signers.push(KnownSigner {
                name: prefix.to_string(),
                sha256: hex::encode(key_digest),
                since: since.iter().copied().map(char::from).collect(),
            });
        })
    }

    /// Removes the signer recorded for exactly this prefix. Returns whether there was one.
    ///
    /// # Errors
    /// As `remember_signer`.
    pub fn forget_signer(&self, prefix: &Name) -> Result<bool, KeyChainError> {
        let mut is_known = false;
        self.change_known_signers(|signers| {
            let before = signers.len();
            signers.retain(|entry| !is_for(entry, prefix));
            is_known = signers.len() < before;
        })?;
        Ok(is_known)
    }

    fn change_known_signers(
        &self,
        change: impl FnOnce(&mut Vec<KnownSigner>),
    ) -> Result<(), KeyChainError> {
        let lock = self.lock()?;
        let mut document = Document { signers: self.known_signer_entries()? };
        change(&mut document.signers);
        let path = self.known_signers_path();
        let text = toml::to_string(&document).map_err(|error| KeyChainError::KnownSigners {
            path: path.clone(),
            reason: error.to_string(),
        })?;
        files::write(&lock, &path, format!("{PREAMBLE}{text}").as_bytes(), IfPresent::Replace)
    }

    fn parse_entry(&self, entry: &KnownSigner) -> Result<(Name, [u8; 32]), KeyChainError> {
        let damaged = |reason: String| KeyChainError::KnownSigners {
            path: self.known_signers_path(),
            reason,
        };
        let name = entry
            .name
            .parse()
            .map_err(|error| damaged(format!("{:?} is not a name: {error}", entry.name)))?;
        let mut digest = [0; 32];
        hex::decode_to_slice(&entry.sha256, &mut digest).map_err(|_| {
            damaged(format!("sha256 of {} is not 64 hexadecimal digits", entry.name))
        })?;
        Ok((name, digest))
    }

    fn known_signers_path(&self) -> PathBuf {
        self.dir.join("known-signers.toml")
    }
}

fn is_for(entry: &KnownSigner, prefix: &Name) -> bool {
    entry.name.parse::<Name>().is_ok_and(|name| name == *prefix)
}
