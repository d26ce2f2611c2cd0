//! How to reach a controller and to authenticate to it.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use ureq::http::Uri;
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};
use weir_base::without_secrets;

use crate::error::AgentError;

/// How to reach a controller and to authenticate to it.
#[derive(Clone, Default)]
pub struct Access {
    /// Its address, such as `https://controller.example:8636`.
    pub url: String,
    /// Controllers that share its database and its tokens. They are tried in this order while it is
    /// unreachable.
    pub others: Vec<String>,
    /// The bearer token. Over plain http it is only sent to this machine.
    pub token: Option<String>,
    /// The file of the token. It is read again when a controller refuses the token, because it may
    /// have been replaced.
    pub token_file: Option<PathBuf>,
    /// PEM certificates to verify the controller; required for https.
    pub ca_pem: Option<Vec<u8>>,
    /// PEM client certificate, followed by intermediate certificates, for controllers that require
    /// one.
    pub certificate_pem: Option<Vec<u8>>,
    pub key_pem: Option<Vec<u8>>,
    /// Whether the token may be sent unencrypted to other machines.
    pub insecure: bool,
}

impl fmt::Debug for Access {
    /// Shows no secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("Access");
        let others: Vec<String> = self.others.iter().map(|url| without_secrets(url)).collect();
        text.field("url", &without_secrets(&self.url)).field("others", &others);
        text.finish_non_exhaustive()
    }
}

impl Access {
    /// The TLS configuration, or none for http. Refuses a configuration that is unsafe or invalid.
    pub(crate) fn tls(&self) -> Result<Option<TlsConfig>, AgentError> {
        if self.token.as_deref().is_some_and(|token| token.contains(|c: char| c.is_control())) {
            return Err(AgentError::Token);
        }
        // Check all addresses, as the token may be sent to each of them.
        let mut is_plain = true;
        for url in self.urls() {
            let uri = uri(url).ok_or_else(|| AgentError::Url(without_secrets(url)))?;
            let is_http = uri.scheme_str() == Some("http");
            is_plain &= is_http;
            if is_http && self.token.is_some() && !self.insecure && !is_this_machine(&uri) {
                return Err(AgentError::PlainToken(without_secrets(url)));
            }
        }
        if is_plain {
            if self.certificate_pem.is_some() || self.key_pem.is_some() {
                return Err(AgentError::OwnCertificate(
                    "all addresses are http, and it needs https",
                ));
            }
            return Ok(None);
        }
        let ca_pem = self.ca_pem.as_ref().ok_or(AgentError::NoCertificates)?;
        let roots = certificates(ca_pem)?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = TlsConfig::builder()
            .unversioned_rustls_crypto_provider(provider)
            .root_certs(RootCerts::new_with_certs(&roots))
            .client_cert(self.client_certificate()?);
        Ok(Some(tls.build()))
    }

    /// All controllers in the order in which they are tried.
    pub(crate) fn urls(&self) -> impl Iterator<Item = &String> {
        std::iter::once(&self.url).chain(&self.others)
    }

    fn client_certificate(&self) -> Result<Option<ClientCert>, AgentError> {
        let (chain, key) = match (&self.certificate_pem, &self.key_pem) {
            (None, None) => return Ok(None),
            (Some(chain), Some(key)) => (chain, key),
            (Some(_), None) => return Err(AgentError::OwnCertificate("its key is not configured")),
            (None, Some(_)) => {
                return Err(AgentError::OwnCertificate("its key is configured, but it is not"));
            }
        };
        let chain = certificates(chain)
            .map_err(|_| AgentError::OwnCertificate("its file contains no certificate"))?;
        let key = PrivateKey::from_pem(key)
            .map_err(|_| AgentError::OwnCertificate("the key's file contains no private key"))?;
        Ok(Some(ClientCert::new_with_certs(&chain, key)))
    }
}

fn uri(url: &str) -> Option<Uri> {
    let uri: Uri = url.parse().ok()?;
    let is_there = matches!(uri.scheme_str(), Some("http" | "https"))
        && uri.host().is_some_and(|host| !host.is_empty());
    is_there.then_some(uri)
}

