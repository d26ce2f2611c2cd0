//! Consumers and producers as state machines: the same code under virtual time and over sockets.
//!
//! A driver hands in what came and the time, and carries out what is in the outbox. Time is counted
//! from the start of the run: [`Instant::ZERO`] is when the plan's times begin.

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

/// A packet that came to the application.
#[derive(Clone, Debug)]
pub struct AppInput {
    /// Which of its links it came by: their places among those of the node, from 0.
    pub path: PathId,
    pub header: LpHeader,
    /// Exactly one Interest or Data TLV.
    pub packet: Packet,
}

/// What an application wants done. The driver drains the lists; their memory stays.
#[derive(Debug, Default)]
pub struct AppOutbox {
    /// Packets to send, in order, and which of its links each leaves by.
    pub packets: Vec<(PathId, LpHeader, Packet)>,
    /// What happened, all of it at the time that was handed in.
    pub events: Vec<EventKind>,
    /// Data came whose octets are not what was produced; the first such case since it was last
    /// taken. [`EventKind::DamagedData`] tells of every case, and the consumer goes on. The driver
    /// knows whether a fault of the plan explains it.
    pub violation: Option<String>,
}

/// A consumer or a producer.
#[derive(Debug)]
pub enum App {
    Consumer(Box<Consumer>),
    Producer(Box<Producer>),
    /// One that no plan describes.
    Other(Box<dyn Application>),
}

/// An application that no plan describes, for a network that a program puts together. Its methods
/// are those of [`App`].
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
    /// The application of a node, `None` for a router. The names of controllers in the role are
    /// looked up in `controllers`. `duration_ns` is that of the plan; all randomness follows from
    /// `seed`, which should differ from node to node.
    ///
    /// # Errors
    /// A value of the plan is out of range; the message says which and what would be right.
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

    /// Takes what came, drained from `inputs`, and appends what is to be done to `out`. To be
    /// called also, without inputs, when [`App::next_wakeup`] has come; once at the start does no
    /// harm.
    pub fn handle(&mut self, now: Instant, inputs: &mut Vec<AppInput>, out: &mut AppOutbox) {
        match self {
            Self::Consumer(consumer) => consumer.handle(now, inputs, out),
            Self::Producer(producer) => producer.handle(now, inputs, out),
            Self::Other(app) => app.handle(now, inputs, out),
        }
    }

    /// One of its links begins to carry packets, or carries none any more; the first one does from
    /// the start. To be followed by [`App::handle`]. Only a consumer of the transport has several;
    /// the last that is left it keeps, for want of another.
    pub fn set_path(&mut self, path: PathId, is_there: bool) {
        match self {
            Self::Consumer(consumer) => consumer.set_path(path, is_there),
            Self::Other(app) => app.set_path(path, is_there),
            Self::Producer(_) => {}
        }
    }

    /// When [`App::handle`] must be called at the latest if no input comes before.
    pub fn next_wakeup(&self) -> Option<Instant> {
        match self {
            Self::Consumer(consumer) => consumer.next_wakeup(),
            Self::Producer(producer) => producer.next_wakeup(),
            Self::Other(app) => app.next_wakeup(),
        }
    }

    /// Whether it will neither send nor report anything any more unless a packet comes. A producer
    /// is done whenever it owes no answer.
    pub fn is_done(&self) -> bool {
        match self {
            Self::Consumer(consumer) => consumer.is_done(),
            Self::Producer(producer) => producer.is_done(),
            Self::Other(app) => app.next_wakeup().is_none(),
        }
    }

    /// The consumer's congestion window now, as [`EventKind::Window`], and with several links an
    /// [`EventKind::PathSample`] of each; for the driver's samples.
    pub fn sample(&self) -> Vec<EventKind> {
        match self {
            Self::Consumer(consumer) => consumer.sample(),
            Self::Producer(_) | Self::Other(_) => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests;
