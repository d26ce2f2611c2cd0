use weir_base::units::Time;
use weir_disk::Engine;
#[cfg(feature = "lab")]
use weir_disk::Service;
#[cfg(feature = "lab")]
use weir_forward::Labels;
use weir_runtime::{BusyPolicy, Bypass, Listener, Mark, MulticastConfig, UnsolicitedPolicy};
use weir_store::disk::{Admission, OfferAt};
#[cfg(feature = "lab")]
use weir_store::disk::{Contention, FilterKind};
use weir_wire::Name;

use super::*;

fn parse(text: &str) -> anyhow::Result<FileConfig> {
    FileConfig::parse(text, "weir.toml")
}

fn error_of(text: &str) -> String {
    format!("{:#}", parse(text).expect_err("must be refused"))
}

#[test]
fn printed_default_equals_the_defaults() {
    assert_eq!(parse(&default_config()).unwrap(), FileConfig::default());
    assert_eq!(parse("").unwrap(), FileConfig::default());
}

/// The printed default with all keys. Lines such as `#uri = "..."`, without a space after `#`, are
/// keys without a default.
fn uncommented() -> String {
    let text = default_config();
    let lines = text.lines().map(|line| match line.strip_prefix('#') {
        Some(rest) if rest.starts_with(|c: char| c.is_ascii_lowercase() || c == '[') => rest,
        _ => line,
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn printed_examples_are_valid() {
    let mut config = parse(&uncommented()).unwrap();
    assert_eq!(config.metrics.address, Some("127.0.0.1:9636".parse().unwrap()));
    assert_eq!(config.face[0].routes_file.take(), Some("/etc/weir/routes.txt".into()));
    let faces = config.static_faces().unwrap();
    assert_eq!(faces.len(), 1);
    assert!(faces[0].permanent);
    assert_eq!(faces[0].mtu, Some(1420));
    assert_eq!(faces[0].marking, "codel".parse().ok());
    let routes: Vec<_> = faces[0].routes.iter().map(|(n, c)| (n.to_string(), *c)).collect();
    assert_eq!(routes, [("/".to_owned(), 0), ("/video".to_owned(), 10)]);
    assert_eq!(config.strategy[0].strategy.0.to_string(), "/localhost/nfd/strategy/multicast");
}

/// Keys for experiments (`docs/lab.md`), which the printed default omits.
const ELSEWHERE: [&str; 3] = ["discipline", "pace", "stalled_while"];

/// Every key appears in the printed default. The list of keys comes from serde's error about an
/// unknown key.
#[test]
fn every_key_is_documented() {
    for section in [
        "router",
        "store",
        "disks",
        "[disk]",
        "faces",
        "management",
        "metrics",
        "log",
        "[face]",
        "[route]",
        "[strategy]",
    ] {
        let message = error_of(&format!("[{section}]\nno_such_key = 1\n"));
        let known = message.split("expected ").nth(1).unwrap_or_default();
        let known = known.lines().next().unwrap_or_default();
        let keys: Vec<&str> = known.split('`').skip(1).step_by(2).collect();
        assert!(!keys.is_empty(), "{message}");
        for key in keys.iter().filter(|key| !ELSEWHERE.contains(key)) {
            let documented =
                uncommented().lines().any(|line| line.starts_with(&format!("{key} =")));
            assert!(documented, "{key} of [{section}] is not in the printed default");
        }
    }
}

#[test]
fn reads_disciplines_not_in_the_example() {
    let text = "[[face]]\nuri = \"udp://a\"\nshaping = \"fisp capacity=1500KB gamma=0.6\"\n\
                discipline = \"fifo\"\n";
    let face = parse(text).unwrap().static_faces().unwrap().remove(0);
    assert_eq!(face.shaping, "fisp".parse().ok());
    assert_eq!(face.discipline, "fifo".parse().ok());
}

/// The real arm of the laboratory configures its routers with these keys.
#[cfg(feature = "lab")]
#[test]
fn experiments_choose_marking_and_disciplines() {
    let refused = [
        ("[faces]\nmarking = \"rem mu=0\"\n", &["line 2", "marking", "`mu=0`"][..]),
        (
            "[faces]\nmarking = \"rem q_min=450KB q_max=150KB\"\n",
            &["line 2", "marking", "q_min=450kB and q_max=150kB"],
        ),
        (
            "[faces]\nqueue_size_max = \"1MB\"\nmarking = \"rem q_max=90KB\"\n",
            &["[faces] `marking`", "`queue_size_max` = \"1MB\"", "q_min=100kB and q_max=90kB"],
        ),
        ("[faces]\ndiscipline = \"red\"\n", &["line 2", "discipline", "interest-rate"]),
    ];
    for (text, parts) in refused {
        let error = error_of(text);
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
    let text = "[faces]\nmarking = \"step target=60s\"\ndiscipline = \"hr-icp rate_bps=9\"\n";
    let defaults = parse(text).unwrap().faces.defaults();
    assert_eq!(defaults.marking.to_string(), "step target=60s");
    assert_eq!(defaults.discipline.unwrap().to_string(), "hr-icp rate_bps=9");
}

#[test]
fn two_lines_declare_a_face_and_route() {
    let config = parse("[[face]]\nuri = \"udp://west.example\"\nroutes = [\"/\"]\n").unwrap();
    let face = &config.static_faces().unwrap()[0];
    assert!(face.permanent);
    assert_eq!(face.uri, "udp://west.example");
    assert_eq!(face.routes, [(Name::new(), 0)]);
}

#[test]
fn errors_name_key_line_and_remedy() {
    let prefixes: Vec<String> = (0..65).map(|at| format!("\"/{at}\"")).collect();
    let too_many_prefixes = format!("[metrics]\nprefixes = [{}]\n", prefixes.join(", "));
    let cases = [
        ("[router]\nthread = 2\n", &["line 2", "thread", "`threads`"][..]),
        ("[router]\nthreads = 0\n", &["line 2", "threads", "1 to 64"]),
        ("[router]\nthreads = \"two\"\n", &["line 2", "threads = \"two\"", "1 to 64", "auto"]),
        ("[router]\n\nmemory_max = \"8MiB\"\n", &["line 3", "`memory_max` is 8MiB", "\"16MiB\""]),
        ("[router]\nthreads = 8\nmemory_max = 9\n", &["line 3", "8 worker threads", "\"32MiB\""]),
        ("[faces]\nstall_timeout = \"0s\"\n", &["line 2", "stall_timeout", "60s"]),
        ("\n[store]\nsize = \"256 parsecs\"\n", &["line 3", "size", "MiB"]),
        ("[store]\npolicy = \"random\"\n", &["line 2", "policy", "s3-fifo"]),
        ("[faces]\nidle_timeout = \"long\"\n", &["line 2", "idle_timeout", "10ms"]),
        ("[faces]\nidle_timeout = 5\n", &["line 2", "idle_timeout", "5s"]),
        ("[faces]\nidle_timeout = \"0s\"\n", &["line 2", "idle_timeout", "600s"]),
        ("[faces]\nmark_interval = \"0s\"\n", &["line 2", "mark_interval", "100ms"]),
        ("[faces]\nmarking = \"red\"\n", &["line 2", "marking", "codel"]),
        ("[faces]\nmarking = \"codel target=0s\"\n", &["line 2", "marking", "`target=0s`"]),
        ("[faces]\nmarking = \"codel target=1s\"\n", &["line 2", "target=1s and interval=100ms"]),
        ("[faces]\nshaping = \"fisp min=0.95\"\n", &["line 2", "min=0.95 and max=0.9"]),
        ("[faces]\ndiscipline = \"red\"\n", &["line 2", "discipline", "fifo"]),
        ("[faces]\ndiscipline = \"fifo x=1\"\n", &["line 2", "discipline", "`x=1`"]),
        ("[faces]\nshaping = \"red\"\n", &["line 2", "shaping", "fisp"]),
        ("[faces]\nshaping = \"fisp gamma\"\n", &["line 2", "`gamma`", "gamma=0.6"]),
        ("[faces]\nqueue_size_max = 0\n", &["line 2", "queue_size_max", "4MiB"]),
        ("[store]\nunsolicited = \"admit\"\n", &["line 2", "unsolicited", "admit-local"]),
        ("[router]\nproducer_regions = [\"a\"]\n", &["line 2", "producer_regions", "\"/a\""]),
        ("[faces]\nudp = [\"everywhere\"]\n", &["line 2", "everywhere", "0.0.0.0:6363"]),
        ("[metrics]\naddress = \"localhost\"\n", &["line 2", "localhost", "127.0.0.1:9636"]),
        ("[metrics]\nprefixes = [\"a\"]\n", &["line 2", "prefixes", "\"/a\""]),
        ("[metrics]\nprefixes = [\"/a\", \"/b\", \"ndn:/a\"]\n", &["line 2", "/a occurs twice"]),
        (&too_many_prefixes, &["line 2", "65 prefixes", "at most 64"]),
        ("[faces]\nudp_mtu = 20\n", &["line 2", "udp_mtu", "64 to 8800"]),
        ("[[face]]\nuri = \"gopher://x\"\n", &["line 2", "uri", "udp://HOST:PORT"]),
        ("[[face]]\nroutes = [\"/\"]\n", &["line 1", "missing field `uri`"]),
        (
            "[[face]]\nuri = \"udp://b\"\nroutes = [\"hicn:b001::/20\"]\n",
            &["line 3", "multiple of 16 bits"],
        ),
        ("[[route]]\nprefix = \"/a\"\nface = \"udp://b\"\n", &["line 3", "[[face]]", "udp://b"]),
        ("[[strategy]]\nprefix = \"/a\"\nstrategy = \"best\"\n", &["line 3", "best-route"]),
        ("[[strategy]]\nprefix = \"a\"\nstrategy = \"multicast\"\n", &["line 2", "\"/a\""]),
        ("[management]\nlocalhop = true\n", &["localhop", "trust_anchors", "localhop = false"]),
        ("store = 5\n", &["line 1", "expected a table"]),
        ("[disk]\npath = \"/d\"\n", &["line 1", "[[disk]]"]),
        ("[faces]\nunix_mode = \"rw\"\n", &["line 2", "unix_mode", "0660"]),
        ("[faces]\nunix_mode = \"7777\"\n", &["line 2", "unix_mode", "0660"]),
        ("[disks]\nmark = \"nbcc\"\n", &["line 2", "mark", "nb-cc"]),
        ("[disks]\nbypass = true\n", &["line 2", "bypass"]),
        ("[disks]\nthreshold = -1\n", &["line 2", "threshold", "0 to"]),
        ("[disks]\ndepth = 0\n", &["line 2", "depth", "1 to 1024"]),
        ("[disks]\nadmission = \"third-hit\"\n", &["line 2", "admission", "second-hit"]),
        ("[disks]\nstalled_after = \"0s\"\n", &["line 2", "stalled_after", "500ms"]),
        ("[disks]\nindex_memory_max = \"much\"\n", &["line 2", "index_memory_max", "auto"]),
        ("[[disk]]\nsize = \"1GiB\"\n", &["line 1", "missing field `path`"]),
        ("[[disk]]\npath = \"\"\n", &["line 2", "path", "block device"]),
        ("[[disk]]\npath = \"/d\"\nsize = \"1 disk\"\n", &["line 3", "size", "MiB"]),
        ("[[disk]]\npath = \"/d\"\nregion_size = 1\n", &["line 3", "region_size", "65536"]),
        ("[[disk]]\npath = \"/d\"\nengine = \"uring\"\n", &["line 3", "engine", "io-uring"]),
        ("[log]\nlevel = \"info,=\"\n", &["line 2", "level"]),
        ("[log]\nlevel = \"loud\"\n", &["line 2", "loud", "error, warn, info"]),
    ];
    for (text, parts) in cases {
        let message = error_of(text);
        for part in parts {
            assert!(message.contains(part), "{text:?} gives {message:?}, which lacks {part:?}");
        }
        assert!(message.starts_with("weir.toml"), "{message}");
    }
}

#[test]
fn data_and_hint_options_reach_the_router() {
    let text = "[router]\nproducer_regions = [\"/net/x\"]\n[store]\nunsolicited = \"admit-all\"\n";
    let config = parse(text).unwrap().to_runtime().unwrap();
    assert_eq!(config.unsolicited, UnsolicitedPolicy::AdmitAll);
    assert_eq!(config.producer_regions, ["/net/x".parse().unwrap()]);
    let config = FileConfig::default().to_runtime().unwrap();
    assert_eq!(config.unsolicited, UnsolicitedPolicy::DropAll);
}

#[test]
fn multicast_follows_the_udp_listeners() {
    let multicast = |text: &str| {
        let config = parse(&format!("[faces]\n{text}\n")).unwrap().to_runtime().unwrap();
        let MulticastConfig { devices, has_ipv4, has_ipv6 } = config.multicast;
        (devices, has_ipv4, has_ipv6)
    };
    assert_eq!(multicast(""), (None, true, true));
    assert_eq!(multicast("udp = [\"0.0.0.0:7000\", \"[::1]:7000\"]"), (None, true, false));
    assert_eq!(multicast("udp = [\"192.0.2.1:6363\", \"[::]:6363\"]"), (None, false, true));
    assert_eq!(multicast("udp = []"), (None, false, false));
    assert_eq!(multicast("multicast = \"none\""), (None, false, false));
    let devices = Some(vec!["eth0".into(), "wlan0".into()]);
    assert_eq!(multicast("udp = []\nmulticast = [\"eth0\", \"wlan0\"]"), (devices, true, true));
    for (value, part) in [
        ("\"eth0\"", "write \"auto\", \"none\", or names of network devices, such as [\"eth0\"]"),
        ("true", "names of network devices"),
        ("[\"\"]", "names no network device"),
        ("[\"name-of-16-bytes\"]", "names no network device"),
        ("[\"a\\u0000\"]", "names no network device"),
        ("[\"auto\"]", "write multicast = \"auto\", not a list"),
    ] {
        let error = error_of(&format!("[faces]\nmulticast = {value}\n"));
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn websocket_listeners_and_faces_reach_the_router() {
    let text = "[faces]\nwebsocket = [\"127.0.0.1\", \"[::1]:80\"]\n[[face]]\nuri = \"ws://b\"\n";
    let config = parse(text).unwrap().to_runtime().unwrap();
    let listeners: Vec<_> = config
        .listeners
        .iter()
        .filter_map(|listener| match listener {
            &Listener::WebSocket { address, required } => Some((address.to_string(), required)),
            _ => None,
        })
        .collect();
    assert_eq!(listeners, [("127.0.0.1:9696".to_owned(), true), ("[::1]:80".to_owned(), false)]);
    assert_eq!(config.static_faces[0].uri, "ws://b");
}

#[test]
fn tls_listeners_need_both_files() {
    let files = "tls_certificate = \"c.pem\"\ntls_key = \"k.pem\"\n";
    let text = format!("[faces]\nwebsocket_tls = [\"::1\"]\n{files}tls_ca = \"ca.pem\"\n");
    let config = parse(&text).unwrap().to_runtime().unwrap();
    let tls = config.listeners.iter().find_map(|listener| match listener {
        Listener::WebSocketTls { address, required, files } => Some((address, required, files)),
        _ => None,
    });
    let (address, required, files_read) = tls.unwrap();
    assert_eq!((address.to_string().as_str(), required), ("[::1]:443", &true));
    assert_eq!((&*files_read.certificate, &*files_read.key), ("c.pem".as_ref(), "k.pem".as_ref()));
    assert_eq!(config.face_defaults.tls_ca, Some("ca.pem".into()));
    for (text, expected) in [
        ("websocket_tls = [\":443\"]\n", "needs both `tls_certificate` and `tls_key`"),
        ("websocket_tls = [\":443\"]\ntls_key = \"k.pem\"\n", "needs both"),
        (files, "nothing listens for TLS"),
        ("tls_key = \"k.pem\"\n", "nothing listens for TLS"),
    ] {
        let config = parse(&format!("[faces]\n{text}")).unwrap();
        let error = config.to_runtime().unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn two_lines_declare_a_disk() {
    let text = "[[disk]]\npath = \"/var/lib/weir/store\"\nsize = \"100GiB\"\n";
    let disks = parse(text).unwrap().to_runtime().unwrap().disks.unwrap();
    assert_eq!(disks.files.len(), 1);
    assert_eq!(disks.files[0].path, PathBuf::from("/var/lib/weir/store"));
    assert_eq!(disks.files[0].bytes, Some(100 << 30));
    assert!(disks.files[0].direct);
    assert_eq!(disks.files[0].engine, Engine::Auto);
    assert_eq!(disks.busy, BusyPolicy::default());
    assert_eq!((disks.tier.bypass_threshold, disks.tier.depth), (64, 64));
    assert!(FileConfig::default().to_runtime().unwrap().disks.is_none());
}

#[test]
fn disk_options_reach_the_router() {
    let text = "[disks]\nbypass = \"adaptive\"\n\
                mark = \"ecn\"\nthreshold = 600\nadmission = \"4KiB\"\noffer = \"arrival\"\n\
                stop_timeout = \"0s\"\nindex_memory_max = \"1GiB\"\n\
                [[disk]]\npath = \"/a\"\nengine = \"threads\"\nio_threads = 8\ndirect = false\n\
                [[disk]]\npath = \"/b\"\nregion_size = \"16MiB\"\n";
    let disks = parse(text).unwrap().to_runtime().unwrap().disks.unwrap();
    assert_eq!(disks.busy.bypass, Bypass::Adaptive);
    assert_eq!(disks.busy.mark, Mark::Ecn);
    assert_eq!(disks.tier.bypass_threshold, 600);
    assert_eq!(disks.tier.admission, Admission::Size { bytes_min: 4096 });
    assert_eq!(disks.tier.offer_at, OfferAt::Arrival);
    assert_eq!(disks.stop_timeout, Duration::ZERO);
    assert_eq!(disks.index_bytes_max, Some(1 << 30));
    assert_eq!(disks.files[0].engine, Engine::Threads(8));
    assert!(!disks.files[0].direct);
    assert_eq!(disks.files[1].region_bytes, Some(16 << 20));
}

#[cfg(feature = "lab")]
#[test]
fn experiments_pace_and_stall_disks() {
    let text = "[[disk]]\npath = \"/a\"\n[[disk]]\npath = \"/b\"\nstalled_while = \"/c\"\n\
                pace = { ops_per_s = 414, service = \"exponential\", seed = 7 }\n";
    let disks = parse(text).unwrap().to_runtime().unwrap().disks.unwrap();
    let pace = disks.files[1].pace.unwrap();
    assert_eq!((pace.ops_per_s, pace.service), (414.0, Service::Exponential { seed: 7 }));
    assert_eq!(disks.stalled_while, [None, Some(PathBuf::from("/c"))]);
    let message = error_of("[[disk]]\npath = \"/d\"\npace = { ops_per_s = 0 }\n");
    for part in ["line 3", "pace", "4700"] {
        assert!(message.contains(part), "{message:?} lacks {part:?}");
    }
}

#[cfg(feature = "lab")]
#[test]
fn lab_options_reach_the_disks() {
    let text = "[[disk]]\npath = \"/a\"\n[lab.disks]\nio = \"blocking\"\nlabels = \"path\"\n\
                announce_period = \"3ms\"\ncontention = \"data-first\"\nfilter = \"index\"\n";
    let config = parse(text).unwrap().to_runtime().unwrap();
    assert!(config.extension.is_some());
    let disks = config.disks.unwrap();
    assert_eq!((disks.busy.labels, disks.busy.announce_period_ns), (Labels::Path, 3_000_000));
    assert_eq!(disks.tier.filter, FilterKind::Index);
    assert_eq!(disks.tier.contention, Contention::DataFirst);
    let message = error_of("[disks]\nio = \"blocking\"\n");
    assert!(message.contains("[lab.disks]"), "{message}");
    let ordered = parse("[lab.store]\nindex = \"ordered\"\n").unwrap().to_runtime().unwrap();
    assert!(ordered.extension.is_some() && ordered.disks.is_none());
    assert!(FileConfig::default().to_runtime().unwrap().extension.is_none());
}

#[cfg(not(feature = "lab"))]
#[test]
fn lab_keys_are_refused_without_lab() {
    for text in ["[disks]\nio = \"blocking\"\n", "[lab.disks]\nio = \"blocking\"\n"] {
        let message = error_of(text);
        assert!(message.contains("for experiments of the laboratory"), "{message}");
    }
}

#[test]
fn error_explains_keys_moved_to_the_lab() {
    for (section, key) in [
        ("store", "index"),
        ("store", "compare"),
        ("disks", "io"),
        ("disks", "interests_waiting_max"),
        ("disks", "labels"),
        ("disks", "announce_period"),
        ("disks", "contention"),
        ("disks", "filter"),
        ("disks", "filter_false_positives_ppm"),
    ] {
        let message = error_of(&format!("[{section}]\n{key} = 1\n"));
        assert!(message.contains("for experiments of the laboratory"), "{key}: {message}");
    }
}

#[cfg(feature = "lab")]
#[test]
fn lab_keys_have_bounds() {
    for text in [
        "interests_waiting_max = 0",
        "announce_period = \"1h\"",
        "filter_false_positives_ppm = 900000",
    ] {
        let message = error_of(&format!("[lab.disks]\n{text}\n"));
        assert!(message.contains("is out of range; choose"), "{text}: {message}");
    }
}

#[cfg(not(feature = "lab"))]
#[test]
fn disk_hooks_are_unknown_without_lab() {
    for key in ["pace", "stalled_while"] {
        let message = error_of(&format!("[[disk]]\npath = \"/d\"\n{key} = \"/c\"\n"));
        assert!(message.contains(&format!("unknown field `{key}`")), "{message}");
    }
}

#[test]
fn refuses_disk_values_out_of_bounds() {
    let cases: [(&str, &[&str]); 3] = [
        ("[disks]\nindex_memory_max = \"4KiB\"\n", &["line 2", "\"1MiB\"", "auto"]),
        ("[disks]\nindex_memory_max = 0\n", &["line 2", "\"1MiB\""]),
        ("[disks]\nwrite_delay_max = \"61s\"\n", &["line 2", "\"1m\""]),
    ];
    for (text, parts) in cases {
        let message = error_of(text);
        for part in parts {
            assert!(message.contains(part), "{text:?} gives {message:?}, which lacks {part:?}");
        }
    }
    let text = |threads: u32| {
        format!(
            "[router]\nthreads = {threads}\n[disks]\nindex_memory_max = \"3MiB\"\n\
             write_delay_max = \"1m\"\n[[disk]]\npath = \"/a\"\n"
        )
    };
    assert!(parse(&text(3)).unwrap().to_runtime().is_ok());
    let error = parse(&text(4)).unwrap().to_runtime().unwrap_err();
    assert!(format!("{error:#}").contains("\"4MiB\""), "{error:#}");
}

#[test]
fn refuses_more_than_sixteen_disks() {
    let text: String = (0..17).map(|disk| format!("[[disk]]\npath = \"/{disk}\"\n")).collect();
    let error = parse(&text).unwrap().to_runtime().unwrap_err();
    assert!(format!("{error:#}").contains("at most 16"), "{error:#}");
}

#[test]
fn refuses_endless_trust_anchor_file() {
    let text = "[management]\ntrust_anchors = [\"/dev/zero\"]\n";
    let error = parse(text).unwrap().to_runtime().unwrap_err();
    assert!(format!("{error:#}").contains("/dev/zero"), "{error:#}");
}

#[test]
fn parses_sizes_and_times() {
    for (text, bytes) in [
        ("0", 0),
        ("1500", 1500),
        ("64KiB", 65536),
        ("256MiB", 256 << 20),
        ("2 GiB", 2 << 30),
        ("1g", 1 << 30),
        ("10MB", 10_000_000),
    ] {
        assert_eq!(text.parse::<Size>(), Ok(Size { bytes }), "{text}");
    }
    for text in ["", "MiB", "-1", "99999999999TiB", "1 lightyear"] {
        assert!(text.parse::<Size>().is_err(), "{text}");
    }
    for (text, ms) in [("100ms", 100), ("10s", 10_000), ("5m", 300_000), ("1h", 3_600_000)] {
        assert_eq!(text.parse::<Time>(), Ok(Time { ns: ms * 1_000_000 }));
    }
    for text in ["", "10", "s", "-1s", "1d"] {
        assert!(text.parse::<Time>().is_err(), "{text}");
    }
}

#[test]
fn parses_listen_addresses() {
    assert_eq!(parse_listen_address("127.0.0.1:1").unwrap(), "127.0.0.1:1".parse().unwrap());
    assert_eq!(parse_listen_address("::1").unwrap(), "[::1]:6363".parse().unwrap());
    assert_eq!(parse_listen_address(":99").unwrap(), "0.0.0.0:99".parse().unwrap());
    assert!(parse_listen_address("here").is_err());
}

#[test]
fn error_names_unusable_trust_anchor() {
    let file = std::env::temp_dir().join(format!("weir-no-anchor-{}", std::process::id()));
    std::fs::write(&file, "not a certificate").unwrap();
    let text = format!("[management]\ntrust_anchors = [{:?}, \"/no/such/file\"]\n", file);
    let error = parse(&text).unwrap().to_runtime().unwrap_err();
    std::fs::remove_file(&file).unwrap();
    let message = format!("{error:#}");
    assert!(message.contains("weir-no-anchor") && message.contains("weir key export"), "{message}");
}

#[test]
fn reads_routes_from_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("routes.txt");
    let face = format!("[[face]]\nuri = \"udp://west\"\nroutes_file = {path:?}\ncost = 3\n");
    let faces = || parse(&face).unwrap().static_faces();
    let missing = format!("{:#}", faces().unwrap_err());
    assert!(missing.contains("routes.txt") && missing.contains("routes_file"), "{missing}");
    std::fs::write(&path, "# ours\n/a\n\n /b/c \n").unwrap();
    let routes: Vec<_> = faces().unwrap().remove(0).routes;
    assert_eq!(routes, [("/a".parse().unwrap(), 3), ("/b/c".parse().unwrap(), 3)]);
    std::fs::write(&path, "/a\nb\n").unwrap();
    let bad = format!("{:#}", faces().unwrap_err());
    assert!(bad.contains("routes.txt: line 2") && bad.contains("\"/b\""), "{bad}");
    let text = "[[face]]\nuri = \"udp://west\"\nroutes_file = \"/dev/zero\"\n";
    let endless = format!("{:#}", parse(text).unwrap().static_faces().unwrap_err());
    assert!(endless.contains("/dev/zero"), "{endless}");
}

#[test]
fn pins_must_fit_into_the_store() {
    let pin =
        |prefix: &str, size: &str| format!("[[pin]]\nprefix = \"{prefix}\"\nsize = \"{size}\"\n");
    let check = |pins: String| {
        let config = parse(&format!("[store]\nsize = \"16MiB\"\n{pins}")).unwrap();
        config.to_runtime().map(drop).map_err(|error| error.to_string())
    };
    check(pin("/a", "10MiB") + &pin("/b", "5MiB")).unwrap();
    let error = check(pin("/a", "10MiB") + &pin("/b", "6MiB")).unwrap_err();
    assert!(error.contains("add up to 16MiB") && error.contains("at most 15MiB"), "{error}");
    assert!(error.contains("`size` = \"16MiB\""), "{error}");
    let error = check(pin("/a", "1MiB") + &pin("/a", "2MiB")).unwrap_err();
    assert!(error.contains("several [[pin]] have the prefix /a"), "{error}");
}
