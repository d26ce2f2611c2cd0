//! Keys, certificates and trust on disk.
//!
//! ```text
//! $WEIR_HOME | $XDG_CONFIG_HOME/weir | ~/.config/weir
//!   keys/<name>-<hash>.pem            PKCS#8, encrypted or mode 0600
//!   certificates/<name>-<hash>.cert   base64 of the Data
//!   anchors/<name>-<hash>.cert        certificates that are always trusted
//!   default                           name of the key that signs by default
//!   known-signers.toml                trust on first use
//!   lock                              locked while any of these changes
//! ```

mod files;
mod key_file;
mod known_signers;
mod user_trust;

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use weir_security::trust::{Anchors, TrustError};
use weir_security::{
    Certificate, CertificateDraft, CertificateError, IssueError, SELF_ISSUER, Validity,
    is_certificate_name, is_key_name, key_name, key_name_of,
};
use weir_wire::{Name, NameView};

pub use key_file::KeyEntry;
pub use user_trust::UserTrust;

use crate::ndnd_key::decode_ndnd_key;
use crate::passphrase::{PassphraseError, PassphraseSource};
use crate::pem::{private_key_from_pem, private_key_to_pem};
use crate::private_key::{KeyError, KeyType, PrivateKey};
use crate::random::random_octets;
use crate::safe_bag::{TYPE_SAFE_BAG, decode_safe_bag, encode_safe_bag};
use crate::signer::KeySigner;
use crate::text::{NdnPem, NdnPemKind, packet_in_file, to_base64_lines};
use crate::verifier::{HmacVerifier, Provider};
use files::{IfPresent, Lock};

/// Environment variable that names the directory of keys and trust.
pub(crate) const HOME_VARIABLE: &str = "WEIR_HOME";

/// Validity of a self-signed certificate: 20 years.
pub(crate) const SELF_VALIDITY_S: i64 = 20 * 365 * 86_400;

/// Validity begins this long before a certificate is made, because clocks of others may be slow.
pub(crate) const BACKDATED_S: i64 = 86_400;

/// Validity of a certificate issued to another key: 365 days.
pub const ISSUED_VALIDITY_S: i64 = 365 * 86_400;

/// Size limit of a certificate file, in bytes: base64 of a packet, with room for white space.
const CERTIFICATE_FILE_LEN_MAX: usize = 32 * 1024;

const DATA_OCTET: u8 = 6;

