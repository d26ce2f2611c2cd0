//! Signatures of packets that public hICN programs sent (`core/hicn/tests/vectors/hicn.jsonl`).

use weir_hicn::{HicnView, Hop, from_tlv, to_tlv};
use weir_security::{
    DigestSigner, KeyLocator, NullSigner, SignError, SignatureFormat, SignatureType, Signer,
    Verifier, VerifyError, sha256, sign_data_as, verify_data,
};
use weir_wire::{Component, Data, DataView, SignatureInfo, signature_type};

/// HMAC-SHA256 (RFC 2104) with a short key, as hICN's programs permit.
struct ShortHmac(&'static [u8]);

impl ShortHmac {
    fn tag(&self, portions: &[&[u8]]) -> [u8; 32] {
        let pad = |octet: u8| {
            let mut block = [octet; 64];
            block.iter_mut().zip(self.0).for_each(|(pad, key)| *pad ^= key);
            block
        };
        let inner_pad = pad(0x36);
        let inner = sha256(&[&[&inner_pad[..]], portions].concat());
        sha256(&[&pad(0x5C), &inner])
    }
}

impl Verifier for ShortHmac {
    fn signature_type(&self) -> SignatureType {
        SignatureType::HMAC_SHA256
    }

    fn verify(&self, portions: &[&[u8]], signature: &[u8]) -> Result<(), VerifyError> {
        if self.tag(portions) == *signature { Ok(()) } else { Err(VerifyError::Mismatch) }
    }
}

impl Signer for ShortHmac {
    fn signature_type(&self) -> SignatureType {
        SignatureType::HMAC_SHA256
    }

    fn key_locator(&self) -> Option<KeyLocator> {
        None
    }

    fn sign(&self, portions: &[&[u8]]) -> Result<Vec<u8>, SignError> {
        Ok(self.tag(portions).to_vec())
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
    to_tlv(&HicnView::decode(packet).unwrap(), 0).unwrap()
}

fn verify(data: &[u8]) -> Result<(), VerifyError> {
    verify_data(&DataView::decode(data).unwrap(), &KEY)
}

#[test]
fn signature_verifies_on_both_sides_of_a_border() {
    let packets = signed_packets();
    assert_eq!(packets.len(), 4);
    for packet in packets {
        // hICN's library does not say which passphrase it used.
        let ah = HicnView::decode(&packet).unwrap().ah.unwrap();
        assert_eq!(*ah.key_id, sha256(&[&[0; 8]]));
        let data = to_data(&packet);
        assert_eq!(verify(&data), Ok(()));
        // Behind two routers, whose faces change locator, label, hop limit and congestion mark.
        let hop = Hop { locator: "2001:db8::9".parse().unwrap(), face: 77, is_marked: true };
        let sent = from_tlv(&data, &hop).unwrap();
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
    let error = with_algorithm(3).unwrap_err().to_string();
    assert!(error.contains("an unknown algorithm of hICN"), "{error}");
    // Without an authentication header, and with a SignatureInfo that no hICN packet has.
    let data = to_data(packet);
    let data = DataView::decode(&data).unwrap().to_data();
    let sign = |info: &SignatureInfo, value: &[u8]| data.encode_signed(info, |_| value.to_vec());
    let info = SignatureInfo::new(signature_type::HICN);
    assert_eq!(verify(&sign(&info, b"")), Err(VerifyError::Unsigned));
    assert_eq!(verify(&sign(&info, &[0; 32])), Err(VerifyError::Mismatch));
}

/// Signs what hICN's programs signed, and gets their packets.
#[test]
fn signs_as_public_programs_do() {
    let mut seen = 0;
    for packet in signed_packets() {
        let tlv = to_data(&packet);
        let view = DataView::decode(&tlv).unwrap();
        let (data, time_ms) = (view.to_data(), view.signature_info().time_ms.unwrap());
        let signed = sign_data_as(SignatureFormat::Hicn, &data, &KEY, time_ms);
        if data.content_type != 0 {
            assert_eq!(signed, Err(SignError::NoHicnForm));
            continue;
        }
        let hop = Hop { locator: view_locator(&packet), face: 0, is_marked: false };
        let sent = from_tlv(&signed.unwrap(), &hop).unwrap();
        // Hop limit, path label and checksum differ: the packets are from different routers.
        let rest = |octets: &[u8]| [&octets[..7], &octets[8..51], &octets[52..56]].concat();
        assert_eq!((rest(&sent), &sent[58..]), (rest(&packet), &packet[58..]));
        seen += 1;
    }
    assert_eq!(seen, 3);
}

fn view_locator(packet: &[u8]) -> std::net::Ipv6Addr {
    HicnView::decode(packet).unwrap().header.locator
}

/// A key whose signatures are shorter than the longest ones, as those of ECDSA.
struct Short(usize);

impl Signer for Short {
    fn signature_type(&self) -> SignatureType {
        SignatureType::SHA256_WITH_ECDSA
    }

    fn key_locator(&self) -> Option<KeyLocator> {
        None
    }

    fn sign(&self, portions: &[&[u8]]) -> Result<Vec<u8>, SignError> {
        Ok(KEY.tag(portions).into_iter().cycle().take(self.0).collect())
    }
}

impl Verifier for Short {
    fn signature_type(&self) -> SignatureType {
        SignatureType::SHA256_WITH_ECDSA
    }

    fn verify(&self, portions: &[&[u8]], signature: &[u8]) -> Result<(), VerifyError> {
        if self.sign(portions).unwrap() == signature { Ok(()) } else { Err(VerifyError::Mismatch) }
    }
}

#[test]
fn short_signatures_are_padded() {
    let name = DataView::decode(&to_data(&signed_packets()[0])).unwrap().name.to_name();
    let last = Component::from(name.as_view().last().unwrap());
    for (size, final_block_id) in [(70, last.clone()), (71, Component::segment(999)), (72, last)] {
        let is_own = size != 71;
        let data = Data::new(name.clone()).content("text").freshness_ms(1000);
        let data = data.final_block_id(final_block_id);
        let key = Short(size);
        let packet = sign_data_as(SignatureFormat::Hicn, &data, &key, 5).unwrap();
        let hop = Hop { locator: "2001:db8::9".parse().unwrap(), face: 3, is_marked: false };
        let sent = from_tlv(&packet, &hop).unwrap();
        let again = to_data(&sent);
        let view = DataView::decode(&again).unwrap();
        assert_eq!(verify_data(&view, &key), Ok(()));
        assert_eq!(view.signature_value().len(), 72);
        assert_eq!(view.final_block_id().is_some(), is_own);
        // The path label of the hop is the only difference.
        let body = |packet: &[u8]| packet[packet.len().min(4)..].to_vec();
        assert_eq!(body(&again)[..body(&packet).len()], body(&packet));
    }
    let data = Data::new(name).content("text");
    let sign = |data: &Data, key: &dyn Signer| sign_data_as(SignatureFormat::Hicn, data, key, 5);
    assert_eq!(sign(&data, &Short(73)), Err(SignError::Provider));
    for (key, found) in [
        (&DigestSigner as &dyn Signer, DigestSigner.signature_type()),
        (&NullSigner, SignatureType::NULL),
    ] {
        assert_eq!(sign(&data, key), Err(SignError::NoHicnSignature(found)));
    }
    let other = Data::new("/a".parse().unwrap());
    assert_eq!(sign(&other, &KEY), Err(SignError::NoHicnForm));
    assert!(sign_data_as(SignatureFormat::Ndn, &other, &DigestSigner, 5).is_ok());
}
