//! Shared helpers of the measurements: medians, applications that register prefixes, processor time
//! of threads, and packets with names of eight components, encoded by hand for speed.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail, ensure};
use weir_manage::commands::{Command, Scope, build_command};
use weir_manage::{ControlParameters, ControlResponse, Element as _};
use weir_security::DigestSigner;
use weir_wire::{DataView, LpView, peek_frame};

/// Number of components of every name here.
pub const NAME_COMPONENTS: usize = 8;
/// Number of names that share their first seven components.
pub const NAMES_PER_PARENT: u64 = 128;

/// Appends a TLV with a type below 253.
pub fn tlv(typ: u8, value: &[u8], out: &mut Vec<u8>) {
    out.push(typ);
    match value.len() {
        len @ 0..=252 => out.push(len as u8),
        len => {
            out.push(253);
            out.extend_from_slice(&(len as u16).to_be_bytes());
        }
    }
    out.extend_from_slice(value);
}

/// The TLV-VALUE of name number `index`:
/// `/weir/site07/run0012/set034/objects/00000042/54=1/50=<n>`.
pub fn name_value(index: u64) -> Vec<u8> {
    let parent = index / NAMES_PER_PARENT;
    let mut value = Vec::with_capacity(80);
    tlv(8, b"weir", &mut value);
    tlv(8, format!("site{:02}", parent % 16).as_bytes(), &mut value);
    tlv(8, format!("run{:04}", parent / 16 % 64).as_bytes(), &mut value);
    tlv(8, format!("set{:03}", parent / 1024 % 128).as_bytes(), &mut value);
    tlv(8, b"objects", &mut value);
    tlv(8, format!("{parent:08}").as_bytes(), &mut value);
    tlv(54, &[1], &mut value);
    tlv(50, &[(index % NAMES_PER_PARENT) as u8], &mut value);
    value
}

/// An Interest for name number `index`.
pub fn interest(index: u64, nonce: u32) -> Vec<u8> {
    let mut value = Vec::with_capacity(100);
    tlv(7, &name_value(index), &mut value);
    tlv(10, &nonce.to_be_bytes(), &mut value);
    let mut wire = Vec::with_capacity(104);
    tlv(5, &value, &mut wire);
    wire
}

/// A Data of name number `index` with `payload_len` bytes of content and a digest signature that no
/// router checks.
pub fn data(index: u64, payload_len: usize) -> Vec<u8> {
    let mut value = Vec::with_capacity(payload_len + 160);
    tlv(7, &name_value(index), &mut value);
    tlv(20, &[25, 2, 0x27, 0x10], &mut value);
    tlv(21, &vec![b'w'; payload_len], &mut value);
    tlv(22, &[27, 1, 0], &mut value);
    tlv(23, &[0; 32], &mut value);
    let mut wire = Vec::with_capacity(value.len() + 4);
    tlv(6, &value, &mut wire);
    wire
}

/// The median; the upper one of an even number.
///
/// # Panics
/// If `figures` is empty.
pub fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Registers a prefix for an application, over `stream` or a new connection. Returns the
/// connection. The router must send nothing else over it before the answer.
pub fn register(
    stream: Option<UnixStream>,
    socket: &Path,
    prefix: &str,
    limit: Duration,
) -> anyhow::Result<UnixStream> {
    // Added to the time, so that no two commands have the same timestamp and nonce.
    static TIME: AtomicU64 = AtomicU64::new(0);
    let unix_ms = SystemTime::UNIX_EPOCH.elapsed()?.as_millis() as u64;
    let time = TIME.fetch_add(1, Ordering::Relaxed) + unix_ms;
    let parameters = ControlParameters { name: Some(prefix.parse()?), ..Default::default() };
    let scope = Scope::Localhost;
    let nonce = time.to_be_bytes();
    let command =
        build_command(scope, Command::RibRegister, &parameters, &DigestSigner, nonce, time)?;
    let mut stream = match stream {
        Some(stream) => stream,
        None => UnixStream::connect(socket)?,
    };
    stream.set_read_timeout(Some(limit))?;
    stream.write_all(&command)?;
    let mut octets = Vec::new();
    loop {
        if let Ok(Some(len)) = peek_frame(&octets)
            && len <= octets.len()
        {
            let packet = LpView::decode(&octets[..len])?.fragment.context("no packet")?;
            let content = DataView::decode(packet)?.content;
            ensure!(ControlResponse::decode(content)?.code == 200, "refused");
            return Ok(stream);
        }
        let mut chunk = [0; 4096];
        match stream.read(&mut chunk)? {
            0 => bail!("the router closes"),
            read => octets.extend_from_slice(&chunk[..read]),
        }
    }
}

/// Processor time of each thread of a process so far in ns, by name and number, from
/// `/proc/<id>/task/<thread>/schedstat`; `stat` has a resolution of 10 ms only.
pub fn threads_ns(id: u32) -> anyhow::Result<Vec<(String, u64)>> {
    let mut threads = Vec::new();
    let tasks = std::fs::read_dir(format!("/proc/{id}/task")).context("the router has ended")?;
    for task in tasks {
        let path = task?.path();
        // A thread may have ended meanwhile.
        let read = |file: &str| std::fs::read_to_string(path.join(file));
        let (Ok(name), Ok(schedstat)) = (read("comm"), read("schedstat")) else { continue };
        let ran = schedstat.split_whitespace().next().context("three numbers")?;
        threads.push((format!("{} {}", name.trim(), path.display()), ran.parse()?));
    }
    Ok(threads)
}
