//! Objects: which are files, whose, and what routers say they hold of each.

use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Bound as End;

use weir_base::HashKey;
use weir_wire::Name;

use crate::file::{File, List};
use crate::limits::LimitKind;
use crate::message::{Change, Tier};
use crate::segments::Segments;

/// A router that is there, by number.
pub(crate) type RouterId = u32;
type ObjectId = u32;
type OwnerId = u32;

/// Octets of memory that an entry about an object takes at least, a further range, and an object
/// that is no file beside its name.
const ENTRY_BYTES: u64 = 64;
const RANGE_BYTES: u64 = 32;
const UNREGISTERED_BYTES: u64 = 192;

/// What one router may say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Objects of which it holds something.
    pub(crate) objects_max: usize,
    /// Those of them that are no files.
    pub(crate) unregistered_max: usize,
    /// Octets of memory here that what it says takes.
    pub(crate) bytes_max: u64,
    /// The same of all routers together.
    pub(crate) total_bytes_max: u64,
    /// Octets of content that it may hold by tier.
    pub(crate) content_bytes_max: [u64; 2],
}

/// What became of a change.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Applied {
    /// It holds something that it did not hold.
    pub(crate) has_gained: bool,
    /// Segments, or objects, that do not count, by what they are too many for.
    pub(crate) refused: Vec<(LimitKind, u64)>,
}

struct Holding {
    router: RouterId,
    tier: Tier,
    segments: Segments,
}

struct Object {
    kind: ObjectKind,
    holders: Vec<Holding>,
}

enum ObjectKind {
    File { file: File, owner: OwnerId },
    Unregistered(Name),
}

impl Object {
    fn name(&self) -> &Name {
        match &self.kind {
            ObjectKind::File { file, .. } => &file.name,
            ObjectKind::Unregistered(name) => name,
        }
    }

    fn file(&self) -> Option<&File> {
        match &self.kind {
            ObjectKind::File { file, .. } => Some(file),
            ObjectKind::Unregistered(_) => None,
        }
    }

    fn owner(&self) -> Option<OwnerId> {
        match self.kind {
            ObjectKind::File { owner, .. } => Some(owner),
            ObjectKind::Unregistered(_) => None,
        }
    }
}

/// What one router holds, as far as it counts.
#[derive(Default)]
struct RouterAccount {
    objects: BTreeSet<ObjectId>,
    unregistered: usize,
    bytes: u64,
    content_bytes: [u64; 2],
}

#[derive(Default)]
pub(crate) struct Objects {
    by_name: BTreeMap<Name, ObjectId>,
    all: Vec<Option<Object>>,
    free: Vec<ObjectId>,
    files_count: usize,
    /// Who has registered files. They have tokens, of which there are few.
    owners: Vec<String>,
    owner_ids: BTreeMap<String, OwnerId>,
    /// Files whose names end in a version: a hash of the rest of the name and the owner, which may
    /// be that of others, too, and the version.
    versions: BTreeSet<(u64, u64, ObjectId)>,
    accounts: BTreeMap<RouterId, RouterAccount>,
    total_bytes: u64,
}

/// It orders what is small, and whoever finds two names of one hash gains nothing.
const VERSIONS_KEY: HashKey = HashKey::new([0, 0]);

/// Where versions of an object that one owner has registered are beside each other, if this is one;
/// and which it is.
fn version_of(name: &Name, owner: OwnerId) -> Option<(u64, u64)> {
    let view = name.as_view();
    let version = view.last()?.as_version()?;
    let mut hasher = VERSIONS_KEY.hasher();
    hasher.write(&owner.to_le_bytes());
    hasher.write(view.parent().value());
    Some((hasher.finish(), version))
}

fn tier_index(tier: Tier) -> usize {
    match tier {
        Tier::Memory => 0,
        Tier::Disk => 1,
    }
}

/// Octets of content of a segment, by what its producer says.
fn content_bytes_each(file: &File) -> u64 {
    (file.size_bytes / file.segments).min(file.packet_bytes)
}

/// Octets of memory that an entry takes.
fn entry_bytes(segments: &Segments) -> u64 {
    ENTRY_BYTES + segments.ranges_count().saturating_sub(1) as u64 * RANGE_BYTES
}

fn unregistered_bytes(name: &Name) -> u64 {
    UNREGISTERED_BYTES + name.value().len() as u64
}

impl Objects {
    fn object(&self, name: &Name) -> Option<&Object> {
        self.all[*self.by_name.get(name)? as usize].as_ref()
    }

    pub(crate) fn file(&self, name: &Name) -> Option<&File> {
        self.object(name)?.file()
    }

