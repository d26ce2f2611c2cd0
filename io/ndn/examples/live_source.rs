//! Publishes the lines of standard input as they arrive: `live_source NAME`.
//!
//! Each line is a segment of a growing object, signed with the user's default key.

use std::env;
use std::error::Error;
use std::io::{self, BufRead};

use weir_ndn::{Identity, KeyChain, Name, Producer, Session};

fn main() {
    if let Err(error) = run() {
        eprintln!("live_source: {error}");
        std::process::exit(1);
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let name: Name = env::args().nth(1).ok_or("give NAME")?.parse()?;
    let key = KeyChain::open()?.default_signer_or_create()?;
    let certificate = key.certificate().map(|certificate| certificate.wire().to_vec());
    let identity = Identity { certificate, ..Identity::new(key) };

    let producer = Producer::bind(&Session::open()?, name.clone(), identity)?;
    let mut live = producer.publish_live(&name)?;
    println!("live as {}", live.versioned());
    for line in io::stdin().lock().lines() {
        live.append(format!("{}\n", line?).as_bytes())?;
    }
    live.finish()?;
    println!("finished after {} Interests", producer.stats()?.interests);
    // Slow readers may still be reading, so this runs until it is stopped.
    loop {
        producer.recv()?;
    }
}
