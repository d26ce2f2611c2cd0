//! SignatureType 0: SHA-256 of the signed portion. It shows that a packet is complete, but not who
//! made it.

use alloc::vec::Vec;

use sha2::{Digest, Sha256};
use weir_base::{SHA256_LANES, sha256_lanes};

use crate::sign::{KeyLocator, SignError, SignatureType, Signer, Verifier, VerifyError};

/// SHA-256 of the concatenation of `portions`.
pub fn sha256(portions: &[&[u8]]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    for portion in portions {
        hasher.update(portion);
    }
    hasher.finalize().into()
}

/// From this many messages on, [`sha256_lanes`] is faster than the processor's SHA extensions: with
/// 8000 bytes each, 1.2 times for eight messages and 2.6 times for sixteen.
const LANES_MIN: usize = 7;

/// SHA-256 of each message, in parallel if the processor can. Messages of about equal length gain
/// most.
pub fn sha256_each(messages: &[&[u8]]) -> Vec<[u8; 32]> {
    let mut digests = Vec::with_capacity(messages.len());
    for messages in messages.chunks(SHA256_LANES) {
        let mut lanes: [&[u8]; SHA256_LANES] = [&[]; SHA256_LANES];
        lanes[..messages.len()].copy_from_slice(messages);
        let is_worth_it = messages.len() >= LANES_MIN;
        match is_worth_it.then(|| sha256_lanes(&lanes)).flatten() {
            Some(lanes) => digests.extend_from_slice(&lanes[..messages.len()]),
            None => digests.extend(messages.iter().map(|message| sha256(&[message]))),
        }
    }
    digests
}

/// Signs with DigestSha256 (NDN packet 0.3, SignatureType 0), without key and KeyLocator.
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

/// Signs with an empty signature (NullSignature, SignatureType 200), for packets whose digests are
/// listed in a signed packet.
#[derive(Copy, Clone, Debug, Default)]
pub struct NullSigner;

impl Signer for NullSigner {
    fn signature_type(&self) -> SignatureType {
        SignatureType::NULL
    }

    fn key_locator(&self) -> Option<KeyLocator> {
        None
    }

    fn sign(&self, _portions: &[&[u8]]) -> Result<Vec<u8>, SignError> {
        Ok(Vec::new())
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

/// Accepts hICN packets that have no signature ([`SignatureType::HICN`]), and refuses signed ones.
/// For users who allow unsigned content.
#[derive(Copy, Clone, Debug, Default)]
pub struct UnsignedHicnVerifier;

impl Verifier for UnsignedHicnVerifier {
    fn signature_type(&self) -> SignatureType {
        SignatureType::HICN
    }

    fn verify(&self, _portions: &[&[u8]], signature: &[u8]) -> Result<(), VerifyError> {
        if signature.is_empty() { Ok(()) } else { Err(VerifyError::Mismatch) }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::{sha256, sha256_each};

    #[test]
    fn parallel_digests_match_single_ones() {
        for count in 0..40_usize {
            let message = |at: usize| (0..at * 97 % 1000).map(|octet| octet as u8).collect();
            let messages: Vec<Vec<u8>> = (0..count).map(message).collect();
            let messages: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
            let expected: Vec<_> = messages.iter().map(|message| sha256(&[message])).collect();
            assert_eq!(sha256_each(&messages), expected);
        }
    }
}
