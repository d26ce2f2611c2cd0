//! A second writer: puts objects into a repository that another process owns.
//!
//! It signs and writes objects, each into its own file, and removes nothing. The owner adopts these
//! files, and removes the files that they replace.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use weir_base::{Packet, Pool};
use weir_wire::Name;

use super::storage::Storage;
use super::{Folder, Repository, RepositoryError};
use crate::object::published::{ObjectForm, Published};
use crate::object::stored::StoredObject;

#[derive(Debug)]
pub(super) struct SecondWriter {
    found: HashSet<PathBuf>,
    pub(super) withdrawn: Vec<Name>,
}

/// What a second writer has put, for the owner of the repository.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HandOver {
    pub files: Vec<String>,
    /// Names of objects to remove.
    pub withdrawn: Vec<Name>,
}

/// What the owner has adopted.
#[derive(Debug, Default)]
pub struct AdoptedObjects {
    /// Objects to serve.
    pub published: Vec<Published>,
    /// Packets to serve, each with the prefix under which it was put.
    pub packets: Vec<(Name, Packet)>,
    /// The prefixes under which the objects were put.
    pub roots: Vec<Name>,
}

impl Repository {
    /// Opens the repository in a folder that another process owns.
    pub fn open_as_second_writer(path: &Path) -> Result<Self, RepositoryError> {
        let folder = Folder::open_unlocked(path);
        let mut repository = Self::load(Storage::Folder(folder), path.to_owned())?;
        let found = repository.put_objects().map(|stored| stored.location.path()).collect();
        repository.second_writer = Some(SecondWriter { found, withdrawn: Vec::new() });
        Ok(repository)
    }

    fn put_objects(&self) -> impl Iterator<Item = &StoredObject> {
        self.objects.values().chain(&self.standalone_packets)
    }

    /// Whether another process owns the repository.
    pub fn is_second_writer(&self) -> bool {
        self.second_writer.is_some()
    }

    pub fn hand_over(&self) -> HandOver {
        let Some(second_writer) = &self.second_writer else { return HandOver::default() };
        let paths = self.put_objects().map(|stored| stored.location.path());
        let new = paths.filter(|path| !second_writer.found.contains(path));
        let name = |path: PathBuf| Some(path.file_name()?.to_str()?.to_owned());
        HandOver {
            files: new.filter_map(name).collect(),
            withdrawn: second_writer.withdrawn.clone(),
        }
    }

    /// Reads the objects that a second writer has put. Skips unreadable and damaged ones.
    ///
    /// # Errors
    /// [`RepositoryError::Read`].
    pub fn read_hand_over(
        &mut self,
        hand_over: &HandOver,
    ) -> Result<AdoptedObjects, RepositoryError> {
        let (mut adopted, mut pool) = (AdoptedObjects::default(), Pool::new(0));
        for name in &hand_over.files {
            let Some(stored) = self.storage.find(name)?.filter(|stored| !stored.is_damaged) else {
                continue;
            };
            let root = stored.header.root.clone();
            if stored.header.segments > 0 {
                adopted.roots.push(root);
                adopted.published.push(Published(ObjectForm::Stored(Box::new(stored))));
                continue;
            }
            let Ok(open) = stored.location.open() else { continue };
            for number in 0..stored.packets() {
                let read = stored.read(number, &mut pool, |range, out| open.read(range, out));
                adopted.packets.extend(read.ok().map(|packet| (root.clone(), packet)));
            }
            drop(open);
            self.standalone_packets.push(stored);
        }
        adopted.roots.sort_unstable();
        adopted.roots.dedup();
        Ok(adopted)
    }
}
