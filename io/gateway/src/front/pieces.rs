//! Verified content in bounded memory, in pieces. All requests share it, so popular content is
//! fetched and hashed once.
//!
//! A piece is about 1 MiB of one version. A *run* fetches consecutive pieces with one consumer, so
//! that the congestion controller sees one long transfer. A cursor reads pieces in order:
//!
//! 1. It takes a piece that is complete or that a run is fetching. It follows the latter while it
//!    grows.
//! 2. If there is none, it adds the piece. The run of the piece before it continues with it, if
//!    there is one; otherwise a new run starts.
//! 3. It also adds the next two pieces, so that the run does not pause between pieces.
//!
//! A run never fetches a piece that no cursor has added, so a client that reads slowly, or leaves,
//! stops it. Only complete pieces are evicted, the one that was read longest ago first. A cursor
//! holds no piece while its client does not read: if it is evicted meanwhile, it is fetched again.
//!
//! The memory of all pieces and of what runs have received is bounded. A cursor waits until there
//! is room for its piece. Without room for more, runs are only a little ahead of it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use lru::LruCache;
use tokio::sync::{Notify, oneshot};
use weir_base::units::Size;
use weir_socket::{Consumer, ConsumerOptions, Reader, SocketError};
use weir_transport::Metadata;
use weir_wire::Name;

use super::consumers::Consumers;

/// Upper bound of bytes of a piece.
const PIECE_BYTES: u64 = 1 << 20;
/// Bytes of a chunk of a piece that is being fetched slower than it is read.
const CHUNK_BYTES: usize = 256 << 10;
/// Chunks of a complete piece. A slow fetch makes more, of one packet each.
const CHUNKS_MAX: u64 = 2 * PIECE_BYTES / CHUNK_BYTES as u64;
/// Pieces that are fetched before they are read.
const PIECES_AHEAD: u64 = 2;
/// How long a run waits for the next piece to be wanted.
const RUN_IDLE_MAX: Duration = Duration::from_secs(10);
/// How long a cursor waits for memory.
const MEMORY_WAIT: Duration = Duration::from_secs(30);
/// How far a run receives ahead of what is read: three slices of the origin. It receives one while
/// it signs another, and sends the third.
const INPUT_BYTES: u64 = 6 << 20;
/// The same without memory for more.
const INPUT_BYTES_MIN: u64 = 256 << 10;

/// The memory that pieces and runs share.
struct Budget {
    used: AtomicU64,
    max: u64,
    /// Memory was given back, or a piece can be evicted now.
    freed: Notify,
}

/// A share of the budget.
struct Reservation {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Budget {
    fn has_room(&self, bytes: u64) -> bool {
        self.used.load(Ordering::Relaxed) + bytes <= self.max
    }

