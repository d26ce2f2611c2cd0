use weir_base::{NS_PER_MS, Rng};
use weir_wire::PACKET_SIZE_MAX;
use weir_wire::lp::LP_PREFIX_MAX;

use crate::codec::{CodecConfig, HicnConfig, PacketFormat};
use crate::egress::{DisciplineConfig, EgressConfig, MarkingConfig, MarkingPolicy};
use crate::ingress::ShapingConfig;
use crate::runs::RunsConfig;

const QUEUE_BYTES_MAX: u64 = 8 << 20;

/// The configuration of one face's [`Link`](crate::Link), with its limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkConfig {
    /// Headers and fragments.
    pub codec: CodecConfig,
    /// The egress queue.
    pub egress: EgressConfig,
    /// Shaping of incoming Interests.
    pub shaping: ShapingConfig,
    /// The seed of random numbers and name hashes of shaping. Keep it secret.
    pub shaping_seed: u64,
}

impl LinkConfig {
    /// Changes the seeds for one of several links with this configuration, such as the peers of a
    /// port. With the same seed, Interests of two peers with hICN packets would get the same
    /// nonces, and look like loops.
    pub fn reseed(&mut self, number: u64) {
        let seeds = [&mut self.codec.sequence_start, &mut self.egress.seed, &mut self.shaping_seed];
        for seed in seeds {
            // Neighbouring numbers must not give neighbouring seeds.
            *seed = Rng::from_seed(*seed ^ Rng::from_seed(number).next_u64()).next_u64();
        }
    }

    /// NFD's defaults for Unix and TCP faces, without fragments. A PIT token may make a frame
    /// longer than the largest packet. Only peers that sent a token receive one.
    pub fn stream() -> Self {
        Self {
            codec: CodecConfig {
                format: PacketFormat::Ndnlp,
                mtu: PACKET_SIZE_MAX + LP_PREFIX_MAX,
                fragmentation: false,
                reassembly: false,
                local_fields: false,
                keep_incoming_face: false,
                announcements: false,
                partials_max: 256,
                partial_bytes_max: 1 << 20,
                reliability: false,
                unacknowledged_bytes_max: 8 << 20,
                runs: RunsConfig::Off,
                sequence_start: 0,
            },
            egress: EgressConfig {
                queue_bytes_max: QUEUE_BYTES_MAX,
                marking: MarkingConfig {
                    is_on: true,
                    policy: MarkingPolicy::default(),
                    threshold_bytes: 65536,
                    interval_ns: 100 * NS_PER_MS,
                    capacity_bytes: QUEUE_BYTES_MAX,
                },
                discipline: DisciplineConfig::default(),
                seed: 0,
            },
            shaping: ShapingConfig::None,
            shaping_seed: 0,
        }
    }

    /// NFD's defaults for UDP faces: packets larger than `mtu` bytes are fragmented.
    pub fn datagram(mtu: usize) -> Self {
        let mut config = Self::stream();
        config.codec.mtu = mtu;
        config.codec.fragmentation = true;
        config.codec.reassembly = true;
        config
    }

    /// A face with hICN packets of at most `mtu` bytes.
    pub fn hicn(mtu: usize, config: HicnConfig) -> Self {
        let mut link = Self::stream();
        link.codec.mtu = mtu;
        link.codec.format = PacketFormat::Hicn(config);
        link
    }

    /// Raises an MTU that is too small to [`MTU_MIN`](crate::MTU_MIN), and turns off what the
    /// packet format does not have. A stream needs no pacing, nor does a link
    /// that sends lost frames again.
    pub(crate) fn sanitized(mut self) -> Self {
        self.codec.sanitize();
        let CodecConfig { fragmentation: is_datagram, reliability, .. } = self.codec;
        if (reliability || !is_datagram) && self.egress.discipline == DisciplineConfig::Paced {
            self.egress.discipline = DisciplineConfig::Fifo;
        }
        self
    }
}

impl Default for LinkConfig {
    fn default() -> Self {
        Self::stream()
    }
}
