//! Signers and verifiers against packets that other NDN libraries signed.

use crate::pem::{decrypt_pkcs8, encrypt_pkcs8, private_key_from_pem, private_key_to_pem};
use crate::verifier::HmacVerifier;
use crate::{
    KeyError, KeySigner, KeyType, PrivateKey, verifier_from_certificate, verifier_from_spki,
};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use weir_security::{
    Certificate, DigestVerifier, Signer, Verifier, VerifyError, sign_data, sign_interest,
    verify_data, verify_interest,
};
use weir_wire::{Data, DataView, Interest, InterestView, KeyLocatorView, Name};

const KEYS: &str = include_str!("vectors/keys.json");
const SIGNED: &str = include_str!("vectors/signed.jsonl");
const CXX_CERTIFICATE: &str = include_str!("vectors/cxx-certificate.hex");
const NDNTS_CERTIFICATE: &str = include_str!("vectors/ndnts-certificate.hex");

const ALGORITHMS: [&str; 4] = ["rsa", "ecdsa", "ed25519", "hmac"];

fn key_json(algorithm: &str) -> Value {
    let keys: Value = serde_json::from_str(KEYS).unwrap();
    keys[algorithm].clone()
}

fn private_key(algorithm: &str) -> PrivateKey {
    let json = key_json(algorithm);
    match json["rawHex"].as_str() {
        Some(raw) => PrivateKey::from_hmac_secret(&hex::decode(raw).unwrap()).unwrap(),
        None => {
            let der = STANDARD.decode(json["priv"].as_str().unwrap()).unwrap();
            PrivateKey::from_pkcs8(&der).unwrap()
        }
    }
}

fn public_key(algorithm: &str) -> Vec<u8> {
    STANDARD.decode(key_json(algorithm)["pub"].as_str().unwrap()).unwrap()
}

fn verifier(algorithm: &str) -> Box<dyn Verifier> {
    match algorithm {
        "digest" => Box::new(DigestVerifier),
        "hmac" => {
            let secret = private_key("hmac");
            Box::new(HmacVerifier::new(secret.hmac_secret().unwrap()).unwrap())
        }
        _ => verifier_from_spki(&public_key(algorithm)).unwrap(),
    }
}

fn verify(kind: &str, wire: &[u8], verifier: &dyn Verifier) -> Result<(), VerifyError> {
    match kind {
        "interest" => verify_interest(&InterestView::decode(wire).unwrap(), verifier),
        _ => verify_data(&DataView::decode(wire).unwrap(), verifier),
    }
}

#[test]
fn verifies_packets_of_other_libraries() {
    let mut count = 0;
    for line in SIGNED.lines() {
        let vector: Value = serde_json::from_str(line).unwrap();
        let (name, kind) = (vector["name"].as_str().unwrap(), vector["kind"].as_str().unwrap());
        let algorithm = vector["verifiesWith"].as_str().unwrap();
        let wire = hex::decode(vector["hex"].as_str().unwrap()).unwrap();
        assert_eq!(verify(kind, &wire, &*verifier(algorithm)), Ok(()), "{name}");
        for other in ALGORITHMS.iter().filter(|other| **other != algorithm) {
            let refused = verify(kind, &wire, &*verifier(other));
            assert!(matches!(refused, Err(VerifyError::TypeMismatch { .. })), "{name} {other}");
        }
        let stranger = PrivateKey::generate(KeyType::Ecdsa).unwrap().public_key().unwrap();
        if algorithm == "ecdsa" {
            let refused = verify(kind, &wire, &*verifier_from_spki(&stranger).unwrap());
            assert_eq!(refused, Err(VerifyError::Mismatch), "{name}");
        }
        count += 1;
    }
    assert_eq!(count, 43);
}

