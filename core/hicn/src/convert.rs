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

use weir_wire::{DataView, InterestView, PACKET_SIZE_MAX, signature_type, tlv};

use crate::ah::{AH_SIZE, AhView, Algorithm, end_ndn};
use crate::error::HicnError;
use crate::header::{Flags, HEADER_SIZE, HOP_LIMIT_MAX, Header, updated_label};
use crate::name::HicnName;
use crate::native::{CONTENT_TYPE_MANIFEST, NativeData, child};
use crate::packet::HicnView;

/// Room for type and length of an outer element of up to 65,535 octets.
const OUTER_SIZE: usize = 4;

/// Converts a packet to an Interest or Data of NDN. `nonce` becomes that of an Interest.
///
/// # Errors
/// [`HicnError::TooLarge`], [`HicnError::NdnElements`] and [`HicnError::NoForm`].
pub fn to_tlv(packet: &HicnView<'_>, nonce: u32) -> Result<Vec<u8>, HicnError> {
    tlv_parts(packet, nonce, &mut Vec::new()).map(|parts| parts.concat())
}

/// Like [`to_tlv`], but returns the slices that make up the packet, so that a payload is copied
/// only once. `scratch` is memory for new octets.
///
/// # Errors
/// Those of [`to_tlv`].
pub fn tlv_parts<'a>(
    packet: &HicnView<'a>,
    nonce: u32,
    scratch: &'a mut Vec<u8>,
) -> Result<[&'a [u8]; 3], HicnError> {
    scratch.clear();
    if packet.rest.len() > PACKET_SIZE_MAX {
        return Err(HicnError::TooLarge);
    }
    // Each suffix is an Interest of its own in NDN.
    if packet.is_interest_manifest() {
        return Err(HicnError::NoForm);
    }
    scratch.extend_from_slice(&[0; OUTER_SIZE]);
    packet.header.name.write(scratch);
    let (typ, Split { payload, at }) = match (packet.header.is_data(), &packet.ah) {
        (false, _) => (tlv::INTEREST, write_interest(packet, nonce, scratch)),
        (true, Some(ah)) if ah.algorithm == Algorithm::NDN => {
            (tlv::DATA, write_carried_data(ah, packet.payload, scratch)?)
        }
        (true, _) => (tlv::DATA, write_native_data(packet, scratch)),
    };
    // Puts type and length directly before the value.
    let len = scratch.len() - OUTER_SIZE + payload.len();
    let start = OUTER_SIZE - 1 - tlv::var_number_size(len as u64);
    if OUTER_SIZE - start + len > PACKET_SIZE_MAX {
        return Err(HicnError::TooLarge);
    }
    scratch[start] = typ as u8;
    tlv::write_var_number(len as u64, &mut scratch[start + 1..]);
    let (head, tail) = scratch.split_at(at);
    Ok([&head[start..], payload, tail])
}

/// A payload, and where it belongs in the octets that were written.
struct Split<'a> {
    payload: &'a [u8],
    at: usize,
}

fn write_element(typ: u32, value: &[u8], out: &mut Vec<u8>) {
    write_element_header(typ, value.len(), out);
    out.extend_from_slice(value);
}

fn write_element_header(typ: u32, len: usize, out: &mut Vec<u8>) {
    if typ < 253 && len < 253 {
        out.extend_from_slice(&[typ as u8, len as u8]);
        return;
    }
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

fn write_interest<'a>(packet: &HicnView<'a>, nonce: u32, out: &mut Vec<u8>) -> Split<'a> {
    let Header { flags, lifetime_ms, hop_limit, .. } = packet.header;
    if !flags.has(Flags::STALE) {
        out.extend_from_slice(&[tlv::MUST_BE_FRESH as u8, 0]);
    }
    let [n0, n1, n2, n3] = nonce.to_be_bytes();
    out.extend_from_slice(&[tlv::NONCE as u8, 4, n0, n1, n2, n3]);
    write_nni(tlv::INTEREST_LIFETIME, lifetime_ms, out);
    out.extend_from_slice(&[tlv::HOP_LIMIT as u8, 1, hop_limit]);
    let flags = if flags.has(Flags::AH) { Flags::AH.octet() } else { 0 };
    if flags != 0 || !packet.rest.is_empty() {
        write_element_header(tlv::HICN_PAYLOAD, 1 + packet.rest.len(), out);
        out.push(flags);
    }
    Split { payload: packet.rest, at: out.len() }
}