/// Why an operation of the key chain failed.
#[derive(Debug, thiserror::Error)]
pub enum KeyChainError {
    /// Neither `WEIR_HOME` nor a home directory is known.
    #[error("no directory for keys is known; set {HOME_VARIABLE} to one")]
    NoHome,
    #[error("cannot {doing} {path}", path = path.display())]
    Io {
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// Others can read or change an unencrypted key.
    #[error(
        "others can read the key in {path} (mode {mode:03o}); it may be known to them. Make a new \
         key with `weir key new`, or, if you are sure of it, run `chmod 600 {path}`",
        path = path.display()
    )]
    Exposed { path: PathBuf, mode: u32 },
    /// A file in `keys/` is not a key file.
    #[error("{path} is not a key file; move it out of the directory", path = path.display())]
    MalformedKeyFile { path: PathBuf },
    /// The key in a file cannot be read or used.
    #[error("cannot use the key in {path}", path = path.display())]
    Key {
        path: PathBuf,
        #[source]
        source: KeyError,
    },
    /// A key cannot be generated or exported.
    #[error(transparent)]
    PrivateKey(#[from] KeyError),
    #[error("{path} is not a certificate", path = path.display())]
    MalformedCertificate {
        path: PathBuf,
        /// The error, if it is a packet at all.
        #[source]
        source: Option<CertificateError>,
    },
    /// The imported file has an unknown format.
    #[error(
        "this is neither a certificate, nor a SafeBag, nor a key in PEM, as `weir key export`, \
         ndnsec, ndnd and OpenSSL write them"
    )]
    UnknownFormat,
    /// An imported key has no name, and none was given.
    #[error("the file does not name the key's owner; give a name")]
    NameNeeded,
    #[error("there is no key {0}; `weir key list` shows those there are")]
    NoSuchKey(Name),
    #[error("there is no certificate {0}")]
    NoSuchCertificate(Name),
    #[error("the key {0} has no certificate (HMAC keys never have)")]
    NoCertificate(Name),
    #[error("no key is the default; choose one with `weir key default NAME`")]
    NoDefault,
    #[error("there is a key {0} already; delete it first")]
    KeyExists(Name),
    #[error(transparent)]
    Passphrase(#[from] PassphraseError),
    /// A certificate was not issued.
    #[error(transparent)]
    Issue(#[from] IssueError),
    /// A certificate is not trusted.
    #[error(transparent)]
    Trust(#[from] TrustError),
    #[error("{path} is damaged; correct or delete it: {reason}", path = path.display())]
    KnownSigners {
        path: PathBuf,
        /// The error, with its line.
        reason: String,
    },
}

#[derive(Clone, Debug)]
pub enum Imported {
    /// A private key, now in the key chain.
    Key(KeyEntry),
    /// A certificate without its private key.
    Certificate(Name),
}

/// Keys, certificates and trust in one directory. Nothing is cached: each method reads the files
/// that it needs. Only methods that say so write.
#[derive(Clone, Debug)]
pub struct KeyChain {
    dir: PathBuf,
    passphrases: PassphraseSource,
}

impl KeyChain {
    /// The user's key chain: `$WEIR_HOME`, `$XDG_CONFIG_HOME/weir` or `~/.config/weir`.
    ///
    /// # Errors
    /// [`KeyChainError::NoHome`].
    pub fn open() -> Result<Self, KeyChainError> {
        Ok(Self::at(default_dir()?))
    }

    /// The key chain in this directory, which is created by the first write.
    pub fn at(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), passphrases: PassphraseSource::Standard }
    }

    /// Sets the source of passphrases of encrypted keys.
    #[must_use]
    pub fn with_passphrases(mut self, passphrases: PassphraseSource) -> Self {
        self.passphrases = passphrases;
        self
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// All keys, sorted by file name.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn keys(&self) -> Result<Vec<KeyEntry>, KeyChainError> {
        let paths = files::list(&self.dir.join("keys"), "pem")?;
        // Another process may have deleted a listed file.
        let entries = paths.iter().filter_map(|path| key_file::read(path).transpose());
        entries.map(|read| Ok(read?.0)).collect()
    }

    /// The key for `name`, which is the name of the key, of one of its certificates, or of an
    /// identity. An identity selects the default key if that is one of its keys, else its newest
    /// key.
    ///
    /// # Errors
    /// [`KeyChainError::NoSuchKey`].
    pub fn find(&self, name: &Name) -> Result<KeyEntry, KeyChainError> {
        if let Some(exact) = key_name_of(name.as_view()) {
            let read = key_file::read(&self.key_path(exact))?;
            let no_such_key = || KeyChainError::NoSuchKey(name.clone());
            return read.map(|(entry, _)| entry).ok_or_else(no_such_key);
        }
        let default = self.default_name()?;
        let mut keys = self.keys()?;
        keys.retain(|key| key.identity() == name.as_view());
        keys.sort_by_key(|key| {
            let made = std::fs::metadata(&key.path).and_then(|data| data.modified()).ok();
            (Some(&key.name) == default.as_ref(), made)
        });
        keys.pop().ok_or_else(|| KeyChainError::NoSuchKey(name.clone()))
    }

    /// Generates a key for an identity, and its self-signed certificate (none for HMAC).
    /// `identity` may also be the complete name of the key. A passphrase encrypts the key. Unless
    /// it is an HMAC key, it becomes the default if there is none.
    pub fn generate(
        &self,
        identity: &Name,
        key_type: KeyType,
        passphrase: Option<&str>,
    ) -> Result<KeyEntry, KeyChainError> {
        self.add_key(key_name_for(identity), PrivateKey::generate(key_type)?, passphrase, None)
    }

    /// The name of the default key, if one was chosen.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn default_name(&self) -> Result<Option<Name>, KeyChainError> {
        let text = files::read_text(&self.default_path(), CERTIFICATE_FILE_LEN_MAX)?;
        Ok(text.and_then(|text| text.trim().parse().ok()))
    }

    /// Makes `name` (as in [`Self::find`]) the default key.
    ///
    /// # Errors
    /// [`KeyChainError::NoSuchKey`], or the file cannot be written.
    pub fn set_default(&self, name: &Name) -> Result<KeyEntry, KeyChainError> {
        let lock = self.lock()?;
        let key = self.find(name)?;
        self.write_default(&lock, &key.name)?;
        Ok(key)
    }

    /// A signer with the key for `name` (as in [`Self::find`]). A certificate name selects the
    /// certificate for the KeyLocator. Otherwise it is the newest valid one; issued certificates
    /// come first.
    ///
    /// # Errors
    /// [`KeyChainError::NoSuchKey`], [`KeyChainError::Exposed`], or a missing passphrase.
    pub fn signer(&self, name: &Name) -> Result<KeySigner, KeyChainError> {
        let entry = self.find(name)?;
        let key = self.private_key(&entry)?;
        let certificate = match is_certificate_name(name.as_view()) {
            true => Some(self.certificate(name)?),
            false => {
                // A lost or deleted key of the same name may have left a certificate. So those with
                // this public key come first.
                let all = self.certificates_of(entry.name.as_view())?;
                let public_key = key.public_key().ok();
                let (own, others): (Vec<_>, Vec<_>) =
                    all.into_iter().partition(|one| is_certificate_of(one, public_key.as_deref()));
                // Other programs may encode the same public key differently, so the others are a
                // fallback.
                newest_valid(own).or_else(|| newest_valid(others))
            }
        };
        Ok(match certificate {
            Some(certificate) => KeySigner::with_certificate(key, certificate),
            None => KeySigner::new(key, entry.name),
        })
    }

    /// A signer with the default key. If there is no key at all, first generates an ECDSA P-256 key
    /// for [`default_identity`]. It is encrypted if a passphrase is set in the environment or a
    /// file.
    ///
    /// # Errors
    /// [`KeyChainError::NoDefault`], and the errors of [`Self::signer`] and [`Self::generate`].
    pub fn default_signer_or_create(&self) -> Result<KeySigner, KeyChainError> {
        if let Some(name) = self.existing_default()? {
            return self.signer(&name);
        }
        if self.keys()?.iter().any(|key| key.key_type != KeyType::Hmac) {
            return Err(KeyChainError::NoDefault);
        }
        let passphrase = self.passphrases.without_prompt()?;
        let passphrase = passphrase.as_ref().map(|text| text.as_str());
        let made = self.generate(&default_identity(), KeyType::Ecdsa, passphrase)?;
        self.signer(&self.existing_default()?.unwrap_or(made.name))
    }

    /// The verifier for signatures of an HMAC key of this key chain.
    ///
    /// # Errors
    /// [`KeyChainError::NoSuchKey`] also if it is another kind of key; the errors of
    /// [`Self::signer`].
    pub(crate) fn hmac_verifier(&self, name: &Name) -> Result<HmacVerifier, KeyChainError> {
        let key = self.private_key(&self.find(name)?)?;
        let secret = key.hmac_secret().ok_or_else(|| KeyChainError::NoSuchKey(name.clone()))?;
        Ok(HmacVerifier::new(secret)?)
    }

    /// Reads a key, and decrypts it if necessary.
    ///
    /// # Errors
    /// [`KeyChainError::Exposed`], [`KeyChainError::Key`] and [`KeyChainError::Passphrase`].
    pub(crate) fn private_key(&self, entry: &KeyEntry) -> Result<PrivateKey, KeyChainError> {
        let passphrase = match entry.is_encrypted {
            true => Some(self.passphrases.for_decryption(&format!("the key {}", entry.name))?),
            false => {
                files::check_private(&entry.path)?;
                None
            }
        };
        let no_such_key = || KeyChainError::NoSuchKey(entry.name.clone());
        let (_, text) = key_file::read(&entry.path)?.ok_or_else(no_such_key)?;
        private_key_from_pem(&text, passphrase.as_ref().map(|text| text.as_str()))
            .map_err(|source| KeyChainError::Key { path: entry.path.clone(), source })
    }

    /// Deletes the key for `name`, and its certificates. If it was the default, there is none
    /// afterwards.
    ///
    /// # Errors
    /// [`KeyChainError::NoSuchKey`], or files cannot be deleted.
    pub fn delete(&self, name: &Name) -> Result<KeyEntry, KeyChainError> {
        let lock = self.lock()?;
        let entry = self.find(name)?;
        // The key is deleted first. If the process is killed in between, leftover certificates are
        // harmless, but a key without its certificate would be unusable.
        files::remove(&lock, &entry.path)?;
        if self.default_name()?.as_ref() == Some(&entry.name) {
            files::remove(&lock, &self.default_path())?;
        }
        for certificate in self.certificates_of(entry.name.as_view())? {
            files::remove(&lock, &self.certificate_path(certificate.name()))?;
        }
        Ok(entry)
    }

    /// All certificates, of keys in this key chain and imported ones.
    pub fn certificates(&self) -> Result<Vec<Certificate>, KeyChainError> {
        read_certificates(&self.dir.join("certificates"))
    }

    /// The certificate with exactly this name.
    ///
    /// # Errors
    /// [`KeyChainError::NoSuchCertificate`], or it cannot be read.
    pub fn certificate(&self, name: &Name) -> Result<Certificate, KeyChainError> {
        let path = self.certificate_path(name.as_view());
        match path.try_exists().map_err(files::io_error("read", &path))? {
            true => read_certificate(&path),
            false => Err(KeyChainError::NoSuchCertificate(name.clone())),
        }
    }

    /// The certificate to sign under with the key of this name: the newest valid one; certificates
    /// issued by others come before its own. `None` if it has none.
    pub fn certificate_for(&self, key: &Name) -> Result<Option<Certificate>, KeyChainError> {
        Ok(newest_valid(self.certificates_of(key.as_view())?))
    }

    pub(crate) fn add_certificate(&self, certificate: &Certificate) -> Result<(), KeyChainError> {
        self.write_certificate(&self.lock()?, certificate)
    }

    /// Adds the certificate of another signer. It replaces none, and is none of an own key, because
    /// others have chosen its name.
    pub(crate) fn keep_certificate(&self, certificate: &Certificate) -> Result<(), KeyChainError> {
        let lock = self.lock()?;
        let is_own = self.find(&certificate.key_name().to_name()).is_ok();
        if is_own || self.certificate_path(certificate.name()).exists() {
            return Ok(());
        }
        self.write_certificate(&lock, certificate)
    }

    fn write_certificate(
        &self,
        lock: &Lock,
        certificate: &Certificate,
    ) -> Result<(), KeyChainError> {
        write_certificate(lock, &self.certificate_path(certificate.name()), certificate)
    }

    /// Imports a certificate or a SafeBag (each binary or base64), a PKCS#8 PEM key, or all
    /// certificates and keys in ndnd's PEM text. An encrypted key keeps its passphrase, and
    /// `protect` encrypts an unencrypted PEM key. `name`, an identity or a key name, is the name of
    /// a PEM key. It may be absent if the PEM text has one.
    ///
    /// # Errors
    /// [`KeyChainError::UnknownFormat`], [`KeyChainError::NameNeeded`],
    /// [`KeyChainError::KeyExists`], or it cannot be opened or written.
    pub fn import(
        &self,
        octets: &[u8],
        name: Option<&Name>,
        protect: Option<&str>,
    ) -> Result<Vec<Imported>, KeyChainError> {
        if let Some(text) = std::str::from_utf8(octets).ok().filter(|t| t.contains("-----BEGIN ")) {
            if text.contains("-----BEGIN NDN ") {
                return self.import_ndnd(text, name, protect);
            }
            return Ok(vec![Imported::Key(self.import_pem(text, name, protect)?)]);
        }
        let packet = packet_in_file(octets, &[DATA_OCTET, TYPE_SAFE_BAG as u8])
            .ok_or(KeyChainError::UnknownFormat)?;
        if packet[0] == DATA_OCTET {
            let certificate =
                Certificate::decode(&packet).map_err(|_| KeyChainError::UnknownFormat)?;
            self.add_certificate(&certificate)?;
            return Ok(vec![Imported::Certificate(certificate.name().to_name())]);
        }
        let passphrase = self.passphrases.for_decryption("the SafeBag")?;
        let (certificate, key) = decode_safe_bag(&packet, &passphrase)?;
        let name = certificate.key_name().to_name();
        let entry = self.add_key(name, key, Some(&passphrase), Some(certificate))?;
        Ok(vec![Imported::Key(entry)])
    }

    /// Imports everything in ndnd's PEM text. Writes nothing unless all of it can be read.
    fn import_ndnd(
        &self,
        text: &str,
        name: Option<&Name>,
        protect: Option<&str>,
    ) -> Result<Vec<Imported>, KeyChainError> {
        let (mut certificates, mut keys) = (Vec::new(), Vec::new());
        for block in NdnPem::blocks(text) {
            let packet = block.packet().ok_or(KeyChainError::UnknownFormat)?;
            match block.kind {
                NdnPemKind::Certificate => certificates
                    .push(Certificate::decode(&packet).map_err(|_| KeyChainError::UnknownFormat)?),
                NdnPemKind::Key => keys.push(decode_ndnd_key(&packet)?),
            }
        }
        if certificates.is_empty() && keys.is_empty() {
            return Err(KeyChainError::UnknownFormat);
        }
        let mut imported = Vec::new();
        // A key whose certificate is known needs no new one.
        for certificate in certificates {
            self.add_certificate(&certificate)?;
            imported.push(Imported::Certificate(certificate.name().to_name()));
        }
        for (own_name, key) in keys {
            let name = name.map_or(own_name, key_name_for);
            imported.push(Imported::Key(self.add_key(name, key, protect, None)?));
        }
        Ok(imported)
    }

    fn import_pem(
        &self,
        text: &str,
        name: Option<&Name>,
        protect: Option<&str>,
    ) -> Result<KeyEntry, KeyChainError> {
        let passphrase = match crate::pem::is_encrypted(text) {
            true => Some(self.passphrases.for_decryption("the key to import")?),
            false => None,
        };
        let passphrase = passphrase.as_ref().map(|text| text.as_str());
        let key = private_key_from_pem(text, passphrase)?;
        let name = name.cloned().or_else(|| key_file::name_in(text));
        let name = key_name_for(&name.ok_or(KeyChainError::NameNeeded)?);
        self.add_key(name, key, passphrase.or(protect), None)
    }

    /// Key and certificate as a SafeBag, in lines of base64, encrypted with `passphrase`.
    ///
    /// # Errors
    /// [`KeyChainError::NoCertificate`] for HMAC keys, and the errors of `private_key`.
    pub fn export_safe_bag(&self, name: &Name, passphrase: &str) -> Result<String, KeyChainError> {
        let entry = self.find(name)?;
        let certificate = self
            .certificate_for(&entry.name)?
            .ok_or_else(|| KeyChainError::NoCertificate(entry.name.clone()))?;
        let key = self.private_key(&entry)?;
        Ok(to_base64_lines(&encode_safe_bag(&certificate, &key, passphrase)?))
    }

    /// The key as PKCS#8 PEM with this key chain's header, encrypted if a passphrase is given.
    ///
    /// # Errors
    /// The errors of `private_key`.
    pub fn export_pem(
        &self,
        name: &Name,
        passphrase: Option<&str>,
    ) -> Result<zeroize::Zeroizing<String>, KeyChainError> {
        let entry = self.find(name)?;
        let pem = private_key_to_pem(&self.private_key(&entry)?, passphrase)?;
        let header = key_file::header(&entry.name, entry.key_type);
        Ok(zeroize::Zeroizing::new(format!("{header}{}", *pem)))
    }

    /// Issues a certificate for the key in `request`, without storing it. Its validity begins
    /// yesterday, because clocks of others may be slow. The request is a self-signed certificate,
    /// which proves that the requester has the private key.
    ///
    /// # Errors
    /// [`KeyChainError::Trust`] if the request's signature is wrong; the errors of
    /// [`Self::signer`].
    pub fn issue(
        &self,
        request: &Certificate,
        issuer: &KeySigner,
        issuer_id: &[u8],
        validity_s: i64,
    ) -> Result<Certificate, KeyChainError> {
        // The request must be signed with its own key. HMAC keys have no certificates.
        let own_key = crate::verifier::verifier_from_certificate(request)?;
        request.verify(&*own_key).map_err(TrustError::from)?;
        let now_ms = unix_time_ms();
        let now_s = (now_ms / 1000) as i64;
        let draft = CertificateDraft {
            key_name: request.key_name(),
            public_key: request.public_key(),
            issuer: issuer_id,
            version: now_ms,
            validity: Validity {
                not_before_unix_s: now_s - BACKDATED_S,
                not_after_unix_s: now_s.saturating_add(validity_s),
            },
        };
        Ok(draft.issue(issuer)?)
    }

    /// The trust anchors.
    pub fn anchors(&self) -> Result<Anchors, KeyChainError> {
        let mut anchors = Anchors::default();
        for certificate in read_certificates(&self.anchors_dir())? {
            anchors.add(certificate, &Provider)?;
        }
        Ok(anchors)
    }

    /// Trusts a certificate from now on.
    ///
    /// # Errors
    /// [`KeyChainError::Trust`] if its key cannot be used, or it cannot be written.
    pub fn add_anchor(&self, certificate: &Certificate) -> Result<(), KeyChainError> {
        Anchors::default().add(certificate.clone(), &Provider)?;
        let path = certificate_path(&self.anchors_dir(), certificate.name());
        write_certificate(&self.lock()?, &path, certificate)
    }

    /// Removes the anchors for `name`: a certificate, or all of a key or identity. Returns the
    /// names of those removed.
    ///
    /// # Errors
    /// [`KeyChainError::NoSuchCertificate`], or they cannot be deleted.
    pub fn remove_anchors(&self, name: &Name) -> Result<Vec<Name>, KeyChainError> {
        let (mut removed, lock) = (Vec::new(), self.lock()?);
        for certificate in read_certificates(&self.anchors_dir())? {
            let names = [certificate.name(), certificate.key_name(), certificate.identity()];
            if names.contains(&name.as_view()) {
                let path = certificate_path(&self.anchors_dir(), certificate.name());
                files::remove(&lock, &path)?;
                removed.push(certificate.name().to_name());
            }
        }
        match removed.is_empty() {
            true => Err(KeyChainError::NoSuchCertificate(name.clone())),
            false => Ok(removed),
        }
    }

    fn add_key(
        &self,
        name: Name,
        key: PrivateKey,
        passphrase: Option<&str>,
        certificate: Option<Certificate>,
    ) -> Result<KeyEntry, KeyChainError> {
        let path = self.key_path(name.as_view());
        let key_type = key.key_type();
        let pem = private_key_to_pem(&key, passphrase)?;
        let text = zeroize::Zeroizing::new(key_file::header(&name, key_type) + &pem);
        let lock = self.lock()?;
        if path.try_exists().map_err(files::io_error("read", &path))? {
            return Err(KeyChainError::KeyExists(name));
        }
        // The certificate is written first. If the process is killed in between, a certificate
        // without a key is harmless, but a key without a certificate would be unusable.
        let certificate = match certificate {
            None if key_type != KeyType::Hmac => self.certificate_to_add(&name, &key)?,
            given => given,
        };
        if let Some(certificate) = &certificate {
            self.write_certificate(&lock, certificate)?;
        }
        files::write(&lock, &path, text.as_bytes(), IfPresent::Fail)?;
        if key_type != KeyType::Hmac && self.existing_default()?.is_none() {
            self.write_default(&lock, &name)?;
        }
        Ok(KeyEntry { name, key_type, is_encrypted: passphrase.is_some(), path })
    }

    /// A self-signed certificate for a key that has none yet. A killed process may have left a
    /// certificate of the same name without its key. The new certificate is newer than that.
    fn certificate_to_add(
        &self,
        name: &Name,
        key: &PrivateKey,
    ) -> Result<Option<Certificate>, KeyChainError> {
        let (present, public_key) = (self.certificates_of(name.as_view())?, key.public_key()?);
        if present.iter().any(|certificate| is_certificate_of(certificate, Some(&public_key))) {
            return Ok(None);
        }
        self_signed_after(&present, name, key).map(Some)
    }

    /// Makes a new self-signed certificate for a key, for example because the last one has expired
    /// or was made while the clock was wrong.
    ///
    /// # Errors
    /// The errors of [`Self::signer`], or the certificate cannot be written.
    pub fn renew(&self, name: &Name) -> Result<Certificate, KeyChainError> {
        let entry = self.find(name)?;
        let key = self.private_key(&entry)?;
        let lock = self.lock()?;
        let present = self.certificates_of(entry.name.as_view())?;
        let certificate = self_signed_after(&present, &entry.name, &key)?;
        self.write_certificate(&lock, &certificate)?;
        Ok(certificate)
    }

    /// The name of the default key, if that key exists: a process that deleted the key may have
    /// been killed before it cleared the default.
    fn existing_default(&self) -> Result<Option<Name>, KeyChainError> {
        let Some(name) = self.default_name()? else { return Ok(None) };
        let path = self.key_path(name.as_view());
        let exists = path.try_exists().map_err(files::io_error("read", &path))?;
        Ok(exists.then_some(name))
    }

    fn write_default(&self, lock: &Lock, key: &Name) -> Result<(), KeyChainError> {
        let line = format!("{key}\n");
        files::write(lock, &self.default_path(), line.as_bytes(), IfPresent::Replace)
    }

    /// Locks the key chain for a change. The lock is not held during a prompt for a
    /// passphrase.
    fn lock(&self) -> Result<Lock, KeyChainError> {
        files::lock(&self.dir.join("lock"))
    }

    /// All certificates of the key of this name.
    pub fn certificates_of(&self, key: NameView<'_>) -> Result<Vec<Certificate>, KeyChainError> {
        let mut certificates = self.certificates()?;
        certificates.retain(|certificate| certificate.key_name() == key);
        Ok(certificates)
    }

    fn key_path(&self, key: NameView<'_>) -> PathBuf {
        self.dir.join("keys").join(key_file::file_stem(key) + ".pem")
    }

    fn certificate_path(&self, certificate: NameView<'_>) -> PathBuf {
        certificate_path(&self.dir.join("certificates"), certificate)
    }

    fn anchors_dir(&self) -> PathBuf {
        self.dir.join("anchors")
    }

    fn default_path(&self) -> PathBuf {
        self.dir.join("default")
    }
}

