//! Strangers that hold connections for as long as they can.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use weir_controller::Role;

use crate::bench::{Bench, Client, PATIENCE};

const CONNECTIONS_MAX: usize = 64;

/// A connection on which much is asked for and nothing is read.
fn pipelining(bench: &Bench) -> TcpStream {
    let mut stream = TcpStream::connect(bench.url().trim_start_matches("http://")).unwrap();
    stream.set_write_timeout(Some(Duration::from_millis(50))).unwrap();
    let request = b"GET /dashboard.js HTTP/1.1\r\nHost: c\r\n\r\n".repeat(100);
    // Until it takes no more, or has closed it.
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

/// Regression: it took all connections for ever, and nobody else got an answer.
#[test]
fn stalled_client_blocks_nobody() {
    let bench = Bench::with(|config| config.connections_max = CONNECTIONS_MAX);
    let operator = bench.client(Role::Operator, "operator");
    let crowd: Vec<TcpStream> = std::thread::scope(|scope| {
        let attempts: Vec<_> =
            (0..2 * CONNECTIONS_MAX).map(|_| scope.spawn(|| pipelining(&bench))).collect();
        attempts.into_iter().map(|attempt| attempt.join().unwrap()).collect()
    });
    let begun = Instant::now();
    assert_eq!(operator.get("/health").status, 200);
    assert_eq!(operator.get("/v1/state").status, 200);
    assert_eq!(Client::new(&bench.url(), "").get("/health").status, 200);
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    let metrics = operator.get("/metrics").text;
    let displaced = "weir_controller_displaced_connections ";
    let displaced = metrics.lines().find_map(|line| line.strip_prefix(displaced)).unwrap();
    assert!(displaced.parse::<usize>().unwrap() > CONNECTIONS_MAX, "{displaced}");
    drop(crowd);
}

/// One that has shown its token stays, whoever comes.
#[test]
fn authenticated_connections_stay_open() {
    let bench = Bench::with(|config| config.connections_max = CONNECTIONS_MAX);
    let token = bench.client(Role::Reader, "reader").token;
    let ask = |stream: &mut TcpStream| {
        let request =
            format!("GET /v1/routers HTTP/1.1\r\nHost: c\r\nAuthorization: Bearer {token}\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut octets = [0; 4096];
        let count = stream.read(&mut octets).unwrap();
        String::from_utf8_lossy(&octets[..count]).into_owned()
    };
    let connect = || TcpStream::connect(bench.url().trim_start_matches("http://")).unwrap();
    let mut known = connect();
    assert!(ask(&mut known).starts_with("HTTP/1.1 200"));
    let mut crowd: Vec<TcpStream> = (0..2 * CONNECTIONS_MAX).map(|_| connect()).collect();
    let until = Instant::now() + PATIENCE;
    while crowd.iter_mut().filter_map(|stream| is_closed(stream).then_some(())).count()
        < CONNECTIONS_MAX
    {
        assert!(Instant::now() < until, "strangers keep their connections");
    }
    assert!(ask(&mut known).starts_with("HTTP/1.1 200"));
}
