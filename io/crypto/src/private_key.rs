//! Private keys of the four algorithms: generated, read and written as PKCS#8.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::digest;
use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der, PublicKeyX509Der};
use aws_lc_rs::hmac;
use aws_lc_rs::rsa;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256,
    RsaKeyPair,
};
use pkcs8::ObjectIdentifier;
use pkcs8::der::asn1::OctetStringRef;
use pkcs8::der::{AnyRef, Encode};
use pkcs8::spki::AlgorithmIdentifierRef;
use pkcs8::{PrivateKeyInfoRef, SubjectPublicKeyInfoRef};
use weir_security::{SignError, SignatureType};
use zeroize::Zeroizing;

use crate::random::random_octets;

/// Bytes of an HMAC key made by [`PrivateKey::generate`]: the output size of SHA-256.
pub(crate) const HMAC_KEY_LEN: usize = 32;

/// Minimum bytes of an HMAC key.
pub(crate) const HMAC_KEY_LEN_MIN: usize = 16;

const OID_RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");
const OID_EC: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const OID_P256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");
const OID_ED25519: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.101.112");
/// id-hmacWithSHA256 (RFC 8018). PKCS#8 defines no form for shared secrets, so the key field
/// contains the raw bytes.
const OID_HMAC: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.2.9");

/// Why a key cannot be made, read or used.
#[derive(Clone, Eq, PartialEq, Debug, thiserror::Error)]
pub enum KeyError {
    /// The bytes are not the expected DER structure.
    #[error("the key is malformed")]
    Malformed,
    /// The algorithm is not ECDSA P-256, Ed25519, RSA or HMAC.
    #[error("the key's algorithm is not supported; use ECDSA P-256, Ed25519, RSA or HMAC")]
    UnsupportedAlgorithm,
    /// An RSA key below 2048 bits, or an HMAC key below 128 bits.
    #[error("the key is too short: RSA needs 2048 bit, HMAC 128 bit")]
    TooShort,
    #[error("the key was refused: {0}")]
    Refused(&'static str),
    /// The key's algorithm has no public key.
    #[error("an HMAC key has no public key, and therefore no certificate")]
    NoPublicKey,
    /// Wrong passphrase, or an unsupported encryption scheme.
    #[error("the key cannot be decrypted: wrong passphrase?")]
    Decrypt,
    /// The key is encrypted, and no passphrase was given.
    #[error("the key is encrypted; give its passphrase")]
    PassphraseNeeded,
}

#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub enum KeyType {
    /// ECDSA over P-256 with SHA-256, the default.
    Ecdsa,
    Ed25519,
    /// RSA PKCS#1 v1.5 with SHA-256.
    Rsa,
    /// HMAC with SHA-256: one secret for signing and verifying.
    Hmac,
}

impl KeyType {
    /// The SignatureType of packets signed with such a key.
    pub(crate) const fn signature_type(self) -> SignatureType {
        match self {
            Self::Ecdsa => SignatureType::SHA256_WITH_ECDSA,
            Self::Ed25519 => SignatureType::ED25519,
            Self::Rsa => SignatureType::SHA256_WITH_RSA,
            Self::Hmac => SignatureType::HMAC_SHA256,
        }
    }

    /// The algorithm of a SubjectPublicKeyInfo.
    pub(crate) fn of_spki(spki: &[u8]) -> Result<Self, KeyError> {
        let info = SubjectPublicKeyInfoRef::try_from(spki).map_err(|_| KeyError::Malformed)?;
        Self::of_algorithm(&info.algorithm)
    }

    /// The algorithm of a PKCS#8 PrivateKeyInfo.
    pub(crate) fn of_pkcs8(pkcs8: &[u8]) -> Result<Self, KeyError> {
        let info = PrivateKeyInfoRef::try_from(pkcs8).map_err(|_| KeyError::Malformed)?;
        Self::of_algorithm(&info.algorithm)
    }

    fn of_algorithm(algorithm: &AlgorithmIdentifierRef<'_>) -> Result<Self, KeyError> {
        match algorithm.oid {
            OID_RSA => Ok(Self::Rsa),
            OID_ED25519 => Ok(Self::Ed25519),
            OID_HMAC => Ok(Self::Hmac),
            OID_EC => match algorithm.parameters_oid() {
                Ok(OID_P256) => Ok(Self::Ecdsa),
                _ => Err(KeyError::UnsupportedAlgorithm),
            },
            _ => Err(KeyError::UnsupportedAlgorithm),
        }
    }
}

impl fmt::Display for KeyType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ecdsa => "ecdsa",
            Self::Ed25519 => "ed25519",
            Self::Rsa => "rsa",
            Self::Hmac => "hmac",
        })
    }
}

