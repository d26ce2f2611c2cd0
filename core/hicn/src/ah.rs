//! The authentication header of a signed packet (NDN-FACTS 8).

use alloc::vec::Vec;

use crate::error::HicnError;

/// Octets of the header without the signature.
pub(crate) const AH_SIZE: usize = 44;
/// Octets of the unit of lengths.
pub(crate) const WORD: usize = 4;
/// Most octets of a signature with its padding.
pub(crate) const SIGNATURE_SIZE_MAX: usize = u8::MAX as usize * WORD;

/// The algorithm of a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Algorithm(u8);

impl Algorithm {
    /// No signature: hICN's library sends such a header if the producer has no key.
    pub const NONE: Self = Self(0);
    pub const ECDSA_SHA256: Self = Self(7);
    pub const ED25519: Self = Self(9);
    pub const HMAC_SHA256: Self = Self(13);
    pub const RSA_SHA256: Self = Self(17);
    /// The highest number that hICN's library assigns.
    const LAST: u8 = 18;
    /// Ours: the packet is an NDN Data with an NDN signature. The elements that have no place in
    /// the header of an hICN packet are in the place of the signature (decision 0046).
    pub(crate) const NDN: Self = Self(0xFE);

    /// The algorithm with this number.
    ///
    /// # Errors
    /// [`HicnError::Algorithm`].
    pub(crate) const fn from_number(number: u8) -> Result<Self, HicnError> {
        match number {
            0..=Self::LAST => Ok(Self(number)),
            _ if number == Self::NDN.0 => Ok(Self::NDN),
            _ => Err(HicnError::Algorithm(number)),
        }
    }

    pub const fn number(self) -> u8 {
        self.0
    }
}

/// An authentication header, borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AhView<'a> {
    pub algorithm: Algorithm,
    /// How many octets at the end of `signature_field` are unused.
    pub(crate) padding: u8,
    /// Milliseconds of a clock of the producer.
    pub time_ms: u64,
    /// SHA-256 of the public key.
    pub key_id: &'a [u8; 32],
    /// The signature with its padding.
    pub(crate) signature_field: &'a [u8],
}

impl<'a> AhView<'a> {
    /// Reads the header at the start of `octets`. Returns the octets behind it as well.
    pub(crate) fn read(octets: &'a [u8]) -> Result<(Self, &'a [u8]), HicnError> {
        let (fixed, rest) = octets.split_first_chunk::<AH_SIZE>().ok_or(HicnError::Ah)?;
        let [next_header, words, algorithm, padding, ..] = *fixed;
        let signature_size = usize::from(words) * WORD;
        if next_header != 0 || usize::from(padding) > signature_size {
            return Err(HicnError::Ah);
        }
        let (signature_field, rest) = rest.split_at_checked(signature_size).ok_or(HicnError::Ah)?;
        if algorithm == Algorithm::NONE.number() && signature_size > 0 {
            return Err(HicnError::Algorithm(algorithm));
        }
        let time: &[u8; 8] = fixed[4..].first_chunk().expect("the time is in the fixed octets");
        let key_id = fixed.last_chunk().expect("the key identifier is in the fixed octets");
        let ah = Self {
            algorithm: Algorithm::from_number(algorithm)?,
            padding,
            time_ms: u64::from_be_bytes(*time),
            key_id,
            signature_field,
        };
        Ok((ah, rest))
    }

    /// The signature without padding.
    pub fn signature(&self) -> &'a [u8] {
        &self.signature_field[..self.signature_field.len() - usize::from(self.padding)]
    }

    /// The octets before the signature, with this padding.
    pub(crate) fn fixed_octets(&self, padding: u8) -> [u8; AH_SIZE] {
        let mut fixed = [0; AH_SIZE];
        fixed[1] = (self.signature_field.len() / WORD) as u8;
        fixed[2] = self.algorithm.number();
        fixed[3] = padding;
        fixed[4..12].copy_from_slice(&self.time_ms.to_be_bytes());
        fixed[12..].copy_from_slice(self.key_id);
        fixed
    }

    /// Appends the header.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.fixed_octets(self.padding));
        out.extend_from_slice(self.signature_field);
    }
}

/// Completes a header of NDN elements: [`AH_SIZE`] zeros at this place, then the elements to the
/// end of `out`.
///
/// # Errors
/// [`HicnError::NoForm`] if the elements are too long.
pub(crate) fn end_ndn(out: &mut Vec<u8>, ah_at: usize) -> Result<(), HicnError> {
    let size = out.len() - ah_at - AH_SIZE;
    if size > SIGNATURE_SIZE_MAX {
        return Err(HicnError::NoForm);
    }
    let words = size.div_ceil(WORD);
    let padding = words * WORD - size;
    out.extend_from_slice(&[0; WORD - 1][..padding]);
    out[ah_at + 1..ah_at + 4].copy_from_slice(&[words as u8, Algorithm::NDN.0, padding as u8]);
    Ok(())
}
