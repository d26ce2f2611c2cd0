//! Consumers and producers as state machines. The same code runs in virtual time and over sockets.
//!
//! The caller passes the received packets and the time, and executes the outbox. Time counts from
//! the start of the run: [`Instant::ZERO`] is where the plan's times start.

mod consumer;
mod content;
mod interest;
mod producer;

use std::any::Any;
use std::fmt;

use weir_base::{Instant, Packet};
use weir_transport::Controllers;
use weir_wire::LpHeader;

pub use self::consumer::Consumer;
pub use self::producer::Producer;
pub use weir_transport::PathId;

use crate::event::EventKind;
use crate::plan::Role;
use crate::workload::WorkloadError;

/// A received packet.
#[derive(Clone, Debug)]
pub struct AppInput {
    /// The link it arrived on: its position among the node's links, from 0.
    pub path: PathId,
    pub header: LpHeader,
    /// Exactly one Interest or Data TLV.
    pub packet: Packet,
}

/// The output of an application. The caller drains the lists, and their memory is reused.
#[derive(Debug, Default)]
pub struct AppOutbox {
    /// Packets to send in order, each with the link to send it on.
    pub packets: Vec<(PathId, LpHeader, Packet)>,
    /// Events of this call.
    pub events: Vec<EventKind>,
    /// A Data with wrong bytes arrived; this describes the first one since it was last taken.
    /// [`EventKind::DamagedData`] reports every one, and the consumer continues. The caller knows
    /// whether a fault of the plan explains it.
    pub violation: Option<String>,
}

/// A consumer or a producer.
#[derive(Debug)]
pub enum App {
    Consumer(Box<Consumer>),
    Producer(Box<Producer>),
    /// An application that no plan describes.
    Other(Box<dyn Application>),
}

/// An application outside plans, for networks built in code. Its methods are those of [`App`].
pub trait Application: Any + Send {
    fn handle(&mut self, now: Instant, inputs: &mut Vec<AppInput>, out: &mut AppOutbox);

    fn next_wakeup(&self) -> Option<Instant>;

    fn set_path(&mut self, _path: PathId, _is_there: bool) {}
}

impl fmt::Debug for dyn Application {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Application")
    }
}

impl App {
    /// The application of a node; `None` for a router. Controller names in the role refer to
    /// `controllers`. `duration_ns` is that of the plan. All random numbers come from `seed`, which
    /// should differ between nodes.
    ///
    /// # Errors
    /// A value of the plan is out of range. The message gives the valid range.
    pub fn new(
        role: &Role,
        controllers: Controllers,
        duration_ns: u64,
        seed: u64,
    ) -> Result<Option<Self>, WorkloadError> {
        Ok(match role {
            Role::Router(_) => None,
            Role::Consumer(plan) => {
                let consumer = Consumer::new(plan, controllers, duration_ns, seed)?;
                Some(Self::Consumer(Box::new(consumer)))
            }
            Role::Producer(plan) => Some(Self::Producer(Box::new(Producer::new(plan, seed)?))),
        })
    }

    /// Handles the packets in `inputs`, which it drains, and appends its output to `out`. Call it
    /// also without inputs at [`App::next_wakeup`]; an additional call at the start does no harm.
    pub fn handle(&mut self, now: Instant, inputs: &mut Vec<AppInput>, out: &mut AppOutbox) {
        match self {
            Self::Consumer(consumer) => consumer.handle(now, inputs, out),
            Self::Producer(producer) => producer.handle(now, inputs, out),
            Self::Other(app) => app.handle(now, inputs, out),
        }
    }

    /// Reports that a link went up or down; the first one is up at the start. Call [`App::handle`]
    /// next. Only a transport consumer has several links, and it keeps the last one even if that
    /// goes down.
    pub fn set_path(&mut self, path: PathId, is_there: bool) {
        match self {
            Self::Consumer(consumer) => consumer.set_path(path, is_there),
            Self::Other(app) => app.set_path(path, is_there),
            Self::Producer(_) => {}
        }
    }

    /// Latest time of the next [`App::handle`] if no input arrives before.
    pub fn next_wakeup(&self) -> Option<Instant> {
        match self {
            Self::Consumer(consumer) => consumer.next_wakeup(),
            Self::Producer(producer) => producer.next_wakeup(),
            Self::Other(app) => app.next_wakeup(),
        }
    }

    /// Whether it will send and report nothing more unless a packet arrives. A producer is done
    /// whenever it owes no answer.
    pub fn is_done(&self) -> bool {
        match self {
            Self::Consumer(consumer) => consumer.is_done(),
            Self::Producer(producer) => producer.is_done(),
            Self::Other(app) => app.next_wakeup().is_none(),
        }
    }

    /// The consumer's window as [`EventKind::Window`], and with several links an
    /// [`EventKind::PathSample`] for each.
    pub fn sample(&self) -> Vec<EventKind> {
        match self {
            Self::Consumer(consumer) => consumer.sample(),
            Self::Producer(_) | Self::Other(_) => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests;
