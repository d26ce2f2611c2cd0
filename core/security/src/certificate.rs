//! Certificates: Data of content type 2 that bind a public key to a name (NDN certificate format
//! 2).

use alloc::vec::Vec;

use weir_wire::{
    Component, ComponentView, Data, DataView, DecodeError, KeyLocatorView, Name, NameView,
    PACKET_SIZE_MAX, SignatureInfo,
};

use crate::digest::sha256;
use crate::sign::{KeyLocator, SignError, Signer, Verifier, VerifyError, verify_data};

pub use weir_wire::ValidityPeriod as Validity;

/// The component between an identity and a key's identifier.
pub(crate) const KEY_COMPONENT: &[u8] = b"KEY";

/// The issuer component of a certificate that its own key signed.
pub const SELF_ISSUER: &[u8] = b"self";

const CONTENT_TYPE_KEY: u64 = 2;

/// FreshnessPeriod of certificates, as all NDN libraries set it.
const FRESHNESS_MS: u64 = 3_600_000;

/// Components from `KEY` to the end: KEY, key identifier, issuer, version.
const CERTIFICATE_SUFFIX: usize = 4;
const KEY_SUFFIX: usize = 2;

/// Whether `name` is `/<identity>/KEY/<key id>`.
pub fn is_key_name(name: NameView<'_>) -> bool {
    has_key_at(name, KEY_SUFFIX)
}

/// Whether `name` is `/<identity>/KEY/<key id>/<issuer>/<version>`.
pub fn is_certificate_name(name: NameView<'_>) -> bool {
    has_key_at(name, CERTIFICATE_SUFFIX)
}

/// The key name in a key name or certificate name; `None` for any other name.
pub fn key_name_of(name: NameView<'_>) -> Option<NameView<'_>> {
    if is_certificate_name(name) {
        Some(name.prefix(name.component_count() - CERTIFICATE_SUFFIX + KEY_SUFFIX))
    } else {
        is_key_name(name).then_some(name)
    }
}

/// The identity in a key name or certificate name; `None` for any other name.
pub fn identity_of(name: NameView<'_>) -> Option<NameView<'_>> {
    let key_name = key_name_of(name)?;
    Some(key_name.prefix(key_name.component_count() - KEY_SUFFIX))
}

/// The name `/<identity>/KEY/<key id>`; other libraries take 8 random octets for the identifier.
pub fn key_name(identity: NameView<'_>, key_id: &[u8]) -> Name {
    let mut name = identity.to_name();
    name.append_generic(KEY_COMPONENT).append_generic(key_id);
    name
}

fn has_key_at(name: NameView<'_>, from_end: usize) -> bool {
    let component = name.component_count().checked_sub(from_end).and_then(|at| name.component(at));
    component.is_some_and(|found| found.is_generic() && found.value == KEY_COMPONENT)
}

/// Why a packet is no certificate.
#[derive(Clone, Eq, PartialEq, Debug, thiserror::Error)]
pub enum CertificateError {
    /// It is not even a Data.
    #[error("not a Data packet: {0}")]
    NotData(#[from] DecodeError),
    /// The name is not `/<identity>/KEY/<key id>/<issuer>/<version>`.
    #[error("{0} is not the name of a certificate")]
    Name(Name),
    /// The content type is not 2 (Key).
    #[error("content type {0} is not that of a certificate")]
    ContentType(u64),
    #[error("the certificate has no validity period")]
    NoValidity,
    /// There is no public key in it.
    #[error("the certificate has no public key")]
    NoPublicKey,
}

/// Why no certificate was made.
#[derive(Clone, Eq, PartialEq, Debug, thiserror::Error)]
pub enum IssueError {
    /// The draft's name, key or size is not fit for a certificate.
    #[error(transparent)]
    Draft(#[from] CertificateError),
    /// The certificate would be larger than a packet.
    #[error("the certificate would have {0} octets, more than a packet holds")]
    TooLarge(usize),
    /// The issuer did not sign.
    #[error(transparent)]
    Sign(#[from] SignError),
}

/// A certificate: shape checked, signature not.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct Certificate {
    wire: Vec<u8>,
    name: Name,
    validity: Validity,
    public_key: Vec<u8>,
}

impl Certificate {
    /// Reads exactly one Data TLV that has the shape of a certificate. Neither the signature nor
    /// the time is looked at: [`Self::verify`], [`Validity::contains`].
    pub fn decode(wire: &[u8]) -> Result<Self, CertificateError> {
        Self::from_data(&DataView::decode(wire)?)
    }

    /// The certificate that a decoded Data is.
    pub(crate) fn from_data(data: &DataView<'_>) -> Result<Self, CertificateError> {
        if !is_certificate_name(data.name) {
            return Err(CertificateError::Name(data.name.to_name()));
        }
        if data.content_type != CONTENT_TYPE_KEY {
            return Err(CertificateError::ContentType(data.content_type));
        }
        if data.content.is_empty() {
            return Err(CertificateError::NoPublicKey);
        }
        let validity = data.signature_info().validity_period.ok_or(CertificateError::NoValidity)?;
        Ok(Self {
            wire: data.wire.to_vec(),
            name: data.name.to_name(),
            validity: validity.to_validity_period(),
            public_key: data.content.to_vec(),
        })
    }

    /// The Data TLV.
    pub fn wire(&self) -> &[u8] {
        &self.wire
    }

    pub fn data(&self) -> DataView<'_> {
        DataView::decode(&self.wire).expect("decoded when the certificate was made")
    }

    /// `/<identity>/KEY/<key id>/<issuer>/<version>`.
    pub fn name(&self) -> NameView<'_> {
        self.name.as_view()
    }

    /// `/<identity>/KEY/<key id>`.
    pub fn key_name(&self) -> NameView<'_> {
        key_name_of(self.name()).expect("checked when the certificate was made")
    }

    /// Whose key it is.
    pub fn identity(&self) -> NameView<'_> {
        identity_of(self.name()).expect("checked when the certificate was made")
    }

    /// The name's component that says who issued it: `self`, `NA`, or the issuer's choice.
    pub fn issuer(&self) -> ComponentView<'_> {
        let at = self.name.component_count() - 2;
        self.name().component(at).expect("checked when the certificate was made")
    }

    /// Whether the key signed its own certificate, as far as the KeyLocator says: it is the key's
    /// name, the certificate's, or the digest of the public key.
    pub fn is_self_issued(&self) -> bool {
        match self.data().signature_info().key_locator {
            Some(KeyLocatorView::Name(name)) => {
                name == self.key_name() || key_name_of(name) == Some(self.key_name())
            }
            Some(KeyLocatorView::Digest(digest)) => self.public_key_digest() == *digest,
            None => false,
        }
    }

    /// The public key as SubjectPublicKeyInfo (DER). Not looked into here.
    pub fn public_key(&self) -> &[u8] {
        &self.public_key
    }

    /// SHA-256 of the public key: what a KeyDigest locator and trust on first use go by.
    pub fn public_key_digest(&self) -> [u8; 32] {
        sha256(&[&self.public_key])
    }

    /// From when to when it is valid, both seconds included.
    pub fn validity(&self) -> Validity {
        self.validity
    }

    /// Checks the signature with the issuer's key. Whether the issuer is to be believed is for
    /// [`crate::trust`] to say.
    ///
    /// # Errors
    /// What [`verify_data`] finds.
    pub fn verify(&self, issuer: &dyn Verifier) -> Result<(), VerifyError> {
        verify_data(&self.data(), issuer)
    }
}

