//! hICN packets (decisions 0046 to 0049). There is one packet in a frame, and no link header.

mod locator;

use alloc::vec::Vec;

use weir_base::{Packet, Pool, Rng};
use weir_hicn::control::ControlView;
use weir_hicn::{HicnError, HicnView, Hop, from_tlv, to_tlv};
use weir_wire::CongestionMark;
use weir_wire::lp::LpHeader;
use weir_wire::tlv;

use super::config::{CodecConfig, HicnConfig, PacketFormat};
use super::context::CodecContext;
use super::received::Received;
use crate::counters::LinkDrop;
use crate::frame::{FRAME_PREFIX_MAX, Frame};

/// Free memory that a face keeps for the packets that it sends: those of a usual batch.
const POOL_BYTES_MAX: usize = 256 << 10;

/// The state of a face with hICN packets.
#[derive(Debug)]
pub(crate) struct Hicn {
    /// Draws the nonces of received Interests.
    rng: Rng,
    /// A packet while it is converted. The memory is reused.
    scratch: Vec<u8>,
    /// Memory of the packets that are sent.
    pool: Pool,
}

impl Hicn {
    pub(crate) fn new(config: &CodecConfig) -> Self {
        let rng = Rng::from_seed(config.sequence_start);
        Self { rng, scratch: Vec::new(), pool: Pool::new(POOL_BYTES_MAX) }
    }

    /// Frees memory that only earlier packets needed.
    pub(crate) fn shrink(&mut self) {
        (self.scratch, self.pool) = (Vec::new(), Pool::new(POOL_BYTES_MAX));
    }

    /// Decodes one frame, which is an IPv6 packet.
    pub(crate) fn decode(
        &mut self,
        context: CodecContext<'_>,
        frame: &Packet,
        pool: &mut Pool,
    ) -> Result<Received, LinkDrop> {
        let config = config_of(context.config)?;
        let view = match HicnView::decode(frame) {
            Ok(view) => view,
            Err(_) if ControlView::is_control(frame) => {
                return match config.has_control {
                    true => Ok(Received::Control(frame.clone())),
                    false => Err(LinkDrop::HicnControl),
                };
            }
            Err(error) => return Err(drop_of(error)),
        };
        let range = to_tlv(&view, self.rng.next_u32(), &mut self.scratch).map_err(drop_of)?;
        let packet = pool.copy(&self.scratch[range]);
        let mut header = LpHeader::default();
        if view.header.is_marked {
            header.congestion_mark = CongestionMark::SPARSE.value();
        }
        let locator = view.header.locator;
        if view.header.is_data() {
            context.counters.in_data += 1;
            // Without tokens, nothing is learnt from a locator that happens to be right.
            if config.has_tokens {
                header.pit_token = locator::own_token(config.locator, locator);
            }
        } else {
            context.counters.in_interests += 1;
            header.pit_token = locator::token_of(locator);
        }
        Ok(Received::Packet { header, packet })
    }

    /// Encodes one packet into a frame.
    pub(crate) fn encode(
        &mut self,
        config: &CodecConfig,
        header: &LpHeader,
        packet: &[u8],
    ) -> Result<Frame, LinkDrop> {
        let HicnConfig { locator, face, .. } = *config_of(config)?;
        if header.nack.is_some() {
            return Err(LinkDrop::HicnNoForm);
        }
        let is_data = packet.first().is_some_and(|&first| u32::from(first) == tlv::DATA);
        // The answer to an Interest without a locator could not return.
        if !is_data && locator.is_unspecified() {
            return Err(LinkDrop::HicnNoLocator);
        }
        let locator = match is_data {
            true => locator::locator_of(&header.pit_token),
            false => locator::own_locator(locator, &header.pit_token),
        };
        let hop = Hop { locator, face, is_marked: header.congestion_mark != 0 };
        from_tlv(packet, &hop, &mut self.scratch).map_err(drop_of)?;
        if self.scratch.len() > config.mtu {
            return Err(LinkDrop::TooLargeForMtu);
        }
        // A short packet, such as an Interest, needs no memory of its own. A long one must be a
        // payload without a prefix, so that sockets never pad it.
        Ok(match self.scratch.len() <= FRAME_PREFIX_MAX {
            true => Frame::new(&self.scratch, Packet::empty()),
            false => Frame::bare(self.pool.copy(&self.scratch)),
        })
    }
}

/// The configuration of an hICN face. A link has the state of hICN only with such a configuration.
fn config_of(config: &CodecConfig) -> Result<&HicnConfig, LinkDrop> {
    match &config.format {
        PacketFormat::Hicn(config) => Ok(config),
        PacketFormat::Ndnlp => Err(LinkDrop::HicnNoForm),
    }
}

fn drop_of(error: HicnError) -> LinkDrop {
    match error {
        HicnError::Truncated(_) => LinkDrop::HicnTruncated,
        HicnError::Version(_) => LinkDrop::HicnVersion,
        HicnError::Length { .. } => LinkDrop::HicnLength,
        HicnError::ExtensionHeader(_) => LinkDrop::HicnExtensionHeader,
        HicnError::Fragment => LinkDrop::HicnFragment,
        HicnError::Icmp => LinkDrop::HicnIcmp,
        HicnError::NotTcp(_) => LinkDrop::HicnNotTcp,
        HicnError::Ports { .. } => LinkDrop::HicnPorts,
        HicnError::TcpOptions(_) => LinkDrop::HicnTcpOptions,
        HicnError::Ah => LinkDrop::HicnAh,
        HicnError::Algorithm(_) => LinkDrop::HicnAlgorithm,
        HicnError::NdnElements => LinkDrop::HicnNdnElements,
        HicnError::TooLarge => LinkDrop::HicnTooLarge,
        HicnError::NoName => LinkDrop::HicnNoName,
        HicnError::NoForm => LinkDrop::HicnNoForm,
    }
}
