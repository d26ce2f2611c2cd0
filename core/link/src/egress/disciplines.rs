//! The disciplines there are, and the choice between them.

use alloc::borrow::ToOwned;
use core::str::FromStr;

use weir_base::{Instant, Packet};

use super::choice::{self, ChoiceError};
use super::discipline::Discipline;
use super::fifo::Fifo;
use super::hr_icp::{HrIcp, HrIcpConfig};
use super::interest_rate::{InterestRate, InterestRateConfig};
use super::outlet::{Outgoing, Outlet, PacketKind};
use super::ready::Load;
use crate::counters::LinkDrop;

const KIND: &str = "queue discipline";

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

        impl FromStr for DisciplineConfig {
            type Err = ChoiceError;

            fn from_str(text: &str) -> Result<Self, ChoiceError> {
                let (name, options) = choice::split(text);
                match name {
                    $($name => {
                        let mut config = <$config>::default();
                        choice::read_options(KIND, name, options, |key, value| {
                            let value = value.parse().ok();
                            value.is_some_and(|value| <$discipline>::set(&mut config, key, value))
                        })?;
                        Ok(Self::$variant(config))
                    })+
                    _ => {
                        let name = name.to_owned();
                        Err(ChoiceError::Unknown { kind: KIND, name, names: NAMES })
                    }
                }
            }
        }

        #[derive(Debug)]
        pub(crate) enum AnyDiscipline {
            $($variant($discipline),)+
        }

        impl AnyDiscipline {
            pub(crate) fn new(config: &DisciplineConfig, seed: u64) -> Self {
                match config {
                    $(DisciplineConfig::$variant(config) => {
                        Self::$variant(<$discipline>::new(config, seed))
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
            pub(crate) fn keeps(&self) -> bool {
                match self { $(Self::$variant(_) => <$discipline>::KEEPS,)+ }
            }

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
    /// First in, first out.
    Fifo(()) = "fifo": Fifo,
    /// As `Fifo`, with Interests held before to the rate of the Data that they ask for.
    HrIcp(HrIcpConfig) = "hr-icp": HrIcp<Fifo>,
    /// As `Fifo`, with Interests held to a rate before.
    InterestRate(InterestRateConfig) = "interest-rate": InterestRate<Fifo>,
}

impl Default for DisciplineConfig {
    fn default() -> Self {
        Self::Fifo(())
    }
}
