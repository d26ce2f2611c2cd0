//! Objects: which of them are files, who owns each, and which segments each router holds.
//!
//! How the controller learns holdings:
//!
//! 1. A router's store records its changes in an index (docs/decisions/0022). Its agent reads them
//!    in batches and sends each batch as an [`Update`](crate::message::Update) with a generation
//!    and a number.
//! 2. The controller accepts the update with the expected number, or number 1 of a new generation.
//!    It refuses any other update and answers with the expected number. Number 1 deletes all
//!    holdings of the router, because the new generation reports all of them again.
//! 3. Each change names an object, a tier, and the segments added and removed. `apply` first cuts
//!    off segments beyond the end of the file. Then it removes segments. Then it checks the limits
//!    below for the added segments, and adds them or ignores all of them.
//! 4. Each router has an account: its objects, the memory that its holdings take here, and the
//!    bytes of content that it claims to hold in each tier. So no router can fill the controller's
//!    memory, or claim more than its store can hold.
//!
//! Example: a file has 100 segments of 8,000 bytes. Router `one` reports segments 90 to 999 in
//! memory. Segments 100 to 999 are ignored and counted as `BeyondFile` (900). Ten segments remain.
//! They take one entry of 64 bytes, and 80,000 bytes of content are added to the account of tier
//! memory. If the router later reports segments 95 to 99 as removed, the entry stays and the
//! account has 40,000 bytes.
//!
//! A router reports only changes. So its holdings must survive when a file is withdrawn: the object
//! becomes unregistered, and it becomes a file again if the producer registers it again. The
//! holdings disappear only if the router reports their removal, begins a new generation, or is
//! lost.
//!
//! An update must never be applied out of order, and a holding beyond a limit must never count. The
//! accounts are always exactly the sum of the holdings; `objects/tests.rs` checks this after random
//! steps.

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

/// The number of a router in this process.
pub(crate) type RouterId = u32;
type ObjectId = u32;
type OwnerId = u32;

/// Estimated memory in bytes: of one holding, of each further range in it, and of an unregistered
/// object in addition to its name.
const ENTRY_BYTES: u64 = 64;
const RANGE_BYTES: u64 = 32;
const UNREGISTERED_BYTES: u64 = 192;

/// Limits on the holdings of one router.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Objects that it holds segments of.
    pub(crate) objects_max: usize,
    /// Unregistered objects among them.
    pub(crate) unregistered_max: usize,
    /// Bytes of memory that its holdings take in the controller.
    pub(crate) bytes_max: u64,
    /// Bytes of memory that the holdings of all routers take in the controller.
    pub(crate) total_bytes_max: u64,
    /// Bytes of content that it may hold in memory and on disks.
    pub(crate) content_bytes_max: [u64; 2],
}

/// The result of a change.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Applied {
    /// Whether the router holds segments that it did not hold before.
    pub(crate) has_gained: bool,
    /// What was ignored: the limit, and how many segments or objects exceeded it.
    pub(crate) refused: Vec<(LimitKind, u64)>,
}

/// The segments of one object in one tier of one router.
struct Holding {
    router: RouterId,
    tier: Tier,
    segments: Segments,
}

struct Object {
    kind: ObjectKind,
    holders: Vec<Holding>,
}

/// Whether a producer has registered the object.
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

/// Totals over the holdings of one router.
#[derive(Default)]
struct RouterAccount {
    objects: BTreeSet<ObjectId>,
    unregistered: usize,
    bytes: u64,
    content_bytes: [u64; 2],
}

/// All objects that are registered, or that a router holds segments of. The module's description
/// explains how they change.
#[derive(Default)]
pub(crate) struct Objects {
    by_name: BTreeMap<Name, ObjectId>,
    all: Vec<Option<Object>>,
    free: Vec<ObjectId>,
    files_count: usize,
    /// Everyone who has registered a file. They need tokens, so there are few of them.
    owners: Vec<String>,
    owner_ids: BTreeMap<String, OwnerId>,
    /// Files whose name ends in a version: (hash of owner and rest of the name, version, object).
    /// Files with one hash are adjacent, so the next older and newer version are found quickly.
    /// Hashes of different files may be equal, so a lookup compares owner and name.
    versions: BTreeSet<(u64, u64, ObjectId)>,
    accounts: BTreeMap<RouterId, RouterAccount>,
    total_bytes: u64,
}

/// A constant key suffices: the number of files is limited, and an attacker who finds two names
/// with one hash gains nothing.
const VERSIONS_KEY: HashKey = HashKey::new([0, 0]);

/// The key of a file in `versions`: a hash of its owner and of its name without the version, and
/// the version. None if the name does not end in a version.
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

/// Bytes of content in a segment, as its producer reports them.
fn content_bytes_each(file: &File) -> u64 {
    (file.size_bytes / file.segments).min(file.packet_bytes)
}

