use alloc::vec::Vec;

use weir_wire::tlv::{self, Writer};
use weir_wire::{InterestView, NameView};

use crate::native::child;

/// A request that our sockets put into the payload of an Interest (decision 0051), borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestPayload<'a> {
    /// The name that the application of the consumer has used.
    pub name: NameView<'a>,
    pub parameters: Option<&'a [u8]>,
}

/// The payload of an Interest is not the request that it begins like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed request in the payload of an Interest")]
pub struct PayloadError;

impl<'a> RequestPayload<'a> {
    /// The request in an Interest. `None`: there is no payload, or another one.
    ///
    /// # Errors
    /// It is truncated, or has unknown elements.
    pub fn of(interest: &InterestView<'a>) -> Result<Option<Self>, PayloadError> {
        let body = tlv::read_single_of(interest.wire, tlv::INTEREST).unwrap_or_default();
        // The first octet has the flags of an authentication header or a manifest.
        let Some([0, payload @ ..]) = child(body, tlv::HICN_PAYLOAD) else { return Ok(None) };
        let mut typ = [0; 9];
        let size = tlv::write_var_number(tlv::HICN_REQUEST.into(), &mut typ);
        if !payload.starts_with(&typ[..size]) {
            return Ok(None);
        }
        let malformed = |_| PayloadError;
        let value = tlv::read_single_of(payload, tlv::HICN_REQUEST).map_err(malformed)?;
        let mut reader = tlv::Reader::new(value);
        let mut next = || reader.next_element().map_err(malformed);
        let name = next()?.filter(|element| element.typ == tlv::NAME).ok_or(PayloadError)?;
        let name = NameView::from_value(name.value).map_err(malformed)?;
        let parameters = match next()? {
            Some(element) if element.typ == tlv::APPLICATION_PARAMETERS => Some(element.value),
            Some(_) => return Err(PayloadError),
            None => None,
        };
        match next()? {
            Some(_) => Err(PayloadError),
            None => Ok(Some(Self { name, parameters })),
        }
    }

    /// The TLV-VALUE of the request, which names it.
    pub fn value(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.tlv(tlv::NAME, self.name.value());
        if let Some(parameters) = self.parameters {
            writer.tlv(tlv::APPLICATION_PARAMETERS, parameters);
        }
        writer.into_vec()
    }

    /// The element for the end of an Interest.
    pub fn element(&self) -> Vec<u8> {
        let mut request = Writer::new();
        // No flags.
        request.raw(&[0]);
        request.tlv(tlv::HICN_REQUEST, &self.value());
        let mut element = Writer::new();
        element.tlv(tlv::HICN_PAYLOAD, request.as_slice());
        element.into_vec()
    }
}

#[cfg(test)]
mod tests {
    use weir_wire::{Interest, Name};

    use super::*;

    fn interest(element: &[u8]) -> Vec<u8> {
        let plain = Interest::new("/a".parse().unwrap()).nonce(1).encode();
        let mut writer = Writer::new();
        let body = tlv::read_single_of(&plain, tlv::INTEREST).unwrap();
        writer.tlv(tlv::INTEREST, &[body, element].concat());
        writer.into_vec()
    }

    fn read(wire: &[u8]) -> Result<Option<RequestPayload<'_>>, PayloadError> {
        RequestPayload::of(&InterestView::decode(wire).unwrap())
    }

    fn payload(octets: &[u8]) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.tlv(tlv::HICN_PAYLOAD, octets);
        interest(writer.as_slice())
    }

    #[test]
    fn requests_are_read_back() {
        let name: Name = "/site/film".parse().unwrap();
        for parameters in [None, Some(&b""[..]), Some(&[7; 8000])] {
            let request = RequestPayload { name: name.as_view(), parameters };
            assert_eq!(read(&interest(&request.element())), Ok(Some(request)));
        }
    }

    #[test]
    fn rejects_malformed_requests_only() {
        let name: Name = "/site/film".parse().unwrap();
        let request = RequestPayload { name: name.as_view(), parameters: Some(b"text") };
        let element = request.element();
        let good = tlv::read_single_of(&element, tlv::HICN_PAYLOAD).unwrap().to_vec();
        assert_eq!(read(&payload(&good)), Ok(Some(request)));
        // Without payload, with flags, or with the payload of another program.
        for other in [&[][..], &[0], &[0, 7, 0], &[0x10, 1, 2], &[&[0x20], &good[1..]].concat()] {
            assert_eq!(read(&payload(other)), Ok(None), "{other:?}");
        }
        // The type of the request takes three octets.
        for len in 4..good.len() {
            assert_eq!(read(&payload(&good[..len])), Err(PayloadError), "{len}");
        }
        assert_eq!(read(&payload(&[&good[..], &[0]].concat())), Err(PayloadError));
        for value in [&[][..], &[0x24, 0], &[7, 0, 7, 0], &[7, 0, 0x24, 0, 0x24, 0], &[7, 2, 8, 9]]
        {
            let mut writer = Writer::new();
            writer.raw(&[0]);
            writer.tlv(tlv::HICN_REQUEST, value);
            assert_eq!(read(&payload(writer.as_slice())), Err(PayloadError), "{value:?}");
        }
    }
}
