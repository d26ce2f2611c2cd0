//! Signs an object's segments: chunk by chunk, by several threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crossbeam_channel::{Sender, unbounded};
use weir_security::{SignError, Signer};
use weir_transport::{ContentDigest, SegmentTemplate};
use weir_wire::PACKET_SIZE_MAX;

use super::error::PublishError;
use super::sign_pool::{SignPoolHandle, SignTask};

/// Segments that a thread reads and signs at a time.
const CHUNK_SEGMENTS: u64 = 64;
/// Bytes of the longest common signature, ECDSA with P-256.
const TYPICAL_SIGNATURE_BYTES: usize = 72;
/// Room for the longest signature, RSA with 8192 bits.
const SIGNATURE_BYTES_MAX: usize = 1024;

/// Reads content to be signed, from an offset on.
pub(super) trait ReadAt: Fn(u64, &mut [u8]) -> Result<(), PublishError> + Sync {}

impl<R: Fn(u64, &mut [u8]) -> Result<(), PublishError> + Sync> ReadAt for R {}

/// The size of segments, which must leave room for signatures.
#[derive(Copy, Clone)]
struct ContentRoom {
    segment_size: usize,
    /// Bytes that packets must be shorter than the longest of NDN.
    reserved: usize,
    last_segment: u64,
}

impl ContentRoom {
    fn check(self, template: &SegmentTemplate, signature_len: usize) -> Result<(), PublishError> {
        let max = template.content_max(self.last_segment, signature_len);
        let max = max.saturating_sub(self.reserved);
        if self.segment_size <= max {
            Ok(())
        } else {
            Err(PublishError::SegmentSize { segment_size: self.segment_size, max })
        }
    }
}

/// The signer as seen by the threads of a job.
pub(super) trait SignerRef: Sync {
    fn signer(&self) -> &dyn Signer;
}

pub(super) struct BorrowedSigner<'a>(pub(super) &'a dyn Signer);
pub(super) struct SharedSigner(pub(super) Arc<dyn Signer>);

impl SignerRef for BorrowedSigner<'_> {
    fn signer(&self) -> &dyn Signer {
        self.0
    }
}

impl SignerRef for SharedSigner {
    fn signer(&self) -> &dyn Signer {
        &*self.0
    }
}

pub(super) struct Segments {
    pub(super) template: SegmentTemplate,
    pub(super) count: u64,
    pub(super) segment_size: u64,
    pub(super) size_bytes: u64,
}

/// The signing of all segments, shared by the threads.
pub(super) struct SignJob<S, R> {
    room: ContentRoom,
    pub(super) segments: Segments,
    signer: S,
    read: R,
    next_chunk: AtomicU64,
    is_stopped: AtomicBool,
}

pub(super) struct SignedChunk {
    chunk: u64,
    octets: u64,
    pub(super) signatures: Vec<Vec<u8>>,
    pub(super) digests: Vec<[u8; 32]>,
    pub(super) content_digest: ContentDigest,
}

impl<S: SignerRef, R: ReadAt> SignJob<S, R> {
    /// A job that signs the segments `of` an object, whose content `read` reads. Packets have at
    /// most `packet_bytes_max` bytes.
    ///
    /// # Errors
    /// Segments of this size leave no room for a signature.
    pub(super) fn new(
        of: Segments,
        packet_bytes_max: usize,
        signer: S,
        read: R,
    ) -> Result<Self, PublishError> {
        let room = ContentRoom {
            segment_size: of.segment_size as usize,
            reserved: PACKET_SIZE_MAX.saturating_sub(packet_bytes_max),
            last_segment: of.count - 1,
        };
        room.check(&of.template, TYPICAL_SIGNATURE_BYTES)?;
        Ok(Self {
            room,
            segments: of,
            signer,
            read,
            next_chunk: AtomicU64::new(0),
            is_stopped: AtomicBool::new(false),
        })
    }

    fn chunks(&self) -> u64 {
        self.segments.count.div_ceil(CHUNK_SEGMENTS)
    }

