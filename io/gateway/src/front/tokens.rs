//! Bearer tokens (RFC 6750). The file has only their hashes, as the controller's database has.

use std::collections::HashSet;
use std::path::Path;

use http::header::{self, HeaderMap};
use sha2::{Digest as _, Sha256};

use super::errors::Failure;
use super::{FrontError, Shared};

pub(super) struct Tokens(HashSet<[u8; 32]>);

impl Tokens {
    /// Reads a file with one SHA-256 in hexadecimal digits a line. Empty lines and lines that begin
    /// with `#` are skipped.
    ///
    /// # Errors
    /// The file cannot be read, or a line is not a hash.
    pub(super) fn read(path: &Path) -> Result<Self, FrontError> {
        let error =
            |reason: String| FrontError::Tokens { path: path.display().to_string(), reason };
        let text = std::fs::read_to_string(path).map_err(|source| error(source.to_string()))?;
        let lines = text.lines().map(str::trim).enumerate();
        let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let hashes = lines.map(|(at, line)| {
            let mut hash = [0; 32];
            let decoded = hex::decode_to_slice(line, &mut hash);
            let reason = format!("line {} is no SHA-256 in 64 hexadecimal digits", at + 1);
            decoded.map(|()| hash).map_err(|_| error(reason))
        });
        Ok(Self(hashes.collect::<Result<_, _>>()?))
    }

    fn accept(&self, token: &str) -> bool {
        // The comparison is of hashes, so its duration says nothing about a token.
        self.0.contains(<[u8; 32]>::from(Sha256::digest(token)).as_slice())
    }
}

impl Shared {
    /// Refuses requests without a valid token, if tokens are configured.
    pub(super) fn check_token(&self, fields: &HeaderMap) -> Result<(), Failure> {
        let Some(tokens) = &self.tokens else { return Ok(()) };
        let field = fields.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token = field.and_then(|field| {
            let (scheme, token) = field.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
        });
        match token {
            Some(token) if tokens.accept(token) => Ok(()),
            Some(_) => {
                let challenge = "Bearer error=\"invalid_token\"";
                Err(Failure::unauthorized(challenge, "the token is not valid here"))
            }
            None => {
                let reason = "send a token: Authorization: Bearer TOKEN";
                Err(Failure::unauthorized("Bearer", reason))
            }
        }
    }
}
