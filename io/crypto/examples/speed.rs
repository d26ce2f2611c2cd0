//! Measures signatures and verifications per second of processor time, on one thread, for Data of
//! 8000 and of 100 bytes. Run it with `cargo run --release -p weir-crypto --example speed
//! [ALGORITHM...]`. An algorithm may be the beginning of a name. `--json` prints one JSON object
//! instead of lines.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use serde_json::{Map, Value, json};
use weir_crypto::{KeyType, PrivateKey, verifier_from_spki};
use weir_security::{DigestVerifier, Verifier, sha256, sha256_each};

const TIME_PER_MEASURE: Duration = Duration::from_millis(500);

fn main() {
    let (flags, algorithms): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|word| word.starts_with("--"));
    let json = flags.iter().any(|flag| flag == "--json").then(Map::new);
    let mut speeds = Speeds { algorithms, json };
    if speeds.json.is_none() {
        println!("{:>14}  {:>6}  {:>12}  {:>12}", "algorithm", "bytes", "signs/s", "verifies/s");
    }
    for octets in [100, 8000] {
        let message = vec![7; octets];
        for key_type in [KeyType::Ecdsa, KeyType::Ed25519, KeyType::Rsa] {
            if speeds.is_selected(&key_type.to_string()) {
                speeds.measure_key(key_type, &message);
            }
        }
        if speeds.is_selected("ed25519 dalek") {
            speeds.measure_alternative(&message);
        }
        speeds.measure_digests(&message);
    }
    if let Some(json) = speeds.json {
        println!("{}", Value::Object(json));
    }
}

struct Speeds {
    /// Beginnings of the names of selected algorithms; empty: all.
    algorithms: Vec<String>,
    json: Option<Map<String, Value>>,
}

impl Speeds {
    fn is_selected(&self, algorithm: &str) -> bool {
        let mut wanted = self.algorithms.iter();
        self.algorithms.is_empty() || wanted.any(|wanted| algorithm.starts_with(wanted.as_str()))
    }

    fn measure_key(&mut self, key_type: KeyType, message: &[u8]) {
        let key = PrivateKey::generate(key_type).expect("a new key");
        let verifier = verifier_from_spki(&key.public_key().expect("public")).expect("fresh");
        let signature = key.sign(&[message]).expect("signs");
        let signs = per_second(|| drop(key.sign(&[message]).expect("signs")));
        let verifies = per_second(|| verifier.verify(&[message], &signature).expect("verifies"));
        self.report(&key_type.to_string(), message.len(), Some(signs), verifies);
        if key_type == KeyType::Ed25519 {
            for count in [8, 32, 128] {
                let signed = vec![(message, &signature[..]); count];
                let rounds = per_second(|| assert!(verifier.verify_each(&signed)[count - 1]));
                let verifies = rounds * count as f64;
                self.report(&format!("ed25519 x{count}"), message.len(), None, verifies);
            }
        }
    }

    /// Measures the alternative library, to show why the verifier uses this one.
    fn measure_alternative(&mut self, message: &[u8]) {
        let key = PrivateKey::generate(KeyType::Ed25519).expect("a new key");
        let spki = key.public_key().expect("public");
        let signature = key.sign(&[message]).expect("signs");
        let point: [u8; 32] = spki[12..].try_into().expect("32 octets");
        let dalek = ed25519_dalek::VerifyingKey::from_bytes(&point).expect("a point");
        let signature = ed25519_dalek::Signature::from_slice(&signature).expect("64 octets");
        let verifies = per_second(|| dalek.verify_strict(message, &signature).expect("verifies"));
        self.report("ed25519 dalek", message.len(), None, verifies);
    }

    fn measure_digests(&mut self, message: &[u8]) {
        let digest = sha256(&[message]);
        if self.is_selected("sha256 (sha2)") {
            let verifies =
                per_second(|| DigestVerifier.verify(&[message], &digest).expect("verifies"));
            self.report("sha256 (sha2)", message.len(), None, verifies);
        }
        if self.is_selected("sha256 (aws)") {
            let verifies = per_second(|| {
                let again = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, message);
                assert_eq!(again.as_ref(), digest);
            });
            self.report("sha256 (aws)", message.len(), None, verifies);
        }
        for count in [4, 6, 8, 16] {
            let name = format!("sha256 x{count}");
            if self.is_selected(&name) {
                let messages = vec![message; count];
                let rounds = per_second(|| assert_eq!(sha256_each(&messages)[count - 1], digest));
                self.report(&name, message.len(), None, rounds * count as f64);
            }
        }
    }

    fn report(&mut self, algorithm: &str, octets: usize, signs: Option<f64>, verifies: f64) {
        if let Some(json) = &mut self.json {
            let row = json!({ "signs_per_s": signs, "verifies_per_s": verifies });
            json.insert(format!("{algorithm}, {octets}"), row);
            return;
        }
        let signs = signs.map_or_else(|| "-".to_owned(), |signs| format!("{signs:.0}"));
        println!("{algorithm:>14}  {octets:>6}  {signs:>12}  {verifies:>12.0}");
    }
}

fn per_second(mut f: impl FnMut()) -> f64 {
    let (start, until) = (thread_time(), thread_time() + TIME_PER_MEASURE);
    let mut rounds = 0;
    while thread_time() < until {
        f();
        rounds += 1;
    }
    f64::from(rounds) / (thread_time() - start).as_secs_f64()
}

fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("Linux has this clock");
    Duration::new(time.tv_sec() as u64, time.tv_nsec() as u32)
}
