//! Conversion between hICN packets and NDN packets (decisions 0046 and 0047).
//!
//! | hICN | NDN |
//! |---|---|
//! | addresses, sequence number | name (`docs/sockets.md`) |
//! | lifetime | InterestLifetime, FreshnessPeriod |
//! | hop limit of an Interest | HopLimit |
//! | flag STALE of an Interest | no MustBeFresh |
//! | authentication header, payload and manifest flag of an Interest | HicnPayload |
//! | manifest flag, last flag of a Data | ContentType 4, FinalBlockId |
//! | authentication header of a Data | SignatureInfo and SignatureValue with SignatureType hICN |
//! | path label of a Data | HicnPathLabel |
//! | payload of a Data | Content |
//!
//! A Data with another SignatureType has an authentication header with the algorithm NDN. It holds
//! all elements but Name, and Content without its value.

use alloc::vec::Vec;
use core::net::Ipv6Addr;
use core::ops::Range;

use weir_wire::{DataView, InterestView, PACKET_SIZE_MAX, PacketView, signature_type, tlv};

use crate::ah::{AhView, Algorithm, write_ndn};
use crate::error::HicnError;
use crate::header::{Flags, HEADER_SIZE, HOP_LIMIT_MAX, Header, updated_label};
use crate::name::HicnName;
use crate::native::{CONTENT_TYPE_MANIFEST, NativeData, child};
use crate::packet::HicnView;

/// Room for type and length of an outer element of up to 65,535 octets.
const OUTER_SIZE: usize = 4;

/// Converts a packet to an Interest or Data of NDN. Replaces the octets of `out`, and returns which
/// of them are the packet. `nonce` becomes that of an Interest.
///
/// # Errors
/// [`HicnError::TooLarge`] and [`HicnError::NdnElements`].
pub fn to_tlv(
    packet: &HicnView<'_>,
    nonce: u32,
    out: &mut Vec<u8>,
) -> Result<Range<usize>, HicnError> {
    out.clear();
    if packet.rest.len() > PACKET_SIZE_MAX {
        return Err(HicnError::TooLarge);
    }
    // Each suffix is an Interest of its own in NDN.
    if packet.is_interest_manifest() {
        return Err(HicnError::NoForm);
    }
    out.resize(OUTER_SIZE, 0);
    packet.header.name.write(out);
    let typ = match (packet.header.is_data(), &packet.ah) {
        (false, _) => {
            write_interest(packet, nonce, out);
            tlv::INTEREST
        }
        (true, Some(ah)) if ah.algorithm == Algorithm::NDN => {
            write_carried_data(ah, packet.payload, out)?;
            tlv::DATA
        }
        (true, _) => {
            write_native_data(packet, out);
            tlv::DATA
        }
    };
    // Puts type and length directly before the value.
    let len = out.len() - OUTER_SIZE;
    let start = OUTER_SIZE - 1 - tlv::var_number_size(len as u64);
    if out.len() - start > PACKET_SIZE_MAX {
        return Err(HicnError::TooLarge);
    }
    out[start] = typ as u8;
    tlv::write_var_number(len as u64, &mut out[start + 1..]);
    Ok(start..out.len())
}

fn write_element(typ: u32, value: &[u8], out: &mut Vec<u8>) {
    write_element_header(typ, value.len(), out);
    out.extend_from_slice(value);
}

fn write_element_header(typ: u32, len: usize, out: &mut Vec<u8>) {
    let mut numbers = [0; 18];
    let typ_size = tlv::write_var_number(typ.into(), &mut numbers);
    let size = typ_size + tlv::write_var_number(len as u64, &mut numbers[typ_size..]);
    out.extend_from_slice(&numbers[..size]);
}

fn write_nni(typ: u32, number: u64, out: &mut Vec<u8>) {
    write_element(typ, &tlv::encode_nni(number), out);
}

/// Appends an element of less than 253 octets whose value `write` appends.
fn write_short(typ: u32, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    out.extend([typ as u8, 0]);
    let value_at = out.len();
    write(out);
    out[value_at - 1] = (out.len() - value_at) as u8;
}

