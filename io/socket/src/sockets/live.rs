//! Objects that grow while they are read.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_base::{NS_PER_MS, Packet};
use weir_face::unix_time_ms;
use weir_security::{SignatureFormat, sign_data_as};
use weir_transport::{Metadata, NameMapping};
use weir_wire::{Component, Data, Name, PACKET_SIZE_MAX};

use super::latest::GrowthUpdate;
use super::outbound::{EndpointSender, Identity};
use super::pending::{PendingBytes, PublishConfirmation};
use super::producer_endpoint::ProducerCommand;
use super::{Pending, ProducerOptions, SocketError, check_packet};

/// Publishes a growing object, such as a live stream: see
/// [`Producer::publish_live`](super::Producer::publish_live). As [`io::Write`] it makes at least
/// one segment of each write; put a `BufWriter` around it for larger ones.
///
/// Each segment is signed by itself, and so are the metadata, which change with each call. Segments
/// stay in the output buffer like others. If it is dropped without [`finish`](LiveWriter::finish),
/// the object has no end, and its readers fail when they learn of it.
pub struct LiveWriter {
    outbound: EndpointSender,
    identity: Identity,
    object: Name,
    versioned: Name,
    mapping: NameMapping,
    /// The name of the version in the network.
    network_prefix: Name,
    signature_format: SignatureFormat,
    segment_size: usize,
    packet_bytes_max: usize,
    freshness_ms: u64,
    metadata_freshness_ms: u64,
    output_bytes: u64,
    /// Bytes that may be pending when more is appended without waiting.
    pending_bytes_max: u64,
    /// Bytes of packets that the network thread has not taken.
    pending_bytes: Arc<AtomicU64>,
    next: u64,
    is_finished: bool,
}

impl LiveWriter {
    pub(super) fn new(
        outbound: EndpointSender,
        identity: Identity,
        options: &ProducerOptions,
        (object, version): (Name, u64),
    ) -> Result<(Self, Pending<()>), SocketError> {
        let versioned = object.clone().append_version(version).clone();
        let mapping = options.mapping;
        let writer = Self {
            outbound,
            identity,
            object,
            network_prefix: mapping.version_prefix(versioned.as_view()),
            mapping,
            signature_format: options.signature_format.0,
            versioned,
            segment_size: options.segment_size.bytes as usize,
            packet_bytes_max: PACKET_SIZE_MAX,
            freshness_ms: options.freshness.ns / NS_PER_MS,
            metadata_freshness_ms: options.metadata_freshness.ns / NS_PER_MS,
            output_bytes: options.buffer_bytes(),
            pending_bytes_max: options.output_buffer.bytes,
            pending_bytes: Arc::default(),
            next: 0,
            is_finished: false,
        };
        let begun = writer.submit_growth(Vec::new(), 0, None)?;
        Ok((writer, begun))
    }

    /// Limits segments to what the connection to the router can carry.
    pub(super) fn limit_packets(&mut self, packet_bytes_max: usize) {
        self.packet_bytes_max = packet_bytes_max;
    }

    pub fn versioned(&self) -> &Name {
        &self.versioned
    }

    /// The number of the segment that is made next.
    pub fn next_segment(&self) -> u64 {
        self.next
    }

    /// Publishes new content, in one segment or in several of at most
    /// [`segment_size`](ProducerOptions::segment_size). Returns when waiting and later requests get
    /// it.
    ///
    /// # Errors
    /// [`SocketError::TooLong`] for the output buffer or, as a segment, for a packet;
    /// [`SocketError::Invalid`] if hICN names have no suffix for the segments;
    /// [`SocketError::Closed`]. Nothing has been published then.
    pub fn append(&mut self, content: &[u8]) -> Result<(), SocketError> {
        self.publish_segments(content, false)?.wait()
    }

