//! Signs and verifies a second, one thread, for a Data of 8000 octets and one of 100:
//! `cargo run --release -p weir-crypto --example speed`.

use std::time::{Duration, Instant};

use weir_crypto::{KeyType, PrivateKey, verifier_from_spki};
use weir_security::{DigestVerifier, Verifier, sha256, sha256_each};

const TIME_PER_MEASURE: Duration = Duration::from_millis(500);

fn main() {
    println!("{:>14}  {:>6}  {:>12}  {:>12}", "algorithm", "octets", "signs/s", "verifies/s");
    for octets in [100, 8000] {
        let message = vec![7; octets];
        for key_type in [KeyType::Ecdsa, KeyType::Ed25519, KeyType::Rsa] {
            let key = PrivateKey::generate(key_type).expect("a new key");
            let verifier = verifier_from_spki(&key.public_key().expect("public")).expect("fresh");
            let signature = key.sign(&[&message]).expect("signs");
            let signs = per_second(|| drop(key.sign(&[&message]).expect("signs")));
            let verifies =
                per_second(|| verifier.verify(&[&message], &signature).expect("verifies"));
            print_line(&key_type.to_string(), octets, Some(signs), verifies);
            if key_type == KeyType::Ed25519 {
                for count in [8, 32, 128] {
                    let signed = vec![(&message[..], &signature[..]); count];
                    let rounds = per_second(|| assert!(verifier.verify_each(&signed)[count - 1]));
                    print_line(&format!("ed25519 x{count}"), octets, None, rounds * count as f64);
                }
            }
        }
        ed25519_alternative(&message);
        let digest = sha256(&[&message]);
        let verifies =
            per_second(|| DigestVerifier.verify(&[&message], &digest).expect("verifies"));
        print_line("sha256 (sha2)", octets, None, verifies);
        let aws_lc = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &message);
        let verifies = per_second(|| {
            let again = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &message);
            assert_eq!(again.as_ref(), aws_lc.as_ref());
        });
        print_line("sha256 (aws)", octets, None, verifies);
        for count in [4, 6, 8, 16] {
            let messages = vec![&message[..]; count];
            let rounds = per_second(|| assert_eq!(sha256_each(&messages)[count - 1], digest));
            print_line(&format!("sha256 x{count}"), octets, None, rounds * count as f64);
        }
    }
}

/// The other library: why the verifier is built as it is.
fn ed25519_alternative(message: &[u8]) {
    let key = PrivateKey::generate(KeyType::Ed25519).expect("a new key");
    let spki = key.public_key().expect("public");
    let signature = key.sign(&[message]).expect("signs");
    let point: [u8; 32] = spki[12..].try_into().expect("32 octets");
    let dalek = ed25519_dalek::VerifyingKey::from_bytes(&point).expect("a point");
    let signature = ed25519_dalek::Signature::from_slice(&signature).expect("64 octets");
    let verifies = per_second(|| dalek.verify_strict(message, &signature).expect("verifies"));
    print_line("ed25519 dalek", message.len(), None, verifies);
}

fn per_second(mut f: impl FnMut()) -> f64 {
    let start = Instant::now();
    let mut rounds = 0;
    while start.elapsed() < TIME_PER_MEASURE {
        f();
        rounds += 1;
    }
    f64::from(rounds) / start.elapsed().as_secs_f64()
}

fn print_line(algorithm: &str, octets: usize, signs: Option<f64>, verifies: f64) {
    let signs = signs.map_or_else(|| "-".to_owned(), |signs| format!("{signs:.0}"));
    println!("{algorithm:>14}  {octets:>6}  {signs:>12}  {verifies:>12.0}");
}