fn write_interest(packet: &HicnView<'_>, nonce: u32, out: &mut Vec<u8>) {
    let Header { flags, lifetime_ms, hop_limit, .. } = packet.header;
    if !flags.has(Flags::STALE) {
        write_element(tlv::MUST_BE_FRESH, &[], out);
    }
    write_element(tlv::NONCE, &nonce.to_be_bytes(), out);
    write_nni(tlv::INTEREST_LIFETIME, lifetime_ms, out);
    write_element(tlv::HOP_LIMIT, &[hop_limit], out);
    let flags = if flags.has(Flags::AH) { Flags::AH.octet() } else { 0 };
    if flags != 0 || !packet.rest.is_empty() {
        write_element_header(tlv::HICN_PAYLOAD, 1 + packet.rest.len(), out);
        out.push(flags);
        out.extend_from_slice(packet.rest);
    }
}

fn write_native_data(packet: &HicnView<'_>, out: &mut Vec<u8>) {
    let Header { name, flags, lifetime_ms, path_label, .. } = packet.header;
    let (is_manifest, is_last) = (flags.has(Flags::MANIFEST), flags.has(Flags::LAST));
    if is_manifest || is_last || lifetime_ms > 0 {
        write_short(tlv::META_INFO, out, |out| {
            if is_manifest {
                write_nni(tlv::CONTENT_TYPE, CONTENT_TYPE_MANIFEST, out);
            }
            if lifetime_ms > 0 {
                write_nni(tlv::FRESHNESS_PERIOD, lifetime_ms, out);
            }
            if is_last {
                write_short(tlv::FINAL_BLOCK_ID, out, |out| name.write_suffix(out));
            }
        });
    }
    if !packet.payload.is_empty() {
        write_element(tlv::CONTENT, packet.payload, out);
    }
    write_short(tlv::SIGNATURE_INFO, out, |out| {
        write_nni(tlv::SIGNATURE_TYPE, signature_type::HICN, out);
        let Some(ah) = &packet.ah else { return };
        write_short(tlv::KEY_LOCATOR, out, |out| write_element(tlv::KEY_DIGEST, ah.key_id, out));
        write_nni(tlv::SIGNATURE_TIME, ah.time_ms, out);
        write_element(tlv::HICN_ALGORITHM, &[ah.algorithm.number(), ah.padding], out);
    });
    let signature = packet.ah.map_or(&[][..], |ah| ah.signature_field);
    write_element(tlv::SIGNATURE_VALUE, signature, out);
    if path_label != 0 {
        write_element(tlv::HICN_PATH_LABEL, &[path_label], out);
    }
}

/// Appends the elements of an NDN Data behind its name.
fn write_carried_data(ah: &AhView<'_>, payload: &[u8], out: &mut Vec<u8>) -> Result<(), HicnError> {
    let mut payload = Some(payload);
    for element in tlv::Reader::new(ah.signature()) {
        let element = element.map_err(|_| HicnError::NdnElements)?;
        match element.typ {
            tlv::NAME => return Err(HicnError::NdnElements),
            tlv::CONTENT => {
                let content = payload.take().filter(|_| element.value.is_empty());
                write_element(tlv::CONTENT, content.ok_or(HicnError::NdnElements)?, out);
            }
            _ => out.extend_from_slice(element.wire),
        }
    }
    match payload {
        // There is no Content for the payload.
        Some(octets) if !octets.is_empty() => Err(HicnError::NdnElements),
        _ => Ok(()),
    }
}

/// What a packet gets from the face over which it leaves.
#[derive(Clone, Copy, Debug)]
pub struct Hop {
    /// The locator: ours in an Interest, the peer's in a Data.
    pub locator: Ipv6Addr,
    /// The number of the face, for the path label of a Data.
    pub face: u64,
    /// Whether the packet reports congestion.
    pub is_marked: bool,
}

