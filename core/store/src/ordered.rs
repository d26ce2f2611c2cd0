use alloc::vec::Vec;

use crate::entry::NONE;

/// With one entry in four on each further level, enough for 4^12 entries.
const LEVELS: usize = 12;

/// Where a name is or would be: on each level the last entry before it, or [`NONE`].
pub(crate) type Path = [u32; LEVELS];

/// Entries in the canonical order of their names, as CCNx's content skip list had them (paper
/// ccnx-measurement, 2.2.2): a look-up compares about log n names.
///
/// The list knows no names; whoever asks compares.
pub(crate) struct Ordered {
    /// By entry index: the next entry on each level.
    towers: Vec<Path>,
    heads: Path,
    /// Levels that have entries.
    height: usize,
}

impl Ordered {
    pub(crate) fn new() -> Self {
        Self { towers: Vec::new(), heads: [NONE; LEVELS], height: 0 }
    }

    /// Where the first entry is that does not come before the one looked for.
    pub(crate) fn seek(&self, is_before: impl Fn(u32) -> bool) -> Path {
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

    /// The entry that follows a path, or [`NONE`].
    pub(crate) fn at(&self, path: &Path) -> u32 {
        self.after(path[0], 0)
    }

    /// The entry after another, or [`NONE`].
    pub(crate) fn next(&self, index: u32) -> u32 {
        self.after(index, 0)
    }

    /// Puts an entry where `path` leads. `hash` decides how tall it is.
    pub(crate) fn insert(&mut self, path: &Path, index: u32, hash: u64) {
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

    /// Takes an entry away; `path` leads to it.
    pub(crate) fn remove(&mut self, path: &Path, index: u32, hash: u64) {
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

/// Levels that an entry is on, drawn by the hash of its name.
fn height(hash: u64) -> usize {
    1 + (hash.trailing_zeros() as usize / 2).min(LEVELS - 1)
}

/// Octets of memory that the order costs for each entry.
pub(crate) const ORDERED_BYTES: u64 = size_of::<Path>() as u64;
