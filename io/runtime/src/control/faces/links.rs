//! Link settings of faces: defaults of the configuration, and changes by commands.

use std::net::IpAddr;

use weir_face::{FaceUri, UdpFormat};
use weir_forward::FaceScope;
use weir_link::{
    CodecConfig, EgressConfig, LinkConfig, MTU_MIN, MarkingConfig, PacketFormat, RunsConfig,
};
use weir_manage::{FaceChanges, FaceError, MTU_AUTO};
use weir_wire::PACKET_SIZE_MAX;

use crate::config::FaceDefaults;
use crate::control::random_u64;

/// Applies the configuration's defaults to `base`.
pub(super) fn link_config(defaults: &FaceDefaults, base: LinkConfig) -> LinkConfig {
    let marking = MarkingConfig {
        is_on: defaults.congestion_marking,
        policy: defaults.marking.clone(),
        threshold_bytes: defaults.mark_threshold_bytes,
        interval_ns: defaults.mark_interval.as_nanos() as u64,
        capacity_bytes: defaults.queue_bytes_max as u64,
    };
    let egress = EgressConfig {
        queue_bytes_max: defaults.queue_bytes_max as u64,
        marking,
        discipline: defaults.discipline.clone().unwrap_or(base.egress.discipline),
        seed: random_u64(),
    };
    // Only datagram links fragment packets, and only these lose frames.
    let reliability = defaults.reliability && base.codec.fragmentation;
    let runs = if defaults.runs { RunsConfig::Accept } else { RunsConfig::Off };
    let sequence_start = random_u64();
    let codec =
        CodecConfig { sequence_start, reliability, runs, announcements: true, ..base.codec };
    LinkConfig { codec, egress, shaping: defaults.shaping, shaping_seed: random_u64() }
}

pub(super) fn udp_link(defaults: &FaceDefaults, format: UdpFormat, peer: IpAddr) -> LinkConfig {
    link_config(defaults, format.link_config(udp_mtu(defaults, peer)))
}

/// The largest datagram to `peer`, unless its face overrides it.
pub(super) fn udp_mtu(defaults: &FaceDefaults, peer: IpAddr) -> usize {
    defaults.udp_mtu.unwrap_or_else(|| weir_face::udp_mtu_default(peer))
}

/// The connecting side is the first to offer run Interests. hICN has no offers: only configured
/// peers get Interest manifests.
pub(super) fn begin_runs(link: &mut LinkConfig) {
    if link.codec.runs != RunsConfig::Off && link.codec.format == PacketFormat::Ndnlp {
        link.codec.runs = RunsConfig::Initiate;
    }
}

/// Applies the changes of a faces/create or faces/update command, as NFD does.
pub(super) fn apply_changes(
    link: &mut LinkConfig,
    changes: &FaceChanges,
    remote: &FaceUri,
    scope: FaceScope,
    mtu_default: usize,
) -> Result<(), FaceError> {
    let unsupported = |why: &str| Err(FaceError::Unsupported(why.into()));
    if let Some(mtu) = changes.mtu {
        if !remote.is_datagram() {
            return unsupported("only faces over UDP or a TUN device have a configurable MTU");
        }
        if mtu < MTU_MIN as u64 {
            return Err(FaceError::Unsupported(format!(
                "the MTU must be at least {MTU_MIN} bytes"
            )));
        }
        link.codec.mtu = match mtu {
            MTU_AUTO => mtu_default,
            _ => mtu.min(PACKET_SIZE_MAX as u64) as usize,
        };
    }
    if let Some(local_fields) = changes.local_fields {
        if local_fields && scope == FaceScope::NonLocal {
            return unsupported("local fields are only available on faces of this machine");
        }
        link.codec.local_fields = local_fields;
    }
    if let Some(reliability) = changes.reliability {
        if reliability && (!matches!(remote, FaceUri::Udp(_)) || remote.is_multicast()) {
            return unsupported("only UDP faces to one peer with NDN packets support reliability");
        }
        link.codec.reliability = reliability;
    }
    if let Some(marking) = changes.congestion_marking {
        link.egress.marking.is_on = marking;
    }
    if let Some(interval_ns) = changes.base_congestion_marking_interval_ns {
        link.egress.marking.interval_ns = interval_ns;
    }
    if let Some(threshold_bytes) = changes.default_congestion_threshold_bytes {
        link.egress.marking.threshold_bytes = threshold_bytes;
    }
    Ok(())
}
