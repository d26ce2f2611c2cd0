//! The PostgreSQL server is killed at various moments. Everything that a controller has confirmed
//! must be there afterwards.

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use weir_controller::Role;

use crate::fixture::{TestServer, eventually, file};
use crate::postgres::Postgres;

/// When the server is killed, in milliseconds after the first file of a round.
const KILLED_AFTER_MS: [u64; 5] = [0, 13, 57, 120, 230];

#[test]
fn accepted_files_survive_kills_of_the_server() {
    let mut server = Postgres::start();
    let database = server.database("");
    server.stop();
    // A controller must not rely on these settings of the administrator.
    server.set(["synchronous_commit=off".to_owned(), "wal_writer_delay=10s".to_owned()]);
    server.resume();
    let controller = TestServer::on(server.url(&database), tempfile::tempdir().unwrap(), |_| {});
    let producer = controller.client(Role::Operator, "producer");
    let mut accepted = BTreeSet::new();
    for (round, after_ms) in KILLED_AFTER_MS.into_iter().enumerate() {
        let (begun, has_begun) = std::sync::mpsc::channel();
        let producer = &producer;
        thread::scope(|scope| {
            let registering = scope.spawn(move || {
                let mut accepted = Vec::new();
                for number in 0.. {
                    let name = format!("/{round}/{number}/v=1");
                    match producer.post("/v1/files", &file(&name, 10)).status {
                        201 => accepted.push(name),
                        503 => break,
                        status => panic!("{name}: {status}"),
                    }
                    let _ = begun.send(());
                }
                accepted
            });
            has_begun.recv().unwrap();
            thread::sleep(Duration::from_millis(after_ms));
            server.crash();
            accepted.extend(registering.join().unwrap());
        });
        server.resume();
        let names = server.sql(&database, "SELECT name FROM files");
        let found: BTreeSet<String> = names.lines().map(str::to_owned).collect();
        let lost: Vec<_> = accepted.difference(&found).collect();
        assert!(lost.is_empty(), "round {round}, of {} files: {lost:?}", accepted.len());
        let name = format!("/{round}/late/v=1");
        let is_taken = || producer.post("/v1/files", &file(&name, 10)).status < 300;
        eventually(is_taken, "a registration after the restart");
        accepted.insert(name);
        eventually(|| producer.get("/health").status == 200, "a healthy state");
    }
}
