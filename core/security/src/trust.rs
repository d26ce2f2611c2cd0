//! Trust: anchors with the hierarchical name rule, and trust on first use.
//!
//! Neither fetches certificates nor asks the user; their callers do.

mod explained;
mod policy;

pub use explained::ExplainedTrust;
pub use policy::{
    Advice, KeySource, NeededPacket, Refusal, Trust, TrustBasis, TrustDecision, TrustPolicy,
    TrustedSigner,
};

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use weir_wire::{DataView, KeyLocatorView, Name, NameView, SignatureInfoView};

use crate::certificate::{Certificate, is_certificate_name, is_key_name};
use crate::sign::{Verifier, VerifierFactory, VerifyError, verify_data};

/// Maximum number of certificates that [`Anchors`] keeps in addition to the anchors. Beyond it, the
/// oldest is removed.
pub(crate) const INTERMEDIATES_MAX: usize = 256;

/// Maximum number of certificates between a packet and an anchor.
pub(crate) const CHAIN_LENGTH_MAX: u8 = 8;

/// Why a packet or certificate is not trusted.
#[derive(Clone, Eq, PartialEq, Debug, thiserror::Error)]
pub enum TrustError {
    /// The packet does not name its signer.
    #[error("the packet does not name its signer")]
    NoKeyLocator,
    /// The signer's certificate is needed: it is neither an anchor nor accepted so far.
    #[error("the signer's certificate {0} is not known")]
    CertificateNeeded(Name),
    /// The signer is unknown, and is named by a digest or by a name that is not a key's.
    #[error("the signer is not known")]
    UnknownSigner,
    /// The signer may not sign names outside its identity.
    #[error("{signer} may not sign for {name}")]
    NameNotCovered { signer: Name, name: Name },
    /// The certificate of the signer, or the certificate to be accepted, has expired.
    #[error("the certificate {0} has expired")]
    Expired(Name),
    /// The certificate of the signer, or the certificate to be accepted, is not valid yet.
    #[error("the certificate {0} is not valid yet; check the clock of this machine")]
    NotYetValid(Name),
    /// More than `CHAIN_LENGTH_MAX` certificates lead to the anchor.
    #[error("the chain of certificates is too long")]
    ChainTooLong,
    /// The public key's algorithm is not supported.
    #[error("the public key of {0} cannot be used")]
    UnusableKey(Name),
    /// The signature is missing or wrong.
    #[error(transparent)]
    Signature(#[from] VerifyError),
}

/// A trusted certificate, and the verifier of its key.
#[derive(Clone)]
pub struct TrustedKey {
    certificate: Certificate,
    verifier: Arc<dyn Verifier>,
    /// Number of certificates from an anchor to this one; 0 for an anchor.
    depth: u8,
}

impl TrustedKey {
    pub fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    /// The verifier of the certificate's key.
    pub(crate) fn verifier(&self) -> &dyn Verifier {
        &*self.verifier
    }

    /// Whether `locator` names this key. It may be the certificate's name or a prefix of it, or the
    /// key's name or a name below it. It may also be the digest of the public key.
    fn is_named_by(&self, locator: &KeyLocatorView<'_>) -> bool {
        match locator {
            KeyLocatorView::Name(name) => {
                name.is_prefix_of(self.certificate.name())
                    || self.certificate.key_name().is_prefix_of(*name)
            }
            KeyLocatorView::Digest(digest) => self.certificate.public_key_digest() == **digest,
        }
    }
}

/// Trust anchors, and the certificates that they have signed directly or through others.
///
/// A packet is trusted if one of these keys signed it and the key's certificate is valid at that
/// time. In addition, the identity of the certificate must be a prefix of the packet's name (the
/// hierarchical rule).
#[derive(Clone, Default)]
pub struct Anchors {
    anchors: Vec<TrustedKey>,
    intermediates: Vec<TrustedKey>,
}

impl Anchors {
    /// Adds a trust anchor. Its own signature is not checked.
    ///
    /// # Errors
    /// [`TrustError::UnusableKey`].
    pub fn add(
        &mut self,
        certificate: Certificate,
        factory: &dyn VerifierFactory,
    ) -> Result<(), TrustError> {
        let trusted = trusted_key(certificate, factory, 0)?;
        self.anchors.retain(|known| known.certificate.name() != trusted.certificate.name());
        self.anchors.push(trusted);
        Ok(())
    }

