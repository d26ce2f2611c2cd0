//! Paths of Unix sockets: replacing stale ones, and removing them.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener as PlainListener, UnixStream};

use weir_face::{BindError, TcpListener, UnixAccess, UnixListener};

#[test]
fn replaces_only_dead_sockets() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("nfd.sock");
    drop(PlainListener::bind(&path).unwrap());
    assert!(path.exists(), "a killed router leaves its socket");

    let listener = UnixListener::bind(&path, UnixAccess::default()).unwrap();
    match UnixListener::bind(&path, UnixAccess::default()) {
        Err(BindError::AddressInUse { path: found }) => assert_eq!(found, path),
        other => panic!("{other:?}"),
    }
    // The attempt took one connection, and changed nothing else.
    while listener.accept().unwrap().is_some() {}
    let _stream = UnixStream::connect(&path).unwrap();
    assert!(listener.accept().unwrap().is_some());

    drop(listener);
    assert!(!path.exists());
}

#[test]
fn keeps_file_that_is_not_a_socket() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("nfd.sock");
    fs::write(&path, "precious").unwrap();
    assert!(matches!(
        UnixListener::bind(&path, UnixAccess::default()),
        Err(BindError::NotASocket { .. })
    ));
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
}

#[test]
fn another_routers_socket_is_not_removed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("nfd.sock");
    let first = UnixListener::bind(&path, UnixAccess::default()).unwrap();
    fs::remove_file(&path).unwrap();
    let second = UnixListener::bind(&path, UnixAccess::default()).unwrap();
    drop(first);
    assert!(path.exists());
    drop(second);
    assert!(!path.exists());
}

#[test]
fn directory_is_private_and_socket_public() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a/b/nfd.sock");
    let listener = UnixListener::bind(&path, UnixAccess::default()).unwrap();
    let mode = |path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(path.parent().unwrap()), 0o700);
    assert_eq!(mode(listener.path()), 0o666);
    assert_eq!(fs::metadata(&path).unwrap().uid(), nix_uid());
}

fn nix_uid() -> u32 {
    fs::metadata("/proc/self").unwrap().uid()
}

#[test]
fn a_path_too_long_for_a_socket_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let error = UnixListener::bind(&directory.path().join("x".repeat(120)), UnixAccess::default())
        .unwrap_err();
    assert!(matches!(error, BindError::Io { .. }), "{error}");
}

#[test]
fn a_tcp_port_in_use_is_named() {
    let first = TcpListener::bind(([127, 0, 0, 1], 0).into()).unwrap();
    let error = TcpListener::bind(first.local_addr()).unwrap_err();
    assert!(error.to_string().contains(&first.local_addr().to_string()), "{error}");
}
