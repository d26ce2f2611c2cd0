//! Messages of equal length that return over TCP, through relays.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use serde_json::json;
use weir_base::NS_PER_S;

use super::{RoleError, RoleSpec, content, print_line, read_input_line};

/// Echoes before counting starts.
const WARM_UP: u32 = 20;

pub(super) fn serve(spec: &RoleSpec) -> Result<(), RoleError> {
    let mut stream = accept()?;
    let mut message = vec![0; spec.trial.size.bytes as usize];
    while stream.read_exact(&mut message).is_ok() {
        stream.write_all(&message)?;
    }
    Ok(())
}

/// Forwards from each side to the other in one thread, as a router does.
pub(super) fn relay(spec: &RoleSpec) -> Result<(), RoleError> {
    let mut server = connect(&spec.at)?;
    let mut client = accept()?;
    let mut message = vec![0; spec.trial.size.bytes as usize];
    while client.read_exact(&mut message).is_ok() {
        server.write_all(&message)?;
        server.read_exact(&mut message)?;
        client.write_all(&message)?;
    }
    Ok(())
}

pub(super) fn client(spec: &RoleSpec) -> Result<(), RoleError> {
    let trial = &spec.trial;
    let mut stream = connect(&spec.at)?;
    let sent = content(trial.size.bytes, 0);
    let mut back = vec![0; sent.len()];
    super::print_ready()?;
    read_input_line()?;
    let mut times_s = Vec::with_capacity(trial.count as usize);
    for number in 0..WARM_UP + trial.count {
        let before = Instant::now();
        stream.write_all(&sent)?;
        stream.read_exact(&mut back)?;
        if number >= WARM_UP {
            times_s.push(before.elapsed().as_nanos() as f64 / NS_PER_S as f64);
        }
        if back != sent {
            return Err(RoleError::Failed("a different message returned".into()));
        }
        std::thread::sleep(Duration::from_nanos(trial.gap.ns));
    }
    print_line(&json!({ "times_s": times_s }))
}

/// Prints its address, and accepts one connection.
fn accept() -> Result<TcpStream, RoleError> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    print_line(&json!({ "ready": true, "at": listener.local_addr()?.to_string() }))?;
    let (stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn connect(at: &str) -> Result<TcpStream, RoleError> {
    let stream = TcpStream::connect(at)?;
    stream.set_nodelay(true)?;
    Ok(stream)
}
