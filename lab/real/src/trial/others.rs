//! What sockets are compared with: TCP by iperf3, HTTPS by nginx and curl. Both are programs of the
//! system; where one is missing nothing is measured, and the record says what to install.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use weir_scenario::trial::Trial;

use super::super::RealError;
use super::crew::{Crew, find, write};
use super::report::{TrialReport, jain};

/// How often a client tries to reach its server.
const TRIES: u32 = 100;
/// Pause between two tries, as `sleep` takes it.
const TRY_PAUSE: &str = "0.03";

/// Brings up the loopback interface of a network of its own, where nothing else is and rights are
/// needed for nothing, and sends through it.
const TCP: &str = r#"
ip link set lo up mtu "$1"
ethtool -K lo tso "$2" gso "$2" gro "$2" >ethtool.log || exit 3
iperf3 --server >iperf-server.log 2>&1 &
tries=0
until iperf3 --client 127.0.0.1 --bytes "$3" --json >iperf.json &&
    ! grep -q '"error"' iperf.json; do
    tries=$((tries + 1))
    [ $tries -lt "$4" ] || break
    sleep "$5"
done
cat iperf.json
"#;

/// One process, which serves `DIR/www` at `PORT` and writes nowhere else.
const NGINX: &str = "\
daemon off;
master_process off;
pid DIR/nginx.pid;
error_log DIR/nginx.log;
events { worker_connections 64; }
http {
    access_log off;
    sendfile on;
    client_body_temp_path DIR/b;
    proxy_temp_path DIR/p;
    fastcgi_temp_path DIR/f;
    uwsgi_temp_path DIR/u;
    scgi_temp_path DIR/s;
    server {
        listen 127.0.0.1:PORT ssl;
        server_name localhost;
        ssl_certificate DIR/certificate.pem;
        ssl_certificate_key DIR/key.pem;
        ssl_protocols TLSv1.3;
        root DIR/www;
    }
}
";

/// The programs of these names; or what is missing.
fn need<const N: usize>(names: [(&str, &str); N]) -> Result<[PathBuf; N], String> {
    let found = names.map(|(name, package)| find(name).ok_or((name, package)));
    let missing: Vec<_> = found.iter().filter_map(|found| found.as_ref().err()).collect();
    if missing.is_empty() {
        return Ok(found.map(|found| found.unwrap_or_default()));
    }
    let programs: Vec<&str> = missing.iter().map(|(name, _)| *name).collect();
    let packages: Vec<&str> = missing.iter().map(|(_, package)| *package).collect();
    Err(format!(
        "{} not installed here; install {}",
        match &programs[..] {
            [one] => format!("{one} is"),
            several => format!("{} are", several.join(", ")),
        },
        packages.join(", ")
    ))
}

/// The octets of a transfer by TCP of the kernel, with its default congestion control.
pub(super) fn tcp(trial: &Trial, crew: &mut Crew<'_>) -> Result<TrialReport, RealError> {
    let programs = need([
        ("unshare", "util-linux"),
        ("ip", "iproute2"),
        ("ethtool", "ethtool"),
        ("iperf3", "iperf3"),
    ]);
    let [unshare, ..] = match programs {
        Ok(programs) => programs,
        Err(missing) => return Ok(TrialReport::missing(missing)),
    };
    let (mtu, octets) = (trial.mtu.to_string(), trial.size.bytes.to_string());
    let offload = if trial.offload { "on" } else { "off" };
    let tries = TRIES.to_string();
    let arguments = [
        // The processes of the network end with the one that made it.
        "--map-root-user",
        "--net",
        "--pid",
        "--fork",
        "--kill-child",
        "sh",
        "-c",
        TCP,
        "sh",
        &mtu,
        offload,
        &octets,
        &tries,
        TRY_PAUSE,
    ];
    let id = crew.program(&unshare, &arguments)?;
    let (text, _) = crew.output(id)?;
    let value: Value = serde_json::from_str(&text).unwrap_or_default();
    let Some(rate_bps) = value["end"]["sum_received"]["bits_per_second"].as_f64() else {
        let why = value["error"].as_str().map_or_else(|| crew.log(id), str::to_owned);
        return Ok(TrialReport::missing(format!(
            "iperf3 in a network of its own does not work here ({}); user namespaces, or root, \
             are needed",
            why.trim()
        )));
    };
    let mut report = TrialReport::default();
    report.add("goodput", rate_bps);
    Ok(report)
}

