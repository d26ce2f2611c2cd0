//! The bytes of an object, in order, as they arrive.

use std::collections::VecDeque;
use std::io::{self, BufRead, Read, Seek, SeekFrom};
use std::ops::Range;
use std::sync::Arc;
use std::task::{self, Poll, ready};

use weir_base::Packet;
use weir_transport::{Delivery, Metadata, PacketId, Target};
use weir_wire::{DataView, Name};

use super::SocketError;
use super::fetcher::Fetcher;
use super::inbox::Inbox;

/// Reads an object or a range of it while it is being fetched. The input buffer limits how far the
/// fetch is ahead. Use [`Read`], [`BufRead`] and [`Seek`] to block; use [`Reader::poll_read`], or
/// tokio's `AsyncRead` with the feature `tokio`, in any runtime. Dropping it ends the fetch.
///
/// Every byte has been verified, unless the options permit otherwise: see [`Reader::is_verified`].
pub struct Reader {
    fetcher: Fetcher,
    /// What is fetched; a known version after it is found.
    target: Target,
    /// Bytes of the object that may be read. The end may lie beyond the object's.
    range: Range<u64>,
    /// Offset of the next byte in the object.
    position: u64,
    active_fetch: Option<ActiveFetch>,
    metadata: Option<Metadata>,
    error: Option<SocketError>,
    is_verified: bool,
    is_end_signed: bool,
    skipped_segments: u64,
    is_from_local_store: bool,
}

/// A fetch in progress.
struct ActiveFetch {
    inbox: Arc<Inbox>,
    /// Bytes to skip, and bytes to read; `None` until known.
    remaining: Option<(u64, u64)>,
    packets: VecDeque<Delivery>,
    /// The current packet, and its unread bytes.
    current: Option<(Packet, Range<usize>)>,
    /// Packets read that have not been reported to the network thread.
    unreported_packets: u32,
    next_segment: u64,
    has_ended: bool,
}

impl Drop for ActiveFetch {
    fn drop(&mut self) {
        self.inbox.abandon();
    }
}

impl Reader {
    pub(super) fn new(fetcher: Fetcher, target: Target, range: Range<u64>) -> Self {
        let at = range.start;
        let mut reader = Self {
            fetcher,
            target,
            range,
            position: at,
            active_fetch: None,
            metadata: None,
            error: None,
            is_verified: true,
            is_end_signed: true,
            skipped_segments: 0,
            is_from_local_store: false,
        };
        reader.start();
        reader
    }

    /// Starts to fetch from the current position.
    fn start(&mut self) {
        let range = self.position..self.range.end.max(self.position);
        self.active_fetch = Some(ActiveFetch {
            inbox: self.fetcher.fetch(self.target.clone(), range),
            remaining: None,
            packets: VecDeque::new(),
            current: None,
            unreported_packets: 0,
            next_segment: 0,
            has_ended: false,
        });
    }

    fn active_fetch_mut(&mut self) -> &mut ActiveFetch {
        if self.active_fetch.is_none() {
            self.start();
        }
        self.active_fetch.as_mut().expect("it has begun")
    }

    /// Whether everything read so far was verified. This is so unless the options
    /// [`verify`](super::ConsumerOptions::verify) or [`on_bad`](super::ConsumerOptions::on_bad)
    /// have been changed.
    pub fn is_verified(&self) -> bool {
        self.is_verified
    }

    /// Whether a signature covers the end of the object, once the reader has reached it. Not so for
    /// a stream of an hICN producer without manifests: only a flag states its end, and no packet
    /// follows (decision 0047).
    pub fn is_end_signed(&self) -> bool {
        self.is_end_signed
    }

    /// The number of the segment of the next bytes, after [`BufRead::fill_buf`] has returned some.
    /// They reach to its end.
    pub fn segment(&self) -> Option<u64> {
        let flow = self.active_fetch.as_ref()?;
        flow.current.as_ref().map(|_| flow.next_segment - 1)
    }

