use std::env;
use std::fmt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use nix::unistd::AccessFlags;

use crate::uri::{FaceUri, ResolveError};

/// Where a router on this host listens and applications look for it, in order: NFD's path, the
/// user's run directory, the temporary directory.
pub fn unix_path_candidates() -> Vec<PathBuf> {
    candidates_from(|key| env::var(key).ok())
}

/// The first of [`unix_path_candidates`] where this process may make a socket, as far as
/// permissions tell: where a router of this user listens by default.
pub fn default_unix_path() -> PathBuf {
    let mut candidates = unix_path_candidates();
    let usable = candidates.iter().position(|path| may_create_in(path.parent()));
    candidates.swap_remove(usable.unwrap_or(candidates.len() - 1))
}

/// Whether a file may be made in `directory`, or the directory itself and those above it that are
/// missing.
fn may_create_in(directory: Option<&Path>) -> bool {
    let nearest = directory.and_then(|path| path.ancestors().find(|path| path.exists()));
    nearest.is_some_and(|path| {
        path.is_dir() && nix::unistd::eaccess(path, AccessFlags::W_OK | AccessFlags::X_OK).is_ok()
    })
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
        |path| UnixStream::connect(path).is_ok(),
    )
}

/// As [`client_transport`], with the environment, the files and the liveness of routers told by the
/// caller.
///
/// # Errors
/// As [`client_transport`].
pub fn client_transport_from(
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
    match FaceUri::resolve(text) {
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
    fn a_place_where_nothing_can_be_made_is_passed_over() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(may_create_in(Some(directory.path())));
        assert!(may_create_in(Some(&directory.path().join("a/b"))));
        assert!(!may_create_in(Some(&file)));
        assert!(!may_create_in(Some(&file.join("a"))));
        assert!(unix_path_candidates().contains(&default_unix_path()));
    }

    #[test]
    fn a_bad_address_says_where_it_is_from() {
        let error = choose(&[("NDN_CLIENT_TRANSPORT", "nonsense")], &[], "").unwrap_err();
        let text = error.to_string();
        assert!(text.contains("nonsense") && text.contains("NDN_CLIENT_TRANSPORT"), "{text}");
    }
}