fn write_native_data<'a>(packet: &HicnView<'a>, out: &mut Vec<u8>) -> Split<'a> {
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
        write_element_header(tlv::CONTENT, packet.payload.len(), out);
    }
    let at = out.len();
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
    Split { payload: packet.payload, at }
}

/// Appends the elements of an NDN Data behind its name.
fn write_carried_data<'a>(
    ah: &AhView<'_>,
    payload: &'a [u8],
    out: &mut Vec<u8>,
) -> Result<Split<'a>, HicnError> {
    let mut at = None;
    for element in tlv::Reader::new(ah.signature()) {
        let element = element.map_err(|_| HicnError::NdnElements)?;
        match element.typ {
            tlv::CONTENT if at.is_none() && element.value.is_empty() => {
                write_element_header(tlv::CONTENT, payload.len(), out);
                at = Some(out.len());
            }
            tlv::NAME | tlv::CONTENT => return Err(HicnError::NdnElements),
            _ => out.extend_from_slice(element.wire),
        }
    }
    match at {
        Some(at) => Ok(Split { payload, at }),
        None if payload.is_empty() => Ok(Split { payload, at: out.len() }),
        // There is no Content for the payload.
        None => Err(HicnError::NdnElements),
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

/// Converts an Interest or Data of NDN to an hICN packet.
///
/// # Errors
/// [`HicnError::NoName`], [`HicnError::NoForm`] and [`HicnError::TooLarge`].
pub fn from_tlv(packet: &[u8], hop: &Hop) -> Result<Vec<u8>, HicnError> {
    hicn_parts(packet, hop, &mut Vec::new()).map(|parts| parts.concat())
}

/// Like [`from_tlv`], but returns the two slices that make up the packet, so that a payload is
/// copied only once. `scratch` is memory for the headers.
///
/// # Errors
/// Those of [`from_tlv`].
pub fn hicn_parts<'a>(
    packet: &'a [u8],
    hop: &Hop,
    scratch: &'a mut Vec<u8>,
) -> Result<[&'a [u8]; 2], HicnError> {
    scratch.clear();
    let payload = if packet.first().is_some_and(|&first| u32::from(first) == tlv::DATA) {
        data_headers(packet, hop, scratch)?
    } else {
        let interest = InterestView::decode(packet).map_err(|_| HicnError::NoForm)?;
        interest_headers(&interest, hop, scratch)?
    };
    Ok([scratch, payload])
}

fn interest_headers<'a>(
    interest: &InterestView<'a>,
    hop: &Hop,
    out: &mut Vec<u8>,
) -> Result<&'a [u8], HicnError> {
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
    Ok(rest)
}

/// Appends the headers of a Data, and returns its payload.
fn data_headers<'a>(packet: &'a [u8], hop: &Hop, out: &mut Vec<u8>) -> Result<&'a [u8], HicnError> {
    out.resize(HEADER_SIZE + AH_SIZE, 0);
    let (mut header, content) = match CarriedData::read(packet, out)? {
        CarriedData::Ndn { name, freshness_ms, is_last, content } => {
            end_ndn(out, HEADER_SIZE)?;
            let flags = Flags::DATA.with(Flags::AH).with_if(Flags::LAST, is_last);
            let header = Header { flags, lifetime_ms: freshness_ms, ..Header::of_data(name) };
            (header, content)
        }
        CarriedData::Native => {
            out.truncate(HEADER_SIZE);
            let data = DataView::decode(packet).map_err(|_| HicnError::NoForm)?;
            native_headers(&data, out)?
        }
    };
    header.locator = hop.locator;
    header.is_marked = hop.is_marked;
    header.path_label = updated_label(header.path_label, hop.face);
    let head = header.encode(&[&out[HEADER_SIZE..], content])?;
    out[..HEADER_SIZE].copy_from_slice(&head);
    Ok(content)
}

