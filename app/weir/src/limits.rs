//! Limits of the process that an error of the system does not name.

use std::io::{self, ErrorKind};

/// What to do about an error of the system.
pub(crate) fn next_step(error: &io::Error) -> Option<&'static str> {
    match error.kind() {
        ErrorKind::FileTooLarge if error.raw_os_error().is_some() => Some(
            "the file size limit of this process is reached: raise it (ulimit -f), and give the \
             command again",
        ),
        _ => None,
    }
}

/// The same about the error that a command ends with, to be added to it.
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
        // Of this program's own, not of a limit.
        assert_eq!(hint(&anyhow::Error::from(io::Error::from(ErrorKind::FileTooLarge))), "");
    }
}