    pub(super) fn run(
        &self,
        threads: usize,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Vec<SignedChunk>, PublishError> {
        let chunks = self.chunks();
        let threads = threads.clamp(1, 64).min(chunks as usize);
        if chunks == 1 {
            // A small file, the usual case: starting a thread would cost more than signing.
            let signed = self.sign_chunk(0, &mut Vec::new(), &mut Vec::new())?;
            let keep_going = progress(signed.octets);
            return keep_going.then(|| vec![signed]).ok_or(PublishError::Stopped);
        }
        let (send, receive) = unbounded();
        let mut done: Vec<SignedChunk> = Vec::with_capacity(chunks as usize);
        let result = std::thread::scope(|scope| {
            for _ in 0..threads {
                let send = send.clone();
                scope.spawn(move || self.work(&send));
            }
            drop(send);
            let mut octets = 0;
            for signed in receive {
                let signed: SignedChunk = match signed {
                    Ok(signed) => signed,
                    Err(error) => {
                        self.is_stopped.store(true, Ordering::Relaxed);
                        return Err(error);
                    }
                };
                octets += signed.octets;
                done.push(signed);
                if !progress(octets) {
                    self.is_stopped.store(true, Ordering::Relaxed);
                    return Err(PublishError::Stopped);
                }
            }
            Ok(())
        });
        result?;
        done.sort_unstable_by_key(|signed| signed.chunk);
        Ok(done)
    }

    fn work(&self, results: &Sender<Result<SignedChunk, PublishError>>) {
        let (mut content, mut scratch) = (Vec::new(), Vec::new());
        while let Some(chunk) = self.next_chunk() {
            let signed = self.sign_chunk(chunk, &mut content, &mut scratch);
            let is_failed = signed.is_err();
            if results.send(signed).is_err() || is_failed {
                return;
            }
        }
    }

    /// The next chunk that no thread has taken.
    fn next_chunk(&self) -> Option<u64> {
        let chunk = self.next_chunk.fetch_add(1, Ordering::Relaxed);
        let keep_going = !self.is_stopped.load(Ordering::Relaxed);
        Some(chunk).filter(|&chunk| keep_going && chunk < self.chunks())
    }

    fn sign_chunk(
        &self,
        chunk: u64,
        content: &mut Vec<u8>,
        scratch: &mut Vec<u8>,
    ) -> Result<SignedChunk, PublishError> {
        let first = chunk * CHUNK_SEGMENTS;
        let count = (self.segments.count - first).min(CHUNK_SEGMENTS);
        let offset = first * self.segments.segment_size;
        let octets = (self.segments.size_bytes - offset).min(count * self.segments.segment_size);
        content.resize(octets as usize, 0);
        (self.read)(offset, content)?;
        // Splits into `count` segments. `slice::chunks` would not do: it yields none for an empty
        // object, which has one empty segment.
        let (mut contents, mut remaining) = (Vec::with_capacity(count as usize), &content[..]);
        for _ in 0..count {
            let (content, tail) =
                remaining.split_at(remaining.len().min(self.segments.segment_size as usize));
            contents.push(content);
            remaining = tail;
        }
        let mut signatures = Vec::with_capacity(count as usize);
        for (segment, content) in (first..).zip(&contents) {
            let signature =
                self.segments.template.sign(segment, content, self.signer.signer(), scratch)?;
            if signature.len() > SIGNATURE_BYTES_MAX {
                return Err(PublishError::Sign(SignError::Provider));
            }
            // `new` checked only that a typical signature fits into the packet.
            if signature.len() > TYPICAL_SIGNATURE_BYTES {
                self.room.check(&self.segments.template, signature.len())?;
            }
            signatures.push(signature);
        }
        let digests = self.segments.template.digests(first, &contents, &signatures, scratch);
        let mut content_digest = ContentDigest::default();
        content_digest.add_all(&contents);
        Ok(SignedChunk { chunk, octets, signatures, digests, content_digest })
    }
}

impl<S: SignerRef + Send + 'static, R: ReadAt + Send + 'static> SignJob<S, R> {
    /// Signs with this thread and free threads of `signers`, at most `threads` in total, while
    /// `keep_going` returns true.
    pub(super) fn run_with(
        self: &Arc<Self>,
        signers: &SignPoolHandle,
        threads: usize,
        keep_going: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<SignedChunk>, PublishError> {
        let result = self.sign_with(signers, threads, keep_going);
        // After an error, other threads need not sign the remaining chunks.
        self.is_stopped.store(true, Ordering::Relaxed);
        let mut done = result?;
        done.sort_unstable_by_key(|signed| signed.chunk);
        Ok(done)
    }

    fn sign_with(
        self: &Arc<Self>,
        signers: &SignPoolHandle,
        threads: usize,
        keep_going: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<SignedChunk>, PublishError> {
        let chunks = self.chunks() as usize;
        let (send, receive) = unbounded();
        for _ in 1..threads.min(chunks) {
            let (job, send) = (self.clone(), send.clone());
            signers.submit(SignTask::long(move |_| job.work(&send)));
        }
        drop(send);
        let mut done: Vec<SignedChunk> = Vec::with_capacity(chunks);
        let (mut content, mut scratch) = (Vec::new(), Vec::new());
        while done.len() < chunks {
            // This thread signs until no chunk is left, and then waits for those of others.
            match self.next_chunk() {
                Some(chunk) => done.push(self.sign_chunk(chunk, &mut content, &mut scratch)?),
                None => done.push(receive.recv().map_err(|_| PublishError::Stopped)??),
            }
            if !keep_going() {
                return Err(PublishError::Stopped);
            }
        }
        Ok(done)
    }
}
