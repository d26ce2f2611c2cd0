//! Many sockets of one process, and the memory of each.

use std::io::Read as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use weir_base::NS_PER_S;
use weir_base::units::Time;
use weir_scenario::trial::Sockets;
use weir_security::{DigestSigner, DigestVerifier, Verifier};
use weir_socket::{
    Consumer, ConsumerOptions, Identity, Producer, ProducerOptions, Reader, Session,
};
use weir_wire::Name;

use super::super::super::proc::resident_bytes;
use super::{RoleError, RoleSpec, content, print_line, read_input_line};

/// Bytes that each socket publishes or fetches after its memory was measured.
const CONTENT_BYTES: u64 = 100;
/// Time for the memory use to settle.
const SETTLE: Duration = Duration::from_millis(300);
/// More than the number of sockets.
const REQUESTS_MAX: u32 = 1 << 20;
const WAIT_MAX: Time = Time { ns: 600 * NS_PER_S };

pub(super) fn sockets(spec: &RoleSpec) -> Result<(), RoleError> {
    let count = spec.trial.count;
    let session = spec.session()?;
    // Memory that only the first socket causes must not count for the others.
    let first = producer(&session, count)?;
    super::print_ready()?;
    read_input_line()?;
    let before_bytes = resident_bytes(std::process::id())?;
    let before = Instant::now();
    let mut held = OpenSockets::default();
    for number in 0..count {
        match spec.trial.sockets {
            Sockets::Producers => held.producers.push(producer(&session, number)?),
            Sockets::Consumers => held.consumers.push(consumer(&session, first.prefix())?),
            Sockets::Fetches => {
                let consumer = consumer(&session, first.prefix())?;
                held.readers.push(consumer.fetch(&object(&first, number))?);
                held.consumers.push(consumer);
            }
        }
    }
    let took_ns = before.elapsed().as_nanos() as u64;
    std::thread::sleep(SETTLE);
    let after_bytes = resident_bytes(std::process::id())?;
    held.check_usable(&session, &first)?;
    print_line(&json!({
        "bytes_each": after_bytes.saturating_sub(before_bytes) as f64 / f64::from(count),
        "took_s": took_ns as f64 / NS_PER_S as f64 / f64::from(count),
    }))
}

/// The sockets that are measured.
#[derive(Default)]
struct OpenSockets {
    producers: Vec<Producer>,
    consumers: Vec<Consumer>,
    readers: Vec<Reader>,
}

impl OpenSockets {
    /// Checks that each socket works.
    fn check_usable(self, session: &Session, first: &Producer) -> Result<(), RoleError> {
        let mut readers = self.readers.into_iter();
        for (number, consumer) in (0..).zip(&self.consumers) {
            let name = object(first, number);
            let begun = readers.next();
            first.publish(&name, content(CONTENT_BYTES, u64::from(number)))?;
            expect(begun.map_or_else(|| consumer.fetch(&name), Ok)?, number)?;
        }
        for (number, producer) in (0..).zip(&self.producers) {
            producer.publish(producer.prefix(), content(CONTENT_BYTES, u64::from(number)))?;
            expect(consumer(session, producer.prefix())?.fetch(producer.prefix())?, number)?;
        }
        Ok(())
    }
}

/// The name of an object with this number.
fn object(producer: &Producer, number: u32) -> Name {
    let mut name = producer.prefix().clone();
    name.append_str(&number.to_string());
    name
}

fn expect(mut reader: Reader, number: u32) -> Result<(), RoleError> {
    let mut octets = Vec::new();
    reader.read_to_end(&mut octets)?;
    match octets == content(CONTENT_BYTES, u64::from(number)) {
        true => Ok(()),
        false => Err(RoleError::Failed(format!("socket {number} got something else"))),
    }
}

fn producer(session: &Session, number: u32) -> Result<Producer, RoleError> {
    let mut prefix = super::trial_prefix();
    prefix.append_str(&number.to_string());
    let options = ProducerOptions {
        request_wait: WAIT_MAX,
        requests_max: REQUESTS_MAX,
        ..ProducerOptions::default()
    };
    Ok(Producer::bind_with(session, prefix, Identity::new(DigestSigner), options)?)
}

fn consumer(session: &Session, prefix: &Name) -> Result<Consumer, RoleError> {
    let anybody: Arc<dyn Verifier> = Arc::new(DigestVerifier);
    let mut consumer = Consumer::bind(session, prefix.clone(), anybody);
    consumer.set_options(ConsumerOptions { lifetime: WAIT_MAX, ..ConsumerOptions::default() })?;
    Ok(consumer)
}
