//! A collector of OpenTelemetry on this machine: an HTTP server that decodes OTLP. The tests of the
//! program use it, too.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use prost::Message;

/// What a collector does with a request.
#[derive(Clone)]
pub(crate) enum Answer {
    /// A status line without the protocol, and a body.
    With(&'static str, Vec<u8>),
    /// It reads nothing and never answers.
    Never,
}

impl Answer {
    pub(crate) const ACCEPT: Self = Self::With("200 OK", Vec::new());
}

/// A request, with its head in lower case.
pub(crate) struct Received {
    pub(crate) head: String,
    pub(crate) message: ExportTraceServiceRequest,
}

/// Serves requests on a thread until the test ends. Returns the address, and what arrives.
pub(crate) fn collector(answer: Answer) -> (String, Receiver<Received>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let (sender, received) = channel();
    std::thread::spawn(move || {
        let mut stalled = Vec::new();
        for connection in listener.incoming().flatten() {
            match &answer {
                Answer::Never => stalled.push(connection),
                Answer::With(status, body) => {
                    while let Some(request) = serve(&connection, status, body) {
                        // The test may need no more requests.
                        let _ = sender.send(request);
                    }
                }
            }
        }
    });
    (url, received)
}

/// Serves one request; `None` at the end of the connection.
fn serve(mut connection: &TcpStream, status: &str, body: &[u8]) -> Option<Received> {
    let mut reader = BufReader::new(connection);
    let mut head = String::new();
    while reader.read_line(&mut head).ok()? > 2 {}
    let head = head.to_lowercase();
    let len = head.lines().find_map(|line| line.strip_prefix("content-length:"))?;
    let mut request = vec![0; len.trim().parse().ok()?];
    reader.read_exact(&mut request).ok()?;
    write!(connection, "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", body.len()).ok()?;
    connection.write_all(body).ok()?;
    let message = ExportTraceServiceRequest::decode(&request[..]).expect("OTLP in protobuf");
    Some(Received { head, message })
}
