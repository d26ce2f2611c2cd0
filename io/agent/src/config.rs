//! How an agent is started.

use std::io;
use std::time::Duration;

/// What an agent has to know.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// Where the controller is, such as `https://controller.example:7443`.
    pub url: String,
    /// Bearer token.
    pub token: Option<String>,
    /// The router's name: 1 to 64 of `A-Z a-z 0-9 . _ -`.
    pub name: String,
    /// FaceUris under which other routers reach this one, the best first, in canonical form.
    pub uris: Vec<String>,
    /// How often the controller is told what has changed.
    pub interval: Duration,
    /// PEM of the certificates by which the controller's is believed; needed for https.
    pub ca_pem: Option<Vec<u8>>,
    /// Whether orders to fetch ahead of demand are followed.
    pub prefetch: bool,
}

/// Why an agent does not start.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The name cannot be one.
    #[error("`{0}` is no name of a router: 1 to 64 of A-Z a-z 0-9 . _ -")]
    Name(String),
    /// The address cannot be one.
    #[error("`{0}` is no address of a controller such as https://controller.example:7443")]
    Url(String),
    /// Nobody vouches for the controller.
    #[error("an https controller needs the certificates by which it is believed: set `ca`")]
    NoCertificates,
    /// The certificates cannot be read.
    #[error("the certificates of the controller cannot be read: {0}")]
    Certificates(String),
    /// The system refuses something.
    #[error(transparent)]
    System(#[from] io::Error),
}

impl AgentConfig {
    pub(crate) fn check(&self) -> Result<(), AgentError> {
        let is_letter = |octet: u8| octet.is_ascii_alphanumeric() || b"._-".contains(&octet);
        if !(1..=64).contains(&self.name.len()) || !self.name.bytes().all(is_letter) {
            return Err(AgentError::Name(self.name.clone()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rest::Rest;

    #[test]
    fn bad_names_and_addresses_are_refused() {
        let config = |url: &str, name: &str| AgentConfig {
            url: url.into(),
            token: None,
            name: name.into(),
            uris: Vec::new(),
            interval: Duration::from_secs(1),
            ca_pem: None,
            prefetch: true,
        };
        assert!(config("http://127.0.0.1:80", "edge-1.x_y").check().is_ok());
        for name in ["", "a/b", "a b", &"a".repeat(65)] {
            let refused = config("http://h", name).check();
            assert!(matches!(refused, Err(AgentError::Name(_))), "{name}");
        }
        for url in ["", "h:80", "ftp://h", "http://", "http:///v1"] {
            let refused = Rest::new(&config(url, "a"));
            assert!(matches!(refused, Err(AgentError::Url(_))), "{url}");
        }
        let refused = Rest::new(&config("https://h", "a"));
        assert!(matches!(refused, Err(AgentError::NoCertificates)));
    }
}
