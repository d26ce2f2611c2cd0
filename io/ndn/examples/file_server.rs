//! Serves the files of a directory: `file_server DIRECTORY PREFIX`.
//!
//! A file is read, and signed with the user's default key, when a consumer requests it.

use std::env;
use std::error::Error;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use weir_ndn::{Identity, KeyChain, Name, Producer, Session};

fn main() {
    if let Err(error) = run() {
        eprintln!("file_server: {error}");
        std::process::exit(1);
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let (Some(directory), Some(prefix)) = (arguments.next(), arguments.next()) else {
        return Err("give DIRECTORY PREFIX".into());
    };
    let key = KeyChain::open()?.default_signer_or_create()?;
    let certificate = key.certificate().map(|certificate| certificate.wire().to_vec());
    let identity = Identity { certificate, ..Identity::new(key) };

    let producer = Producer::bind(&Session::open()?, prefix.parse()?, identity)?;
    println!("serving {directory} as {prefix}");
    loop {
        let request = producer.recv()?;
        let path = path_of(Path::new(&directory), producer.prefix(), request.name());
        match path.map(fs::read) {
            Some(Ok(octets)) => println!("{}", producer.publish(request.name(), octets)?),
            _ => producer.refuse(&request)?,
        }
    }
}

/// The file for a name below `prefix`. A request must not reach files outside the directory.
fn path_of(directory: &Path, prefix: &Name, name: &Name) -> Option<PathBuf> {
    let mut path = directory.to_owned();
    let own = prefix.as_view().component_count();
    for part in name.as_view().components().skip(own) {
        let part = Path::new(std::ffi::OsStr::from_bytes(part.value));
        let mut parts = part.components();
        match (parts.next(), parts.next()) {
            (Some(Component::Normal(part)), None) => path.push(part),
            _ => return None,
        }
    }
    Some(path)
}