/// Bytes of memory that one holding takes.
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

    /// The owner of a file.
    pub(crate) fn owner(&self, name: &Name) -> Option<&str> {
        let owner = self.object(name)?.owner()?;
        self.owners.get(owner as usize).map(String::as_str)
    }

    /// The newest version of the file by the same owner, if it is newer than this one.
    pub(crate) fn newer_version(&self, name: &Name) -> Option<&File> {
        let (hash, version) = self.version(name)?;
        let last = (hash, u64::MAX, ObjectId::MAX);
        let newer = (End::Excluded((hash, version, ObjectId::MAX)), End::Included(last));
        self.first_of_owner(name, self.versions.range(newer).rev())
    }

    /// The next older version of the file by the same owner.
    pub(crate) fn previous_version(&self, name: &Name) -> Option<&File> {
        let (hash, version) = self.version(name)?;
        let older = (hash, 0, 0)..(hash, version, 0);
        self.first_of_owner(name, self.versions.range(older).rev())
    }

    fn version(&self, name: &Name) -> Option<(u64, u64)> {
        version_of(name, self.object(name)?.owner()?)
    }

    /// The first of the given entries that is a version of the same object by the same owner.
    fn first_of_owner<'a>(
        &'a self,
        name: &Name,
        mut places: impl Iterator<Item = &'a (u64, u64, ObjectId)>,
    ) -> Option<&'a File> {
        let owner = self.object(name)?.owner()?;
        let object = name.as_view().parent();
        places.find_map(|(.., id)| {
            let other = self.all[*id as usize].as_ref()?;
            // Different files may have the same hash.
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

    /// The objects after a name in the order of names, each with its file if it is one.
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

    /// Makes an object a file. Holdings stay, except for segments beyond the end of the file.
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
        // A router may hold the object in both tiers. It pays once for the object.
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

    /// Adds the manifest of a file that was registered without one.
    pub(crate) fn set_manifest(&mut self, name: &Name, manifest: Vec<List>) {
        let Some(&id) = self.by_name.get(name) else { return };
        if let Some(Object { kind: ObjectKind::File { file, .. }, .. }) = &mut self.all[id as usize]
        {
            file.manifest = manifest;
        }
    }

    /// Makes a file an unregistered object. Holdings stay known, because routers report only
    /// changes and the file may be registered again. Returns whether it was a file.
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

    /// Applies a change that a router reports.
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

    /// Removes the segments that a change reports as removed.
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
        // The segment size of an unregistered object is unknown, so its content does not count.
        let lost = (count - held.segments.count()) * each.unwrap_or(0);
        if let Some(account) = self.accounts.get_mut(&router) {
            account.bytes = account.bytes + left - bytes;
            account.content_bytes[tier_index(change.tier)] -= lost;
        }
        self.total_bytes = self.total_bytes + left - bytes;
        if is_empty {
            object.holders.swap_remove(at);
            // The router may still hold the object in its other tier.
            if object.holders.iter().all(|held| held.router != router) {
                self.drop_holdings(router, id);
            }
        }
    }

    /// The limit that the added segments exceed, if any, and the number of segments or objects.
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
        // An object that the router already holds in some tier costs no new object.
        let is_known = holders.iter().any(|held| held.router == router);
        if !is_known && account.objects.len() >= limits.objects_max {
            return Some((LimitKind::Objects, 1));
        }
        if !is_known && each.is_none() && account.unregistered >= limits.unregistered_max {
            return Some((LimitKind::Unregistered, 1));
        }
        let named = if is_known || each.is_some() { 0 } else { unregistered_bytes(&change.object) };
        // An upper bound, as the added ranges may merge with those already known.
        let bytes = entry_bytes(&change.added) + named;
        let has_room = account.bytes + bytes <= limits.bytes_max
            && self.total_bytes + bytes <= limits.total_bytes_max;
        if !has_room {
            return Some((LimitKind::Memory, 1));
        }
        let held = holders.iter().find(|held| held.router == router && held.tier == change.tier);
        // Segments that are reported again do not count twice.
        let known = held.map_or(0, |held| held.segments.overlap_count(&change.added));
        let count = change.added.count() - known;
        let content = account.content_bytes[tier_index(change.tier)];
        let content = content.saturating_add(count.saturating_mul(each.unwrap_or(0)));
        let max = limits.content_bytes_max[tier_index(change.tier)];
        (each.is_some() && content > max).then_some((LimitKind::BeyondStore, count))
    }

    /// Adds the segments of a change. Returns whether one of them is new.
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
            // There are many objects, so do not allocate more than needed.
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
        // Adjacent ranges may have merged, so the entry may need less memory than before.
        account.bytes = account.bytes + grown - bytes;
        self.total_bytes = self.total_bytes + grown - bytes;
        account.content_bytes[tier_index(change.tier)] += more * each;
        more > 0
    }

    /// Deletes the holdings of a router for one object. The object goes as well if it is
    /// unregistered and no other router holds it.
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

    /// Deletes all holdings of a router. `on_object` is called with each object.
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

    /// The segments of an object that a router holds in either tier.
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
