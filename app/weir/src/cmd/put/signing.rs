//! Selects the key that signs the published objects.

use std::sync::Arc;

use clap::ValueEnum;
use weir_crypto::{KeyChainError, KeySigner};
use weir_face::unix_time_ms;
use weir_security::{Certificate, DigestSigner, Signer};
use weir_wire::Name;

use crate::table::errln;
use crate::transfer::{KeyArgs, warn_about_clock};

#[derive(Copy, Clone, PartialEq, Eq, ValueEnum)]
pub(in crate::cmd) enum Sign {
    /// Your default key, which is created if you have none
    Default,
    /// A SHA-256 digest, which does not show who signed
    Digest,
}

/// The signer, its certificate and its name.
pub(in crate::cmd) struct Signing {
    pub(in crate::cmd) signer: Arc<dyn Signer>,
    pub(in crate::cmd) certificate: Option<Vec<u8>>,
    /// The name under which the certificate is served.
    pub(super) certificate_prefix: Option<Name>,
    pub(super) name: Option<Name>,
}

/// The options of the command line that select a key.
pub(in crate::cmd) struct KeyChoice<'a> {
    pub(in crate::cmd) key: Option<&'a Name>,
    pub(in crate::cmd) sign: Sign,
    pub(in crate::cmd) keys: &'a KeyArgs,
}

impl KeyChoice<'_> {
    pub(in crate::cmd) fn signing(&self) -> anyhow::Result<Signing> {
        if self.key.is_none() && self.sign == Sign::Digest {
            let signer = Arc::new(DigestSigner);
            let (certificate, certificate_prefix, name) = (None, None, None);
            return Ok(Signing { signer, certificate, certificate_prefix, name });
        }
        let chain = self.keys.key_chain()?;
        let signer: KeySigner = match self.key {
            Some(name) => chain.signer(name)?,
            None => chain.default_signer_or_create().map_err(explain_no_key)?,
        };
        warn_about_clock();
        if let Some(certificate) = signer.certificate() {
            warn_about_validity(certificate);
        }
        let certificate = signer.certificate().map(|certificate| certificate.wire().to_vec());
        let certificate_prefix =
            signer.certificate().map(|certificate| certificate.key_name().to_name());
        let name = Some(signer.locator_name().clone());
        Ok(Signing { signer: Arc::new(signer), certificate, certificate_prefix, name })
    }

    /// The signer for answers when no path is given: the selected key, unless it needs a
    /// passphrase.
    pub(super) fn signer_without_passphrase(&self) -> Option<Arc<dyn Signer>> {
        if self.key.is_none() && self.sign == Sign::Digest {
            return Some(Arc::new(DigestSigner));
        }
        let chain = self.keys.key_chain().ok()?;
        let name = match self.key {
            Some(name) => name.clone(),
            None => chain.default_name().ok()??,
        };
        let is_usable = !chain.find(&name).ok()?.is_encrypted;
        is_usable.then(|| chain.signer(&name).ok())?.map(|signer| Arc::new(signer) as _)
    }
}

fn warn_about_validity(certificate: &Certificate) {
    let now_unix_s = (unix_time_ms() / 1000) as i64;
    if !certificate.validity().contains(now_unix_s) {
        errln!(
            "weir: the certificate {} is not valid now, so consumers will reject data signed with \
             it; check the clock of this machine, or renew the certificate with `weir key renew \
             {}`",
            certificate.name(),
            certificate.key_name()
        );
    }
}

fn explain_no_key(error: KeyChainError) -> anyhow::Error {
    let is_io = matches!(error, KeyChainError::Io { .. });
    let error = anyhow::Error::from(error);
    if is_io {
        anyhow::anyhow!(
            "{error:#}. Choose a writable directory for keys with --home or WEIR_HOME, or use no \
             key: --sign digest"
        )
    } else {
        error
    }
}
