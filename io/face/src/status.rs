use weir_wire::FrameError;

/// How a call of `recv` ended. Frames appended before that are good in every case.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum RecvStatus {
    /// The socket is empty; wait for readiness.
    Drained,
    /// The call took its share and there may be more: call again before waiting for readiness.
    More,
    /// The peer closed the connection.
    Closed,
    /// No further packet can be found in the stream: close this face.
    FramingLost(FrameError),
    /// The peer has written nonsense into memory that it shares: close this face.
    RingBroken,
}

/// How a call of `send` ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum SendStatus {
    /// The queue is empty.
    Drained,
    /// The socket takes no more for now; wait until it is writable.
    WouldBlock,
    /// The peer has written nonsense into memory that it shares: close this face.
    RingBroken,
}
