use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use weir_base::units::{Size, Time};
use weir_face::{FaceUri, unix_time_ms};
use weir_io_fixture::router::{ReceivedPacket, TestRouter, name_of};
use weir_security::{DigestSigner, DigestVerifier, Verifier};
use weir_socket::{Identity, Session};
use weir_transport::Metadata;

use super::*;
use crate::config::{FrontConfig, OriginConfig};
use crate::front::Front;
use crate::origin::Origin;

/// A router and a front.
struct Network {
    router: TestRouter,
    session: Session,
    front: Front,
}

fn trust() -> Arc<dyn Verifier> {
    Arc::new(DigestVerifier)
}

impl Network {
    async fn start(change: impl FnOnce(&mut FrontConfig, &TestRouter)) -> Self {
        let router = TestRouter::start();
        let uri = FaceUri::Unix(router.path.clone());
        let session = tokio::task::spawn_blocking(move || Session::connect(&uri).unwrap());
        let session = session.await.unwrap();
        let mut config = FrontConfig {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 0))],
            ..FrontConfig::default()
        };
        change(&mut config, &router);
        let identity = Some(Identity::new(DigestSigner));
        let front = Front::start(&session, |_| trust(), identity, config).await.unwrap();
        Self { router, session, front }
    }

    /// Sends a request, and returns the response with its field names in lower case.
    async fn send(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(self.front.addresses()[0]).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut response = String::new();
        let read = stream.read_to_string(&mut response);
        tokio::time::timeout(Duration::from_secs(20), read).await.unwrap().unwrap();
        response
    }

    async fn request(&self, method: &str, path: &str, fields: &str, body: &str) -> String {
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
             content-length: {length}\r\n{fields}\r\n{body}"
        );
        self.send(&request).await
    }
}

fn status(response: &str) -> &str {
    response.split(' ').nth(1).unwrap_or_default()
}

fn field<'a>(response: &'a str, name: &str) -> &'a str {
    let mut lines = response.lines();
    lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).unwrap_or_default()
}

