//! The time for which certificates are valid.

use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, Error, RootCertStore};

const DAY_S: u64 = 24 * 3600;

/// Why clients refuse the first of these certificates that is not valid at present, such as "it
/// expired 3 days ago".
pub(super) fn validity_problem(chain: &[CertificateDer<'_>], now: UnixTime) -> Option<String> {
    chain.iter().find_map(|certificate| problem_of(certificate, now))
}

fn problem_of(certificate: &CertificateDer<'_>, now: UnixTime) -> Option<String> {
    let parsed = ParsedCertificate::try_from(certificate).ok()?;
    let algorithms = default_provider().signature_verification_algorithms.all;
    // The times of the certificate are verified first, so no authority is needed.
    let roots = RootCertStore::empty();
    let refused =
        verify_server_cert_signed_by_trust_anchor(&parsed, &roots, &[], now, algorithms).err()?;
    match refused {
        Error::InvalidCertificate(CertificateError::ExpiredContext { time, not_after }) => {
            let days = time.as_secs().saturating_sub(not_after.as_secs()) / DAY_S;
            Some(format!("it expired {}", days_text(days, "less than a day ago", "ago")))
        }
        Error::InvalidCertificate(CertificateError::NotValidYetContext { time, not_before }) => {
            let days = not_before.as_secs().saturating_sub(time.as_secs()) / DAY_S;
            let when = days_text(days, "in less than a day", "from now");
            Some(format!("it becomes valid {when}; check the clock of this machine"))
        }
        Error::InvalidCertificate(CertificateError::Expired) => Some("it has expired".into()),
        Error::InvalidCertificate(CertificateError::NotValidYet) => {
            Some("it is not valid yet; check the clock of this machine".into())
        }
        _ => None,
    }
}

fn days_text(days: u64, none: &str, after: &str) -> String {
    match days {
        0 => none.to_owned(),
        1 => format!("1 day {after}"),
        days => format!("{days} days {after}"),
    }
}