/// Converts an Interest or Data of NDN to an hICN packet, which replaces the octets of `out`.
///
/// # Errors
/// [`HicnError::NoName`], [`HicnError::NoForm`] and [`HicnError::TooLarge`].
pub fn from_tlv(packet: &[u8], hop: &Hop, out: &mut Vec<u8>) -> Result<(), HicnError> {
    out.clear();
    match PacketView::decode(packet).map_err(|_| HicnError::NoForm)? {
        PacketView::Interest(interest) => interest_from_tlv(&interest, hop, out),
        PacketView::Data(data) => data_from_tlv(&data, hop, out),
    }
}

fn interest_from_tlv(
    interest: &InterestView<'_>,
    hop: &Hop,
    out: &mut Vec<u8>,
) -> Result<(), HicnError> {
    let name = HicnName::from_name(interest.name).ok_or(HicnError::NoName)?;
    // Every name has all its components, so CanBePrefix could only request names that hICN lacks.
    if interest.can_be_prefix || !interest.forwarding_hint.is_empty() {
        return Err(HicnError::NoForm);
    }
    let body = tlv::read_single_of(interest.wire, tlv::INTEREST).unwrap_or_default();
    let (flags, rest) = match child(body, tlv::HICN_PAYLOAD) {
        Some([flags, rest @ ..]) => (Flags::from_octet(*flags), rest),
        _ => (Flags::default(), &[][..]),
    };
    let has_ah = flags.has(Flags::AH);
    // The manifest flag would turn one Interest into many, past the limits of the PIT.
    if flags.without(Flags::AH) != Flags::default() || has_ah && AhView::read(rest).is_err() {
        return Err(HicnError::NoForm);
    }
    let header = Header {
        name,
        locator: hop.locator,
        flags: flags.with_if(Flags::STALE, !interest.must_be_fresh),
        hop_limit: interest.hop_limit.unwrap_or(HOP_LIMIT_MAX),
        is_marked: hop.is_marked,
        path_label: 0,
        lifetime_ms: interest.lifetime_ms_or_default(),
    };
    out.extend_from_slice(&header.encode(&[&[], rest])?);
    out.extend_from_slice(rest);
    Ok(())
}

fn data_from_tlv(data: &DataView<'_>, hop: &Hop, out: &mut Vec<u8>) -> Result<(), HicnError> {
    let mut header = Header {
        name: HicnName::from_name(data.name).ok_or(HicnError::NoName)?,
        locator: hop.locator,
        flags: Flags::DATA,
        hop_limit: HOP_LIMIT_MAX,
        is_marked: hop.is_marked,
        path_label: updated_label(0, hop.face),
        lifetime_ms: data.freshness_ms,
    };
    out.resize(HEADER_SIZE, 0);
    if data.signature_info().signature_type == signature_type::HICN {
        let native = NativeData::of(data).ok_or(HicnError::NoForm)?;
        if let Some(ah) = &native.ah {
            ah.write(out);
        }
        header.path_label = updated_label(native.path_label, hop.face);
        header.flags = header
            .flags
            .with_if(Flags::AH, native.ah.is_some())
            .with_if(Flags::MANIFEST, native.is_manifest)
            .with_if(Flags::LAST, native.is_last);
    } else {
        let body = tlv::read_single_of(data.wire, tlv::DATA).unwrap_or_default();
        write_ndn(out, |out| write_carried_elements(body, out))?;
        let own = data.name.last();
        let is_last = own.is_some() && data.final_block_id() == own;
        header.flags = header.flags.with(Flags::AH).with_if(Flags::LAST, is_last);
    }
    let head = header.encode(&[&out[HEADER_SIZE..], data.content])?;
    out[..HEADER_SIZE].copy_from_slice(&head);
    out.extend_from_slice(data.content);
    Ok(())
}

/// Appends all elements of a Data but its name, and Content without its value.
fn write_carried_elements(body: &[u8], out: &mut Vec<u8>) {
    for element in tlv::Reader::new(body).flatten() {
        match element.typ {
            tlv::NAME => {}
            tlv::CONTENT => write_element_header(tlv::CONTENT, 0, out),
            _ => out.extend_from_slice(element.wire),
        }
    }
}
