//! Objects ready to be served.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use weir_base::{Packet, Pool};
use weir_transport::{ContentDigest, Metadata, SealedObject};
use weir_wire::{DataView, Name, NameView};

use super::held_file::{COPY_BYTES_MAX, HeldFile, OpenFiles};
use super::location::open_to_read;
use super::stored::StoredObject;

/// Shows whether a file is still the one that was signed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint {
    device: u64,
    inode: u64,
    len: u64,
    mtime: (i64, i64),
}

impl Fingerprint {
    pub(crate) fn of(file: &File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        Ok(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            len: metadata.len(),
            mtime: (metadata.mtime(), metadata.mtime_nsec()),
        })
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }
}

/// Where the content of an object is that was signed here.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    File {
        path: PathBuf,
        fingerprint: Fingerprint,
        /// Keeps the content readable when another file takes its name.
        held: Option<HeldFile>,
    },
    Memory(Packet),
    /// The file has changed or cannot be read any more.
    Unavailable,
}

/// An object ready to be served: signed by this process, with its content where it was, or from a
/// repository.
#[derive(Clone, Debug)]
pub struct Published(pub(crate) ObjectForm);

#[derive(Clone, Debug)]
pub(crate) enum ObjectForm {
    Sealed(Box<SealedObject>, Content),
    Stored(Box<StoredObject>),
}

impl Published {
    pub(crate) fn sealed(object: SealedObject, content: Content) -> Self {
        Self(ObjectForm::Sealed(Box::new(object), content))
    }

    /// Keeps the file open, or copies it if it is small. Does nothing without room, or if the file
    /// has changed since it was signed. Afterwards another file may take its name, and a small file
    /// may even be overwritten.
    #[must_use]
    pub fn with_open_file(mut self, files: &OpenFiles) -> Self {
        if let ObjectForm::Sealed(object, Content::File { path, fingerprint, held }) = &mut self.0 {
            *held = hold(object, path, *fingerprint, files);
        }
        self
    }

    /// Its file, if that is kept open.
    pub(crate) fn held_file(&self) -> Option<&HeldFile> {
        match &self.0 {
            ObjectForm::Sealed(_, Content::File { held, .. }) => held.as_ref(),
            ObjectForm::Sealed(..) => None,
            ObjectForm::Stored(stored) => stored.held.as_ref(),
        }
    }

    /// Keeps this file open from now on.
    pub(crate) fn keep_file(&mut self, file: HeldFile) {
        match &mut self.0 {
            ObjectForm::Sealed(_, Content::File { held, .. }) => *held = Some(file),
            ObjectForm::Sealed(..) => {}
            ObjectForm::Stored(stored) => stored.held = Some(file),
        }
    }

    pub fn versioned(&self) -> &Name {
        match &self.0 {
            ObjectForm::Sealed(object, _) => &object.versioned,
            ObjectForm::Stored(stored) => &stored.header.versioned,
        }
    }

    pub fn size_bytes(&self) -> u64 {
        match &self.0 {
            ObjectForm::Sealed(object, _) => object.size_bytes,
            ObjectForm::Stored(stored) => stored.header.size_bytes,
        }
    }

    pub fn segments(&self) -> u64 {
        match &self.0 {
            ObjectForm::Sealed(object, _) => object.segments(),
            ObjectForm::Stored(stored) => stored.header.segments,
        }
    }

    /// The names of its packets, each without its last component. With hICN names these are its
    /// addresses. None of an object from a repository, which has no hICN names.
    pub fn packet_prefixes(&self) -> BTreeSet<Name> {
        let ObjectForm::Sealed(object, _) = &self.0 else { return BTreeSet::new() };
        let names = object.packets.iter().filter_map(|packet| {
            let data = DataView::decode(packet).ok()?;
            Some(data.name.parent().to_name())
        });
        names.chain([object.template.prefix().to_name()]).collect()
    }

    /// Bytes of its largest Data packet.
    pub fn packet_bytes(&self) -> u64 {
        match &self.0 {
            ObjectForm::Sealed(object, _) => {
                let mut pool = Pool::new(0);
                // The last full segment has the longest name of all full ones.
                let full = self.segments().saturating_sub(2);
                let (_, frame, _) = object.frame(full, &mut pool);
                frame.len as u64
            }
            ObjectForm::Stored(stored) => stored.header.packet_bytes,
        }
    }

