use alloc::boxed::Box;

use weir_base::Packet;
use weir_wire::lp::{HopSignal, LpHeader};

use super::config::{CodecConfig, PacketFormat};
use super::context::CodecContext;
use super::hicn::Hicn;
use super::ndnlp::{NdnlpEncoder, Reliability};
use crate::counters::LinkDrop;
use crate::frame::Frame;

/// Encodes packets into frames, and has the state that only some faces need.
#[derive(Debug)]
pub(crate) struct Encoder {
    ndnlp: NdnlpEncoder,
    /// `None`: NDNLP without reliability. Most faces have none, and one test of this pointer then
    /// decides about all others.
    mode: Option<Box<Mode>>,
}

#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "a face has one, in memory of its own")]
pub(crate) enum Mode {
    /// NDNLP with reliability.
    Reliability(Reliability),
    Hicn(Hicn),
}

impl Encoder {
    pub(crate) fn new(config: &CodecConfig) -> Self {
        let mut encoder = Self { ndnlp: NdnlpEncoder::new(config), mode: None };
        encoder.configure(config);
        encoder
    }

    /// Applies a configuration. Turning reliability off discards its state.
    pub(crate) fn configure(&mut self, config: &CodecConfig) {
        let is_kept = match (self.mode.as_deref(), &config.format) {
            (Some(Mode::Hicn(_)), PacketFormat::Hicn(_)) => true,
            (Some(Mode::Reliability(_)), PacketFormat::Ndnlp) => config.reliability,
            _ => false,
        };
        if is_kept {
            return;
        }
        self.mode = match config.format {
            PacketFormat::Hicn(_) => Some(Mode::Hicn(Hicn::new(config))),
            PacketFormat::Ndnlp => {
                config.reliability.then(|| Mode::Reliability(Reliability::default()))
            }
        }
        .map(Box::new);
    }

    /// Reliability or hICN; `None` on other faces.
    #[inline]
    pub(crate) fn mode(&mut self) -> Option<&mut Mode> {
        self.mode.as_deref_mut()
    }

    /// Whether the link has reliability or hICN packets.
    #[inline]
    pub(crate) fn has_mode(&self) -> bool {
        self.mode.is_some()
    }

    /// The state of a face with hICN packets.
    #[inline]
    pub(crate) fn hicn(&mut self) -> Option<&mut Hicn> {
        match self.mode.as_deref_mut()? {
            Mode::Hicn(hicn) => Some(hicn),
            Mode::Reliability(_) => None,
        }
    }

    /// The link's reliability, if it is on.
    #[inline]
    pub(crate) fn reliability(&mut self) -> Option<&mut Reliability> {
        match self.mode.as_deref_mut()? {
            Mode::Reliability(reliability) => Some(reliability),
            Mode::Hicn(_) => None,
        }
    }

    /// The link's reliability for reading, if it is on.
    #[inline]
    pub(crate) fn reliability_state(&self) -> Option<&Reliability> {
        match self.mode.as_deref()? {
            Mode::Reliability(reliability) => Some(reliability),
            Mode::Hicn(_) => None,
        }
    }

    /// Frees memory that only earlier packets needed.
    pub(crate) fn shrink(&mut self) {
        if let Some(Mode::Hicn(hicn)) = self.mode() {
            hicn.shrink();
        }
    }

    /// Encodes one packet and passes its frames to `push`. Returns their number, which is more than
    /// one if the packet must be fragmented.
    #[inline(always)]
    pub(crate) fn encode(
        &mut self,
        context: CodecContext<'_>,
        mut header: LpHeader,
        packet: &Packet,
        push: impl FnMut(Frame),
    ) -> Result<u64, LinkDrop> {
        let reliability = match self.mode.as_deref_mut() {
            None => None,
            Some(Mode::Reliability(reliability)) => Some(reliability),
            Some(Mode::Hicn(hicn)) => {
                return encode_hicn(hicn, context.config, &header, packet, push);
            }
        };
        self.ndnlp.encode(context, reliability, &mut header, packet, push)
    }

    /// Encodes Data with its prefix announcement, and returns the number of frames. `None`: the
    /// link cannot carry the announcement, and nothing was pushed. hICN packets carry none.
    #[cold]
    #[inline(never)]
    pub(crate) fn encode_announced(
        &mut self,
        config: &CodecConfig,
        mut header: LpHeader,
        packet_and_announcement: (&Packet, &Packet),
        push: impl FnMut(Frame),
    ) -> Option<u64> {
        match config.format {
            PacketFormat::Ndnlp => {
                self.ndnlp.encode_announced(config, &mut header, packet_and_announcement, push)
            }
            PacketFormat::Hicn(_) => None,
        }
    }

    pub(crate) fn encode_signal(
        config: &CodecConfig,
        signal: HopSignal,
    ) -> Result<Frame, LinkDrop> {
        match config.format {
            PacketFormat::Ndnlp => NdnlpEncoder::encode_signal(config, signal),
            PacketFormat::Hicn(_) => Err(LinkDrop::HicnNoForm),
        }
    }
}

/// Outside of [`Encoder::encode`], so that it costs other faces nothing.
#[cold]
#[inline(never)]
fn encode_hicn(
    hicn: &mut Hicn,
    config: &CodecConfig,
    header: &LpHeader,
    packet: &Packet,
    mut push: impl FnMut(Frame),
) -> Result<u64, LinkDrop> {
    push(hicn.encode(config, header, packet)?);
    Ok(1)
}
