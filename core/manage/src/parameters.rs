//! ControlParameters and ControlResponse.

use alloc::{boxed::Box, string::String};

use weir_base::FaceId;
use weir_wire::Name;

use crate::element::{Element, Elements, Writer};
use crate::error::DecodeError;
use crate::numbers::{FacePersistency, types};

/// The arguments of a command, and the effective values in its response (NFD management,
/// ControlParameters). Which fields a command may carry is [`Command`](crate::commands::Command)'s
/// business.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ControlParameters {
    /// Prefix.
    pub name: Option<Name>,
    /// Face; 0 means the face the command came from.
    pub face_id: Option<FaceId>,
    /// Remote FaceUri.
    pub uri: Option<String>,
    /// Local FaceUri.
    pub local_uri: Option<String>,
    /// Who made a route, see [`route_origin`](crate::route_origin).
    pub origin: Option<u64>,
    /// Cost of a next hop.
    pub cost: Option<u64>,
    /// Capacity of the content store in packets, see
    /// [`STORE_PACKET_BYTES`](crate::STORE_PACKET_BYTES).
    pub capacity: Option<u64>,
    /// Number of Data.
    pub count: Option<u64>,
    /// Flag values.
    pub flags: Option<u64>,
    /// Which of the flag bits to change.
    pub mask: Option<u64>,
    /// Strategy name.
    pub strategy: Option<Name>,
    /// Time until a route goes, in milliseconds.
    pub expiration_period_ms: Option<u64>,
    /// When a face closes.
    pub face_persistency: Option<FacePersistency>,
    /// Base interval between congestion marks, in nanoseconds.
    pub base_congestion_marking_interval_ns: Option<u64>,
    /// Queue from which marking starts, in octets.
    pub default_congestion_threshold_bytes: Option<u64>,
    /// Largest frame of a face, in octets.
    pub mtu: Option<u64>,
}

impl ControlParameters {
    /// Whether a command asks for flag `bit` (a mask) to be on (`Some(true)`), off, or leaves it.
    pub fn flag(&self, bit: u64) -> Option<bool> {
        (self.mask.unwrap_or(0) & bit != 0).then(|| self.flags.unwrap_or(0) & bit != 0)
    }
}

impl Element for ControlParameters {
    const TYPE: u32 = types::CONTROL_PARAMETERS;

    /// In any order, unknown elements skipped even when critical: so does every known router, and
    /// senders differ in the order they use.
    fn decode_value(value: &[u8]) -> Result<Self, DecodeError> {
        let mut parameters = Self::default();
        for element in Elements::new(value) {
            let element = element?;
            match element.typ {
                types::NAME => parameters.name = Some(element.name()?),
                types::FACE_ID => parameters.face_id = Some(FaceId(element.number()?)),
                types::URI => parameters.uri = Some(element.text("Uri")?),
                types::LOCAL_URI => parameters.local_uri = Some(element.text("LocalUri")?),
                types::ORIGIN => parameters.origin = Some(element.number()?),
                types::COST => parameters.cost = Some(element.number()?),
                types::CAPACITY => parameters.capacity = Some(element.number()?),
                types::COUNT => parameters.count = Some(element.number()?),
                types::FLAGS => parameters.flags = Some(element.number()?),
                types::MASK => parameters.mask = Some(element.number()?),
                types::STRATEGY => parameters.strategy = Some(element.inner_name()?),
                types::EXPIRATION_PERIOD => {
                    parameters.expiration_period_ms = Some(element.number()?);
                }
                types::FACE_PERSISTENCY => {
                    let number = element.number()?;
                    parameters.face_persistency = Some(FacePersistency::from_number(number)?);
                }
                types::BASE_CONGESTION_MARKING_INTERVAL => {
                    parameters.base_congestion_marking_interval_ns = Some(element.number()?);
                }
                types::DEFAULT_CONGESTION_THRESHOLD => {
                    parameters.default_congestion_threshold_bytes = Some(element.number()?);
                }
                types::MTU => parameters.mtu = Some(element.number()?),
                _ => {}
            }
        }
        Ok(parameters)
    }

    fn encode_value(&self, writer: &mut Writer) {
        if let Some(name) = &self.name {
            writer.name(name);
        }
        writer.number_if(types::FACE_ID, self.face_id.map(|face| face.0));
        if let Some(uri) = &self.uri {
            writer.text(types::URI, uri);
        }
        if let Some(uri) = &self.local_uri {
            writer.text(types::LOCAL_URI, uri);
        }
        writer
            .number_if(types::ORIGIN, self.origin)
            .number_if(types::COST, self.cost)
            .number_if(types::CAPACITY, self.capacity)
            .number_if(types::COUNT, self.count)
            .number_if(types::FLAGS, self.flags)
            .number_if(types::MASK, self.mask);
        if let Some(strategy) = &self.strategy {
            writer.nested(types::STRATEGY, |inner| {
                inner.name(strategy);
            });
        }
        writer
            .number_if(types::EXPIRATION_PERIOD, self.expiration_period_ms)
            .number_if(types::FACE_PERSISTENCY, self.face_persistency.map(FacePersistency::number))
            .number_if(
                types::BASE_CONGESTION_MARKING_INTERVAL,
                self.base_congestion_marking_interval_ns,
            )
            .number_if(types::DEFAULT_CONGESTION_THRESHOLD, self.default_congestion_threshold_bytes)
            .number_if(types::MTU, self.mtu);
    }
}

/// The answer to a command, or to a dataset request that is refused (NFD management,
/// ControlResponse).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlResponse {
    /// 200 for success, else as HTTP has it.
    pub code: u64,
    /// For people.
    pub text: String,
    /// Effective values.
    pub body: Option<Box<ControlParameters>>,
}

impl ControlResponse {
    /// Without a body.
    pub fn new(code: u64, text: impl Into<String>) -> Self {
        Self { code, text: text.into(), body: None }
    }

    /// `200 OK` with the effective values.
    pub fn ok(body: ControlParameters) -> Self {
        Self { code: 200, text: String::from("OK"), body: Some(Box::new(body)) }
    }

    /// Adds a body.
    #[must_use]
    pub(crate) fn with_body(self, body: ControlParameters) -> Self {
        Self { body: Some(Box::new(body)), ..self }
    }
}

impl Element for ControlResponse {
    const TYPE: u32 = types::CONTROL_RESPONSE;

    fn decode_value(value: &[u8]) -> Result<Self, DecodeError> {
        let (mut code, mut text, mut body) = (None, None, None);
        for element in Elements::new(value) {
            let element = element?;
            match element.typ {
                types::STATUS_CODE => code = Some(element.number()?),
                types::STATUS_TEXT => text = Some(element.text("StatusText")?),
                types::CONTROL_PARAMETERS => {
                    body = Some(Box::new(ControlParameters::decode_value(element.value)?));
                }
                _ => element.skip()?,
            }
        }
        Ok(Self {
            code: code.ok_or(DecodeError::Missing { element: "StatusCode" })?,
            text: text.ok_or(DecodeError::Missing { element: "StatusText" })?,
            body,
        })
    }

    fn encode_value(&self, writer: &mut Writer) {
        writer.number(types::STATUS_CODE, self.code).text(types::STATUS_TEXT, &self.text);
        if let Some(body) = &self.body {
            writer.element(body.as_ref());
        }
    }
}
