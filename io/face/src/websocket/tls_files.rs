//! The files of TLS: the certificate of a listener, and the authorities that a client trusts.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use super::validity::validity_problem;

/// The protocol under WebSocket (ALPN).
const PROTOCOL: &[u8] = b"http/1.1";

/// Longer files are refused. The system's list of authorities has a third of this.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The files of a listener (PEM).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate of the router, followed by intermediate certificates.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// A file for TLS cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{what} in {} cannot be used: {why}", path.display())]
pub struct TlsFileError {
    what: &'static str,
    path: PathBuf,
    why: String,
}

impl TlsFileError {
    fn new(what: &'static str, path: &Path, why: impl fmt::Display) -> Self {
        Self { what, path: path.to_owned(), why: why.to_string() }
    }
}

/// The certificate of a listener. Certificates are renewed while the router runs, so the files are
/// read again when they change.
#[derive(Clone)]
pub struct ServerCertificate {
    files: CertificateFiles,
    /// The files of the last attempt to read them, successful or not.
    stamps: [Option<Stamp>; 2],
    config: Arc<ServerConfig>,
}

impl ServerCertificate {
    /// Reads the files.
    ///
    /// # Errors
    /// A file is missing or has other content, or the key belongs to another certificate.
    pub fn load(files: &CertificateFiles) -> Result<Self, TlsFileError> {
        // First, so that a change during the read is noticed later.
        let stamps = stamps(files);
        let config = Arc::new(server_config(files)?);
        Ok(Self { files: files.clone(), stamps, config })
    }

    /// Reads the files again, if they have changed since the last attempt. `None` if not. After an
    /// error, the previous certificate stays in use until the files change again. The two files are
    /// never replaced at the same moment, so an error is usual between them.
    pub(crate) fn reload(&mut self) -> Option<Result<(), TlsFileError>> {
        let stamps = stamps(&self.files);
        if stamps == self.stamps {
            return None;
        }
        self.stamps = stamps;
        Some(server_config(&self.files).map(|config| self.config = Arc::new(config)))
    }

    /// Why clients refuse it at present, if they do: it has expired, for example.
    pub fn problem(&self) -> Option<String> {
        certificate_problem(&self.files.certificate)
    }

    pub(super) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }
}

impl fmt::Debug for ServerCertificate {
    /// Shows no secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerCertificate").field("files", &self.files).finish_non_exhaustive()
    }
}

/// Differs when a file was written or replaced: device, inode, length, and time in seconds and
/// nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp([i64; 5]);

fn stamps(files: &CertificateFiles) -> [Option<Stamp>; 2] {
    [&files.certificate, &files.key].map(|path| {
        let found = fs::metadata(path).ok()?;
        let (device, inode, len) = (found.dev() as i64, found.ino() as i64, found.len() as i64);
        Some(Stamp([device, inode, len, found.mtime(), found.mtime_nsec()]))
    })
}

fn server_config(files: &CertificateFiles) -> Result<ServerConfig, TlsFileError> {
    let bad_key = |why: String| TlsFileError::new("the private key", &files.key, why);
    let chain = certificates(&files.certificate, "the certificate")?;
    let octets = read_file(&files.key).map_err(|error| bad_key(error.to_string()))?;
    let key = PrivateKeyDer::from_pem_slice(&octets).map_err(|error| {
        bad_key(explain(error, "it contains no private key in PEM form, or an encrypted one"))
    })?;
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| bad_key(error.to_string()))?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| bad_key(error.to_string()))?;
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    Ok(config)
}

fn certificates(
    path: &Path,
    what: &'static str,
) -> Result<Vec<CertificateDer<'static>>, TlsFileError> {
    const NONE: &str = "it contains no certificate in PEM form";
    let octets = read_file(path).map_err(|error| TlsFileError::new(what, path, error))?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&octets).collect();
    let found = found.map_err(|error| TlsFileError::new(what, path, explain(error, NONE)))?;
    if found.is_empty() {
        return Err(TlsFileError::new(what, path, NONE));
    }
    Ok(found)
}

/// Why clients refuse the certificates in this file (PEM), if one of them is not valid at present.
/// `None` also if the file cannot be read, which the use of it reports.
pub fn certificate_problem(path: &Path) -> Option<String> {
    let chain = certificates(path, "the certificate").ok()?;
    validity_problem(&chain, UnixTime::now())
}

/// Reads a file in the control thread. Opening a FIFO would wait for a writer, and some devices
/// have no end.
fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let mut options = File::options();
    let file = options.read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    if found.len() > FILE_BYTES_MAX {
        return Err(io::Error::other("it is longer than 1 MiB"));
    }
    let mut octets = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut octets)?;
    Ok(octets)
}

/// `none`: what to say if the text has no item of the wanted kind.
fn explain(error: pem::Error, none: &'static str) -> String {
    match error {
        pem::Error::NoItemsFound => none.to_owned(),
        pem::Error::MissingSectionEnd { .. } => "its last section has no end".to_owned(),
        error => format!("it is no valid PEM text: {error}"),
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(default_provider())
}

/// The authorities whose certificates a client accepts: those of the system, and an own one.
#[derive(Clone, Debug, Default)]
pub struct TlsTrust {
    ca: Option<PathBuf>,
}

impl TlsTrust {
    /// Trusts the certificates in the file `ca` (PEM) in addition to those of the system.
    ///
    /// # Errors
    /// The file is missing, or contains no certificate of an authority.
    pub fn new(ca: Option<PathBuf>) -> Result<Self, TlsFileError> {
        let trust = Self { ca };
        trust.own_roots(&mut RootCertStore::empty())?;
        Ok(trust)
    }

    fn own_roots(&self, roots: &mut RootCertStore) -> Result<(), TlsFileError> {
        let what = "the certificate of an authority";
        let Some(path) = &self.ca else { return Ok(()) };
        for certificate in certificates(path, what)? {
            roots.add(certificate).map_err(|error| TlsFileError::new(what, path, error))?;
        }
        Ok(())
    }

    /// The configuration of one connection. Reads the files of the system and the own one, which
    /// may have changed.
    pub(super) fn client_config(&self) -> io::Result<Arc<ClientConfig>> {
        let mut roots = RootCertStore::empty();
        self.own_roots(&mut roots).map_err(io::Error::other)?;
        // The system's files may include some that cannot be read or are not supported.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let mut config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(Arc::new(config))
    }
}
