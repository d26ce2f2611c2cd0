//! hICN packets (decisions 0046 to 0049). There is one packet in a frame, and no link header.

mod locator;

use alloc::vec::Vec;

use weir_base::{Packet, Pool, Rng};
use weir_hicn::control::ControlView;
use weir_hicn::{HicnError, HicnView, Hop, InterestManifest, hicn_parts, tlv_parts};
use weir_wire::CongestionMark;
use weir_wire::lp::LpHeader;
use weir_wire::tlv;

use super::config::{CodecConfig, HicnConfig, PacketFormat};
use super::context::CodecContext;
use super::received::Received;
use crate::counters::LinkDrop;
use crate::frame::{FRAME_PREFIX_MAX, Frame};

/// Free memory that a face keeps for the packets that it sends: those of a batch. There may be many
/// such faces, and no budget counts it, so it is freed at the next [`Hicn::shrink`].
const POOL_BYTES_MAX: usize = 256 << 10;

/// The state of a face with hICN packets.
#[derive(Debug)]
pub(crate) struct Hicn {
    /// Draws the nonces of received Interests.
    rng: Rng,
    /// New octets of a packet while it is converted. The memory is reused.
    scratch: Vec<u8>,
    /// Memory of the packets that are sent.
    pool: Pool,
    /// The remaining Interests of a received Interest manifest, in reverse order: at most
    /// `SUFFIXES_MAX`.
    run: Vec<(LpHeader, Packet)>,
}

impl Hicn {
    pub(crate) fn new(config: &CodecConfig) -> Self {
        let rng = Rng::from_seed(config.sequence_start);
        let pool = Pool::new(POOL_BYTES_MAX);
        Self { rng, scratch: Vec::new(), pool, run: Vec::new() }
    }

    /// Frees memory that only earlier packets needed.
    pub(crate) fn shrink(&mut self) {
        (self.scratch, self.pool) = (Vec::new(), Pool::new(POOL_BYTES_MAX));
        self.run.shrink_to_fit();
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
                return if config.has_control {
                    Ok(Received::Control(frame.clone()))
                } else {
                    Err(LinkDrop::HicnControl)
                };
            }
            Err(error) => return Err(drop_of(error)),
        };
        if view.is_interest_manifest() {
            return self.decode_manifest(context, &view, pool);
        }
        let nonce = self.rng.next_u32();
        let parts = tlv_parts(&view, nonce, &mut self.scratch).map_err(drop_of)?;
        let packet = pool.concat(&parts);
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

    /// Decodes an Interest manifest into one Interest for each suffix.
    #[cold]
    fn decode_manifest(
        &mut self,
        context: CodecContext<'_>,
        view: &HicnView<'_>,
        pool: &mut Pool,
    ) -> Result<Received, LinkDrop> {
        let manifest = InterestManifest::decode(view.payload).map_err(drop_of)?;
        self.run.clear();
        let mut header =
            LpHeader { pit_token: locator::token_of(view.header.locator), ..LpHeader::default() };
        if view.header.is_marked {
            header.congestion_mark = CongestionMark::SPARSE.value();
        }
        for suffix in manifest.suffixes() {
            let nonce = self.rng.next_u32();
            let interest = view.for_suffix(suffix);
            let parts = tlv_parts(&interest, nonce, &mut self.scratch).map_err(drop_of)?;
            let packet = pool.concat(&parts);
            self.run.push((header.clone(), packet));
        }
        self.run.reverse();
        let interests = self.run.len() as u64;
        context.counters.in_interests += interests;
        context.counters.in_runs += 1;
        context.counters.in_run_interests += interests;
        Ok(Received::Run)
    }

    /// The next Interest of the Interest manifest that was received last.
    pub(crate) fn next_in_run(&mut self) -> Option<(LpHeader, Packet)> {
        self.run.pop()
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
        let locator = if is_data {
            locator::locator_of(&header.pit_token)
        } else {
            locator::own_locator(locator, &header.pit_token)
        };
        let hop = Hop { locator, face, is_marked: header.congestion_mark != 0 };
        let [head, payload] = hicn_parts(packet, &hop, &mut self.scratch).map_err(drop_of)?;
        if head.len() + payload.len() > config.mtu {
            return Err(LinkDrop::TooLargeForMtu);
        }
        // A packet that fits a prefix, such as an Interest, needs no memory of its own. Others must
        // have no prefix, so that sockets never pad them.
        Ok(if payload.is_empty() && head.len() <= FRAME_PREFIX_MAX {
            Frame::new(head, Packet::empty())
        } else {
            Frame::bare(self.pool.concat(&[head, payload]))
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
        HicnError::InterestManifest => LinkDrop::HicnInterestManifest,
        HicnError::TooLarge => LinkDrop::HicnTooLarge,
        HicnError::NoName => LinkDrop::HicnNoName,
        HicnError::NoForm => LinkDrop::HicnNoForm,
    }
}
