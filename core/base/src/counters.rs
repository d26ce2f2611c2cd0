//! Tables of counters. Each number is declared once; statistics, metrics, status datasets and
//! samples of experiments are derived from the declaration.

use alloc::collections::BTreeMap;

/// How a number behaves over time and across the shards of a router.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum CounterKind {
    /// Grows for as long as the program runs. Shards add up.
    Total,
    /// A current size. Shards add up.
    Now,
    /// A current size that is the same in every shard.
    Shared,
    /// A set of small numbers, one bit each. Each shard sees a part of it. Exported as the number
    /// of elements.
    Set,
}

/// The declaration of one number.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Counter {
    pub name: &'static str,
    /// What it counts: the field's documentation.
    pub help: &'static str,
    pub kind: CounterKind,
    /// Its name among the metrics, without the program's prefix; `None` if it has no metric.
    pub metric: Option<&'static str>,
    /// The label and value that distinguish it from other numbers with the same metric.
    pub label: Option<(&'static str, &'static str)>,
    /// Its TLV type in a status dataset.
    pub status: Option<u32>,
}

/// A struct of numbers declared with [`counters!`](crate::counters).
pub trait Counters: Default {
    /// The declarations, in the order of the fields.
    const TABLE: &'static [Counter];

    /// The number that [`Counters::TABLE`] declares at `index`.
    ///
    /// # Panics
    /// If the table is shorter.
    fn number_mut(&mut self, index: usize) -> &mut u64;

    /// All numbers as stored, in the order of the table.
    fn numbers(&self) -> impl Iterator<Item = u64>;

    /// The declarations, and the values to export.
    fn rows(&self) -> impl Iterator<Item = (&'static Counter, u64)> {
        Self::TABLE.iter().zip(self.numbers()).map(|(counter, number)| {
            let is_set = counter.kind == CounterKind::Set;
            (counter, if is_set { u64::from(number.count_ones()) } else { number })
        })
    }

    /// Adds the numbers of another shard.
    fn merge_numbers(&mut self, other: &Self) {
        for ((index, counter), theirs) in Self::TABLE.iter().enumerate().zip(other.numbers()) {
            let mine = self.number_mut(index);
            *mine = match counter.kind {
                CounterKind::Total | CounterKind::Now => *mine + theirs,
                CounterKind::Shared => (*mine).max(theirs),
                CounterKind::Set => *mine | theirs,
            };
        }
    }

    /// Subtracts the totals of `before`. Sizes stay.
    fn subtract_totals(&mut self, before: &Self) {
        self.combine_totals(before, u64::saturating_sub);
    }

    /// Adds the totals of an earlier run. Sizes stay.
    fn add_totals(&mut self, earlier: &Self) {
        self.combine_totals(earlier, u64::saturating_add);
    }

    /// Sets sizes to 0, for a router that has crashed. Totals stay.
    fn clear_sizes(&mut self) {
        for (index, counter) in Self::TABLE.iter().enumerate() {
            if counter.kind != CounterKind::Total {
                *self.number_mut(index) = 0;
            }
        }
    }

    fn combine_totals(&mut self, other: &Self, join: impl Fn(u64, u64) -> u64) {
        for ((index, counter), theirs) in Self::TABLE.iter().enumerate().zip(other.numbers()) {
            if counter.kind == CounterKind::Total {
                let mine = self.number_mut(index);
                *mine = join(*mine, theirs);
            }
        }
    }
}

/// Statistics that each shard counts separately. The router reports their sum.
pub trait Merge {
    /// Adds what another shard counted.
    fn merge(&mut self, other: &Self);
}

impl<const N: usize> Merge for [u64; N] {
    fn merge(&mut self, other: &Self) {
        self.iter_mut().zip(other).for_each(|(mine, theirs)| *mine += theirs);
    }
}

impl Merge for BTreeMap<&'static str, u64> {
    fn merge(&mut self, other: &Self) {
        other.iter().for_each(|(key, count)| *self.entry(key).or_default() += count);
    }
}

