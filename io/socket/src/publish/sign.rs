//! Signs objects: each segment once, by several threads, with the content left in place.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

use weir_base::{Packet, words};
use weir_face::unix_time_ms;
use weir_security::manifest::{self, DIGESTS_PER_PART, Digest, LEVELS_MAX, ManifestShape, PartId};
use weir_security::{
    NullSigner, SignatureFormat, Signer, native_signing, sha256_each, sign_data_as,
};
use weir_transport::{
    ContentDigest, Metadata, NameMapping, SealedObject, SegmentTemplate, Signatures,
};
use weir_wire::{Component, Data, NAME_COMPONENTS_MAX, Name, PACKET_SIZE_MAX, SignatureInfo};

use super::error::PublishError;
use super::sign_job::{
    BorrowedSigner, ReadAt, Segments, SharedSigner, SignJob, SignedChunk, SignerRef,
};
use super::sign_pool::SignPoolHandle;
use crate::object::location::open_to_read;
use crate::object::published::{Content, Fingerprint, Published};

/// Objects with fewer segments have no manifest: it would cost as much as it saves.
pub(super) const MANIFEST_SEGMENTS_MIN: u64 = 3;

/// How objects are made.
#[derive(Clone, Debug)]
pub struct PublishOptions {
    /// Bytes of Content in each segment but the last.
    pub segment_size: usize,
    /// Largest segment in bytes, with its name and signature.
    pub packet_bytes_max: usize,
    /// FreshnessPeriod of segments, in milliseconds.
    pub freshness_ms: u64,
    /// FreshnessPeriod of metadata, in milliseconds: how late consumers may notice a new version.
    pub metadata_freshness_ms: u64,
    /// Which packets of an object are signed.
    pub signs: SigningMode,
    pub threads: usize,
    /// How names of applications become names of the network.
    pub mapping: NameMapping,
    /// How packets are signed.
    pub signature_format: SignatureFormat,
}

/// Which packets of an object are signed. The metadata always are.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum SigningMode {
    /// Each segment, and the manifest that lists them. Any consumer can verify any segment by
    /// itself.
    #[default]
    Segments,
    /// Only the manifest, if there is one; segments have a NullSignature. This is many times
    /// faster, but consumers without support for manifests cannot verify the object.
    Manifest,
}

words!(SigningMode { Segments = "segments", Manifest = "manifest" });

impl Default for PublishOptions {
    /// Segments as ndnserve makes them, metadata as ndn-cxx does.
    fn default() -> Self {
        Self {
            segment_size: 8000,
            packet_bytes_max: PACKET_SIZE_MAX,
            freshness_ms: 10_000,
            metadata_freshness_ms: 10,
            signs: SigningMode::default(),
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            mapping: NameMapping::Identity,
            signature_format: SignatureFormat::Ndn,
        }
    }
}

impl PublishOptions {
    /// The name right above the segments of an object, as applications see it. An object at an hICN
    /// address has no versions.
    fn versioned(&self, label: Label<'_>) -> Name {
        match self.mapping.is_direct(label.name.as_view()) {
            true => label.name.clone(),
            false => label.name.clone().append_version(label.version).clone(),
        }
    }
}

/// The name of an object, and its signer.
#[derive(Clone, Copy)]
pub struct Label<'a> {
    pub name: &'a Name,
    /// Number of the version, usually milliseconds since the Unix epoch.
    pub version: u64,
    pub signer: &'a dyn Signer,
    /// The signer's certificate, to include in the metadata.
    pub certificate: Option<&'a [u8]>,
}