impl FromStr for KeyType {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        match text {
            "ecdsa" => Ok(Self::Ecdsa),
            "ed25519" => Ok(Self::Ed25519),
            "rsa" => Ok(Self::Rsa),
            "hmac" => Ok(Self::Hmac),
            _ => Err(KeyError::UnsupportedAlgorithm),
        }
    }
}

/// A key that can sign. `Debug` never shows the secret.
pub struct PrivateKey(Inner);

enum Inner {
    Ecdsa(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
    Rsa(RsaKeyPair),
    Hmac { key: Box<hmac::Key>, secret: Zeroizing<Vec<u8>> },
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrivateKey({})", self.key_type())
    }
}

impl PrivateKey {
    /// Generates a key from the entropy of the operating system. RSA keys have 2048 bits.
    pub fn generate(key_type: KeyType) -> Result<Self, KeyError> {
        const FAILED: KeyError = KeyError::Refused("key generation failed");
        Ok(Self(match key_type {
            KeyType::Ecdsa => Inner::Ecdsa(
                EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).map_err(|_| FAILED)?,
            ),
            KeyType::Ed25519 => Inner::Ed25519(Ed25519KeyPair::generate().map_err(|_| FAILED)?),
            KeyType::Rsa => {
                Inner::Rsa(RsaKeyPair::generate(rsa::KeySize::Rsa2048).map_err(|_| FAILED)?)
            }
            KeyType::Hmac => return Self::from_hmac_secret(&random_octets::<HMAC_KEY_LEN>()),
        }))
    }

    /// An HMAC key with this secret, at least 16 bytes.
    ///
    /// # Errors
    /// [`KeyError::TooShort`].
    pub fn from_hmac_secret(secret: &[u8]) -> Result<Self, KeyError> {
        if secret.len() < HMAC_KEY_LEN_MIN {
            return Err(KeyError::TooShort);
        }
        let key = Box::new(hmac::Key::new(hmac::HMAC_SHA256, secret));
        Ok(Self(Inner::Hmac { key, secret: Zeroizing::new(secret.to_vec()) }))
    }

    /// Reads an unencrypted PKCS#8 PrivateKeyInfo (DER).
    pub(crate) fn from_pkcs8(pkcs8: &[u8]) -> Result<Self, KeyError> {
        let refused =
            |reason: aws_lc_rs::error::KeyRejected| KeyError::Refused(reason.description_());
        Ok(Self(match KeyType::of_pkcs8(pkcs8)? {
            KeyType::Ecdsa => Inner::Ecdsa(
                EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, pkcs8)
                    .map_err(refused)?,
            ),
            KeyType::Ed25519 => {
                Inner::Ed25519(Ed25519KeyPair::from_pkcs8_maybe_unchecked(pkcs8).map_err(refused)?)
            }
            KeyType::Rsa => {
                return Self::from_rsa(RsaKeyPair::from_pkcs8(pkcs8).map_err(refused)?);
            }
            KeyType::Hmac => {
                let info = PrivateKeyInfoRef::try_from(pkcs8).map_err(|_| KeyError::Malformed)?;
                return Self::from_hmac_secret(info.private_key.as_bytes());
            }
        }))
    }

    /// Reads an unencrypted key as ndnd 31822ab writes it (`Secret` in `std/security/signer`): RFC
    /// 5915 for ECDSA, PKCS#1 for RSA, PKCS#8 for Ed25519.
    pub(crate) fn from_ndnd(signature_type: SignatureType, der: &[u8]) -> Result<Self, KeyError> {
        match signature_type {
            SignatureType::SHA256_WITH_ECDSA => {
                EcdsaKeyPair::from_private_key_der(&ECDSA_P256_SHA256_ASN1_SIGNING, der)
                    .map(|pair| Self(Inner::Ecdsa(pair)))
                    // ndnd also makes keys of other curves.
                    .map_err(|_| KeyError::Refused("it is damaged, or not of the curve P-256"))
            }
            SignatureType::SHA256_WITH_RSA => RsaKeyPair::from_der(der)
                .map_err(|reason| KeyError::Refused(reason.description_()))
                .and_then(Self::from_rsa),
            SignatureType::ED25519 => Self::from_pkcs8(der),
            _ => Err(KeyError::UnsupportedAlgorithm),
        }
    }

    fn from_rsa(pair: RsaKeyPair) -> Result<Self, KeyError> {
        if pair.public_modulus_len() < 256 {
            return Err(KeyError::TooShort);
        }
        Ok(Self(Inner::Rsa(pair)))
    }

    /// Writes an unencrypted PKCS#8 PrivateKeyInfo (DER).
    pub(crate) fn to_pkcs8(&self) -> Result<Zeroizing<Vec<u8>>, KeyError> {
        const FAILED: KeyError = KeyError::Refused("the key cannot be exported");
        let octets = match &self.0 {
            Inner::Ecdsa(pair) => pair.to_pkcs8v1().map_err(|_| FAILED)?.as_ref().to_vec(),
            Inner::Ed25519(pair) => pair.to_pkcs8v1().map_err(|_| FAILED)?.as_ref().to_vec(),
            Inner::Rsa(pair) => {
                let der: Pkcs8V1Der<'_> = pair.as_der().map_err(|_| FAILED)?;
                der.as_ref().to_vec()
            }
            Inner::Hmac { secret, .. } => hmac_pkcs8(secret)?,
        };
        Ok(Zeroizing::new(octets))
    }

    pub(crate) fn key_type(&self) -> KeyType {
        match &self.0 {
            Inner::Ecdsa(_) => KeyType::Ecdsa,
            Inner::Ed25519(_) => KeyType::Ed25519,
            Inner::Rsa(_) => KeyType::Rsa,
            Inner::Hmac { .. } => KeyType::Hmac,
        }
    }

    /// The public key as SubjectPublicKeyInfo (DER).
    pub fn public_key(&self) -> Result<Vec<u8>, KeyError> {
        const FAILED: KeyError = KeyError::Refused("the public key cannot be exported");
        let der: PublicKeyX509Der<'_> = match &self.0 {
            Inner::Ecdsa(pair) => pair.public_key().as_der().map_err(|_| FAILED)?,
            Inner::Ed25519(pair) => pair.public_key().as_der().map_err(|_| FAILED)?,
            Inner::Rsa(pair) => pair.public_key().as_der().map_err(|_| FAILED)?,
            Inner::Hmac { .. } => return Err(KeyError::NoPublicKey),
        };
        Ok(der.as_ref().to_vec())
    }

    /// Octets of the longest signature.
    pub(crate) fn signature_size_max(&self) -> usize {
        match &self.0 {
            Inner::Rsa(pair) => pair.public_modulus_len(),
            _ => self.key_type().signature_type().size_max(),
        }
    }

    /// The shared secret of an HMAC key.
    pub(crate) fn hmac_secret(&self) -> Option<&[u8]> {
        match &self.0 {
            Inner::Hmac { secret, .. } => Some(secret),
            _ => None,
        }
    }

    /// The signature value over the concatenation of `portions`.
    pub fn sign(&self, portions: &[&[u8]]) -> Result<Vec<u8>, SignError> {
        match &self.0 {
            Inner::Ecdsa(pair) => {
                let signature =
                    pair.sign_digest(&sha256(portions)).map_err(|_| SignError::Provider)?;
                Ok(signature.as_ref().to_vec())
            }
            Inner::Ed25519(pair) => {
                let signature = with_joined(portions, |message| pair.try_sign(message));
                Ok(signature.map_err(|_| SignError::Provider)?.as_ref().to_vec())
            }
            Inner::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign_digest(&RSA_PKCS1_SHA256, &sha256(portions), &mut signature)
                    .map_err(|_| SignError::Provider)?;
                Ok(signature)
            }
            Inner::Hmac { key, .. } => Ok(hmac_tag(key, portions).as_ref().to_vec()),
        }
    }
}