#[test]
fn detects_any_changed_octet() {
    for algorithm in ALGORITHMS {
        let signer = KeySigner::new(private_key(algorithm), "/vec/KEY/x".parse().unwrap());
        let wire = sign_data(&Data::new("/A".parse().unwrap()).content(b"hello"), &signer).unwrap();
        let verifier = verifier(algorithm);
        let data = DataView::decode(&wire).unwrap();
        for at in 0..data.signed_portion().len() {
            let mut changed = data.signed_portion().to_vec();
            changed[at] ^= 1;
            let refused = verifier.verify(&[&changed], data.signature_value());
            assert_eq!(refused, Err(VerifyError::Mismatch), "{algorithm} {at}");
        }
        for at in 0..data.signature_value().len() {
            let mut changed = data.signature_value().to_vec();
            changed[at] ^= 1;
            let refused = verifier.verify(&[data.signed_portion()], &changed);
            assert_eq!(refused, Err(VerifyError::Mismatch), "{algorithm} {at}");
        }
        for cut in [0, 1, data.signature_value().len() - 1] {
            let refused = verifier.verify(&[data.signed_portion()], &data.signature_value()[..cut]);
            assert_eq!(refused, Err(VerifyError::Mismatch), "{algorithm} cut to {cut}");
        }
    }
}

#[test]
fn signs_and_names_signer() {
    let locator: Name = "/vec/KEY/x".parse().unwrap();
    for algorithm in ALGORITHMS {
        let signer = KeySigner::new(private_key(algorithm), locator.clone());
        let verifier = verifier(algorithm);
        let data = Data::new("/A/B".parse().unwrap()).content(vec![7; 3000]);
        let wire = sign_data(&data, &signer).unwrap();
        let data = DataView::decode(&wire).unwrap();
        assert_eq!(data.signature_info().signature_type, signer.signature_type().0);
        let named = data.signature_info().key_locator;
        assert_eq!(named, Some(KeyLocatorView::Name(locator.as_view())));
        assert_eq!(verify_data(&data, &*verifier), Ok(()));

        let interest = Interest::new("/localhost/nfd/x".parse().unwrap());
        let wire = sign_interest(interest, &signer, Some([9; 8]), Some(1_700_000_000_000)).unwrap();
        let interest = InterestView::decode(&wire).unwrap();
        assert_eq!(verify_interest(&interest, &*verifier), Ok(()), "{algorithm}");
        let info = interest.signature().unwrap().info();
        assert_eq!((info.nonce, info.time_ms), (Some(&[9; 8][..]), Some(1_700_000_000_000)));
    }
}

#[test]
fn public_key_matches_private_key() {
    for algorithm in ["rsa", "ecdsa", "ed25519"] {
        assert_eq!(private_key(algorithm).public_key().unwrap(), public_key(algorithm));
    }
    assert_eq!(private_key("hmac").public_key(), Err(KeyError::NoPublicKey));
}

#[test]
fn new_keys_survive_pkcs8_and_pem() {
    for key_type in [KeyType::Ecdsa, KeyType::Ed25519, KeyType::Rsa, KeyType::Hmac] {
        let key = PrivateKey::generate(key_type).unwrap();
        let verifier: Box<dyn Verifier> = match key.hmac_secret() {
            Some(secret) => Box::new(HmacVerifier::new(secret).unwrap()),
            None => verifier_from_spki(&key.public_key().unwrap()).unwrap(),
        };
        let again = PrivateKey::from_pkcs8(&key.to_pkcs8().unwrap()).unwrap();
        let pem = private_key_to_pem(&key, None).unwrap();
        let from_pem = private_key_from_pem(&format!("name: /x\n{}", *pem), None).unwrap();
        for key in [key, again, from_pem] {
            assert_eq!(key.key_type(), key_type);
            let signature = key.sign(&[b"one", b"two"]).unwrap();
            assert_eq!(verifier.verify(&[b"onetwo"], &signature), Ok(()), "{key_type}");
            assert_eq!(verifier.verify(&[b"onetw0"], &signature), Err(VerifyError::Mismatch));
        }
    }
}

#[test]
fn decrypts_only_with_passphrase() {
    let key = private_key("ecdsa");
    let der = encrypt_pkcs8(&key, "correct horse").unwrap();
    let opened = decrypt_pkcs8(&der, "correct horse").unwrap();
    assert_eq!(opened.public_key(), key.public_key());
    assert_eq!(decrypt_pkcs8(&der, "Correct horse").unwrap_err(), KeyError::Decrypt);
    let pem = private_key_to_pem(&private_key("hmac"), Some("p")).unwrap();
    assert!(pem.contains("BEGIN ENCRYPTED PRIVATE KEY"));
    assert_eq!(private_key_from_pem(&pem, None).unwrap_err(), KeyError::PassphraseNeeded);
    let opened = private_key_from_pem(&pem, Some("p")).unwrap();
    assert_eq!(opened.hmac_secret(), private_key("hmac").hmac_secret());
}

