//! Authorization of commands: signatures in the old and the new format, and replays.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use weir_base::{FaceId, Instant, NS_PER_S};
use weir_security::verify_data;
use weir_wire::{DataView, InterestView, KeyLocatorView, NameView, SignatureInfoView, tlv};

use crate::commands::{Command, Scope};
use crate::config::{AnchorLookup, ManagerConfig};
use crate::io::Sender;
use crate::numbers::face_flags;
use crate::parameters::{ControlParameters, ControlResponse};
use crate::request::{Clocks, ManagementRequest};

/// Maximum difference between SignatureTime and the router's clock, in milliseconds (NFD).
const CLOCK_SKEW_MS: u64 = 120_000;
/// Maximum number of keys whose last SignatureTime is remembered (NFD).
const RECORDS_MAX: usize = 1000;
/// How long a SignatureTime is remembered (NFD).
const RECORD_LIFETIME_NS: u64 = 3600 * NS_PER_S;

/// The signature of a command Interest in either format.
struct CommandSignature<'a> {
    info: SignatureInfoView<'a>,
    portions: Vec<&'a [u8]>,
    value: &'a [u8],
    time_ms: Option<u64>,
}

impl<'a> CommandSignature<'a> {
    fn of(interest: &'a InterestView<'a>) -> Option<Self> {
        if let Some(signature) = &interest.signature() {
            let info = signature.info();
            return Some(Self {
                info,
                portions: signature.signed_portion().to_vec(),
                value: signature.value,
                time_ms: info.time_ms,
            });
        }
        Self::of_name(interest.name)
    }

    /// The format of packet specification 0.2: the name ends in timestamp, nonce, SignatureInfo and
    /// SignatureValue, each in a generic component. Everything before the last one is signed.
    fn of_name(name: NameView<'a>) -> Option<Self> {
        let info_at = name.component_count().checked_sub(2)?;
        let info = tlv::read_single_of(name.component(info_at)?.value, tlv::SIGNATURE_INFO).ok()?;
        let value = tlv::read_single_of(name.last()?.value, tlv::SIGNATURE_VALUE).ok()?;
        let time_ms = info_at.checked_sub(2).and_then(|at| name.component(at)?.as_number());
        Some(Self {
            info: SignatureInfoView::from_value(info, tlv::SIGNATURE_INFO).ok()?,
            portions: alloc::vec![name.prefix(info_at + 1).value()],
            value,
            time_ms,
        })
    }
}

/// The last SignatureTime of each key.
#[derive(Debug, Default)]
struct ReplayRecords {
    keys: BTreeMap<Vec<u8>, (u64, Instant)>,
    by_age: BTreeSet<(Instant, Vec<u8>)>,
}

impl ReplayRecords {
    /// Whether a command with this key and time is not a replay.
    fn is_new(&self, key: &[u8], time_ms: u64, now_unix_ms: u64) -> bool {
        now_unix_ms.abs_diff(time_ms) <= CLOCK_SKEW_MS
            && self.keys.get(key).is_none_or(|(last, _)| time_ms > *last)
    }

    fn remember(&mut self, key: &[u8], time_ms: u64, now: Instant) {
        if let Some((_, seen)) = self.keys.insert(key.to_vec(), (time_ms, now)) {
            self.by_age.remove(&(seen, key.to_vec()));
        }
        self.by_age.insert((now, key.to_vec()));
        while let Some((seen, _)) = self.by_age.first()
            && (self.keys.len() > RECORDS_MAX || now.ns_since(*seen) > RECORD_LIFETIME_NS)
        {
            let Some((_, key)) = self.by_age.pop_first() else { break };
            self.keys.remove(&key);
        }
    }
}

/// Decides who may command the router.
pub(crate) struct Authorizer {
    operators: String,
    local_registration: bool,
    announcement_anchors: Option<Box<dyn AnchorLookup>>,
    anchors: Option<Box<dyn AnchorLookup>>,
    replays: ReplayRecords,
}

impl Authorizer {
    /// See [`ManagerConfig`](crate::ManagerConfig) for the meaning of each.
    pub(crate) fn new(
        operators: String,
        local_registration: bool,
        announcement_anchors: Option<Box<dyn AnchorLookup>>,
        anchors: Option<Box<dyn AnchorLookup>>,
    ) -> Self {
        let replays = ReplayRecords::default();
        Self { operators, local_registration, announcement_anchors, anchors, replays }
    }

