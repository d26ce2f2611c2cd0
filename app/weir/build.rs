//! Records the version, the commit and the build time in the program.
//!
//! - `WEIR_COMMIT`: the environment variable of that name, for packages without a git history.
//!   Otherwise the commit from git, with `-dirty` if the sources were modified, or the one that
//!   `cargo package` recorded.
//! - `WEIR_VERSION`: version, commit and its date. Without git the date is `SOURCE_DATE_EPOCH`.
//! - `WEIR_BUILD_UNIX_S`: `SOURCE_DATE_EPOCH` if it is set, otherwise the current time.

use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// The sources of the program, relative to this package.
const SOURCES: [&str; 7] = [
    "..",
    "../../core",
    "../../io",
    "../../sim",
    "../../lab",
    "../../Cargo.toml",
    "../../Cargo.lock",
];
const COMMIT_DIGITS: usize = 12;

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}

/// Commit and date of the commit, from git.
fn commit_from_git() -> Option<(String, String)> {
    // A published package may lie inside the repository of its user.
    git(&["ls-files", "--error-unmatch", "build.rs"])?;
    let status = ["--no-optional-locks", "status", "--porcelain", "--"];
    let is_dirty = git(&[&status[..], &SOURCES].concat()).is_some();
    let commit = git(&["rev-parse", &format!("--short={COMMIT_DIGITS}"), "HEAD"])?;
    let date = git(&["show", "--no-patch", "--format=%cs", "HEAD"])?;
    Some((if is_dirty { format!("{commit}-dirty") } else { commit }, date))
}

/// The commit that `cargo package` recorded.
fn commit_from_package() -> Option<String> {
    let text = std::fs::read_to_string(".cargo_vcs_info.json").ok()?;
    let (_, rest) = text.split_once("\"sha1\": \"")?;
    rest.get(..COMMIT_DIGITS).map(str::to_owned)
}

/// The date of a Unix time, by Howard Hinnant's `civil_from_days`.
fn date_of(unix_s: u64) -> String {
    let days = unix_s / 86_400 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

/// Run this script again after a change of the sources. A release also runs it after a commit,
/// which changes HEAD or the reference that it names. Other builds do not, as each run builds the
/// program again.
fn watch_sources() {
    for variable in ["WEIR_COMMIT", "SOURCE_DATE_EPOCH"] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    for source in SOURCES.into_iter().filter(|source| Path::new(source).exists()) {
        println!("cargo::rerun-if-changed={source}");
    }
    if std::env::var("PROFILE").is_ok_and(|profile| profile == "release") {
        let reference = git(&["symbolic-ref", "-q", "HEAD"]);
        for name in ["HEAD", "packed-refs"].into_iter().chain(reference.as_deref()) {
            if let Some(path) = git(&["rev-parse", "--git-path", name])
                && Path::new(&path).exists()
            {
                println!("cargo::rerun-if-changed={path}");
            }
        }
    }
}

fn main() {
    watch_sources();
    let epoch = std::env::var("SOURCE_DATE_EPOCH").ok().and_then(|text| text.parse::<u64>().ok());
    let given = std::env::var("WEIR_COMMIT").ok().filter(|commit| !commit.is_empty());
    let without_git = |commit| (commit, epoch.map(date_of));
    let found = given
        .map(without_git)
        .or_else(|| commit_from_git().map(|(commit, date)| (commit, Some(date))))
        .or_else(|| commit_from_package().map(without_git));
    let number = env!("CARGO_PKG_VERSION");
    let version = match &found {
        Some((commit, Some(date))) => format!("{number} ({commit} {date})"),
        Some((commit, None)) => format!("{number} ({commit})"),
        None => number.to_owned(),
    };
    println!("cargo::rustc-env=WEIR_VERSION={version}");
    let commit = found.map_or_else(|| "unknown".to_owned(), |(commit, _)| commit);
    println!("cargo::rustc-env=WEIR_COMMIT={commit}");
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    println!("cargo::rustc-env=WEIR_BUILD_UNIX_S={}", epoch.unwrap_or_else(now));
}
