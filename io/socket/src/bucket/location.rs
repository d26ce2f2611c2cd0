//! Addresses of places in buckets.

use std::fmt;
use std::str::FromStr;

use weir_base::without_secrets;

const SCHEME: &str = "s3://";

/// A place in a bucket: `s3://BUCKET/PREFIX`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    pub(crate) bucket: String,
    /// Without slashes at its ends; empty for the whole bucket.
    pub(crate) prefix: String,
}

/// The text is not such an address.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not an address of the form s3://BUCKET/PREFIX")]
pub struct LocationError(String);

impl Location {
    /// Whether a text has the scheme of such an address.
    pub fn has_scheme(text: &str) -> bool {
        text.starts_with(SCHEME)
    }
}

impl FromStr for Location {
    type Err = LocationError;

    fn from_str(text: &str) -> Result<Self, LocationError> {
        let error = || LocationError(without_secrets(text));
        let rest = text.strip_prefix(SCHEME).ok_or_else(error)?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let prefix = prefix.trim_matches('/');
        // The rules for bucket names differ between services. No service permits these characters.
        let is_odd = |character: char| character.is_control() || "?#%\\ ".contains(character);
        let is_step =
            |part: &str| prefix.contains('/') && part.is_empty() || part == "." || part == "..";
        // Before an `@` there may be a password.
        let is_bucket = !bucket.is_empty() && !bucket.contains(is_odd) && !bucket.contains('@');
        if !is_bucket || prefix.contains(is_odd) || prefix.split('/').any(is_step) {
            return Err(error());
        }
        Ok(Self { bucket: bucket.to_owned(), prefix: prefix.to_owned() })
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}", self.bucket)?;
        match &self.prefix[..] {
            "" => Ok(()),
            prefix => write!(f, "/{prefix}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_and_prints_addresses() {
        for (text, bucket, prefix, shown) in [
            ("s3://b", "b", "", "s3://b"),
            ("s3://b/", "b", "", "s3://b"),
            ("s3://b-1.x/p", "b-1.x", "p", "s3://b-1.x/p"),
            ("s3://b/p/q/", "b", "p/q", "s3://b/p/q"),
            ("s3://b/me@example.org/x", "b", "me@example.org/x", "s3://b/me@example.org/x"),
        ] {
            let location: Location = text.parse().unwrap();
            assert_eq!((&location.bucket[..], &location.prefix[..]), (bucket, prefix));
            assert_eq!(location.to_string(), shown);
        }
        for text in
            ["", "b/p", "s3:/b", "s3://", "s3:///p", "s3://b/p//q", "s3://b/../q", "s3://b?x"]
        {
            assert!(text.parse::<Location>().is_err(), "{text}");
        }
        for text in ["s3://key:secret@b/p", "s3://b/p?key=secret"] {
            let error = text.parse::<Location>().unwrap_err().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
