use weir_base::{Packet, Pool};
use weir_wire::{LpHeader, PitToken, RunFields, RunPattern};

/// The Interests of a received run that have yet to be taken.
#[derive(Debug)]
pub(crate) struct Expansion {
    /// That of the first Interest; the others differ in their PIT token.
    pub(crate) header: LpHeader,
    pub(crate) first: Packet,
    pattern: RunPattern,
    /// The offsets left of the bitmap.
    left: u64,
    /// The PIT tokens left; `None`: the first's is that of all.
    tokens: Option<Packet>,
}

impl Expansion {
    /// The Interests of the run with these fields in `frame`; `None` if they fit no Interest that
    /// may be the first of a run, or do not fit this one.
    pub(crate) fn new(
        fields: &RunFields<'_>,
        frame: &Packet,
        header: LpHeader,
        first: Packet,
    ) -> Option<Self> {
        let pattern = RunPattern::of(&first)?;
        if !fields.is_valid(&pattern, header.pit_token.as_slice().len()) {
            return None;
        }
        let tokens = fields.tokens.map(|tokens| {
            let at = tokens.as_ptr() as usize - frame.as_ptr() as usize;
            frame.slice(at..at + tokens.len())
        });
        Some(Self { header, first, pattern, left: fields.bitmap, tokens })
    }

    /// The next Interest, but for the first a copy in a block of its own.
    pub(crate) fn next(&mut self, pool: &mut Pool) -> Option<(LpHeader, Packet)> {
        if self.left == 0 {
            return None;
        }
        let offset = u64::from(self.left.trailing_zeros());
        self.left &= self.left - 1;
        let mut header = self.header.clone();
        if offset == 0 {
            return Some((header, self.first.clone()));
        }
        if let Some(tokens) = &mut self.tokens {
            let len = header.pit_token.as_slice().len();
            header.pit_token = PitToken::new(&tokens[..len]).unwrap_or_default();
            *tokens = tokens.slice(len..tokens.len());
        }
        let len = self.first.len();
        let mut block = pool.alloc(len);
        block[..len].copy_from_slice(&self.first);
        self.pattern.write(offset, &mut block[..len]);
        let packet = block.freeze(len);
        if self.left == 0 {
            // The block of the frame is free as soon as its Interests are.
            (self.first, self.tokens) = (Packet::empty(), None);
        }
        Some((header, packet))
    }
}
