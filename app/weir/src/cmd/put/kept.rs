//! The repository that `weir put --repo` keeps packets in.

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
    match Location::has_scheme(text) {
        true => text.parse().map(RepositoryPlace::Bucket).map_err(|error| format!("{error}")),
        false => Ok(RepositoryPlace::Folder(text.into())),
    }
}

impl RepositoryPlace {
    /// With `may_be_guest` it may be one that another process serves, and hand over to that.
    fn open(&self, endpoint: Option<&str>, may_be_guest: bool) -> anyhow::Result<Repository> {
        let location = match self {
            Self::Folder(path) => {
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
                "cannot use {location}: {error}; build it with cargo build --release --features s3"
            ),
            error => anyhow::anyhow!("cannot use {location}: {error}"),
        })?;
        Repository::in_bucket(Arc::new(bucket)).map_err(explain)
    }
}

/// Opens it, and tells what of it is not as it was left.
pub(super) fn open(
    place: &RepositoryPlace,
    endpoint: Option<&str>,
    may_be_guest: bool,
) -> anyhow::Result<Repository> {
    let repository = place.open(endpoint, may_be_guest)?;
    if repository.is_second_writer() {
        // The process that has it has said what was found.
        return Ok(repository);
    }
    let findings = repository.load_report();
    if findings.unfinished > 0 {
        let files = count(findings.unfinished, "object that was", "objects that were");
        errln!(
            "weir: {files} being written when weir ended before: removed, put again what is missing"
        );
    }
    if findings.damaged > 0 {
        let objects = count(findings.damaged, "object is", "objects are");
        errln!(
            "weir: {objects} damaged: served as far as possible, and signed anew when put again"
        );
    }
    for path in &findings.unreadable {
        let path = printable(path.display());
        errln!("weir: {path} cannot be read, or is not what was written: left out, and left alone");
    }
    Ok(repository)
}

/// A repository within the directory that is put would publish itself.
pub(super) fn refuse_within(repository: Option<&Repository>, source: &Path) -> anyhow::Result<()> {
    let Some(repository) = repository else { return Ok(()) };
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if real(repository.path()).starts_with(real(source)) {
        let (repository, source) =
            (printable(repository.path().display()), printable(source.display()));
        anyhow::bail!(
            "the repository {repository} is within {source}, so that it would publish itself; \
             name a directory outside with --repo"
        );
    }
    Ok(())
}

/// Keeps the signer's certificate in the repository.
pub(super) fn put_certificate(
    repository: &mut Repository,
    signing: &Signing,
) -> anyhow::Result<()> {
    if let (Some(certificate), Some(prefix)) = (&signing.certificate, &signing.certificate_prefix) {
        repository.put_packet(certificate, prefix).map_err(explain)?;
    }
    Ok(())
}

/// Adds all that is kept to what is served.
pub(super) fn add(repository: &mut Repository, served: &mut Served) -> anyhow::Result<()> {
    repository.objects().for_each(|published| served.store.add(published));
    let packets = repository.packets();
    for (path, reason) in packets.unreadable {
        let path = printable(path.display());
        errln!(
            "weir: a certificate, {path}: {reason}; it is not served, and written anew when \
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
            "nothing is kept in {path} yet; name a file or directory, and what to call it"
        );
    }
    Ok(())
}

/// Takes out what is kept under a name or below it.
pub(super) fn remove(repository: &mut Repository, name: &Name, json: bool) -> anyhow::Result<()> {
    let removed = repository.remove(name).map_err(explain)?;
    if removed == 0 {
        anyhow::bail!("nothing below {name} is kept in {}", printable(repository.path().display()));
    }
    match json {
        true => outln!("{}", json!({ "removed": removed }))?,
        false => outln!("removed {}", count(removed, "object", "objects"))?,
    }
    Ok(())
}
