//! Exit codes. `docs/exit-codes.md` has the table, and decision 0057 the reasons.

use std::io;

use weir_client::ClientError;
use weir_crypto::KeyChainError;

use crate::table::OutError;

/// The line of `weir --help`.
pub(crate) const SUMMARY: &str = "Exit codes:\n  0 success, 1 failure, 2 wrong arguments, 4 not \
                                  found, 5 no route,\n  6 not verified, 7 disk full, 8 try again, \
                                  128 + N signal N";

/// Why a command failed, as its exit code. 2 belongs to `clap`, 3 and 10 to 12 to `weir lab`, and
/// 128 + N to signal N.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// None of the others.
    Failure = 1,
    /// The object, key, face or other thing that the command names does not exist.
    NotFound = 4,
    /// No router has a route to the name.
    NoRoute = 5,
    /// The data arrived, but its signature or digest is wrong or not trusted.
    NotVerified = 6,
    /// No space on a local disk, within the quota or within the file size limit.
    DiskFull = 7,
    /// The same command can succeed later: no answer in time, congestion, or no connection to the
    /// router.
    TryAgain = 8,
}

/// A failure that the journal already has, where this command's standard error goes.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct InJournal(pub(crate) String);

/// A message with its exit code.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
struct Failure {
    exit: Exit,
    message: String,
}

impl Exit {
    /// An error that ends the program with this code.
    pub(crate) fn error(self, message: impl Into<String>) -> anyhow::Error {
        Failure { exit: self, message: message.into() }.into()
    }

    /// The code for an error.
    pub(crate) fn of(error: &anyhow::Error) -> Self {
        if let Some(failure) = error.downcast_ref::<Failure>() {
            return failure.exit;
        }
        if error.downcast_ref::<OutError>().is_some_and(|error| is_out_of_space(error.cause())) {
            return Self::DiskFull;
        }
        for cause in error.chain() {
            if cause.downcast_ref::<io::Error>().is_some_and(is_out_of_space) {
                return Self::DiskFull;
            }
            if let Some(ClientError::Connect { .. } | ClientError::Lost(_)) = cause.downcast_ref() {
                return Self::TryAgain;
            }
            if let Some(KeyChainError::NoSuchKey(_) | KeyChainError::NoSuchCertificate(_)) =
                cause.downcast_ref()
            {
                return Self::NotFound;
            }
        }
        Self::Failure
    }

    /// The code for several failures: that of all, or [`Exit::Failure`] if they differ.
    pub(crate) fn common(exits: impl IntoIterator<Item = Self>) -> Self {
        let mut exits = exits.into_iter();
        let first = exits.next().unwrap_or(Self::Failure);
        if exits.all(|exit| exit == first) { first } else { Self::Failure }
    }
}

/// Whether a write failed because of a full disk, a quota or a file size limit.
pub(crate) fn is_out_of_space(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    let is_system = error.raw_os_error().is_some();
    is_system && matches!(error.kind(), FileTooLarge | QuotaExceeded | StorageFull)
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn exit_code_survives_added_context() {
        let error = Exit::NoRoute.error("no route").context("cannot get /a");
        assert_eq!(Exit::of(&error), Exit::NoRoute);
        assert_eq!(format!("{error:#}"), "cannot get /a: no route");
        assert_eq!(Exit::of(&anyhow::anyhow!("other")), Exit::Failure);
    }

    #[test]
    fn full_disk_is_found_in_the_causes() {
        let full = io::Error::from_raw_os_error(nix::libc::ENOSPC);
        let error = Err::<(), _>(full).context("cannot write").unwrap_err();
        assert_eq!(Exit::of(&error), Exit::DiskFull);
    }

    #[test]
    fn different_failures_have_the_general_code() {
        assert_eq!(Exit::common([Exit::NotFound, Exit::NotFound]), Exit::NotFound);
        assert_eq!(Exit::common([Exit::NotFound, Exit::TryAgain]), Exit::Failure);
        assert_eq!(Exit::common([]), Exit::Failure);
    }

    /// The page, the help page and the enum list the same codes.
    #[test]
    fn page_and_help_list_all_codes() {
        let page = include_str!("../../../docs/exit-codes.md");
        for (code, words) in [
            (Exit::Failure as u8, "failure"),
            (2, "wrong arguments"),
            (Exit::NotFound as u8, "not found"),
            (Exit::NoRoute as u8, "no route"),
            (Exit::NotVerified as u8, "not verified"),
            (Exit::DiskFull as u8, "disk full"),
            (Exit::TryAgain as u8, "try again"),
        ] {
            assert!(page.contains(&format!("\n| {code} | {words}")), "{code} {words}");
            assert!(SUMMARY.contains(&format!(" {code} {words},")), "{code} {words}");
        }
    }
}
