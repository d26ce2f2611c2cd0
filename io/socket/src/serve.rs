//! Answering Interests for published objects.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use weir_base::{Instant, NS_PER_MS, NS_PER_S, Packet, Pool};
use weir_security::sha256;
use weir_transport::{Answer, Catalog, ObjectId};
use weir_wire::{DecodeError, InterestView, LpHeader, NackReason};

use crate::client::{Client, ClientError, FromRouter};
use crate::publish::{Content, Fingerprint, Published};

/// Files kept open at a time.
const OPEN_FILES_MAX: usize = 256;
/// How often it is checked that a file is still the one that was signed.
const CHECK_NS: u64 = NS_PER_S;
/// With so much waiting to be sent, no more Interests are read.
const QUEUE_BYTES_MAX: u64 = 4 << 20;
/// Answers queued before they are sent.
const BATCH_ANSWERS: usize = 16;
/// How often [`serve`] looks whether it is to stop.
const TICK_NS: u64 = 200 * NS_PER_MS;

/// Why serving ends.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The router is gone.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A file is not what was signed any more: its segments would be refused.
    #[error("{} has changed since it was signed", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// A file cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

/// What was served.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct ServeStats {
    /// Interests that came.
    pub interests: u64,
    /// Data sent.
    pub data: u64,
    /// Octets of Data sent.
    pub octets: u64,
    /// Interests for what is not here.
    pub unknown: u64,
    /// Packets that could not be decoded, or were no Interests.
    pub malformed: u64,
    /// Data that could not be sent.
    pub dropped: u64,
}

struct OpenFile {
    file: File,
    checked: Instant,
}

/// Published objects, found by name.
#[derive(Default)]
pub struct ObjectStore {
    catalog: Catalog,
    objects: Vec<Published>,
    open: HashMap<ObjectId, OpenFile>,
    /// In the order of opening.
    opened: VecDeque<ObjectId>,
}

impl ObjectStore {
    /// A store of nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an object.
    pub fn add(&mut self, published: Published) {
        for packet in &published.packets {
            self.catalog.add_packet(packet.clone()).expect("it was made as Data");
        }
        let versioned = published.versioned.as_view();
        let id = self.catalog.add_object(versioned, published.segments());
        debug_assert_eq!(id.0 as usize, self.objects.len());
        self.objects.push(published);
    }

    /// Adds a Data packet to be served as it is, such as a certificate.
    ///
    /// # Errors
    /// When it is no Data.
    pub fn add_packet(&mut self, packet: Packet) -> Result<(), DecodeError> {
        self.catalog.add_packet(packet)
    }

    /// The objects, in the order of adding.
    pub fn objects(&self) -> &[Published] {
        &self.objects
    }

    /// The Data that answers an Interest, if there is one.
    ///
    /// # Errors
    /// [`ServeError::Changed`], [`ServeError::Read`].
    pub fn answer(
        &mut self,
        now: Instant,
        interest: &InterestView<'_>,
        pool: &mut Pool,
    ) -> Result<Option<Packet>, ServeError> {
        match self.catalog.answer(interest) {
            Answer::Packet(packet) => Ok(Some(packet)),
            Answer::Unknown => Ok(None),
            Answer::Segment { object, segment, digest } => {
                let packet = self.segment(now, object, segment, pool)?;
                let fits = digest.is_none_or(|digest| sha256(&[&packet]) == digest);
                Ok(fits.then_some(packet))
            }
        }
    }

