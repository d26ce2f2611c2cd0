//! What signs and what verifies: two traits that the providers in `io/` fill in, and the functions
//! that apply them to packets.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use weir_wire::{Data, DataView, Interest, InterestView, SignatureInfo};

pub use weir_wire::KeyLocator;

/// Number of a signature algorithm (NDN packet 0.3, SignatureType).
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub struct SignatureType(pub u64);

impl SignatureType {
    /// SHA-256 of the signed portion, no key: integrity only.
    pub(crate) const DIGEST_SHA256: Self = Self(0);
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    pub const SHA256_WITH_RSA: Self = Self(1);
    /// ECDSA with SHA-256, DER `SEQUENCE { r, s }`.
    pub const SHA256_WITH_ECDSA: Self = Self(3);
    /// HMAC with SHA-256, 32 octets.
    pub const HMAC_SHA256: Self = Self(4);
    /// Ed25519 over the signed portion itself, 64 octets.
    pub const ED25519: Self = Self(5);
    /// No signature: an empty value.
    pub const NULL: Self = Self(200);
}

impl fmt::Display for SignatureType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::DIGEST_SHA256 => f.write_str("DigestSha256"),
            Self::SHA256_WITH_RSA => f.write_str("SignatureSha256WithRsa"),
            Self::SHA256_WITH_ECDSA => f.write_str("SignatureSha256WithEcdsa"),
            Self::HMAC_SHA256 => f.write_str("SignatureHmacWithSha256"),
            Self::ED25519 => f.write_str("SignatureEd25519"),
            Self::NULL => f.write_str("NullSignature"),
            Self(other) => write!(f, "SignatureType {other}"),
        }
    }
}

/// Why nothing was signed.
#[derive(Clone, Eq, PartialEq, Debug, thiserror::Error)]
pub enum SignError {
    /// The provider refused or failed, for example because a key device was taken away.
    #[error("the signing provider failed")]
    Provider,
}

/// Why a packet is not accepted as signed.
#[derive(Clone, Eq, PartialEq, Debug, thiserror::Error)]
pub enum VerifyError {
    /// The signature value does not belong to these octets and this key.
    #[error("the signature does not match")]
    Mismatch,
    /// The packet says it is signed with another algorithm than the verifier's key is for.
    #[error("signed with {found}, but the key is for {expected}")]
    TypeMismatch {
        /// The algorithm of the verifier.
        expected: SignatureType,
        /// The algorithm named in the packet.
        found: SignatureType,
    },
    /// The Interest carries no signature.
    #[error("the packet is not signed")]
    Unsigned,
}

/// Makes signature values. Shared by the threads that sign segments.
pub trait Signer: Send + Sync {
    /// The algorithm, as it is written into SignatureInfo.
    fn signature_type(&self) -> SignatureType;

    /// Whose key it is, as it is written into SignatureInfo; `None` for DigestSha256.
    fn key_locator(&self) -> Option<KeyLocator>;

    /// The signature value over the concatenation of `portions`.
    fn sign(&self, portions: &[&[u8]]) -> Result<Vec<u8>, SignError>;
}

/// Checks signature values against one key.
pub trait Verifier: Send + Sync {
    /// The algorithm the key is for. A packet that names another one is refused unread.
    fn signature_type(&self) -> SignatureType;

    /// Whether `signature` is this key's over the concatenation of `portions`.
    fn verify(&self, portions: &[&[u8]], signature: &[u8]) -> Result<(), VerifyError>;

    /// Of octets and a signature each, which are this key's. Some algorithms take less time for
    /// many together.
    fn verify_each(&self, signed: &[(&[u8], &[u8])]) -> Vec<bool> {
        let is_good = |&(octets, signature): &(_, _)| self.verify(&[octets], signature).is_ok();
        signed.iter().map(is_good).collect()
    }
}

/// Makes verifiers out of public keys. The core has no algorithms of its own; a provider in `io/`
/// fills this in.
pub trait VerifierFactory {
    /// The verifier for a SubjectPublicKeyInfo (DER); `None` if it is malformed or its algorithm
    /// not supported.
    fn verifier_from_spki(&self, spki: &[u8]) -> Option<Box<dyn Verifier>>;
}

/// Signs a Data and encodes it: SignatureInfo with the signer's type and KeyLocator, nothing else.
pub fn sign_data(data: &Data, signer: &dyn Signer) -> Result<Vec<u8>, SignError> {
    data.try_encode_signed(&signature_info(signer), |portions| signer.sign(portions))
}

/// Signs an Interest and encodes it, with the parameters digest as the last component of its name.
/// `nonce` and `time_ms` (milliseconds since the Unix epoch) go into InterestSignatureInfo; who
/// commands NFD needs both.
pub fn sign_interest(
    interest: Interest,
    signer: &dyn Signer,
    nonce: Option<[u8; 8]>,
    time_ms: Option<u64>,
) -> Result<Vec<u8>, SignError> {
    let mut info = signature_info(signer);
    info.nonce = nonce.map(|nonce| nonce.to_vec());
    info.time_ms = time_ms;
    interest.try_encode_signed(&info, |portions| signer.sign(portions))
}

/// Checks the signature of a Data with one key.
///
/// # Errors
/// [`VerifyError::TypeMismatch`] and [`VerifyError::Mismatch`].
pub fn verify_data(data: &DataView<'_>, verifier: &dyn Verifier) -> Result<(), VerifyError> {
    expect_type(data.signature_info().signature_type, verifier)?;
    verifier.verify(&[data.signed_portion()], data.signature_value())
}

/// Checks the signature of an Interest with one key. The parameters digest was checked when the
/// Interest was decoded; replay is the caller's to notice.
///
/// # Errors
/// [`VerifyError::Unsigned`], [`VerifyError::TypeMismatch`] and [`VerifyError::Mismatch`].
pub fn verify_interest(
    interest: &InterestView<'_>,
    verifier: &dyn Verifier,
) -> Result<(), VerifyError> {
    let signature = interest.signature().ok_or(VerifyError::Unsigned)?;
    expect_type(signature.info().signature_type, verifier)?;
    verifier.verify(&signature.signed_portion(), signature.value)
}

fn signature_info(signer: &dyn Signer) -> SignatureInfo {
    SignatureInfo {
        signature_type: signer.signature_type().0,
        key_locator: signer.key_locator(),
        ..SignatureInfo::default()
    }
}

fn expect_type(found: u64, verifier: &dyn Verifier) -> Result<(), VerifyError> {
    let (found, expected) = (SignatureType(found), verifier.signature_type());
    if found == expected { Ok(()) } else { Err(VerifyError::TypeMismatch { expected, found }) }
}
