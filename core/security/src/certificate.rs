//! Certificates: Data packets of content type 2 that bind a public key to a name (NDN certificate
//! format 2).

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

/// The issuer component of a certificate signed by its own key.
pub const SELF_ISSUER: &[u8] = b"self";

const CONTENT_TYPE_KEY: u64 = 2;

/// FreshnessPeriod of certificates, as all NDN libraries set it.
const FRESHNESS_MS: u64 = 3_600_000;

/// Number of components from `KEY` to the end: KEY, key identifier, issuer, version.
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

/// The key name within a key name or certificate name; `None` for any other name.
pub fn key_name_of(name: NameView<'_>) -> Option<NameView<'_>> {
    if is_certificate_name(name) {
        Some(name.prefix(name.component_count() - CERTIFICATE_SUFFIX + KEY_SUFFIX))
    } else {
        is_key_name(name).then_some(name)
    }
}

/// The identity of a key name or certificate name; `None` for any other name.
pub fn identity_of(name: NameView<'_>) -> Option<NameView<'_>> {
    let key_name = key_name_of(name)?;
    Some(key_name.prefix(key_name.component_count() - KEY_SUFFIX))
}

/// The name `/<identity>/KEY/<key id>`. Other libraries use 8 random bytes as the identifier.
pub fn key_name(identity: NameView<'_>, key_id: &[u8]) -> Name {
    let mut name = identity.to_name();
    name.append_generic(KEY_COMPONENT).append_generic(key_id);
    name
}

fn has_key_at(name: NameView<'_>, from_end: usize) -> bool {
    let component = name.component_count().checked_sub(from_end).and_then(|at| name.component(at));
    component.is_some_and(|found| found.is_generic() && found.value == KEY_COMPONENT)
}

/// Why a packet is not a certificate.
#[derive(Clone, Eq, PartialEq, Debug, thiserror::Error)]
pub enum CertificateError {
    /// It is not a Data packet.
    #[error("not a Data packet: {0}")]
    NotData(#[from] DecodeError),
    /// The name is not `/<identity>/KEY/<key id>/<issuer>/<version>`.
    #[error("{0} is not a certificate name")]
    Name(Name),
    /// The content type is not 2 (Key).
    #[error("content type {0} is not 2, the type of certificates")]
    ContentType(u64),
    #[error("the certificate has no validity period")]
    NoValidity,
    #[error("the certificate has no public key")]
    NoPublicKey,
}

/// Why no certificate was issued.
#[derive(Clone, Eq, PartialEq, Debug, thiserror::Error)]
pub enum IssueError {
    /// The name, key or size of the draft is not valid for a certificate.
    #[error(transparent)]
    Draft(#[from] CertificateError),
    /// The certificate would be larger than a packet.
    #[error("the certificate would have {0} bytes, which is too large for a packet")]
    TooLarge(usize),
    /// The issuer's provider failed.
    #[error(transparent)]
    Sign(#[from] SignError),
}

/// A certificate. Its format was checked, its signature was not.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct Certificate {
    wire: Vec<u8>,
    name: Name,
    validity: Validity,
    public_key: Vec<u8>,
}

impl Certificate {
    /// Decodes exactly one Data TLV in the format of a certificate. Checks neither signature nor
    /// time; see [`Self::verify`] and [`Validity::contains`].
    pub fn decode(wire: &[u8]) -> Result<Self, CertificateError> {
        Self::from_data(&DataView::decode(wire)?)
    }

    /// The certificate in a decoded Data packet.
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

    /// The owner of the key.
    pub fn identity(&self) -> NameView<'_> {
        identity_of(self.name()).expect("checked when the certificate was made")
    }

    /// The name component for the issuer: `self`, `NA`, or the issuer's choice.
    pub fn issuer(&self) -> ComponentView<'_> {
        let at = self.name.component_count() - 2;
        self.name().component(at).expect("checked when the certificate was made")
    }

    /// Whether the KeyLocator says that the key signed its own certificate: it is the name of the
    /// key or of the certificate, or the digest of the public key.
    pub fn is_self_issued(&self) -> bool {
        match self.data().signature_info().key_locator {
            Some(KeyLocatorView::Name(name)) => {
                name == self.key_name() || key_name_of(name) == Some(self.key_name())
            }
            Some(KeyLocatorView::Digest(digest)) => self.public_key_digest() == *digest,
            None => false,
        }
    }

    /// The public key as SubjectPublicKeyInfo (DER). Its content is not checked here.
    pub fn public_key(&self) -> &[u8] {
        &self.public_key
    }

    /// SHA-256 of the public key, which KeyDigest locators and trust on first use refer to.
    pub fn public_key_digest(&self) -> [u8; 32] {
        sha256(&[&self.public_key])
    }

    /// When the certificate is valid, including the first and the last second.
    pub fn validity(&self) -> Validity {
        self.validity
    }

    /// Checks the signature with the issuer's key. [`crate::trust`] decides whether the issuer is
    /// trusted.
    ///
    /// # Errors
    /// Those of [`verify_data`].
    pub fn verify(&self, issuer: &dyn Verifier) -> Result<(), VerifyError> {
        verify_data(&self.data(), issuer)
    }
}

/// The content of a certificate to be issued.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct CertificateDraft<'a> {
    /// `/<identity>/KEY/<key id>` of the certified key.
    pub key_name: NameView<'a>,
    /// The public key as SubjectPublicKeyInfo (DER).
    pub public_key: &'a [u8],
    /// The issuer component of the name, generic; [`SELF_ISSUER`] if the key signs for itself.
    pub issuer: &'a [u8],
    /// The version in the name, usually milliseconds since the Unix epoch.
    pub version: u64,
    pub validity: Validity,
}

impl CertificateDraft<'_> {
    /// Signs the certificate with the issuer's key.
    pub fn issue(&self, issuer: &dyn Signer) -> Result<Certificate, IssueError> {
        self.sign(issuer, issuer.key_locator())
    }

    /// Signs the certificate with its own key. The KeyLocator is the name of the key, not of the
    /// certificate. A verifier cannot use a certificate that it has not yet checked.
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
