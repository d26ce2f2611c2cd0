//! Keys of a trial: the algorithms that the product has, and old ones that papers measured with and
//! the product rejects. Such keys live only as long as their process and protect nothing.

use std::sync::Arc;

use ecdsa::hazmat::{VerifyPrimitive as _, bits2field, sign_prehashed};
use p192::elliptic_curve::PrimeField as _;
use p192::elliptic_curve::sec1::{FromEncodedPoint as _, ToEncodedPoint as _};
use p192::{AffinePoint, EncodedPoint, NistP192, ProjectivePoint, Scalar};
use rsa::pkcs1::{DecodeRsaPublicKey as _, EncodeRsaPublicKey as _};
use rsa::rand_core::{CryptoRng, Error as RandomError, RngCore};
use rsa::{Pkcs1v15Sign, RsaPrivateKey, RsaPublicKey};
use weir_crypto::{KeySigner, KeyType, PrivateKey, random_octets, verifier_from_spki};
use weir_scenario::trial::Algorithm;
use weir_security::{
    DigestSigner, DigestVerifier, KeyLocator, NullSigner, SignError, SignatureType, Signer,
    Verifier, VerifyError, sha256,
};
use weir_wire::Name;

/// The KeyLocator of every key.
const LOCATOR: &str = "/trial/KEY/1/self/v=1";
/// DER of DigestInfo before a SHA-256 digest (RFC 8017, section 9.2).
const SHA256_INFO: [u8; 19] = [
    0x30, 0x31, 0x30, 0x0d, 0x06, 0x09, 0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x02, 0x01, 0x05,
    0x00, 0x04, 0x20,
];
/// Signatures verified together.
const BATCH: usize = 32;
const RSA_BITS: usize = 1024;
/// Bytes of a P-192 number.
const P192_LEN: usize = 24;

/// A signer, and what others need to verify: a public key or the shared key.
pub(super) struct Key {
    pub(super) signer: Arc<dyn Signer>,
    pub(super) verifying_key: Vec<u8>,
}

impl Key {
    pub(super) fn generate(algorithm: Algorithm) -> Result<Self, String> {
        let of = |key_type| -> Result<Self, String> {
            let key = PrivateKey::generate(key_type).map_err(|error| error.to_string())?;
            let verifying_key = key.public_key().map_err(|error| error.to_string())?;
            Ok(Self { signer: Arc::new(KeySigner::new(key, locator())), verifying_key })
        };
        Ok(match algorithm {
            Algorithm::None => Self { signer: Arc::new(NullSigner), verifying_key: Vec::new() },
            Algorithm::Digest => Self { signer: Arc::new(DigestSigner), verifying_key: Vec::new() },
            Algorithm::Hmac => {
                let verifying_key = random_octets::<32>().to_vec();
                Self {
                    signer: Arc::new(KeySigner::new(shared(&verifying_key)?, locator())),
                    verifying_key,
                }
            }
            Algorithm::Ed25519 | Algorithm::Ed25519Batch => of(KeyType::Ed25519)?,
            Algorithm::EcdsaP256 => of(KeyType::Ecdsa)?,
            Algorithm::Rsa2048 => of(KeyType::Rsa)?,
            Algorithm::EcdsaP192 => {
                let key = p192_number().ok_or("no number below the order of P-192")?;
                let point = (ProjectivePoint::GENERATOR * key).to_affine();
                let verifying_key = point.to_encoded_point(true).as_bytes().to_vec();
                Self { signer: Arc::new(P192Signer(key)), verifying_key }
            }
            Algorithm::Rsa1024 => {
                let key = RsaPrivateKey::new(&mut SystemRandom, RSA_BITS)
                    .map_err(|error| error.to_string())?;
                let verifying_key = key.to_public_key().to_pkcs1_der();
                let verifying_key =
                    verifying_key.map_err(|error| error.to_string())?.as_bytes().to_vec();
                Self { signer: Arc::new(Rsa1024Signer(key)), verifying_key }
            }
        })
    }
}

