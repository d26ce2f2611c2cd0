//! The default directory for persistent state of long-running commands.

use std::ffi::OsString;
use std::path::PathBuf;

/// The state directory: `$STATE_DIRECTORY` in a systemd service, `/var/lib/weir` for root,
/// otherwise `weir` in the state directory of the user. `None` if HOME is not set.
pub(crate) fn folder() -> Option<PathBuf> {
    folder_from(|name| std::env::var_os(name), nix::unistd::geteuid().is_root())
}

fn folder_from(variable: impl Fn(&str) -> Option<OsString>, is_root: bool) -> Option<PathBuf> {
    let folder = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    // systemd separates several directories by colons.
    let of_service = variable("STATE_DIRECTORY")
        .and_then(|all| all.to_str()?.split(':').next().map(PathBuf::from))
        .filter(|first| first.is_absolute());
    let of_user = || {
        let home = || folder("HOME").map(|home| home.join(".local/state"));
        folder("XDG_STATE_HOME").or_else(home).map(|state| state.join("weir"))
    };
    match of_service {
        None if is_root => Some(PathBuf::from("/var/lib/weir")),
        None => of_user(),
        of_service => of_service,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn picks_folder_by_service_root_or_user() {
        let folder = |variables: &[(&str, &str)], is_root| {
            let found = |key: &str| {
                let found = variables.iter().find(|(name, _)| *name == key);
                found.map(|(_, value)| OsString::from(value))
            };
            folder_from(found, is_root).map(|path| path.display().to_string())
        };
        let home = ("HOME", "/home/u");
        assert_eq!(folder(&[], false), None);
        assert_eq!(folder(&[home], true).as_deref(), Some("/var/lib/weir"));
        assert_eq!(folder(&[home], false).as_deref(), Some("/home/u/.local/state/weir"));
        let state = ("XDG_STATE_HOME", "/s");
        assert_eq!(folder(&[home, state], false).as_deref(), Some("/s/weir"));
        let service = ("STATE_DIRECTORY", "/var/lib/a:/var/lib/b");
        assert_eq!(folder(&[home, service], true).as_deref(), Some("/var/lib/a"));
    }
}
