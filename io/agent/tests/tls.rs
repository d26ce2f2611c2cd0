//! Agents and producers with a real controller that requires client certificates.

use crate::common;

use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use common::name;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use weir_agent::{Access, Agent, AgentConfig, Files};
use weir_control::File;
use weir_controller::{Config, Role, Server, add_token};
use weir_http::TlsFiles;
use weir_io_fixture::wait_until;

struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// A certificate for a name and its key, in PEM.
    fn issue(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.0).unwrap().pem(), key.serialize_pem())
    }
}

/// A controller that requires client certificates, with its authority.
struct TlsController {
    folder: tempfile::TempDir,
    authority: Authority,
    server: Server,
}

impl TlsController {
    fn start() -> Self {
        let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new());
        let at = |file: &str| folder.path().join(file);
        let (certificate, key) = authority.issue("localhost");
        fs::write(at("certificate.pem"), certificate).unwrap();
        fs::write(at("key.pem"), key).unwrap();
        fs::write(at("authority.pem"), authority.0.pem()).unwrap();
        let tls = TlsFiles {
            certificate: at("certificate.pem"),
            key: at("key.pem"),
            clients: Some(at("authority.pem")),
        };
        let config = Config {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            database: at("controller.db").into(),
            tls: Some(tls),
            ..Config::default()
        };
        let server = Server::start(config).unwrap();
        Self { folder, authority, server }
    }

    /// Access with a token, and with a certificate of this authority if there is one.
    fn access(&self, role: Role, name: &str, authority: Option<&Authority>) -> Access {
        let database = self.folder.path().join("controller.db").into();
        let prefixes = match role {
            Role::Producer => vec![common::name("/data")],
            _ => Vec::new(),
        };
        let token = add_token(&database, role, name, None, &prefixes).unwrap();
        let own = authority.map(|authority| authority.issue("client.example"));
        let (certificate, key) = own.unzip();
        Access {
            url: self.server.url().replace("127.0.0.1", "localhost"),
            others: Vec::new(),
            token: Some(token),
            token_file: None,
            ca_pem: Some(self.authority.0.pem().into_bytes()),
            certificate_pem: certificate.map(String::into_bytes),
            key_pem: key.map(String::into_bytes),
            insecure: false,
        }
    }
}

fn file() -> File {
    let (name, manifest) = (name("/data/v=1"), Vec::new());
    File { name, segments: 100, size_bytes: 800_000, packet_bytes: 8200, manifest }
}

#[test]
fn accepts_only_a_trusted_controller() {
    let guarded = TlsController::start();
    let own = guarded.access(Role::Producer, "producer", Some(&guarded.authority));
    assert!(Files::new(&own).unwrap().add(&[file()]).unwrap().is_empty());
    for stranger in [None, Some(&Authority::new())] {
        let access = guarded.access(Role::Producer, "stranger", stranger);
        let error = Files::new(&access).unwrap().add(&[file()]).unwrap_err();
        assert!(!error.to_string().is_empty());
    }
    // A certificate without its key is refused before anything is sent.
    let half = Access { key_pem: None, ..own };
    assert!(Files::new(&half).is_err());
}

#[test]
fn sends_its_client_certificate() {
    let guarded = TlsController::start();
    let (router, uri) = common::router(1, 1 << 20, &[]);
    let config = AgentConfig {
        access: guarded.access(Role::Router, "edge", Some(&guarded.authority)),
        name: "edge".into(),
        uris: vec![uri],
        rates_bps: Default::default(),
        interval: Duration::from_millis(50),
        routes_max: 1000,
        state_file: None,
        prefetch: true,
        asks_for_hosts: false,
    };
    let agent = Agent::start(config, &router).unwrap();
    wait_until("a report arrives", || agent.stats().reports != 0);
}
