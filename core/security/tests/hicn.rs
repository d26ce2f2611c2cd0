//! Signatures of packets that public hICN programs sent (`core/hicn/tests/vectors/hicn.jsonl`).

use weir_hicn::{HicnView, Hop, from_tlv, to_tlv};
use weir_security::{SignatureType, Verifier, VerifyError, sha256, verify_data};
use weir_wire::{DataView, SignatureInfo, signature_type};

/// HMAC-SHA256 (RFC 2104) with a short key, as hICN's programs permit.
struct ShortHmac(&'static [u8]);

impl Verifier for ShortHmac {
    fn signature_type(&self) -> SignatureType {
        SignatureType::HMAC_SHA256
    }

    fn verify(&self, portions: &[&[u8]], signature: &[u8]) -> Result<(), VerifyError> {
        let pad = |octet: u8| {
            let mut block = [octet; 64];
            block.iter_mut().zip(self.0).for_each(|(pad, key)| *pad ^= key);
            block
        };
        let inner_pad = pad(0x36);
        let inner = sha256(&[&[&inner_pad[..]], portions].concat());
        let tag = sha256(&[&pad(0x5C), &inner]);
        if tag == *signature { Ok(()) } else { Err(VerifyError::Mismatch) }
    }
}

const KEY: ShortHmac = ShortHmac(b"secret");

fn signed_packets() -> Vec<Vec<u8>> {
    let lines = include_str!("../../hicn/tests/vectors/hicn.jsonl").lines();
    let records = lines.map(|line| serde_json::from_str(line).unwrap());
    records
        .filter(|record: &serde_json::Value| record.get("signature").is_some())
        .map(|record| hex::decode(record["hex"].as_str().unwrap()).unwrap())
        .collect()
}

fn to_data(packet: &[u8]) -> Vec<u8> {
    let mut tlv = Vec::new();
    let range = to_tlv(&HicnView::decode(packet).unwrap(), 0, &mut tlv).unwrap();
    tlv[range].to_vec()
}

fn verify(data: &[u8]) -> Result<(), VerifyError> {
    verify_data(&DataView::decode(data).unwrap(), &KEY)
}

#[test]
fn signature_verifies_on_both_sides_of_a_border() {
    let packets = signed_packets();
    assert_eq!(packets.len(), 4);
    for packet in packets {
        let data = to_data(&packet);
        assert_eq!(verify(&data), Ok(()));
        // Behind two routers, whose faces change locator, label, hop limit and congestion mark.
        let hop = Hop { locator: "2001:db8::9".parse().unwrap(), face: 77, is_marked: true };
        let mut sent = Vec::new();
        from_tlv(&data, &hop, &mut sent).unwrap();
        assert_eq!(verify(&to_data(&sent)), Ok(()));
        let other = ShortHmac(b"other");
        let view = DataView::decode(&data).unwrap();
        assert_eq!(verify_data(&view, &other), Err(VerifyError::Mismatch));
    }
}

#[test]
fn signature_covers_name_time_key_and_payload() {
    for packet in signed_packets() {
        let covered = |at: usize| {
            matches!(at, 8..=23 | 44..=47 | 60..=62 | 64..=103) || (104..packet.len()).contains(&at)
        };
        for at in 0..packet.len() {
            let mut changed = packet.clone();
            changed[at] ^= 1;
            let Ok(view) = HicnView::decode(&changed) else { continue };
            if !view.header.is_data() || view.ah.is_none() {
                continue;
            }
            let is_good = verify(&to_data(&changed)).is_ok();
            // The padding is not signed, but it cuts the signature.
            assert_eq!(is_good, !covered(at) && at != 63, "octet {at}");
        }
    }
}

#[test]
fn other_signatures_are_refused() {
    let packet = &signed_packets()[0];
    let with_algorithm = |algorithm: u8| {
        let mut changed = packet.clone();
        changed[62] = algorithm;
        verify(&to_data(&changed))
    };
    let expected = SignatureType::HMAC_SHA256;
    let found = SignatureType::ED25519;
    assert_eq!(with_algorithm(9), Err(VerifyError::TypeMismatch { expected, found }));
    let found = SignatureType::HICN;
    assert_eq!(with_algorithm(3), Err(VerifyError::TypeMismatch { expected, found }));
    // Without an authentication header, and with a SignatureInfo that no hICN packet has.
    let data = to_data(packet);
    let data = DataView::decode(&data).unwrap().to_data();
    let sign = |info: &SignatureInfo, value: &[u8]| data.encode_signed(info, |_| value.to_vec());
    let info = SignatureInfo::new(signature_type::HICN);
    assert_eq!(verify(&sign(&info, b"")), Err(VerifyError::Unsigned));
    assert_eq!(verify(&sign(&info, &[0; 32])), Err(VerifyError::Mismatch));
}