/// `$WEIR_HOME`, `$XDG_CONFIG_HOME/weir` or `~/.config/weir`.
///
/// # Errors
/// [`KeyChainError::NoHome`].
pub(crate) fn default_dir() -> Result<PathBuf, KeyChainError> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(dir) = variable(HOME_VARIABLE) {
        return Ok(dir.into());
    }
    if let Some(dir) = variable("XDG_CONFIG_HOME") {
        return Ok(PathBuf::from(dir).join("weir"));
    }
    let home = match variable("HOME") {
        Some(home) => PathBuf::from(home),
        None => user().ok_or(KeyChainError::NoHome)?.dir,
    };
    Ok(home.join(".config").join("weir"))
}

/// The name for a new key of an identity. The name of a key remains as it is.
fn key_name_for(name: &Name) -> Name {
    if is_key_name(name.as_view()) {
        return name.clone();
    }
    key_name(name.as_view(), hex::encode(random_octets::<8>()).as_bytes())
}

/// The identity of users who have not chosen a name: `/local/<user>`.
pub fn default_identity() -> Name {
    let user_name = user().map_or_else(|| nix::unistd::getuid().to_string(), |user| user.name);
    let mut name = Name::new();
    name.append_str("local").append_str(&user_name);
    name
}

/// Milliseconds since the Unix epoch, by the system's clock.
pub(crate) fn unix_time_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// Seconds since the Unix epoch, by the system's clock.
pub fn unix_time_s() -> i64 {
    (unix_time_ms() / 1000) as i64
}

