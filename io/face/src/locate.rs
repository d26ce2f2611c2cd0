use std::env;
use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use crate::uri::{FaceUri, ResolveError};

/// Where a router on this host listens and applications look for it, in order: NFD's path, the
/// user's run directory, the temporary directory.
pub(crate) fn unix_path_candidates() -> Vec<PathBuf> {
    candidates_from(|key| env::var(key).ok())
}

fn candidates_from(variable: impl Fn(&str) -> Option<String>) -> Vec<PathBuf> {
    let mut candidates = vec![PathBuf::from("/run/nfd/nfd.sock")];
    if let Some(run) = variable("XDG_RUNTIME_DIR").filter(|run| run.starts_with('/')) {
        candidates.push(Path::new(&run).join("weir/nfd.sock"));
    }
    let user = nix::unistd::getuid();
    candidates.push(env::temp_dir().join(format!("weir-{user}/nfd.sock")));
    candidates
}

/// Where the choice of a router came from, for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The environment variable NDN_CLIENT_TRANSPORT.
    Environment,
    /// The `transport` line of this file.
    ConfigFile(PathBuf),
    /// A default path on which a router answers.
    Listening,
    /// The first default path; no router answered on any.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Environment => write!(f, "from NDN_CLIENT_TRANSPORT"),
            Self::ConfigFile(path) => write!(f, "from {}", path.display()),
            Self::Listening => write!(f, "where a router listens"),
            Self::Default => write!(f, "the default; no router listens on this host"),
        }
    }
}

/// The router an application is to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransportChoice {
    /// Its address: Unix, TCP or UDP.
    pub uri: FaceUri,
    /// Who says so.
    pub origin: Origin,
}

/// Why the configured router address is of no use.
#[derive(Debug, thiserror::Error)]
#[error("router address `{text}` ({origin}): {source}")]
pub struct ClientTransportError {
    /// As configured.
    pub text: String,
    /// Where.
    pub origin: Origin,
    /// What is wrong with it.
    pub source: ResolveError,
}

/// The router that applications of this user connect to, as NDN clients find it:
/// NDN_CLIENT_TRANSPORT, else the first `client.conf` there is, else the default path on which a
/// router answers. Blocks for name resolution.
///
/// # Errors
/// [`ClientTransportError`]: what is configured is no address.
pub fn client_transport() -> Result<TransportChoice, ClientTransportError> {
    client_transport_from(
        |key| env::var(key).ok(),
        |path| std::fs::read_to_string(path).ok(),
        |path| {
            // Anybody may make any name in the directory for temporary files.
            let is_believed = !path.starts_with(env::temp_dir()) || is_in_own_directory(path);
            is_believed && UnixStream::connect(path).is_ok()
        },
    )
}

/// Whether a socket's directory is one that this user made.
fn is_in_own_directory(socket: &Path) -> bool {
    let owner = nix::unistd::getuid().as_raw();
    let directory = socket.parent().and_then(|path| std::fs::symlink_metadata(path).ok());
    directory.is_some_and(|found| found.is_dir() && found.uid() == owner)
}

/// As [`client_transport`], with the environment, the files and the liveness of routers told by the
/// caller.
///
/// # Errors
/// As [`client_transport`].
pub(crate) fn client_transport_from(
    variable: impl Fn(&str) -> Option<String>,
    read: impl Fn(&Path) -> Option<String>,
    is_listening: impl Fn(&Path) -> bool,
) -> Result<TransportChoice, ClientTransportError> {
    if let Some(text) = variable("NDN_CLIENT_TRANSPORT").filter(|text| !text.trim().is_empty()) {
        return resolve(&text, Origin::Environment);
    }
    // As NDN clients do, only the first file that exists counts, whether or not it names a
    // transport.
    let found = config_paths(&variable).into_iter().find_map(|path| Some((read(&path)?, path)));
    if let Some((text, path)) = found
        && let Some(transport) = transport_of(&text)
    {
        return resolve(transport, Origin::ConfigFile(path));
    }
    let candidates = candidates_from(&variable);
    let listening = candidates.iter().find(|path| is_listening(path));
    let origin = if listening.is_some() { Origin::Listening } else { Origin::Default };
    let path = listening.unwrap_or(&candidates[0]).clone();
    Ok(TransportChoice { uri: FaceUri::Unix(path), origin })
}

