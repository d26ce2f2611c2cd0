//! Single packets created for each Interest (paper socket-api, Table 3).

use std::time::{Duration, Instant};

use serde_json::json;
use weir_base::NS_PER_S;
use weir_security::{sign_data, verify_data};
use weir_socket::{Consumer, Identity, Producer};
use weir_wire::{Data, DataView, Interest};

use super::super::keys::Key;
use super::{RoleError, RoleSpec, content, digits, print_line, read_input_line};

/// Answers before counting starts.
const WARM_UP: u32 = 20;

pub(super) fn answer(spec: &RoleSpec) -> Result<(), RoleError> {
    let key = Key::generate(spec.trial.signature).map_err(RoleError::Failed)?;
    let signer = key.signer.clone();
    let identity = Identity { signer: key.signer, certificate: None };
    let session = spec.session()?;
    let producer = Producer::bind(&session, spec.prefix(), identity)?;
    let octets = content(spec.trial.size.bytes, 0);
    std::thread::spawn(|| {
        // Waits for the end of the input.
        while read_input_line().is_ok() {}
        std::process::exit(0);
    });
    print_line(&json!({ "ready": true, "key": digits(&key.verifying_key) }))?;
    loop {
        let request = producer.recv()?;
        let mut data = Data::new(request.name().clone());
        data.content = octets.clone();
        let packet = sign_data(&data, &*signer).map_err(|error| wrong(&error))?;
        producer.publish_packet(packet)?;
    }
}

pub(super) fn ask(spec: &RoleSpec) -> Result<(), RoleError> {
    let trial = &spec.trial;
    let session = spec.session()?;
    let prefix = spec.prefix();
    let verifier = spec.verifier()?;
    let consumer = Consumer::bind(&session, prefix.clone(), verifier.clone());
    super::print_ready()?;
    read_input_line()?;
    let mut times_s = Vec::with_capacity(trial.count as usize);
    for number in 0..WARM_UP + trial.count {
        let mut name = prefix.clone();
        name.append_str(&number.to_string());
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

fn wrong(error: &dyn std::fmt::Display) -> RoleError {
    RoleError::Failed(error.to_string())
}
