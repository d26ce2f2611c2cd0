use std::env;
use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use crate::uri::{FaceUri, ResolveError};

/// NFD's path, for a router of the whole machine.
const SYSTEM_PATH: &str = "/run/nfd/nfd.sock";
/// Path below a user's run directory.
const USER_PATH: &str = "weir/nfd.sock";

/// Paths where a router of this user may listen, in order: NFD's path, the user's run directory,
/// the temporary directory.
pub(crate) fn unix_path_candidates() -> Vec<PathBuf> {
    let variable = |key: &str| env::var(key).ok();
    let run = run_directory(&variable).map(|run| run.join(USER_PATH));
    let temporary = env::temp_dir().join(temporary_path());
    [PathBuf::from(SYSTEM_PATH)].into_iter().chain(run).chain([temporary]).collect()
}

fn run_directory(variable: &impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    variable("XDG_RUNTIME_DIR").filter(|run| run.starts_with('/')).map(PathBuf::from)
}

/// Path below the directory for temporary files.
fn temporary_path() -> String {
    format!("weir-{}/nfd.sock", nix::unistd::getuid())
}

/// Paths where applications look for a router, in order. A job may lack the session's variables
/// (cron) or have its own temporary directory (Slurm). So the list continues with the variables'
/// default values, and ends with every listening socket that has such a name.
fn paths_to_try(variable: &impl Fn(&str) -> Option<String>, listening: &str) -> Vec<PathBuf> {
    let usual_run = PathBuf::from(format!("/run/user/{}", nix::unistd::getuid()));
    let temporary = variable("TMPDIR").filter(|path| path.starts_with('/')).map(PathBuf::from);
    let runs = run_directory(variable).into_iter().chain([usual_run]);
    let temporaries = temporary.into_iter().chain([PathBuf::from("/tmp")]);
    let mut places = vec![PathBuf::from(SYSTEM_PATH)];
    places.extend(runs.map(|run| run.join(USER_PATH)));
    places.extend(temporaries.map(|directory| directory.join(temporary_path())));
    places.extend(listening_paths(listening));
    places
}

/// Sockets of this user's routers in a table like /proc/net/unix.
fn listening_paths(table: &str) -> impl Iterator<Item = PathBuf> {
    // The flag of listening sockets.
    const LISTENS: &str = "00010000";
    table.lines().filter_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let path = (fields.nth(3)? == LISTENS).then(|| fields.nth(3)).flatten().map(Path::new)?;
        let is_ours = path.ends_with(USER_PATH) || path.ends_with(temporary_path());
        (path.is_absolute() && is_ours).then(|| path.to_owned())
    })
}

/// Where the router's address came from, for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The environment variable NDN_CLIENT_TRANSPORT.
    Environment,
    /// The `transport` line of this file.
    ConfigFile(PathBuf),
    /// A default path on which a router responds.
    Listening,
    /// The first default path. No router responds on any of them.
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

/// The router that an application should connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransportChoice {
    /// Its Unix, TCP or UDP address.
    pub uri: FaceUri,
    pub origin: Origin,
}

/// The configured router address is invalid.
#[derive(Debug, thiserror::Error)]
#[error("router address `{text}` ({origin}): {source}")]
pub struct ClientTransportError {
    pub text: String,
    pub origin: Origin,
    pub source: ResolveError,
}

/// Finds the router that applications of this user connect to, like other NDN clients:
/// NDN_CLIENT_TRANSPORT, else the first existing `client.conf`, else the default path on which a
/// router responds. May block for name resolution.
pub fn client_transport() -> Result<TransportChoice, ClientTransportError> {
    client_transport_from(
        |key| env::var(key).ok(),
        |path| std::fs::read_to_string(path).ok(),
        // Empty on systems without this file.
        || std::fs::read_to_string("/proc/net/unix").unwrap_or_default(),
        |path| {
            // Any user may create any name in the directory for temporary files.
            let is_believed = path == Path::new(SYSTEM_PATH) || is_in_own_directory(path);
            is_believed && UnixStream::connect(path).is_ok()
        },
    )
}

