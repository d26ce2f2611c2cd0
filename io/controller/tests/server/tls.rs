//! TLS and client certificates.

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{Read as _, Write as _};
use weir_controller::{Role, StartError, add_token};
use weir_http::TlsFiles;

use crate::fixture::TestServer;

struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// A certificate for a name, and its key.
    fn issue(&self, name: &str) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.0).unwrap(), key)
    }
}

/// TLS files of a server `localhost` in a folder.
fn files(folder: &Path, authority: &Authority, clients: bool) -> TlsFiles {
    let (certificate, key) = authority.issue("localhost");
    let at = |name: &str| folder.join(name);
    fs::write(at("certificate.pem"), certificate.pem()).unwrap();
    fs::write(at("key.pem"), key.serialize_pem()).unwrap();
    fs::write(at("authority.pem"), authority.0.pem()).unwrap();
    TlsFiles {
        certificate: at("certificate.pem"),
        key: at("key.pem"),
        clients: clients.then(|| at("authority.pem")),
    }
}

/// The answer to a request for routers over TLS, with or without a client certificate.
fn ask(
    controller: &TestServer,
    authority: &Authority,
    own: Option<(rcgen::Certificate, KeyPair)>,
) -> std::io::Result<String> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.0.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match own {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain: Vec<CertificateDer<'static>> = vec![certificate.der().clone()];
            let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    };
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let address = controller.url().replace("https://", "");
    let mut stream = StreamOwned::new(connection, TcpStream::connect(address).unwrap());
    let token = add_token(&controller.database(), Role::Reader, "reader", None, &[]).unwrap();
    let head = format!(
        "GET /v1/routers HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\
         Connection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

#[test]
fn tls_presents_the_certificate() {
    let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new());
    let controller =
        TestServer::with(|config| config.tls = Some(files(folder.path(), &authority, false)));
    assert!(controller.url().starts_with("https://"));
    let answer = ask(&controller, &authority, None).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    // A client that trusts another authority does not send its token.
    assert!(ask(&controller, &Authority::new(), None).is_err());
}

#[test]
fn requires_client_certificates() {
    let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new());
    let controller =
        TestServer::with(|config| config.tls = Some(files(folder.path(), &authority, true)));
    let answer = ask(&controller, &authority, Some(authority.issue("router.example"))).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(ask(&controller, &authority, None).is_err());
    let stranger = Authority::new().issue("router.example");
    assert!(ask(&controller, &authority, Some(stranger)).is_err());
}

#[test]
fn names_an_unusable_certificate() {
    let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new());
    let good = files(folder.path(), &authority, false);
    fs::write(folder.path().join("empty.pem"), "").unwrap();
    let empty = folder.path().join("empty.pem");
    for tls in [
        TlsFiles { certificate: empty.clone(), ..good.clone() },
        TlsFiles { key: empty.clone(), ..good.clone() },
        TlsFiles { clients: Some(empty.clone()), ..good.clone() },
        TlsFiles { certificate: folder.path().join("none.pem"), ..good },
    ] {
        let database = folder.path().join("controller.db").into();
        let listen = "127.0.0.1:0".parse().unwrap();
        let config =
            weir_controller::Config { listen, database, tls: Some(tls), ..Default::default() };
        let error = weir_controller::Server::start(config).err().expect("a refusal");
        assert!(matches!(error, StartError::Tls(_)), "{error}");
        assert!(error.to_string().contains(".pem"), "{error}");
    }
}
