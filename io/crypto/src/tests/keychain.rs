//! The key chain, in temporary directories.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use crate::keychain::{ISSUED_VALIDITY_S, default_identity, unix_time_s};
use crate::safe_bag::decode_safe_bag;
use crate::{
    Imported, KeyChain, KeyChainError, KeyError, KeyType, PassphraseError, PassphraseSource,
    packet_in_file, to_base64_lines, verifier_from_certificate,
};
use tempfile::TempDir;
use weir_security::trust::{SignerStatus, TrustError};
use weir_security::{Certificate, Signer, VerifyError, sign_data, verify_data};
use weir_wire::{Data, DataView, Name};
use zeroize::Zeroizing;

const SAFE_BAG: &str = include_str!("vectors/openssl-safe-bag.base64");
const NDND: &str = include_str!("vectors/ndnd.pem");
const NDNTS_CERTIFICATE: &str = include_str!("vectors/ndnts-certificate.hex");

fn name(uri: &str) -> Name {
    uri.parse().unwrap()
}

fn fixed(passphrase: &str) -> PassphraseSource {
    PassphraseSource::Fixed(Zeroizing::new(passphrase.to_owned()))
}

fn chain() -> (TempDir, KeyChain) {
    let dir = TempDir::new().unwrap();
    let chain = KeyChain::at(dir.path().join("weir"));
    (dir, chain)
}

#[test]
fn creates_first_signer_once() {
    let (_dir, chain) = chain();
    let signer = chain.default_signer_or_create().unwrap();
    assert_eq!(signer.key().key_type(), KeyType::Ecdsa);
    let certificate = signer.certificate().unwrap();
    assert_eq!(certificate.identity(), default_identity().as_view());
    assert!(certificate.validity().contains(unix_time_s()));
    let wire = sign_data(&Data::new(name("/x")).content(b"x"), &signer).unwrap();
    let verifier = verifier_from_certificate(certificate).unwrap();
    assert_eq!(verify_data(&DataView::decode(&wire).unwrap(), &*verifier), Ok(()));
    assert_eq!(certificate.verify(&*verifier), Ok(()));

    let again = chain.default_signer_or_create().unwrap();
    assert_eq!(again.locator_name(), signer.locator_name());
    assert_eq!(chain.keys().unwrap().len(), 1);
}

#[test]
fn renewed_key_uses_new_certificate() {
    let (_dir, chain) = chain();
    let first = chain.default_signer_or_create().unwrap();
    let first = first.certificate().unwrap();
    let not_before = first.validity().not_before_unix_s;
    assert!(not_before <= unix_time_s() - 86_400, "clocks of others may be behind");
    let name = first.key_name().to_name();
    let renewed = chain.renew(&name).unwrap();
    assert!(renewed.name() > first.name());
    assert_eq!(chain.signer(&name).unwrap().certificate(), Some(&renewed));
    assert_eq!(chain.certificates_of(name.as_view()).unwrap().len(), 2);
}

#[test]
fn stores_keys_of_every_type() {
    let (_dir, chain) = chain();
    for key_type in [KeyType::Hmac, KeyType::Ecdsa, KeyType::Ed25519, KeyType::Rsa] {
        let identity = name(&format!("/id/{key_type}"));
        let made = chain.generate(&identity, key_type, None).unwrap();
        let by_identity = chain.find(&identity).unwrap();
        let by_key = chain.find(&made.name).unwrap();
        assert_eq!((&by_identity.name, by_key.key_type), (&made.name, key_type));
        let signer = chain.signer(&identity).unwrap();
        assert_eq!(signer.signature_type(), key_type.signature_type());
        assert_eq!(signer.certificate().is_none(), key_type == KeyType::Hmac);
        if let Some(certificate) = signer.certificate() {
            let by_certificate = chain.signer(&certificate.name().to_name()).unwrap();
            assert_eq!(by_certificate.certificate(), Some(certificate));
        } else {
            let tag = signer.sign(&[b"x"]).unwrap();
            let verifier = chain.hmac_verifier(&identity).unwrap();
            assert_eq!(weir_security::Verifier::verify(&verifier, &[b"x"], &tag), Ok(()));
        }
    }
    let default = chain.default_name().unwrap().unwrap();
    assert_eq!(default, chain.find(&name("/id/ecdsa")).unwrap().name, "HMAC is no default");
    assert!(matches!(chain.find(&name("/id")), Err(KeyChainError::NoSuchKey(_))));
    let refused = chain.generate(&default, KeyType::Ecdsa, None);
    assert!(matches!(refused, Err(KeyChainError::KeyExists(_))));
}

