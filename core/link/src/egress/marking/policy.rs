//! The configuration of marking.

use alloc::boxed::Box;
use core::fmt;
use core::str::FromStr;

use weir_base::Instant;
use weir_wire::CongestionMark;

use super::codel::{CoDel, CoDelOptions};
use super::marker::{Joining, Marker, MarkerKind, MarkerOptions};
use super::nfd::Nfd;
use crate::egress::choice::{self, ChoiceError, Other};

const WHAT: &str = "marking policy";
const NFD: &str = "nfd";
const CODEL: &str = "codel";

/// When packets are marked for congestion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkingConfig {
    /// Whether any are.
    pub is_on: bool,
    /// What decides which.
    pub policy: MarkingPolicy,
    /// Octets waiting (our queue and the socket's) above which NFD's marking is armed.
    pub threshold_bytes: u64,
    /// How long the queue must stay above the threshold before NFD's first mark.
    pub interval_ns: u64,
    /// Octets that the queue holds before it drops.
    pub capacity_bytes: u64,
}

impl MarkingConfig {
    /// The marker of a face, in its initial state. Random draws follow from `seed`.
    pub(crate) fn marker(&self, seed: u64) -> AnyMarker {
        match &self.policy {
            MarkingPolicy::Nfd => AnyMarker::Nfd(Nfd::default()),
            MarkingPolicy::CoDel(options) => AnyMarker::CoDel(CoDel::new(options)),
            MarkingPolicy::Other(other) => {
                AnyMarker::Other(other.options().make(self.capacity_bytes, seed))
            }
        }
    }

    /// Whether a change from `before` needs a new marker. One marker works on while NFD's threshold
    /// and interval change.
    pub(crate) fn needs_new_marker(&self, before: &Self) -> bool {
        let Self { is_on, policy, capacity_bytes, threshold_bytes: _, interval_ns: _ } = self;
        (*is_on, policy, *capacity_bytes) != (before.is_on, &before.policy, before.capacity_bytes)
    }

    /// A socket's backlog up to this size changes no decision. A driver that knows the backlog to
    /// be smaller need not query it.
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
    /// NFD's schedule: now and then, while the queue stays above a threshold.
    #[default]
    Nfd,
    /// CoDel (RFC 8289): now and then, while Data wait for longer than a target.
    CoDel(CoDelOptions),
    Other(Other<dyn MarkerOptions>),
}

impl MarkingPolicy {
    /// Reads a text that chooses `nfd`, `codel` or one of `others`.
    ///
    /// # Errors
    /// There is no such policy, it has no such options, or they contradict each other.
    pub fn read(text: &str, others: &[MarkerKind]) -> Result<Self, ChoiceError> {
        let policy = match choice::split(text) {
            (NFD, options) => {
                choice::read_options((WHAT, NFD), options, |_, _| false)?;
                Self::Nfd
            }
            (CODEL, options) => {
                let mut chosen = CoDelOptions::default();
                choice::read_options((WHAT, CODEL), options, |key, value| chosen.set(key, value))?;
                Self::CoDel(chosen)
            }
            _ => Self::Other(Other::read((WHAT, &[NFD, CODEL]), text, others)?),
        };
        policy.check(None)?;
        Ok(policy)
    }

    /// The name, without options.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Nfd => NFD,
            Self::CoDel(_) => CODEL,
            Self::Other(other) => other.name(),
        }
    }

    /// Refuses options that contradict each other before a queue that holds `capacity_bytes`; those
    /// that do so before any queue, if that is `None`.
    ///
    /// # Errors
    /// [`ChoiceError::QueuedRead`].
    pub fn check(&self, capacity_bytes: Option<u64>) -> Result<(), ChoiceError> {
        match self {
            Self::Nfd => Ok(()),
            Self::CoDel(options) => options.check().map_err(|order| ChoiceError::Order {
                kind: WHAT,
                name: CODEL,
                order,
            }),
            Self::Other(other) => other.options().check(capacity_bytes),
        }
    }
}

impl FromStr for MarkingPolicy {
    type Err = ChoiceError;

    /// Knows no policies of other crates.
    fn from_str(text: &str) -> Result<Self, ChoiceError> {
        Self::read(text, &[])
    }
}

impl fmt::Display for MarkingPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nfd => f.write_str(NFD),
            Self::CoDel(options) => write!(f, "{CODEL} {options}"),
            Self::Other(other) => other.fmt(f),
        }
    }
}

/// The marker of one face. What most faces have is called without a pointer.
#[derive(Debug)]
pub(crate) enum AnyMarker {
    Nfd(Nfd),
    CoDel(CoDel),
    Other(Box<dyn Marker>),
}

impl AnyMarker {
    /// The mark that the packet must bear, if any.
    #[inline]
    pub(crate) fn mark(&mut self, joining: &Joining) -> Option<CongestionMark> {
        fn mark<M: Marker + ?Sized>(marker: &mut M, joining: &Joining) -> Option<CongestionMark> {
            if marker.marks(joining) { Some(marker.meaning()) } else { None }
        }
        match self {
            Self::Nfd(nfd) => mark(nfd, joining),
            Self::CoDel(codel) => mark(codel, joining),
            Self::Other(other) => mark(&mut **other, joining),
        }
    }

    /// See [`Marker::joined`].
    #[inline]
    pub(crate) fn joined(&mut self, now: Instant, wire_bytes: u64) {
        match self {
            Self::Nfd(nfd) => nfd.joined(now, wire_bytes),
            Self::CoDel(codel) => codel.joined(now, wire_bytes),
            Self::Other(other) => other.joined(now, wire_bytes),
        }
    }
}
