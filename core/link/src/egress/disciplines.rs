//! The disciplines there are, and the choice between them.

use alloc::borrow::ToOwned;
use alloc::string::String;
use core::str::FromStr;

use weir_base::{Instant, Packet};

use super::discipline::Discipline;
use super::fifo::Fifo;
use super::interest_rate::{InterestRate, InterestRateConfig};
use super::outlet::{Outgoing, Outlet, PacketKind};
use super::ready::Load;
use crate::counters::LinkDrop;

macro_rules! disciplines {
    ($($(#[$doc:meta])* $variant:ident($config:ty) = $name:literal: $discipline:ty,)+) => {
        /// Which discipline a face has, and its options.
        ///
        /// As text: its name, then options as `key=value`, for example
        /// `interest-rate interests_per_s=5000 burst=64`.
        #[derive(Copy, Clone, Debug, PartialEq, Eq)]
        pub enum DisciplineConfig {
            $($(#[$doc])* $variant($config),)+
        }

        const NAMES: &[&str] = &[$($name),+];

        impl DisciplineConfig {
            fn of(name: &str, options: &str) -> Result<Self, DisciplineError> {
                match name {
                    $($name => options_of::<$discipline>(name, options).map(Self::$variant),)+
                    _ => Err(DisciplineError::Unknown(name.to_owned())),
                }
            }
        }

        /// The discipline of one face.
        #[derive(Debug)]
        pub(crate) enum AnyDiscipline {
            $($variant($discipline),)+
        }

        impl AnyDiscipline {
            pub(crate) fn new(config: &DisciplineConfig) -> Self {
                match config {
                    $(DisciplineConfig::$variant(config) => {
                        Self::$variant(<$discipline>::new(config))
                    })+
                }
            }

            #[inline]
            pub(crate) fn enqueue(
                &mut self,
                now: Instant,
                outgoing: Outgoing,
                out: &mut Outlet<'_>,
            ) -> Result<(), LinkDrop> {
                match self { $(Self::$variant(one) => one.enqueue(now, outgoing, out),)+ }
            }

            #[inline]
            pub(crate) fn on_received(&mut self, now: Instant, kind: PacketKind, packet: &Packet) {
                match self { $(Self::$variant(one) => one.on_received(now, kind, packet),)+ }
            }

            #[inline]
            pub(crate) fn poll(&mut self, now: Instant, out: &mut Outlet<'_>) {
                match self { $(Self::$variant(one) => one.poll(now, out),)+ }
            }

            #[inline]
            pub(crate) fn next_wakeup(&self) -> Option<Instant> {
                match self { $(Self::$variant(one) => one.next_wakeup(),)+ }
            }

            #[inline]
            pub(crate) fn held(&self) -> Load {
                match self { $(Self::$variant(one) => one.held(),)+ }
            }

            pub(crate) fn drop_newest(&mut self) -> Option<Outgoing> {
                match self { $(Self::$variant(one) => one.drop_newest(),)+ }
            }

            pub(crate) fn release(&mut self, now: Instant, out: &mut Outlet<'_>) {
                match self { $(Self::$variant(one) => one.release(now, out),)+ }
            }
        }
    };
}

disciplines! {
    /// First in, first out, with NFD's congestion marks.
    Fifo(()) = "fifo": Fifo,
    /// As `Fifo`, with Interests held to a rate before.
    InterestRate(InterestRateConfig) = "interest-rate": InterestRate<Fifo>,
}

impl FromStr for DisciplineConfig {
    type Err = DisciplineError;

    fn from_str(text: &str) -> Result<Self, DisciplineError> {
        let (name, options) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
        Self::of(name, options)
    }
}

impl Default for DisciplineConfig {
    fn default() -> Self {
        Self::Fifo(())
    }
}

/// Why a text chooses no discipline.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DisciplineError {
    /// There is none of this name.
    #[error("there is no queue discipline `{0}`; choose one of {NAMES:?}")]
    Unknown(String),
    /// The discipline has no such option, or not with this value.
    #[error("`{option}` is no option of the queue discipline `{name}`")]
    Option {
        /// The discipline.
        name: String,
        /// As given.
        option: String,
    },
}

fn options_of<D: Discipline>(name: &str, options: &str) -> Result<D::Config, DisciplineError> {
    let mut config = D::Config::default();
    for option in options.split_whitespace() {
        let known = option.split_once('=').and_then(|(key, value)| {
            let value = value.parse().ok()?;
            D::set(&mut config, key, value).then_some(())
        });
        known.ok_or_else(|| DisciplineError::Option {
            name: name.to_owned(),
            option: option.to_owned(),
        })?;
    }
    Ok(config)
}