#[test]
fn default_is_deleted_with_its_key() {
    let (_dir, chain) = chain();
    chain.generate(&name("/a"), KeyType::Ecdsa, None).unwrap();
    let second = chain.generate(&name("/b"), KeyType::Ed25519, None).unwrap();
    chain.set_default(&name("/b")).unwrap();
    assert_eq!(chain.default_name().unwrap(), Some(second.name.clone()));
    chain.delete(&name("/b")).unwrap();
    assert_eq!(chain.default_name().unwrap(), None);
    assert!(chain.certificates_of(second.name.as_view()).unwrap().is_empty());
    let refused = chain.default_signer_or_create();
    assert!(matches!(refused, Err(KeyChainError::NoDefault)));
    chain.delete(&name("/a")).unwrap();
    assert!(chain.default_signer_or_create().is_ok());
}

#[test]
fn rejects_exposed_key_files() {
    let (_dir, chain) = chain();
    let key = chain.generate(&name("/a"), KeyType::Ecdsa, None).unwrap();
    let mode = |path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&key.path), 0o600);
    assert_eq!(mode(&chain.dir().join("keys")), 0o700);
    for exposed in [0o640, 0o604, 0o620, 0o666] {
        fs::set_permissions(&key.path, Permissions::from_mode(exposed)).unwrap();
        let refused = chain.signer(&name("/a")).unwrap_err();
        assert!(matches!(refused, KeyChainError::Exposed { mode, .. } if mode == exposed));
        assert!(refused.to_string().contains("chmod 600"), "{refused}");
    }
    fs::set_permissions(&key.path, Permissions::from_mode(0o400)).unwrap();
    assert!(chain.signer(&name("/a")).is_ok());
    let leftovers = fs::read_dir(chain.dir().join("keys")).unwrap().count();
    assert_eq!(leftovers, 1, "no temporary file stays");
}

#[test]
fn decrypts_only_with_passphrase() {
    let (dir, chain) = chain();
    let key = chain.generate(&name("/a"), KeyType::Ecdsa, Some("open sesame")).unwrap();
    assert!(key.is_encrypted && chain.find(&key.name).unwrap().is_encrypted);
    assert!(!fs::read_to_string(&key.path).unwrap().contains("BEGIN PRIVATE KEY"));
    assert!(chain.clone().with_passphrases(fixed("open sesame")).signer(&key.name).is_ok());
    let refused = chain.clone().with_passphrases(fixed("sesame")).signer(&key.name);
    assert!(matches!(refused, Err(KeyChainError::Key { source: KeyError::Decrypt, .. })));

    let file = dir.path().join("passphrase");
    fs::write(&file, "open sesame\nsecond line\n").unwrap();
    let from_file = chain.clone().with_passphrases(PassphraseSource::File(file.clone()));
    assert!(from_file.signer(&key.name).is_ok());
    fs::write(&file, "\n").unwrap();
    let refused = from_file.signer(&key.name);
    assert!(matches!(refused, Err(KeyChainError::Passphrase(PassphraseError::Empty))));
}

#[test]
fn names_damaged_key_files() {
    let (_dir, chain) = chain();
    let key = chain.generate(&name("/a"), KeyType::Ecdsa, None).unwrap();
    let text = fs::read_to_string(&key.path).unwrap();
    fs::write(&key.path, &text[..text.len() / 2]).unwrap();
    assert!(matches!(chain.signer(&key.name), Err(KeyChainError::Key { .. })));
    fs::write(&key.path, "anything").unwrap();
    let refused = chain.keys().unwrap_err();
    assert!(matches!(&refused, KeyChainError::MalformedKeyFile { path } if *path == key.path));
}

#[test]
fn imports_foreign_safe_bag() {
    let (_dir, chain) = chain();
    let chain = chain.with_passphrases(fixed("password"));
    let imported = chain.import(SAFE_BAG.as_bytes(), None, None).unwrap();
    let [Imported::Key(key)] = &imported[..] else { panic!("a key was expected") };
    assert_eq!((key.name.to_string().as_str(), key.is_encrypted), ("/vec/KEY/ec", true));
    let signer = chain.signer(&name("/vec")).unwrap();
    let expected = hex::decode(NDNTS_CERTIFICATE.trim()).unwrap();
    assert_eq!(signer.certificate().unwrap().wire(), expected);
    let again = chain.import(SAFE_BAG.as_bytes(), None, None);
    assert!(matches!(again, Err(KeyChainError::KeyExists(_))));

    let (_other_dir, other) = self::chain();
    let other = other.with_passphrases(fixed("passw0rd"));
    let refused = other.import(SAFE_BAG.as_bytes(), None, None);
    assert!(matches!(refused, Err(KeyChainError::PrivateKey(KeyError::Decrypt))));
    assert!(other.keys().unwrap().is_empty() && other.certificates().unwrap().is_empty());
}