fn config_paths(variable: &impl Fn(&str) -> Option<String>) -> Vec<PathBuf> {
    let home = variable("HOME").filter(|home| !home.is_empty());
    let own = home.map(|home| Path::new(&home).join(".ndn/client.conf"));
    let system = ["/usr/local/etc/ndn/client.conf", "/etc/ndn/client.conf"].map(PathBuf::from);
    own.into_iter().chain(system).collect()
}

/// The value of `transport` in a file of `key=value` lines; `;` begins a comment line.
fn transport_of(text: &str) -> Option<&str> {
    text.lines()
        .filter_map(|line| line.trim().split_once('='))
        .find(|(key, _)| key.trim() == "transport")
        .map(|(_, value)| value.trim())
        .filter(|value| !value.is_empty())
}

fn resolve(text: &str, origin: Origin) -> Result<TransportChoice, ClientTransportError> {
    let text = text.trim();
    match FaceUri::resolve_reachable(text, None) {
        Ok(uri) => Ok(TransportChoice { uri, origin }),
        Err(source) => Err(ClientTransportError { text: text.to_owned(), origin, source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(
        variables: &[(&str, &str)],
        files: &[(&str, &str)],
        listening: &str,
    ) -> Result<TransportChoice, ClientTransportError> {
        let lookup = |table: &[(&str, &str)], key: &str| {
            table.iter().find(|(name, _)| *name == key).map(|(_, value)| (*value).to_owned())
        };
        client_transport_from(
            |key| lookup(variables, key),
            |path| lookup(files, path.to_str().unwrap()),
            |path| path == Path::new(listening),
        )
    }

    #[test]
    fn the_environment_comes_first_then_the_first_file() {
        let files = [
            (
                "/home/u/.ndn/client.conf",
                "; a comment\npib=x\n transport = tcp4://127.0.0.1:7000\n",
            ),
            ("/etc/ndn/client.conf", "transport=unix:///other.sock"),
        ];
        let variables = [("HOME", "/home/u"), ("NDN_CLIENT_TRANSPORT", "unix:///here.sock")];
        let choice = choose(&variables, &files, "").unwrap();
        assert_eq!(choice.uri.to_string(), "unix:///here.sock");
        assert_eq!(choice.origin, Origin::Environment);

        let choice = choose(&variables[..1], &files, "").unwrap();
        assert_eq!(choice.uri.to_string(), "tcp4://127.0.0.1:7000");
        assert_eq!(choice.origin, Origin::ConfigFile("/home/u/.ndn/client.conf".into()));

        let choice = choose(&[], &files, "").unwrap();
        assert_eq!(choice.uri.to_string(), "unix:///other.sock");
    }

    #[test]
    fn without_configuration_a_listening_router_is_found() {
        let variables = [("XDG_RUNTIME_DIR", "/run/user/7")];
        let choice = choose(&variables, &[], "/run/user/7/weir/nfd.sock").unwrap();
        assert_eq!(choice.uri.to_string(), "unix:///run/user/7/weir/nfd.sock");
        assert_eq!(choice.origin, Origin::Listening);

        let files = [("/etc/ndn/client.conf", ";transport=unix:///commented\ntransport=\n")];
        let choice = choose(&variables, &files, "").unwrap();
        assert_eq!(choice.uri.to_string(), "unix:///run/nfd/nfd.sock");
        assert_eq!(choice.origin, Origin::Default);
    }

    #[test]
    fn a_socket_in_a_foreign_directory_is_nobodys_router() {
        let directory = tempfile::tempdir().unwrap();
        let ours = directory.path().join("ours");
        std::fs::create_dir(&ours).unwrap();
        assert!(is_in_own_directory(&ours.join("nfd.sock")));
        assert!(!is_in_own_directory(&directory.path().join("missing/nfd.sock")));
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&ours, &link).unwrap();
        assert!(!is_in_own_directory(&link.join("nfd.sock")));
        if nix::unistd::getuid().is_root() {
            nix::unistd::chown(&ours, Some(nix::unistd::Uid::from_raw(65534)), None).unwrap();
            assert!(!is_in_own_directory(&ours.join("nfd.sock")));
        }
    }

    #[test]
    fn a_bad_address_says_where_it_is_from() {
        let error = choose(&[("NDN_CLIENT_TRANSPORT", "nonsense")], &[], "").unwrap_err();
        let text = error.to_string();
        assert!(text.contains("nonsense") && text.contains("NDN_CLIENT_TRANSPORT"), "{text}");
    }
}
