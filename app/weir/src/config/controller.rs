//! The section `[controller]`: the controller that this router reports to.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use serde::Deserialize;
use weir_agent::{Access, AgentConfig};
use weir_base::units::Time;
use weir_face::FaceUri;

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields, default)]
pub(crate) struct ControllerSection {
    pub(crate) url: Option<Urls>,
    pub(crate) token: Option<String>,
    pub(crate) token_file: Option<PathBuf>,
    pub(crate) ca: Option<PathBuf>,
    pub(crate) certificate: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
    pub(crate) insecure: bool,
    pub(crate) name: Option<String>,
    pub(crate) uris: Vec<String>,
    pub(crate) interval: Time,
    pub(crate) routes_max: usize,
    pub(crate) state_file: StateFile,
    pub(crate) prefetch: bool,
    pub(crate) asks_for_hosts: bool,
}

/// The environment variable with the name of the router, if the file has none.
const NAME_VARIABLE: &str = "WEIR_ROUTER_NAME";

/// The URL of one controller, or of several that share a database.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub(crate) enum Urls {
    One(String),
    Several(Vec<String>),
}

/// Where the last configuration from the controller is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StateFile {
    /// In the state directory of the service or the user.
    Auto,
    None,
    Path(PathBuf),
}

impl<'de> Deserialize<'de> for StateFile {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match text.as_str() {
            "auto" => Ok(Self::Auto),
            "none" => Ok(Self::None),
            "" => Err(serde::de::Error::custom("write a path, \"auto\" or \"none\"")),
            path => Ok(Self::Path(path.into())),
        }
    }
}

impl StateFile {
    fn path(&self, router: &str) -> Option<PathBuf> {
        match self {
            Self::None => None,
            Self::Path(path) => Some(path.clone()),
            Self::Auto => {
                let folder = crate::state::folder();
                folder.map(|folder| folder.join(format!("{router}.configuration")))
            }
        }
    }
}

impl Default for ControllerSection {
    fn default() -> Self {
        Self {
            url: None,
            token: None,
            token_file: None,
            ca: None,
            certificate: None,
            key: None,
            insecure: false,
            name: None,
            uris: Vec::new(),
            interval: super::text::to_time(std::time::Duration::from_secs(1)),
            routes_max: 100_000,
            state_file: StateFile::Auto,
            prefetch: true,
            asks_for_hosts: false,
        }
    }
}

impl ControllerSection {
    /// The configuration of the agent, or `None` without a URL. `listening` contains the addresses
    /// of the router, and `rates_bps` the rates of links by the URI of the peer.
    pub(crate) fn agent(
        &self,
        listening: &[String],
        rates_bps: BTreeMap<String, u64>,
    ) -> anyhow::Result<Option<AgentConfig>> {
        let (url, others) = match &self.url {
            None => return Ok(None),
            Some(Urls::One(url)) => (url.clone(), Vec::new()),
            Some(Urls::Several(urls)) => {
                let (url, others) =
                    urls.split_first().context("[controller] `url` is empty; add a URL")?;
                (url.clone(), others.to_vec())
            }
        };
        // Routers that share a file, such as a ConfigMap, differ in their environment.
        let name = self.name.clone().or_else(|| std::env::var(NAME_VARIABLE).ok()).context(
            "[controller] has a `url` but no `name`; set `name` to the name of this router",
        )?;
        ensure!(
            self.token.is_none() || self.token_file.is_none(),
            "[controller] has both `token` and `token_file`; remove one of them"
        );
        let token = match &self.token_file {
            Some(path) => Some(read(path, "token_file")?.trim().to_owned()),
            None => self.token.clone(),
        };
        let pem = |path: &Option<PathBuf>, key: &str| {
            path.as_deref().map(|path| read(path, key).map(String::into_bytes)).transpose()
        };
        let access = Access {
            url,
            others,
            token,
            token_file: self.token_file.clone(),
            ca_pem: pem(&self.ca, "ca")?,
            certificate_pem: pem(&self.certificate, "certificate")?,
            key_pem: pem(&self.key, "key")?,
            insecure: self.insecure,
        };
        let uris = if self.uris.is_empty() {
            reachable_uris(listening)
        } else {
            self.uris.iter().map(|uri| canonical_uri(uri)).collect::<anyhow::Result<_>>()?
        };
        if uris.is_empty() {
            tracing::warn!(
                "other routers cannot get routes to this one, as its listening addresses are \
                 wildcards or missing; set [controller] `uris` to its addresses"
            );
        }
        Ok(Some(AgentConfig {
            access,
            routes_max: self.routes_max,
            state_file: self.state_file.path(&name),
            name,
            uris,
            rates_bps,
            interval: std::time::Duration::from_nanos(self.interval.ns),
            prefetch: self.prefetch,
            asks_for_hosts: self.asks_for_hosts,
        }))
    }
}