#[test]
fn rejects_unfit_keys() {
    assert_eq!(PrivateKey::from_hmac_secret(&[1; 15]).unwrap_err(), KeyError::TooShort);
    assert_eq!(verifier_from_spki(b"").err(), Some(KeyError::Malformed));
    assert_eq!(PrivateKey::from_pkcs8(&[0x30, 0]).unwrap_err(), KeyError::Malformed);
    let mut p384 = public_key("ecdsa");
    // The last byte of the curve's identifier: 1.2.840.10045.3.1.6 is another curve.
    p384[22] = 6;
    assert_eq!(verifier_from_spki(&p384).err(), Some(KeyError::UnsupportedAlgorithm));
    let mut off_curve = public_key("ecdsa");
    *off_curve.last_mut().unwrap() ^= 1;
    assert!(matches!(verifier_from_spki(&off_curve), Err(KeyError::Refused(_))));
    let mut small_order = public_key("ed25519");
    small_order[12..].fill(0);
    assert!(matches!(verifier_from_spki(&small_order), Err(KeyError::Refused(_))));
}

#[test]
fn verifies_foreign_self_signed_certificates() {
    for (text, identity, validity) in [
        (CXX_CERTIFICATE, "/vec/cxx", ["20261120T084652", "20461115T084652"]),
        (NDNTS_CERTIFICATE, "/vec", ["20240101T000000", "20440101T000000"]),
    ] {
        let certificate = Certificate::decode(&hex::decode(text.trim()).unwrap()).unwrap();
        assert_eq!(certificate.identity().to_string(), identity);
        assert_eq!(certificate.issuer().value, b"self");
        assert!(certificate.is_self_issued());
        let [from, to] = validity.map(str::as_bytes);
        assert_eq!(certificate.validity().not_before().as_slice(), from);
        assert_eq!(certificate.validity().not_after().as_slice(), to);
        let own = verifier_from_certificate(&certificate).unwrap();
        assert_eq!(certificate.verify(&*own), Ok(()));
    }
    let certificate = Certificate::decode(&hex::decode(NDNTS_CERTIFICATE.trim()).unwrap()).unwrap();
    assert_eq!(certificate.public_key(), public_key("ecdsa"));
    let digest = key_json("ecdsa")["keyDigestHex"].as_str().unwrap().to_owned();
    assert_eq!(hex::encode(certificate.public_key_digest()), digest);
}

#[test]
fn batch_gives_each_signature_a_verdict() {
    for key_type in [KeyType::Ecdsa, KeyType::Ed25519] {
        let key = PrivateKey::generate(key_type).unwrap();
        let verifier = verifier_from_spki(&key.public_key().unwrap()).unwrap();
        let texts: Vec<Vec<u8>> = (0..40_u8).map(|at| vec![at; usize::from(at) * 9]).collect();
        let mut signatures: Vec<Vec<u8>> =
            texts.iter().map(|text| key.sign(&[text]).unwrap()).collect();
        let verdicts = |signatures: &[Vec<u8>], range: std::ops::Range<usize>| {
            let signed = texts.iter().zip(signatures).map(|(text, it)| (&text[..], &it[..]));
            verifier.verify_each(&signed.collect::<Vec<_>>()[range])
        };
        for count in [0, 1, 7, 8, 40] {
            assert_eq!(verdicts(&signatures, 0..count), vec![true; count]);
        }
        signatures.swap(7, 20);
        signatures[30].truncate(10);
        let is_good = |at| ![7, 20, 30].contains(&at);
        assert_eq!(verdicts(&signatures, 0..40), (0..40).map(is_good).collect::<Vec<_>>());
    }
}

/// A public key or a configuration as the passphrase of an HMAC key would let anyone sign.
#[test]
fn hicn_passphrases_are_one_line() {
    assert!(crate::hicn_verifier(b"a passphrase of hICN\n").is_ok());
    for file in [
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGE someone@host",
        "ecdsa-sha2-nistp256 AAAAE2VjZHNhLXNoYTItbmlzdHA someone@host",
        "[router]\nthreads = 1\n# and more\n",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    ] {
        assert!(crate::hicn_verifier(file.as_bytes()).is_err(), "{file}");
    }
}
