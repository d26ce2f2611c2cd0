//! What carries the bytes of a WebSocket: a TCP connection, or TLS over one. The socket of a face
//! is compiled for each, so plain WebSockets do nothing for TLS.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

use nix::sys::socket::{MsgFlags, recv};
use weir_base::Pool;

use crate::status::RecvStatus;
use crate::stream::{ReadBlock, StreamSocket};

pub(crate) trait Transport: AsFd + AsRawFd + fmt::Debug {
    /// The TCP connection.
    fn tcp(&self) -> &StreamSocket;

    fn tcp_mut(&mut self) -> &mut StreamSocket;

    /// As [`StreamSocket::read_block`].
    fn read_block(&mut self, pool: &mut Pool) -> io::Result<(Option<ReadBlock>, RecvStatus)>;

    /// Copies the next bytes, which stay unread. Returns their number; 0 at the end of the stream.
    ///
    /// # Errors
    /// WouldBlock if there are none; those of the connection.
    fn peek(&mut self, octets: &mut [u8]) -> io::Result<usize>;

    /// Drops bytes that were [peeked](Self::peek).
    fn skip(&mut self, count: usize) -> io::Result<()>;

    /// Accepts bytes to send, as far as there is room. Returns their number.
    fn write(&mut self, octets: &[u8]) -> io::Result<usize>;

    /// Sends bytes that were accepted and not sent. Returns whether none is left.
    fn flush(&mut self) -> io::Result<bool>;

    /// Whether accepted bytes are not sent.
    fn has_unsent(&self) -> bool;

    /// Memory in bytes.
    fn held_bytes(&self) -> usize;
}

impl Transport for StreamSocket {
    fn tcp(&self) -> &StreamSocket {
        self
    }

    fn tcp_mut(&mut self) -> &mut StreamSocket {
        self
    }

    #[inline]
    fn read_block(&mut self, pool: &mut Pool) -> io::Result<(Option<ReadBlock>, RecvStatus)> {
        StreamSocket::read_block(self, pool)
    }

    fn peek(&mut self, octets: &mut [u8]) -> io::Result<usize> {
        Ok(recv(self.as_raw_fd(), octets, MsgFlags::MSG_PEEK)?)
    }

    fn skip(&mut self, count: usize) -> io::Result<()> {
        // The bytes are there, so this returns all of them.
        Ok(recv(self.as_raw_fd(), &mut vec![0; count], MsgFlags::empty()).map(|_| ())?)
    }

    #[inline]
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        StreamSocket::write(self, octets)
    }

    /// The kernel has all accepted bytes.
    #[inline]
    fn flush(&mut self) -> io::Result<bool> {
        Ok(true)
    }

    #[inline]
    fn has_unsent(&self) -> bool {
        false
    }

    #[inline]
    fn held_bytes(&self) -> usize {
        StreamSocket::held_bytes(self)
    }
}
