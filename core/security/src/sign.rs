//! Traits for signing and verification, and functions that apply them to packets. Providers in
//! `io/` implement the traits.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use weir_base::words;
use weir_hicn::{Algorithm, HicnName, NativeData, NativeSigning};
use weir_wire::{Data, DataView, Interest, InterestView, SignatureInfo, signature_type};

pub use weir_wire::KeyLocator;

/// The number of a signature algorithm (NDN packet 0.3, SignatureType).
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub struct SignatureType(pub u64);

impl SignatureType {
    /// SHA-256 of the signed portion, without a key: integrity only.
    pub const DIGEST_SHA256: Self = Self(0);
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
    /// hICN's signature of an hICN packet, by the algorithm that SignatureInfo names. As the type
    /// of a verifier: that of hICN packets without a signature.
    pub const HICN: Self = Self(signature_type::HICN);
    /// An algorithm of hICN that has no verifier.
    const UNKNOWN: Self = Self(u64::MAX);

    /// Octets of the longest signature, with RSA keys of 2048 bits and other keys of 256.
    pub const fn size_max(self) -> usize {
        match self {
            Self::SHA256_WITH_RSA => 256,
            Self::SHA256_WITH_ECDSA => 72,
            Self::DIGEST_SHA256 | Self::HMAC_SHA256 => 32,
            Self::ED25519 => 64,
            _ => 0,
        }
    }
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
            Self::HICN => f.write_str("hICN"),
            Self::UNKNOWN => f.write_str("an unknown algorithm of hICN"),
            Self(other) => write!(f, "SignatureType {other}"),
        }
    }
}

/// Why signing failed.
#[derive(Clone, Eq, PartialEq, Debug, thiserror::Error)]
pub enum SignError {
    /// The provider failed, for example because a key device was removed.
    #[error("the signing provider failed")]
    Provider,
    /// hICN has no signature of this type.
    #[error("hICN's signatures need a key, and {0} has none; or the key is too long")]
    NoHicnSignature(SignatureType),
    /// hICN cannot carry the Data as its own: it has another name, or a content type.
    #[error("the Data has no hICN form, so it has no hICN signature")]
    NoHicnForm,
}

/// How Data is signed.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum SignatureFormat {
    /// As NDN does, over the elements of the packet.
    #[default]
    Ndn,
    /// As hICN does, over octets of the hICN packet (decision 0047).
    Hicn,
}

words!(SignatureFormat { Ndn = "ndn", Hicn = "hicn" });

/// The key identifier that hICN's library writes for keys without a public key: SHA-256 of eight
/// zero octets.
const NO_KEY_ID: [u8; 32] = [
    0xaf, 0x55, 0x70, 0xf5, 0xa1, 0x81, 0x0b, 0x7a, 0xf7, 0x8c, 0xaf, 0x4b, 0xc7, 0x0a, 0x66, 0x0f,
    0x0d, 0xf5, 0x1e, 0x42, 0xba, 0xf9, 0x1d, 0x4d, 0xe5, 0xb2, 0x32, 0x8d, 0xe0, 0xe8, 0x3d, 0xfc,
];

/// Why the signature of a packet is not accepted.
#[derive(Clone, Eq, PartialEq, Debug, thiserror::Error)]
pub enum VerifyError {
    /// The signature was not made by this key for these bytes.
    #[error("the signature does not match")]
    Mismatch,
    /// The packet names another algorithm than the verifier's key.
    #[error("signed with {found}, but the key is for {expected}")]
    TypeMismatch {
        /// The algorithm of the verifier.
        expected: SignatureType,
        /// The algorithm named in the packet.
        found: SignatureType,
    },
    /// The packet has no signature.
    #[error("the packet is not signed")]
    Unsigned,
}

/// Creates signatures. Threads that sign segments share it.
pub trait Signer: Send + Sync {
    /// The algorithm, as written into SignatureInfo.
    fn signature_type(&self) -> SignatureType;

    /// The owner of the key, as written into SignatureInfo; `None` for DigestSha256.
    fn key_locator(&self) -> Option<KeyLocator>;

    /// Signs the concatenation of `portions`.
    fn sign(&self, portions: &[&[u8]]) -> Result<Vec<u8>, SignError>;

    /// SHA-256 of the public key's SubjectPublicKeyInfo, which names the key in hICN's signatures.
    /// `None` if there is no public key.
    fn key_digest(&self) -> Option<[u8; 32]> {
        None
    }

    /// Octets of the longest signature.
    fn signature_size_max(&self) -> usize {
        self.signature_type().size_max()
    }
}

/// Verifies signatures with one key.
pub trait Verifier: Send + Sync {
    /// The algorithm of the key. Packets with another type are refused without verification.
    fn signature_type(&self) -> SignatureType;

    /// Whether it accepts every signature, because the user accepts unverified packets. Where a
    /// digest of the packet or of its Content is known, that digest then decides alone.
    fn accepts_any(&self) -> bool {
        false
    }

    /// Checks that `signature` is this key's signature of the concatenation of `portions`.
    fn verify(&self, portions: &[&[u8]], signature: &[u8]) -> Result<(), VerifyError>;

    /// Verifies several pairs of bytes and signature. Some algorithms verify many signatures
    /// together faster.
    fn verify_each(&self, signed: &[(&[u8], &[u8])]) -> Vec<bool> {
        let is_good = |&(octets, signature): &(_, _)| self.verify(&[octets], signature).is_ok();
        signed.iter().map(is_good).collect()
    }
}

