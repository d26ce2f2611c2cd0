//! A small HTTP server that answers as a test says, also wrongly.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// The head of a request.
#[derive(Clone, Debug)]
pub struct HttpRequest {
    pub method: String,
    /// Path and query.
    pub target: String,
    /// Names in lower case.
    pub fields: Vec<(String, String)>,
}

impl HttpRequest {
    /// The value of a field; empty if there is none.
    pub fn field(&self, name: &str) -> &str {
        let found = self.fields.iter().find(|(other, _)| other == name);
        found.map_or("", |(_, value)| value)
    }

    /// The bounds of the field `Range`, of content of `len` bytes.
    pub fn range(&self, len: usize) -> Option<(usize, usize)> {
        let (start, end) = self.field("range").strip_prefix("bytes=")?.split_once('-')?;
        let end = end.parse::<usize>().map_or(len, |end| (end + 1).min(len));
        Some((start.parse().ok()?, end))
    }
}

/// Listens on loopback. Each connection has one request.
pub struct HttpServer {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<HttpRequest>>>,
    is_down: Arc<AtomicBool>,
}

impl HttpServer {
    /// A server whose `answer` writes whole responses.
    ///
    /// # Panics
    /// If it cannot listen.
    pub fn start(answer: impl Fn(&HttpRequest, &mut TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let requests = Arc::<Mutex<Vec<HttpRequest>>>::default();
        let is_down = Arc::<AtomicBool>::default();
        let (seen, down, answer) = (requests.clone(), is_down.clone(), Arc::new(answer));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { continue };
                if down.load(Ordering::Relaxed) {
                    continue;
                }
                let (seen, answer) = (seen.clone(), answer.clone());
                thread::spawn(move || {
                    let Some(request) = read_head(&stream) else { return };
                    seen.lock().unwrap_or_else(PoisonError::into_inner).push(request.clone());
                    answer(&request, &mut stream);
                });
            }
        });
        Self { address, requests, is_down }
    }

    /// A server of one file with an entity tag, with ranges and conditions.
    pub fn of_file(content: Vec<u8>, fields: &'static str) -> Self {
        Self::start(move |request, stream| {
            if request.field("if-none-match") == "\"tag\"" {
                reply(stream, "304 Not Modified", &format!("ETag: \"tag\"\r\n{fields}"), b"");
                return;
            }
            let fields = format!("ETag: \"tag\"\r\n{fields}");
            match request.range(content.len()) {
                Some((start, end)) if start < end => {
                    let place = format!("bytes {start}-{}/{}", end - 1, content.len());
                    let fields = format!("{fields}Content-Range: {place}\r\n");
                    reply(stream, "206 Partial Content", &fields, &content[start..end]);
                }
                _ => reply(stream, "200 OK", &fields, &content),
            }
        })
    }

    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// The requests so far.
    pub fn requests(&self) -> Vec<HttpRequest> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From now on, connections are closed without an answer.
    pub fn stop_answering(&self) {
        self.is_down.store(true, Ordering::Relaxed);
    }
}

fn read_head(stream: &TcpStream) -> Option<HttpRequest> {
    let mut lines = BufReader::new(stream).lines();
    let first = lines.next()?.ok()?;
    let mut words = first.split(' ').map(str::to_owned);
    let (method, target) = (words.next()?, words.next()?);
    let mut fields = Vec::new();
    for line in lines {
        let line = line.ok()?;
        if line.is_empty() {
            return Some(HttpRequest { method, target, fields });
        }
        let (name, value) = line.split_once(':')?;
        fields.push((name.to_lowercase(), value.trim().to_owned()));
    }
    None
}

/// Writes a response with its length. `fields` are complete lines.
pub fn reply(stream: &mut TcpStream, status: &str, fields: &str, body: &[u8]) {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n{fields}\r\n"
    );
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
}