#[test]
fn imports_keys_and_certificates_of_ndnd() {
    let (_dir, chain) = chain();
    let imported = chain.import(NDND.as_bytes(), None, Some("secret")).unwrap();
    let certificates = imported.iter().filter(|it| matches!(it, Imported::Certificate(_)));
    assert_eq!((imported.len(), certificates.count()), (6, 3));
    let chain = chain.with_passphrases(fixed("secret"));
    for (identity, key_type) in [
        ("/ndnd/ecc", KeyType::Ecdsa),
        ("/ndnd/rsa", KeyType::Rsa),
        ("/ndnd/ed25519", KeyType::Ed25519),
    ] {
        let key = chain.find(&name(identity)).unwrap();
        assert_eq!((key.key_type, key.is_encrypted), (key_type, true));
        // The certificate of ndnd is the only one.
        let signer = chain.signer(&key.name).unwrap();
        let certificates = chain.certificates_of(key.name.as_view()).unwrap();
        assert_eq!(certificates, [signer.certificate().unwrap().clone()]);
        let verifier = verifier_from_certificate(&certificates[0]).unwrap();
        certificates[0].verify(&*verifier).unwrap();
        let wire = sign_data(&Data::new(name("/a")), &signer).unwrap();
        verify_data(&DataView::decode(&wire).unwrap(), &*verifier).unwrap();
    }
}

#[test]
fn imports_nothing_of_damaged_ndnd_text() {
    let (_dir, chain) = chain();
    let first_key = &NDND[..NDND.find("-----BEGIN NDN CERT").unwrap()];
    for (damaged, expected) in [
        // Another private key than the one that signed.
        (NDND.replacen("EEIADD", "EEIADE", 1), "the key "),
        (first_key.replacen("Wmg", "Wmh", 1), "the key "),
        (first_key.replacen("lnHls8", "lnHlt8", 1), "the key is malformed"),
        (first_key.replace("NDN KEY", "NDN CERT"), "neither a certificate"),
        (first_key.replace("NDN KEY", "NDN OTHER"), "neither a certificate"),
        (first_key.replacen("Bv0B", "Bv0?", 1), "neither a certificate"),
        (first_key.replace("-----END", "----"), "neither a certificate"),
    ] {
        let error = chain.import(damaged.as_bytes(), None, None).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}: {damaged}");
    }
    assert!(chain.keys().unwrap().is_empty() && chain.certificates().unwrap().is_empty());

    let imported = chain.import(first_key.as_bytes(), Some(&name("/other")), None).unwrap();
    let [Imported::Key(key)] = &imported[..] else { panic!("a key was expected") };
    assert_eq!(key.identity().to_string(), "/other");
    assert!(chain.certificate_for(&key.name).unwrap().unwrap().is_self_issued());
}

#[test]
fn reimports_exported_keys() {
    let (_dir, chain) = chain();
    for key_type in [KeyType::Ecdsa, KeyType::Ed25519] {
        let key = chain.generate(&name(&format!("/{key_type}")), key_type, None).unwrap();
        let certificate = chain.certificate_for(&key.name).unwrap().unwrap();
        let bag = chain.export_safe_bag(&key.name, "secret").unwrap();
        let wire = packet_in_file(bag.as_bytes(), &[128]).unwrap();
        assert_eq!(decode_safe_bag(&wire, "secret").unwrap().0, certificate);
        assert_eq!(decode_safe_bag(&wire, "Secret").unwrap_err(), KeyError::Decrypt);
        let (_other_dir, other) = self::chain();
        other.clone().with_passphrases(fixed("secret")).import(bag.as_bytes(), None, None).unwrap();
        assert_eq!(other.find(&key.name).unwrap().key_type, key_type);
        assert_eq!(other.certificate_for(&key.name).unwrap(), Some(certificate));
    }
    let hmac = chain.generate(&name("/hmac"), KeyType::Hmac, None).unwrap();
    let refused = chain.export_safe_bag(&hmac.name, "secret");
    assert!(matches!(refused, Err(KeyChainError::NoCertificate(_))));
    let pem = chain.export_pem(&hmac.name, None).unwrap();
    let (_other_dir, other) = self::chain();
    other.import(pem.as_bytes(), None, None).unwrap();
    let secret = |chain: &KeyChain| {
        let key = chain.private_key(&chain.find(&hmac.name).unwrap()).unwrap();
        key.hmac_secret().unwrap().to_vec()
    };
    assert_eq!(secret(&chain), secret(&other));
}

