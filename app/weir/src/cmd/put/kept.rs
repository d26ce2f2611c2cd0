//! The repository of `weir put --repo`, which stores the signed packets.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use serde_json::json;
use weir_socket::{Bucket, BucketError, Location, Repository, RepositoryError};
use weir_wire::Name;

use super::handover;
use super::publisher::explain;
use super::served::Served;
use super::signing::Signing;
use crate::table::{count, errln, outln, printable};

#[derive(Clone)]
pub(super) enum RepositoryPlace {
    Folder(PathBuf),
    Bucket(Location),
}

pub(super) fn parse_place(text: &str) -> Result<RepositoryPlace, String> {
    if Location::has_scheme(text) {
        text.parse().map(RepositoryPlace::Bucket).map_err(|error| format!("{error}"))
    } else {
        Ok(RepositoryPlace::Folder(text.into()))
    }
}

impl RepositoryPlace {
    /// Opens the repository. With `may_be_guest`, a repository that another process serves is
    /// opened as a guest, to hand the objects over to that process.
    fn open(&self, endpoint: Option<&str>, may_be_guest: bool) -> anyhow::Result<Repository> {
        let location = match self {
            Self::Folder(path) => {
                // A process without a listening socket cannot accept objects: report `InUse` then.
                let opened = match Repository::open(path) {
                    Err(RepositoryError::InUse { .. })
                        if may_be_guest && handover::is_served(path) =>
                    {
                        Repository::open_as_second_writer(path)
                    }
                    opened => opened,
                };
                return opened.map_err(explain);
            }
            Self::Bucket(location) => location,
        };
        let bucket = Bucket::open(location, endpoint).map_err(|error| match error {
            BucketError::NotBuilt => anyhow::anyhow!(
                "cannot use {location}: {error}; build weir with cargo build --release --features \
                 s3"
            ),
            error => anyhow::anyhow!("cannot use {location}: {error}"),
        })?;
        Repository::in_bucket(Arc::new(bucket)).map_err(explain)
    }
}

/// Opens the repository, and reports damage and incomplete objects.
pub(super) fn open(
    place: &RepositoryPlace,
    endpoint: Option<&str>,
    may_be_guest: bool,
) -> anyhow::Result<Repository> {
    let repository = place.open(endpoint, may_be_guest)?;
    if repository.is_second_writer() {
        // The serving process has already reported them.
        return Ok(repository);
    }
    let findings = repository.load_report();
    if findings.unfinished > 0 {
        let files = count(findings.unfinished, "incomplete object", "incomplete objects");
        errln!("weir: removed {files} of an interrupted `weir put`; run that command again");
    }
    if findings.damaged > 0 {
        let objects = count(findings.damaged, "object is", "objects are");
        errln!(
            "weir: {objects} damaged; the intact packets are served. Put the files again to repair \
             them"
        );
    }
    for path in &findings.unreadable {
        let path = printable(path.display());
        errln!("weir: skipped {path}, which is unreadable or not a file of the repository");
    }
    Ok(repository)
}

/// Rejects a repository inside the published directory, which would publish itself.
pub(super) fn refuse_within(repository: Option<&Repository>, source: &Path) -> anyhow::Result<()> {
    let Some(repository) = repository else { return Ok(()) };
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if real(repository.path()).starts_with(real(source)) {
        let (repository, source) =
            (printable(repository.path().display()), printable(source.display()));
        anyhow::bail!(
            "the repository {repository} is inside {source} and would publish itself; choose a \
             directory outside with --repo"
        );
    }
    Ok(())
}

/// Stores the signer's certificate in the repository.
pub(super) fn put_certificate(
    repository: &mut Repository,
    signing: &Signing,
) -> anyhow::Result<()> {
    if let (Some(certificate), Some(prefix)) = (&signing.certificate, &signing.certificate_prefix) {
        repository.put_packet(certificate, prefix).map_err(explain)?;
    }
    Ok(())
}

/// Adds all stored objects and certificates to the served ones.
pub(super) fn add(repository: &mut Repository, served: &mut Served) -> anyhow::Result<()> {
    repository.objects().for_each(|published| served.store.add(published));
    let packets = repository.packets();
    for (path, reason) in packets.unreadable {
        let path = printable(path.display());
        errln!(
            "weir: the certificate {path} is not served: {reason}; it is written again when \
             something is put with its key"
        );
    }
    for (root, packet) in packets.intact {
        served.store.add_packet(packet).context("a certificate of the repository")?;
        served.key_names.push(root);
    }
    served.key_names.sort();
    served.key_names.dedup();
    served.names = repository.roots();
    if served.names.is_empty() {
        let path = printable(repository.path().display());
        anyhow::bail!(
            "the repository {path} is empty; add a file with `weir put PATH NAME --repo {path}`"
        );
    }
    Ok(())
}

/// Removes all objects at or below a name.
pub(super) fn remove(repository: &mut Repository, name: &Name, json: bool) -> anyhow::Result<()> {
    let removed = repository.remove(name).map_err(explain)?;
    if removed == 0 {
        let path = printable(repository.path().display());
        anyhow::bail!("the repository {path} has no objects at or below {name}; check the name");
    }
    if json {
        outln!("{}", json!({ "removed": removed }))?
    } else {
        outln!("removed {}", count(removed, "object", "objects"))?
    }
    Ok(())
}