/// A verifier of that key's signatures.
pub(super) fn verifier(
    algorithm: Algorithm,
    verifying_key: &[u8],
) -> Result<Arc<dyn Verifier>, String> {
    Ok(match algorithm {
        Algorithm::None => Arc::new(NothingVerifier),
        Algorithm::Digest => Arc::new(DigestVerifier),
        Algorithm::Hmac => Arc::new(SharedVerifier(shared(verifying_key)?)),
        Algorithm::Ed25519
        | Algorithm::Ed25519Batch
        | Algorithm::EcdsaP256
        | Algorithm::Rsa2048 => {
            verifier_from_spki(verifying_key).map_err(|error| error.to_string())?.into()
        }
        Algorithm::EcdsaP192 => {
            let point =
                EncodedPoint::from_bytes(verifying_key).map_err(|error| error.to_string())?;
            let point = Option::from(AffinePoint::from_encoded_point(&point));
            Arc::new(P192Verifier(point.ok_or("no point of P-192")?))
        }
        Algorithm::Rsa1024 => {
            let key =
                RsaPublicKey::from_pkcs1_der(verifying_key).map_err(|error| error.to_string())?;
            Arc::new(Rsa1024Verifier(key))
        }
    })
}

/// Verifies all packets, one by one or, if the algorithm says so, in batches as a consumer does.
pub(super) fn verify_all(
    algorithm: Algorithm,
    verifier: &dyn Verifier,
    packets: &[Vec<u8>],
    signatures: &[Vec<u8>],
) -> Result<(), VerifyError> {
    let mut all = packets.iter().zip(signatures);
    if algorithm != Algorithm::Ed25519Batch {
        return all.try_for_each(|(packet, signature)| verifier.verify(&[packet], signature));
    }
    let signed: Vec<(&[u8], &[u8])> = all.map(|(packet, it)| (&packet[..], &it[..])).collect();
    let are_good = |some| verifier.verify_each(some).into_iter().all(|is_good| is_good);
    match signed.chunks(BATCH).all(are_good) {
        true => Ok(()),
        false => Err(VerifyError::Mismatch),
    }
}

fn locator() -> Name {
    LOCATOR.parse().expect("a name")
}

fn shared(secret: &[u8]) -> Result<PrivateKey, String> {
    PrivateKey::from_hmac_secret(secret).map_err(|error| error.to_string())
}

/// Accepts unsigned packets.
struct NothingVerifier;

impl Verifier for NothingVerifier {
    fn signature_type(&self) -> SignatureType {
        SignatureType::NULL
    }

    fn verify(&self, _portions: &[&[u8]], _signature: &[u8]) -> Result<(), VerifyError> {
        Ok(())
    }
}

struct SharedVerifier(PrivateKey);

impl Verifier for SharedVerifier {
    fn signature_type(&self) -> SignatureType {
        SignatureType::HMAC_SHA256
    }

    fn verify(&self, portions: &[&[u8]], signature: &[u8]) -> Result<(), VerifyError> {
        match self.0.sign(portions) {
            Ok(tag) if tag == signature => Ok(()),
            _ => Err(VerifyError::Mismatch),
        }
    }
}

/// A random P-192 number other than 0.
fn p192_number() -> Option<Scalar> {
    // All but one in 2^95 are below the order.
    Option::from(Scalar::from_repr(random_octets::<P192_LEN>().into()))
}

struct P192Signer(Scalar);

impl Signer for P192Signer {
    fn signature_type(&self) -> SignatureType {
        SignatureType::SHA256_WITH_ECDSA
    }

    fn key_locator(&self) -> Option<KeyLocator> {
        Some(KeyLocator::Name(locator()))
    }

    fn sign(&self, portions: &[&[u8]]) -> Result<Vec<u8>, SignError> {
        let digest = bits2field::<NistP192>(&sha256(portions)).map_err(|_| SignError::Provider)?;
        let nonce = p192_number().ok_or(SignError::Provider)?;
        let (signature, _) = sign_prehashed::<NistP192, _>(&self.0, nonce, &digest)
            .map_err(|_| SignError::Provider)?;
        Ok(signature.to_der().as_bytes().to_vec())
    }
}