/// Signs a file. Calls `progress` on the calling thread with the bytes signed so far; it returns
/// false to stop.
pub fn publish_file(
    path: &Path,
    label: Label<'_>,
    options: &PublishOptions,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<Published, PublishError> {
    let read_error = |source| PublishError::Read { path: path.to_owned(), source };
    let file = open_to_read(path).map_err(read_error)?;
    let metadata = file.metadata().map_err(read_error)?;
    if !metadata.is_file() {
        return Err(PublishError::NoFile { path: path.to_owned() });
    }
    let fingerprint = Fingerprint::of(&file).map_err(read_error)?;
    if !has_size(&file, fingerprint.len()).map_err(read_error)? {
        // The file is being written, or its file system generates the content during a read, as
        // `/proc` does.
        return Err(match Fingerprint::of(&file).map_err(read_error)? == fingerprint {
            true => PublishError::SizeUnknown { path: path.to_owned() },
            false => PublishError::Changed { path: path.to_owned() },
        });
    }
    let content = Content::File { path: path.to_owned(), fingerprint, held: None };
    let mtime_ns = metadata.mtime().checked_mul(1_000_000_000);
    let mtime_ns = mtime_ns.and_then(|ns| ns.checked_add(metadata.mtime_nsec()));
    let mtime_ns = mtime_ns.and_then(|ns| u64::try_from(ns).ok());
    let about = ObjectInfo {
        mode: Some(u64::from(metadata.mode())),
        mtime_ns,
        extra_metadata: None,
        versioned: options.versioned(label),
    };
    let read = |offset: u64, out: &mut [u8]| {
        file.read_exact_at(out, offset).map_err(|source| match source.kind() {
            io::ErrorKind::UnexpectedEof => PublishError::Changed { path: path.to_owned() },
            _ => PublishError::Read { path: path.to_owned(), source },
        })
    };
    let source = SignSource { content, size_bytes: fingerprint.len(), read };
    let published = publish(&about, label, source, options, progress)?;
    if Fingerprint::of(&file).map_err(read_error)? != fingerprint {
        return Err(PublishError::Changed { path: path.to_owned() });
    }
    Ok(published)
}

/// Whether a file ends where its size states.
fn has_size(file: &File, len: u64) -> io::Result<bool> {
    let mut octet = [0];
    let has_last = len == 0 || file.read_at(&mut octet, len - 1)? == 1;
    Ok(has_last && file.read_at(&mut octet, len)? == 0)
}

/// Signs bytes that stay in memory.
pub fn publish_octets(
    octets: Packet,
    label: Label<'_>,
    options: &PublishOptions,
) -> Result<Published, PublishError> {
    publish_memory(octets, &ObjectInfo::octets(label, options), label, options)
}

/// As [`publish_octets`], with the help of the threads of `signers`, while `keep_going` returns
/// true. `label` must have the same signer.
pub(crate) fn publish_octets_with(
    signers: &SignPoolHandle,
    signer: &Arc<dyn Signer>,
    octets: Packet,
    label: Label<'_>,
    options: &PublishOptions,
    keep_going: &mut dyn FnMut() -> bool,
) -> Result<Published, PublishError> {
    let about = ObjectInfo::octets(label, options);
    let (size_bytes, content) = (octets.len() as u64, Content::Memory(octets.clone()));
    let read = move |offset: u64, out: &mut [u8]| {
        let start = offset as usize;
        out.copy_from_slice(&octets[start..start + out.len()]);
        Ok(())
    };
    let null: Arc<dyn Signer> = Arc::new(NullSigner);
    let (signer, null) = (SharedSigner(signer.clone()), SharedSigner(null));
    let job = Arc::new(new_sign_job(&about, (signer, null), size_bytes, options, read)?);
    let chunks = job.run_with(signers, options.threads, keep_going)?;
    finish_object(&about, label, content, &job, options, chunks)
}

/// Signs the listing of a directory: the names in `entries`, each followed by a NUL; names of
/// directories end in `/` (ndn6-file-server). Its name is `<name>/32=ls`, and the metadata of
/// `<name>` refer to it.
pub fn publish_listing(
    entries: &[(Vec<u8>, bool)],
    label: Label<'_>,
    options: &PublishOptions,
) -> Result<Published, PublishError> {
    const DIRECTORY_MODE: u64 = 0o040_755;
    let octets = listing_octets(entries);
    let mut listing = label.name.clone();
    listing.append_keyword(weir_transport::LISTING_KEYWORD);
    let about = ObjectInfo {
        mode: Some(DIRECTORY_MODE),
        mtime_ns: None,
        extra_metadata: Some(listing.clone()),
        versioned: listing.append_version(label.version).clone(),
    };
    publish_memory(octets.into(), &about, label, options)
}

pub(crate) fn listing_octets(entries: &[(Vec<u8>, bool)]) -> Vec<u8> {
    let mut octets = Vec::new();
    for (name, is_directory) in entries {
        octets.extend_from_slice(name);
        if *is_directory {
            octets.push(b'/');
        }
        octets.push(0);
    }
    octets
}

fn publish_memory(
    octets: Packet,
    about: &ObjectInfo,
    label: Label<'_>,
    options: &PublishOptions,
) -> Result<Published, PublishError> {
    let read = |offset: u64, out: &mut [u8]| {
        let start = offset as usize;
        out.copy_from_slice(&octets[start..start + out.len()]);
        Ok(())
    };
    let (content, size_bytes) = (Content::Memory(octets.clone()), octets.len() as u64);
    publish(about, label, SignSource { content, size_bytes, read }, options, &mut |_| true)
}

/// What the metadata state besides the segments.
struct ObjectInfo {
    versioned: Name,
    mode: Option<u64>,
    mtime_ns: Option<u64>,
    /// Another name under which the metadata are served.
    extra_metadata: Option<Name>,
}

impl ObjectInfo {
    /// For bytes in memory there is only the version.
    fn octets(label: Label<'_>, options: &PublishOptions) -> Self {
        let versioned = options.versioned(label);
        Self { versioned, mode: None, mtime_ns: None, extra_metadata: None }
    }
}

/// What is signed.
struct SignSource<R> {
    content: Content,
    size_bytes: u64,
    read: R,
}

fn publish(
    about: &ObjectInfo,
    label: Label<'_>,
    source: SignSource<impl ReadAt>,
    options: &PublishOptions,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<Published, PublishError> {
    let SignSource { content, size_bytes, read } = source;
    let (signer, null) = (BorrowedSigner(label.signer), BorrowedSigner(&NullSigner as &dyn Signer));
    let job = new_sign_job(about, (signer, null), size_bytes, options, read)?;
    let chunks = job.run(options.threads, progress)?;
    finish_object(about, label, content, &job, options, chunks)
}

/// Makes the manifest and the metadata for segments that have been signed.
fn finish_object<S, R>(
    about: &ObjectInfo,
    label: Label<'_>,
    content: Content,
    job: &SignJob<S, R>,
    options: &PublishOptions,
    chunks: Vec<SignedChunk>,
) -> Result<Published, PublishError> {
    let Segments { template, count: segments, segment_size, size_bytes } = &job.segments;
    let (segments, segment_size, size_bytes) = (*segments, *segment_size, *size_bytes);
    let digests: Vec<[u8; 32]> =
        chunks.iter().flat_map(|chunk| chunk.digests.iter().copied()).collect();
    let mut content_digest = ContentDigest::default();
    chunks.iter().for_each(|chunk| content_digest.append(&chunk.content_digest));
    // Programs of hICN request only segments of such an object.
    let is_direct = options.mapping.is_direct(about.versioned.as_view());
    let (manifest, mut packets) = match segments >= MANIFEST_SEGMENTS_MIN && !is_direct {
        true => sign_manifest(about, label.signer, &digests, options)?,
        false => (None, Vec::new()),
    };
    let metadata = Metadata {
        last_segment: Some(segments - 1),
        segment_size: Some(segment_size),
        size_bytes: Some(size_bytes),
        mode: about.mode,
        mtime_ns: about.mtime_ns,
        manifest,
        content_digest: Some(content_digest.finish()),
        certificate: label.certificate.map(<[u8]>::to_vec),
        ..Metadata::new(about.versioned.clone())
    };
    if !is_direct {
        sign_metadata(about, label, &metadata, options, &mut packets)?;
    }
    let signatures = chunks.iter().flat_map(|chunk| chunk.signatures.iter().map(Vec::as_slice));
    let object = SealedObject {
        versioned: about.versioned.clone(),
        signatures: Signatures::new(signatures),
        template: template.clone(),
        segment_size,
        size_bytes,
        packets,
    };
    Ok(Published::sealed(object, content))
}

/// The job that signs the segments of an object. The second of `signers` makes null signatures, for
/// segments that only the manifest protects.
fn new_sign_job<S: SignerRef, R: ReadAt>(
    about: &ObjectInfo,
    signers: (S, S),
    size_bytes: u64,
    options: &PublishOptions,
    read: R,
) -> Result<SignJob<S, R>, PublishError> {
    let segment_size = options.segment_size.max(1) as u64;
    let count = size_bytes.div_ceil(segment_size).max(1);
    let lists_segments = options.signs == SigningMode::Manifest && count >= MANIFEST_SEGMENTS_MIN;
    let (mapping, versioned) = (&options.mapping, about.versioned.as_view());
    if lists_segments && mapping.is_direct(versioned) {
        return Err(PublishError::NoManifest);
    }
    let last = count - 1;
    mapping.check_last(last)?;
    check_depth(about, count, options)?;
    let (prefix, freshness_ms) = (mapping.version_prefix(versioned), options.freshness_ms);
    let format = check_format(options)?;
    let (signer, template) = if lists_segments {
        // In hICN packets such segments keep all their elements, and so the listed digest.
        let info = signature_info(signers.1.signer());
        (signers.1, SegmentTemplate::new(prefix.as_view(), freshness_ms, last, &info))
    } else if format == SignatureFormat::Hicn {
        let signing = native_signing(signers.0.signer(), unix_time_ms())?;
        (signers.0, SegmentTemplate::native(prefix.as_view(), freshness_ms, last, signing))
    } else {
        let info = signature_info(signers.0.signer());
        (signers.0, SegmentTemplate::new(prefix.as_view(), freshness_ms, last, &info))
    };
    let segments = Segments { template, count, segment_size, size_bytes };
    SignJob::new(segments, options.packet_bytes_max, signer, read)
}

/// The format of signatures, if names permit it.
fn check_format(options: &PublishOptions) -> Result<SignatureFormat, PublishError> {
    match (options.signature_format, options.mapping) {
        (SignatureFormat::Hicn, NameMapping::Identity) => Err(PublishError::NeedsMapping),
        (format, _) => Ok(format),
    }
}

pub(crate) fn signature_info(signer: &dyn Signer) -> SignatureInfo {
    let info = SignatureInfo::new(signer.signature_type().0);
    SignatureInfo { key_locator: signer.key_locator(), ..info }
}

fn sign_metadata(
    about: &ObjectInfo,
    label: Label<'_>,
    metadata: &Metadata,
    options: &PublishOptions,
    packets: &mut Vec<Packet>,
) -> Result<(), PublishError> {
    for object in [Some(label.name), about.extra_metadata.as_ref()].into_iter().flatten() {
        let name = options.mapping.metadata_name(object.as_view(), label.version);
        let last = Component::from(name.as_view().last().expect("the name ends in a number"));
        let data = Data::new(name)
            .freshness_ms(options.metadata_freshness_ms)
            .final_block_id(last)
            .content(metadata.encode());
        let format = options.signature_format;
        packets.push(sign_single_packet("metadata", &data, label.signer, format)?);
    }
    Ok(())
}

/// Bytes of a manifest part in addition to its digests.
const PART_HEADER_BYTES: usize = 64;

/// Maximum number of digests in a manifest part. Routers cannot fragment hICN packets, so with hICN
/// names a part is no longer than a segment.
pub(super) fn digests_per_part_max(options: &PublishOptions) -> usize {
    match options.mapping {
        NameMapping::Identity => DIGESTS_PER_PART,
        _ => {
            let list_bytes = options.segment_size.saturating_sub(PART_HEADER_BYTES);
            (list_bytes / size_of::<Digest>()).clamp(1, DIGESTS_PER_PART)
        }
    }
}

/// The manifest parts for segments with these digests, as large as possible.
///
/// If segments are signed too, there is one level, and every part is signed. Caches may then
/// contain packets of several signings of one version, and each must be verifiable by itself.
/// Otherwise only the highest parts are signed, and all other packets are the same for every
/// signer.
fn sign_manifest(
    about: &ObjectInfo,
    signer: &dyn Signer,
    digests: &[Digest],
    options: &PublishOptions,
) -> Result<(Option<ManifestShape>, Vec<Packet>), PublishError> {
    let mut digests_per_part = digests_per_part_max(options);
    loop {
        let has_two = options.signs == SigningMode::Manifest && digests.len() > digests_per_part;
        let levels = 1 + u64::from(has_two);
        let shape = ManifestShape::new(digests_per_part as u64, levels).expect("there is one");
        match sign_parts(about, signer, digests, shape, options) {
            // A long name of the object or the key leaves less room, so parts list fewer digests.
            Err(PublishError::TooLong { len, .. }) if digests_per_part > 1 => {
                let too_many = (len - PACKET_SIZE_MAX).div_ceil(size_of::<Digest>()).max(1);
                let had = digests_per_part.min(digests.len());
                digests_per_part = had.saturating_sub(too_many).max(1);
            }
            packets => return Ok((Some(shape), packets?)),
        }
    }
}

fn sign_parts(
    about: &ObjectInfo,
    signer: &dyn Signer,
    segments: &[Digest],
    shape: ManifestShape,
    options: &PublishOptions,
) -> Result<Vec<Packet>, PublishError> {
    let (mut packets, mut digests) = (Vec::new(), segments.to_vec());
    for level in 1..=shape.levels {
        // Only the top level is signed with the key. Its digests protect the levels below.
        let (signer, format) = match level == shape.levels {
            true => (signer, options.signature_format),
            false => (&NullSigner as &dyn Signer, SignatureFormat::Ndn),
        };
        let last = (digests.len() as u64).div_ceil(shape.digests_per_part()) - 1;
        let mut parts = Vec::new();
        for (number, content) in (0..).zip(manifest::encode_parts(&digests, shape, level)) {
            let name_of = |number| {
                options.mapping.part_name(about.versioned.as_view(), PartId { level, number })
            };
            let last = name_of(last).as_view().last().map(Component::from);
            let data = Data::new(name_of(number))
                .freshness_ms(options.freshness_ms)
                .final_block_id(last.expect("the name ends in a number"))
                .content(content);
            parts.push(sign_single_packet("a part of the manifest", &data, signer, format)?);
        }
        let wires: Vec<&[u8]> = parts.iter().map(|part| &part[..]).collect();
        // The next level lists the digests of these parts.
        digests = sha256_each(&wires);
        packets.extend(parts);
    }
    Ok(packets)
}

/// Signs a packet that is no segment. A larger packet could never be fetched.
pub(super) fn sign_single_packet(
    what: &'static str,
    data: &Data,
    signer: &dyn Signer,
    format: SignatureFormat,
) -> Result<Packet, PublishError> {
    let packet = sign_data_as(format, data, signer, unix_time_ms())?;
    match packet.len() {
        len if len > PACKET_SIZE_MAX => Err(PublishError::TooLong { what, len }),
        _ => Ok(packet.into()),
    }
}

/// Rejects names that routers do not forward.
fn check_depth(
    about: &ObjectInfo,
    segments: u64,
    options: &PublishOptions,
) -> Result<(), PublishError> {
    let (mapping, versioned) = (&options.mapping, about.versioned.as_view());
    let metadata = mapping.metadata_name(versioned.parent(), 0).component_count();
    let level = match options.signs {
        SigningMode::Segments => 1,
        SigningMode::Manifest => LEVELS_MAX,
    };
    let part = match segments >= MANIFEST_SEGMENTS_MIN {
        true => mapping.part_name(versioned, PartId { level, number: 0 }).component_count(),
        false => 0,
    };
    match metadata.max(part) {
        components if components > NAME_COMPONENTS_MAX => Err(PublishError::TooDeep { components }),
        _ => Ok(()),
    }
}
