//! Clients without tokens that hold as many connections as possible.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use weir_controller::Role;

use crate::fixture::{Client, TEST_TIMEOUT, TestServer};

const CONNECTIONS_MAX: usize = 64;

/// A connection with many requests whose answers are not read.
fn pipelining(controller: &TestServer) -> TcpStream {
    let mut stream = TcpStream::connect(controller.url().trim_start_matches("http://")).unwrap();
    stream.set_write_timeout(Some(Duration::from_millis(50))).unwrap();
    let request = b"GET /dashboard.js HTTP/1.1\r\nHost: c\r\n\r\n".repeat(100);
    // Write until the server accepts no more, or has closed the connection.
    while stream.write_all(&request).is_ok() {}
    stream
}

fn is_closed(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let mut octets = [0; 1 << 16];
    loop {
        match stream.read(&mut octets) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => {
                return !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
            }
        }
    }
}

/// Regression: such a client kept all connections for ever, so no other client got an answer.
#[test]
fn stalled_client_blocks_nobody() {
    let controller = TestServer::with(|config| config.connections_max = CONNECTIONS_MAX);
    let operator = controller.client(Role::Operator, "operator");
    let crowd: Vec<TcpStream> = std::thread::scope(|scope| {
        let attempts: Vec<_> =
            (0..2 * CONNECTIONS_MAX).map(|_| scope.spawn(|| pipelining(&controller))).collect();
        attempts.into_iter().map(|attempt| attempt.join().unwrap()).collect()
    });
    let begun = Instant::now();
    assert_eq!(operator.get("/health").status, 200);
    assert_eq!(operator.get("/v1/state").status, 200);
    assert_eq!(Client::new(&controller.url(), "").get("/health").status, 200);
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    let metrics = operator.get("/metrics").text;
    let displaced = "weir_controller_evicted_connections_total ";
    let displaced = metrics.lines().find_map(|line| line.strip_prefix(displaced)).unwrap();
    assert!(displaced.parse::<usize>().unwrap() > CONNECTIONS_MAX, "{displaced}");
    drop(crowd);
}

/// An authenticated connection stays, however many others arrive.
#[test]
fn authenticated_connections_stay_open() {
    let controller = TestServer::with(|config| config.connections_max = CONNECTIONS_MAX);
    let token = controller.client(Role::Reader, "reader").token;
    let ask = |stream: &mut TcpStream| {
        let request =
            format!("GET /v1/routers HTTP/1.1\r\nHost: c\r\nAuthorization: Bearer {token}\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut octets = [0; 4096];
        let count = stream.read(&mut octets).unwrap();
        String::from_utf8_lossy(&octets[..count]).into_owned()
    };
    let connect = || TcpStream::connect(controller.url().trim_start_matches("http://")).unwrap();
    let mut known = connect();
    assert!(ask(&mut known).starts_with("HTTP/1.1 200"));
    let mut crowd: Vec<TcpStream> = (0..2 * CONNECTIONS_MAX).map(|_| connect()).collect();
    let until = Instant::now() + TEST_TIMEOUT;
    while crowd.iter_mut().filter_map(|stream| is_closed(stream).then_some(())).count()
        < CONNECTIONS_MAX
    {
        assert!(Instant::now() < until, "anonymous clients keep their connections");
    }
    assert!(ask(&mut known).starts_with("HTTP/1.1 200"));
}