/// Whether a request to `uri` stays on this machine.
fn is_this_machine(uri: &Uri) -> bool {
    let host = uri.host().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse();
    address.map_or(host.eq_ignore_ascii_case("localhost"), |address: IpAddr| address.is_loopback())
}

fn certificates(pem: &[u8]) -> Result<Vec<Certificate<'static>>, AgentError> {
    let mut certificates: Vec<Certificate<'static>> = Vec::new();
    for item in parse_pem(pem) {
        match item {
            Ok(PemItem::Certificate(certificate)) => certificates.push(certificate),
            Ok(_) => {}
            Err(error) => return Err(AgentError::Certificates(error.to_string())),
        }
    }
    if certificates.is_empty() {
        return Err(AgentError::Certificates("the file contains no certificate".into()));
    }
    Ok(certificates)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(url: &str) -> Access {
        Access { url: url.into(), token: Some("secret".into()), ..Access::default() }
    }

    #[test]
    fn token_leaves_machine_only_by_tls() {
        for url in [
            "http://127.0.0.1:8636",
            "http://127.1.2.3",
            "http://[::1]:80/",
            "http://localhost:8636/base",
            "http://LocalHost",
        ] {
            assert!(access(url).tls().is_ok(), "{url}");
        }
        for url in [
            "http://192.0.2.1:8636",
            "http://controller.example",
            "http://[2001:db8::1]:80",
            "http://127.0.0.1@controller.example/",
            "http://127.0.0.1.example/",
            "http://localhost.example/",
            "http://0.0.0.0:8636",
        ] {
            let refused = access(url).tls();
            assert!(matches!(refused, Err(AgentError::PlainToken(_))), "{url}");
            let text = refused.err().map(|error| error.to_string()).unwrap_or_default();
            assert!(text.contains("https") && text.contains("insecure"), "{text}");
            assert!(Access { insecure: true, ..access(url) }.tls().is_ok(), "{url}");
            assert!(Access { token: None, ..access(url) }.tls().is_ok(), "{url}");
        }
    }

    #[test]
    fn rejects_bad_addresses_and_certificates() {
        for url in ["", "h:80", "ftp://h", "http://", "http:///v1", "https://", "HTTP//h"] {
            assert!(matches!(access(url).tls(), Err(AgentError::Url(_))), "{url}");
        }
        let https = access("https://h");
        assert!(matches!(https.tls(), Err(AgentError::NoCertificates)));
        let https = Access { ca_pem: Some(b"none".to_vec()), ..https };
        assert!(matches!(https.tls(), Err(AgentError::Certificates(_))));
        let plain = Access { certificate_pem: Some(Vec::new()), ..access("http://127.0.0.1") };
        assert!(matches!(plain.tls(), Err(AgentError::OwnCertificate(_))));
    }

    #[test]
    fn checks_every_address() {
        let with = |other: &str| Access { others: vec![other.into()], ..access("http://[::1]") };
        assert!(with("http://127.0.0.1").tls().is_ok());
        assert!(matches!(with("http://192.0.2.1").tls(), Err(AgentError::PlainToken(_))));
        assert!(matches!(with("there").tls(), Err(AgentError::Url(_))));
        assert!(matches!(with("https://h").tls(), Err(AgentError::NoCertificates)));
    }

    #[test]
    fn debug_hides_secrets() {
        assert!(!format!("{:?}", access("http://h")).contains("secret"));
        let with_user = Access {
            others: vec!["http://me:secret@other".into(), "http://h?key=secret".into()],
            ..access("http://me:secret@192.0.2.1")
        };
        let shown = format!("{with_user:?}");
        assert!(shown.contains("http://***@other") && !shown.contains("secret"), "{shown}");
        for url in ["ftp://me:secret@h", "http://me:secret@192.0.2.1"] {
            let error = access(url).tls().unwrap_err().to_string();
            assert!(error.contains("***@") && !error.contains("secret"), "{error}");
        }
    }
}
