//! Packets as JSON fields. The keys are those of the test vectors, in snake_case.

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use weir_hicn::control::{Command, Connection, ControlError, ControlView, MessageKind, Request};
use weir_hicn::{Flags, HicnError, HicnView, InterestManifest, to_tlv};
use weir_wire::{
    DataView, DecodeError, InterestView, KeyLocatorView, LpView, NameView, PacketView,
    SignatureInfoView, UriStyle, tlv,
};

/// Field names and values in the order of the packet format.
pub(crate) type Fields = Vec<(&'static str, Value)>;

/// The kinds of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum PacketKind {
    Interest,
    Data,
    /// An LpPacket. A bare Interest or Data counts as one without header fields
    Lp,
    /// An hICN packet, from its IPv6 header on
    Hicn,
    /// A control message of hicn-light
    HicnControl,
}

/// Why a packet is invalid.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub(crate) enum PacketError {
    #[error(transparent)]
    Ndn(#[from] DecodeError),
    #[error(transparent)]
    Hicn(#[from] HicnError),
    #[error(transparent)]
    HicnControl(#[from] ControlError),
}

impl PacketError {
    /// A short key.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Ndn(error) => error.reason(),
            Self::Hicn(error) => error.reason(),
            Self::HicnControl(_) => "hicn-control-malformed",
        }
    }
}

impl PacketKind {
    /// The kind given by the first byte. Unknown types count as Interest, whose decoder reports the
    /// error. An IPv6 packet with TCP counts as hICN, unless it starts like an LpPacket. So does
    /// hICN's header of version 9, whose decoder reports that it is not supported.
    pub(crate) fn of(packet: &[u8]) -> Self {
        const TCP: u8 = 6;
        match packet.first().copied().map(u32::from) {
            Some(tlv::DATA) => Self::Data,
            Some(tlv::LP_PACKET) => Self::Lp,
            Some(0x60..=0x6F) if packet.get(6) == Some(&TCP) => Self::Hicn,
            Some(0x90..=0x9F) => Self::Hicn,
            // UTF-8 text may start with the same byte, but then its second byte is not ASCII.
            Some(_)
                if ControlView::is_control(packet) && packet.get(1).is_some_and(u8::is_ascii) =>
            {
                Self::HicnControl
            }
            _ => Self::Interest,
        }
    }

    /// The name of the kind in fields.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Interest => "interest",
            Self::Data => "data",
            Self::Lp => "lp",
            Self::Hicn => "hicn",
            Self::HicnControl => "hicn-control",
        }
    }
}

/// Decodes a packet and returns its fields. Also verifies DigestSha256 signatures, and decodes the
/// packet inside an LpPacket. An hICN packet also has its form as an NDN packet, unless it is an
/// Interest manifest.
pub(crate) fn packet(kind: PacketKind, wire: &[u8]) -> Result<Fields, PacketError> {
    Ok(match kind {
        PacketKind::Interest => checked_interest(wire).map(|view| interest(&view))?,
        PacketKind::Data => checked_data(wire).map(|view| data(&view))?,
        PacketKind::Lp => lp(&LpView::decode(wire)?)?,
        PacketKind::Hicn => hicn(&HicnView::decode(wire)?)?,
        PacketKind::HicnControl => hicn_control(&ControlView::decode(wire)?)?,
    })
}

/// An hICN packet as an NDN packet. The nonce of an Interest is 0; a router draws one.
pub(crate) fn as_ndn(wire: &[u8]) -> Result<Vec<u8>, PacketError> {
    Ok(to_tlv(&HicnView::decode(wire)?, 0)?)
}

fn hicn(view: &HicnView<'_>) -> Result<Fields, PacketError> {
    let header = &view.header;
    let has = |flag| header.flags.has(flag);
    let mut fields: Fields = vec![
        ("direction", if header.is_data() { "data" } else { "interest" }.into()),
        ("address", header.name.address.to_string().into()),
        ("suffix", header.name.suffix.into()),
        ("locator", header.locator.to_string().into()),
        ("lifetime_ms", header.lifetime_ms.into()),
        ("hop_limit", header.hop_limit.into()),
        ("path_label", header.path_label.into()),
        ("manifest", has(Flags::MANIFEST).into()),
        ("last", has(Flags::LAST).into()),
        ("congestion", header.is_marked.into()),
    ];
    if let Some(ah) = &view.ah {
        let about = vec![
            ("algorithm", ah.algorithm.number().into()),
            ("time_ms", ah.time_ms.into()),
            ("key_id_hex", octets(ah.key_id)),
            ("signature_hex", octets(ah.signature())),
        ];
        fields.push(("authentication", object(about)));
    }
    fields.push(("payload_hex", octets(view.payload)));
    if view.is_interest_manifest() {
        // It has no NDN form: each suffix is an Interest of its own in NDN.
        let manifest = InterestManifest::decode(view.payload)?;
        fields.push(("suffixes", manifest.suffixes().collect()));
        return Ok(fields);
    }
    let ndn = to_tlv(view, 0)?;
    fields.push(("ndn_hex", octets(&ndn)));
    fields.push(("inner", inner(&ndn)?));
    Ok(fields)
}