/// Reads a certificate from a file: binary, base64 or ndnd's PEM text.
///
/// # Errors
/// [`KeyChainError::Io`] and [`KeyChainError::MalformedCertificate`].
pub fn read_certificate(path: &Path) -> Result<Certificate, KeyChainError> {
    use std::io::Read;
    let mut octets = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(CERTIFICATE_FILE_LEN_MAX as u64).read_to_end(&mut octets))
        .map_err(files::io_error("read", path))?;
    let malformed = |source| KeyChainError::MalformedCertificate { path: path.to_owned(), source };
    let packet = packet_in_file(&octets, &[DATA_OCTET]).ok_or_else(|| malformed(None))?;
    Certificate::decode(&packet).map_err(|error| malformed(Some(error)))
}

fn user() -> Option<nix::unistd::User> {
    nix::unistd::User::from_uid(nix::unistd::getuid()).ok().flatten()
}

fn read_certificates(dir: &Path) -> Result<Vec<Certificate>, KeyChainError> {
    let paths = files::list(dir, "cert")?;
    let read = paths.iter().map(|path| read_certificate(path));
    // Another process may have deleted a file meanwhile.
    let is_gone = |error: &KeyChainError| {
        matches!(error, KeyChainError::Io { source, .. }
        if source.kind() == std::io::ErrorKind::NotFound)
    };
    read.filter(|read| !read.as_ref().is_err_and(is_gone)).collect()
}