    fn segment(
        &mut self,
        now: Instant,
        id: ObjectId,
        segment: u64,
        pool: &mut Pool,
    ) -> Result<Packet, ServeError> {
        let object = &self.objects[id.0 as usize];
        let signature = object.signatures.of(segment);
        let content_len = object.content_len(segment);
        let offset = segment * object.segment_size;
        let frame = object.template.frame(segment, content_len, signature.len());
        let mut block = pool.alloc(frame.len);
        object.template.write(segment, content_len, signature, &mut block);
        match &object.content {
            Content::Memory(octets) => {
                let start = offset as usize;
                block[frame.content].copy_from_slice(&octets[start..start + content_len]);
            }
            Content::File { .. } => {
                let file = self.file(now, id)?;
                match file.read_exact_at(&mut block[frame.content], offset) {
                    Ok(()) => {}
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                        return Err(ServeError::Changed { path: self.path(id) });
                    }
                    Err(source) => return Err(ServeError::Read { path: self.path(id), source }),
                }
            }
        }
        Ok(block.freeze(frame.len))
    }

    fn path(&self, id: ObjectId) -> PathBuf {
        match &self.objects[id.0 as usize].content {
            Content::File { path, .. } => path.clone(),
            Content::Memory(_) => PathBuf::new(),
        }
    }

    /// The file of an object, open and found unchanged within the last second.
    fn file(&mut self, now: Instant, id: ObjectId) -> Result<&File, ServeError> {
        let needs_check = match self.open.get(&id) {
            Some(open) => now >= open.checked.plus_ns(CHECK_NS),
            None => {
                self.open_file(now, id)?;
                true
            }
        };
        if needs_check {
            self.check_file(now, id)?;
        }
        Ok(&self.open[&id].file)
    }

    fn open_file(&mut self, now: Instant, id: ObjectId) -> Result<(), ServeError> {
        if self.opened.len() >= OPEN_FILES_MAX
            && let Some(oldest) = self.opened.pop_front()
        {
            self.open.remove(&oldest);
        }
        let path = self.path(id);
        let file = File::open(&path).map_err(|source| ServeError::Read { path, source })?;
        self.open.insert(id, OpenFile { file, checked: now });
        self.opened.push_back(id);
        Ok(())
    }

    fn check_file(&mut self, now: Instant, id: ObjectId) -> Result<(), ServeError> {
        let path = self.path(id);
        let Content::File { fingerprint, .. } = &self.objects[id.0 as usize].content else {
            return Ok(());
        };
        let Some(open) = self.open.get_mut(&id) else { return Ok(()) };
        open.checked = now;
        match Fingerprint::of(&open.file) {
            Ok(found) if found == *fingerprint => Ok(()),
            Ok(_) => Err(ServeError::Changed { path }),
            Err(source) => Err(ServeError::Read { path, source }),
        }
    }

    /// Checks every file that is open.
    fn check_open_files(&mut self, now: Instant) -> Result<(), ServeError> {
        for id in self.opened.clone() {
            self.check_file(now, id)?;
        }
        Ok(())
    }
}

/// Answers Interests until `go_on` returns false, which is asked several times a second.
///
/// # Errors
/// [`ServeError`]; when the router is gone, the caller may connect anew and go on with the same
/// store.
pub fn serve(
    client: &mut Client,
    store: &mut ObjectStore,
    stats: &mut ServeStats,
    go_on: &mut dyn FnMut(&ServeStats) -> bool,
) -> Result<(), ServeError> {
    let mut packets = Vec::new();
    let mut tick = client.now();
    loop {
        let now = client.now();
        if now >= tick {
            if !go_on(stats) {
                client.flush()?;
                return Ok(());
            }
            store.check_open_files(now)?;
            tick = now.plus_ns(TICK_NS);
        }
        if client.queue_bytes() > QUEUE_BYTES_MAX {
            client.poll_send(Some(tick))?;
            continue;
        }
        client.poll(Some(tick), &mut packets)?;
        let now = client.now();
        for (index, packet) in packets.drain(..).enumerate() {
            answer(client, store, stats, now, packet)?;
            if index % BATCH_ANSWERS == BATCH_ANSWERS - 1 {
                client.flush()?;
            }
        }
    }
}

fn answer(
    client: &mut Client,
    store: &mut ObjectStore,
    stats: &mut ServeStats,
    now: Instant,
    FromRouter { header, packet }: FromRouter,
) -> Result<(), ServeError> {
    let interest = match InterestView::decode(&packet) {
        Ok(interest) if header.nack.is_none() => interest,
        _ => {
            stats.malformed += 1;
            return Ok(());
        }
    };
    stats.interests += 1;
    let pit_token = header.pit_token;
    let sent = match store.answer(now, &interest, client.pool())? {
        Some(data) => {
            stats.data += 1;
            stats.octets += data.len() as u64;
            client.send(LpHeader { pit_token, ..LpHeader::default() }, data)
        }
        None => {
            stats.unknown += 1;
            let nack = Some(NackReason::NoRoute);
            client.send(LpHeader { pit_token, nack, ..LpHeader::default() }, packet)
        }
    };
    stats.dropped += u64::from(sent.is_err());
    Ok(())
}