fn hicn_control(view: &ControlView<'_>) -> Result<Fields, ControlError> {
    let message = match view.kind {
        MessageKind::Request => "request",
        MessageKind::Response => "response",
        MessageKind::Ack => "ack",
        MessageKind::Nack => "nack",
        MessageKind::Notification => "notification",
    };
    let mut fields: Fields = vec![("message", message.into()), ("command", view.command.0.into())];
    fields.extend(command_name(view.command).map(|name| ("command_name", name.into())));
    fields.push(("count", view.count.into()));
    fields.push(("sequence", view.sequence.into()));
    if view.kind == MessageKind::Request {
        fields.extend(match view.request()? {
            Request::AddRoute { connection, prefix }
            | Request::RemoveRoute { connection, prefix } => {
                vec![connection_field(connection), ("prefix", prefix.to_string().into())]
            }
            Request::RemoveConnection { connection } => vec![connection_field(connection)],
            Request::SetStrategy { prefix, strategy } => {
                vec![("prefix", prefix.to_string().into()), ("strategy", strategy.into())]
            }
            Request::ListRoutes | Request::UpdateMobility | Request::Other(_) => vec![],
        });
    }
    fields.push(("payload_hex", octets(view.payload)));
    Ok(fields)
}

/// The name of a command that Weir decodes.
fn command_name(command: Command) -> Option<&'static str> {
    Some(match command {
        Command::CONNECTION_REMOVE => "connection-remove",
        Command::ROUTE_ADD => "route-add",
        Command::ROUTE_REMOVE => "route-remove",
        Command::ROUTE_LIST => "route-list",
        Command::STRATEGY_SET => "strategy-set",
        Command::MAPME_ADD => "mapme-add",
        _ => return None,
    })
}

/// The connection as the text in the message.
fn connection_field(connection: Connection<'_>) -> (&'static str, Value) {
    let text = match connection {
        Connection::Own => "SELF".into(),
        Connection::Other(text) => String::from_utf8_lossy(text),
    };
    ("connection", text.into())
}

/// Fields as a JSON object.
pub(crate) fn object(fields: Fields) -> Value {
    fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect::<Map<_, _>>().into()
}

fn checked_interest(wire: &[u8]) -> Result<InterestView<'_>, DecodeError> {
    let view = InterestView::decode(wire)?;
    view.signature().map_or(Ok(()), |signature| signature.check_digest())?;
    Ok(view)
}

fn checked_data(wire: &[u8]) -> Result<DataView<'_>, DecodeError> {
    let view = DataView::decode(wire)?;
    view.check_digest()?;
    Ok(view)
}

fn uri(name: NameView<'_>) -> Value {
    name.uri(UriStyle::Numeric).to_string().into()
}

fn octets(value: &[u8]) -> Value {
    hex::encode(value).into()
}

fn sha256(portions: &[&[u8]]) -> Value {
    octets(&Sha256::digest(portions.concat()))
}

fn name(name: NameView<'_>) -> Fields {
    vec![
        ("name", uri(name)),
        ("name_alt", name.to_string().into()),
        ("name_hex", octets(&name.to_name().to_tlv())),
    ]
}

fn signature_info(info: &SignatureInfoView<'_>) -> Value {
    let mut fields: Fields = vec![("sig_type", info.signature_type.into())];
    match info.key_locator {
        Some(KeyLocatorView::Name(name)) => fields.push(("key_locator_name", uri(name))),
        Some(KeyLocatorView::Digest(digest)) => {
            fields.push(("key_locator_digest_hex", octets(digest)));
        }
        None => {}
    }
    fields.extend(info.nonce.map(|nonce| ("sig_nonce_hex", octets(nonce))));
    fields.extend(info.time_ms.map(|time_ms| ("sig_time_ms", time_ms.into())));
    fields.extend(info.seq_num.map(|seq_num| ("sig_seq_num", seq_num.into())));
    fields.extend(
        info.validity_period
            .map(|validity| ("validity", vec![validity.not_before, validity.not_after].into())),
    );
    object(fields)
}

