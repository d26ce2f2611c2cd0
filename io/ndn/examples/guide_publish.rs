//! Publishes one reading, and another on request.

use std::error::Error;

use weir_ndn::{Identity, KeyChain, Producer, Session};

fn main() {
    if let Err(error) = publish() {
        eprintln!("guide_publish: {error}");
        std::process::exit(1);
    }
}

fn publish() -> Result<(), Box<dyn Error>> {
    let key = KeyChain::open()?.default_signer_or_create()?;
    let certificate = key.certificate().map(|certificate| certificate.wire().to_vec());
    let identity = Identity { certificate, ..Identity::new(key) };
    let producer = Producer::bind(&Session::open()?, "/home".parse()?, identity)?;

    let name = producer.publish(&"/home/kitchen".parse()?, b"21.5\n".to_vec())?;
    println!("published {name}");
    loop {
        let request = producer.recv()?; // a request for an unpublished name

        if request.name().to_string() == "/home/attic" {
            producer.publish(request.name(), b"31.0\n".to_vec())?;
        } else {
            producer.refuse(&request)?;
        }
    }
}