fn read(path: &Path, key: &str) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| {
        format!("cannot read {}, the file of [controller] `{key}`", path.display())
    })
}

fn canonical_uri(uri: &str) -> anyhow::Result<String> {
    let uri = FaceUri::resolve(uri).context("[controller] `uris`")?;
    Ok(uri.to_string())
}

/// The addresses that other routers should use: no wildcard addresses, and not those for browsers.
fn reachable_uris(listening: &[String]) -> Vec<String> {
    let is_peer = |uri: &&String| {
        let uri: Option<FaceUri> = uri.parse().ok();
        uri.filter(|uri| !matches!(uri, FaceUri::WebSocket(_) | FaceUri::WebSocketTls { .. }))
            .is_some_and(|uri| uri.socket_addr().is_some() && uri.check_peer("").is_ok())
    };
    listening.iter().filter(is_peer).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(text: &str) -> ControllerSection {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn starts_no_agent_without_url() {
        assert!(section("").agent(&[], BTreeMap::new()).unwrap().is_none());
        assert!(section("url = 'http://h'").agent(&[], BTreeMap::new()).is_err());
        assert!(toml::from_str::<ControllerSection>("adress = 'http://h'").is_err());
        let both = section("url = 'http://h'\nname = 'a'\ntoken = 'x'\ntoken_file = 'y'");
        assert!(both.agent(&[], BTreeMap::new()).is_err());
        let unreadable = section("url = 'http://h'\nname = 'a'\ntoken_file = '/nowhere/at/all'");
        let error = format!("{:#}", unreadable.agent(&[], BTreeMap::new()).unwrap_err());
        assert!(error.contains("/nowhere/at/all"), "{error}");
        let unreadable = section("url = 'https://h'\nname = 'a'\nkey = '/nowhere/at/all'");
        let error = format!("{:#}", unreadable.agent(&[], BTreeMap::new()).unwrap_err());
        assert!(error.contains("/nowhere/at/all") && error.contains("`key`"), "{error}");
    }

    #[test]
    fn state_file_path_follows_the_config() {
        let path = |text: &str| section(text).state_file.path("edge");
        assert!(path("").is_some_and(|path| path.ends_with("edge.configuration")));
        assert_eq!(path("state_file = 'none'"), None);
        assert_eq!(path("state_file = '/x/y'"), Some("/x/y".into()));
        assert!(toml::from_str::<ControllerSection>("state_file = ''").is_err());
    }

    #[test]
    fn controller_url_accepts_a_list() {
        let several = section("url = ['http://one', 'http://two']\nname = 'a'");
        let access = several.agent(&[], BTreeMap::new()).unwrap().unwrap().access;
        assert_eq!((&*access.url, &*access.others), ("http://one", &["http://two".to_owned()][..]));
        assert!(section("url = []\nname = 'a'").agent(&[], BTreeMap::new()).is_err());
    }

    #[test]
    fn advertises_only_reachable_uris() {
        let listening = [
            "unix:///run/nfd.sock",
            "udp4://0.0.0.0:6363",
            "tcp6://[::]:6363",
            "ws://192.0.2.1:9696",
        ];
        let listening = listening.map(str::to_owned);
        let section = section("url = 'http://h'\nname = 'edge'");
        let agent =
            |listening: &[String]| section.agent(listening, BTreeMap::new()).unwrap().unwrap();
        assert!(agent(&listening).uris.is_empty());
        let own = "udp4://192.0.2.1:6363".to_owned();
        assert_eq!(agent(std::slice::from_ref(&own)).uris, std::slice::from_ref(&own));
        let told = ControllerSection { uris: vec!["udp://192.0.2.1".into()], ..section.clone() };
        assert_eq!(told.agent(&listening, BTreeMap::new()).unwrap().unwrap().uris, [own]);
    }
}
