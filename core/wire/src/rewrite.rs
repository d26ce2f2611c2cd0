use crate::interest::InterestView;
use crate::tlv;

const NONCE_TLV_SIZE: usize = 6;

/// Copies an Interest into `out` as a forwarder sends it, without allocation. Returns the number of
/// octets, or `None` if `out` is too short.
///
/// - Nonce becomes `nonce`. If it is absent, it is inserted.
/// - HopLimit becomes `hop_limit` if both exist. Otherwise it stays as it is.
/// - ForwardingHint is removed if `strip_forwarding_hint` is set.
/// - ApplicationParameters and everything behind them never change, so their digest stays valid.
#[inline(always)]
pub fn rewrite_interest(
    view: &InterestView<'_>,
    nonce: u32,
    hop_limit: Option<u8>,
    strip_forwarding_hint: bool,
    out: &mut [u8],
) -> Option<usize> {
    let wire = view.wire;
    let strips = strip_forwarding_hint && view.forwarding_hint_at.1 != 0;
    let total = match view.nonce {
        Some(_) if !strips => {
            out.get_mut(..wire.len())?.copy_from_slice(wire);
            wire.len()
        }
        _ => copy_changed(view, strips, out)?,
    };
    // Nonce and all later elements keep their distance from the end of the packet.
    let moved = |at: usize| total - (wire.len() - at);
    let nonce_end = moved(view.nonce_at().map_or(view.nonce_position as usize, |at| at + 4));
    out[nonce_end - 4..nonce_end].copy_from_slice(&nonce.to_be_bytes());
    if let (Some(at), Some(hop_limit)) = (view.hop_limit_at(), hop_limit) {
        out[moved(at)] = hop_limit;
    }
    Some(total)
}

/// Copies an Interest without its ForwardingHint if `strips` is set, and with an empty Nonce if it
/// has none.
#[cold]
fn copy_changed(view: &InterestView<'_>, strips: bool, out: &mut [u8]) -> Option<usize> {
    let (wire, body_at) = (view.wire, view.body_at as usize);
    // ForwardingHint is the last element before Nonce, so it ends where Nonce belongs.
    let hint_end = view.nonce_position as usize;
    let hint_start = if strips { view.forwarding_hint_at.0 as usize } else { hint_end };
    let added = if view.nonce.is_none() { NONCE_TLV_SIZE } else { 0 };
    let body_size = wire.len() - body_at - (hint_end - hint_start) + added;
    let new_body_at = 1 + tlv::var_number_size(body_size as u64);
    let total = new_body_at + body_size;
    let out = out.get_mut(..total)?;
    let nonce_at = new_body_at + hint_start - body_at;
    out[0] = tlv::INTEREST as u8;
    tlv::write_var_number(body_size as u64, &mut out[1..]);
    out[new_body_at..nonce_at].copy_from_slice(&wire[body_at..hint_start]);
    if added > 0 {
        out[nonce_at..nonce_at + 2].copy_from_slice(&[tlv::NONCE as u8, 4]);
    }
    out[nonce_at + added..].copy_from_slice(&wire[hint_end..]);
    Some(total)
}