/// Appends the authentication header of a Data with SignatureType hICN.
fn native_headers<'a>(
    data: &DataView<'a>,
    out: &mut Vec<u8>,
) -> Result<(Header, &'a [u8]), HicnError> {
    let name = HicnName::from_name(data.name).ok_or(HicnError::NoName)?;
    let native = NativeData::of(data).ok_or(HicnError::NoForm)?;
    if let Some(ah) = &native.ah {
        ah.write(out);
    }
    let header = Header {
        path_label: native.path_label,
        flags: Flags::DATA
            .with_if(Flags::AH, native.ah.is_some())
            .with_if(Flags::MANIFEST, native.is_manifest)
            .with_if(Flags::LAST, native.is_last),
        lifetime_ms: data.freshness_ms,
        ..Header::of_data(name)
    };
    Ok((header, data.content))
}

/// What the headers of a Data depend on.
enum CarriedData<'a> {
    /// SignatureType hICN.
    Native,
    /// Another SignatureType.
    Ndn { name: HicnName, freshness_ms: u64, is_last: bool, content: &'a [u8] },
}

impl<'a> CarriedData<'a> {
    /// Reads a Data in one pass, and appends all its elements but the name, and Content without its
    /// value. Every packet of a router has been decoded before, so this decodes no more than it
    /// needs.
    fn read(packet: &'a [u8], out: &mut Vec<u8>) -> Result<Self, HicnError> {
        let no_form = |_| HicnError::NoForm;
        let body = tlv::read_single_of(packet, tlv::DATA).map_err(no_form)?;
        let mut reader = tlv::Reader::new(body);
        let first = reader.next_element().map_err(no_form)?;
        let value = first.filter(|it| it.typ == tlv::NAME).ok_or(HicnError::NoForm)?.value;
        let name = HicnName::from_value(value).ok_or(HicnError::NoName)?;
        let (mut freshness_ms, mut is_last, mut content, mut is_signed) = (0, false, None, false);
        while let Some(element) = reader.next_element().map_err(no_form)? {
            match element.typ {
                tlv::META_INFO => {
                    for field in tlv::Reader::new(element.value) {
                        let field = field.map_err(no_form)?;
                        match field.typ {
                            tlv::FRESHNESS_PERIOD => {
                                freshness_ms = tlv::nni(field.value).ok_or(HicnError::NoForm)?;
                            }
                            tlv::FINAL_BLOCK_ID => {
                                is_last = HicnName::last_component(value) == field.value
                            }
                            _ => {}
                        }
                    }
                }
                tlv::CONTENT if content.is_none() => {
                    content = Some(element.value);
                    out.extend_from_slice(&[tlv::CONTENT as u8, 0]);
                    continue;
                }
                tlv::CONTENT | tlv::NAME => return Err(HicnError::NoForm),
                tlv::SIGNATURE_INFO => {
                    let first = tlv::Reader::new(element.value).next_element().map_err(no_form)?;
                    let typ = first.filter(|it| it.typ == tlv::SIGNATURE_TYPE);
                    let typ = typ.and_then(|it| tlv::nni(it.value)).ok_or(HicnError::NoForm)?;
                    if typ == signature_type::HICN {
                        return Ok(Self::Native);
                    }
                    is_signed = true;
                }
                _ => {}
            }
            out.extend_from_slice(element.wire);
        }
        if !is_signed {
            return Err(HicnError::NoForm);
        }
        Ok(Self::Ndn { name, freshness_ms, is_last, content: content.unwrap_or_default() })
    }
}
