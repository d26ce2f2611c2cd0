//! Verification of one packet: by its signature, its digest or its Content.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use weir_hicn::NativeData;
use weir_security::{SignatureType, Verifier, sha256, sha256_each, verify_data};
use weir_wire::DataView;

use crate::metadata::ContentDigest;

/// The consumer's number of a pending verification.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VerifyId(pub u32);

/// The consumer's number of a signer.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyId(pub u32);

/// What a packet is verified against.
#[derive(Clone)]
pub enum Check {
    /// The implicit digest that the manifest lists. A producer that signs the same version again
    /// makes other packets, and caches hold a mixture. So a packet with a good signature of the
    /// manifest's signer also passes.
    Digest {
        digest: [u8; 32],
        signer: Option<Arc<dyn Verifier>>,
    },
    /// The digest of an hICN packet without signature, which a manifest of its stream lists.
    HicnDigest([u8; 32]),
    /// The Content of a sole segment, whose digest verified metadata states.
    Content {
        /// The object's [`ContentDigest`].
        digest: [u8; 32],
        /// A packet with this signer's signature also passes.
        signer: Arc<dyn Verifier>,
    },
    Signature(Arc<dyn Verifier>),
    /// What the driver knows about the packet.
    ByDriver,
}

impl Check {
    /// Verifies `data`. A check [by the driver](Self::ByDriver) passes.
    pub fn run(&self, data: &DataView<'_>) -> Verdict {
        self.run_with(data, || sha256(&[data.wire]))
    }

