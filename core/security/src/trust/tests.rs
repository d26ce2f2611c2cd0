use alloc::string::ToString;
use alloc::vec;

use weir_wire::Data;

use super::*;
use crate::test_keys::{NOW_S, ToyFactory, ToyKey, VALID};
use crate::{DigestSigner, KeyLocator, SignError, SignatureType, Signer, sha256, sign_data};

fn name(uri: &str) -> Name {
    uri.parse().unwrap()
}

fn anchors(certificates: &[Certificate]) -> Anchors {
    let mut anchors = Anchors::default();
    for certificate in certificates {
        anchors.add(certificate.clone(), &ToyFactory).unwrap();
    }
    anchors
}

fn check(anchors: &Anchors, uri: &str, signer: &dyn Signer) -> Result<Name, TrustError> {
    let wire = sign_data(&Data::new(name(uri)).content(b"x"), signer).unwrap();
    let data = DataView::decode(&wire).unwrap();
    anchors.verify_data(&data, NOW_S).map(|certificate| certificate.name().to_name())
}

#[test]
fn anchor_signs_only_below_its_identity() {
    let key = ToyKey::new("/a", "key");
    let anchors = anchors(&[key.self_signed()]);
    assert_eq!(check(&anchors, "/a/b/c", &key), Ok(name("/a/KEY/k/self/v=7")));
    let refused = TrustError::NameNotCovered { signer: name("/a"), name: name("/ab") };
    assert_eq!(check(&anchors, "/ab", &key), Err(refused));
    let forger = ToyKey { secret: "other".into(), ..key };
    assert_eq!(check(&anchors, "/a/b", &forger), Err(VerifyError::Mismatch.into()));
}

#[test]
fn all_forms_of_locators_name_the_key() {
    let key = ToyKey::new("/a", "key");
    let anchors = anchors(&[key.self_signed()]);
    for uri in ["/a/KEY/k", "/a/KEY/k/self/v=7", "/a/KEY/k/other/v=9", "/a/KEY/k/self", "/a"] {
        let signer = ToyKey { locator: name(uri), ..key.clone() };
        assert!(check(&anchors, "/a/b", &signer).is_ok(), "{uri}");
    }
    let stranger = ToyKey { locator: name("/b/KEY/k"), ..key.clone() };
    let needed = TrustError::CertificateNeeded(name("/b/KEY/k"));
    assert_eq!(check(&anchors, "/a/b", &stranger), Err(needed));
    let nameless = ToyKey { locator: name("/b"), ..key };
    assert_eq!(check(&anchors, "/a/b", &nameless), Err(TrustError::UnknownSigner));
    assert_eq!(check(&anchors, "/a/b", &DigestSigner), Err(TrustError::NoKeyLocator));
}

/// Signs as [`ToyKey`] does, but names the key by its digest.
struct ByDigest(ToyKey);

impl Signer for ByDigest {
    fn signature_type(&self) -> SignatureType {
        SignatureType::SHA256_WITH_ECDSA
    }

    fn key_locator(&self) -> Option<KeyLocator> {
        Some(KeyLocator::Digest(sha256(&[self.0.secret.as_bytes()]).to_vec()))
    }

    fn sign(&self, portions: &[&[u8]]) -> Result<Vec<u8>, SignError> {
        self.0.sign(portions)
    }
}

#[test]
fn a_key_is_found_by_its_digest() {
    let key = ToyKey::new("/a", "key");
    let anchors = anchors(&[key.self_signed()]);
    assert!(check(&anchors, "/a/b", &ByDigest(key)).is_ok());
    let stranger = ByDigest(ToyKey::new("/a", "other"));
    assert_eq!(check(&anchors, "/a/b", &stranger), Err(TrustError::UnknownSigner));
}

#[test]
fn trust_ends_with_the_validity() {
    let key = ToyKey::new("/a", "key");
    let anchors = anchors(&[key.self_signed()]);
    let wire = sign_data(&Data::new(name("/a/b")), &key).unwrap();
    let data = DataView::decode(&wire).unwrap();
    let certificate = name("/a/KEY/k/self/v=7");
    let refusal = |now_s| anchors.verify_data(&data, now_s).err();
    assert_eq!(refusal(NOW_S - 311), Some(TrustError::NotYetValid(certificate.clone())));
    assert_eq!(refusal(NOW_S + 311), Some(TrustError::Expired(certificate)));
}

