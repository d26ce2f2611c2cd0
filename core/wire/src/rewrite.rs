use crate::interest::InterestView;
use crate::tlv;

const NONCE_TLV_SIZE: usize = 6;

/// Copies an Interest into `out` as a forwarder sends it on, without allocation; the number of
/// octets written, `None` when `out` is too short for them.
///
/// Nonce becomes `nonce`, inserted when absent. HopLimit becomes `hop_limit` when both exist, and
/// stays as it is when `hop_limit` is `None`. With `strip_forwarding_hint` the ForwardingHint is
/// left out. ApplicationParameters and all that follows them are never touched, so their digest
/// stays right.
pub fn rewrite_interest(
    view: &InterestView<'_>,
    nonce: u32,
    hop_limit: Option<u8>,
    strip_forwarding_hint: bool,
    out: &mut [u8],
) -> Option<usize> {
    let wire = view.wire;
    let body_at = view.body_at as usize;
    let (mut hint_start, mut hint_end) = (view.nonce_place as usize, view.nonce_place as usize);
    if strip_forwarding_hint && view.forwarding_hint_at.1 != 0 {
        hint_start = view.forwarding_hint_at.0 as usize;
        hint_end = view.forwarding_hint_at.1 as usize;
    }
    let stripped = hint_end - hint_start;
    let added = if view.nonce.is_none() { NONCE_TLV_SIZE } else { 0 };
    let body_size = wire.len() - body_at - stripped + added;
    let new_body_at = 1 + tlv::var_number_size(body_size as u64);
    let total = new_body_at + body_size;
    let out = out.get_mut(..total)?;

    // Where ForwardingHint ends, it is the last element before Nonce, so its end is Nonce's place.
    let nonce_at = new_body_at + hint_start - body_at;
    if stripped + added == 0 {
        out.copy_from_slice(wire);
    } else {
        out[0] = tlv::INTEREST as u8;
        tlv::write_var_number(body_size as u64, &mut out[1..]);
        out[new_body_at..nonce_at].copy_from_slice(&wire[body_at..hint_start]);
        out[nonce_at + added..].copy_from_slice(&wire[hint_end..]);
    }
    // What follows the insertion keeps its distance from the end.
    let moved = |at: usize| total - (wire.len() - at);
    match view.nonce_at() {
        Some(at) => out[moved(at)..moved(at) + 4].copy_from_slice(&nonce.to_be_bytes()),
        None => {
            out[nonce_at..nonce_at + 2].copy_from_slice(&[tlv::NONCE as u8, 4]);
            out[nonce_at + 2..nonce_at + NONCE_TLV_SIZE].copy_from_slice(&nonce.to_be_bytes());
        }
    }
    if let (Some(at), Some(hop_limit)) = (view.hop_limit_at(), hop_limit) {
        out[moved(at)] = hop_limit;
    }
    Some(total)
}