    /// Verifies each packet by its own check. Computes implicit digests in parallel lanes, which is
    /// faster from about eight packets on, and verifies signatures of one key together.
    pub fn run_all(packets: &[(&Self, DataView<'_>)]) -> Vec<Verdict> {
        let mut are_signed = verify_same_key(packets).into_iter().peekable();
        let by_digest = packets.iter().filter(|(check, _)| matches!(check, Self::Digest { .. }));
        let wires: Vec<&[u8]> = by_digest.map(|(_, data)| data.wire).collect();
        let mut digests = sha256_each(&wires).into_iter();
        let mut digest = || digests.next().expect("one digest per packet");
        let verdict = |(at, (check, data)): (usize, &(&Self, DataView<'_>))| match are_signed
            .next_if(|&(signed_at, _)| signed_at == at)
        {
            Some((_, true)) => Verdict::Good,
            _ => check.run_with(data, &mut digest),
        };
        packets.iter().enumerate().map(verdict).collect()
    }

    fn run_with(&self, data: &DataView<'_>, implicit: impl FnOnce() -> [u8; 32]) -> Verdict {
        let reason = match self {
            Self::Digest { digest, signer } => {
                let is_signed = |signer: &Arc<dyn Verifier>| {
                    !signer.accepts_any() && verify_data(data, &**signer).is_ok()
                };
                if implicit() == *digest || signer.as_ref().is_some_and(is_signed) {
                    return Verdict::Good;
                }
                String::from("its digest differs from the one in the manifest")
            }
            Self::HicnDigest(digest) => {
                // No digest covers the flag that says where the payload begins. With it, an
                // authentication header could take the first octets of the payload. Packets that a
                // manifest lists have none.
                let native = NativeData::of(data).filter(|native| native.ah.is_none());
                let octets = native.map(|native| native.stable_octets());
                if octets.is_some_and(|octets| sha256(&octets.portions()) == *digest) {
                    return Verdict::Good;
                }
                String::from("its digest differs from the one in the manifest")
            }
            Self::Content { digest, .. } if has_content(data, digest) => return Verdict::Good,
            Self::Content { signer, .. } if signer.accepts_any() => {
                String::from("its Content differs from the digest in the metadata")
            }
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

/// For the packets whose check is a signature of the first such packet's key: their positions, and
/// whether each is good.
fn verify_same_key(packets: &[(&Check, DataView<'_>)]) -> Vec<(usize, bool)> {
    let mut keys = packets.iter().filter_map(|(check, _)| match check {
        Check::Signature(verifier) => Some(verifier),
        _ => None,
    });
    let Some(key) = keys.next() else { return Vec::new() };
    let is_its = |(check, data): &(&Check, DataView<'_>)| {
        matches!(check, Check::Signature(verifier) if Arc::ptr_eq(verifier, key))
            && SignatureType(data.signature_info().signature_type) == key.signature_type()
    };
    let places: Vec<usize> = (0..packets.len()).filter(|&at| is_its(&packets[at])).collect();
    let signed: Vec<(&[u8], &[u8])> = places
        .iter()
        .map(|&at| (packets[at].1.signed_portion(), packets[at].1.signature_value()))
        .collect();
    places.into_iter().zip(key.verify_each(&signed)).collect()
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
            Self::HicnDigest(_) => "HicnDigest",
            Self::Content { .. } => "Content",
            Self::Signature(_) => "Signature",
            Self::ByDriver => "ByDriver",
        })
    }
}

/// The result of a verification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The producer signed the packet.
    Good,
    /// It was damaged or forged.
    Bad {
        /// What is wrong.
        reason: String,
        /// The implicit digest of the right packet, if the driver knows it. A request by this
        /// digest bypasses bad copies in routers.
        digest: Option<[u8; 32]>,
    },
}

#[cfg(test)]
mod tests {
    use alloc::sync::Arc;
    use alloc::vec::Vec;

    use weir_hicn::{Flags, Header, HicnName, HicnView, NativeData, to_tlv};
    use weir_security::{DigestVerifier, SignatureType, Verifier, VerifyError, sha256};
    use weir_wire::{Data, DataView};

    use super::{Check, Verdict};
    use crate::metadata::ContentDigest;

    #[test]
    fn run_all_agrees_with_run() {
        let mut packets: Vec<Vec<u8>> = (0..40_u8)
            .map(|at| Data::new("/a".parse().unwrap()).content([at]).encode_with_digest())
            .collect();
        // A packet whose signature counts. The other packets with that key are good.
        *packets[5].last_mut().unwrap() ^= 1;
        let key: Arc<dyn Verifier> = Arc::new(DigestVerifier);
        let check = |(at, packet): (usize, &Vec<u8>)| match at % 4 {
            0 => Check::ByDriver,
            1 if at < 20 => Check::Signature(key.clone()),
            1 => Check::Signature(Arc::new(DigestVerifier)),
            2 => Check::Digest { digest: sha256(&[packet]), signer: None },
            _ => Check::Digest { digest: [0; 32], signer: None },
        };
        let checks: Vec<Check> = packets.iter().enumerate().map(check).collect();
        let packets = packets.iter().map(|packet| DataView::decode(packet).unwrap());
        let packets: Vec<_> = checks.iter().zip(packets).collect();
        let each: Vec<Verdict> = packets.iter().map(|(check, data)| check.run(data)).collect();
        assert_eq!(Check::run_all(&packets), each);
        assert_eq!(each.iter().filter(|verdict| **verdict == Verdict::Good).count(), 29);
    }

    /// The flag of an authentication header is not in the digest, and zeros are such a header.
    #[test]
    fn listed_hicn_packet_keeps_its_whole_payload() {
        let header = Header {
            name: HicnName { address: "2001:db8::1".parse().unwrap(), suffix: 1 },
            locator: "2001:db8:99::1".parse().unwrap(),
            flags: Flags::DATA,
            hop_limit: 64,
            is_marked: false,
            path_label: 0,
            lifetime_ms: 1000,
        };
        let payload = [0; 100];
        let mut packet = header.encode(&[&[], &payload]).unwrap().to_vec();
        packet.extend(payload);
        let tlv_of = |packet: &[u8]| to_tlv(&HicnView::decode(packet).unwrap(), 0).unwrap();
        let digest_of = |tlv: &[u8]| {
            let data = DataView::decode(tlv).unwrap();
            sha256(&NativeData::of(&data).unwrap().stable_octets().portions())
        };
        let whole = tlv_of(&packet);
        let check = Check::HicnDigest(digest_of(&whole));
        assert_eq!(check.run(&DataView::decode(&whole).unwrap()), Verdict::Good);
        // The flags of TCP.
        packet[53] |= Flags::AH.octet();
        let cut = tlv_of(&packet);
        let data = DataView::decode(&cut).unwrap();
        assert!(data.content.len() < payload.len() && digest_of(&cut) == digest_of(&whole));
        assert_ne!(check.run(&data), Verdict::Good);
    }

    /// Accepts every signature, as for a user who accepts unverified packets.
    struct AnySignature;

    impl Verifier for AnySignature {
        fn signature_type(&self) -> SignatureType {
            SignatureType::DIGEST_SHA256
        }

        fn accepts_any(&self) -> bool {
            true
        }

        fn verify(&self, _: &[&[u8]], _: &[u8]) -> Result<(), VerifyError> {
            Ok(())
        }
    }

    #[test]
    fn digests_decide_without_verified_signer() {
        let packet = Data::new("/a/54=%01/50=%00".parse().unwrap()).content("text");
        let packet = packet.encode_with_digest();
        let data = DataView::decode(&packet).unwrap();
        let signer: Arc<dyn Verifier> = Arc::new(AnySignature);
        assert_eq!(Check::Signature(signer.clone()).run(&data), Verdict::Good);
        let listed = |digest| Check::Digest { digest, signer: Some(signer.clone()) }.run(&data);
        assert_eq!(listed(sha256(&[&packet])), Verdict::Good);
        assert_ne!(listed([0; 32]), Verdict::Good);
        let stated = |text: &str| {
            let mut digest = ContentDigest::default();
            digest.add(text.as_bytes());
            Check::Content { digest: digest.finish(), signer: signer.clone() }.run(&data)
        };
        assert_eq!(stated("text"), Verdict::Good);
        assert_ne!(stated("other"), Verdict::Good);
    }

    #[test]
    fn sole_segment_passes_by_content_or_signature() {
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