fn with_uploads(config: &mut FrontConfig) {
    config.uploads = Some("/front".parse().unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_1_1_needs_one_host() {
    let network = Network::start(|_, _| {}).await;
    for (line, fields, expected) in [
        ("GET /a HTTP/1.1", "", "400"),
        ("OPTIONS /a HTTP/1.1", "", "400"),
        ("GET http://x/a HTTP/1.1", "", "400"),
        ("GET /a HTTP/1.1", "host: x\r\nhost: y\r\n", "400"),
        ("GET /a HTTP/1.1", "host: x\r\nhost: x\r\n", "400"),
        ("GET /a HTTP/1.1", "host: \u{e9}\r\n", "400"),
        // No producer.
        ("GET /a HTTP/1.1", "host: x\r\n", "503"),
        ("GET /a HTTP/1.0", "", "503"),
    ] {
        let response = network.send(&format!("{line}\r\nconnection: close\r\n{fields}\r\n")).await;
        assert_eq!(status(&response), expected, "{line} {fields}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn options_list_uploads() {
    let readers = Network::start(|_, _| {}).await;
    let response = readers.request("OPTIONS", "/a", "", "").await;
    assert_eq!(field(&response, "allow"), "GET, HEAD, OPTIONS");
    let writers = Network::start(|config, _| with_uploads(config)).await;
    let response = writers.request("OPTIONS", "/a", "", "").await;
    assert_eq!(status(&response), "204");
    for name in ["allow", "access-control-allow-methods"] {
        assert_eq!(field(&response, name), "GET, HEAD, OPTIONS, PUT, POST, DELETE");
    }
    assert_eq!(field(&response, "access-control-allow-headers"), "*, Authorization");
    assert_eq!(status(&writers.request("PATCH", "/a", "", "").await), "405");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_token_is_unauthorized() {
    let network = Network::start(|config, router| {
        let path = router.directory.path().join("tokens");
        std::fs::write(&path, hex::encode(weir_security::sha256(&[b"good"]))).unwrap();
        config.tokens = Some(path);
    })
    .await;
    for (token, expected, challenge) in [
        ("", "401", "Bearer"),
        ("authorization: Bearer bad\r\n", "401", "Bearer error=\"invalid_token\""),
        ("authorization: Bearer good\r\n", "503", ""),
    ] {
        let response = network.request("GET", "/a", token, "").await;
        assert_eq!(status(&response), expected, "{token}");
        assert_eq!(field(&response, "www-authenticate"), challenge, "{token}");
    }
    assert_eq!(status(&network.request("OPTIONS", "/a", "", "").await), "204");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_folder_is_asked_for_once() {
    let timeout = Time { ns: 300 * weir_base::NS_PER_MS };
    let network = Network::start(|config, _| config.timeout = timeout).await;
    let mut producer = network.router.unix();
    let names = Arc::new(Mutex::new(Vec::new()));
    let log = names.clone();
    std::thread::spawn(move || {
        producer.register("/a");
        log.lock().unwrap().push(String::new());
        while let Ok(Some(frame)) = producer.try_frame() {
            let interest = ReceivedPacket::of_frame(&frame).interest();
            log.lock().unwrap().push(name_of(&interest));
        }
    });
    while names.lock().unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(status(&network.request("GET", "/a/", "", "").await), "504");
    let names = names.lock().unwrap();
    assert!(names.len() > 1);
    assert!(names[1..].iter().all(|name| name.starts_with("/a/.../")), "{names:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upload_without_origin_is_unavailable() {
    let network = Network::start(|config, _| with_uploads(config)).await;
    let response = network.request("PUT", "/web/a", "", "text").await;
    assert_eq!(status(&response), "503");
    assert_eq!(field(&response, "retry-after"), "1");
}

/// Answers each request with 201 when it has received the whole body.
async fn upload_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut received = Vec::new();
                let is_complete = |received: &[u8]| {
                    let text = String::from_utf8_lossy(received);
                    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
                    let head = head.to_lowercase();
                    body.len().to_string() == field(&head, "content-length")
                };
                while !is_complete(&received) {
                    if stream.read_buf(&mut received).await.unwrap_or(0) == 0 {
                        return;
                    }
                }
                let response = b"HTTP/1.1 201 Created\r\nconnection: close\r\n\
                                 content-length: 4\r\n\r\nmade";
                let _ = stream.write_all(response).await;
            });
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn uploads_share_a_small_buffer() {
    const LEN: usize = 100_000;
    let network = Network::start(|config, _| {
        with_uploads(config);
        config.upload_max = Size { bytes: LEN as u64 };
    })
    .await;
    let url = format!("http://{}/", upload_server().await);
    let mut config = OriginConfig::new("/web".parse().unwrap(), url);
    config.methods = vec!["PUT".into()];
    let identity = Identity::new(DigestSigner);
    let _origin =
        Origin::start_with_uploads(&network.session, identity, config, trust()).await.unwrap();
    let body = "a".repeat(LEN);
    let paths: Vec<String> = (0..6).map(|number| format!("/web/{number}")).collect();
    let uploads = paths.iter().map(|path| network.request("PUT", path, "", &body));
    for response in futures_util::future::join_all(uploads).await {
        assert_eq!(status(&response), "201", "{response}");
        assert!(response.ends_with("made"), "{response}");
    }
    let long = "a".repeat(LEN + 1);
    assert_eq!(status(&network.request("PUT", "/web/a", "", &long).await), "413");
}

#[test]
fn variant_has_all_lines_of_a_field() {
    let mut head = ResponseHead::new(StatusCode::OK, unix_time_ms());
    head.fields.insert(header::VARY, HeaderValue::from_static("Accept-Language"));
    let object: Name = "/web/a".parse().unwrap();
    let mut metadata = Metadata::new(object.clone().append_version(1).clone());
    metadata.http_head = Some(head.encode());
    let found = FoundVersion::new(metadata, std::time::Instant::now()).unwrap();
    let mut fields = HeaderMap::new();
    for value in ["de", "en;q=0.5"] {
        fields.append(header::ACCEPT_LANGUAGE, HeaderValue::from_static(value));
    }
    let found = variant(&["Accept-Language".into()], &fields, &object, &found);
    let language = ("accept-language".to_owned(), "de, en;q=0.5".to_owned());
    assert_eq!(found, Some(name_with_headers(&object, &[language])));
}