    fn reserve(self: &Arc<Self>, bytes: u64) -> Reservation {
        self.used.fetch_add(bytes, Ordering::Relaxed);
        Reservation { budget: self.clone(), bytes }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
        self.budget.freed.notify_waiters();
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct PieceId {
    versioned: Name,
    index: u64,
}

impl PieceId {
    fn next(&self) -> Self {
        Self { versioned: self.versioned.clone(), index: self.index + 1 }
    }
}

/// A piece, complete or not.
struct Piece {
    /// Index of the last piece of the run that fetches it.
    run_last: u64,
    content: Mutex<PieceContent>,
    /// Content was added, or the outcome is known.
    changed: Notify,
    _memory: Reservation,
}

#[derive(Default)]
struct PieceContent {
    chunks: Vec<Bytes>,
    len: u64,
    /// Set when no more is added. An error fails the requests that read so far.
    outcome: Option<Result<(), SocketError>>,
    /// A run fetches it.
    has_run: bool,
}

impl Piece {
    fn new(run_last: u64, memory: Reservation) -> Arc<Self> {
        let (content, changed) = (Mutex::default(), Notify::new());
        Arc::new(Self { run_last, content, changed, _memory: memory })
    }

    fn content(&self) -> MutexGuard<'_, PieceContent> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, chunk: Bytes) {
        let mut content = self.content();
        content.len += chunk.len() as u64;
        content.chunks.push(chunk);
        drop(content);
        self.changed.notify_waiters();
    }

    fn end(&self, outcome: Result<(), SocketError>) {
        self.content().outcome = Some(outcome);
        self.changed.notify_waiters();
    }

    /// Marks it as fetched by a run. Returns false if it already was.
    fn take(&self) -> bool {
        !std::mem::replace(&mut self.content().has_run, true)
    }

    /// The bytes from an offset on, once there are some. `None` at the end of the piece.
    async fn read(&self, offset: u64) -> Result<Option<Bytes>, SocketError> {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            {
                let content = self.content();
                if offset < content.len {
                    return Ok(Some(chunk_at(&content.chunks, offset)));
                }
                if let Some(outcome) = &content.outcome {
                    return outcome.clone().map(|()| None);
                }
            }
            changed.await;
        }
    }
}

fn chunk_at(chunks: &[Bytes], mut offset: u64) -> Bytes {
    for chunk in chunks {
        match offset.checked_sub(chunk.len() as u64) {
            Some(rest) => offset = rest,
            None => return chunk.slice(offset as usize..),
        }
    }
    Bytes::new()
}

struct PiecesState {
    pieces: LruCache<PieceId, Arc<Piece>>,
    /// Runs that wait for their next piece, each with the index of its last one.
    idle_runs: HashMap<PieceId, (u64, oneshot::Sender<Arc<Piece>>)>,
}

/// The pieces of all versions.
pub(super) struct Pieces {
    consumers: Arc<Consumers>,
    budget: Arc<Budget>,
    state: Mutex<PiecesState>,
}

impl Pieces {
    pub(super) fn new(consumers: Arc<Consumers>, bytes_max: u64) -> Arc<Self> {
        let (pieces, idle_runs) = (LruCache::unbounded(), HashMap::new());
        let state = Mutex::new(PiecesState { pieces, idle_runs });
        // One piece always has room.
        let (used, max) = (AtomicU64::new(0), bytes_max.max(2 * PIECE_BYTES));
        Arc::new(Self {
            consumers,
            budget: Arc::new(Budget { used, max, freed: Notify::new() }),
            state,
        })
    }

    fn state(&self) -> MutexGuard<'_, PiecesState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of memory that pieces and runs use.
    pub(super) fn bytes(&self) -> u64 {
        self.budget.used.load(Ordering::Relaxed)
    }

    /// Reads a range of bytes of a version. The end may be unknown (`u64::MAX`).
    pub(super) fn cursor(
        self: &Arc<Self>,
        metadata: Arc<Metadata>,
        start: u64,
        end: u64,
    ) -> Cursor {
        let end = metadata.size_bytes.map_or(end, |size| end.min(size));
        let piece_bytes = piece_bytes(&metadata);
        let ran_dry = start >= end;
        Cursor { pieces: self.clone(), metadata, piece_bytes, at: start, end, piece: None, ran_dry }
    }

    /// The piece. Begins to fetch it if necessary, by a run up to the piece `last`. `None`: there
    /// is no room for it.
    fn get(
        self: &Arc<Self>,
        metadata: &Arc<Metadata>,
        index: u64,
        last: u64,
    ) -> Option<Arc<Piece>> {
        let id = PieceId { versioned: metadata.versioned.clone(), index };
        let mut state = self.state();
        if let Some(piece) = state.pieces.get(&id) {
            return Some(piece.clone());
        }
        let memory = self.make_room(&mut state, bytes_of_piece(metadata, index))?;
        if let Some((run_last, run)) = state.idle_runs.remove(&id) {
            let piece = Piece::new(run_last, memory);
            piece.take();
            if run.send(piece.clone()).is_ok() {
                state.pieces.put(id, piece.clone());
                return Some(piece);
            }
            // It has just ended.
            drop((piece, state));
            return self.get(metadata, index, last);
        }
        // A run that fetches the piece before this one continues with it, unless it ends there.
        let before = index.checked_sub(1).map(|before| PieceId { index: before, ..id.clone() });
        let before = before.and_then(|before| state.pieces.peek(&before));
        let run_last = before
            .filter(|before| before.run_last >= index && before.content().outcome.is_none())
            .map(|before| before.run_last);
        let piece = Piece::new(run_last.unwrap_or(last), memory);
        if run_last.is_some() {
            state.pieces.put(id, piece.clone());
            return Some(piece);
        }
        piece.take();
        Some(self.start_run(state, metadata, id, last, piece))
    }