    /// Replaces everything but the record of signatures, which still prevents replays.
    pub(crate) fn replace(&mut self, config: ManagerConfig) {
        self.operators = config.operators;
        self.local_registration = config.local_registration;
        self.announcement_anchors = config.announcement_anchors;
        self.anchors = config.anchors;
    }

    /// Checks that the sender may send this command. `affects_sender_only` allows any program of
    /// this host.
    ///
    /// # Errors
    /// The refusal, as an answer to the sender.
    pub(crate) fn authorize(
        &mut self,
        request: &ManagementRequest<'_>,
        affects_sender_only: bool,
    ) -> Result<(), ControlResponse> {
        let needs_no_signature = request.scope == Scope::Localhost
            && match request.sender {
                Sender::Operator => true,
                Sender::Application => affects_sender_only,
                Sender::Remote => false,
            };
        if needs_no_signature || self.is_signed_by_anchor(request.interest, request.at) {
            return Ok(());
        }
        Err(ControlResponse::new(403, self.refusal(request)))
    }

    /// Whether an anchor signed a command Interest, and it is not a replay.
    fn is_signed_by_anchor(&mut self, interest: &InterestView<'_>, at: Clocks) -> bool {
        let Some(anchors) = &self.anchors else { return false };
        let Some(signature) = CommandSignature::of(interest) else { return false };
        let Some(KeyLocatorView::Name(key)) = signature.info.key_locator else { return false };
        let verifier = anchors.verifier(KeyLocatorView::Name(key), at.now_unix_ms);
        let (Some(verifier), Some(time_ms)) = (verifier, signature.time_ms) else { return false };
        // The cheap checks come first: a replay costs no verification.
        let is_genuine = verifier.signature_type().0 == signature.info.signature_type
            && self.replays.is_new(key.value(), time_ms, at.now_unix_ms)
            && verifier.verify(&signature.portions, signature.value).is_ok();
        if is_genuine {
            self.replays.remember(key.value(), time_ms, at.now);
        }
        is_genuine
    }

    /// The text of a refusal. It names the users who may do this, but other hosts do not receive
    /// these names.
    fn refusal(&self, request: &ManagementRequest<'_>) -> String {
        if request.scope == Scope::Localhop {
            return String::from("authorization rejected");
        }
        let operators = &self.operators;
        let by_key = match self.anchors {
            Some(_) => ", or with a command signed by a configured key",
            None => "",
        };
        let registration = if self.local_registration {
            "; other programs may register prefixes for their own face only"
        } else {
            ""
        };
        format!("only {operators} may do this, over the Unix socket{by_key}{registration}")
    }

    /// Whether a command affects only the face that it came from. Any program of this host may send
    /// such a command.
    pub(crate) fn affects_sender_only(
        &self,
        request: &ManagementRequest<'_>,
        command: Command,
        parameters: &ControlParameters,
    ) -> bool {
        let is_own_face = parameters
            .face_id
            .is_none_or(|face| face == FaceId::INVALID || face == request.ingress);
        match command {
            Command::RibRegister | Command::RibUnregister => {
                let prefix = parameters.name.as_ref();
                is_own_face && prefix.is_some_and(|prefix| self.may_register(prefix.as_view()))
            }
            // Local fields report the face that a packet came from, and choose the face by which an
            // Interest leaves. They affect only packets of this face.
            Command::FacesUpdate => {
                let local_fields_only = ControlParameters {
                    face_id: parameters.face_id,
                    flags: parameters.flags,
                    mask: Some(face_flags::LOCAL_FIELDS),
                    ..ControlParameters::default()
                };
                is_own_face && *parameters == local_fields_only
            }
            // The command erases one copy of Data. A program that knows its digest has received it,
            // and has found it to be false.
            Command::CsErase => {
                let name = parameters.name.as_ref().and_then(|name| name.as_view().last());
                name.is_some_and(|last| last.is_implicit_digest())
            }
            _ => false,
        }
    }

    /// Whether a program of this host may register `prefix` for itself. Management prefixes are
    /// excluded, because they lead to the router.
    pub(crate) fn may_register(&self, prefix: NameView<'_>) -> bool {
        self.local_registration && Scope::of(prefix).is_none()
    }

    /// Whether a prefix announcement is accepted.
    pub(crate) fn accepts_announcement(
        &self,
        announcement: &DataView<'_>,
        now_unix_ms: u64,
    ) -> bool {
        let Some(anchors) = &self.announcement_anchors else { return true };
        let locator = announcement.signature_info().key_locator;
        let verifier = locator.and_then(|locator| anchors.verifier(locator, now_unix_ms));
        verifier.is_some_and(|verifier| verify_data(announcement, verifier).is_ok())
    }
}
