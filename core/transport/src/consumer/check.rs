//! What a packet is held against, and what comes of it.

use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;

use weir_security::{Verifier, sha256, verify_data};
use weir_wire::DataView;

use crate::metadata::ContentDigest;

/// The consumer's number of a verification under way.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VerifyId(pub u32);

/// The consumer's number of a signer.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyId(pub u32);

/// What a packet is held against.
#[derive(Clone)]
pub enum Check {
    /// Its implicit digest, which the manifest lists. A producer that signs the same version again
    /// makes other packets, of which caches hold a mixture: the signature of the manifest's signer
    /// says as much.
    Digest {
        /// The digest.
        digest: [u8; 32],
        /// The manifest's signer.
        signer: Option<Arc<dyn Verifier>>,
    },
    /// Its Content, of which verified metadata states the digest: it is the only segment.
    Content {
        /// The object's [`ContentDigest`].
        digest: [u8; 32],
        /// The signer, of whom another packet is right as well.
        signer: Arc<dyn Verifier>,
    },
    /// Its signature.
    Signature(Arc<dyn Verifier>),
    /// What the driver knows of it.
    ByDriver,
}

impl Check {
    /// Holds `data` against it; what is checked [by the driver](Self::ByDriver) passes.
    pub fn run(&self, data: &DataView<'_>) -> Verdict {
        let reason = match self {
            Self::Digest { digest, signer } => {
                let is_signed = |signer: &Arc<dyn Verifier>| verify_data(data, &**signer).is_ok();
                if sha256(&[data.wire]) == *digest || signer.as_ref().is_some_and(is_signed) {
                    return Verdict::Good;
                }
                String::from("it is not the one that the manifest lists")
            }
            Self::Content { digest, .. } if has_content(data, digest) => return Verdict::Good,
            Self::Content { signer: verifier, .. } | Self::Signature(verifier) => {
                match verify_data(data, &**verifier) {
                    Ok(()) => return Verdict::Good,
                    Err(error) => alloc::format!("{error}"),
                }
            }
            Self::ByDriver => return Verdict::Good,
        };
        Verdict::Bad { reason, digest: None }
    }
}

fn has_content(data: &DataView<'_>, digest: &[u8; 32]) -> bool {
    let mut content = ContentDigest::default();
    content.add(data.content);
    content.finish() == *digest
}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Digest { .. } => "Digest",
            Self::Content { .. } => "Content",
            Self::Signature(_) => "Signature",
            Self::ByDriver => "ByDriver",
        })
    }
}

/// What a verification comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The packet is what its producer signed.
    Good,
    /// It was damaged or forged on the way.
    Bad {
        /// What is wrong.
        reason: String,
        /// The implicit digest of the right packet, if the driver knows it: what routers have of
        /// the name is passed over then.
        digest: Option<[u8; 32]>,
    },
}

#[cfg(test)]
mod tests {
    use alloc::sync::Arc;

    use weir_security::DigestVerifier;
    use weir_wire::{Data, DataView};

    use super::{Check, Verdict};
    use crate::metadata::ContentDigest;

    #[test]
    fn content_or_else_the_signature_says_that_a_sole_segment_is_right() {
        let good = Data::new("/a/54=%01/50=%00".parse().unwrap()).content("text");
        let good = good.encode_with_digest();
        let mut unsigned = good.clone();
        *unsigned.last_mut().unwrap() ^= 1;
        for (packet, stated, is_good) in [
            (&good, "text", true),
            (&unsigned, "text", true),
            (&good, "other", true),
            (&unsigned, "other", false),
        ] {
            let mut digest = ContentDigest::default();
            digest.add(stated.as_bytes());
            let (digest, signer) = (digest.finish(), Arc::new(DigestVerifier));
            let verdict = Check::Content { digest, signer }.run(&DataView::decode(packet).unwrap());
            assert_eq!(verdict == Verdict::Good, is_good, "{stated}");
        }
    }
}
