//! Queue disciplines and marking policies of papers, as tables that text can choose from in
//! addition to those of `weir-link`.

mod hr_icp;
mod interest_rate;
mod rem;
mod step;
#[cfg(test)]
mod tests;

use weir_link::{DisciplineKind, MarkerKind};

/// For [`DisciplineConfig::read`](weir_link::DisciplineConfig::read).
pub const DISCIPLINES: &[DisciplineKind] = &[hr_icp::KIND, interest_rate::KIND];

/// For [`MarkingPolicy::read`](weir_link::MarkingPolicy::read).
pub const MARKERS: &[MarkerKind] = &[rem::KIND, step::KIND];