#[test]
fn bare_pem_key_needs_name() {
    let (_dir, chain) = chain();
    let made = chain.generate(&name("/a"), KeyType::Ecdsa, None).unwrap();
    let pem = chain.export_pem(&made.name, None).unwrap();
    let bare = &pem[pem.find("-----").unwrap()..];
    let refused = chain.import(bare.as_bytes(), None, None);
    assert!(matches!(refused, Err(KeyChainError::NameNeeded)));
    let imported = chain.import(bare.as_bytes(), Some(&name("/b")), Some("p")).unwrap();
    let [Imported::Key(key)] = &imported[..] else { panic!("a key was expected") };
    assert_eq!((key.identity().to_string().as_str(), key.is_encrypted), ("/b", true));
    assert!(chain.certificate_for(&key.name).unwrap().unwrap().is_self_issued());
    let refused = chain.import(b"no key at all", None, None);
    assert!(matches!(refused, Err(KeyChainError::UnknownFormat)));
}

#[test]
fn trusts_issued_certificate() {
    let (_dir, site) = chain();
    let (_user_dir, user) = chain();
    site.generate(&name("/site"), KeyType::Ecdsa, None).unwrap();
    let key = user.generate(&name("/site/alice"), KeyType::Ed25519, None).unwrap();
    let request = user.certificate_for(&key.name).unwrap().unwrap();
    let issuer = site.signer(&name("/site")).unwrap();
    let issued = site.issue(&request, &issuer, b"NA", ISSUED_VALIDITY_S).unwrap();
    assert!(!issued.is_self_issued());

    let imported = user.import(to_base64_lines(issued.wire()).as_bytes(), None, None).unwrap();
    assert!(matches!(imported[..], [Imported::Certificate(_)]), "{imported:?}");
    let signer = user.signer(&name("/site/alice")).unwrap();
    assert_eq!(signer.certificate(), Some(&issued), "issued ones go before its own");

    let (_reader_dir, reader) = chain();
    reader.add_anchor(issuer.certificate().unwrap()).unwrap();
    let mut anchors = reader.anchors().unwrap();
    let now = unix_time_s();
    let wire = sign_data(&Data::new(name("/site/alice/file")), &signer).unwrap();
    let data = DataView::decode(&wire).unwrap();
    let needed = TrustError::CertificateNeeded(issued.name().to_name());
    assert_eq!(anchors.verify_data(&data, now).err(), Some(needed));
    anchors.accept(issued.clone(), &crate::verifier::Provider, now).unwrap();
    assert_eq!(anchors.verify_data(&data, now), Ok(&issued));

    assert_eq!(reader.remove_anchors(&name("/site")).unwrap().len(), 1);
    assert!(reader.anchors().unwrap().is_empty());
    let removed = reader.remove_anchors(&name("/site"));
    assert!(matches!(removed, Err(KeyChainError::NoSuchCertificate(_))));
}

#[test]
fn rejects_request_signed_by_other_key() {
    let (_dir, chain) = chain();
    chain.generate(&name("/site"), KeyType::Ecdsa, None).unwrap();
    let issuer = chain.signer(&name("/site")).unwrap();
    let mut forged = issuer.certificate().unwrap().wire().to_vec();
    let key_at = forged.windows(4).position(|window| window == b"site").unwrap();
    forged[key_at] = b'S';
    let forged = Certificate::decode(&forged).unwrap();
    let refused = chain.issue(&forged, &issuer, b"NA", 10);
    let Err(KeyChainError::Trust(TrustError::Signature(VerifyError::Mismatch))) = refused else {
        panic!("{refused:?}");
    };
}

#[test]
fn remembers_and_forgets_signers() {
    let (_dir, chain) = chain();
    let object = name("/a/32=x/file");
    assert!(chain.known_signers().unwrap().is_empty());
    chain.remember_signer(&object, &[1; 32]).unwrap();
    chain.remember_signer(&name("/b"), &[2; 32]).unwrap();
    chain.remember_signer(&object, &[3; 32]).unwrap();
    let known = chain.known_signers().unwrap();
    assert_eq!(known.len(), 2);
    assert_eq!(known.decide(object.as_view(), &[3; 32]), SignerStatus::Trusted);
    let changed = SignerStatus::Changed { known: [3; 32] };
    assert_eq!(known.decide(object.as_view(), &[1; 32]), changed);
    assert!(chain.forget_signer(&object).unwrap() && !chain.forget_signer(&object).unwrap());
    let known = chain.known_signers().unwrap();
    assert_eq!(known.decide(object.as_view(), &[1; 32]), SignerStatus::FirstUse);
}