/// SHA-256 of the concatenation, in the provider's type.
pub(crate) fn sha256(portions: &[&[u8]]) -> digest::Digest {
    let mut context = digest::Context::new(&digest::SHA256);
    for portion in portions {
        context.update(portion);
    }
    context.finish()
}

pub(crate) fn hmac_tag(key: &hmac::Key, portions: &[&[u8]]) -> hmac::Tag {
    let mut context = hmac::Context::with_key(key);
    for portion in portions {
        context.update(portion);
    }
    context.sign()
}

/// Calls `f` with the concatenation of `portions`. Copies only if there are several. Data have a
/// single portion.
pub(crate) fn with_joined<T>(portions: &[&[u8]], f: impl FnOnce(&[u8]) -> T) -> T {
    match portions {
        [one] => f(one),
        several => f(&several.concat()),
    }
}

fn hmac_pkcs8(secret: &[u8]) -> Result<Vec<u8>, KeyError> {
    let algorithm = AlgorithmIdentifierRef { oid: OID_HMAC, parameters: Some(AnyRef::NULL) };
    let secret = OctetStringRef::new(secret).map_err(|_| KeyError::Malformed)?;
    PrivateKeyInfoRef::new(algorithm, secret).to_der().map_err(|_| KeyError::Malformed)
}
