//! Verifiers of the four algorithms.

use aws_lc_rs::hmac;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ED25519, ParsedPublicKey, RSA_PKCS1_2048_8192_SHA256,
    VerificationAlgorithm,
};
use pkcs8::SubjectPublicKeyInfoRef;
use weir_security::{Certificate, SignatureType, Verifier, VerifierFactory, VerifyError};

use crate::pem::public_key_from_pem;
use crate::private_key::{HMAC_KEY_LEN_MIN, KeyError, KeyType, hmac_tag, sha256, with_joined};
use crate::text::packet_in_file;

/// The first octet of a Data.
const DATA_OCTET: u8 = 6;
/// From this many signatures on, verifying them together is faster (measured).
const BATCH_MIN: usize = 8;

/// Checks ECDSA P-256 signatures (SignatureType 3, DER) against one public key.
pub(crate) struct EcdsaVerifier(ParsedPublicKey);

/// Checks RSA PKCS#1 v1.5 SHA-256 signatures (SignatureType 1) against one public key of 2048 to
/// 8192 bits.
pub(crate) struct RsaVerifier(ParsedPublicKey);

/// Checks Ed25519 signatures (SignatureType 5) against one public key.
pub(crate) struct Ed25519Verifier {
    key: ParsedPublicKey,
    /// The same key, for batches of signatures.
    batch_key: ed25519_dalek::VerifyingKey,
}

/// Checks HMAC-SHA256 (SignatureType 4) with the shared secret, in constant time.
pub(crate) struct HmacVerifier(hmac::Key);

/// The verifier for a public key, selected by the algorithm in its SubjectPublicKeyInfo (DER).
pub fn verifier_from_spki(spki: &[u8]) -> Result<Box<dyn Verifier>, KeyError> {
    Ok(match KeyType::of_spki(spki)? {
        KeyType::Ecdsa => Box::new(EcdsaVerifier::from_spki(spki)?),
        KeyType::Ed25519 => Box::new(Ed25519Verifier::from_spki(spki)?),
        KeyType::Rsa => Box::new(RsaVerifier::from_spki(spki)?),
        KeyType::Hmac => return Err(KeyError::UnsupportedAlgorithm),
    })
}

/// The verifier for a certificate's key. Does not check whether the certificate is trusted.
pub fn verifier_from_certificate(certificate: &Certificate) -> Result<Box<dyn Verifier>, KeyError> {
    verifier_from_spki(certificate.public_key())
}

/// The verifier for the key of an hICN producer, from the content of a file: a public key in PEM,
/// an NDN certificate, or the passphrase of an HMAC key, one line of at least 16 bytes. hICN's
/// library uses the passphrase itself as the key.
///
/// # Errors
/// [`KeyError`]. An X.509 certificate, or a public key of OpenSSH, is
/// [`KeyError::UnsupportedAlgorithm`].
pub fn hicn_verifier(file: &[u8]) -> Result<Box<dyn Verifier>, KeyError> {
    if let Some(certificate) = packet_in_file(file, &[DATA_OCTET]) {
        let certificate = Certificate::decode(&certificate).map_err(|_| KeyError::Malformed)?;
        return verifier_from_certificate(&certificate);
    }
    let text = str::from_utf8(file).map_err(|_| KeyError::Malformed)?;
    if let Some(spki) = public_key_from_pem(text) {
        return verifier_from_spki(&spki);
    }
    // As a passphrase, a public key would let anyone sign.
    let is_openssh = ["ssh-", "ecdsa-sha2-", "sk-"].iter().any(|start| text.starts_with(start));
    if text.contains("-----BEGIN ") || is_openssh {
        return Err(KeyError::UnsupportedAlgorithm);
    }
    let passphrase = text.trim_end_matches(['\r', '\n']);
    if passphrase.contains('\n') {
        return Err(KeyError::Malformed);
    }
    Ok(Box::new(HmacVerifier::new(passphrase.as_bytes())?))
}

/// Creates verifiers from public keys for `weir_security::trust`.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Provider;

impl VerifierFactory for Provider {
    fn verifier_from_spki(&self, spki: &[u8]) -> Option<Box<dyn Verifier>> {
        verifier_from_spki(spki).ok()
    }
}

fn parse(
    algorithm: &'static dyn VerificationAlgorithm,
    spki: &[u8],
) -> Result<ParsedPublicKey, KeyError> {
    ParsedPublicKey::new(algorithm, spki).map_err(|reason| KeyError::Refused(reason.description_()))
}

fn check_algorithm(spki: &[u8], expected: KeyType) -> Result<(), KeyError> {
    if KeyType::of_spki(spki)? == expected { Ok(()) } else { Err(KeyError::UnsupportedAlgorithm) }
}

