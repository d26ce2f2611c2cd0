//! Reports what `weir put` serves and what it skipped.

use anyhow::bail;
use serde_json::{Value, json};
use weir_hicn::HicnName;
use weir_socket::{Published, Repository};
use weir_transport::NameMapping;
use weir_wire::Name;

use super::handover;
use super::publisher::{ServedState, UnpublishedEntry};
use super::served::Served;
use crate::table::{count, errln, octets, outln, printable};

/// Number of skipped entries that are reported one by one.
const UNPUBLISHED_REPORTED_MAX: usize = 20;

/// How to report that everything is ready.
pub(super) struct Announcement<'a> {
    /// Whether to print one JSON object.
    pub(super) json: bool,
    pub(super) name: Option<&'a Name>,
    pub(super) has_repository: bool,
    pub(super) mapping: NameMapping,
    /// Whether the packets have hICN's signatures.
    pub(super) has_hicn_signatures: bool,
}

impl Announcement<'_> {
    /// Prints what is served and skipped.
    pub(super) fn print(&self, served: &Served) -> anyhow::Result<()> {
        let Served { root, unpublished, signer, .. } = served;
        print_unpublished(unpublished);
        if let Some(more) =
            unpublished.len().checked_sub(UNPUBLISHED_REPORTED_MAX).filter(|&more| more > 0)
        {
            errln!("skipped {}", count(more as u64, "more entry", "more entries"));
        }
        if let failures @ 1.. = served.failures() {
            errln!("weir: {} skipped; everything else is served", unpublished_count_text(failures));
        }
        if self.json {
            return Ok(outln!("{}", self.ready(served))?);
        }
        let objects: Vec<&Published> = served.store.objects().collect();
        let is_one = root.as_ref().is_some_and(|root| !root.is_directory) && objects.len() == 1;
        match root {
            Some(root) => outln!("{}", root.versioned)?,
            None => served.names.iter().try_for_each(|name| outln!("{name}"))?,
        }
        let what = if is_one {
            String::new()
        } else {
            format!("{}, ", count(objects.len() as u64, "object", "objects"))
        };
        let by = match (root, signer) {
            (None, _) => "signed earlier".to_owned(),
            (_, None) => "not signed (digests only)".to_owned(),
            (_, Some(signer)) => format!("signed by {signer}"),
        };
        let size_bytes = objects.iter().map(|object| object.size_bytes()).sum();
        let segments = objects.iter().map(|object| object.segments()).sum();
        errln!("{what}{} in {}, {by}", octets(size_bytes), count(segments, "segment", "segments"));
        let unsigned = root.is_some() && signer.is_none();
        let allow = if unsigned { " --allow-unsigned" } else { "" };
        if let Some(name) = self.name.or(served.names.first()) {
            let arguments = self.mapped_arguments(name);
            errln!("serving, stop with Ctrl-C; fetch it with: weir get {arguments}{allow}");
        }
        Ok(())
    }

    /// The arguments of `weir get` for a name with this mapping.
    fn mapped_arguments(&self, name: &Name) -> String {
        let mapping = self.mapping;
        if mapping == NameMapping::Identity {
            return name.to_string();
        }
        let Some(address) = HicnName::address_of(name.as_view()) else {
            return format!("{name} --mapping {mapping}");
        };
        // An address has no metadata, so its packets do not say which key signs them.
        let key = if self.has_hicn_signatures { " --hicn-key FILE" } else { "" };
        format!("hicn:{address} --mapping {mapping}{key}")
    }

    /// The JSON object that reports that everything is ready.
    fn ready(&self, served: &Served) -> Value {
        let Served { root, unpublished, signer, names, reused, .. } = served;
        let objects: Vec<&Published> = served.store.objects().collect();
        let skipped = unpublished.iter().filter(|one| one.served_state == ServedState::Nothing);
        let mut ready = json!({
            "name": root.as_ref().map(|root| root.versioned.to_string()),
            "object": self.name.map(ToString::to_string),
            "directory": root.as_ref().is_some_and(|root| root.is_directory),
            "objects": objects.len(),
            "bytes": objects.iter().map(|object| object.size_bytes()).sum::<u64>(),
            "segments": objects.iter().map(|object| object.segments()).sum::<u64>(),
            "signer": signer.as_ref().map(ToString::to_string),
            "skipped": skipped.count(),
        });
        if self.has_repository {
            ready["names"] = names.iter().map(ToString::to_string).collect();
            ready["not_signed_again"] = (*reused).into();
        }
        ready
    }

    /// Hands the objects over to the process that serves the repository, and prints the result.
    pub(super) fn hand_over(&self, served: &Served, repository: &Repository) -> anyhow::Result<()> {
        handover::hand_over(repository.path(), &repository.hand_over())?;
        let root = served.root.as_ref().expect("something was put");
        if self.json {
            let reused = served.reused;
            let name = root.versioned.to_string();
            outln!("{}", json!({ "name": name, "not_signed_again": reused, "served": true }))?;
        } else {
            outln!("{}", root.versioned)?;
            let path = printable(repository.path().display());
            errln!("served by the process that uses {path}");
        }
        print_unpublished(&served.unpublished);
        fail_if_unpublished(served.failures())
    }
}

fn print_unpublished(unpublished: &[UnpublishedEntry]) {
    unpublished.iter().take(UNPUBLISHED_REPORTED_MAX).for_each(|one| errln!("{}", one.text()));
}

/// Returns an error if entries could not be published. The command returns it at its end.
pub(super) fn fail_if_unpublished(failures: usize) -> anyhow::Result<()> {
    match failures {
        0 => Ok(()),
        _ => bail!("{} not published", unpublished_count_text(failures)),
    }
}

fn unpublished_count_text(failures: usize) -> String {
    let be = if failures == 1 { "was" } else { "were" };
    format!("{} {be}", count(failures as u64, "file or directory", "files or directories"))
}
