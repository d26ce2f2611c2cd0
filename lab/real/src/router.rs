//! One `weir router` of a run.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::Value;
use weir_base::FaceId;
use weir_base::units::Size;
use weir_client::{Client, CommandError};
use weir_face::FaceUri;
use weir_forward::UnsolicitedPolicy;
use weir_manage::commands::Command;
use weir_manage::{ControlParameters, FacePersistency};
use weir_options::StoreOptions;
use weir_plan::RouterPlan;
use weir_plan::event::RouterSample;

use super::disks::{self, DiskFiles};
use super::process::Process;
use super::{RealError, metrics, proc};

/// The discard port. No program listens there, and nothing is ever sent to it.
const DISCARD_FACE: &str = "udp4://127.0.0.1:9";
/// Additional FIB entries: for management, and for registrations of applications, up to ten
/// thousand in one scenario.
const FIB_ENTRIES_SPARE: u64 = 1 << 15;

#[derive(Clone, Debug)]
pub(super) struct Addresses {
    pub(super) unix: PathBuf,
    pub(super) udp: SocketAddr,
    pub(super) hicn_udp: SocketAddr,
    pub(super) tcp: SocketAddr,
    pub(super) metrics: SocketAddr,
}

impl Addresses {
    /// Before the first start; the system chooses the ports.
    pub(super) fn any(unix: PathBuf) -> Self {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        Self { unix, udp: any, hicn_udp: any, tcp: any, metrics: any }
    }

    /// Reads the addresses from a router's ready line; `None` if one is missing.
    pub(super) fn set_from_ready_line(&mut self, ready: &Value) -> Option<()> {
        let listening = ready["listening"].as_array()?;
        let address = |scheme: &str| {
            listening
                .iter()
                .filter_map(Value::as_str)
                .find_map(|uri| uri.strip_prefix(scheme)?.parse().ok())
        };
        self.udp = address("udp4://")?;
        self.hicn_udp = address("hicn+udp4://")?;
        self.tcp = address("tcp4://")?;
        let metrics = ready["metrics"].as_str()?;
        let authority = metrics.strip_prefix("http://")?.strip_suffix("/metrics")?;
        self.metrics = authority.parse().ok()?;
        Some(())
    }
}

/// Configuration of a router beyond its plan.
#[derive(Debug)]
pub(super) struct RouterContext<'a> {
    pub(super) at: &'a Addresses,
    pub(super) routes: usize,
    /// Whether its faces send run Interests.
    pub(super) runs: bool,
    /// A file of prefixes without a destination.
    pub(super) filler: Option<&'a Path>,
    /// The files of its disks, and whether this incarnation fills them.
    pub(super) disks: (&'a DiskFiles, bool),
    /// Whether neighbours may query its holdings.
    pub(super) holdings: bool,
    /// The controller section, if there is a controller.
    pub(super) control: Option<String>,
}

/// Memory tier of a router that fills its disks, bytes.
const FILL_STORE_BYTES: u64 = 16 << 20;

/// The configuration file of a router.
pub(super) fn config_text(plan: &RouterPlan, setting: &RouterContext<'_>) -> String {
    let &RouterContext { at, routes, runs, filler, disks: (files, is_filled), .. } = setting;
    let is_open = is_filled || plan.store_filled > 0.0;
    let mut text = String::new();
    let quoted = |text: &str| Value::from(text).to_string();
    let fib_entries_max = u64::from(plan.fib_filler) + routes as u64 + FIB_ENTRIES_SPARE;
    let store = StoreOptions {
        size: if is_filled { Size { bytes: FILL_STORE_BYTES } } else { plan.store.size },
        // The initial content must be admitted.
        admit: plan.store.admit || is_open,
        unsolicited: match is_open {
            true => UnsolicitedPolicy::AdmitLocal,
            false => plan.store.unsolicited,
        },
        ..plan.store.clone()
    };
    // Writing to a String cannot fail.
    let _ = write!(
        text,
        "[router]\nthreads = {}\npit_entries_max = {pit}\npit_entries_per_face_max = {pit}\n\
         fib_entries_max = {fib_entries_max}\n\n\
         [store]\n{}\n[lab.store]\n{}\n\
         [faces]\nunix = {}\nudp = [\"{}\"]\nhicn_udp = [\"{}\"]\ntcp = [\"{}\"]\n\
         idle_timeout = \"24h\"\nmarking = {}\ndiscipline = {}\nshaping = {}\nruns = {runs}\n\n\
         [metrics]\naddress = \"{}\"\n\n[log]\nlevel = \"warn\"\n\n\
         [management]\nholdings_for_neighbours = {}\n\n\
         [[strategy]]\nprefix = \"/\"\nstrategy = {}\n",
        plan.shards,
        disks::options_text(&store),
        disks::options_text(&plan.store_experiments),
        quoted(&at.unix.display().to_string()),
        at.udp,
        at.hicn_udp,
        at.tcp,
        quoted(&plan.marking.to_string()),
        quoted(&plan.discipline.to_string()),
        quoted(&plan.shaping),
        at.metrics,
        setting.holdings,
        quoted(&plan.strategy),
        pit = plan.pit_entries_max,
    );
    if let Some(disk) = &plan.disk {
        text.push_str(&disks::config_text(disk, files, is_filled));
    }
    if let Some(control) = &setting.control {
        text.push_str(control);
    }
    if let Some(filler) = filler {
        let path = quoted(&filler.display().to_string());
        let _ = write!(text, "\n[[face]]\nuri = \"{DISCARD_FACE}\"\nroutes_file = {path}\n");
    }
    text
}