    /// The anchors, in the order in which they were added.
    pub fn anchors(&self) -> impl Iterator<Item = &Certificate> {
        self.anchors.iter().map(TrustedKey::certificate)
    }

    /// Whether there is no anchor.
    pub fn is_empty(&self) -> bool {
        self.anchors.is_empty()
    }

    /// The keys that may have signed a packet with this name and SignatureInfo, at least one. The
    /// caller verifies the signature with each of them.
    ///
    /// # Errors
    /// [`TrustError::CertificateNeeded`] names the certificate to fetch and to
    /// [accept](Self::accept). The other errors are final.
    pub fn signers<'a>(
        &'a self,
        name: NameView<'_>,
        signature_info: &SignatureInfoView<'_>,
        now_unix_s: i64,
    ) -> Result<Vec<&'a TrustedKey>, TrustError> {
        let locator = signature_info.key_locator.as_ref().ok_or(TrustError::NoKeyLocator)?;
        let known = self.anchors.iter().chain(&self.intermediates);
        let named: Vec<_> = known.filter(|key| key.is_named_by(locator)).collect();
        let Some(first) = named.first() else {
            return Err(unknown_signer(locator));
        };
        let refusal = may_sign(&first.certificate, name, now_unix_s);
        let allowed: Vec<_> = named
            .into_iter()
            .filter(|key| may_sign(&key.certificate, name, now_unix_s).is_ok())
            .collect();
        match refusal {
            Err(refusal) if allowed.is_empty() => Err(refusal),
            _ => Ok(allowed),
        }
    }

    /// Verifies a Data packet by the rule of [`Anchors`]. Returns the certificate of its signer.
    ///
    /// # Errors
    /// Those of [`Self::signers`], and [`TrustError::Signature`].
    pub fn verify_data(
        &self,
        data: &DataView<'_>,
        now_unix_s: i64,
    ) -> Result<&Certificate, TrustError> {
        let signers = self.signers(data.name, &data.signature_info(), now_unix_s)?;
        first_match(signers, |verifier| verify_data(data, verifier))
    }

    /// Accepts a fetched certificate, if an anchor or an accepted certificate has signed it.
    ///
    /// # Errors
    /// Any [`TrustError`]. [`TrustError::CertificateNeeded`] names the issuer's certificate, which
    /// must be fetched and accepted first.
    pub fn accept(
        &mut self,
        certificate: Certificate,
        factory: &dyn VerifierFactory,
        now_unix_s: i64,
    ) -> Result<(), TrustError> {
        check_validity(&certificate, now_unix_s)?;
        let data = certificate.data();
        let signers = self.signers(data.name, &data.signature_info(), now_unix_s)?;
        let depth = signers.iter().map(|signer| signer.depth).min().unwrap_or(0) + 1;
        first_match(signers, |verifier| verify_data(&data, verifier))?;
        if depth > CHAIN_LENGTH_MAX {
            return Err(TrustError::ChainTooLong);
        }
        let trusted = trusted_key(certificate, factory, depth)?;
        self.intermediates.retain(|known| known.certificate.name() != trusted.certificate.name());
        if self.intermediates.len() >= INTERMEDIATES_MAX {
            self.intermediates.remove(0);
        }
        self.intermediates.push(trusted);
        Ok(())
    }
}

/// Checks that the key of `certificate` may sign a packet with this name at this time: it is valid,
/// and its identity is a prefix of the name.
///
/// # Errors [`TrustError::NameNotCovered`], and the errors of [`check_validity`].
pub(crate) fn may_sign(
    certificate: &Certificate,
    name: NameView<'_>,
    now_unix_s: i64,
) -> Result<(), TrustError> {
    if !certificate.identity().is_prefix_of(name) {
        return Err(TrustError::NameNotCovered {
            signer: certificate.identity().to_name(),
            name: name.to_name(),
        });
    }
    check_validity(certificate, now_unix_s)
}

