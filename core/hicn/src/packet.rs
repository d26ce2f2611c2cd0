use crate::ah::AhView;
use crate::error::HicnError;
use crate::header::{Flags, Header};

/// A whole hICN packet, borrowed: an Interest, or a Data.
#[derive(Clone, Copy, Debug)]
pub struct HicnView<'a> {
    pub header: Header,
    pub ah: Option<AhView<'a>>,
    pub payload: &'a [u8],
    /// The octets behind the fixed header.
    pub(crate) rest: &'a [u8],
}

impl<'a> HicnView<'a> {
    /// Decodes exactly one packet, from the IPv6 header on. Neither checksum nor signature is
    /// verified.
    ///
    /// # Errors
    /// Those of [`HicnError`] for received packets.
    pub fn decode(wire: &'a [u8]) -> Result<Self, HicnError> {
        let (header, rest) = Header::read(wire)?;
        let (ah, payload) = if header.flags.has(Flags::AH) {
            AhView::read(rest).map(|(ah, payload)| (Some(ah), payload))?
        } else {
            (None, rest)
        };
        Ok(Self { header, ah, payload, rest })
    }

    /// Whether it is an Interest for several suffixes, with an
    /// [`InterestManifest`](crate::InterestManifest) as its payload.
    pub const fn is_interest_manifest(&self) -> bool {
        !self.header.is_data() && self.header.flags.has(Flags::MANIFEST)
    }

    /// The Interest for one suffix of an Interest manifest.
    #[must_use]
    pub fn for_suffix(&self, suffix: u32) -> Self {
        let mut header = self.header;
        header.name.suffix = suffix;
        header.flags = header.flags.without(Flags::MANIFEST).without(Flags::AH);
        Self { header, ah: None, payload: &[], rest: &[] }
    }
}