/// Whether this user or root created the socket's directory.
fn is_in_own_directory(socket: &Path) -> bool {
    let user = nix::unistd::getuid().as_raw();
    let directory = socket.parent().and_then(|path| std::fs::symlink_metadata(path).ok());
    directory.is_some_and(|found| found.is_dir() && [user, 0].contains(&found.uid()))
}

/// Like [`client_transport`], with environment, files and listening routers supplied by the caller.
pub(crate) fn client_transport_from(
    variable: impl Fn(&str) -> Option<String>,
    read: impl Fn(&Path) -> Option<String>,
    listening_sockets: impl Fn() -> String,
    is_listening: impl Fn(&Path) -> bool,
) -> Result<TransportChoice, ClientTransportError> {
    if let Some(text) = variable("NDN_CLIENT_TRANSPORT").filter(|text| !text.trim().is_empty()) {
        return resolve(&text, Origin::Environment);
    }
    // Like other NDN clients, only the first existing file counts, even if it names no transport.
    let found = config_paths(&variable).into_iter().find_map(|path| Some((read(&path)?, path)));
    if let Some((text, path)) = found
        && let Some(transport) = transport_of(&text)
    {
        return resolve(transport, Origin::ConfigFile(path));
    }
    let places = paths_to_try(&variable, &listening_sockets());
    let listening = places.into_iter().find(|path| is_listening(path));
    let origin = if listening.is_some() { Origin::Listening } else { Origin::Default };
    let path = listening.unwrap_or_else(|| PathBuf::from(SYSTEM_PATH));
    Ok(TransportChoice { uri: FaceUri::Unix(path), origin })
}

fn config_paths(variable: &impl Fn(&str) -> Option<String>) -> Vec<PathBuf> {
    let home = variable("HOME").filter(|home| !home.is_empty());
    let own = home.map(|home| Path::new(&home).join(".ndn/client.conf"));
    let system = ["/usr/local/etc/ndn/client.conf", "/etc/ndn/client.conf"].map(PathBuf::from);
    own.into_iter().chain(system).collect()
}

/// The value of `transport` in a file of `key=value` lines. `;` starts a comment.
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
            || TABLE.into(),
            |path| path == Path::new(listening),
        )
    }

    /// Like /proc/net/unix: a listening socket, a connected one, and one of another program.
    const TABLE: &str = "Num       RefCount Protocol Flags    Type St Inode Path
0000000000000000: 00000002 00000000 00010000 0001 01 20 /home/u/run/weir/nfd.sock
0000000000000000: 00000003 00000000 00000000 0001 03 21 /home/v/run/weir/nfd.sock
0000000000000000: 00000002 00000000 00010000 0001 01 22 /run/dbus
0000000000000000: 00000002 00000000 00010000 0001 01 23
";

    #[test]
    fn batch_job_finds_users_router() {
        let user = nix::unistd::getuid();
        let found = [
            (&[][..], format!("/run/user/{user}/weir/nfd.sock")),
            (&[("XDG_RUNTIME_DIR", "/job")], format!("/run/user/{user}/weir/nfd.sock")),
            (&[("TMPDIR", "/job")], format!("/tmp/weir-{user}/nfd.sock")),
            (&[("TMPDIR", "/job")], format!("/job/weir-{user}/nfd.sock")),
            (&[], "/home/u/run/weir/nfd.sock".to_owned()),
        ];
        for (variables, path) in found {
            let choice = choose(variables, &[], &path).unwrap();
            assert_eq!(
                (choice.uri.to_string(), choice.origin),
                (format!("unix://{path}"), Origin::Listening)
            );
        }
        let choice = choose(&[], &[], "/home/v/run/weir/nfd.sock").unwrap();
        assert_eq!(choice.origin, Origin::Default);
    }

    #[test]
    fn environment_overrides_config_files() {
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
    fn finds_listening_router_by_default() {
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
    fn ignores_socket_in_foreign_directory() {
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
    fn bad_address_names_its_origin() {
        let error = choose(&[("NDN_CLIENT_TRANSPORT", "nonsense")], &[], "").unwrap_err();
        let text = error.to_string();
        assert!(text.contains("nonsense") && text.contains("NDN_CLIENT_TRANSPORT"), "{text}");
    }
}
