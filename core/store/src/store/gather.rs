//! What lies scattered in memory is moved together.

use weir_base::Pool;

use super::Store;

/// Entries that are looked at for each that comes: a whole store while an eighth of it comes.
const LOOKED_AT: u32 = 8;

impl Store {
    /// Looks at the next few entries and moves what is nearly alone in its span, so that the span
    /// can be used for Data of other sizes. Without it, Data that stays while all about it goes
    /// would hold many times its octets, beyond what the store may take.
    #[cold]
    pub(super) fn gather(&mut self, pool: &mut Pool) {
        for _ in 0..LOOKED_AT {
            self.gathered_to = match self.gathered_to + 1 {
                next if next < self.entries.places() => next,
                _ => 0,
            };
            if let Some(entry) = self.entries.get_mut(self.gathered_to) {
                pool.gather(&mut entry.packet);
            }
        }
    }
}