fn interest(view: &InterestView<'_>) -> Fields {
    let mut fields = name(view.name);
    fields.push(("can_be_prefix", view.can_be_prefix.into()));
    fields.push(("must_be_fresh", view.must_be_fresh.into()));
    if !view.forwarding_hint.is_empty() {
        fields.push(("forwarding_hint", view.forwarding_hint.iter().map(uri).collect()));
    }
    fields.extend(view.nonce.map(|nonce| ("nonce_hex", octets(&nonce.to_be_bytes()))));
    fields.push(("lifetime_ms", view.lifetime_ms_or_default().into()));
    fields.extend(view.hop_limit.map(|hop_limit| ("hop_limit", hop_limit.into())));
    fields.extend(view.application_parameters().map(|value| ("app_params_hex", octets(value))));
    if let Some(signature) = view.signature() {
        fields.push(("sig_info", signature_info(&signature.info())));
        fields.push(("sig_value_hex", octets(signature.value)));
        fields.push(("signed_portion_sha256", sha256(&signature.signed_portion())));
    }
    fields
}

fn data(view: &DataView<'_>) -> Fields {
    let mut fields = name(view.name);
    fields.push(("content_type", view.content_type.into()));
    fields.push(("freshness_ms", view.freshness_ms.into()));
    if let Some(component) = view.final_block_id() {
        let mut text = String::new();
        component.write_uri(UriStyle::Numeric, &mut text).expect("a string takes any text");
        fields.push(("final_block_id", text.into()));
        fields.push(("final_block_id_alt", component.to_string().into()));
    }
    fields.push(("content_hex", octets(view.content)));
    fields.push(("sig_info", signature_info(&view.signature_info())));
    fields.push(("sig_value_hex", octets(view.signature_value())));
    fields.push(("signed_portion_sha256", sha256(&[view.signed_portion()])));
    fields.push(("implicit_sha256", octets(&view.implicit_digest())));
    fields
}

fn lp(view: &LpView<'_>) -> Result<Fields, DecodeError> {
    let (framing, header) = (&view.framing, &view.header);
    let has = |typ| view.fields().any(|field| field.typ == typ);
    let mut fields = Fields::new();
    fields.extend(framing.sequence.map(|sequence| ("sequence", sequence.into())));
    if has(tlv::LP_FRAG_INDEX) {
        fields.push(("frag_index", framing.frag_index.into()));
    }
    if has(tlv::LP_FRAG_COUNT) {
        fields.push(("frag_count", framing.frag_count.into()));
    }
    if !header.pit_token.is_empty() {
        fields.push(("pit_token_hex", octets(header.pit_token.as_slice())));
    }
    fields.extend(header.nack.map(|reason| ("nack_reason", reason.code().into())));
    fields.extend(header.incoming_face.map(|face| ("incoming_face_id", face.into())));
    fields.extend(header.next_hop_face.map(|face| ("next_hop_face_id", face.into())));
    fields.extend(view.cache_policy.map(|policy| ("cache_policy_type", policy.into())));
    if has(tlv::LP_CONGESTION_MARK) {
        fields.push(("congestion_mark", header.congestion_mark.into()));
    }
    if view.acks().next().is_some() {
        fields.push(("acks", view.acks().collect::<Vec<_>>().into()));
    }
    fields.extend(framing.tx_sequence.map(|sequence| ("tx_sequence", sequence.into())));
    if header.non_discovery {
        fields.push(("non_discovery", true.into()));
    }
    if let Some(wire) = view.prefix_announcement {
        let announcement = checked_data(wire)?;
        let about = vec![
            ("name", uri(announcement.name)),
            ("content_type", announcement.content_type.into()),
            ("content_hex", octets(announcement.content)),
        ];
        fields.push(("prefix_announcement", object(about)));
    }
    if let Some(fragment) = view.fragment {
        fields.push(("fragment_hex", octets(fragment)));
        if framing.frag_count == 1 {
            fields.push(("inner", inner(fragment)?));
        }
    }
    Ok(fields)
}

/// Kind and name of the packet inside another.
fn inner(wire: &[u8]) -> Result<Value, DecodeError> {
    let kind = PacketKind::of(wire);
    let view = match kind {
        PacketKind::Data => PacketView::Data(checked_data(wire)?),
        _ => PacketView::Interest(checked_interest(wire)?),
    };
    Ok(object(vec![("kind", kind.name().into()), ("name", uri(view.name()))]))
}