#[test]
fn concurrent_remember_loses_nothing() {
    let (_dir, chain) = chain();
    std::thread::scope(|scope| {
        for thread in 0..8_u8 {
            let chain = &chain;
            scope.spawn(move || {
                for i in 0..4 {
                    let prefix = name(&format!("/{thread}/{i}"));
                    chain.remember_signer(&prefix, &[thread; 32]).unwrap();
                }
            });
        }
    });
    assert_eq!(chain.known_signers().unwrap().len(), 32);
}

#[test]
fn reports_line_of_damaged_signer_list() {
    let (_dir, chain) = chain();
    chain.remember_signer(&name("/a"), &[1; 32]).unwrap();
    let path = chain.dir().join("known-signers.toml");
    let good = fs::read_to_string(&path).unwrap();
    for bad in [good.replace("0101", "01"), good.replace("sha256", "sha25"), "[[".to_owned()] {
        fs::write(&path, bad).unwrap();
        let refused = chain.known_signers().unwrap_err();
        assert!(refused.to_string().contains("known-signers.toml"), "{refused}");
    }
}

/// As if the process had been killed between writing the first certificate and the first key.
#[test]
fn new_key_ignores_leftover_certificate() {
    let (_dir, chain) = chain();
    let key_name = name("/a/KEY/1");
    let lost = chain.generate(&key_name, KeyType::Ecdsa, None).unwrap();
    fs::remove_file(&lost.path).unwrap();
    let made = chain.generate(&key_name, KeyType::Ecdsa, None).unwrap();
    let signer = chain.signer(&made.name).unwrap();
    let verifier = verifier_from_certificate(signer.certificate().unwrap()).unwrap();
    let wire = sign_data(&Data::new(name("/x")).content(b"x"), &signer).unwrap();
    assert_eq!(verify_data(&DataView::decode(&wire).unwrap(), &*verifier), Ok(()));
    // Programs without the private key choose the same certificate.
    assert_eq!(chain.certificate_for(&made.name).unwrap().as_ref(), signer.certificate());
}

/// As if the process had been killed while it deleted a key, whose file goes first.
#[test]
fn default_needs_its_key() {
    let (_dir, chain) = chain();
    let removed = chain.generate(&name("/a"), KeyType::Ecdsa, None).unwrap();
    fs::remove_file(&removed.path).unwrap();
    let signer = chain.default_signer_or_create().unwrap();
    assert_ne!(signer.locator_name(), &removed.name);
    let made = chain.default_name().unwrap().unwrap();
    assert_eq!(chain.find(&made).unwrap().name, made);
}

#[test]
fn removes_temporary_files() {
    let (_dir, chain) = chain();
    chain.generate(&name("/a"), KeyType::Ecdsa, None).unwrap();
    let unfinished = chain.dir().join("keys/.new-0123");
    fs::write(&unfinished, "half of a secret").unwrap();
    chain.generate(&name("/b"), KeyType::Ecdsa, None).unwrap();
    assert!(!unfinished.exists());
    assert_eq!(chain.keys().unwrap().len(), 2);
}

#[test]
fn concurrent_generate_leaves_one_key() {
    for round in 0..20 {
        let (_dir, chain) = chain();
        let key_name = name(&format!("/a/KEY/{round}"));
        let made = std::thread::scope(|scope| {
            let make = || chain.generate(&key_name, KeyType::Ecdsa, None).is_ok();
            let threads = [(); 4].map(|()| scope.spawn(make));
            threads.into_iter().filter_map(|thread| thread.join().unwrap().then_some(())).count()
        });
        assert_eq!(made, 1);
        let signer = chain.signer(&key_name).unwrap();
        assert_eq!(chain.certificates_of(key_name.as_view()).unwrap().len(), 1);
        let verifier = verifier_from_certificate(signer.certificate().unwrap()).unwrap();
        let wire = sign_data(&Data::new(name("/x")).content(b"x"), &signer).unwrap();
        assert_eq!(verify_data(&DataView::decode(&wire).unwrap(), &*verifier), Ok(()));
    }
}

#[test]
fn keeps_default_chosen_during_delete() {
    for _ in 0..20 {
        let (_dir, chain) = chain();
        let old = chain.generate(&name("/old"), KeyType::Ed25519, None).unwrap();
        let new = chain.generate(&name("/new"), KeyType::Ed25519, None).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| chain.delete(&old.name).unwrap());
            scope.spawn(|| chain.set_default(&new.name).unwrap());
        });
        assert_eq!(chain.default_name().unwrap(), Some(new.name));
    }
}
