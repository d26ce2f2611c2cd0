//! Tokens: secrets that identify a caller. Only their hashes are stored.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::constant_time;
use aws_lc_rs::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use weir_wire::Name;

/// What the holder of a token may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// A router: it reports itself, under the name of its token only.
    Router,
    /// A producer: it registers files below the prefixes of its token, and withdraws its own files.
    Producer,
    /// An operator: it sees everything, and withdraws any file.
    Operator,
    /// A reader: it sees everything.
    Reader,
}

impl Role {
    const ALL: [(Self, &'static str); 4] = [
        (Self::Router, "router"),
        (Self::Producer, "producer"),
        (Self::Operator, "operator"),
        (Self::Reader, "reader"),
    ];
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = Self::ALL.iter().find(|(role, _)| role == self).map_or("", |(_, word)| word);
        f.pad(word)
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|(_, word)| *word == text);
        found.map(|(role, _)| *role).ok_or_else(|| {
            format!("`{text}` is not a role; use router, producer, operator or reader")
        })
    }
}

/// A stored token. It is not enough to act as its holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The id that it is listed and removed by: the first part of its text.
    pub id: String,
    /// SHA-256 of its secret.
    pub hash: Vec<u8>,
    pub role: Role,
    /// Its holder; for the role router, the name of the router.
    pub name: String,
    /// When it was created, in milliseconds since 1970.
    pub created_ms: u64,
    /// When it expires, in milliseconds since 1970, if it does.
    pub expires_ms: Option<u64>,
    /// A producer may register files below these prefixes, and a router gets routes for prefixes
    /// below them.
    pub prefixes: Vec<Name>,
}

/// Lengths of an id and of a secret in bytes.
const ID_BYTES: usize = 8;
const SECRET_BYTES: usize = 32;
/// Maximum length of the name of a router or of another holder, in bytes.
const NAME_BYTES_MAX: usize = 64;

impl Token {
    /// A new token and its text. Only the text contains the secret.
    pub(crate) fn issue(
        role: Role,
        name: &str,
        created_ms: u64,
        expires_ms: Option<u64>,
        prefixes: &[Name],
    ) -> Result<(Self, String), getrandom::Error> {
        let (mut id, mut secret) = ([0; ID_BYTES], [0; SECRET_BYTES]);
        getrandom::fill(&mut id)?;
        getrandom::fill(&mut secret)?;
        let (id, hash) = (hex::encode(id), hash(&secret));
        let text = format!("weir-{id}-{}", hex::encode(secret));
        let (name, prefixes) = (name.to_owned(), prefixes.to_vec());
        Ok((Self { id, hash, role, name, created_ms, expires_ms, prefixes }, text))
    }

    /// Whether `secret` belongs to this token, in constant time.
    pub(crate) fn is_of(&self, secret: &[u8]) -> bool {
        constant_time::verify_slices_are_equal(&self.hash, &hash(secret)).is_ok()
    }
}

fn hash(secret: &[u8]) -> Vec<u8> {
    digest(&SHA256, secret).as_ref().to_vec()
}

/// Splits the text of a token into its id and its secret.
pub(crate) fn split(text: &str) -> Option<(&str, Vec<u8>)> {
    let (id, secret) = text.strip_prefix("weir-")?.split_once('-')?;
    let is_id = id.len() == ID_BYTES * 2 && secret.len() == SECRET_BYTES * 2;
    let secret = hex::decode(secret).ok().filter(|_| is_id)?;
    Some((id, secret))
}

/// Whether a holder of a token may have this name. It appears in URLs, logs and pages without
/// escaping.
pub fn is_name(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    (1..=NAME_BYTES_MAX).contains(&text.len())
        && text.bytes().all(is_plain)
        && !text.bytes().all(|byte| byte == b'.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verifies_only_its_own_secret() {
        let (token, text) = Token::issue(Role::Router, "r1", 1, None, &[]).unwrap();
        let (id, secret) = split(&text).unwrap();
        assert_eq!(id, token.id);
        assert!(token.is_of(&secret));
        assert!(!token.is_of(&secret[1..]));
        let (other, _) = Token::issue(Role::Router, "r1", 1, None, &[]).unwrap();
        assert!(!other.is_of(&secret) && other.id != token.id);
        assert!(!text.contains(&hex::encode(&token.hash)));
    }

    #[test]
    fn rejects_malformed_tokens() {
        let (_, text) = Token::issue(Role::Reader, "a", 1, None, &[]).unwrap();
        for bad in ["", "weir-", "weir-1-2", &text[1..], &text[..text.len() - 1]] {
            assert_eq!(split(bad), None, "{bad}");
        }
        assert_eq!(split(&text.replace("weir-", "weir--")), None);
    }

    #[test]
    fn accepts_only_plain_names() {
        for good in ["r1", "west.example", "a_b-c"] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", ".", "..", "a/b", "a b", "ä", "a\n", &"x".repeat(65)] {
            assert!(!is_name(bad), "{bad}");
        }
    }

    #[test]
    fn roles_parse_as_words() {
        for (role, word) in Role::ALL {
            assert_eq!((role.to_string().as_str(), word.parse()), (word, Ok(role)));
        }
        assert!("admin".parse::<Role>().is_err());
    }
}
