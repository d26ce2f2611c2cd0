//! Video players and other HTTP clients of the gateway, over three routers.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use weir_tests::{Host, Process, Router};

/// Time limit for a client on a busy machine. Each one plays for at most half a minute.
const CLIENT_LIMIT: Duration = Duration::from_secs(180);
const PLAY_SECONDS: &str = "20";

fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("players")
}

/// Whether a program runs with these arguments. If not, prints what to install.
fn is_installed(program: &str, arguments: &[&str], what: &str) -> bool {
    let output = Command::new(program).args(arguments).current_dir(programs()).output();
    let is_installed = output.is_ok_and(|output| output.status.success());
    if !is_installed {
        eprintln!("not measured: install {what}");
    }
    is_installed
}

fn has_channel() -> bool {
    is_installed("python3", &["--version"], "python3 (Debian)")
        && is_installed("nginx", &["-v"], "nginx-light (Debian)")
        && is_installed("ffmpeg", &["-version"], "ffmpeg (Debian)")
}

fn has_browser() -> bool {
    is_installed("chromium", &["--version"], "chromium (Debian)")
        && is_installed("node", &["--version"], "nodejs (Debian)")
        && is_installed(
            "node",
            &["--input-type=module", "-e", "import 'playwright-core'"],
            "the players with `npm ci` in tests/players",
        )
}

/// A live channel and other files on nginx, a gateway origin, three routers in a row, and a gateway
/// front: nginx, origin, first router, second, third, front.
struct Network {
    host: Host,
    /// The folder that nginx serves.
    folder: String,
    /// The URL of the front.
    url: String,
    _programs: Vec<Process>,
    _routers: [Router; 3],
}

/// What is between the first router and the second.
#[derive(Clone, Copy)]
enum Packets {
    Ndn,
    /// Origins have hICN names, and the second router joins the networks of hICN and NDN.
    Hicn,
}

/// The prefix of each origin, and its prefix in the network of hICN.
const MAPPINGS: [(&str, &str); 3] = [
    ("/tv/c1", "hicn:2001:db8:1::/48"),
    ("/vod", "hicn:2001:db8:2::/48"),
    ("/files", "hicn:2001:db8:3::/48"),
];

impl Network {
    fn new(packets: Packets) -> Self {
        let host = Host::new();
        let channel = start(&host, "python3", &["channel.py", &host.free_port().to_string()]);
        let hicn_port = host.free_port();
        let config = format!("[faces]\nudp_mtu = 1500\nhicn_udp = [\"127.0.0.1:{hicn_port}\"]\n");
        host.write("router.toml", config.as_bytes());
        let routers = [
            Router::start_at_with(&host, "first", &["--config", "router.toml"]),
            Router::start_at(&host, "second"),
            Router::start_at(&host, "third"),
        ];
        routers[2].add_route("/", &routers[1].udp());
        match packets {
            Packets::Ndn => routers[1].add_route("/", &routers[0].udp()),
            Packets::Hicn => {
                let uri = format!("hicn+udp4://127.0.0.1:{hicn_port}");
                routers[1].weir(&["face", "create", &uri, "--mtu", "1500"]).success();
                MAPPINGS.iter().for_each(|(_, prefix)| routers[1].add_route(prefix, &uri));
            }
        }
        let content = channel.json_line();
        let text = |key: &str| content[key].as_str().expect("text").to_owned();
        let (nginx, folder) = (text("url"), text("folder"));
        let mut origins = String::new();
        let mut front = "[front]\nlisten = [\"127.0.0.1:0\"]\n[[front.host]]\n".to_owned();
        for (prefix, mapping) in MAPPINGS {
            let (mapping, segment_size) = match packets {
                Packets::Ndn => ("identity", 8000),
                Packets::Hicn => (mapping, 1000),
            };
            let names = format!("prefix = \"{prefix}\"\nmapping = \"{mapping}\"\n");
            let live = prefix.starts_with("/tv");
            let server = format!(
                "url = \"{nginx}{prefix}\"\nlive = {live}\nsegment_size = {segment_size}\n"
            );
            origins += &format!("[[origin]]\n{names}{server}");
            // The host states the mapping of the prefix, which every host then uses.
            front += &format!("[[front.host]]\nhost = \"{}\"\n{names}", &prefix[1..]);
        }
        let gateway = |router: &Router, file: &str, config: &str| {
            host.write(file, config.as_bytes());
            let process = router.spawn(&["gateway", "--json", "run", "--config", file]);
            let ready = process.json_line();
            (process, ready)
        };
        let (origin, _) = gateway(&routers[0], "origin.toml", &origins);
        let (front, ready) = gateway(&routers[2], "front.toml", &front);
        let url = ready["urls"][0].as_str().expect("a URL").trim_end_matches('/').to_owned();
        Self { host, folder, url, _programs: vec![channel, front, origin], _routers: routers }
    }

