//! Verdicts.

use serde::{Deserialize, Serialize};

/// The verdict on a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// As the paper says.
    Reproduced,
    /// Outside the paper's band, on the better side.
    Better,
    /// Not as the paper says.
    Differs,
    /// Not measured, or not precisely enough.
    NotMeasured,
}

impl Verdict {
    pub(crate) const ALL: [Self; 4] =
        [Self::Reproduced, Self::Better, Self::Differs, Self::NotMeasured];

    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Reproduced => "reproduced",
            Self::Better => "better",
            Self::Differs => "differs",
            Self::NotMeasured => "not measured",
        }
    }
}