/// What is to be written into a certificate.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct CertificateDraft<'a> {
    /// `/<identity>/KEY/<key id>` of the key that is certified.
    pub key_name: NameView<'a>,
    /// The public key as SubjectPublicKeyInfo (DER).
    pub public_key: &'a [u8],
    /// The name's issuer component, generic: [`SELF_ISSUER`] if the key signs for itself.
    pub issuer: &'a [u8],
    /// The name's version, by custom milliseconds since the Unix epoch.
    pub version: u64,
    pub validity: Validity,
}

impl CertificateDraft<'_> {
    /// Signs the certificate with the issuer's key.
    pub fn issue(&self, issuer: &dyn Signer) -> Result<Certificate, IssueError> {
        self.sign(issuer, issuer.key_locator())
    }

    /// Signs the certificate with the key it is for. The KeyLocator is the key's name, as a
    /// certificate cannot be fetched to check itself.
    pub fn issue_to_self(&self, signer: &dyn Signer) -> Result<Certificate, IssueError> {
        self.sign(signer, Some(KeyLocator::Name(self.key_name.to_name())))
    }

    fn sign(
        &self,
        signer: &dyn Signer,
        key_locator: Option<KeyLocator>,
    ) -> Result<Certificate, IssueError> {
        let mut name = self.key_name.to_name();
        name.push(&Component::generic(self.issuer)).append_version(self.version);
        let info = SignatureInfo {
            signature_type: signer.signature_type().0,
            key_locator,
            validity_period: Some(self.validity),
            ..SignatureInfo::default()
        };
        let data = Data::new(name)
            .content_type(CONTENT_TYPE_KEY)
            .freshness_ms(FRESHNESS_MS)
            .content(self.public_key.to_vec());
        let wire = data.try_encode_signed(&info, |portions| signer.sign(portions))?;
        if wire.len() > PACKET_SIZE_MAX {
            return Err(IssueError::TooLarge(wire.len()));
        }
        Ok(Certificate::decode(&wire)?)
    }
}

#[cfg(test)]
mod tests;
