//! Single packets created for each Interest (paper socket-api, Table 3).

use std::time::{Duration, Instant};

use serde_json::json;
use weir_base::NS_PER_S;
use weir_security::verify_data;
use weir_socket::{Consumer, ConsumerOptions, Identity, Producer, ProducerOptions};
use weir_transport::NameMapping;
use weir_wire::{DataView, Interest, Name};

use super::super::keys::Key;
use super::{RoleError, RoleSpec, content, digits, print_line, read_input_line};

/// Answers before counting starts.
const WARM_UP: u32 = 20;

pub(super) fn answer(spec: &RoleSpec) -> Result<(), RoleError> {
    let key = Key::generate(spec.trial.signature).map_err(RoleError::Failed)?;
    let identity = Identity { signer: key.signer, certificate: None };
    let session = spec.session()?;
    let options = ProducerOptions { mapping: spec.mapping()?, ..ProducerOptions::default() };
    let producer = Producer::bind_with(&session, spec.prefix(), identity, options)?;
    let octets = content(spec.trial.size.bytes, 0);
    std::thread::spawn(|| {
        // Waits for the end of the input.
        while read_input_line().is_ok() {}
        std::process::exit(0);
    });
    print_line(&json!({ "ready": true, "key": digits(&key.verifying_key) }))?;
    loop {
        let request = producer.recv()?;
        producer.answer(&request, &octets)?;
    }
}

pub(super) fn ask(spec: &RoleSpec) -> Result<(), RoleError> {
    let trial = &spec.trial;
    let session = spec.session()?;
    let mapping = spec.mapping()?;
    let verifier = spec.verifier()?;
    let mut consumer = Consumer::bind(&session, spec.prefix(), verifier.clone());
    consumer.set_options(ConsumerOptions { mapping, ..ConsumerOptions::default() })?;
    super::print_ready()?;
    read_input_line()?;
    let mut times_s = Vec::with_capacity(trial.count as usize);
    for number in 0..WARM_UP + trial.count {
        let name = network_name(spec, &mapping, number);
        let interest = Interest { nonce: Some(number), ..Interest::new(name) }.encode();
        let before = Instant::now();
        let packet = consumer.express(&interest)?.wait()?;
        let data = DataView::decode(&packet).map_err(|error| wrong(&error))?;
        if trial.verify && spec.is_signed() {
            verify_data(&data, &*verifier).map_err(|error| wrong(&error))?;
        }
        if number >= WARM_UP {
            times_s.push(before.elapsed().as_nanos() as f64 / NS_PER_S as f64);
        }
        if data.content.len() as u64 != trial.size.bytes {
            return Err(RoleError::Failed(format!("got {} bytes", data.content.len())));
        }
        std::thread::sleep(Duration::from_nanos(trial.gap.ns));
    }
    print_line(&json!({ "times_s": times_s }))
}

/// The name of an answer in the network: the only segment of an object.
fn network_name(spec: &RoleSpec, mapping: &NameMapping, number: u32) -> Name {
    let mut object = spec.prefix();
    object.append_str(&number.to_string());
    let mut name = mapping.version_prefix(object.as_view());
    name.append_segment(0);
    name
}

fn wrong(error: &dyn std::fmt::Display) -> RoleError {
    RoleError::Failed(error.to_string())
}
