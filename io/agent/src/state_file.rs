//! The last configuration on disk, for a router that starts while its controller is unreachable.
//!
//! Only this user can read the file, and it is always replaced as a whole. Its first line contains
//! the SHA-256 of the rest, so a damaged file is recognized and ignored.

use std::fmt::Write as _;
use std::fs::{self, File, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use weir_control::message::Configuration;
use weir_security::sha256;

/// The start of the first line, with the version of the format.
const HEADER: &str = "weir-configuration 1 ";
/// Maximum size of the file in bytes: that of the largest answer, written in full.
const BYTES_MAX: u64 = 64 << 20;

/// A configuration with its origin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoredConfiguration {
    pub(crate) router: String,
    /// The SHA-256 of the URLs of the controllers that the agent was configured with. The URLs
    /// themselves may contain passwords.
    pub(crate) controllers: String,
    /// When the configuration was received, in milliseconds since 1970.
    pub(crate) received_ms: u64,
    pub(crate) configuration: Configuration,
}

/// The file, for one router and its controllers.
pub(crate) struct StateFile {
    path: PathBuf,
    router: String,
    controllers: String,
    /// Whether the last write failed. A failure is logged once, until a write succeeds.
    has_failed: bool,
}

impl StateFile {
    /// `urls`: those of the controllers.
    pub(crate) fn new<'a>(
        path: PathBuf,
        router: String,
        urls: impl Iterator<Item = &'a String>,
    ) -> Self {
        // No URL contains a line feed.
        let lines: Vec<&[u8]> = urls.flat_map(|url| [url.as_bytes(), b"\n"]).collect();
        Self { path, router, controllers: hex_sha256(&lines), has_failed: false }
    }

    /// The stored configuration, if it is for this router and from these controllers.
    pub(crate) fn load(&self) -> Option<StoredConfiguration> {
        let path = self.path.display();
        let is_own = |stored: &StoredConfiguration| {
            stored.router == self.router && stored.controllers == self.controllers
        };
        match read(&self.path) {
            Ok(stored) if is_own(&stored) => Some(stored),
            Ok(_) => {
                tracing::info!(
                    %path,
                    "the state file is of another router or controller and is ignored"
                );
                None
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                tracing::warn!(%path, %error, "the state file cannot be read and is ignored");
                None
            }
        }
    }

    /// Writes a configuration. Returns whether it was written.
    pub(crate) fn store(&mut self, configuration: &Configuration, received_ms: u64) -> bool {
        let stored = StoredConfiguration {
            router: self.router.clone(),
            controllers: self.controllers.clone(),
            received_ms,
            configuration: configuration.clone(),
        };
        let written = write(&self.path, &stored);
        if let Err(error) = &written
            && !self.has_failed
        {
            let path = self.path.display();
            tracing::warn!(
                %path, %error,
                "cannot write the state file: if the router restarts while the controller is down, \
                 it has no routes; check [controller] state_file"
            );
        }
        self.has_failed = written.is_err();
        written.is_ok()
    }
}

fn header(content: &[u8]) -> String {
    format!("{HEADER}{}\n", hex_sha256(&[content]))
}

fn hex_sha256(portions: &[&[u8]]) -> String {
    let mut text = String::new();
    for octet in sha256(portions) {
        let _ = write!(text, "{octet:02x}");
    }
    text
}

fn read(path: &Path) -> io::Result<StoredConfiguration> {
    let mut octets = Vec::new();
    File::open(path)?.take(BYTES_MAX).read_to_end(&mut octets)?;
    let damaged = || io::Error::new(io::ErrorKind::InvalidData, "its content is damaged");
    let end = octets.iter().position(|octet| *octet == b'\n').ok_or_else(damaged)?;
    let (line, content) = octets.split_at(end + 1);
    if line != header(content).as_bytes() {
        return Err(damaged());
    }
    serde_json::from_slice(content).map_err(|_| damaged())
}

fn write(path: &Path, stored: &StoredConfiguration) -> io::Result<()> {
    let content = serde_json::to_vec(stored)?;
    let folder = path.parent().filter(|folder| *folder != Path::new(""));
    let folder = folder.unwrap_or(Path::new("."));
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let mut file = tempfile::Builder::new()
        .prefix(".weir-configuration-")
        .permissions(Permissions::from_mode(0o600))
        .tempfile_in(folder)?;
    file.write_all(header(&content).as_bytes())?;
    file.write_all(&content)?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    // Without this, a power failure could undo the rename.
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use weir_control::message::RouteOrder;

    use super::*;

    #[test]
    fn ignores_damaged_or_foreign_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state/edge.configuration");
        let of = |router: &str, url: &str| {
            StateFile::new(path.clone(), router.into(), [url.to_owned()].iter())
        };
        let mut state_file = of("edge", "http://me:one@h/?site=one");
        assert_eq!(state_file.load(), None);
        let prefix = "/data".parse().unwrap();
        let routes = vec![RouteOrder { prefix, router: "one".into(), cost: 1 }];
        let configuration = Configuration { generation: 7, routes, ..Configuration::default() };
        state_file.store(&configuration, 1000);
        let stored = state_file.load().unwrap();
        assert_eq!((stored.configuration, stored.received_ms), (configuration.clone(), 1000));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let state = fs::metadata(path.parent().unwrap()).unwrap();
        assert_eq!(state.permissions().mode() & 0o777, 0o700);
        assert_eq!(of("core", "http://me:one@h/?site=one").load(), None);
        for other in ["http://other", "http://me:two@h/?site=one", "http://me:one@h/?site=two"] {
            assert_eq!(of("edge", other).load(), None, "{other}");
        }
        let text = fs::read_to_string(&path).unwrap();
        assert!(!text.contains("me:one"), "passwords stay in the configuration: {text}");

        let whole = fs::read(&path).unwrap();
        for at in [0, HEADER.len() + 3, whole.len() / 2, whole.len() - 1] {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            fs::write(&path, damaged).unwrap();
            assert_eq!(state_file.load(), None, "{at}");
            fs::write(&path, &whole[..at]).unwrap();
            assert_eq!(state_file.load(), None, "{at}");
        }
        state_file.store(&configuration, 2000);
        assert_eq!(state_file.load().unwrap().received_ms, 2000);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }
}