    /// As [`LiveWriter::append`], but waits only for signing. Content is published in the order of
    /// the calls; the returned value completes when it is.
    ///
    /// # Errors
    /// [`SocketError::TooLong`]. [`SocketError::Refused`] while as many bytes are pending as
    /// [`output_buffer`](ProducerOptions::output_buffer) holds, including headers and signatures:
    /// wait for an earlier result. Nothing has been published then. [`SocketError::Closed`], now or
    /// as the result.
    pub fn append_async(&mut self, content: &[u8]) -> Result<Pending<()>, SocketError> {
        if self.pending_bytes.load(Ordering::Relaxed) >= self.pending_bytes_max {
            return Err(SocketError::Refused(
                "too much is pending; wait for an earlier append".into(),
            ));
        }
        self.publish_segments(content, false)
    }

    /// Ends the object, with an empty segment.
    ///
    /// # Errors
    /// [`SocketError::Closed`].
    pub fn finish(self) -> Result<(), SocketError> {
        self.finish_async()?.wait()
    }

    /// As [`LiveWriter::finish`], but waits only for signing.
    ///
    /// # Errors
    /// [`SocketError::Closed`], now or as the result.
    pub fn finish_async(mut self) -> Result<Pending<()>, SocketError> {
        self.publish_segments(&[], true)
    }

    fn publish_segments(
        &mut self,
        content: &[u8],
        is_last: bool,
    ) -> Result<Pending<()>, SocketError> {
        if content.len() as u64 > self.output_bytes {
            return Err(SocketError::TooLong { max_bytes: self.output_bytes });
        }
        // The end of an object is an empty segment, so even no content makes one.
        let count = content.len().div_ceil(self.segment_size).max(1) as u64;
        // One more segment, which ends the object, must have a name as well.
        let next = self.next + count;
        let highest = if is_last { next - 1 } else { next };
        let check = self.mapping.check_last(highest);
        check.map_err(|error| SocketError::Invalid(error.to_string()))?;
        let last = is_last.then(|| next - 1);
        let mut packets = Vec::with_capacity(count as usize);
        for at in 0..count as usize {
            let start = at * self.segment_size;
            let end = content.len().min(start + self.segment_size);
            let name = self.network_prefix.clone().append_segment(self.next + at as u64).clone();
            let mut data = Data::new(name).freshness_ms(self.freshness_ms);
            data = data.content(&content[start..end]);
            if let Some(last) = last {
                data = data.final_block_id(Component::segment(last));
            }
            packets.push(self.sign(&data)?);
        }
        let done = self.submit_growth(packets, next, last)?;
        self.next = next;
        self.is_finished = is_last;
        Ok(done)
    }

    /// Sends new segments, and the metadata that announce them, to the network thread.
    fn submit_growth(
        &self,
        packets: Vec<Packet>,
        next: u64,
        last_segment: Option<u64>,
    ) -> Result<Pending<()>, SocketError> {
        let metadata = Metadata {
            last_segment,
            next_segment: Some(next),
            certificate: self.identity.certificate.clone(),
            ..Metadata::new(self.versioned.clone())
        };
        let number = self.outbound.next_version();
        let name = self.mapping.metadata_name(self.object.as_view(), number);
        let last = Component::from(name.as_view().last().expect("the name ends in a number"));
        let data = Data::new(name)
            .freshness_ms(self.metadata_freshness_ms)
            .final_block_id(last)
            .content(metadata.encode());
        let metadata = self.sign(&data)?;
        let octets = packets.iter().chain([&metadata]).map(|packet| packet.len() as u64).sum();
        // The bytes are pending until the network thread has taken them. `append_async` refuses
        // more while too many are pending.
        let under_way = PendingBytes::new(&self.pending_bytes, octets);
        let next = last_segment.is_none().then_some(next);
        let growth = GrowthUpdate { versioned: self.versioned.clone(), next };
        self.outbound.send_pending(|confirmation| {
            let confirmation = PublishConfirmation::PublishedBytes(confirmation, under_way);
            ProducerCommand::Grown { packets, metadata, growth, confirmation }
        })
    }

