//! Follows a growing object to standard output, from its newest segment until it ends: `live_watch
//! NAME`. With `--from-start`, prints all of it.

use std::env;
use std::error::Error;
use std::io::{self, BufRead, Write};

use weir_ndn::{Consumer, KeyChain, Name, Session, UserTrust};

fn main() {
    if let Err(error) = run() {
        eprintln!("live_watch: {error}");
        std::process::exit(1);
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let mut arguments: Vec<String> = env::args().skip(1).collect();
    let from_start = arguments.iter().position(|argument| argument == "--from-start");
    from_start.map(|at| arguments.remove(at));
    let [name] = &arguments[..] else { return Err("give [--from-start] NAME".into()) };
    let name: Name = name.parse()?;

    // Trusts the same signers as `weir get`.
    let trust = UserTrust::new(name.clone(), Some(KeyChain::open()?), &[] as &[&str])?;
    let consumer = Consumer::bind(&Session::open()?, name.clone(), trust);
    let mut reader = match from_start {
        Some(_) => consumer.fetch(&name)?,
        None => consumer.fetch_newest(&name)?,
    };
    loop {
        let octets = reader.fill_buf()?;
        if octets.is_empty() {
            return Ok(());
        }
        let mut out = io::stdout().lock();
        out.write_all(octets)?;
        out.flush()?;
        let count = octets.len();
        reader.consume(count);
    }
}
