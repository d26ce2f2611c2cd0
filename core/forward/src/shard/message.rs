//! What shards of one router tell each other. Only Interests with CanBePrefix cause it.

use alloc::boxed::Box;
use alloc::vec::Vec;

use weir_base::{FaceId, Instant, Packet};
use weir_wire::{LpHeader, Name, PitToken};

use crate::endpoints::{DataOrigin, Downstream, Echo};

/// A message from one shard of a router to another: an element of
/// [`Outbox::shard_messages`](crate::Outbox) that a driver hands over as
/// [`Input::Shard`](crate::Input). Messages between two shards keep their order. One that is lost
/// delays an Interest and is made up for by a time-out or by the consumer's next Interest.
#[derive(Debug)]
pub struct ShardMessage(pub(crate) Message);

/// A question of a home: its place there, and a number that tells it from others in that place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueryId {
    pub(crate) place: u32,
    pub(crate) serial: u32,
}

#[derive(Debug)]
pub(crate) enum Message {
    /// Show the home what comes below a prefix, until then. Again: until another time.
    Watch { entry: u32, hash: u64, components: u16, until: Instant },
    /// No longer.
    Unwatch { entry: u32, hash: u64 },
    /// What does your store have for this Interest?
    Ask { id: QueryId, interest: Packet },
    /// The answer to [`Message::Ask`], or the end of a read that has not helped.
    Answer { id: QueryId, found: Candidate },
    /// Read what you have found on your disk. What comes of it is shown, or answered.
    Read { id: QueryId, interest: Packet, is_marked: bool },
    /// The queue of the disk is full.
    ReadRefused { id: QueryId },
    /// Data has come that you watch for.
    Show(Box<Shown>),
    /// The peer of a face returns PIT tokens.
    Echoes { face: FaceId, echo: Echo },
    /// Data of that name was found to be false.
    Distrust { name: Name, source: u32 },
    /// Whether Data that was shown by you was asked for of the face that it came from.
    Judged { face: FaceId, packet: Packet, judgement: Judgement },
    /// Data that a wrong PIT token has led to the wrong shard.
    Misled { face: FaceId, header: Box<LpHeader>, packet: Packet },
}

/// What a shard's store has for an Interest with CanBePrefix.
#[derive(Debug)]
pub(crate) enum Candidate {
    Nothing,
    /// Data in memory.
    Memory {
        packet: Packet,
        came: Instant,
    },
    /// Data that waits to be written to a disk.
    Unwritten {
        packet: Packet,
    },
    /// On a disk, with the queue before it.
    OnDisk {
        disk: u8,
        reads_waiting: u32,
        is_stalled: bool,
    },
}

/// Data on its way from one home to the next.
#[derive(Debug)]
pub(crate) struct Shown {
    pub(crate) origin: DataOrigin,
    /// The PIT token that it bore, where its source is not proven.
    pub(crate) token: Option<PitToken>,
    /// Of Data that no entry of its own shard waits for.
    pub(crate) judgement: Option<Judgement>,
    /// Not for Interests that ask for fresh Data.
    pub(crate) is_stale: bool,
    pub(crate) packet: Packet,
    /// Who has got it: each face gets it once for each PIT token.
    pub(crate) served: Vec<Downstream>,
    /// The shards that have yet to see it, a bit each.
    pub(crate) homes: u64,
}

/// What the homes make of Data that only they wait for: its shard keeps it if it was asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Judgement {
    /// The Data's shard.
    pub(crate) shard: u16,
    pub(crate) no_cache: bool,
    /// Some Interest for it was sent to the face that it came from.
    pub(crate) is_asked: bool,
}
