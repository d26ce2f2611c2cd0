use weir_wire::FrameError;

/// How a call of `recv` ended. Frames appended before are valid in every case.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum RecvStatus {
    /// The socket is empty. Wait for readiness.
    Drained,
    /// The call reached its limit and there may be more. Call again before waiting for readiness.
    More,
    /// The peer closed the connection.
    Closed,
    /// No further packet can be found in the stream. Close this face.
    FramingLost(FrameError),
    /// The peer wrote invalid positions into shared memory. Close this face.
    RingBroken,
    /// The peer broke the protocol of WebSocket. Close this face.
    WebSocketBroken(WebSocketError),
}

/// Why a WebSocket must be closed.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WebSocketError {
    #[error("a frame of a client is not masked")]
    Unmasked,
    #[error("a frame of a server is masked")]
    Masked,
    #[error("a frame has a reserved bit or an unknown opcode")]
    Reserved,
    #[error("a control frame is fragmented or has more than 125 bytes")]
    Control,
    #[error("a fragment belongs to no message")]
    Fragment,
    #[error("a message is text; packets are binary messages")]
    Text,
    #[error("a message is longer than any packet")]
    TooLong,
}

/// How a call of `send` ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum SendStatus {
    /// The link's queue is empty.
    Drained,
    /// The socket is full. Wait until it is writable.
    WouldBlock,
    /// The peer wrote invalid positions into shared memory. Close this face.
    RingBroken,
}
