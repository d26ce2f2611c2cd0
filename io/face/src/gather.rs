//! Collects the frames of a link into the slices of one `sendmsg` call.

use std::cell::RefCell;
use std::io::IoSlice;

use weir_link::Link;

pub(crate) const IO_SLICES_MAX: usize = 128;
/// Bytes per call: enough to amortize the call, few enough to stay in the cache.
const BATCH_BYTES_MAX: usize = 256 * 1024;
/// Smaller frames are copied together, because a slice of their own costs more.
const COPY_BYTES_MAX: usize = 512;
const STAGING_BYTES: usize = 64 * 1024;

thread_local! {
    static STAGING: RefCell<Box<[u8]>> = RefCell::new(vec![0; STAGING_BYTES].into());
}

#[derive(Copy, Clone)]
enum BatchSlice<'a> {
    Copied { start: usize, end: usize },
    Borrowed(&'a [u8]),
}

struct Batch<'a> {
    pieces: [BatchSlice<'a>; IO_SLICES_MAX],
    count: usize,
    bytes: usize,
    staged: usize,
}

impl<'a> Batch<'a> {
    fn has_room_for(&self, prefix: &[u8], payload: &[u8]) -> bool {
        let staged_len = if is_small(prefix, payload) { COPY_BYTES_MAX } else { prefix.len() };
        self.count + 2 <= IO_SLICES_MAX
            && self.staged + staged_len <= STAGING_BYTES
            && self.bytes < BATCH_BYTES_MAX
    }

    fn push(&mut self, prefix: &'a [u8], payload: &'a [u8], staging: &mut [u8]) {
        self.stage(prefix, staging);
        if is_small(prefix, payload) {
            self.stage(payload, staging);
        } else {
            self.pieces[self.count] = BatchSlice::Borrowed(payload);
            self.count += 1;
        }
        self.bytes += prefix.len() + payload.len();
    }

    fn stage(&mut self, octets: &[u8], staging: &mut [u8]) {
        if octets.is_empty() {
            return;
        }
        let (start, end) = (self.staged, self.staged + octets.len());
        staging[start..end].copy_from_slice(octets);
        self.staged = end;
        // Consecutive copies are adjacent in `staging`, so they share one slice.
        if let Some(BatchSlice::Copied { end: last, .. }) = self.pieces[..self.count].last_mut() {
            *last = end;
        } else {
            self.pieces[self.count] = BatchSlice::Copied { start, end };
            self.count += 1;
        }
    }
}

fn is_small(prefix: &[u8], payload: &[u8]) -> bool {
    prefix.len() + payload.len() <= COPY_BYTES_MAX
}

/// Calls `send` with the bytes of the link's oldest frames, without the first `skip` bytes, which
/// were sent before.
pub(crate) fn with_io_slices<R>(
    link: &Link,
    skip: usize,
    send: impl FnOnce(&[IoSlice<'_>]) -> R,
) -> R {
    STAGING.with_borrow_mut(|staging| {
        let mut batch = Batch {
            pieces: [BatchSlice::Borrowed(&[]); IO_SLICES_MAX],
            count: 0,
            bytes: 0,
            staged: 0,
        };
        let mut skip = skip;
        for frame in link.frames() {
            let prefix = &frame.prefix()[skip.min(frame.prefix().len())..];
            let payload = &frame.payload()[skip.saturating_sub(frame.prefix().len())..];
            if !batch.has_room_for(prefix, payload) {
                break;
            }
            batch.push(prefix, payload, staging);
            // Only the oldest frame can have been sent in part.
            skip = 0;
        }
        let mut slices = [IoSlice::new(&[]); IO_SLICES_MAX];
        for (slice, piece) in slices.iter_mut().zip(&batch.pieces[..batch.count]) {
            *slice = IoSlice::new(match *piece {
                BatchSlice::Copied { start, end } => &staging[start..end],
                BatchSlice::Borrowed(octets) => octets,
            });
        }
        send(&slices[..batch.count])
    })
}
