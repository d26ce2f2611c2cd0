use super::nodes::list_growth_bytes;
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

/// Words of a page. A cell's number has 12 bits for the position in the page.
const PAGE_WORDS: usize = 1 << PAGE_BITS;
const PAGE_BITS: u32 = 12;
const NONE: u32 = u32::MAX;
/// The end of a page's list of free cells.
const END: u16 = u16::MAX;

/// Words before the entries of a cell.
pub(super) const HEADER_WORDS: usize = 2;
/// The number of entries of each class. A cell that is one class larger than needed wastes at most
/// a third of its words, and an eighth in the largest classes, where most memory is.
pub(super) const CAPACITIES: [u8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 32, 40, 48, 56, 64];

/// An allocator for small arrays of words in a few sizes, identified by `u32`.
///
/// A page of 32 KiB holds cells of one class, so a cell needs no header. An empty page is freed,
/// except for one spare page: without it, a single cell could make a page come and go. Pages are
/// never moved or copied.
pub(super) struct Cells {
    pages: Vec<Page>,
    /// The first page of each class that has space, or [`NONE`].
    open: [u32; CAPACITIES.len()],
    /// The first number without a page, or [`NONE`].
    vacant: u32,
    /// A page that belongs to no class.
    spare: Option<Box<[u64]>>,
    /// Allocated pages, including the spare one.
    page_count: usize,
}

struct Page {
    words: Box<[u64]>,
    class: u8,
    /// Whether the page gives out no more cells and waits for the last one to be freed.
    is_draining: bool,
    used: u16,
    /// The first freed cell, or [`END`]. Each holds the next one in its first word.
    free: u16,
    /// Words that were given out at least once.
    fresh: u16,
    /// Neighbours among the pages of its class with space, or among the numbers without a page.
    next: u32,
    previous: u32,
}

fn cell_words(class: u8) -> usize {
    HEADER_WORDS + usize::from(CAPACITIES[usize::from(class)])
}

/// The smallest class with space for this number of entries.
pub(super) fn class_for(entries: usize) -> u8 {
    let fits = CAPACITIES.iter().position(|&capacity| usize::from(capacity) >= entries);
    fits.unwrap_or(CAPACITIES.len() - 1) as u8
}