    /// Who has registered a file.
    pub(crate) fn owner(&self, name: &Name) -> Option<&str> {
        let owner = self.object(name)?.owner()?;
        self.owners.get(owner as usize).map(String::as_str)
    }

    /// The newest version of a file's object that its owner has registered, if that is newer.
    pub(crate) fn newer_version(&self, name: &Name) -> Option<&File> {
        let (hash, version) = self.version(name)?;
        let last = (hash, u64::MAX, ObjectId::MAX);
        let newer = (End::Excluded((hash, version, ObjectId::MAX)), End::Included(last));
        self.first_of_owner(name, self.versions.range(newer).rev())
    }

    /// The version before a file that its owner has registered, too.
    pub(crate) fn previous_version(&self, name: &Name) -> Option<&File> {
        let (hash, version) = self.version(name)?;
        let older = (hash, 0, 0)..(hash, version, 0);
        self.first_of_owner(name, self.versions.range(older).rev())
    }

    fn version(&self, name: &Name) -> Option<(u64, u64)> {
        version_of(name, self.object(name)?.owner()?)
    }

    /// The first version of a file's object that is its owner's.
    fn first_of_owner<'a>(
        &'a self,
        name: &Name,
        mut places: impl Iterator<Item = &'a (u64, u64, ObjectId)>,
    ) -> Option<&'a File> {
        let owner = self.object(name)?.owner()?;
        let object = name.as_view().parent();
        places.find_map(|(.., id)| {
            let other = self.all[*id as usize].as_ref()?;
            let is_one = other.owner() == Some(owner) && other.name().as_view().parent() == object;
            is_one.then(|| other.file()).flatten()
        })
    }

    pub(crate) fn files_count(&self) -> usize {
        self.files_count
    }

    pub(crate) fn files(&self) -> impl Iterator<Item = &File> {
        self.by_name.values().filter_map(|id| self.all[*id as usize].as_ref()?.file())
    }

    /// The objects after one, in the order of their names, and of each the file if it is one.
    pub(crate) fn after(
        &self,
        name: Option<&Name>,
    ) -> impl Iterator<Item = (&Name, Option<&File>)> {
        let from = name.map_or(End::Unbounded, End::Excluded);
        let later = self.by_name.range::<Name, _>((from, End::Unbounded));
        later.map(|(name, id)| (name, self.all[*id as usize].as_ref().and_then(Object::file)))
    }

    fn owner_id(&mut self, owner: &str) -> OwnerId {
        if let Some(&id) = self.owner_ids.get(owner) {
            return id;
        }
        let id = self.owners.len() as OwnerId;
        self.owners.push(owner.to_owned());
        self.owner_ids.insert(owner.to_owned(), id);
        id
    }

    /// An object becomes a file of an owner. What is held of it stays, as far as the file has it.
    pub(crate) fn add_file(&mut self, owner: &str, file: File) {
        let owner = self.owner_id(owner);
        let id = self.id_of(&file.name);
        let Some(object) = &mut self.all[id as usize] else { return };
        if object.file().is_some() {
            return;
        }
        if let Some((hash, version)) = version_of(&file.name, owner) {
            self.versions.insert((hash, version, id));
        }
        let holders = core::mem::take(&mut object.holders);
        let named = unregistered_bytes(&file.name);
        let beyond = Segments::range(file.segments, Segments::LAST_MAX);
        let each = content_bytes_each(&file);
        object.kind = ObjectKind::File { file, owner };
        self.files_count += 1;
        let mut charged = BTreeSet::new();
        for mut held in holders {
            let Some(account) = self.accounts.get_mut(&held.router) else { continue };
            let mut freed = entry_bytes(&held.segments);
            if charged.insert(held.router) {
                account.unregistered -= 1;
                freed += named;
            }
            held.segments.remove(&beyond);
            let left = if held.segments.is_empty() { 0 } else { entry_bytes(&held.segments) };
            account.bytes = account.bytes + left - freed;
            self.total_bytes = self.total_bytes + left - freed;
            account.content_bytes[tier_index(held.tier)] += held.segments.count() * each;
            if left > 0 {
                object.holders.push(held);
            }
        }
        for router in charged {
            if object.holders.iter().all(|held| held.router != router)
                && let Some(account) = self.accounts.get_mut(&router)
            {
                account.objects.remove(&id);
            }
        }
    }

    /// What is read beside a file's segments.
    pub(crate) fn set_manifest(&mut self, name: &Name, manifest: Vec<List>) {
        let Some(&id) = self.by_name.get(name) else { return };
        if let Some(Object { kind: ObjectKind::File { file, .. }, .. }) = &mut self.all[id as usize]
        {
            file.manifest = manifest;
        }
    }

    /// A file is one no longer. What is held of it stays known, for routers tell only what changes,
    /// and the file may come back.
    pub(crate) fn remove_file(&mut self, name: &Name) -> bool {
        let Some(&id) = self.by_name.get(name) else { return false };
        let Some(object) = &mut self.all[id as usize] else { return false };
        let ObjectKind::File { file, owner } = &object.kind else { return false };
        let each = content_bytes_each(file);
        self.files_count -= 1;
        if let Some((hash, version)) = version_of(name, *owner) {
            self.versions.remove(&(hash, version, id));
        }
        if object.holders.is_empty() {
            self.by_name.remove(name);
            self.all[id as usize] = None;
            self.free.push(id);
            return true;
        }
        object.kind = ObjectKind::Unregistered(name.clone());
        let mut charged = BTreeSet::new();
        for held in &object.holders {
            let Some(account) = self.accounts.get_mut(&held.router) else { continue };
            account.content_bytes[tier_index(held.tier)] -= held.segments.count() * each;
            if charged.insert(held.router) {
                account.unregistered += 1;
                account.bytes += unregistered_bytes(name);
                self.total_bytes += unregistered_bytes(name);
            }
        }
        true
    }

    fn id_of(&mut self, name: &Name) -> ObjectId {
        if let Some(&id) = self.by_name.get(name) {
            return id;
        }
        let object =
            Some(Object { kind: ObjectKind::Unregistered(name.clone()), holders: Vec::new() });
        let id = match self.free.pop() {
            Some(id) => {
                self.all[id as usize] = object;
                id
            }
            None => {
                self.all.push(object);
                (self.all.len() - 1) as ObjectId
            }
        };
        self.by_name.insert(name.clone(), id);
        id
    }

    /// A router says what has changed.
    pub(crate) fn apply(
        &mut self,
        router: RouterId,
        limits: &Limits,
        mut change: Change,
    ) -> Applied {
        let mut applied = Applied::default();
        let file = self.file(&change.object).map(|file| (file.segments, content_bytes_each(file)));
        if let Some((segments, _)) = file {
            let beyond = change.added.count_within(segments, Segments::LAST_MAX);
            if beyond > 0 {
                change.added.remove(&Segments::range(segments, Segments::LAST_MAX));
                applied.refused.push((LimitKind::BeyondFile, beyond));
            }
        }
        self.remove_segments(router, &change, file.map(|(_, each)| each));
        if change.added.is_empty() {
            return applied;
        }
        match self.exceeded_limit(router, limits, &change, file.map(|(_, each)| each)) {
            Some(refused) => applied.refused.push(refused),
            None => {
                applied.has_gained =
                    self.add_segments(router, &change, file.map_or(0, |(_, each)| each));
            }
        }
        applied
    }

    /// Takes away what is removed.
    fn remove_segments(&mut self, router: RouterId, change: &Change, each: Option<u64>) {
        if change.removed.is_empty() {
            return;
        }
        let Some(&id) = self.by_name.get(&change.object) else { return };
        let Some(object) = &mut self.all[id as usize] else { return };
        let is_it = |held: &Holding| held.router == router && held.tier == change.tier;
        let Some(at) = object.holders.iter().position(is_it) else { return };
        let held = &mut object.holders[at];
        let (bytes, count) = (entry_bytes(&held.segments), held.segments.count());
        held.segments.remove(&change.removed);
        let is_empty = held.segments.is_empty();
        let left = if is_empty { 0 } else { entry_bytes(&held.segments) };
        let lost = (count - held.segments.count()) * each.unwrap_or(0);
        if let Some(account) = self.accounts.get_mut(&router) {
            account.bytes = account.bytes + left - bytes;
            account.content_bytes[tier_index(change.tier)] -= lost;
        }
        self.total_bytes = self.total_bytes + left - bytes;
        if is_empty {
            object.holders.swap_remove(at);
            if object.holders.iter().all(|held| held.router != router) {
                self.drop_holdings(router, id);
            }
        }
    }

    /// Why what a router adds does not count, and how much that is.
    fn exceeded_limit(
        &self,
        router: RouterId,
        limits: &Limits,
        change: &Change,
        each: Option<u64>,
    ) -> Option<(LimitKind, u64)> {
        let none = RouterAccount::default();
        let account = self.accounts.get(&router).unwrap_or(&none);
        let holders = self.object(&change.object).map_or(&[][..], |object| &object.holders);
        let is_known = holders.iter().any(|held| held.router == router);
        if !is_known && account.objects.len() >= limits.objects_max {
            return Some((LimitKind::Objects, 1));
        }
        if !is_known && each.is_none() && account.unregistered >= limits.unregistered_max {
            return Some((LimitKind::Unregistered, 1));
        }
        let named = if is_known || each.is_some() { 0 } else { unregistered_bytes(&change.object) };
        let bytes = entry_bytes(&change.added) + named;
        let has_room = account.bytes + bytes <= limits.bytes_max
            && self.total_bytes + bytes <= limits.total_bytes_max;
        if !has_room {
            return Some((LimitKind::Memory, 1));
        }
        let held = holders.iter().find(|held| held.router == router && held.tier == change.tier);
        let known = held.map_or(0, |held| held.segments.overlap_count(&change.added));
        let count = change.added.count() - known;
        let content = account.content_bytes[tier_index(change.tier)];
        let content = content.saturating_add(count.saturating_mul(each.unwrap_or(0)));
        let max = limits.content_bytes_max[tier_index(change.tier)];
        (each.is_some() && content > max).then_some((LimitKind::BeyondStore, count))
    }

    /// Adds what is added. Whether it was not there.
    fn add_segments(&mut self, router: RouterId, change: &Change, each: u64) -> bool {
        let id = self.id_of(&change.object);
        let Some(object) = &mut self.all[id as usize] else { return false };
        let account = self.accounts.entry(router).or_default();
        let mut gained = 0;
        if account.objects.insert(id) && object.file().is_none() {
            account.unregistered += 1;
            gained += unregistered_bytes(&change.object);
        }
        let is_it = |held: &Holding| held.router == router && held.tier == change.tier;
        let at = object.holders.iter().position(is_it).unwrap_or_else(|| {
            let segments = Segments::default();
            object.holders.reserve_exact(1);
            object.holders.push(Holding { router, tier: change.tier, segments });
            object.holders.len() - 1
        });
        let held = &mut object.holders[at].segments;
        let count = held.count();
        let bytes = if held.is_empty() { 0 } else { entry_bytes(held) };
        held.add(&change.added);
        let more = held.count() - count;
        let grown = entry_bytes(held) + gained;
        // Ranges may have grown together.
        account.bytes = account.bytes + grown - bytes;
        self.total_bytes = self.total_bytes + grown - bytes;
        account.content_bytes[tier_index(change.tier)] += more * each;
        more > 0
    }

    /// What a router holds of one object is forgotten, and the object if nobody speaks of it.
    fn drop_holdings(&mut self, router: RouterId, id: ObjectId) {
        let Some(object) = &mut self.all[id as usize] else { return };
        let Some(account) = self.accounts.get_mut(&router) else { return };
        if !account.objects.remove(&id) {
            return;
        }
        let each = object.file().map(content_bytes_each);
        let mut bytes = 0;
        if each.is_none() {
            account.unregistered -= 1;
            bytes += unregistered_bytes(object.name());
        }
        object.holders.retain(|held| {
            if held.router == router {
                bytes += entry_bytes(&held.segments);
                let content = held.segments.count() * each.unwrap_or(0);
                account.content_bytes[tier_index(held.tier)] -= content;
            }
            held.router != router
        });
        account.bytes -= bytes;
        self.total_bytes -= bytes;
        if each.is_none() && object.holders.is_empty() {
            self.by_name.remove(object.name());
            self.all[id as usize] = None;
            self.free.push(id);
        }
    }

    /// All that a router holds is forgotten. `on_object` hears of each object.
    pub(crate) fn forget(&mut self, router: RouterId, mut on_object: impl FnMut(&Name)) {
        let account = self.accounts.get(&router);
        let ids: Vec<ObjectId> =
            account.iter().flat_map(|account| account.objects.iter().copied()).collect();
        for id in ids {
            if let Some(object) = &self.all[id as usize] {
                on_object(object.name());
            }
            self.drop_holdings(router, id);
        }
        self.accounts.remove(&router);
    }

    /// What a router holds of an object, in either tier.
    pub(crate) fn holdings_of(&self, router: RouterId, name: &Name) -> Segments {
        let mut segments = Segments::default();
        for held in self.object(name).into_iter().flat_map(|object| &object.holders) {
            if held.router == router {
                segments.add(&held.segments);
            }
        }
        segments
    }

    pub(crate) fn holders(&self, name: &Name) -> BTreeMap<RouterId, Segments> {
        let mut holders: BTreeMap<RouterId, Segments> = BTreeMap::new();
        for held in self.object(name).into_iter().flat_map(|object| &object.holders) {
            holders.entry(held.router).or_default().add(&held.segments);
        }
        holders
    }
}

#[cfg(test)]
mod tests;
