//! The pieces of a sequence: what they are called, and what is left of each.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;

use weir_base::{HashKey, Table};
use weir_wire::{Name, NameView};

use super::target::{Part, PieceId, Unit};

/// One piece: units one after another below one name.
#[derive(Debug)]
struct Piece {
    id: PieceId,
    name: Vec<u8>,
    /// Place of the first unit in the order of all.
    first_index: u64,
    /// `None`: one Data of this very name.
    segments: Option<Range<u64>>,
    /// Units that are neither verified nor passed over.
    left: u64,
    /// Nothing more is told of it.
    is_over: bool,
}

impl Piece {
    fn len(&self) -> u64 {
        self.segments.as_ref().map_or(1, |range| range.end.saturating_sub(range.start))
    }

    fn segment_at(&self, index: u64) -> Option<u64> {
        self.segments.as_ref().map(|range| range.start + (index - self.first_index))
    }
}

/// All pieces from the first that is not over on.
pub(crate) struct Pieces {
    pieces: VecDeque<Piece>,
    /// Number of the first of them.
    base: u64,
    /// By the hash of the name; an index is the low half of the piece's number.
    by_name: Table,
    hash_key: HashKey,
    end_index: u64,
}

impl core::fmt::Debug for Pieces {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Pieces").field("len", &self.pieces.len()).finish_non_exhaustive()
    }
}

impl Pieces {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            pieces: VecDeque::new(),
            base: 0,
            by_name: Table::with_capacity(8),
            hash_key: HashKey::new([seed, !seed]),
            end_index: 0,
        }
    }

    /// Where the units of all pieces end.
    pub(crate) fn end_index(&self) -> u64 {
        self.end_index
    }

    /// Adds a piece at the end. Returns false for one without a unit, which is not kept.
    pub(crate) fn append(
        &mut self,
        id: PieceId,
        name: &Name,
        segments: Option<Range<u64>>,
    ) -> bool {
        let name = name.value().to_vec();
        let mut piece =
            Piece { id, name, first_index: self.end_index, segments, left: 0, is_over: false };
        piece.left = piece.len();
        if piece.left == 0 {
            return false;
        }
        self.end_index = self.end_index.saturating_add(piece.left);
        let number = self.base + self.pieces.len() as u64;
        self.by_name.insert(self.hash_key.hash(&piece.name), number as u32);
        self.pieces.push_back(piece);
        true
    }

    fn at(&self, index: u64) -> Option<usize> {
        self.pieces.partition_point(|piece| piece.first_index <= index).checked_sub(1)
    }

    /// # Panics
    /// When the piece of the unit `index` has been forgotten.
    fn piece(&self, index: u64) -> &Piece {
        let at = self.at(index).expect("only pieces that are over are forgotten");
        &self.pieces[at]
    }

    pub(crate) fn part_of(&self, index: u64) -> (PieceId, Part) {
        let piece = self.piece(index);
        (piece.id, Part::Unit(Unit::segment(piece.segment_at(index).unwrap_or(0))))
    }

    pub(crate) fn interest_name(&self, index: u64) -> (&[u8], Option<u64>) {
        let piece = self.piece(index);
        (&piece.name, piece.segment_at(index))
    }

    /// Whether the piece of the unit `index` is still wanted.
    pub(crate) fn is_wanted(&self, index: u64) -> bool {
        self.at(index).is_some_and(|at| !self.pieces[at].is_over)
    }

    /// Appends the places of the units of this name.
    pub(crate) fn find(&self, name: &[u8], found: &mut Vec<u64>) {
        let Ok(view) = NameView::from_value(name) else { return };
        self.find_below(name, None, found);
        if let Some(segment) = view.last().and_then(|last| last.as_segment()) {
            self.find_below(view.parent().value(), Some(segment), found);
        }
    }

    fn find_below(&self, name: &[u8], segment: Option<u64>, found: &mut Vec<u64>) {
        self.by_name.for_each_candidate(self.hash_key.hash(name), |number| {
            let at = number.wrapping_sub(self.base as u32) as usize;
            let Some(piece) = self.pieces.get(at).filter(|piece| piece.name == name) else {
                return;
            };
            match (&piece.segments, segment) {
                (None, None) => found.push(piece.first_index),
                (Some(range), Some(segment)) if range.contains(&segment) => {
                    found.push(piece.first_index + (segment - range.start));
                }
                _ => {}
            }
        });
    }

    /// A unit is verified or passed over; the piece's number if it was the last one.
    pub(crate) fn unit_done(&mut self, index: u64) -> Option<PieceId> {
        let at = self.at(index)?;
        let piece = &mut self.pieces[at];
        debug_assert!(!piece.is_over);
        piece.left -= 1;
        if piece.left > 0 {
            return None;
        }
        piece.is_over = true;
        Some(piece.id)
    }

    /// Gives up the piece of the unit `index`: its number and its units before `asked_end`, unless
    /// that was done before. From there on nothing has been asked for: the piece ends there, and
    /// the others move up.
    pub(crate) fn give_up(&mut self, index: u64, asked_end: u64) -> Option<(PieceId, Range<u64>)> {
        debug_assert!(index < asked_end);
        let at = self.at(index)?;
        let piece = &mut self.pieces[at];
        if core::mem::replace(&mut piece.is_over, true) {
            return None;
        }
        let (id, first) = (piece.id, piece.first_index);
        let end = (first + piece.len()).min(asked_end);
        let cut = first + piece.len() - end;
        if let Some(range) = &mut piece.segments {
            range.end -= cut;
        }
        self.pieces.range_mut(at + 1..).for_each(|piece| piece.first_index -= cut);
        self.end_index -= cut;
        Some((id, first..end))
    }

    /// Forgets the leading pieces that are over and lie before `index` with all their units.
    pub(crate) fn tidy(&mut self, index: u64) {
        while let Some(first) = self.pieces.front()
            && first.is_over
            && first.first_index + first.len() <= index
        {
            self.by_name.remove(self.hash_key.hash(&first.name), self.base as u32);
            self.pieces.pop_front();
            self.base += 1;
        }
    }
}
