use weir_base::{Packet, Pool};
use weir_wire::{LpHeader, PitToken, RunFields, RunPattern};

/// Size of a block of copies in bytes, unless one Interest is longer. One Interest keeps a whole
/// block in use.
const BLOCK_BYTES: usize = 4096;

/// The remaining Interests of a received run.
#[derive(Debug)]
pub(crate) struct Expansion {
    /// The header of the first Interest. The others differ only in their PIT token.
    pub(crate) header: LpHeader,
    pub(crate) first: Packet,
    pattern: RunPattern,
    /// The remaining bits of the bitmap.
    left: u64,
    /// The remaining PIT tokens; `None` if all Interests have the token of the first.
    tokens: Option<Packet>,
    /// A block of copies of the first Interest, each changed to one of the next, and the end of the
    /// copies already taken.
    copies: Packet,
    copied_to: usize,
}

impl Expansion {
    /// The Interests of the run in `frame`. `None` if the first Interest cannot begin a run, or if
    /// the fields do not match it.
    pub(crate) fn new(
        fields: &RunFields<'_>,
        frame: &Packet,
        header: LpHeader,
        first: Packet,
    ) -> Option<Self> {
        let pattern = RunPattern::from_interest(&first)?;
        if !fields.is_valid(&pattern, header.pit_token.as_slice().len()) {
            return None;
        }
        // The tokens are not copied: a slice keeps the frame in memory.
        let tokens = fields.tokens.map(|tokens| {
            let at = tokens.as_ptr() as usize - frame.as_ptr() as usize;
            frame.slice(at..at + tokens.len())
        });
        let (left, copies, copied_to) = (fields.bitmap, Packet::empty(), 0);
        Some(Self { header, first, pattern, left, tokens, copies, copied_to })
    }

    /// The next Interest. All but the first are copies, several in a block.
    pub(crate) fn next(&mut self, pool: &mut Pool) -> Option<(LpHeader, Packet)> {
        if self.left == 0 {
            return None;
        }
        let offset = u64::from(self.left.trailing_zeros());
        let mut header = self.header.clone();
        if offset == 0 {
            self.left &= self.left - 1;
            return Some((header, self.first.clone()));
        }
        if let Some(tokens) = &mut self.tokens {
            let len = header.pit_token.as_slice().len();
            header.pit_token = PitToken::new(&tokens[..len]).unwrap_or_default();
            *tokens = tokens.slice(len..tokens.len());
        }
        let len = self.first.len();
        if self.copied_to == self.copies.len() {
            self.copy(pool);
        }
        let packet = self.copies.slice(self.copied_to..self.copied_to + len);
        self.copied_to += len;
        self.left &= self.left - 1;
        if self.left == 0 {
            // The run releases its memory. Each block is freed with the last Interest in it.
            (self.first, self.copies, self.tokens) = (Packet::empty(), Packet::empty(), None);
        }
        Some((header, packet))
    }

    /// Copies the next Interests into a block: all that remain, or as many as fit.
    fn copy(&mut self, pool: &mut Pool) {
        let len = self.first.len();
        let count = (BLOCK_BYTES / len).clamp(1, self.left.count_ones() as usize);
        let mut block = pool.alloc(count * len);
        let mut left = self.left;
        for copy in block[..count * len].chunks_exact_mut(len) {
            copy.copy_from_slice(&self.first);
            self.pattern.write(u64::from(left.trailing_zeros()), copy);
            left &= left - 1;
        }
        (self.copies, self.copied_to) = (block.freeze(count * len), 0);
    }
}