#[test]
fn certificates_are_accepted_up_the_chain() {
    let root = ToyKey::new("/a", "root");
    let middle = ToyKey::new("/a/b", "middle");
    let leaf = ToyKey::new("/a/b/c", "leaf");
    let mut anchors = anchors(&[root.self_signed()]);
    let leaf_certificate = leaf.certified_by(&middle, VALID);
    let needed = TrustError::CertificateNeeded(name("/a/b/KEY/k"));
    let early = anchors.accept(leaf_certificate.clone(), &ToyFactory, NOW_S);
    assert_eq!(early, Err(needed));
    anchors.accept(middle.certified_by(&root, VALID), &ToyFactory, NOW_S).unwrap();
    anchors.accept(leaf_certificate, &ToyFactory, NOW_S).unwrap();
    assert!(check(&anchors, "/a/b/c/d", &leaf).is_ok());
    assert!(matches!(check(&anchors, "/a/b", &leaf), Err(TrustError::NameNotCovered { .. })));
}

#[test]
fn uncertified_certificates_are_refused() {
    let root = ToyKey::new("/a", "root");
    let mut anchors = anchors(&[root.self_signed()]);
    let mut refusal = |certificate| anchors.accept(certificate, &ToyFactory, NOW_S).unwrap_err();
    let outside = ToyKey::new("/b", "key").certified_by(&root, VALID);
    assert!(matches!(refusal(outside), TrustError::NameNotCovered { .. }));
    let expired = crate::Validity { not_before_unix_s: 0, not_after_unix_s: NOW_S - 301 };
    let expired = ToyKey::new("/a/b", "key").certified_by(&root, expired);
    assert!(matches!(refusal(expired), TrustError::Expired(_)));
    let forger = ToyKey { secret: "forged".into(), ..root.clone() };
    let forged = ToyKey::new("/a/b", "key").certified_by(&forger, VALID);
    assert_eq!(refusal(forged), VerifyError::Mismatch.into());
    let unusable = ToyKey::new("/a/b", "unusable").certified_by(&root, VALID);
    assert!(matches!(refusal(unusable), TrustError::UnusableKey(_)));
    let own = ToyKey::new("/a/b", "key").self_signed();
    assert_eq!(refusal(own), TrustError::CertificateNeeded(name("/a/b/KEY/k")));
}

#[test]
fn chains_and_intermediates_have_bounds() {
    let root = ToyKey::new("/a", "root");
    let mut anchors = anchors(&[root.self_signed()]);
    let mut issuer = root;
    for link in 1..=CHAIN_LENGTH_MAX + 1 {
        let mut identity = identity_uri(&issuer);
        identity.append_str("x");
        let next = ToyKey::new(&alloc::format!("{identity}"), &alloc::format!("key {link}"));
        let accepted = anchors.accept(next.certified_by(&issuer, VALID), &ToyFactory, NOW_S);
        let expected = if link > CHAIN_LENGTH_MAX { Err(TrustError::ChainTooLong) } else { Ok(()) };
        assert_eq!(accepted, expected, "{link}");
        issuer = next;
    }
    let root = ToyKey::new("/a", "root");
    for number in 0..INTERMEDIATES_MAX + 5 {
        let key = ToyKey::new(&alloc::format!("/a/{number}"), "key");
        anchors.accept(key.certified_by(&root, VALID), &ToyFactory, NOW_S).unwrap();
    }
    assert_eq!(anchors.intermediates.len(), INTERMEDIATES_MAX);
}

fn identity_uri(key: &ToyKey) -> Name {
    crate::identity_of(key.locator.as_view()).unwrap().to_name()
}

#[test]
fn first_use_is_remembered_and_changes_detected() {
    let mut known = KnownSigners::default();
    let object = name("/a/file");
    assert_eq!(known.decide(object.as_view(), &[1; 32]), SignerStatus::FirstUse);
    assert_eq!(known.remember(object.clone(), [1; 32]), None);
    assert_eq!(known.decide(object.as_view(), &[1; 32]), SignerStatus::Trusted);
    let changed = SignerStatus::Changed { known: [1; 32] };
    assert_eq!(known.decide(object.as_view(), &[2; 32]), changed);
    assert_eq!(known.decide(name("/a/file/v=1/seg=0").as_view(), &[2; 32]), changed);
    assert_eq!(known.decide(name("/a").as_view(), &[2; 32]), SignerStatus::FirstUse);
    assert_eq!(known.decide(name("/a/file2").as_view(), &[2; 32]), SignerStatus::FirstUse);
}

#[test]
fn the_longest_known_prefix_decides() {
    let mut known = KnownSigners::default();
    known.remember(name("/a"), [1; 32]);
    known.remember(name("/a/b"), [2; 32]);
    assert_eq!(known.decide(name("/a/b/c").as_view(), &[2; 32]), SignerStatus::Trusted);
    assert_eq!(known.decide(name("/a/c").as_view(), &[1; 32]), SignerStatus::Trusted);
    let listed: Vec<_> = known.iter().map(|(prefix, _)| prefix.clone()).collect();
    assert_eq!((listed, known.len()), (vec![name("/a"), name("/a/b")], 2));
}