/// How much the clocks of two machines may differ.
const CLOCK_SKEW_S: i64 = 300;

/// # Errors
/// [`TrustError::Expired`] and [`TrustError::NotYetValid`], if by more than `CLOCK_SKEW_S`.
pub(crate) fn check_validity(certificate: &Certificate, now_unix_s: i64) -> Result<(), TrustError> {
    let (validity, name) = (certificate.validity(), certificate.name());
    if now_unix_s.saturating_add(CLOCK_SKEW_S) < validity.not_before_unix_s {
        return Err(TrustError::NotYetValid(name.to_name()));
    }
    if now_unix_s.saturating_sub(CLOCK_SKEW_S) > validity.not_after_unix_s {
        return Err(TrustError::Expired(name.to_name()));
    }
    Ok(())
}

fn first_match(
    signers: Vec<&TrustedKey>,
    verify: impl Fn(&dyn Verifier) -> Result<(), VerifyError>,
) -> Result<&Certificate, TrustError> {
    let mut failure = VerifyError::Mismatch;
    for signer in signers {
        match verify(signer.verifier()) {
            Ok(()) => return Ok(&signer.certificate),
            Err(error) => failure = error,
        }
    }
    Err(failure.into())
}

fn unknown_signer(locator: &KeyLocatorView<'_>) -> TrustError {
    match locator {
        KeyLocatorView::Name(name) if is_key_name(*name) || is_certificate_name(*name) => {
            TrustError::CertificateNeeded(name.to_name())
        }
        _ => TrustError::UnknownSigner,
    }
}

fn trusted_key(
    certificate: Certificate,
    factory: &dyn VerifierFactory,
    depth: u8,
) -> Result<TrustedKey, TrustError> {
    match factory.verifier_from_spki(certificate.public_key()) {
        Some(verifier) => Ok(TrustedKey { certificate, verifier: verifier.into(), depth }),
        None => Err(TrustError::UnusableKey(certificate.name().to_name())),
    }
}

/// What is known about the signer of an object.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum SignerStatus {
    /// The key is the same as before.
    Trusted,
    /// No key is known for this object. The key is remembered if the user agrees.
    FirstUse,
    /// Another key signed before. This is an attack, or the producer has a new key. The new key
    /// must not be trusted unless the user agrees.
    Changed {
        /// SHA-256 of the known public key.
        known: [u8; 32],
    },
}

/// Trust on first use: the key that has signed the names below each prefix.
#[derive(Clone, Eq, PartialEq, Debug, Default)]
pub struct KnownSigners {
    by_prefix: BTreeMap<Name, [u8; 32]>,
}

impl KnownSigners {
    /// Classifies the signer of an object with this name. `key_digest` is the SHA-256 of its
    /// SubjectPublicKeyInfo. The longest known prefix of the name decides.
    pub fn decide(&self, name: NameView<'_>, key_digest: &[u8; 32]) -> SignerStatus {
        match self.longest_known(name) {
            None => SignerStatus::FirstUse,
            Some((_, known)) if known == key_digest => SignerStatus::Trusted,
            Some((_, known)) => SignerStatus::Changed { known: *known },
        }
    }

    /// The longest known prefix of the name, and the digest of its signer's key.
    pub(crate) fn longest_known(&self, name: NameView<'_>) -> Option<(&Name, &[u8; 32])> {
        (0..=name.component_count())
            .rev()
            .find_map(|count| self.by_prefix.get_key_value(&name.prefix(count).to_name()))
    }

    /// Remembers the signer of names below `prefix`. Returns the signer known before, if any.
    pub fn remember(&mut self, prefix: Name, key_digest: [u8; 32]) -> Option<[u8; 32]> {
        self.by_prefix.insert(prefix, key_digest)
    }

    /// All known signers, in the canonical order of names.
    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Name, &[u8; 32])> {
        self.by_prefix.iter()
    }

    /// Number of known prefixes.
    pub fn len(&self) -> usize {
        self.by_prefix.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_prefix.is_empty()
    }
}

#[cfg(test)]
mod tests;