/// Creates verifiers from public keys. The core implements no algorithms; a provider in `io/` does.
pub trait VerifierFactory {
    /// The verifier for a SubjectPublicKeyInfo (DER). `None` if it is malformed or its algorithm is
    /// not supported.
    fn verifier_from_spki(&self, spki: &[u8]) -> Option<Box<dyn Verifier>>;
}

/// Signs and encodes a Data packet. SignatureInfo has only the signer's type and KeyLocator.
pub fn sign_data(data: &Data, signer: &dyn Signer) -> Result<Vec<u8>, SignError> {
    data.try_encode_signed(&signature_info(signer), |portions| signer.sign(portions))
}

/// As [`sign_data`], in one of both formats. `time_ms` is the time for hICN's signature, in
/// milliseconds. A FinalBlockId remains there only in the Data that it names.
///
/// # Errors
/// Those of the signer, [`SignError::NoHicnSignature`] and [`SignError::NoHicnForm`].
pub fn sign_data_as(
    format: SignatureFormat,
    data: &Data,
    signer: &dyn Signer,
    time_ms: u64,
) -> Result<Vec<u8>, SignError> {
    if format == SignatureFormat::Ndn {
        return sign_data(data, signer);
    }
    let name = HicnName::from_name(data.name.as_view()).ok_or(SignError::NoHicnForm)?;
    if data.content_type != 0 {
        return Err(SignError::NoHicnForm);
    }
    let signing = native_signing(signer, time_ms)?;
    let signature = signer.sign(&signing.signed_octets(name, &data.content).portions())?;
    let (value, padding) = signing.signature_value(signature).ok_or(SignError::Provider)?;
    let own = data.name.as_view().last();
    let final_block_id = data.final_block_id.clone().filter(|last| Some(last.as_view()) == own);
    let data = Data { final_block_id, ..data.clone() };
    Ok(data.encode_signed(&signing.signature_info(padding), |_| value))
}

/// How `signer` makes hICN's signatures at this time.
///
/// # Errors
/// [`SignError::NoHicnSignature`].
pub fn native_signing(signer: &dyn Signer, time_ms: u64) -> Result<NativeSigning, SignError> {
    let signature_type = signer.signature_type();
    let algorithm = match signature_type {
        SignatureType::SHA256_WITH_ECDSA => Algorithm::ECDSA_SHA256,
        SignatureType::ED25519 => Algorithm::ED25519,
        SignatureType::HMAC_SHA256 => Algorithm::HMAC_SHA256,
        SignatureType::SHA256_WITH_RSA => Algorithm::RSA_SHA256,
        other => return Err(SignError::NoHicnSignature(other)),
    };
    let key_id = signer.key_digest().unwrap_or(NO_KEY_ID);
    NativeSigning::new(algorithm, key_id, time_ms, signer.signature_size_max())
        .ok_or(SignError::NoHicnSignature(signature_type))
}

/// Signs and encodes an Interest, with the parameters digest as the last component of its name.
/// `nonce` and `time_ms` (milliseconds since the Unix epoch) go into InterestSignatureInfo.
/// Commands to NFD need both.
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

/// Verifies the signature of a Data packet with one key. A Data of an hICN producer has the
/// signature of its hICN packet, which says nothing about ContentType, FinalBlockId and
/// FreshnessPeriod.
///
/// # Errors
/// [`VerifyError::TypeMismatch`], [`VerifyError::Mismatch`] and [`VerifyError::Unsigned`].
pub fn verify_data(data: &DataView<'_>, verifier: &dyn Verifier) -> Result<(), VerifyError> {
    let signature_type = data.signature_info().signature_type;
    if SignatureType(signature_type) == SignatureType::HICN {
        return verify_native(data, verifier);
    }
    expect_type(signature_type, verifier)?;
    verifier.verify(&[data.signed_portion()], data.signature_value())
}

/// Verifies hICN's signature, over the octets of the packet as its producer signed it.
#[cold]
fn verify_native(data: &DataView<'_>, verifier: &dyn Verifier) -> Result<(), VerifyError> {
    let native = NativeData::of(data).ok_or(VerifyError::Mismatch)?;
    let (Some(ah), Some(signed)) = (native.ah, native.signed_octets()) else {
        expect_type(SignatureType::HICN.0, verifier).map_err(|_| VerifyError::Unsigned)?;
        return verifier.verify(&native.stable_octets().portions(), &[]);
    };
    expect_type(type_of_algorithm(ah.algorithm).0, verifier)?;
    verifier.verify(&signed.portions(), ah.signature())
}

fn type_of_algorithm(algorithm: Algorithm) -> SignatureType {
    match algorithm {
        Algorithm::ECDSA_SHA256 => SignatureType::SHA256_WITH_ECDSA,
        Algorithm::ED25519 => SignatureType::ED25519,
        Algorithm::HMAC_SHA256 => SignatureType::HMAC_SHA256,
        Algorithm::RSA_SHA256 => SignatureType::SHA256_WITH_RSA,
        // No key has this type.
        _ => SignatureType::UNKNOWN,
    }
}

/// The type that a verifier for this packet must have.
pub(crate) fn verifier_type(data: &DataView<'_>) -> SignatureType {
    let found = SignatureType(data.signature_info().signature_type);
    let native = NativeData::of(data).filter(|_| found == SignatureType::HICN);
    let algorithm = native.and_then(|native| native.ah.map(|ah| ah.algorithm));
    algorithm.map_or(found, type_of_algorithm)
}

/// Verifies the signature of an Interest with one key. Decoding has already checked the parameters
/// digest. The caller must detect replays.
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
