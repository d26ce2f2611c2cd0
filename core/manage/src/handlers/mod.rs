//! What each command and dataset does.

mod faces;
mod status;
mod tables;

use alloc::format;
use alloc::string::String;

use weir_base::FaceId;
use weir_wire::NameView;

use crate::authorize::is_anchored;
use crate::commands::{Command, Scope};
use crate::element::Element;
use crate::error::DecodeError;
use crate::io::{ManagerOutbox, Sender};
use crate::manager::{Call, Manager};
use crate::numbers::face_flags;
use crate::parameters::{ControlParameters, ControlResponse};

/// Components before the ControlParameters: scope, `nfd`, module and verb.
const PARAMETERS_AT: usize = 4;

impl Manager {
    /// A command: parse, authorize, validate, carry out. Unlike NFD, which is silent then, what
    /// cannot be parsed is answered: a client must not wait for nothing.
    pub(crate) fn on_command(
        &mut self,
        call: &Call<'_>,
        command: Command,
        out: &mut ManagerOutbox,
    ) {
        let parameters = match call.interest.name.component(PARAMETERS_AT) {
            Some(component) => ControlParameters::decode(component.value),
            None => Err(DecodeError::Missing { element: "ControlParameters" }),
        };
        let concerns_sender_alone = match &parameters {
            Ok(parameters) => self.concerns_sender_alone(call, command, parameters),
            // It changes nothing at all.
            Err(_) => true,
        };
        if !self.authorize(call, concerns_sender_alone, out) {
            return;
        }
        self.stats.commands += 1;
        let mut parameters = match parameters {
            Ok(parameters) => parameters,
            Err(error) => {
                let response = ControlResponse::new(400, format!("malformed command: {error}"));
                return self.respond(&call.request(), &response, out);
            }
        };
        if !command.accepts(&parameters) {
            let response = ControlResponse::new(400, "failed in validating parameters");
            self.respond(&call.request(), &response, out);
            return;
        }
        command.apply_defaults(&mut parameters);
        match command {
            Command::FacesCreate => self.create_face(call, &parameters, out),
            Command::FacesUpdate => self.update_face(call, &parameters, out),
            Command::FacesDestroy => self.destroy_face(call, parameters, out),
            Command::FibAddNextHop => self.add_next_hop(call, parameters, out),
            Command::FibRemoveNextHop => self.remove_next_hop(call, parameters, out),
            Command::CsConfig => self.configure_store(call, &parameters, out),
            Command::CsErase => self.erase_store(call, &parameters, out),
            Command::StrategyChoiceSet => self.choose_strategy(call, parameters, out),
            Command::StrategyChoiceUnset => self.unset_strategy(call, parameters, out),
            Command::RibRegister => self.register_route(call, parameters, out),
            Command::RibUnregister => self.unregister_route(call, parameters, out),
        }
    }

    /// Whether the sender may do this; answers it if not. `concerns_sender_alone`: any program of
    /// this host may.
    pub(crate) fn authorize(
        &mut self,
        call: &Call<'_>,
        concerns_sender_alone: bool,
        out: &mut ManagerOutbox,
    ) -> bool {
        let is_free = call.scope == Scope::Localhost
            && match call.sender {
                Sender::Operator => true,
                Sender::Application => concerns_sender_alone,
                Sender::Remote => false,
            };
        if is_free {
            return true;
        }
        let is_anchored = is_anchored(
            call.interest,
            self.config.anchors.as_deref(),
            &mut self.records,
            call.at.now,
            call.at.now_unix_ms,
        );
        if is_anchored {
            return true;
        }
        self.stats.unauthorized += 1;
        let response = ControlResponse::new(403, self.refusal(call));
        self.respond(&call.request(), &response, out);
        false
    }

    /// Who may do what the sender may not. Other hosts are not told.
    fn refusal(&self, call: &Call<'_>) -> String {
        if call.scope == Scope::Localhop {
            return String::from("authorization rejected");
        }
        let operators = &self.config.operators;
        let by_key = match self.config.anchors {
            Some(_) => ", or with a command signed by a configured key",
            None => "",
        };
        let registration = match self.config.local_registration {
            true => "; other programs may register prefixes for their own face alone",
            false => "",
        };
        format!("only {operators} may do this, over the Unix socket{by_key}{registration}")
    }

    /// Whether a command changes nothing but what concerns the face that it came from, so that any
    /// program of this host may send it.
    fn concerns_sender_alone(
        &self,
        call: &Call<'_>,
        command: Command,
        parameters: &ControlParameters,
    ) -> bool {
        let is_own_face =
            parameters.face_id.is_none_or(|face| face == FaceId::INVALID || face == call.ingress);
        match command {
            Command::RibRegister | Command::RibUnregister => {
                let prefix = parameters.name.as_ref();
                is_own_face && prefix.is_some_and(|prefix| self.may_register(prefix.as_view()))
            }
            // Which face a packet came from, and by which face an Interest leaves: for packets of
            // this face.
            Command::FacesUpdate => {
                let fields_alone = ControlParameters {
                    face_id: parameters.face_id,
                    flags: parameters.flags,
                    mask: Some(face_flags::LOCAL_FIELDS),
                    ..ControlParameters::default()
                };
                is_own_face && *parameters == fields_alone
            }
            // One copy, which whoever knows its digest has got and found to be false.
            Command::CsErase => {
                let name = parameters.name.as_ref().and_then(|name| name.as_view().last());
                name.is_some_and(|last| last.is_implicit_digest())
            }
            _ => false,
        }
    }

    /// Whether a program of this host may have `prefix` lead to it. Never commands to the router.
    pub(crate) fn may_register(&self, prefix: NameView<'_>) -> bool {
        self.config.local_registration && Scope::of(prefix).is_none()
    }
}
