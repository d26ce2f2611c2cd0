//! Checks a configuration without opening what a running router holds.

use std::net::{SocketAddr, UdpSocket};

use weir_face::{FaceUri, ServerCertificate, TlsTrust};

use crate::config::{Listener, RuntimeConfig, StaticFace, THREADS_MAX};
use crate::error::StartError;
use crate::memory::memory_bytes_min;

/// Checks the values, and the files, addresses and disks that they name.
pub(crate) fn check(config: &RuntimeConfig) -> Result<(), StartError> {
    check_values(config)?;
    check_names(config)?;
    TlsTrust::new(config.face_defaults.tls_ca.clone())?;
    for listener in &config.listeners {
        check_listener(listener)?;
    }
    if let Some(address) = config.metrics {
        check_address(address)
            .map_err(|error| StartError::Metrics { address, reason: error.to_string() })?;
    }
    for file in config.disks.iter().flat_map(|disks| &disks.files) {
        weir_disk::check(file)?;
    }
    Ok(())
}

/// Checks values that contradict each other.
pub(crate) fn check_values(config: &RuntimeConfig) -> Result<(), StartError> {
    let fail = |what: String| Err(StartError::Config(what));
    if !(1..=THREADS_MAX).contains(&config.threads) {
        return fail(format!("threads is {}; it must be 1 to {THREADS_MAX}", config.threads));
    }
    let least_bytes = memory_bytes_min(config.threads);
    if config.memory_bytes_max < least_bytes {
        return fail(format!(
            "memory_bytes_max is {}; {} worker threads need {least_bytes}",
            config.memory_bytes_max, config.threads
        ));
    }
    if config.pit_entries_max < config.threads {
        return fail("pit_entries_max is too small; give at least 1000".into());
    }
    if config.management.localhop && config.management.trust_anchors.is_empty() {
        return fail("localhop management needs at least one trust anchor".into());
    }
    Ok(())
}

/// Checks the names of strategies and the URIs of static faces.
fn check_names(config: &RuntimeConfig) -> Result<(), StartError> {
    for (prefix, strategy) in &config.strategies {
        weir_manage::check_strategy(strategy).map_err(|reason| {
            StartError::Config(format!(
                "the strategy {strategy} of {prefix} cannot be used: {reason}; correct its name, \
                 or leave the version out"
            ))
        })?;
    }
    for StaticFace { uri, .. } in &config.static_faces {
        FaceUri::check(uri).map_err(|error| {
            StartError::Config(format!("[[face]] {uri}: {error}; correct its `uri`"))
        })?;
    }
    Ok(())
}

fn check_listener(listener: &Listener) -> Result<(), StartError> {
    let (scheme, address, required) = match listener {
        Listener::Unix(_) | Listener::UnixDefault => return Ok(()),
        Listener::Udp { format, address, required } => (format.scheme(), *address, *required),
        Listener::Tcp { address, required } => ("tcp", *address, *required),
        Listener::WebSocket { address, required } => ("ws", *address, *required),
        Listener::WebSocketTls { address, required, files } => {
            ServerCertificate::load(files)?;
            ("wss", *address, *required)
        }
    };
    match check_address(address) {
        Err(source) if required => Err(StartError::Listen { scheme, address, source }),
        _ => Ok(()),
    }
}

/// Whether the address belongs to this machine. Its port may be in use.
fn check_address(address: SocketAddr) -> std::io::Result<()> {
    UdpSocket::bind(SocketAddr::new(address.ip(), 0)).map(drop)
}