    /// Runs a client that compares what the front serves with the folder.
    fn compare(&self, client: &str) -> Value {
        let finished = start(&self.host, "python3", &[client, &self.url, &self.folder]);
        finished.finish_within(CLIENT_LIMIT).success().json()
    }

    /// Plays a stream, and returns the report of the player.
    fn play(&self, player: &str, path: &str) -> Value {
        let url = format!("{}/{path}", self.url);
        let mut words = vec!["play.mjs", player, &url, "--seconds", PLAY_SECONDS];
        let picture = std::env::var_os("WEIR_SCREENSHOTS").map(|folder| {
            let path = Path::new(&folder).join(format!("{player}.png"));
            path.to_str().expect("UTF-8").to_owned()
        });
        words.extend(picture.iter().flat_map(|path| ["--screenshot", path]));
        start(&self.host, "node", &words).finish_within(CLIENT_LIMIT).success().json()
    }
}

/// Starts a program of `tests/players` with an interpreter. Its temporary files are on the host.
fn start(host: &Host, interpreter: &str, arguments: &[&str]) -> Process {
    let mut command = host.command(Path::new(interpreter));
    command.arg(programs().join(arguments[0])).args(&arguments[1..]);
    command.env("TMPDIR", host.path("")).env("PYTHONDONTWRITEBYTECODE", "1");
    Process::start(&arguments.join(" "), command)
}

#[test]
fn browsers_play_live_and_film() {
    if !has_channel() || !has_browser() {
        return;
    }
    let network = Network::new(Packets::Ndn);
    for player in ["hls", "shaka"] {
        for path in ["tv/c1/master.m3u8", "vod/master.m3u8"] {
            let report = network.play(player, path);
            println!("{path}: {report}");
            assert_eq!(report["played"], true, "{path}: {report}");
            assert!(report["decoded_frames"].as_u64() > Some(0), "{path}: {report}");
        }
    }
}

#[test]
fn ffmpeg_copies_every_packet() {
    if !has_channel() {
        return;
    }
    println!("{}", Network::new(Packets::Ndn).compare("remux.py"));
}

#[test]
fn ffmpeg_copies_every_packet_of_an_hicn_producer() {
    if !has_channel() {
        return;
    }
    println!("{}", Network::new(Packets::Hicn).compare("remux.py"));
}

#[test]
fn curl_resumes_broken_downloads() {
    if !has_channel() {
        return;
    }
    println!("{}", Network::new(Packets::Ndn).compare("resume.py"));
}

#[test]
fn fsspec_reads_columns_of_parquet() {
    let modules = ["-c", "import aiohttp, fsspec, pyarrow"];
    let what = "`pip install --requirement tests/players/requirements.txt`";
    if !has_channel() || !is_installed("python3", &modules, what) {
        return;
    }
    println!("{}", Network::new(Packets::Ndn).compare("columns.py"));
}
