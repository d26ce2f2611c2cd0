//! HTTP/3: a client of its own, a front, a router and an HTTP server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use quinn::crypto::rustls::QuicClientConfig;
use rustls::pki_types::CertificateDer;
use weir_base::Rng;
use weir_tests::{Host, HttpServer, Process, Router, reply};

type Sender = h3::client::SendRequest<h3_quinn::OpenStreams, Bytes>;
type AnyError = Box<dyn std::error::Error>;

/// A connection to a front whose certificate the client trusts.
struct Client {
    endpoint: quinn::Endpoint,
    connection: quinn::Connection,
    sender: Sender,
}

impl Client {
    async fn connect(address: SocketAddr, certificate: CertificateDer<'static>) -> Self {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(certificate).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(provider);
        let tls = tls.with_safe_default_protocol_versions().unwrap();
        let mut tls = tls.with_root_certificates(roots).with_no_client_auth();
        tls.alpn_protocols = vec![b"h3".to_vec()];
        let quic = QuicClientConfig::try_from(tls).unwrap();
        let mut endpoint = quinn::Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
        endpoint.set_default_client_config(quinn::ClientConfig::new(Arc::new(quic)));
        let connection = endpoint.connect(address, "localhost").unwrap().await.unwrap();
        let of_http3 = h3_quinn::Connection::new(connection.clone());
        let (mut driver, sender) = h3::client::new(of_http3).await.unwrap();
        tokio::spawn(async move { driver.wait_idle().await });
        Self { endpoint, connection, sender }
    }

    /// The status, and the body as far as it arrives.
    async fn request(
        &mut self,
        method: &str,
        path: &str,
        body: &[u8],
    ) -> (u16, Vec<u8>, Result<(), AnyError>) {
        let request = http::Request::builder().method(method);
        let request = request.uri(format!("https://localhost{path}")).body(()).unwrap();
        let mut stream = self.sender.send_request(request).await.unwrap();
        // The front stops to read a body that it refuses.
        if stream.send_data(Bytes::copy_from_slice(body)).await.is_ok() {
            stream.finish().await.unwrap();
        }
        let status = stream.recv_response().await.unwrap().status().as_u16();
        let mut received = Vec::new();
        loop {
            match stream.recv_data().await {
                Ok(Some(mut data)) => {
                    let bytes = data.copy_to_bytes(data.remaining());
                    received.extend_from_slice(&bytes);
                }
                Ok(None) => return (status, received, Ok(())),
                Err(error) => return (status, received, Err(error.into())),
            }
        }
    }
}

struct Chain {
    _router: Router,
    _gateway: Process,
    address: SocketAddr,
    certificate: CertificateDer<'static>,
}

/// A front with HTTP/3, and an origin before `server`.
fn chain(server: &HttpServer) -> Chain {
    let host = Host::new();
    let router = Router::start(&host);
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let certificate = host.write("certificate.pem", made.cert.pem().as_bytes());
    let key = host.write("key.pem", made.signing_key.serialize_pem().as_bytes());
    let text = format!(
        "[front]\nlisten = [\"127.0.0.1:0\"]\nhttp3 = true\nclient_timeout = \"3s\"\n\
         uploads = \"/uploads\"\nupload_max = \"1MiB\"\n\
         [front.tls]\ncertificate = \"{}\"\nkey = \"{}\"\n\
         [[front.host]]\nprefix = \"/web\"\n\
         [[origin]]\nprefix = \"/web\"\nurl = \"{}\"\nmethods = [\"POST\"]\n",
        certificate.display(),
        key.display(),
        server.url()
    );
    let file = host.write("gateway.toml", text.as_bytes());
    let arguments = ["gateway", "run", "-c", file.to_str().unwrap(), "--json"];
    let gateway = host.spawn(&router.unix(), &arguments);
    let ready = gateway.json_line();
    let url = ready["urls"][0].as_str().unwrap();
    let address = url.trim_start_matches("https://").trim_end_matches('/').parse().unwrap();
    let certificate = made.cert.der().clone();
    Chain { _router: router, _gateway: gateway, address, certificate }
}

fn octets(len: usize) -> Vec<u8> {
    let mut octets = vec![0; len];
    Rng::from_seed(3).fill(&mut octets);
    octets
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let limited = async { tokio::time::timeout(Duration::from_secs(60), future).await };
    runtime.block_on(limited).expect("within a minute")
}

#[test]
fn content_arrives_whole_over_http3() {
    let content = octets(3_000_000);
    let server = HttpServer::of_file(content.clone(), "Cache-Control: max-age=600\r\n");
    let chain = chain(&server);
    block_on(async {
        let mut client = Client::connect(chain.address, chain.certificate.clone()).await;
        for _ in 0..2 {
            let (status, body, end) = client.request("GET", "/file", b"").await;
            assert_eq!((status, body.len()), (200, content.len()));
            assert!(body == content && end.is_ok());
        }
        let (status, body, _) = client.request("HEAD", "/file", b"").await;
        assert_eq!((status, body.len()), (200, 0));
        let (status, ..) = client.request("GET", "/a//b", b"").await;
        assert_eq!(status, 400);
        client.connection.close(0_u32.into(), b"");
        client.endpoint.wait_idle().await;
    });
}

/// A response that cannot be completed ends in a reset.
#[test]
fn broken_content_is_reset_over_http3() {
    let content = octets(5_000_000);
    let server = HttpServer::start(move |request, stream| {
        let (start, end) = request.range(content.len()).unwrap_or((0, content.len()));
        if start > 0 {
            return reply(stream, "500 Internal Server Error", "", b"");
        }
        let place = format!("bytes {start}-{}/{}", end - 1, content.len());
        let fields = format!("ETag: \"tag\"\r\nContent-Range: {place}\r\n");
        reply(stream, "206 Partial Content", &fields, &content[start..end]);
    });
    let chain = chain(&server);
    block_on(async {
        let mut client = Client::connect(chain.address, chain.certificate.clone()).await;
        let (status, body, end) = client.request("GET", "/file", b"").await;
        assert_eq!(status, 200);
        assert!(body.len() < 5_000_000 && end.is_err(), "{} bytes, {end:?}", body.len());
    });
}

/// Only as much of a body is received as may be uploaded.
#[test]
fn long_bodies_are_refused_over_http3() {
    let server = HttpServer::of_file(octets(10), "");
    let chain = chain(&server);
    block_on(async {
        let mut client = Client::connect(chain.address, chain.certificate.clone()).await;
        let (status, ..) = client.request("POST", "/file", &octets(2 << 20)).await;
        assert_eq!(status, 413);
        assert!(server.requests().iter().all(|request| request.method != "POST"));
        let (status, ..) = client.request("POST", "/file", b"short").await;
        assert_eq!(status, 200);
    });
}