fn write_certificate(
    lock: &Lock,
    path: &Path,
    certificate: &Certificate,
) -> Result<(), KeyChainError> {
    files::write(lock, path, to_base64_lines(certificate.wire()).as_bytes(), IfPresent::Replace)
}

/// Whether a certificate belongs to the key with this SubjectPublicKeyInfo.
fn is_certificate_of(certificate: &Certificate, public_key: Option<&[u8]>) -> bool {
    public_key.is_some_and(|public_key| certificate.public_key() == public_key)
}

fn certificate_version(certificate: &Certificate) -> Option<u64> {
    certificate.name().last().and_then(|last| last.as_version())
}

/// The certificate to sign under: the newest valid one; those issued by others come before its own.
fn newest_valid(certificates: Vec<Certificate>) -> Option<Certificate> {
    let now = unix_time_s();
    certificates.into_iter().max_by_key(|certificate| {
        let is_valid = certificate.validity().contains(now);
        (is_valid, !certificate.is_self_issued(), certificate_version(certificate))
    })
}

fn certificate_path(dir: &Path, name: NameView<'_>) -> PathBuf {
    dir.join(key_file::file_stem(name) + ".cert")
}

/// The self-signed certificate of a key, valid for 20 years from yesterday.
fn self_signed(name: &Name, key: &PrivateKey, version: u64) -> Result<Certificate, KeyChainError> {
    let now_s = unix_time_s();
    let public_key = key.public_key()?;
    let draft = CertificateDraft {
        key_name: name.as_view(),
        public_key: &public_key,
        issuer: SELF_ISSUER,
        version,
        validity: Validity {
            not_before_unix_s: now_s - BACKDATED_S,
            not_after_unix_s: now_s + SELF_VALIDITY_S,
        },
    };
    Ok(draft.issue_to_self(&SelfSigner(key))?)
}

/// As [`self_signed`], newer than the existing certificates.
fn self_signed_after(
    present: &[Certificate],
    name: &Name,
    key: &PrivateKey,
) -> Result<Certificate, KeyChainError> {
    let newest = present.iter().filter_map(certificate_version).max();
    let version = newest.map_or(0, |version| version.saturating_add(1)).max(unix_time_ms());
    self_signed(name, key, version)
}

/// Signs with a borrowed key. The certificate draft supplies the KeyLocator.
struct SelfSigner<'a>(&'a PrivateKey);

impl weir_security::Signer for SelfSigner<'_> {
    fn signature_type(&self) -> weir_security::SignatureType {
        self.0.key_type().signature_type()
    }

    fn key_locator(&self) -> Option<weir_security::KeyLocator> {
        None
    }

    fn sign(&self, portions: &[&[u8]]) -> Result<Vec<u8>, weir_security::SignError> {
        self.0.sign(portions)
    }
}
