//! The comparison of a claim, and its verdict.

use serde::Deserialize;

use super::verdict::Verdict;
use crate::stats::Estimate;

/// The comparison of a claim.
#[derive(Clone, Debug, PartialEq)]
pub enum Rule {
    /// A number between two ends.
    Band {
        /// Lower and upper end, both inside the band.
        ends: [f64; 2],
        reason: String,
        /// The side of the band that is better than the paper, if any.
        better: Option<Better>,
    },
    /// Numbers in decreasing order. The smallest lead of an element over the next, relative to the
    /// larger absolute value, must be above 0. If no number is negative, it is at most 1.
    Order,
}

/// A side of a band that is better than the paper.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(expecting = "a table", deny_unknown_fields)]
pub struct Better {
    pub side: BetterSide,
    /// Why our results are better.
    pub reason: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BetterSide {
    /// Below its lower end.
    Below,
    /// Above its upper end.
    Above,
}

impl Rule {
    /// Creates a band.
    ///
    /// # Errors
    /// The ends are not two numbers in ascending order, or the reason is missing.
    pub(super) fn band(
        ends: [f64; 2],
        reason: String,
        better: Option<Better>,
    ) -> Result<Self, String> {
        if !(ends[0].is_finite() && ends[1].is_finite() && ends[0] <= ends[1]) {
            return Err("needs two finite numbers, the lower one first".into());
        }
        if reason.trim().is_empty() {
            return Err("lacks its reason; write `band_reason`, why these ends".into());
        }
        Ok(Self::Band { ends, reason, better })
    }

    /// Lower and upper end.
    pub(super) fn ends(&self) -> [f64; 2] {
        match self {
            Self::Band { ends, .. } => *ends,
            Self::Order => [0.0, 1.0],
        }
    }

    pub(super) fn words(&self) -> String {
        match self {
            Self::Band { reason, .. } => format!("Band: {reason}."),
            Self::Order => "Falling order; measured is the least lead of one over the next.".into(),
        }
    }

    /// The verdict for an interval, and why it is not `reproduced`. [`super::assign_causes`] adds
    /// the cause of a difference.
    pub(super) fn verdict(&self, estimate: &Estimate) -> (Verdict, String) {
        let (Some(low), Some(high)) = (estimate.low, estimate.high) else {
            return (Verdict::NotMeasured, "There is no interval.".into());
        };
        let undecided = |what: &str| {
            let why = format!("The interval reaches past {what}: more seeds would tell.");
            (Verdict::NotMeasured, why)
        };
        let (ends, better) = match self {
            // An order holds only if the whole interval of the lead is above 0.
            Self::Order if low > 0.0 => return (Verdict::Reproduced, String::new()),
            Self::Order if high <= 0.0 => return (Verdict::Differs, String::new()),
            Self::Order => return undecided("0, both orders are possible"),
            Self::Band { ends, better, .. } => (ends, better.as_ref()),
        };
        let is_better = |side: BetterSide| better.is_some_and(|better| better.side == side);
        let beyond = if high < ends[0] {
            Some(BetterSide::Below)
        } else if low > ends[1] {
            Some(BetterSide::Above)
        } else {
            None
        };
        match (beyond, better) {
            (Some(side), Some(better)) if better.side == side => {
                (Verdict::Better, better.reason.clone())
            }
            (Some(_), _) => (Verdict::Differs, String::new()),
            // An interval that crosses only the better end is no worse than the paper.
            _ if (low >= ends[0] || is_better(BetterSide::Below))
                && (high <= ends[1] || is_better(BetterSide::Above)) =>
            {
                (Verdict::Reproduced, String::new())
            }
            _ => undecided("the end of the band"),
        }
    }
}