fn policy(anchors: Anchors, needs_anchor: bool) -> TrustPolicy {
    TrustPolicy::new(anchors, needs_anchor, KnownSigners::default(), None, &ToyFactory)
}

/// Decides about `data`. Packets to fetch come from `served`, in this order. Returns the number of
/// fetches and the decision. All fetches but the first must be fresh.
fn decide(
    policy: &mut TrustPolicy,
    wire: &[u8],
    served: &[&Certificate],
) -> (usize, TrustDecision) {
    let data = DataView::decode(wire).unwrap();
    let mut served = served.iter();
    let mut count = 0;
    loop {
        match policy.decide(&data, NOW_S) {
            TrustDecision::Fetch { wanted, must_be_fresh } => {
                assert_eq!(must_be_fresh, count > 0);
                count += 1;
                policy.on_fetched(wanted, served.next().map(|certificate| certificate.wire()));
            }
            decision => return (count, decision),
        }
    }
}

/// Anyone can create a certificate with this name and a key of their own.
#[test]
fn forged_certificate_does_not_replace_signers() {
    let owner = ToyKey::new("/owner", "key");
    let forged = ToyKey { secret: "forger".into(), ..owner.clone() }.self_signed();
    let damaged = {
        let mut wire = owner.self_signed().wire().to_vec();
        *wire.last_mut().unwrap() ^= 1;
        Certificate::decode(&wire).unwrap()
    };
    let wire = sign_data(&Data::new(name("/a/f")), &owner).unwrap();
    for bad in [&forged, &damaged] {
        let mut policy = policy(Anchors::default(), false);
        let (count, decision) = decide(&mut policy, &wire, &[bad, &owner.self_signed()]);
        let TrustDecision::Accept(verifier) = decision else {
            panic!("the right certificate was served")
        };
        assert_eq!(count, 2);
        crate::verify_data(&DataView::decode(&wire).unwrap(), &*verifier).unwrap();
        let digest = owner.self_signed().public_key_digest();
        assert_eq!(policy.signers[0].key_digest, Some(digest), "no other signer is remembered");
    }
    let (count, decision) =
        decide(&mut policy(Anchors::default(), false), &wire, &[&damaged, &damaged, &damaged]);
    assert!(matches!(decision, TrustDecision::Refuse(_)));
    assert_eq!(count, 3, "it is fetched a limited number of times");
}

/// A packet that names a wrong signer does not affect the signer's certificate.
#[test]
fn forged_packet_does_not_reject_certificate() {
    let owner = ToyKey::new("/owner", "key");
    let forger = ToyKey { secret: "forger".into(), ..owner.clone() };
    let mut policy = policy(Anchors::default(), false);
    let certificate = owner.self_signed();
    let forged = sign_data(&Data::new(name("/a/f")), &forger).unwrap();
    let (_, decision) = decide(&mut policy, &forged, &[&certificate; 9]);
    let TrustDecision::Accept(verifier) = decision else { panic!("the certificate is there") };
    assert!(crate::verify_data(&DataView::decode(&forged).unwrap(), &*verifier).is_err());
    let right = sign_data(&Data::new(name("/a/f")), &owner).unwrap();
    assert!(matches!(decide(&mut policy, &right, &[]), (0, TrustDecision::Accept(_))));
}

#[test]
fn uncertified_certificate_is_fetched_again() {
    let root = ToyKey::new("/a", "root");
    let leaf = ToyKey::new("/a/b", "leaf");
    let forger = ToyKey { secret: "forger".into(), ..root.clone() };
    let forged = ToyKey { secret: "other".into(), ..leaf.clone() }.certified_by(&forger, VALID);
    let wire = sign_data(&Data::new(name("/a/b/f")), &leaf).unwrap();
    let mut trust = policy(anchors(&[root.self_signed()]), true);
    let right = leaf.certified_by(&root, VALID);
    let (count, decision) = decide(&mut trust, &wire, &[&forged, &right]);
    assert!(matches!(decision, TrustDecision::Accept(_)));
    assert_eq!((count, trust.signers[0].basis), (2, TrustBasis::Anchor));
    let mut trust = policy(anchors(&[root.self_signed()]), true);
    let (count, decision) = decide(&mut trust, &wire, &[&forged; 9]);
    assert!(matches!(decision, TrustDecision::Refuse(_)));
    assert_eq!(count, 3, "it is fetched a limited number of times");
}