    /// Segments skipped so far, by an unreliable consumer.
    pub fn missed(&self) -> u64 {
        self.skipped_segments
    }

    /// The metadata of the object. Waits until it has been found.
    ///
    /// # Errors
    /// The object cannot be fetched.
    pub fn metadata(&mut self) -> Result<&Metadata, SocketError> {
        match self.poll_metadata_with(None, false) {
            Poll::Ready(Ok(())) => Ok(self.metadata.as_ref().expect("the metadata are known")),
            Poll::Ready(Err(error)) => Err(error),
            Poll::Pending => unreachable!("blocks without a context"),
        }
    }

    /// As [`Reader::metadata`], for a task.
    ///
    /// # Errors
    /// The object cannot be fetched.
    pub fn poll_metadata(
        &mut self,
        context: &mut task::Context<'_>,
    ) -> Poll<Result<&Metadata, SocketError>> {
        ready!(self.poll_metadata_with(Some(context), false))?;
        Poll::Ready(Ok(self.metadata.as_ref().expect("the metadata are known")))
    }

    /// Whether the metadata came from the store of the router that this program is connected to,
    /// and not from a next hop. False until they have been found, and without
    /// [`SessionConfig::reports_sources`](super::SessionConfig::reports_sources).
    pub fn is_from_local_store(&self) -> bool {
        self.is_from_local_store
    }

    /// The name of the version that is read. Waits until it has been found.
    ///
    /// # Errors
    /// The object cannot be fetched.
    pub fn versioned(&mut self) -> Result<&Name, SocketError> {
        self.metadata().map(|metadata| &metadata.versioned)
    }

    fn poll_metadata_with(
        &mut self,
        context: Option<&mut task::Context<'_>>,
        awaits_packets: bool,
    ) -> Poll<Result<(), SocketError>> {
        let flow = self.active_fetch_mut();
        if flow.remaining.is_some() {
            return Poll::Ready(Ok(()));
        }
        let start = ready!(flow.inbox.poll_start(context, awaits_packets))?;
        flow.remaining = Some((start.skip_bytes, start.len));
        flow.next_segment = start.first_segment;
        let is_from_local_store = flow.inbox.is_from_local_store();
        if self.metadata.is_none() {
            // Later reads use the same version.
            if matches!(self.target, Target::Latest { .. }) {
                self.target = Target::KnownMetadata { metadata: start.metadata.clone() };
            }
            self.is_from_local_store = is_from_local_store;
            self.metadata = Some(start.metadata);
        }
        Poll::Ready(Ok(()))
    }

    /// Reads into `out`. 0 bytes mean the end.
    ///
    /// # Errors
    /// No more can be fetched; every later call returns this error.
    pub fn poll_read(
        &mut self,
        context: &mut task::Context<'_>,
        out: &mut [u8],
    ) -> Poll<Result<usize, SocketError>> {
        if out.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let octets = ready!(self.poll_fill(Some(context)))?;
        let count = octets.len().min(out.len());
        out[..count].copy_from_slice(&octets[..count]);
        self.consume(count);
        Poll::Ready(Ok(count))
    }

    /// The next bytes, without a copy; none at the end. [`BufRead::consume`] states how many of
    /// them are read.
    pub fn poll_fill_buf(
        &mut self,
        context: &mut task::Context<'_>,
    ) -> Poll<Result<&[u8], SocketError>> {
        self.poll_fill(Some(context))
    }

    /// As [`Reader::poll_fill_buf`], for callers that keep the bytes: returns a slice of the
    /// received packet, and consumes it.
    pub fn poll_piece(
        &mut self,
        context: &mut task::Context<'_>,
    ) -> Poll<Result<Packet, SocketError>> {
        ready!(self.poll_fill(Some(context)))?;
        let current = self.active_fetch.as_ref().and_then(|flow| flow.current.as_ref());
        let packet_slice =
            current.map_or(Packet::empty(), |(packet, range)| packet.slice(range.clone()));
        self.advance(packet_slice.len());
        Poll::Ready(Ok(packet_slice))
    }

