use alloc::string::ToString;

use super::*;
use crate::test_keys::{NOW_S, ToyKey, VALID};
use crate::{DigestSigner, sign_data};

fn name(uri: &str) -> Name {
    uri.parse().unwrap()
}

#[test]
fn names_are_split() {
    let certificate = name("/a/b/KEY/k/NA/v=3");
    let key = name("/a/b/KEY/k");
    assert!(is_certificate_name(certificate.as_view()) && !is_key_name(certificate.as_view()));
    assert!(is_key_name(key.as_view()) && !is_certificate_name(key.as_view()));
    for name in [&certificate, &key] {
        assert_eq!(key_name_of(name.as_view()), Some(key.as_view()));
        assert_eq!(identity_of(name.as_view()).unwrap().to_string(), "/a/b");
    }
    assert_eq!(identity_of(name("/KEY/k").as_view()).unwrap().component_count(), 0);
    for other in ["/", "/KEY", "/a/b", "/a/KEY", "/a/KEY/k/NA", "/a/32=KEY/k", "/a/KEY/k/a/v=1/x"] {
        assert_eq!(key_name_of(name(other).as_view()), None, "{other}");
    }
    assert_eq!(key_name(name("/a/b").as_view(), b"k"), key);
}

#[test]
fn issued_certificate_matches_draft() {
    let (issuer, key) = (ToyKey::new("/a", "issuer"), ToyKey::new("/a/b", "key"));
    let certificate = key.certified_by(&issuer, VALID);
    assert_eq!(certificate.name().to_string(), "/a/b/KEY/k/NA/v=7");
    assert_eq!(certificate.public_key(), b"key");
    assert_eq!(certificate.validity(), VALID);
    assert_eq!(certificate.issuer().value, b"NA");
    assert!(!certificate.is_self_issued());
    assert_eq!(certificate.data().freshness_ms, 3_600_000);
    assert_eq!(certificate.verify(&issuer), Ok(()));
    assert_eq!(certificate.verify(&key), Err(VerifyError::Mismatch));
    assert_eq!(Certificate::decode(certificate.wire()), Ok(certificate.clone()));
    let own = key.self_signed();
    assert!(own.is_self_issued());
    assert_eq!(own.verify(&key), Ok(()));
}

#[test]
fn validity_includes_its_ends() {
    let within = [NOW_S - 10, NOW_S, NOW_S + 10].map(|time| VALID.contains(time));
    assert_eq!(within, [true; 3]);
    assert!(!VALID.contains(NOW_S - 11) && !VALID.contains(NOW_S + 11));
}

#[test]
fn invalid_certificates_are_refused() {
    assert!(matches!(Certificate::decode(b"\x06\x00"), Err(CertificateError::NotData(_))));
    let data = |uri: &str, content_type, content: &[u8]| {
        let data = Data::new(name(uri)).content_type(content_type).content(content);
        Certificate::decode(&sign_data(&data, &DigestSigner).unwrap())
    };
    let uri = "/a/KEY/k/NA/v=1";
    assert_eq!(data("/a/b", 2, b"key"), Err(CertificateError::Name(name("/a/b"))));
    assert_eq!(data(uri, 0, b"key"), Err(CertificateError::ContentType(0)));
    assert_eq!(data(uri, 2, b""), Err(CertificateError::NoPublicKey));
    assert_eq!(data(uri, 2, b"key"), Err(CertificateError::NoValidity));
}

#[test]
fn invalid_drafts_are_refused() {
    let signer = ToyKey::new("/a", "key");
    let draft = |key_name, public_key| CertificateDraft {
        key_name,
        public_key,
        issuer: b"NA",
        version: 1,
        validity: VALID,
    };
    let (key, no_key) = (name("/a/KEY/k"), name("/a/b"));
    let refused = draft(no_key.as_view(), b"key").issue(&signer);
    assert!(matches!(refused, Err(IssueError::Draft(CertificateError::Name(_)))));
    let refused = draft(key.as_view(), &[1; 9000]).issue(&signer);
    assert!(matches!(refused, Err(IssueError::TooLarge(_))));
    let refused = draft(key.as_view(), b"key").issue(&ToyKey::new("/a", ""));
    assert_eq!(refused, Err(IssueError::Sign(SignError::Provider)));
}