    fn start_run(
        self: &Arc<Self>,
        mut state: MutexGuard<'_, PiecesState>,
        metadata: &Arc<Metadata>,
        id: PieceId,
        last: u64,
        piece: Arc<Piece>,
    ) -> Arc<Piece> {
        state.pieces.put(id.clone(), piece.clone());
        let size = metadata.size_bytes.unwrap_or(u64::MAX);
        let rest = size.saturating_sub(id.index.saturating_mul(piece_bytes(metadata)));
        let ahead = self.make_room(&mut state, INPUT_BYTES.min(rest));
        let ahead = ahead.unwrap_or_else(|| self.budget.reserve(INPUT_BYTES_MIN.min(rest)));
        drop(state);
        let run = Run { pieces: self.clone(), metadata: metadata.clone(), id, last, ahead };
        tokio::spawn(run.fetch(piece.clone()));
        piece
    }

    /// Reserves memory, after it has evicted pieces if necessary.
    fn make_room(&self, state: &mut PiecesState, bytes: u64) -> Option<Reservation> {
        // The least recently read pieces are at the end. Those that are being fetched stay.
        let mut kept = Vec::new();
        while !self.budget.has_room(bytes)
            && let Some((id, piece)) = state.pieces.pop_lru()
        {
            if piece.content().outcome.is_none() {
                kept.push((id, piece));
            }
        }
        for (id, piece) in kept {
            state.pieces.put(id, piece);
        }
        self.budget.has_room(bytes).then(|| self.budget.reserve(bytes))
    }

    /// Ends a piece that is not kept, and those after it that no run has begun.
    fn end_run(&self, mut id: PieceId, piece: &Arc<Piece>, outcome: Result<(), SocketError>) {
        let mut state = self.state();
        if state.pieces.peek(&id).is_some_and(|it| Arc::ptr_eq(it, piece)) {
            state.pieces.pop(&id);
        }
        piece.end(outcome.clone());
        loop {
            id = id.next();
            let Some(next) = state.pieces.peek(&id) else { return };
            if !next.take() {
                return;
            }
            next.end(outcome.clone());
            state.pieces.pop(&id);
        }
    }
}

/// Bytes of a piece. The last one of a version of unknown size counts in full.
fn bytes_of_piece(metadata: &Metadata, index: u64) -> u64 {
    let (bytes, size) = (piece_bytes(metadata), metadata.size_bytes.unwrap_or(u64::MAX));
    size.saturating_sub(index.saturating_mul(bytes)).min(bytes)
}

/// Bytes of each piece of a version, a multiple of its segment size.
fn piece_bytes(metadata: &Metadata) -> u64 {
    match metadata.segment_size {
        Some(size @ 1..=PIECE_BYTES) => PIECE_BYTES / size * size,
        _ => PIECE_BYTES,
    }
}

/// Reads pieces in order.
pub(super) struct Cursor {
    pieces: Arc<Pieces>,
    metadata: Arc<Metadata>,
    piece_bytes: u64,
    at: u64,
    end: u64,
    /// Held only if the size of the version is unknown: after its last bytes, it says that it ends.
    piece: Option<(u64, Arc<Piece>)>,
    ran_dry: bool,
}

impl Cursor {
    /// The next bytes; `None` at the end.
    ///
    /// # Errors
    /// The rest cannot be fetched.
    pub(super) async fn next(&mut self) -> Option<Result<Bytes, SocketError>> {
        while !self.ran_dry {
            let (index, offset) = (self.at / self.piece_bytes, self.at % self.piece_bytes);
            let read = match self.open(index).await {
                Ok(piece) => piece.read(offset).await,
                Err(error) => Err(error),
            };
            match read {
                Ok(Some(mut chunk)) => {
                    chunk.truncate((self.end - self.at).min(chunk.len() as u64) as usize);
                    self.at += chunk.len() as u64;
                    self.ran_dry = self.at >= self.end;
                    return Some(Ok(chunk));
                }
                // Only the last piece of a version of unknown size may be short.
                Ok(None) if self.metadata.size_bytes.is_none() => self.ran_dry = true,
                Ok(None) => {
                    self.ran_dry = true;
                    return Some(Err(SocketError::NotVerified(
                        "the object is shorter than its metadata state".into(),
                    )));
                }
                Err(error) => {
                    self.ran_dry = true;
                    return Some(Err(error));
                }
            }
        }
        None
    }

