//! Controllers and their PostgreSQL server: outages, TLS, and sharing.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use weir_controller::{Config, Role, Server};

use crate::fixture::{FILE, FourRouters, TestServer, eventually, file, report};
use crate::postgres::Postgres;

#[test]
fn server_outage_delays_no_decision() {
    let mut server = Postgres::start();
    let url = server.url(&server.database(""));
    let mut controller = TestServer::on(url, tempfile::tempdir().unwrap(), |_| {});
    let network = FourRouters::join(&controller);
    server.stop();

    assert_eq!(network.router("c").forward("c", FILE).json()["decision"], "planned");
    let configuration = network.router("c").configuration("c", 0, 0).json();
    assert_eq!(configuration["distributions"][0]["object"], FILE);
    let refused = network.producer.post("/v1/files", &file("/second/v=1", 10));
    assert_eq!(refused.status, 503, "{refused:?}");
    // A registered file stays registered.
    assert_eq!(network.producer.post("/v1/files", &file(FILE, 9000)).status, 200);
    eventually(
        || network.operator.get("/health").json()["why"] == "silent",
        "a report of the problem",
    );
    assert_eq!(network.router("c").forward("c", "/second/v=1").json()["decision"], "unknown");

    server.resume();
    eventually(|| network.operator.get("/health").status == 200, "the end of the outage");
    let plans = || network.operator.get("/v1/plans").json();
    eventually(|| plans()[0]["object"] == FILE, "the plan that waited");
    assert_eq!(network.operator.get("/health").json()["lost_records"], 0);
    assert_eq!(network.producer.post("/v1/files", &file("/second/v=1", 10)).status, 201);
    controller.restart();
    let files = network.at(&controller).operator.get("/v1/files").json();
    assert_eq!(files.as_array().unwrap().len(), 2);
}

#[test]
fn smaller_controller_waits_for_larger() {
    let quick = |config: &mut weir_controller::Config| {
        config.controller.router_timeout_ns = 4_000_000_000;
    };
    let mut one = TestServer::with(quick);
    let network = FourRouters::join(&one);
    let mut other = one.start_another();
    let stray = one.client(Role::Router, "stray").at(&other);
    let had = network.router("c").configuration("c", 0, 0).json()["generation"].clone();
    let come = || {
        network.report();
        let mut report = report("stray", 1000, &[], &[]);
        report["generation"] = had.clone();
        assert_eq!(stray.report("stray", &report).status, 200);
    };
    let there = network.operator.at(&other);
    let health = || there.get("/health").json();
    come();
    let is_known = || {
        come();
        health()["waits"] == true && health()["others"][0] == one.url()
    };
    eventually(is_known, "a controller with one router of five waits");
    for _ in 0..3 {
        come();
        assert_eq!(stray.configuration("stray", 0, 1).status, 204);
    }
    assert_eq!(network.operator.get("/health").json()["waits"], false);

    one.stop();
    let report = report("stray", 1000, &[], &[]);
    let has_begun = || {
        assert_eq!(stray.report("stray", &report).status, 200);
        stray.configuration("stray", 0, 0).status == 200
    };
    eventually(has_begun, "a configuration once the other is gone");
    assert_eq!(health()["others"], serde_json::json!([]));
    other.stop();
}

#[test]
fn clean_stop_loses_no_routers() {
    let mut one = TestServer::with(|config| config.controller.router_timeout_ns = 120_000_000_000);
    let network = FourRouters::join(&one);
    let mut other = one.start_another();
    assert_eq!(network.router("c").forward("c", FILE).json()["decision"], "planned");
    let there = network.operator.at(&other);
    // It has as many routers of its own, so it does not wait.
    for name in ["v", "w", "x", "y"] {
        let client = one.client(Role::Router, name).at(&other);
        assert_eq!(client.report(name, &report(name, 66_000_000, &[], &[])).status, 200);
    }
    let plan = || there.get("/v1/state").json()["transfers"][0]["number"].clone();
    eventually(|| plan().is_u64(), "the plan at the other");
    let (before, url) = (plan(), one.url());
    let others = || there.get("/health").json()["others"].clone();
    eventually(|| others()[0] == url, "the first controller in the list of the other");
    one.stop();
    eventually(|| others() == serde_json::json!([]), "the end of the first controller");
    assert_eq!(plan(), before, "its routers have time to move");
    other.stop();
}

#[test]
fn verifies_tls_of_the_server() {
    let mut server = Postgres::start();
    let database = server.database("");
    server.sql("postgres", "ALTER ROLE weir PASSWORD 'open-sesame'");
    server.stop();
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    // A loopback address that no other process uses, so that the port is free there.
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    let address = format!("127.{}.{middle}.{low}", high | 128);
    let own = CertificateParams::new(vec![address.clone()]).unwrap();
    let own = own.signed_by(&key, &authority).unwrap();
    let certificate = server.write("server.pem", &own.pem());
    let key = server.write("server.key", &key.serialize_pem());
    let allowed = "local all all trust\nhostssl all all 127.0.0.0/8 scram-sha-256\n";
    let allowed = server.write("allowed", allowed);
    let settings = [
        format!("listen_addresses={address}"),
        "ssl=on".to_owned(),
        format!("ssl_cert_file={}", certificate.display()),
        format!("ssl_key_file={}", key.display()),
        format!("hba_file={}", allowed.display()),
    ];
    server.set(settings);
    server.resume();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: String| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let root = file("root.pem", authority.pem());
    let stranger = rcgen::generate_simple_self_signed(vec![address.clone()]).unwrap();
    let stranger = file("stranger.pem", stranger.cert.pem());
    let url = |password: &str, rest: &str| {
        format!("postgres://weir:{password}@{address}/{database}?{rest}")
    };
    let full = |root: &str| format!("sslmode=verify-full&sslrootcert={root}");
    let refused = |url: String| {
        let config = Config {
            listen: "127.0.0.1:0".parse().unwrap(),
            database: url.parse().unwrap(),
            ..Config::default()
        };
        let text = match Server::start(config) {
            Ok(_) => panic!("{url} is taken"),
            Err(error) => format!("{error} {error:?}"),
        };
        assert!(!text.contains("sesame"), "{text}");
        text
    };
    refused(url("open-sesame", &full(&stranger)));
    refused(url("open-sesame", "sslmode=verify-full"));
    refused(url("open-sesame", "sslmode=disable"));
    let text = refused(url("close-sesame", &full(&root)));
    assert!(text.contains("password authentication failed"), "{text}");
    let controller =
        TestServer::on(url("open-sesame", &full(&root)), tempfile::tempdir().unwrap(), |_| {});
    let operator = controller.client(Role::Operator, "operator");
    assert_eq!(operator.post("/v1/files", &crate::fixture::file("/a/v=1", 10)).status, 201);
    let uses = "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
                WHERE client_addr IS NOT NULL";
    assert_eq!(server.sql("postgres", uses), "t");
    drop(controller);
}
