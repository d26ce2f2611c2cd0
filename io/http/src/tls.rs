//! TLS, with client certificates if configured.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use serde::Deserialize;

/// The files of a TLS server (PEM).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsFiles {
    /// The server certificate, followed by intermediate certificates.
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// Certificates of authorities. If set, clients need a certificate issued by one of them.
    pub clients: Option<PathBuf>,
}

/// A file for TLS cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{what} in {path} cannot be used: {why}")]
pub struct TlsError {
    what: &'static str,
    path: PathBuf,
    why: String,
}

fn certificates(path: &Path, what: &'static str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let bad = |why: String| TlsError { what, path: path.to_path_buf(), why };
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = read.map_err(|error| bad(error.to_string()))?;
    if found.is_empty() {
        return Err(bad("the file contains no certificate".to_owned()));
    }
    Ok(found)
}

/// The configuration of a TLS server with these files. It offers `protocols` (ALPN), best first.
///
/// # Errors
/// A file is missing or has another content.
pub fn tls_config(files: &TlsFiles, protocols: &[&[u8]]) -> Result<ServerConfig, TlsError> {
    let provider = Arc::new(default_provider());
    let of_key = |why: String| {
        let path = files.key.clone();
        TlsError { what: "the private key", path, why }
    };
    let chain = certificates(&files.certificate, "the certificate")?;
    let key =
        PrivateKeyDer::from_pem_file(&files.key).map_err(|error| of_key(error.to_string()))?;
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| of_key(error.to_string()))?;
    let builder = match &files.clients {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let what = "certificates of authorities";
            let bad = |why: String| TlsError { what, path: path.clone(), why };
            let mut roots = RootCertStore::empty();
            for certificate in certificates(path, what)? {
                roots.add(certificate).map_err(|error| bad(error.to_string()))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
            let verifier = verifier.build().map_err(|error| bad(error.to_string()))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config =
        builder.with_single_cert(chain, key).map_err(|error| of_key(error.to_string()))?;
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(config)
}
