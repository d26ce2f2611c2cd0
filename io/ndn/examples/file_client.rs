//! Fetches an object to standard output, or only its bytes from FIRST to before LAST: `file_client
//! NAME [FIRST LAST]`.

use std::env;
use std::error::Error;
use std::io;

use weir_ndn::{Consumer, KeyChain, Name, Session, UserTrust};

fn main() {
    if let Err(error) = run() {
        eprintln!("file_client: {error}");
        std::process::exit(1);
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let (name, octets) = match &arguments[..] {
        [name] => (name, 0..u64::MAX),
        [name, first, last] => (name, first.parse()?..last.parse()?),
        _ => return Err("give NAME [FIRST LAST]".into()),
    };
    let name: Name = name.parse()?;

    // Trusts the same signers as `weir get`.
    let trust = UserTrust::new(name.clone(), Some(KeyChain::open()?), &[] as &[&str])?;
    let consumer = Consumer::bind(&Session::open()?, name.clone(), trust);
    let mut reader = consumer.fetch_range(&name, octets)?;
    io::copy(&mut reader, &mut io::stdout().lock())?;
    eprintln!("got {}", reader.versioned()?);
    Ok(())
}
