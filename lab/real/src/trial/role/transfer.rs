//! Whole objects from a producer socket to a consumer socket.

use std::io::{BufRead as _, ErrorKind};
use std::time::{Duration, Instant};

use serde_json::json;
use weir_base::units::{Size, Time};
use weir_base::{NS_PER_S, Packet};
use weir_scenario::trial::{Publication, SignatureScope};
use weir_security::{DigestVerifier, Verifier};
use weir_socket::{
    Consumer, ConsumerOptions, Identity, Producer, ProducerOptions, Reader, SigningMode, Word,
};
use weir_wire::Name;

use super::super::super::proc::own_cpu_ns;
use super::super::keys::Key;
use super::{RoleError, RoleSpec, content, digits, print_line, read_input_line};

/// Publishing a whole object with slow signatures may take this long.
const WAIT_MAX: Time = Time { ns: 600 * NS_PER_S };

pub(super) fn produce(spec: &RoleSpec) -> Result<(), RoleError> {
    let trial = &spec.trial;
    let key = Key::generate(trial.signature).map_err(RoleError::Failed)?;
    let identity = Identity { signer: key.signer, certificate: None };
    let segments = trial.size.bytes.div_ceil(trial.segment.bytes.max(1));
    let options = ProducerOptions {
        segment_size: trial.segment,
        // All of it, with names and signatures.
        output_buffer: Size { bytes: trial.size.bytes + segments * 1024 + (1 << 20) },
        signs: Word(match trial.signs {
            SignatureScope::Packets => SigningMode::Segments,
            SignatureScope::Manifest => SigningMode::Manifest,
        }),
        request_wait: WAIT_MAX,
        mapping: spec.mapping()?,
        ..ProducerOptions::default()
    };
    let session = spec.session()?;
    let prefix = spec.prefix();
    let producer = Producer::bind_with(&session, prefix.clone(), identity, options)?;
    let octets: Packet = content(trial.size.bytes, u64::from(spec.index)).into();
    let publish = || {
        let before = Instant::now();
        producer.publish(&prefix, octets.clone())?;
        Ok::<u64, RoleError>(before.elapsed().as_nanos() as u64)
    };
    let mut took_ns = 0;
    if trial.publication == Publication::Asynchronous {
        took_ns = publish()?;
    }
    print_line(&json!({ "ready": true, "key": digits(&key.verifying_key) }))?;
    if trial.publication == Publication::Synchronous {
        producer.recv()?;
        took_ns = publish()?;
    }
    loop {
        let cpu_before_ns = own_cpu_ns();
        read_input_line()?;
        let cpu_ns = own_cpu_ns() - cpu_before_ns;
        print_line(&json!({ "published_ns": took_ns, "cpu_ns": cpu_ns }))?;
    }
}

pub(super) fn consume(spec: &RoleSpec) -> Result<(), RoleError> {
    let trial = &spec.trial;
    let session = spec.session()?;
    let prefix = spec.prefix();
    let verifier: std::sync::Arc<dyn Verifier> = match spec.is_signed() {
        true => spec.verifier()?,
        false => std::sync::Arc::new(DigestVerifier),
    };
    let mut consumer = Consumer::bind(&session, prefix.clone(), verifier);
    consumer.set_options(ConsumerOptions {
        verify: trial.verify && spec.is_signed(),
        manifest: trial.signs == SignatureScope::Manifest,
        lifetime: WAIT_MAX,
        mapping: spec.mapping()?,
        ..ConsumerOptions::default()
    })?;
    super::print_ready()?;
    loop {
        read_input_line()?;
        let (before, cpu_before_ns) = (Instant::now(), own_cpu_ns());
        let mut reader = first_answer(&consumer, &prefix, before)?;
        let mut octets = 0;
        let mut head = Vec::new();
        loop {
            let read = reader.fill_buf()?;
            if read.is_empty() {
                break;
            }
            if octets == 0 {
                head = read.to_vec();
            }
            let len = read.len();
            octets += len as u64;
            reader.consume(len);
        }
        let took_ns = before.elapsed().as_nanos() as u64;
        let cpu_ns = own_cpu_ns() - cpu_before_ns;
        // Only the first block is compared, and only now, because this also takes processor time.
        let is_right = content(head.len() as u64, u64::from(spec.index)) == head;
        if octets != trial.size.bytes || !is_right {
            return Err(RoleError::Failed(format!("got {octets} bytes, not those published")));
        }
        if reader.is_verified() != (trial.verify && spec.is_signed()) {
            return Err(RoleError::Failed("was verified in another way than requested".into()));
        }
        print_line(&json!({ "took_ns": took_ns, "octets": octets, "cpu_ns": cpu_ns }))?;
    }
}

/// Fetches an object whose producer may still be signing it, which can take longer than a consumer
/// waits for an answer.
fn first_answer(consumer: &Consumer, name: &Name, since: Instant) -> Result<Reader, RoleError> {
    loop {
        let mut reader = consumer.fetch(name)?;
        match reader.fill_buf() {
            Err(error)
                if error.kind() == ErrorKind::TimedOut
                    && since.elapsed() < Duration::from_nanos(WAIT_MAX.ns) => {}
            Err(error) => return Err(error.into()),
            Ok(_) => return Ok(reader),
        }
    }
}
