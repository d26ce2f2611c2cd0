//! Packets over WebSocket (RFC 6455), as NDNts in browsers and NFD's WebSocket channel exchange
//! them: each binary message is one NDNLPv2 packet.
//!
//! `frame` decodes and encodes frames, `handshake` upgrades connections from HTTP, and `tls`
//! encrypts those of `wss://`. The first two use the parser and the frame headers of tungstenite.
//! Its `WebSocket` type is not used. It would keep two buffers for each idle connection, outside
//! the router's memory limits, and allocate for each message. Here messages are unmasked and sliced
//! in the block that they were read into. Packets wait in the link's queue until the socket accepts
//! them.
//!
//! Peers may fragment messages and send pings. A peer that breaks the protocol gets a Close frame
//! with the reason, and its face closes.

mod frame;
mod handshake;
mod tls;
mod tls_files;
mod transport;
mod validity;

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::time::Duration;

use socket2::TcpKeepalive;
use tungstenite::protocol::Role;
use tungstenite::protocol::frame::coding::{CloseCode, Control, Data, OpCode};
use weir_base::{Packet, Pool};
use weir_link::Link;

use self::frame::{Decoder, End, Message, encode, encoded_len};
pub(crate) use self::handshake::OpenedWebSocket;
pub use self::handshake::{Handshake, WebSocketListener};
pub(crate) use self::tls::TlsStream;
pub use self::tls_files::{
    CertificateFiles, ServerCertificate, TlsFileError, TlsTrust, certificate_problem,
};
use self::transport::Transport;
use crate::socket::socket_source;
use crate::status::{RecvStatus, SendStatus, WebSocketError};
use crate::uri::FaceUri;

/// Bytes of frames that are encoded, and over TLS encrypted, at a time.
const BATCH_BYTES: usize = 64 * 1024;
/// A browser on a host that lost its network sends no Close frame. The connection closes after
/// about a minute.
const KEEPALIVE: TcpKeepalive = TcpKeepalive::new()
    .with_time(Duration::from_secs(30))
    .with_interval(Duration::from_secs(10))
    .with_retries(3);

thread_local! {
    static STAGING: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static MESSAGES: RefCell<Vec<Message>> = const { RefCell::new(Vec::new()) };
}

/// The socket of a face, over TCP or TLS.
pub(crate) struct WebSocketSocket<T: Transport> {
    stream: T,
    decoder: Decoder,
    /// The rest of a frame that was sent in part. It is in no queue any more.
    unsent: Vec<u8>,
    has_closed: bool,
}

impl<T: Transport> WebSocketSocket<T> {
    /// For a connection whose handshake is complete.
    fn new(stream: T, role: Role) -> io::Result<Self> {
        stream.tcp().keep_alive(&KEEPALIVE)?;
        Ok(Self { stream, decoder: Decoder::new(role), unsent: Vec::new(), has_closed: false })
    }

    pub(crate) fn local_uri(&self) -> &FaceUri {
        self.stream.tcp().local_uri()
    }

    pub(crate) fn remote_uri(&self) -> &FaceUri {
        self.stream.tcp().remote_uri()
    }

    pub(crate) fn is_local(&self) -> bool {
        self.stream.tcp().is_local()
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.stream.held_bytes() + self.decoder.held_bytes() + self.unsent.capacity()
    }

    pub(crate) fn recv(
        &mut self,
        pool: &mut Pool,
        frames: &mut Vec<Packet>,
    ) -> io::Result<RecvStatus> {
        let (block, status) = self.stream.read_block(pool)?;
        let Some(mut block) = block else { return Ok(status) };
        let end = MESSAGES.with_borrow_mut(|messages| {
            let decoded = self.decoder.decode(block.octets(), pool, messages);
            let octets = block.freeze(pool);
            frames.extend(messages.drain(..).map(|message| match message {
                Message::Whole(payload) => octets.slice(payload),
                Message::Joined(packet) => packet,
            }));
            self.stream.tcp_mut().keep_rest(&octets, decoded.consumed, pool);
            decoded.end
        });
        match end {
            None if self.decoder.has_ping() => {
                // If this fails, the next read returns the error. If the socket is full, the caller
                // sends the rest.
                let _ = self.send_rest();
                Ok(status)
            }
            None => Ok(status),
            Some(End::Closed(code)) => {
                self.close(code.filter(|code| code.is_allowed()), "");
                Ok(RecvStatus::Closed)
            }
            Some(End::Broken(error)) => {
                self.close(Some(close_code(error)), &error.to_string());
                Ok(RecvStatus::WebSocketBroken(error))
            }
        }
    }