pub(super) struct Router {
    pub(super) node: usize,
    pub(super) name: String,
    pub(super) process: Process,
    pub(super) at: Addresses,
    /// The management connection. It stays open, because its face's counters would vanish with it.
    client: Client,
    /// Its counters when the run began.
    before: RouterSample,
    /// Counters of its earlier incarnations.
    earlier: RouterSample,
}

impl Router {
    /// Connects to a router that is ready.
    pub(super) fn attach(
        node: usize,
        name: &str,
        process: Process,
        at: Addresses,
    ) -> Result<Self, RealError> {
        let uri = FaceUri::Unix(at.unix.clone());
        let client = Client::connect(&uri).map_err(|error| RealError::Command {
            router: name.to_owned(),
            what: "a connection for its management".into(),
            reason: error.to_string(),
        })?;
        Ok(Self {
            node,
            name: name.to_owned(),
            process,
            at,
            client,
            before: RouterSample::default(),
            earlier: RouterSample::default(),
        })
    }

    fn refused(&self, what: &str, error: &CommandError) -> RealError {
        RealError::Command {
            router: self.name.clone(),
            what: what.to_owned(),
            reason: error.to_string(),
        }
    }

    /// Creates a face to `uri`. Returns its number and its local address.
    pub(super) fn create_face(
        &mut self,
        uri: &FaceUri,
        mtu: Option<usize>,
        reliability: bool,
    ) -> Result<(FaceId, String), RealError> {
        let flag = weir_manage::face_flags::LP_RELIABILITY;
        let parameters = ControlParameters {
            uri: Some(uri.to_string()),
            face_persistency: Some(FacePersistency::Permanent),
            mtu: mtu.map(|mtu| mtu as u64),
            flags: reliability.then_some(flag),
            mask: reliability.then_some(flag),
            ..ControlParameters::default()
        };
        let what = format!("a face to {uri}");
        let body = match self.client.command(Command::FacesCreate, &parameters) {
            Ok(body) => body,
            // The router already has such a face, because the other end was faster.
            Err(CommandError::Refused(response)) if response.code == 409 => {
                let body = response.body.map(|body| *body).unwrap_or_default();
                let ControlParameters { flags, mask, .. } = parameters;
                let (face_id, rest) = (body.face_id, ControlParameters::default());
                let update = ControlParameters { face_id, flags, mask, ..rest };
                let updated = self.client.command(Command::FacesUpdate, &update);
                updated.map_err(|error| self.refused(&what, &error))?;
                body
            }
            Err(error) => return Err(self.refused(&what, &error)),
        };
        match (body.face_id, body.local_uri) {
            (Some(id), Some(local)) => Ok((id, local)),
            _ => Err(self.refused(&what, &CommandError::Malformed)),
        }
    }

    /// The face to `remote`, if there is one.
    pub(super) fn face_to(&mut self, remote: &str) -> Result<Option<FaceId>, RealError> {
        let faces = self.client.dataset::<weir_manage::FaceStatus>("faces/list");
        let faces = faces.map_err(|error| self.refused("its list of faces", &error))?;
        Ok(faces.iter().find(|face| face.info.uri == remote).map(|face| face.info.face_id))
    }

    pub(super) fn add_route(
        &mut self,
        prefix: &str,
        face: FaceId,
        cost: u64,
    ) -> Result<(), RealError> {
        let what = format!("a route of {prefix}");
        let name = prefix.parse().map_err(|error| RealError::Command {
            router: self.name.clone(),
            what: what.clone(),
            reason: format!("{error}"),
        })?;
        let parameters = ControlParameters {
            name: Some(name),
            face_id: Some(face),
            cost: Some(cost),
            ..ControlParameters::default()
        };
        match self.client.command(Command::RibRegister, &parameters) {
            Ok(_) => Ok(()),
            Err(error) => Err(self.refused(&what, &error)),
        }
    }

