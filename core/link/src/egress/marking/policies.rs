//! The marking policies there are, and the choice between them.

use alloc::borrow::ToOwned;
use core::str::FromStr;

use weir_base::Instant;
use weir_wire::CongestionMark;

use super::codel::{CoDel, CoDelOptions};
use super::nfd::Nfd;
use super::policy::{Joining, Policy};
use super::rem::{Rem, RemOptions};
use super::step::{Step, StepOptions};
use crate::egress::choice::{self, ChoiceError};

const KIND: &str = "marking policy";

/// When packets are marked for congestion.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct MarkingConfig {
    /// Whether any are.
    pub is_on: bool,
    /// What decides which.
    pub policy: MarkingPolicy,
    /// Octets waiting (our queue and the socket's) above which NFD's marking is armed.
    pub threshold_bytes: u64,
    /// How long the queue must stay above the threshold before NFD's first mark.
    pub interval_ns: u64,
    /// Octets that the queue holds before it drops: what REM's thresholds are parts of.
    pub capacity_bytes: u64,
}

impl MarkingConfig {
    /// The policy of a face so configured, at its beginning; its draws follow from `seed`.
    pub(crate) fn fresh(&self, seed: u64) -> AnyPolicy {
        AnyPolicy::new(&self.policy, self.capacity_bytes, seed)
    }

    /// Whether a change to `self` begins marking anew. NFD's threshold and interval change as it
    /// goes on.
    pub(crate) fn is_fresh_after(&self, before: &Self) -> bool {
        let Self { threshold_bytes, interval_ns, .. } = *before;
        Self { threshold_bytes, interval_ns, ..*self } != *before
    }

    /// So many octets in a socket need not be told apart from none, which spares a driver to ask
    /// for their number.
    pub fn backlog_ignored_bytes(&self) -> u64 {
        match self.policy {
            MarkingPolicy::Nfd(()) => self.threshold_bytes,
            _ => 0,
        }
    }
}

macro_rules! marking_policies {
    ($($(#[$doc:meta])* $variant:ident($options:ty) = $name:literal: $policy:ty,)+) => {
        /// Which marking policy a face has, and its options.
        ///
        /// As text: its name, then options as `key=value`, for example
        /// `rem q_min=150KB q_max=450KB`.
        #[derive(Copy, Clone, Debug, PartialEq, Eq)]
        pub enum MarkingPolicy {
            $($(#[$doc])* $variant($options),)+
        }

        const NAMES: &[&str] = &[$($name),+];

        impl MarkingPolicy {
            /// The name, without options.
            pub const fn name(&self) -> &'static str {
                match self { $(Self::$variant(_) => $name,)+ }
            }

            /// Whether no two options contradict each other, before a queue that holds
            /// `capacity_bytes`; before any, if that is `None`.
            ///
            /// # Errors
            /// [`ChoiceError::Order`].
            pub fn check(&self, capacity_bytes: Option<u64>) -> Result<(), ChoiceError> {
                let checked = match self {
                    $(Self::$variant(options) => <$policy>::check(options, capacity_bytes),)+
                };
                let (kind, name) = (KIND, self.name());
                checked.map_err(|order| ChoiceError::Order { kind, name, order })
            }
        }

        impl FromStr for MarkingPolicy {
            type Err = ChoiceError;

            fn from_str(text: &str) -> Result<Self, ChoiceError> {
                let (name, options) = choice::split(text);
                match name {
                    $($name => {
                        let mut chosen = <$options>::default();
                        choice::read_options(KIND, name, options, |key, value| {
                            <$policy>::set(&mut chosen, key, value)
                        })?;
                        let chosen = Self::$variant(chosen);
                        chosen.check(None)?;
                        Ok(chosen)
                    })+
                    _ => {
                        let name = name.to_owned();
                        Err(ChoiceError::Unknown { kind: KIND, name, names: NAMES })
                    }
                }
            }
        }

        /// The marking policy of one face.
        #[derive(Debug)]
        pub(crate) enum AnyPolicy {
            $($variant($policy),)+
        }

        impl AnyPolicy {
            fn new(chosen: &MarkingPolicy, capacity_bytes: u64, seed: u64) -> Self {
                match chosen {
                    $(MarkingPolicy::$variant(options) => {
                        Self::$variant(<$policy>::new(options, capacity_bytes, seed))
                    })+
                }
            }

            /// The mark that the packet is to bear, if any.
            #[inline]
            pub(crate) fn mark(&mut self, joining: &Joining) -> Option<CongestionMark> {
                match self {
                    $(Self::$variant(one) => one.marks(joining).then_some(<$policy>::MARK),)+
                }
            }

            /// See [`Policy::joined`].
            #[inline]
            pub(crate) fn joined(&mut self, now: Instant, wire_bytes: u64) {
                match self { $(Self::$variant(one) => one.joined(now, wire_bytes),)+ }
            }
        }
    };
}

marking_policies! {
    /// NFD's schedule: now and then, while the queue stays above a threshold.
    Nfd(()) = "nfd": Nfd,
    /// Random early marking of paper chopcop: the more, the longer the mean queue.
    Rem(RemOptions) = "rem": Rem,
    /// CoDel (RFC 8289): now and then, while Data wait for longer than a target.
    CoDel(CoDelOptions) = "codel": CoDel,
    /// Every Data that joins while the oldest waits for longer than a target.
    Step(StepOptions) = "step": Step,
}

impl Default for MarkingPolicy {
    fn default() -> Self {
        Self::Nfd(())
    }
}