    /// Sends the link's queue, as far as the socket accepts it. A packet leaves the queue when the
    /// first byte of its frame is accepted. At most one frame waits outside of the queue, over TLS
    /// one batch.
    pub(crate) fn send(&mut self, link: &mut Link) -> io::Result<SendStatus> {
        link.gather_runs(0);
        let mut sent_bytes = 0;
        let result = loop {
            let unsent = self.unsent.len();
            match self.send_rest() {
                Ok(true) => sent_bytes += unsent,
                Ok(false) => break Ok(SendStatus::WouldBlock),
                Err(error) => break Err(error),
            }
            if link.is_egress_empty() {
                break Ok(SendStatus::Drained);
            }
            match self.send_batch(link) {
                Ok(0) => break Ok(SendStatus::WouldBlock),
                Ok(sent) => sent_bytes += sent,
                Err(error) => break Err(error),
            }
        };
        self.stream.tcp_mut().note_written(sent_bytes as u64, link);
        result
    }

    /// Whether a part of a frame, or of TLS, waits outside of the link's queue.
    pub(crate) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty() || self.stream.has_unsent()
    }

    pub(crate) fn tell_backlog(&mut self, link: &mut Link) {
        self.stream.tcp_mut().tell_backlog(link);
    }

    /// Sends the beginning of the link's queue. Returns the number of bytes that the socket has
    /// accepted.
    fn send_batch(&mut self, link: &mut Link) -> io::Result<usize> {
        let role = self.decoder.role();
        STAGING.with_borrow_mut(|staging| {
            staging.clear();
            for frame in link.frames() {
                let parts = [frame.prefix(), frame.payload()];
                encode(staging, role, OpCode::Data(Data::Binary), parts)?;
                if staging.len() >= BATCH_BYTES {
                    break;
                }
            }
            let sent = self.stream.write(staging)?;
            let (mut end, mut begun) = (0, 0);
            for frame in link.frames() {
                if end >= sent {
                    break;
                }
                end += encoded_len(role, frame.len());
                begun += 1;
            }
            self.unsent.extend_from_slice(&staging[sent..end]);
            link.frames_sent(begun);
            Ok(sent)
        })
    }

    /// Sends the rest of a frame, then the answer to a Ping. Returns whether the next frame may
    /// follow.
    fn send_rest(&mut self) -> io::Result<bool> {
        loop {
            while !self.unsent.is_empty() {
                match self.stream.write(&self.unsent)? {
                    0 => return Ok(false),
                    sent => drop(self.unsent.drain(..sent)),
                }
            }
            // An idle connection holds no buffer.
            self.unsent = Vec::new();
            let Some(ping) = self.decoder.take_ping() else { return self.stream.flush() };
            let pong = OpCode::Control(Control::Pong);
            encode(&mut self.unsent, self.decoder.role(), pong, [&ping, &[]])?;
        }
    }

    /// Sends a Close frame, if the socket accepts it at once.
    fn close(&mut self, code: Option<CloseCode>, reason: &str) {
        if self.has_closed || !matches!(self.send_rest(), Ok(true)) {
            return;
        }
        self.has_closed = true;
        let code = code.map(|code| u16::from(code).to_be_bytes());
        let parts = [code.as_ref().map_or(&[][..], |code| code), reason.as_bytes()];
        let mut frame = Vec::new();
        let close = OpCode::Control(Control::Close);
        if encode(&mut frame, self.decoder.role(), close, parts).is_ok() {
            let _ = self.stream.write(&frame);
        }
    }
}

/// The router closes the face.
impl<T: Transport> Drop for WebSocketSocket<T> {
    fn drop(&mut self) {
        self.close(Some(CloseCode::Away), "");
    }
}

/// The code of RFC 6455, section 7.4.1.
fn close_code(error: WebSocketError) -> CloseCode {
    match error {
        WebSocketError::Text => CloseCode::Unsupported,
        WebSocketError::TooLong => CloseCode::Size,
        _ => CloseCode::Protocol,
    }
}

impl<T: Transport> fmt::Debug for WebSocketSocket<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebSocketSocket").field("stream", &self.stream).finish_non_exhaustive()
    }
}

socket_source!(WebSocketSocket<T>, stream, T: Transport);