    fn poll_fill(
        &mut self,
        context: Option<&mut task::Context<'_>>,
    ) -> Poll<Result<&[u8], SocketError>> {
        if let Some(error) = &self.error {
            return Poll::Ready(Err(error.clone()));
        }
        let found = ready!(self.poll_next(context));
        if let Err(error) = found {
            self.error = Some(error.clone());
            self.active_fetch = None;
            return Poll::Ready(Err(error));
        }
        let current = self.active_fetch.as_ref().and_then(|flow| flow.current.as_ref());
        Poll::Ready(Ok(current.map_or(&[], |(packet, range)| &packet[range.clone()])))
    }

    /// Ensures that there is a packet with unread bytes, except at the end.
    fn poll_next(
        &mut self,
        mut context: Option<&mut task::Context<'_>>,
    ) -> Poll<Result<(), SocketError>> {
        ready!(self.poll_metadata_with(context.as_deref_mut(), true))?;
        loop {
            let flow = self.active_fetch.as_mut().expect("it has begun");
            if flow.current.is_some() || flow.has_ended {
                return Poll::Ready(Ok(()));
            }
            if let Some(delivery) = flow.packets.pop_front() {
                self.open_packet(&delivery)?;
                continue;
            }
            let more = flow.inbox.poll_packets(context.as_deref_mut(), &mut flow.packets);
            if !ready!(more)? {
                flow.has_ended = true;
                self.is_end_signed &= !flow.inbox.has_unsigned_end();
                let next = flow.next_segment;
                // An empty range needs nothing.
                if flow.remaining.is_some_and(|(_, left)| left > 0) {
                    self.skipped_segments += self.end_segment().saturating_sub(next);
                }
            }
        }
    }

    /// One past the last wanted segment, if known.
    fn end_segment(&self) -> u64 {
        let Some(metadata) = &self.metadata else { return 0 };
        let end = metadata.last_segment.map_or(0, |last| last.saturating_add(1));
        match metadata.segment_size {
            Some(size) if size > 0 => end.min(self.range.end.div_ceil(size)),
            _ => end,
        }
    }

    /// Opens the wanted bytes of a packet.
    fn open_packet(&mut self, delivery: &Delivery) -> Result<(), SocketError> {
        let flow = self.active_fetch.as_mut().expect("it has begun");
        let (skip, left) = flow.remaining.as_mut().expect("the object is known");
        let Ok(data) = DataView::decode(&delivery.packet) else { return Ok(()) };
        let PacketId::Segment(segment) = delivery.id else { return Ok(()) };
        let missed = segment.saturating_sub(flow.next_segment);
        self.skipped_segments += missed;
        flow.next_segment = segment + 1;
        // Segments that were skipped before this one count towards the offset, too.
        let size = self.metadata.as_ref().and_then(|metadata| metadata.segment_size);
        let hole = missed.saturating_mul(size.unwrap_or(0));
        let unwanted = hole.min(*skip);
        *skip -= unwanted;
        *left = left.saturating_sub(hole - unwanted);
        self.position = self.position.saturating_add(hole - unwanted);
        let is_part = self.range.start > 0 || self.range.end < u64::MAX;
        check_size(self.metadata.as_ref(), &data, segment, is_part || self.position > 0)?;
        let content = data.content;
        let passed = (*skip).min(content.len() as u64);
        let taken = (content.len() as u64 - passed).min(*left);
        *skip -= passed;
        *left -= taken;
        // All wanted bytes are in this packet or before it.
        flow.has_ended |= *left == 0;
        self.is_verified &= delivery.is_verified;
        if taken == 0 {
            flow.packet_done();
            return Ok(());
        }
        // `content` is a slice of the packet, so the difference of the addresses is its offset.
        let begin = content.as_ptr() as usize - delivery.packet.as_ptr() as usize + passed as usize;
        let octets = begin..begin + taken as usize;
        flow.current = Some((delivery.packet.clone(), octets));
        Ok(())
    }

