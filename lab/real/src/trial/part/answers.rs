//! Single packets, made when an Interest asks for them (paper socket-api, Table 3).

use std::time::{Duration, Instant};

use serde_json::json;
use weir_base::NS_PER_S;
use weir_security::{sign_data, verify_data};
use weir_socket::{Consumer, Identity, Producer};
use weir_wire::{Data, DataView, Interest};

use super::super::keys::Key;
use super::{PartError, PartSpec, content, digits, say, told};

/// Answers before those that count.
const WARM_UP: u32 = 20;

pub(super) fn answer(spec: &PartSpec) -> Result<(), PartError> {
    let key = Key::generate(spec.trial.signature).map_err(PartError::Wrong)?;
    let signer = key.signer.clone();
    let identity = Identity { signer: key.signer, certificate: None };
    let session = spec.session()?;
    let producer = Producer::bind(&session, spec.prefix(), identity)?;
    let octets = content(spec.trial.size.bytes, 0);
    std::thread::spawn(|| {
        // Only its end is waited for.
        while told().is_ok() {}
        std::process::exit(0);
    });
    say(&json!({ "ready": true, "key": digits(&key.shown) }))?;
    loop {
        let request = producer.recv()?;
        let mut data = Data::new(request.name().clone());
        data.content = octets.clone();
        let packet = sign_data(&data, &*signer).map_err(|error| wrong(&error))?;
        producer.publish_packet(packet)?;
    }
}

pub(super) fn ask(spec: &PartSpec) -> Result<(), PartError> {
    let trial = &spec.trial;
    let session = spec.session()?;
    let prefix = spec.prefix();
    let verifier = spec.verifier()?;
    let consumer = Consumer::bind(&session, prefix.clone(), verifier.clone());
    super::say_ready()?;
    told()?;
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
            return Err(PartError::Wrong(format!("got {} octets", data.content.len())));
        }
        std::thread::sleep(Duration::from_nanos(trial.gap.ns));
    }
    say(&json!({ "times_s": times_s }))
}

fn wrong(error: &dyn std::fmt::Display) -> PartError {
    PartError::Wrong(error.to_string())
}