    /// The piece, when there is room for it.
    async fn open(&mut self, index: u64) -> Result<Arc<Piece>, SocketError> {
        if let Some((number, piece)) = &self.piece
            && *number == index
        {
            return Ok(piece.clone());
        }
        let last = self.end.saturating_sub(1) / self.piece_bytes;
        let piece = tokio::time::timeout(MEMORY_WAIT, self.wait_for_piece(index, last)).await;
        let piece = piece.map_err(|_| {
            let reason = "the gateway has no memory for one more object; try again later";
            SocketError::Refused(reason.to_owned())
        })?;
        for next in index + 1..=last.min(index + PIECES_AHEAD) {
            self.pieces.get(&self.metadata, next, last);
        }
        if self.metadata.size_bytes.is_none() {
            self.piece = Some((index, piece.clone()));
        }
        Ok(piece)
    }

    async fn wait_for_piece(&self, index: u64, last: u64) -> Arc<Piece> {
        loop {
            let freed = self.pieces.budget.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            if let Some(piece) = self.pieces.get(&self.metadata, index, last) {
                return piece;
            }
            freed.await;
        }
    }
}

/// Fetches consecutive pieces.
struct Run {
    pieces: Arc<Pieces>,
    metadata: Arc<Metadata>,
    /// The piece that it fetches.
    id: PieceId,
    /// Index of the last piece that the request wants.
    last: u64,
    /// The memory of what is received ahead of the pieces.
    ahead: Reservation,
}

impl Run {
    async fn fetch(mut self, first: Arc<Piece>) {
        let piece_bytes = piece_bytes(&self.metadata);
        let start = self.id.index * piece_bytes;
        let end = self.last.saturating_add(1).saturating_mul(piece_bytes);
        let size = self.metadata.size_bytes.unwrap_or(u64::MAX);
        let (consumer, range) = (self.consumer(), start..end.min(size));
        let reader = match self.metadata.size_bytes {
            Some(_) => consumer.fetch_found(&self.metadata, range),
            // There may be a manifest that these metadata do not describe.
            None => consumer.fetch_range(&self.metadata.versioned, range),
        };
        let mut reader = match reader {
            Ok(reader) => reader,
            Err(error) => return self.pieces.end_run(self.id, &first, Err(error)),
        };
        let mut piece = first;
        let mut left_over = Bytes::new();
        loop {
            let wanted = piece_bytes.min(size.saturating_sub(self.id.index * piece_bytes));
            match fill(&mut reader, &piece, wanted, &mut left_over).await {
                Ok(true) => {
                    piece.end(Ok(()));
                    self.pieces.budget.freed.notify_waiters();
                }
                // The object ends here.
                Ok(false) => return self.pieces.end_run(self.id, &piece, Ok(())),
                Err(error) => return self.pieces.end_run(self.id, &piece, Err(error)),
            }
            if self.id.index >= self.last || (self.id.index + 1).saturating_mul(piece_bytes) >= size
            {
                return;
            }
            self.id = self.id.next();
            match self.next_piece().await {
                Some(next) => piece = next,
                None => return,
            }
        }
    }