    fn advance(&mut self, count: usize) {
        let Some(flow) = &mut self.active_fetch else { return };
        let Some((_, range)) = &mut flow.current else { return };
        let count = count.min(range.len());
        range.start += count;
        self.position += count as u64;
        if range.start == range.end {
            flow.current = None;
            flow.packet_done();
        }
    }
}

impl ActiveFetch {
    /// Regularly reports freed buffer space to the network thread.
    fn packet_done(&mut self) {
        self.unreported_packets += 1;
        if self.unreported_packets >= (self.inbox.capacity / 4).max(1) {
            self.inbox.release(std::mem::take(&mut self.unreported_packets));
        }
    }
}

/// Rejects a segment whose size differs from the metadata: it would shift all later offsets.
fn check_size(
    metadata: Option<&Metadata>,
    data: &DataView<'_>,
    segment: u64,
    counts: bool,
) -> Result<(), SocketError> {
    let Some(size) = metadata.and_then(|metadata| metadata.segment_size) else { return Ok(()) };
    let is_last = metadata.is_some_and(|metadata| metadata.last_segment == Some(segment));
    let len = data.content.len() as u64;
    if !counts || len == size || (is_last && len < size) {
        return Ok(());
    }
    Err(SocketError::NotVerified(format!(
        "segment {segment} has {len} bytes, but the metadata state {size}"
    )))
}

impl Read for Reader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if out.is_empty() {
            return Ok(0);
        }
        let octets = self.fill_buf()?;
        let count = octets.len().min(out.len());
        out[..count].copy_from_slice(&octets[..count]);
        self.consume(count);
        Ok(count)
    }
}

impl BufRead for Reader {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        match self.poll_fill(None) {
            Poll::Ready(result) => Ok(result?),
            Poll::Pending => unreachable!("blocks without a context"),
        }
    }

    fn consume(&mut self, count: usize) {
        self.advance(count);
    }
}

impl Seek for Reader {
    /// Moves to an offset in the object, or in the range. What was fetched for the old position is
    /// dropped.
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let here = self.position - self.range.start;
        let to = match to {
            SeekFrom::Start(to) => Some(to),
            SeekFrom::Current(by) => here.checked_add_signed(by),
            SeekFrom::End(by) => {
                let size = self.metadata()?.size_bytes;
                let unknown = || SocketError::Invalid("its length is unknown".into());
                let end = size.ok_or_else(unknown)?.min(self.range.end);
                end.saturating_sub(self.range.start).checked_add_signed(by)
            }
        };
        let Some(to) = to else {
            return Err(SocketError::Invalid("the position is before the start".into()).into());
        };
        if to != here {
            if self.metadata()?.next_segment.is_some() {
                return Err(SocketError::Invalid(
                    "the object grows, so it can only be read in order".into(),
                )
                .into());
            }
            // Later reads must use the version that was read before.
            self.metadata()?;
            self.position = self.range.start.saturating_add(to);
            self.active_fetch = None;
        }
        Ok(to)
    }
}

#[cfg(feature = "tokio")]
impl tokio::io::AsyncRead for Reader {
    fn poll_read(
        self: std::pin::Pin<&mut Self>,
        context: &mut task::Context<'_>,
        out: &mut tokio::io::ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let reader = self.get_mut();
        if out.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let octets = ready!(reader.poll_fill(Some(context)))?;
        let count = octets.len().min(out.remaining());
        out.put_slice(&octets[..count]);
        reader.advance(count);
        Poll::Ready(Ok(()))
    }
}

#[cfg(feature = "tokio")]
impl tokio::io::AsyncBufRead for Reader {
    fn poll_fill_buf(
        self: std::pin::Pin<&mut Self>,
        context: &mut task::Context<'_>,
    ) -> Poll<io::Result<&[u8]>> {
        self.get_mut().poll_fill(Some(context)).map_err(io::Error::from)
    }

    fn consume(self: std::pin::Pin<&mut Self>, count: usize) {
        self.get_mut().advance(count);
    }
}