/// The same octets by HTTPS: TLS 1.3 of a server with a certificate of its own.
pub(super) fn https(trial: &Trial, crew: &mut Crew<'_>) -> Result<TrialReport, RealError> {
    let programs = need([("nginx", "nginx-light"), ("curl", "curl"), ("openssl", "openssl")]);
    let [nginx, curl, openssl] = match programs {
        Ok(programs) => programs,
        Err(missing) => return Ok(TrialReport::missing(missing)),
    };
    let dir = crew.dir().to_path_buf();
    certificate(crew, &openssl)?;
    let port = serve(trial, crew, &nginx, &dir)?;
    let url = format!("https://localhost:{port}/content");
    let authority = dir.join("certificate.pem").display().to_string();
    let arguments = [
        "--silent",
        "--show-error",
        "--tlsv1.3",
        "--http1.1",
        "--ipv4",
        "--noproxy",
        "*",
        "--cacert",
        &authority,
        "--output",
        "/dev/null",
        "--write-out",
        "%{json}\n",
        &url,
    ];
    let clients: Vec<_> =
        (0..trial.transfers).map(|_| crew.program(&curl, &arguments)).collect::<Result<_, _>>()?;
    let mut rates = Vec::new();
    for id in clients {
        let (text, is_done) = crew.output(id)?;
        let value: Value = serde_json::from_str(&text).unwrap_or_default();
        let (took_s, got) = (value["time_total"].as_f64(), value["size_download"].as_u64());
        match (took_s, got) {
            (Some(took_s), Some(got)) if is_done && got == trial.size.bytes => {
                rates.push(got as f64 * 8.0 / took_s);
            }
            _ => return Err(crew.failure(id, "did not get the file")),
        }
    }
    let mut report = TrialReport::default();
    report.add("goodput", rates.iter().sum());
    report.add("fairness", jain(&rates));
    Ok(report)
}

/// Has a key and a certificate made for `localhost`.
fn certificate(crew: &mut Crew<'_>, openssl: &Path) -> Result<(), RealError> {
    let arguments = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 \
                     -subj /CN=localhost -addext subjectAltName=DNS:localhost \
                     -keyout key.pem -out certificate.pem";
    let arguments: Vec<&str> = arguments.split_whitespace().collect();
    let id = crew.program(openssl, &arguments)?;
    match crew.output(id)? {
        (_, true) => Ok(()),
        _ => Err(crew.failure(id, "made no certificate")),
    }
}

/// Starts nginx; the port at which it answers.
fn serve(trial: &Trial, crew: &mut Crew<'_>, nginx: &Path, dir: &Path) -> Result<u16, RealError> {
    let system = |source| RealError::System { what: "no port for nginx".into(), source };
    std::fs::create_dir_all(dir.join("www")).map_err(system)?;
    let octets = super::part::content(trial.size.bytes, 0);
    write(&dir.join("www/content"), &octets)?;
    let port = std::net::TcpListener::bind(("127.0.0.1", 0))
        .and_then(|listener| listener.local_addr())
        .map_err(system)?
        .port();
    let path = dir.display().to_string();
    let text = NGINX.replace("PORT", &port.to_string()).replace("DIR", &path);
    let configuration = dir.join("nginx.conf");
    write(&configuration, text.as_bytes())?;
    let configuration = configuration.display().to_string();
    let prefix = format!("{path}/");
    let id = crew.program(nginx, &["-p", &prefix, "-c", &configuration])?;
    for _ in 0..TRIES {
        if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Err(crew.failure(id, &format!("does not answer: {}", super::text_of(&dir.join("nginx.log")))))
}