/// Declares a struct of counters. Each number has a line with its documentation, its kind (`Total`,
/// `Now`, `Shared`, `Set`) and its metric. A TLV type in a status dataset may follow. Fields that
/// are not single numbers follow under `also` and must implement [`Merge`](crate::Merge).
///
/// ```
/// weir_base::counters! {
///     /// What a cache did.
///     #[derive(Copy)]
///     pub struct CacheStats {
///         /// Entries in the cache.
///         entries: Now, "cache_entries";
///         /// Lookups that failed because the cache was busy.
///         busy: Total, "cache_misses"{"reason" = "busy"}, status 4;
///     }
/// }
/// ```
#[macro_export]
macro_rules! counters {
    (
        $(#[$meta:meta])*
        $vis:vis struct $type:ident {
            $(
                $(#[doc = $help:literal])+
                $field:ident: $kind:ident
                $(, $metric:literal $({ $label:literal = $value:literal })?)?
                $(, status $status:literal)?;
            )+
        }
        $(also { $($(#[$also_meta:meta])* $also:ident: $also_type:ty,)+ })?
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        $vis struct $type {
            $($(#[doc = $help])+ pub $field: u64,)+
            $($($(#[$also_meta])* pub $also: $also_type,)+)?
        }

        impl $crate::Counters for $type {
            const TABLE: &'static [$crate::Counter] = &[
                $($crate::Counter {
                    name: stringify!($field),
                    help: concat!($($help),+),
                    kind: $crate::CounterKind::$kind,
                    metric: $crate::counters!(@option $($metric)?),
                    label: $crate::counters!(@option $($(($label, $value))?)?),
                    status: $crate::counters!(@option $($status)?),
                },)+
            ];

            fn number_mut(&mut self, index: usize) -> &mut u64 {
                let mut numbers = [$(&mut self.$field),+].into_iter();
                numbers.nth(index).expect("an index of the table")
            }

            fn numbers(&self) -> impl Iterator<Item = u64> {
                [$(self.$field),+].into_iter()
            }
        }

        impl $crate::Merge for $type {
            fn merge(&mut self, other: &Self) {
                $crate::Counters::merge_numbers(self, other);
                $($($crate::Merge::merge(&mut self.$also, &other.$also);)+)?
            }
        }
    };
    (@option) => { None };
    (@option $value:expr) => { Some($value) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    counters! {
        #[derive(Copy)]
        struct Table {
            /// All of them, over time.
            all: Total, "all"{"of" = "them"}, status 6;
            /// Now.
            now: Now;
            /// The same everywhere.
            shared: Shared, "shared";
            /// Which.
            which: Set, status 8;
        }
        also {
            by_kind: [u64; 2],
        }
    }

    fn table(all: u64, now: u64, shared: u64, which: u64, by_kind: [u64; 2]) -> Table {
        Table { all, now, shared, which, by_kind }
    }

    #[test]
    fn declaration_becomes_table() {
        let [all, now, ..] = Table::TABLE else { panic!("four rows") };
        assert_eq!((all.name, all.help), ("all", " All of them, over time."));
        assert_eq!(
            (all.metric, all.label, all.status),
            (Some("all"), Some(("of", "them")), Some(6))
        );
        assert_eq!((now.metric, now.label, now.status), (None, None, None));
    }

    #[test]
    fn shards_merge_by_kind() {
        let mut sum = table(1, 2, 3, 0b101, [1, 2]);
        sum.merge(&table(10, 20, 2, 0b011, [3, 4]));
        assert_eq!(sum, table(11, 22, 3, 0b111, [4, 6]));
        let rows: Vec<u64> = sum.rows().map(|(_, number)| number).collect();
        assert_eq!(rows, [11, 22, 3, 3]);
    }

    #[test]
    fn totals_subtract_and_add() {
        let mut now = table(10, 5, 5, 1, [0, 0]);
        now.subtract_totals(&table(4, 9, 9, 0, [0, 0]));
        assert_eq!(now, table(6, 5, 5, 1, [0, 0]));
        now.add_totals(&table(4, 9, 9, 0, [0, 0]));
        assert_eq!(now, table(10, 5, 5, 1, [0, 0]));
        now.clear_sizes();
        assert_eq!(now, table(10, 0, 0, 0, [0, 0]));
    }
}
