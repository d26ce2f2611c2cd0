//! What each command and dataset does.

mod faces;
mod status;
mod tables;

use alloc::format;

use crate::authorize::{AccessPolicy, Verdict, check_anchored};
use crate::commands::{Command, Scope};
use crate::element::Element;
use crate::error::DecodeError;
use crate::io::ManagerOutbox;
use crate::manager::{Call, Manager};
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
        let is_rib = matches!(command, Command::RibRegister | Command::RibUnregister);
        if !self.authorize(call, is_rib, out) {
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

    /// Whether the sender may command; answers it if not. Like NFD's, the rib module answers even
    /// Interests that are not signed at all.
    pub(crate) fn authorize(
        &mut self,
        call: &Call<'_>,
        answers_malformed: bool,
        out: &mut ManagerOutbox,
    ) -> bool {
        let is_free = call.scope == Scope::Localhost
            && call.ingress_is_local
            && self.config.local_access == AccessPolicy::Any;
        if is_free {
            return true;
        }
        let verdict = check_anchored(
            call.interest,
            self.config.anchors.as_deref(),
            &mut self.records,
            call.at.now,
            call.at.now_unix_ms,
        );
        if verdict == Verdict::Accept {
            return true;
        }
        self.stats.unauthorized += 1;
        if verdict == Verdict::Reject || answers_malformed {
            let response = ControlResponse::new(403, "authorization rejected");
            self.respond(&call.request(), &response, out);
        }
        false
    }
}
