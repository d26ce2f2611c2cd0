//! The configuration of marking.

use alloc::boxed::Box;
use core::fmt;
use core::str::FromStr;

use weir_base::Instant;
use weir_wire::CongestionMark;

use super::codel::{CoDel, CoDelOptions};
use super::marker::{Marker, MarkerKind, MarkerOptions, QueueArrival};
use super::nfd::Nfd;
use crate::egress::choice::{self, ChoiceError, ExternalChoice};

const CHOICE_NAME: &str = "marking policy";
const NFD: &str = "nfd";
const CODEL: &str = "codel";

/// When packets are marked for congestion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkingConfig {
    /// Whether packets are marked at all.
    pub is_on: bool,
    /// Which packets are marked.
    pub policy: MarkingPolicy,
    /// NFD's marking starts when more than this many bytes wait here and in the socket.
    pub threshold_bytes: u64,
    /// How long the queue must stay above the threshold before NFD's first mark.
    pub interval_ns: u64,
    /// Size of the queue in bytes before it drops packets.
    pub capacity_bytes: u64,
}

impl MarkingConfig {
    /// A new marker for a face. Its random numbers are derived from `seed`.
    pub(crate) fn marker(&self, seed: u64) -> AnyMarker {
        match &self.policy {
            MarkingPolicy::Nfd => AnyMarker::Nfd(Nfd::default()),
            MarkingPolicy::CoDel(options) => AnyMarker::CoDel(CoDel::new(options)),
            MarkingPolicy::External(other) => {
                AnyMarker::External(other.options().make(self.capacity_bytes, seed))
            }
        }
    }

    /// Whether a change from `before` needs a new marker. Changes of NFD's threshold and interval
    /// do not.
    pub(crate) fn needs_new_marker(&self, before: &Self) -> bool {
        let Self { is_on, policy, capacity_bytes, threshold_bytes: _, interval_ns: _ } = self;
        (*is_on, policy, *capacity_bytes) != (before.is_on, &before.policy, before.capacity_bytes)
    }

    /// A socket backlog up to this size changes no decision. A driver that knows the backlog to be
    /// smaller need not query it.
    pub fn backlog_ignored_bytes(&self) -> u64 {
        match self.policy {
            MarkingPolicy::Nfd => self.threshold_bytes,
            _ => 0,
        }
    }
}

/// Which packets of a face are marked.
///
/// As text: a name, then options as `key=value`, for example `codel target=5ms interval=100ms`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum MarkingPolicy {
    /// NFD's schedule: marks at intervals while the queue stays above a threshold.
    #[default]
    Nfd,
    /// CoDel (RFC 8289): marks at intervals while Data waits longer than a target.
    CoDel(CoDelOptions),
    External(ExternalChoice<dyn MarkerOptions>),
}

impl MarkingPolicy {
    /// Parses a text that chooses `nfd`, `codel` or one of `others`.
    ///
    /// # Errors
    /// If there is no such policy, it has no such options, or they contradict each other.
    pub fn read(text: &str, others: &[MarkerKind]) -> Result<Self, ChoiceError> {
        let policy = match choice::split(text) {
            (NFD, options) => {
                choice::read_options((CHOICE_NAME, NFD), options, |_, _| false)?;
                Self::Nfd
            }
            (CODEL, options) => {
                let mut chosen = CoDelOptions::default();
                choice::read_options((CHOICE_NAME, CODEL), options, |key, value| {
                    chosen.set(key, value)
                })?;
                Self::CoDel(chosen)
            }
            _ => Self::External(ExternalChoice::read((CHOICE_NAME, &[NFD, CODEL]), text, others)?),
        };
        policy.check(None)?;
        Ok(policy)
    }

    /// The name without options.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Nfd => NFD,
            Self::CoDel(_) => CODEL,
            Self::External(other) => other.name(),
        }
    }

    /// Refuses options that contradict each other for a queue of `capacity_bytes`. With `None`,
    /// refuses options that contradict each other for any queue.
    ///
    /// # Errors
    /// [`ChoiceError::Order`].
    pub fn check(&self, capacity_bytes: Option<u64>) -> Result<(), ChoiceError> {
        match self {
            Self::Nfd => Ok(()),
            Self::CoDel(options) => options.check().map_err(|order| ChoiceError::Order {
                kind: CHOICE_NAME,
                name: CODEL,
                order,
            }),
            Self::External(other) => other.options().check(capacity_bytes),
        }
    }
}

impl FromStr for MarkingPolicy {
    type Err = ChoiceError;

    /// Accepts only built-in policies.
    fn from_str(text: &str) -> Result<Self, ChoiceError> {
        Self::read(text, &[])
    }
}

impl fmt::Display for MarkingPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nfd => f.write_str(NFD),
            Self::CoDel(options) => write!(f, "{CODEL} {options}"),
            Self::External(other) => other.fmt(f),
        }
    }
}

/// The marker of one face. The built-in markers are called without a pointer.
#[derive(Debug)]
pub(crate) enum AnyMarker {
    Nfd(Nfd),
    CoDel(CoDel),
    External(Box<dyn Marker>),
}

impl AnyMarker {
    /// The mark that the packet must carry, if any.
    #[inline]
    pub(crate) fn mark(&mut self, joining: &QueueArrival) -> Option<CongestionMark> {
        fn mark<M: Marker + ?Sized>(
            marker: &mut M,
            joining: &QueueArrival,
        ) -> Option<CongestionMark> {
            if marker.must_mark(joining) { Some(marker.mark_value()) } else { None }
        }
        match self {
            Self::Nfd(nfd) => mark(nfd, joining),
            Self::CoDel(codel) => mark(codel, joining),
            Self::External(other) => mark(&mut **other, joining),
        }
    }

    /// See [`Marker::joined`].
    #[inline]
    pub(crate) fn joined(&mut self, now: Instant, wire_bytes: u64) {
        match self {
            Self::Nfd(nfd) => nfd.joined(now, wire_bytes),
            Self::CoDel(codel) => codel.joined(now, wire_bytes),
            Self::External(other) => other.joined(now, wire_bytes),
        }
    }
}
