//! Entries in the canonical order of their names.

/// The index that means no entry.
const NONE: u32 = u32::MAX;
/// Each further level has one entry in four, which suffices for 4^12 entries.
const LEVELS: usize = 12;

/// The position of a name: on each level, the last entry before it, or [`NONE`].
type Path = [u32; LEVELS];

/// CCNx's content skip list (paper ccnx-measurement, 2.2.2). A lookup compares about log n names.
///
/// The list does not store names; the caller compares them.
pub(super) struct SkipList {
    /// By entry index: the next entry on each level.
    towers: Vec<Path>,
    heads: Path,
    /// Number of levels in use.
    height: usize,
}

impl SkipList {
    pub(super) fn new() -> Self {
        Self { towers: Vec::new(), heads: [NONE; LEVELS], height: 0 }
    }

    /// The path to the first entry that is not before the searched one.
    pub(super) fn seek(&self, is_before: impl Fn(u32) -> bool) -> Path {
        let mut path = [NONE; LEVELS];
        let mut at = NONE;
        for level in (0..self.height).rev() {
            loop {
                let next = self.after(at, level);
                if next == NONE || !is_before(next) {
                    break;
                }
                at = next;
            }
            path[level] = at;
        }
        path
    }

    /// The entry after a path.
    pub(super) fn at(&self, path: &Path) -> Option<u32> {
        self.next(path[0])
    }

    /// The entry after another one.
    pub(super) fn next(&self, index: u32) -> Option<u32> {
        Some(self.after(index, 0)).filter(|&next| next != NONE)
    }

    /// Inserts an entry after `path`. `hash` determines its height.
    pub(super) fn insert(&mut self, path: &Path, index: u32, hash: u64) {
        let at = index as usize;
        if self.towers.len() <= at {
            self.towers.resize(at + 1, [NONE; LEVELS]);
        }
        let height = height(hash);
        self.height = self.height.max(height);
        for (level, &previous) in path.iter().enumerate().take(height) {
            self.towers[at][level] = self.after(previous, level);
            *self.after_mut(previous, level) = index;
        }
    }

    /// Removes an entry; `path` leads to it.
    pub(super) fn remove(&mut self, path: &Path, index: u32, hash: u64) {
        for (level, &previous) in path.iter().enumerate().take(height(hash)) {
            let next = self.towers[index as usize][level];
            let link = self.after_mut(previous, level);
            assert_eq!(*link, index, "the path leads to the entry on every level");
            *link = next;
        }
    }

    fn after(&self, index: u32, level: usize) -> u32 {
        match index {
            NONE => self.heads[level],
            index => self.towers[index as usize][level],
        }
    }

    fn after_mut(&mut self, index: u32, level: usize) -> &mut u32 {
        match index {
            NONE => &mut self.heads[level],
            index => &mut self.towers[index as usize][level],
        }
    }
}

/// Number of levels of an entry, from the hash of its name.
fn height(hash: u64) -> usize {
    1 + (hash.trailing_zeros() as usize / 2).min(LEVELS - 1)
}

/// Memory for each entry.
pub(super) const ENTRY_BYTES: u64 = size_of::<Path>() as u64;
