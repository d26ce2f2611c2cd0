//! Prints an object: guide_get NAME.

use std::error::Error;
use std::io;

use weir_ndn::{Consumer, KeyChain, Name, Session, UserTrust};

fn main() {
    if let Err(error) = get() {
        eprintln!("guide_get: {error}");
        std::process::exit(1);
    }
}

fn get() -> Result<(), Box<dyn Error>> {
    let name: Name = std::env::args().nth(1).ok_or("guide_get NAME")?.parse()?;
    // Trusts the same signers as `weir get`.
    let trust = UserTrust::new(name.clone(), Some(KeyChain::open()?), &[] as &[&str])?;
    let mut consumer = Consumer::bind(&Session::open()?, name.clone(), trust);
    consumer.set("retries", "3")?;

    let mut reader = consumer.fetch(&name)?;
    io::copy(&mut reader, &mut io::stdout())?;
    Ok(())
}