    /// Name of the object, without the version if it has one.
    pub fn object(&self) -> NameView<'_> {
        let versioned = self.versioned().as_view();
        match versioned.last().and_then(|last| last.as_version()) {
            Some(_) => versioned.parent(),
            None => versioned,
        }
    }

    /// The file that it is read from, if any.
    pub(crate) fn path(&self) -> Option<&Path> {
        match &self.0 {
            ObjectForm::Sealed(_, Content::File { path, .. }) => Some(path),
            ObjectForm::Sealed(..) => None,
            ObjectForm::Stored(stored) => stored.location.file(),
        }
    }

    pub(crate) fn metadata_names(&self) -> Vec<Name> {
        let versioned = self.versioned().as_view();
        let mut names = self.named_packet_names();
        names.retain(|name| !versioned.is_prefix_of(name.as_view()));
        names
    }

    /// Names of the packets that are no segments.
    pub fn named_packet_names(&self) -> Vec<Name> {
        match &self.0 {
            ObjectForm::Sealed(object, _) => {
                let name = |packet| DataView::decode(packet).expect("built as Data").name;
                object.packets.iter().map(|packet| name(packet).to_name()).collect()
            }
            ObjectForm::Stored(stored) => {
                stored.header.named_packets.iter().map(|whole| whole.name.clone()).collect()
            }
        }
    }

    /// Metadata and manifest parts of an object that was signed here.
    pub(crate) fn packets(&self) -> &[Packet] {
        match &self.0 {
            ObjectForm::Sealed(object, _) => &object.packets,
            ObjectForm::Stored(_) => &[],
        }
    }

    /// The packet of a segment whose content is in memory.
    pub(crate) fn packet(&self, segment: u64, pool: &mut Pool) -> Packet {
        let ObjectForm::Sealed(object, Content::Memory(octets)) = &self.0 else {
            unreachable!("it is in memory")
        };
        let (mut block, frame, offset) = object.frame(segment, pool);
        let out = &mut block[frame.content];
        out.copy_from_slice(&octets[offset as usize..][..out.len()]);
        block.freeze(frame.len)
    }
}

fn hold(
    object: &SealedObject,
    path: &Path,
    signed: Fingerprint,
    files: &OpenFiles,
) -> Option<HeldFile> {
    let mut file = open_to_read(path).ok()?;
    let mut content = Vec::new();
    let is_small = signed.len <= COPY_BYTES_MAX;
    if is_small {
        (&mut file).take(COPY_BYTES_MAX).read_to_end(&mut content).ok()?;
    }
    if Fingerprint::of(&file).ok()? != signed {
        return None;
    }
    if !is_small {
        return files.hold_open(Arc::new(file));
    }
    // It may have been overwritten within the resolution of the file system's clock.
    let mut digest = ContentDigest::default();
    let chunks: Vec<&[u8]> = content.chunks(object.segment_size as usize).collect();
    digest.add_all(if chunks.is_empty() { &[&[]] } else { &chunks });
    let is_it = signed_digest(object) == Some(digest.finish());
    if is_it { files.hold_copy(&content) } else { None }
}

/// The digest of the signed content, which the metadata state.
pub(crate) fn signed_digest(object: &SealedObject) -> Option<[u8; 32]> {
    let packet = object.packets.last()?;
    let data = DataView::decode(packet).expect("built as Data");
    Metadata::decode(data.content).ok()?.content_digest
}

/// The packet of a segment whose content is in a file. An error without a reason means that the
/// file has become shorter.
pub(crate) fn read_segment(
    object: &SealedObject,
    file: &File,
    segment: u64,
    pool: &mut Pool,
) -> Result<Packet, Option<io::Error>> {
    let (mut block, frame, offset) = object.frame(segment, pool);
    file.read_exact_at(&mut block[frame.content], offset).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => None,
        _ => Some(error),
    })?;
    Ok(block.freeze(frame.len))
}