    /// Sets whether passing Data is stored from now on.
    pub(super) fn set_admission(&mut self, admits: bool) -> Result<(), RealError> {
        let flag = weir_manage::store_flags::ADMIT;
        let parameters = ControlParameters {
            flags: Some(if admits { flag } else { 0 }),
            mask: Some(flag),
            ..ControlParameters::default()
        };
        match self.client.command(Command::CsConfig, &parameters) {
            Ok(_) => Ok(()),
            Err(error) => Err(self.refused("a change of its store", &error)),
        }
    }

    /// Number of prefixes with next hops; `None` if the router is too busy to reply.
    pub(super) fn fib_entries(&mut self) -> Option<u64> {
        metrics::fetch_gauge(self.at.metrics, "weir_fib_entries").ok()
    }

    /// Removes the replies of the management from the store, so that the run starts without them.
    /// The reply to this command itself stays if the store admits it.
    pub(super) fn forget_management(&mut self) -> Result<(), RealError> {
        let parameters =
            ControlParameters { name: "/localhost".parse().ok(), ..ControlParameters::default() };
        match self.client.command(Command::CsErase, &parameters) {
            Ok(_) => Ok(()),
            Err(error) => Err(self.refused("a change of its store", &error)),
        }
    }

    pub(super) fn begin(&mut self) -> Result<(), RealError> {
        self.before = self.counted()?.0;
        Ok(())
    }

    /// Its counters since the run began.
    pub(super) fn sample(&mut self) -> Result<RouterSample, RealError> {
        self.sample_with_queues().map(|(sample, _)| sample)
    }

    /// The same, with the queues before its disks.
    pub(super) fn sample_with_queues(
        &mut self,
    ) -> Result<(RouterSample, metrics::Queues), RealError> {
        let (counted, queues) = self.counted()?;
        Ok((counted.since(&self.before).after(&self.earlier), queues))
    }

    /// Its counters since it started. A router that does not reply has probably ended.
    fn counted(&mut self) -> Result<(RouterSample, metrics::Queues), RealError> {
        let sample = metrics::fetch(self.at.metrics).and_then(|(sample, queues)| {
            let cpu_ns = proc::cpu_ns(self.process.id())?;
            Ok((RouterSample { cpu_ns, ..sample }, queues))
        });
        sample.map_err(|error| self.unresponsive(&error))
    }

    fn unresponsive(&mut self, error: &std::io::Error) -> RealError {
        self.process.failure(&format!("does not respond at {} ({error})", self.at.metrics))
    }

    /// Kills it without a shutdown.
    pub(super) fn crash(&mut self) -> Result<(), RealError> {
        // The counters end with the process.
        self.earlier = self.sample()?;
        self.before = RouterSample::default();
        self.process.kill();
        Ok(())
    }

    /// Connects to the restarted process at the same addresses.
    pub(super) fn restart(&mut self, process: Process, at: Addresses) -> Result<(), RealError> {
        let earlier = self.earlier;
        *self = Self::attach(self.node, &self.name.clone(), process, at)?;
        self.earlier = earlier;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_line_holds_the_ports() {
        let mut at = Addresses::any("/tmp/r.sock".into());
        let line = serde_json::json!({
            "ready": true,
            "listening": ["unix:///tmp/r.sock", "tcp4://127.0.0.1:7001", "udp4://127.0.0.1:7002",
                "hicn+udp4://127.0.0.1:7004"],
            "metrics": "http://127.0.0.1:7003/metrics",
        });
        at.set_from_ready_line(&line).unwrap();
        let ports = [at.tcp, at.udp, at.metrics, at.hicn_udp].map(|at| at.port());
        assert_eq!(ports, [7001, 7002, 7003, 7004]);
        assert!(at.set_from_ready_line(&serde_json::json!({ "ready": true })).is_none());
    }

    #[test]
    fn config_is_toml() {
        let at = Addresses::any("/tmp/\"odd\".sock".into());
        let plan = RouterPlan { fib_filler: 5, ..RouterPlan::default() };
        let files = DiskFiles::new(Path::new("/tmp"), 0, 1);
        let filler = Some(Path::new("/tmp/filler.txt"));
        let control = Some("\n[controller]\nname = \"r\"\n".to_owned());
        let (routes, runs, disks, holdings) = (3, false, (&files, false), true);
        let setting = RouterContext { at: &at, routes, runs, filler, disks, holdings, control };
        let text = config_text(&plan, &setting);
        let value: toml::Value = toml::from_str(&text).unwrap();
        assert_eq!(value["faces"]["unix"].as_str(), Some("/tmp/\"odd\".sock"));
        assert_eq!(value["controller"]["name"].as_str(), Some("r"));
        assert_eq!(value["management"]["holdings_for_neighbours"].as_bool(), Some(true));
        assert_eq!(value["face"][0]["routes_file"].as_str(), Some("/tmp/filler.txt"));
        let expected = 8 + FIB_ENTRIES_SPARE as i64;
        assert_eq!(value["router"]["fib_entries_max"].as_integer(), Some(expected));
    }
}