impl Cells {
    pub(super) fn new() -> Self {
        Self {
            pages: Vec::new(),
            open: [NONE; CAPACITIES.len()],
            vacant: NONE,
            spare: None,
            page_count: 0,
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.page_count * PAGE_WORDS * size_of::<u64>() + self.pages.capacity() * size_of::<Page>()
    }

    /// The most additional bytes that adding `pages` pages may need.
    pub(super) fn growth_bytes(&self, pages: usize) -> usize {
        // A spare page implies a number without a page.
        let pages = pages.saturating_sub(self.spare.iter().len());
        pages * PAGE_WORDS * size_of::<u64>() + list_growth_bytes(&self.pages, pages)
    }

    /// Whether a page of this class has space.
    #[inline]
    pub(super) fn has_open(&self, class: u8) -> bool {
        self.open[usize::from(class)] != NONE
    }

    #[cfg(test)]
    pub(super) fn page_count(&self) -> usize {
        self.page_count
    }

    #[inline(always)]
    fn page_of(cell: u32) -> (usize, usize) {
        ((cell >> PAGE_BITS) as usize, cell as usize & (PAGE_WORDS - 1))
    }

    #[inline(always)]
    pub(super) fn class(&self, cell: u32) -> u8 {
        self.pages[Self::page_of(cell).0].class
    }

    /// The words of a cell, followed by the rest of its page.
    #[inline(always)]
    pub(super) fn words(&self, cell: u32) -> &[u64] {
        let (page, at) = Self::page_of(cell);
        &self.pages[page].words[at..]
    }

    #[inline(always)]
    pub(super) fn words_mut(&mut self, cell: u32) -> &mut [u64] {
        let (page, at) = Self::page_of(cell);
        &mut self.pages[page].words[at..]
    }

    /// Allocates a cell. Its contents are arbitrary.
    ///
    /// # Panics
    /// If there are 2^20 - 1 pages, which is 32 GiB.
    pub(super) fn allocate(&mut self, class: u8) -> u32 {
        let mut number = self.open[usize::from(class)];
        if number == NONE {
            number = self.add_page(class);
        }
        let page = &mut self.pages[number as usize];
        let size = cell_words(class);
        let at = page.free;
        // Reuse freed cells first. Fresh words are handed out in order.
        let at = if at == END {
            let at = page.fresh;
            page.fresh += size as u16;
            at
        } else {
            page.free = page.words[usize::from(at)] as u16;
            at
        };
        page.used += 1;
        if !page.has_room() {
            self.close(number);
        }
        number << PAGE_BITS | u32::from(at)
    }

    pub(super) fn free(&mut self, cell: u32) {
        let (number, at) = Self::page_of(cell);
        let page = &mut self.pages[number];
        let had_room = page.has_room();
        page.words[at] = u64::from(page.free);
        page.free = at as u16;
        page.used -= 1;
        let (is_empty, is_leaving) = (page.used == 0, page.is_draining);
        let number = number as u32;
        if !had_room && !is_leaving {
            self.open(number);
        }
        if is_empty {
            if !is_leaving {
                self.close(number);
            }
            let page = &mut self.pages[number as usize];
            let words = core::mem::take(&mut page.words);
            page.next = core::mem::replace(&mut self.vacant, number);
            if self.spare.replace(words).is_some() {
                self.page_count -= 1;
            }
        }
    }

    /// Moves a cell out of a page that is at most half full, if another page has space. `len` is
    /// the number of words in use. Once all cells have moved, the page is freed.
    pub(super) fn move_from_draining(&mut self, cell: u32, len: usize) -> Option<u32> {
        let (number, _) = Self::page_of(cell);
        let page = &mut self.pages[number];
        if !page.is_draining {
            let open = self.open[usize::from(page.class)];
            if page.is_over_half_full() || open == NONE || open == number as u32 {
                return None;
            }
            page.is_draining = true;
            self.close(number as u32);
        }
        Some(self.relocate(cell, self.class(cell), len))
    }

    /// Moves the first `len` words to a new cell of this class.
    pub(super) fn relocate(&mut self, cell: u32, class: u8, len: usize) -> u32 {
        let mut copy = [0; HEADER_WORDS + 64];
        copy[..len].copy_from_slice(&self.words(cell)[..len]);
        let target = self.allocate(class);
        self.words_mut(target)[..len].copy_from_slice(&copy[..len]);
        self.free(cell);
        target
    }

    fn add_page(&mut self, class: u8) -> u32 {
        let words = self.spare.take().unwrap_or_else(|| {
            self.page_count += 1;
            vec![0; PAGE_WORDS].into_boxed_slice()
        });
        let page = Page {
            words,
            class,
            is_draining: false,
            used: 0,
            free: END,
            fresh: 0,
            next: NONE,
            previous: NONE,
        };
        let number = self.vacant;
        let number = if number == NONE {
            assert!(
                self.pages.len() < NONE as usize >> PAGE_BITS,
                "the index is limited to 32 GiB"
            );
            self.pages.push(page);
            self.pages.len() as u32 - 1
        } else {
            self.vacant = core::mem::replace(&mut self.pages[number as usize], page).next;
            number
        };
        self.open(number);
        number
    }

    /// Adds a page to the list of those of its class that have space.
    fn open(&mut self, number: u32) {
        let class = usize::from(self.pages[number as usize].class);
        let next = core::mem::replace(&mut self.open[class], number);
        let page = &mut self.pages[number as usize];
        (page.next, page.previous) = (next, NONE);
        if next != NONE {
            self.pages[next as usize].previous = number;
        }
    }

    /// Removes a page from the list of those that have space.
    fn close(&mut self, number: u32) {
        let page = &self.pages[number as usize];
        let (next, previous, class) = (page.next, page.previous, usize::from(page.class));
        if next != NONE {
            self.pages[next as usize].previous = previous;
        }
        match previous {
            NONE => self.open[class] = next,
            previous => self.pages[previous as usize].next = next,
        }
    }
}

impl Page {
    /// Whether more than half of it is in use.
    fn is_over_half_full(&self) -> bool {
        usize::from(self.used) * cell_words(self.class) * 2 > PAGE_WORDS
    }

    fn has_room(&self) -> bool {
        self.free != END || usize::from(self.fresh) + cell_words(self.class) <= PAGE_WORDS
    }
}
