//! The manifests of hICN's library, for reading (NDN-FACTS 7.3). Integers of the parameters are
//! little-endian, suffixes of entries big-endian.

use core::net::Ipv6Addr;

const META_SIZE: usize = 4;
const ENTRY_META_SIZE: usize = 20;
const ENTRY_SIZE: usize = 36;
const DIGEST_SIZE: usize = 32;

/// Why the payload of a packet is not a manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    #[error("the manifest ends inside its header")]
    Truncated,
    #[error("manifest type {0} is not supported; only inline manifests are")]
    Type(u8),
    #[error("unknown transport type {0}")]
    Transport(u8),
    #[error("hash algorithm {0} is not supported; only SHA-256 is")]
    HashAlgorithm(u8),
    #[error("the manifest lists names that are not IPv6 addresses")]
    NotIpv6,
    #[error("the manifest declares {declared} entries, but {found} octets follow")]
    Entries { declared: u8, found: usize },
}

/// What a manifest says about its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportParameters {
    /// A sequence of octets of known length.
    ByteStream { final_segment: u32 },
    /// A live stream.
    Realtime { timestamp_ms: u64, production_rate: u32, production_segment: u32, fec: u32 },
}

/// A manifest, borrowed: digests of packets below one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransportManifest<'a> {
    /// Most entries that the producer puts into a manifest.
    pub capacity: u8,
    pub is_last: bool,
    /// The address of the packets.
    pub address: Ipv6Addr,
    pub parameters: TransportParameters,
    entries: &'a [u8],
}

/// A packet in a manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ManifestEntry<'a> {
    pub suffix: u32,
    /// SHA-256 of the packet, with the fields zero that a signature does not cover.
    pub digest: &'a [u8; DIGEST_SIZE],
}

fn take<'a, const N: usize>(octets: &mut &'a [u8]) -> Result<&'a [u8; N], ManifestError> {
    let (first, rest) = octets.split_first_chunk().ok_or(ManifestError::Truncated)?;
    *octets = rest;
    Ok(first)
}

fn take_u32(octets: &mut &[u8]) -> Result<u32, ManifestError> {
    take(octets).map(|value| u32::from_le_bytes(*value))
}

impl<'a> TransportManifest<'a> {
    /// Decodes the payload of a Data with the manifest flag.
    ///
    /// # Errors
    /// [`ManifestError`]. A stranger may set the flag, because no signature covers it.
    pub fn decode(payload: &'a [u8]) -> Result<Self, ManifestError> {
        const INLINE: u8 = 1;
        const SHA256: u8 = 1;
        let mut rest = payload;
        let [types, capacity, hash_algorithm, last] = *take::<META_SIZE>(&mut rest)?;
        let (transport, typ) = (types >> 4, types & 0xF);
        if typ != INLINE {
            return Err(ManifestError::Type(typ));
        }
        if hash_algorithm != SHA256 {
            return Err(ManifestError::HashAlgorithm(hash_algorithm));
        }
        let [declared, is_ipv6, _, _, address @ ..] = *take::<ENTRY_META_SIZE>(&mut rest)?;
        if is_ipv6 != 1 {
            return Err(ManifestError::NotIpv6);
        }
        let parameters = TransportParameters::read(transport, &mut rest)?;
        if rest.len() != usize::from(declared) * ENTRY_SIZE {
            return Err(ManifestError::Entries { declared, found: rest.len() });
        }
        let address = address.into();
        Ok(Self { capacity, is_last: last != 0, address, parameters, entries: rest })
    }

    pub fn entries(&self) -> impl ExactSizeIterator<Item = ManifestEntry<'a>> + use<'a> {
        self.entries.chunks_exact(ENTRY_SIZE).map(|entry| {
            let (suffix, digest) = entry.split_first_chunk().expect("an entry has a suffix");
            let digest = digest.try_into().expect("an entry has a digest");
            ManifestEntry { suffix: u32::from_be_bytes(*suffix), digest }
        })
    }
}

impl TransportParameters {
    fn read(transport: u8, rest: &mut &[u8]) -> Result<Self, ManifestError> {
        const BYTE_STREAM: u8 = 1;
        const REALTIME: u8 = 2;
        match transport {
            BYTE_STREAM => Ok(Self::ByteStream { final_segment: take_u32(rest)? }),
            REALTIME => Ok(Self::Realtime {
                timestamp_ms: u64::from_le_bytes(*take(rest)?),
                production_rate: take_u32(rest)?,
                production_segment: take_u32(rest)?,
                fec: take_u32(rest)?,
            }),
            other => Err(ManifestError::Transport(other)),
        }
    }
}