    fn sign(&self, data: &Data) -> Result<Packet, SocketError> {
        let signer = &*self.identity.signer;
        let packet = sign_data_as(self.signature_format, data, signer, unix_time_ms())
            .map_err(|error| SocketError::Invalid(error.to_string()))?;
        check_packet(&packet, self.packet_bytes_max)?;
        Ok(packet.into())
    }
}

impl Drop for LiveWriter {
    fn drop(&mut self) {
        if !self.is_finished {
            let versioned = self.versioned.clone();
            // If the thread is gone, so is the object.
            let _ = self.outbound.send(ProducerCommand::LiveAbandoned { versioned });
        }
    }
}

impl io::Write for LiveWriter {
    fn write(&mut self, content: &[u8]) -> io::Result<usize> {
        if !content.is_empty() {
            self.append(content)?;
        }
        Ok(content.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crossbeam_channel::{Receiver, unbounded};
    use weir_base::units::Size;
    use weir_security::DigestSigner;

    use super::*;
    use weir_client::{EndpointId, Waker};

    const MIB: u64 = 1 << 20;

    fn outbound() -> (EndpointSender, Receiver<ProducerCommand>) {
        let (outlet, received) = unbounded();
        let waker = Arc::new(Waker::new().unwrap());
        (EndpointSender::new(outlet, waker.endpoint(EndpointId(0))), received)
    }

    #[test]
    fn suffixes_of_hicn_names_end() {
        const SEGMENTS_MAX: u64 = 1 << 30;
        let (outbound, received) = outbound();
        let mut options = ProducerOptions::default();
        options.set("mapping", "hicn:2001:db8::/32").unwrap();
        let (identity, object) = (Identity::new(DigestSigner), "/p/live".parse().unwrap());
        let (mut writer, _begun) =
            LiveWriter::new(outbound, identity, &options, (object, 1)).unwrap();
        writer.next = SEGMENTS_MAX - 2;
        let first = writer.append_async(b"text").unwrap();
        let waiting = received.len();
        let error = writer.append_async(b"more").err().unwrap();
        assert!(error.to_string().contains("has no hICN name"), "{error}");
        assert_eq!((writer.next_segment(), received.len()), (SEGMENTS_MAX - 1, waiting));
        // The last suffix is that of the end.
        let last = writer.finish_async().unwrap();
        drop(received);
        assert_eq!([first.wait(), last.wait()], [const { Err(SocketError::Closed) }; 2]);
    }

    #[test]
    fn limits_async_appends() {
        let (outbound, received) = outbound();
        let options =
            ProducerOptions { output_buffer: Size { bytes: MIB }, ..ProducerOptions::default() };
        let (identity, object) = (Identity::new(DigestSigner), "/p/live".parse().unwrap());
        let (mut writer, begun) =
            LiveWriter::new(outbound, identity, &options, (object, 1)).unwrap();
        // No thread takes anything.
        let content = vec![0; 600_000];
        let pending = [(); 2].map(|()| writer.append_async(&content).unwrap());
        let (next, waiting) = (writer.next_segment(), received.len());
        assert!(matches!(writer.append_async(b"more"), Err(SocketError::Refused(_))));
        assert_eq!((writer.next_segment(), received.len()), (next, waiting));
        for received in received.try_iter() {
            let ProducerCommand::Grown { confirmation, .. } = received else {
                panic!("only growth is published")
            };
            confirmation.confirm();
        }
        assert_eq!(begun.wait(), Ok(()));
        assert!(pending.into_iter().all(|pending| pending.wait() == Ok(())));
        assert_eq!(writer.pending_bytes.load(Ordering::Relaxed), 0);
        // Many small segments are bounded as well, by the size of their packets.
        let count = (0..MIB).map_while(|_| writer.append_async(b"1").ok()).count();
        assert!((1..10_000).contains(&count), "{count}");
        // The end can be published nevertheless.
        let last = writer.finish_async().unwrap();
        drop(received);
        assert_eq!(last.wait(), Err(SocketError::Closed));
    }
}
