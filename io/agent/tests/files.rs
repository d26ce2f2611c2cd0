//! A producer and a real controller that is unreachable at first.

use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use weir_agent::{Access, Files, FilesEvent};
use weir_control::File;
use weir_controller::{Config, Role, Server, add_token};

const TEST_TIMEOUT: Duration = Duration::from_secs(60);

fn file(number: u64) -> File {
    let name = format!("/data/{number}/v=1").parse().unwrap();
    File { name, segments: 100, size_bytes: 800_000, packet_bytes: 8200, manifest: vec![] }
}

fn next(events: &Receiver<FilesEvent>) -> FilesEvent {
    events.recv_timeout(TEST_TIMEOUT).expect("something happens")
}

/// The configuration of a controller at this address, and the access of a producer of `/data`.
fn controller(folder: &tempfile::TempDir, listen: SocketAddr) -> (Config, Access) {
    let database = folder.path().join("controller.db").into();
    let prefixes = ["/data".parse().unwrap()];
    let token = add_token(&database, Role::Producer, "producer", None, &prefixes).unwrap();
    let access =
        Access { url: format!("http://{listen}"), token: Some(token), ..Access::default() };
    (Config { listen, database, ..Config::default() }, access)
}

#[test]
fn files_wait_for_an_unreachable_controller() {
    let folder = tempfile::tempdir().unwrap();
    // It accepts connections and does not answer.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let (config, access) = controller(&folder, silent.local_addr().unwrap());
    let (tell, events) = channel();
    let mut files: Vec<File> = (0..1200).map(file).collect();
    files.push(file(1199));
    files.push(File { name: "/others/v=1".parse().unwrap(), ..file(0) });
    let producer = Files::new(&access).unwrap();
    let tell = move |event| drop(tell.send(event));
    let telling = producer.register_in_background(files, Vec::new(), tell).unwrap();
    let FilesEvent::Waiting(_) = next(&events) else { panic!("no controller has answered") };
    // There is one waiting request for all files.
    silent.set_nonblocking(true).unwrap();
    let mut connections = 0;
    while silent.accept().is_ok() {
        connections += 1;
    }
    assert!((1..5).contains(&connections), "{connections} requests");
    drop(silent);
    let server = Server::start(config).unwrap();
    let FilesEvent::Refused(refused) = next(&events) else { panic!("one file has another prefix") };
    assert_eq!(refused.name.to_string(), "/others/v=1");
    assert!(refused.error.contains("/data"), "{}", refused.error);
    let FilesEvent::Done = next(&events) else { panic!("the others are registered") };
    // Registering a file again succeeds, unless its size differs.
    assert_eq!(producer.add(&[file(7)]).unwrap(), []);
    let other = File { segments: 99, ..file(8) };
    assert_eq!(producer.add(&[file(7), other]).unwrap().len(), 1);
    drop(telling);
    server.stop();
}

#[test]
fn permanent_refusals_are_not_retried() {
    let folder = tempfile::tempdir().unwrap();
    let (mut config, mut access) = controller(&folder, SocketAddr::from(([127, 0, 0, 1], 0)));
    config.listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let server = Server::start(config).unwrap();
    access.url = server.url();
    access.token = Some("wrong".into());
    let (tell, events) = channel();
    let producer = Files::new(&access).unwrap();
    let tell = move |event| drop(tell.send(event));
    let _telling = producer.register_in_background(vec![file(1)], Vec::new(), tell).unwrap();
    let FilesEvent::Failed(error) = next(&events) else { panic!("the token is wrong") };
    assert!(error.to_string().contains("401"), "{error}");
}

#[test]
fn withdraws_before_it_registers() {
    let folder = tempfile::tempdir().unwrap();
    let (mut config, mut access) = controller(&folder, SocketAddr::from(([127, 0, 0, 1], 0)));
    config.listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let server = Server::start(config).unwrap();
    access.url = server.url();
    let producer = Files::new(&access).unwrap();
    assert_eq!(producer.add(&[file(1)]).unwrap(), []);
    // A known version cannot change its size, unless it has been withdrawn.
    let other = File { segments: 99, ..file(1) };
    assert_eq!(producer.add(std::slice::from_ref(&other)).unwrap().len(), 1);
    let (tell, events) = channel();
    let tell = move |event| drop(tell.send(event));
    let withdrawn = vec![file(1).name, file(2).name];
    let _telling = producer.register_in_background(vec![other.clone()], withdrawn, tell).unwrap();
    let FilesEvent::Done = next(&events) else { panic!("one is known, and one never was") };
    assert_eq!(producer.add(&[other]).unwrap(), []);
    server.stop();
}
