//! Exit codes and advice for failed downloads, the same for `get`, `ls`, `stat` and `cs fetch`.

use weir_socket::{DownloadError, OutputError};
use weir_transport::ConsumerError;
use weir_wire::NackReason;

use crate::exit::{Exit, is_out_of_space};

/// The exit code for a failed download.
pub(crate) fn exit_of(error: &DownloadError) -> Exit {
    match error {
        DownloadError::Fetch(error) => match error {
            ConsumerError::NoRoute(_)
            | ConsumerError::NoRouteFurtherOn(_)
            | ConsumerError::Nacked { reason: NackReason::NoRoute, .. } => Exit::NoRoute,
            ConsumerError::Refused(_) => Exit::NotFound,
            ConsumerError::Unanswered(_)
            | ConsumerError::Incomplete(_)
            | ConsumerError::Nacked { .. } => Exit::TryAgain,
            ConsumerError::Damaged(_)
            | ConsumerError::Untrusted(_)
            | ConsumerError::Unverified { .. }
            | ConsumerError::ForeignMetadata { .. } => Exit::NotVerified,
            ConsumerError::Superseded { .. }
            | ConsumerError::Metadata { .. }
            | ConsumerError::Unnameable(_) => Exit::Failure,
        },
        DownloadError::Client(_) => Exit::TryAgain,
        DownloadError::OtherSigner => Exit::NotVerified,
        DownloadError::Store(source) | DownloadError::Output(OutputError::Io { source, .. })
            if is_out_of_space(source) =>
        {
            Exit::DiskFull
        }
        DownloadError::Output(_)
        | DownloadError::Store(_)
        | DownloadError::Refused(_)
        | DownloadError::Size { .. }
        | DownloadError::Stopped => Exit::Failure,
    }
}

/// The message for an object that no router or producer has, with advice. `None` for other errors.
pub(crate) fn explain_missing_object(error: &DownloadError) -> Option<String> {
    Some(match error {
        DownloadError::Fetch(ConsumerError::NoRoute(name)) => format!(
            "the router has no route to {name}. Start the producer on this machine (`weir put`), \
             or add a route to its machine (`weir route add`)"
        ),
        DownloadError::Fetch(ConsumerError::NoRouteFurtherOn(name)) => format!(
            "the next router has no route to {name}. Check that the producer runs, and that the \
             next router has a route to it"
        ),
        DownloadError::Fetch(ConsumerError::Refused(name)) => {
            format!("the producer has no {name}. Check the name and the version")
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_downloads_have_the_codes_of_the_page() {
        let name = || "/a".parse().unwrap();
        for (error, exit) in [
            (ConsumerError::NoRoute(name()), Exit::NoRoute),
            (ConsumerError::Refused(name()), Exit::NotFound),
            (ConsumerError::Unanswered(name()), Exit::TryAgain),
            (ConsumerError::Damaged(name()), Exit::NotVerified),
        ] {
            assert_eq!(exit_of(&error.into()), exit);
        }
        assert_eq!(exit_of(&DownloadError::Refused("bad".into())), Exit::Failure);
    }
}