impl EcdsaVerifier {
    /// From a SubjectPublicKeyInfo (DER) of a P-256 key.
    pub(crate) fn from_spki(spki: &[u8]) -> Result<Self, KeyError> {
        check_algorithm(spki, KeyType::Ecdsa)?;
        Ok(Self(parse(&ECDSA_P256_SHA256_ASN1, spki)?))
    }
}

impl Verifier for EcdsaVerifier {
    fn signature_type(&self) -> SignatureType {
        SignatureType::SHA256_WITH_ECDSA
    }

    fn verify(&self, portions: &[&[u8]], signature: &[u8]) -> Result<(), VerifyError> {
        self.0.verify_digest_sig(&sha256(portions), signature).map_err(|_| VerifyError::Mismatch)
    }
}

impl RsaVerifier {
    /// From a SubjectPublicKeyInfo (DER) of an RSA key.
    pub(crate) fn from_spki(spki: &[u8]) -> Result<Self, KeyError> {
        check_algorithm(spki, KeyType::Rsa)?;
        Ok(Self(parse(&RSA_PKCS1_2048_8192_SHA256, spki)?))
    }
}

impl Verifier for RsaVerifier {
    fn signature_type(&self) -> SignatureType {
        SignatureType::SHA256_WITH_RSA
    }

    fn verify(&self, portions: &[&[u8]], signature: &[u8]) -> Result<(), VerifyError> {
        self.0.verify_digest_sig(&sha256(portions), signature).map_err(|_| VerifyError::Mismatch)
    }
}

impl Ed25519Verifier {
    /// From a SubjectPublicKeyInfo (DER) of an Ed25519 key.
    pub(crate) fn from_spki(spki: &[u8]) -> Result<Self, KeyError> {
        check_algorithm(spki, KeyType::Ed25519)?;
        let info = SubjectPublicKeyInfoRef::try_from(spki).map_err(|_| KeyError::Malformed)?;
        let point: &[u8; 32] = info
            .subject_public_key
            .as_bytes()
            .and_then(|octets| octets.try_into().ok())
            .ok_or(KeyError::Malformed)?;
        // The verification library accepts points of small order, but anyone could make signatures
        // for such keys.
        let point = ed25519_dalek::VerifyingKey::from_bytes(point)
            .map_err(|_| KeyError::Refused("not a point of the curve"))?;
        if point.is_weak() {
            return Err(KeyError::Refused("a point of small order"));
        }
        Ok(Self { key: parse(&ED25519, spki)?, batch_key: point })
    }

    /// Whether all signatures are good. Checks one equation: the sum of the equations of all
    /// signatures, each multiplied by a number from a hash of them all. It accepts signatures with
    /// a component of small order, which single verification rejects. Only the holder of the key
    /// can make those.
    fn verify_batch(&self, signed: &[(&[u8], &[u8])]) -> bool {
        if signed.len() < BATCH_MIN {
            return false;
        }
        let (octets, signatures): (Vec<&[u8]>, Vec<_>) = signed
            .iter()
            .map(|(octets, signature)| (octets, ed25519_dalek::Signature::from_slice(signature)))
            .unzip();
        let Ok(signatures) = signatures.into_iter().collect::<Result<Vec<_>, _>>() else {
            return false;
        };
        let keys = vec![self.batch_key; signed.len()];
        ed25519_dalek::verify_batch(&octets, &signatures, &keys).is_ok()
    }
}

impl Verifier for Ed25519Verifier {
    fn signature_type(&self) -> SignatureType {
        SignatureType::ED25519
    }

    fn verify(&self, portions: &[&[u8]], signature: &[u8]) -> Result<(), VerifyError> {
        with_joined(portions, |message| self.key.verify_sig(message, signature))
            .map_err(|_| VerifyError::Mismatch)
    }

    fn verify_each(&self, signed: &[(&[u8], &[u8])]) -> Vec<bool> {
        match self.verify_batch(signed) {
            true => vec![true; signed.len()],
            // The batch shows only that some signature is bad, so each is verified alone.
            false => signed.iter().map(|(octets, it)| self.verify(&[octets], it).is_ok()).collect(),
        }
    }
}

impl HmacVerifier {
    /// From a secret of at least [`HMAC_KEY_LEN_MIN`] bytes.
    pub(crate) fn new(secret: &[u8]) -> Result<Self, KeyError> {
        if secret.len() < HMAC_KEY_LEN_MIN {
            return Err(KeyError::TooShort);
        }
        Ok(Self(hmac::Key::new(hmac::HMAC_SHA256, secret)))
    }
}

impl Verifier for HmacVerifier {
    fn signature_type(&self) -> SignatureType {
        SignatureType::HMAC_SHA256
    }

    fn verify(&self, portions: &[&[u8]], signature: &[u8]) -> Result<(), VerifyError> {
        let tag = hmac_tag(&self.0, portions);
        aws_lc_rs::constant_time::verify_slices_are_equal(tag.as_ref(), signature)
            .map_err(|_| VerifyError::Mismatch)
    }
}
