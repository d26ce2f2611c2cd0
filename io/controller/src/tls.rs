//! TLS, with client certificates if configured.

use std::path::Path;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

use crate::config::{StartError, TlsFiles};

fn certificates(
    path: &Path,
    what: &'static str,
) -> Result<Vec<CertificateDer<'static>>, StartError> {
    let bad = |why: String| StartError::Tls { what, path: path.to_path_buf(), why };
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = read.map_err(|error| bad(error.to_string()))?;
    if found.is_empty() {
        return Err(bad("the file contains no certificate".to_owned()));
    }
    Ok(found)
}

/// A TLS acceptor with the certificate and key of `files`.
pub(crate) fn acceptor(files: &TlsFiles) -> Result<TlsAcceptor, StartError> {
    let provider = Arc::new(default_provider());
    let of_key = |why: String| {
        let path = files.key.clone();
        StartError::Tls { what: "the private key", path, why }
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
            let bad = |why: String| StartError::Tls { what, path: path.clone(), why };
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
    // The server supports only HTTP/1.1.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