struct P192Verifier(AffinePoint);

impl Verifier for P192Verifier {
    fn signature_type(&self) -> SignatureType {
        SignatureType::SHA256_WITH_ECDSA
    }

    fn verify(&self, portions: &[&[u8]], signature: &[u8]) -> Result<(), VerifyError> {
        let wrong = |_| VerifyError::Mismatch;
        let signature = p192::ecdsa::Signature::from_der(signature).map_err(wrong)?;
        let digest = bits2field::<NistP192>(&sha256(portions)).map_err(wrong)?;
        self.0.verify_prehashed(&digest, &signature).map_err(wrong)
    }
}

/// PKCS#1 v1.5 padding of SHA-256.
fn padding() -> Pkcs1v15Sign {
    Pkcs1v15Sign { hash_len: Some(32), prefix: SHA256_INFO.into() }
}

struct Rsa1024Signer(RsaPrivateKey);

impl Signer for Rsa1024Signer {
    fn signature_type(&self) -> SignatureType {
        SignatureType::SHA256_WITH_RSA
    }

    fn key_locator(&self) -> Option<KeyLocator> {
        Some(KeyLocator::Name(locator()))
    }

    fn sign(&self, portions: &[&[u8]]) -> Result<Vec<u8>, SignError> {
        self.0.sign(padding(), &sha256(portions)).map_err(|_| SignError::Provider)
    }
}

struct Rsa1024Verifier(RsaPublicKey);

impl Verifier for Rsa1024Verifier {
    fn signature_type(&self) -> SignatureType {
        SignatureType::SHA256_WITH_RSA
    }

    fn verify(&self, portions: &[&[u8]], signature: &[u8]) -> Result<(), VerifyError> {
        self.0.verify(padding(), &sha256(portions), signature).map_err(|_| VerifyError::Mismatch)
    }
}

/// The system's entropy for the RSA library.
struct SystemRandom;

impl RngCore for SystemRandom {
    fn next_u32(&mut self) -> u32 {
        u32::from_ne_bytes(random_octets())
    }

    fn next_u64(&mut self) -> u64 {
        u64::from_ne_bytes(random_octets())
    }

    fn fill_bytes(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(32) {
            chunk.copy_from_slice(&random_octets::<32>()[..chunk.len()]);
        }
    }

    fn try_fill_bytes(&mut self, out: &mut [u8]) -> Result<(), RandomError> {
        self.fill_bytes(out);
        Ok(())
    }
}

impl CryptoRng for SystemRandom {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_algorithm_verifies_only_its_own() {
        use Algorithm::*;
        let all = [Digest, Hmac, Ed25519, Ed25519Batch, EcdsaP192, EcdsaP256, Rsa1024, Rsa2048];
        for algorithm in all {
            let key = Key::generate(algorithm).unwrap();
            let verifier = verifier(algorithm, &key.verifying_key).unwrap();
            assert_eq!(verifier.signature_type(), key.signer.signature_type());
            let signature = key.signer.sign(&[b"one ", b"text"]).unwrap();
            verifier.verify(&[b"one text"], &signature).unwrap();
            assert!(verifier.verify(&[b"one test"], &signature).is_err(), "{algorithm:?}");
            let packets: Vec<Vec<u8>> = (0..BATCH as u8 + 3).map(|it| vec![it; 100]).collect();
            let sign = |packet: &Vec<u8>| key.signer.sign(&[packet]).unwrap();
            let mut signatures: Vec<Vec<u8>> = packets.iter().map(sign).collect();
            verify_all(algorithm, &*verifier, &packets, &signatures).unwrap();
            signatures.swap(BATCH, BATCH + 1);
            assert!(verify_all(algorithm, &*verifier, &packets, &signatures).is_err());
            let other = Key::generate(algorithm).unwrap().signer.sign(&[b"one text"]).unwrap();
            let is_keyless = algorithm == Digest;
            assert_eq!(verifier.verify(&[b"one text"], &other).is_ok(), is_keyless);
        }
    }
}