/// A trust anchor outside of its identity is a signer like any other, and its certificate is known.
#[test]
fn anchor_certificate_is_not_fetched() {
    let owner = ToyKey::new("/owner", "key");
    let wire = sign_data(&Data::new(name("/elsewhere/f")), &owner).unwrap();
    let mut trust = policy(anchors(&[owner.self_signed()]), false);
    let (count, decision) = decide(&mut trust, &wire, &[]);
    assert!(matches!(decision, TrustDecision::Accept(_)));
    assert_eq!((count, trust.signers[0].basis), (0, TrustBasis::FirstUse));
    // The anchors that a user names for a download decide alone.
    let mut trust = policy(anchors(&[owner.self_signed()]), true);
    assert!(matches!(decide(&mut trust, &wire, &[]), (0, TrustDecision::Refuse(_))));
}

#[test]
fn accepts_unverified_signer_if_allowed() {
    let owner = ToyKey::new("/owner", "key");
    let wire = sign_data(&Data::new(name("/a/f")), &owner).unwrap();
    let mut trust = policy(Anchors::default(), false);
    let (_, decision) = decide(&mut trust, &wire, &[]);
    let TrustDecision::Refuse(refusal) = decision else { panic!("there is no certificate") };
    assert_eq!(refusal.advice, Some(Advice::ImportCertificate));

    let mut trust = policy(Anchors::default(), false);
    trust.accept_unverified();
    let (count, decision) = decide(&mut trust, &wire, &[]);
    let TrustDecision::Accept(verifier) = decision else { panic!("the user accepts it") };
    assert_eq!(count, 1, "the certificate might be there");
    assert!(verifier.accepts_any());
    crate::verify_data(&DataView::decode(&wire).unwrap(), &*verifier).unwrap();
    let signer = &trust.signers[0];
    assert_eq!(signer.basis, TrustBasis::Unverified);
    assert_eq!(signer.to_string(), "/owner/KEY/k (not verified)");
    let unsigned = Data::new(name("/a/g")).encode_with_digest();
    assert!(matches!(decide(&mut trust, &unsigned, &[]), (0, TrustDecision::Accept(_))));

    // A signature that can be verified still must be right.
    let mut trust = policy(Anchors::default(), false);
    trust.accept_unverified();
    let forger = ToyKey { secret: "forger".into(), ..owner.clone() };
    let forged = sign_data(&Data::new(name("/a/f")), &forger).unwrap();
    let (_, decision) = decide(&mut trust, &forged, &[&owner.self_signed(); 9]);
    let TrustDecision::Accept(verifier) = decision else { panic!("the certificate is there") };
    assert!(crate::verify_data(&DataView::decode(&forged).unwrap(), &*verifier).is_err());
    let (_, decision) = decide(&mut trust, &wire, &[]);
    let TrustDecision::Accept(verifier) = decision else { panic!("the certificate is there") };
    assert!(!verifier.accepts_any() && trust.signers[0].basis.is_verified());
}

/// A known signer, an anchor or a verified packet outweighs packets that anyone may have made.
#[test]
fn unverified_packets_contradict_no_known_signer() {
    let (owner, forger) = (ToyKey::new("/a", "key"), ToyKey::new("/b", "forger"));
    let wire = sign_data(&Data::new(name("/a/f")), &forger).unwrap();
    let mut known = KnownSigners::default();
    known.remember(name("/a"), [1; 32]);
    let with_known = TrustPolicy::new(Anchors::default(), false, known, None, &ToyFactory);
    let with_anchor = policy(anchors(&[owner.self_signed()]), false);
    let mut with_verified = policy(Anchors::default(), false);
    let verified = sign_data(&Data::new(name("/a/g")), &owner).unwrap();
    let (_, decision) = decide(&mut with_verified, &verified, &[&owner.self_signed()]);
    assert!(matches!(decision, TrustDecision::Accept(_)));
    for mut trust in [with_known, with_anchor, with_verified] {
        trust.accept_unverified();
        let (_, decision) = decide(&mut trust, &wire, &[]);
        let TrustDecision::Refuse(refusal) = decision else { panic!("it may be forged") };
        assert_eq!(refusal.advice, Some(Advice::AskProducer), "{refusal:?}");
    }
}

/// Forged packets may claim any number of signers.
#[test]
fn lists_few_unverified_signers() {
    let mut trust = policy(Anchors::default(), false);
    trust.accept_unverified();
    for number in 0..100 {
        let key = ToyKey::new(&alloc::format!("/owner/{number}"), "key");
        let wire = sign_data(&Data::new(name("/a/f")), &key).unwrap();
        assert!(matches!(decide(&mut trust, &wire, &[]).1, TrustDecision::Accept(_)));
    }
    assert_eq!(trust.signers.len(), 8);
}
