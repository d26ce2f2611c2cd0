//! The cost of signatures and digests alone (paper socket-api, Table 2).

use std::hint::black_box;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use weir_base::{NS_PER_S, Packet};
use weir_scenario::trial::{SignatureScope, Trial};
use weir_security::manifest::DIGESTS_PER_PART;
use weir_security::{Signer, Verifier, sha256, sha256_each};
use weir_socket::{Label, PublishOptions, SigningMode, publish_octets};

use super::super::keys::{Key, verifier, verify_all};
use super::{RoleError, RoleSpec, content, print_line, read_input_line};

/// Number of vectors; each gives one sample.
const VECTORS: usize = 5;
/// Packets whose digests are computed together, as a consumer does.
const SIDE_BY_SIDE: usize = 64;

pub(super) fn cryptography(spec: &RoleSpec) -> Result<(), RoleError> {
    let trial = &spec.trial;
    super::print_ready()?;
    read_input_line()?;
    let key = Key::generate(trial.signature).map_err(RoleError::Failed)?;
    let verifier = verifier(trial.signature, &key.verifying_key).map_err(RoleError::Failed)?;
    let measured = match (trial.signs, trial.gap.ns) {
        (SignatureScope::Manifest, _) => by_manifest(trial, &*key.signer, &*verifier)?,
        (SignatureScope::Packets, 0) => in_vectors(trial, &*key.signer, &*verifier)?,
        (SignatureScope::Packets, _) => singly(trial, &*key.signer, &*verifier)?,
    };
    print_line(&measured)
}

fn packets(trial: &Trial) -> Vec<Vec<u8>> {
    (0..trial.count).map(|number| content(trial.segment.bytes, u64::from(number))).collect()
}

/// Seconds that `work` takes for each of `count` packets.
fn each_s(count: usize, work: impl FnOnce() -> Result<(), RoleError>) -> Result<f64, RoleError> {
    let before = Instant::now();
    work()?;
    Ok(before.elapsed().as_nanos() as f64 / NS_PER_S as f64 / count as f64)
}

fn failed(error: impl ToString) -> RoleError {
    RoleError::Failed(error.to_string())
}

/// Many packets, one by one or together.
fn in_vectors(
    trial: &Trial,
    signer: &dyn Signer,
    verifier: &dyn Verifier,
) -> Result<Value, RoleError> {
    let packets = packets(trial);
    let (mut sign_s, mut verify_s, mut hash_s) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..VECTORS {
        let mut signatures = Vec::with_capacity(packets.len());
        sign_s.push(each_s(packets.len(), || {
            for packet in &packets {
                signatures.push(signer.sign(&[packet]).map_err(failed)?);
            }
            Ok(())
        })?);
        verify_s.push(each_s(packets.len(), || {
            verify_all(trial.signature, verifier, &packets, &signatures).map_err(failed)
        })?);
        hash_s.push(each_s(packets.len(), || {
            for packet in &packets {
                black_box(sha256(&[packet]));
            }
            Ok(())
        })?);
    }
    Ok(json!({ "sign_s": sign_s, "verify_s": verify_s, "hash_s": hash_s }))
}

/// Single packets, with a pause after each operation in which others use the processor.
fn singly(trial: &Trial, signer: &dyn Signer, verifier: &dyn Verifier) -> Result<Value, RoleError> {
    let (mut sign_s, mut verify_s, mut hash_s) = (Vec::new(), Vec::new(), Vec::new());
    let pause = || std::thread::sleep(Duration::from_nanos(trial.gap.ns));
    for packet in packets(trial) {
        let mut signature = Vec::new();
        pause();
        sign_s.push(each_s(1, || {
            signature = signer.sign(&[&packet]).map_err(failed)?;
            Ok(())
        })?);
        pause();
        verify_s.push(each_s(1, || verifier.verify(&[&packet], &signature).map_err(failed))?);
        pause();
        hash_s.push(each_s(1, || {
            black_box(sha256(&[&packet]));
            Ok(())
        })?);
    }
    Ok(json!({ "sign_s": sign_s, "verify_s": verify_s, "hash_s": hash_s }))
}

/// A manifest instead of signatures: the cost of publishing and verifying for each packet.
fn by_manifest(
    trial: &Trial,
    signer: &dyn Signer,
    verifier: &dyn Verifier,
) -> Result<Value, RoleError> {
    let packets = packets(trial);
    let listed = content(DIGESTS_PER_PART as u64 * 32, 0);
    let signature = signer.sign(&[&listed]).map_err(failed)?;
    let octets: Packet = packets.concat().into();
    let (mut sign_s, mut verify_s, mut hash_s) = (Vec::new(), Vec::new(), Vec::new());
    let slices: Vec<&[u8]> = packets.iter().map(Vec::as_slice).collect();
    let hash = || {
        slices.chunks(SIDE_BY_SIDE).for_each(|some| drop(black_box(sha256_each(some))));
        Ok(())
    };
    for _ in 0..VECTORS {
        sign_s.push(each_s(packets.len(), || publish(&octets, signer, trial).map(drop))?);
        verify_s.push(each_s(packets.len(), || {
            // The signed manifest packet lists further manifest packets, and these list the
            // packets.
            verifier.verify(&[&listed], &signature).map_err(failed)?;
            for _ in 0..packets.len().div_ceil(DIGESTS_PER_PART) {
                black_box(sha256(&[&listed]));
            }
            hash()
        })?);
        hash_s.push(each_s(packets.len(), hash)?);
    }
    Ok(json!({ "sign_s": sign_s, "verify_s": verify_s, "hash_s": hash_s }))
}

/// Segments, names and signs with one thread. Returns the time in ns.
fn publish(octets: &Packet, signer: &dyn Signer, trial: &Trial) -> Result<u64, RoleError> {
    let name = super::trial_prefix();
    let label = Label { name: &name, version: 1, signer, certificate: None };
    let options = PublishOptions {
        segment_size: trial.segment.bytes as usize,
        signs: match trial.signs {
            SignatureScope::Packets => SigningMode::Segments,
            SignatureScope::Manifest => SigningMode::Manifest,
        },
        threads: 1,
        ..PublishOptions::default()
    };
    let before = Instant::now();
    black_box(publish_octets(octets.clone(), label, &options).map_err(failed)?);
    Ok(before.elapsed().as_nanos() as u64)
}

pub(super) fn publication(spec: &RoleSpec) -> Result<(), RoleError> {
    let trial = &spec.trial;
    let key = Key::generate(trial.signature).map_err(RoleError::Failed)?;
    let octets: Packet = content(trial.size.bytes, 0).into();
    super::print_ready()?;
    read_input_line()?;
    let mut took_ns = Vec::new();
    for _ in 0..VECTORS {
        took_ns.push(publish(&octets, &*key.signer, trial)?);
    }
    print_line(&json!({ "took_ns": took_ns }))
}
