//! SignatureType 0: SHA-256 of the signed portion. It shows that a packet arrived whole, never who
//! made it.

use alloc::vec::Vec;

use sha2::{Digest, Sha256};

use crate::sign::{KeyLocator, SignError, SignatureType, Signer, Verifier, VerifyError};

/// SHA-256 of the concatenation of `portions`.
pub fn sha256(portions: &[&[u8]]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    for portion in portions {
        hasher.update(portion);
    }
    hasher.finalize().into()
}

/// Signs with DigestSha256 (NDN packet 0.3, SignatureType 0): no key, no KeyLocator.
#[derive(Copy, Clone, Debug, Default)]
pub struct DigestSigner;

impl Signer for DigestSigner {
    fn signature_type(&self) -> SignatureType {
        SignatureType::DIGEST_SHA256
    }

    fn key_locator(&self) -> Option<KeyLocator> {
        None
    }

    fn sign(&self, portions: &[&[u8]]) -> Result<Vec<u8>, SignError> {
        Ok(sha256(portions).to_vec())
    }
}

/// Checks DigestSha256 (NDN packet 0.3, SignatureType 0). A KeyLocator, if present, is ignored.
#[derive(Copy, Clone, Debug, Default)]
pub struct DigestVerifier;

impl Verifier for DigestVerifier {
    fn signature_type(&self) -> SignatureType {
        SignatureType::DIGEST_SHA256
    }

    fn verify(&self, portions: &[&[u8]], signature: &[u8]) -> Result<(), VerifyError> {
        if sha256(portions).as_slice() == signature { Ok(()) } else { Err(VerifyError::Mismatch) }
    }
}