    /// A consumer that receives as far ahead as there is memory.
    fn consumer(&self) -> Consumer {
        let object = self.metadata.versioned.as_view().parent().to_name();
        let mut consumer = self.pieces.consumers.of(&object);
        let input_buffer = Size { bytes: self.ahead.bytes.max(INPUT_BYTES_MIN) };
        let options = ConsumerOptions { input_buffer, ..consumer.options().clone() };
        consumer.set_options(options).expect("only the input buffer differs, and it is in range");
        consumer
    }

    /// The next piece, if it is wanted and no other run fetches it.
    async fn next_piece(&self) -> Option<Arc<Piece>> {
        let mut added = {
            let mut state = self.pieces.state();
            if let Some(next) = state.pieces.peek(&self.id) {
                return next.take().then(|| next.clone());
            }
            let (run, added) = oneshot::channel();
            match state.idle_runs.entry(self.id.clone()) {
                // Another run waits for the same piece.
                Entry::Occupied(_) => return None,
                Entry::Vacant(entry) => entry.insert((self.last, run)),
            };
            added
        };
        match tokio::time::timeout(RUN_IDLE_MAX, &mut added).await {
            Ok(next) => next.ok(),
            Err(_) => {
                let mut state = self.pieces.state();
                // A piece that was sent after the time has ended is marked as taken by this run.
                let sent = added.try_recv().ok();
                if sent.is_none() {
                    state.idle_runs.remove(&self.id);
                }
                sent
            }
        }
    }
}

/// Adds `wanted` bytes to a piece. Returns false if the object ends before.
async fn fill(
    reader: &mut Reader,
    piece: &Piece,
    wanted: u64,
    left_over: &mut Bytes,
) -> Result<bool, SocketError> {
    let (mut buffer, mut left) = (BytesMut::new(), wanted);
    let mut chunks = 0;
    while left > 0 {
        let next = if left_over.is_empty() {
            let ready = poll_fn(|context| match reader.poll_piece(context) {
                Poll::Ready(packet) => Poll::Ready(Some(packet)),
                Poll::Pending => Poll::Ready(None),
            });
            match ready.await {
                Some(packet) => packet?,
                // Those who read it get what there is, before it waits.
                None => {
                    if !buffer.is_empty() {
                        piece.push(buffer.split().freeze());
                        chunks += 1;
                    }
                    poll_fn(|context| reader.poll_piece(context)).await?
                }
            }
        } else {
            let octets = std::mem::take(left_over);
            buffer.extend_from_slice(&octets);
            left -= octets.len() as u64;
            continue;
        };
        if next.is_empty() {
            piece.push(buffer.freeze());
            return Ok(false);
        }
        if buffer.capacity() - buffer.len() < next.len() {
            buffer.reserve((CHUNK_BYTES + next.len()).min(left as usize));
        }
        let taken = (next.len() as u64).min(left) as usize;
        buffer.extend_from_slice(&next[..taken]);
        left -= taken as u64;
        *left_over = Bytes::copy_from_slice(&next[taken..]);
        if buffer.len() >= CHUNK_BYTES {
            piece.push(buffer.split().freeze());
            chunks += 1;
        }
    }
    if !buffer.is_empty() {
        piece.push(buffer.freeze());
        chunks += 1;
    }
    if chunks > CHUNKS_MAX {
        piece.join_chunks();
    }
    Ok(true)
}

impl Piece {
    /// Copies the chunks into one: later readers need fewer system calls.
    fn join_chunks(&self) {
        let mut content = self.content();
        let mut whole = BytesMut::with_capacity(content.len as usize);
        content.chunks.drain(..).for_each(|chunk| whole.extend_from_slice(&chunk));
        content.chunks.push(whole.freeze());
    }
}
