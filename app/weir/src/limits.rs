//! Advice for system errors caused by limits of the process.

use std::io::{self, ErrorKind};

/// Advice for a system error, if there is any.
pub(crate) fn next_step(error: &io::Error) -> Option<&'static str> {
    match error.kind() {
        ErrorKind::FileTooLarge if error.raw_os_error().is_some() => Some(
            "the file size limit of this process is reached: raise it (ulimit -f), and run the \
             command again",
        ),
        _ => None,
    }
}

/// The advice to append to the error of a command, or an empty string.
pub(crate) fn hint(error: &anyhow::Error) -> String {
    let mut causes = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>());
    let step = causes.find_map(next_step);
    step.map(|step| format!("; {step}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_file_size_limit() {
        let too_large = io::Error::from_raw_os_error(nix::libc::EFBIG);
        let error = anyhow::Error::from(too_large).context("cannot write a file");
        assert!(hint(&error).contains("ulimit -f"), "{}", hint(&error));
        let other = anyhow::Error::from(io::Error::from_raw_os_error(nix::libc::ENOSPC));
        assert_eq!(hint(&other), "");
        // An error without an OS code comes from this program, not from a limit.
        assert_eq!(hint(&anyhow::Error::from(io::Error::from(ErrorKind::FileTooLarge))), "");
    }
}
