//! Apache Traffic Server as the cache before the origin.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::super::super::{RealError, proc};
use super::super::processes::{GroupProcessId, ProcessGroup, find, write};
use super::{PAUSE, Setup, free_address, get, get_json, system};

/// The server with its plugin stats_over_http.
pub(super) const MISSING: &str =
    "Apache Traffic Server is not installed here; on Debian: apt install trafficserver";

/// Folders of plugins: Debian's, and that of an installation from source.
const PLUGINS: [&str; 2] = ["/usr/lib/trafficserver/modules", "/usr/local/libexec/trafficserver"];
const PLUGIN: &str = "stats_over_http.so";

pub(super) struct Programs {
    server: PathBuf,
    plugins: &'static str,
}

impl Programs {
    pub(super) fn find() -> Option<Self> {
        let has_plugin = |folder: &&str| Path::new(folder).join(PLUGIN).is_file();
        Some(Self {
            server: find("traffic_server")?,
            plugins: PLUGINS.into_iter().find(has_plugin)?,
        })
    }
}

pub(super) struct CacheServer {
    pub(super) address: SocketAddr,
    id: GroupProcessId,
}

/// Starts a cache before `origin`, in a fresh folder.
pub(super) fn start(
    setup: &mut Setup<'_, '_>,
    programs: &Programs,
    origin: SocketAddr,
) -> Result<CacheServer, RealError> {
    let address = free_address()?;
    let dir = setup.group.dir().join("cache-server");
    let disk = setup.folder.join("cache");
    let folders = ["etc", "run", "log"].map(|name| dir.join(name));
    for folder in folders.iter().chain([&disk]) {
        std::fs::create_dir_all(folder).map_err(system("cannot create a folder for the cache"))?;
    }
    let [etc, run, log] = folders.each_ref().map(|folder| folder.display());
    let (disk, plugins) = (disk.display(), programs.plugins);
    let bytes = setup.video().cache.bytes;
    for (file, text) in [
        ("records.config", records_text(address, bytes)),
        ("storage.config", format!("{disk} {bytes}\n")),
        ("remap.config", format!("map http://{address}/ http://{origin}/\n")),
        ("plugin.config", format!("{PLUGIN}\n")),
        ("ip_allow.yaml", IP_ALLOW.to_owned()),
    ] {
        write(&dir.join("etc").join(file), text.as_bytes())?;
    }
    let root = dir.join("runroot.yaml");
    let root_text = format!(
        "prefix: /usr\nsysconfdir: {etc}\nruntimedir: {run}\nlocalstatedir: {run}\nlogdir: \
         {log}\ncachedir: {disk}\nlibexecdir: {plugins}\n"
    );
    write(&root, root_text.as_bytes())?;
    let argument = format!("--run-root={}", root.display());
    let id = setup.group.program(&programs.server, &[&argument])?;
    setup.working.push(id);
    let server = CacheServer { address, id };
    while get(&server.counters_url()).is_err() {
        setup.group.rest(PAUSE, &setup.working)?;
    }
    Ok(server)
}

const IP_ALLOW: &str =
    "ip_allow:\n  - apply: in\n    ip_addrs: 127.0.0.1\n    action: allow\n    methods: ALL\n";

/// Settings that differ from the server's defaults. Counters are current within half a second.
fn records_text(address: SocketAddr, memory_bytes: u64) -> String {
    let (ip, port) = (address.ip(), address.port());
    [
        ("http.server_ports", "STRING", format!("{port}:ip-in={ip}")),
        ("admin.user_id", "STRING", "#-1".to_owned()),
        ("cache.ram_cache.size", "INT", memory_bytes.to_string()),
        ("log.logging_enabled", "INT", "0".to_owned()),
        ("crash_log_helper", "STRING", "NULL".to_owned()),
        ("raw_stat_sync_interval_ms", "INT", "500".to_owned()),
    ]
    .map(|(name, kind, value)| format!("CONFIG proxy.config.{name} {kind} {value}\n"))
    .concat()
}

impl CacheServer {
    fn counters_url(&self) -> String {
        format!("http://{}/_stats", self.address)
    }

    pub(super) fn counts(&self) -> Result<CacheCounts, RealError> {
        let counters = get_json(&self.counters_url())?;
        CacheCounts::read(&counters["global"]).ok_or_else(|| RealError::System {
            what: "the cache server does not report its counters".to_owned(),
            source: io::ErrorKind::InvalidData.into(),
        })
    }

    pub(super) fn cpu_ns(&self, group: &ProcessGroup<'_>) -> Result<u64, RealError> {
        proc::cpu_ns(group.system_id(self.id))
            .map_err(system("cannot read the processor time of the cache server"))
    }

    pub(super) fn resident_bytes(&self, group: &ProcessGroup<'_>) -> Result<u64, RealError> {
        proc::resident_bytes(group.system_id(self.id))
            .map_err(system("cannot read the memory of the cache server"))
    }
}

/// Counters of the cache server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CacheCounts {
    pub(super) requests: u64,
    pub(super) hits: u64,
    pub(super) misses: u64,
    /// Content bytes that it sent.
    pub(super) octets: u64,
}

impl CacheCounts {
    /// Reads the counters; `None` if one is missing. All kinds of hits and of misses count. Hits of
    /// the memory cache (`cache_hit_mem_fresh`) are among those of `cache_hit_fresh`. Hits of
    /// content that is still arriving (`cache_hit_rww`) are not.
    fn read(counters: &Value) -> Option<Self> {
        const HITS: [&str; 5] = ["fresh", "rww", "revalidated", "ims", "stale_served"];
        const HTTP: &str = "proxy.process.http.";
        let number = |value: &Value| value.as_str()?.parse::<u64>().ok();
        let one = |name: &str| number(&counters[format!("{HTTP}{name}")]);
        let is_miss = |name: &str| {
            name.strip_prefix(HTTP).is_some_and(|name| name.starts_with("cache_miss_"))
        };
        let misses = counters.as_object()?.iter().filter(|(name, _)| is_miss(name));
        Some(Self {
            requests: one("incoming_requests")?,
            hits: HITS.iter().map(|kind| one(&format!("cache_hit_{kind}"))).sum::<Option<_>>()?,
            misses: misses.map(|(_, value)| number(value)).sum::<Option<_>>()?,
            octets: one("user_agent_response_document_total_size")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn all_kinds_of_hits_and_misses_count() {
        let mut counters = json!({
            "proxy.process.http.incoming_requests": "39",
            "proxy.process.http.cache_hit_fresh": "6",
            "proxy.process.http.cache_hit_mem_fresh": "5",
            "proxy.process.http.cache_hit_revalidated": "2",
            "proxy.process.http.cache_hit_ims": "0",
            "proxy.process.http.cache_hit_rww": "1",
            "proxy.process.http.cache_hit_stale_served": "0",
            "proxy.process.http.cache_miss_cold": "17",
            "proxy.process.http.cache_miss_changed": "2",
            "proxy.process.http.cache_lookups": "27",
            "proxy.process.http.user_agent_response_document_total_size": "12930803",
        });
        let expected = CacheCounts { requests: 39, hits: 9, misses: 19, octets: 12_930_803 };
        assert_eq!(CacheCounts::read(&counters), Some(expected));
        counters["proxy.process.http.incoming_requests"] = Value::Null;
        assert_eq!(CacheCounts::read(&counters), None);
    }
}
