//! A management Interest on its way through the manager.

use weir_base::{FaceId, Instant};
use weir_wire::{InterestView, Name};

use crate::commands::Scope;
use crate::io::Sender;
use crate::parameters::ControlParameters;

/// Both clocks at the time of an input.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clocks {
    pub(crate) now: Instant,
    pub(crate) now_unix_ms: u64,
}

/// A management Interest in a scope that is served.
pub(crate) struct ManagementRequest<'a> {
    pub(crate) at: Clocks,
    pub(crate) ingress: FaceId,
    pub(crate) scope: Scope,
    pub(crate) sender: Sender,
    pub(crate) interest: &'a InterestView<'a>,
}

impl ManagementRequest<'_> {
    pub(crate) fn reply_target(&self) -> ReplyTarget {
        ReplyTarget { ingress: self.ingress, name: self.interest.name.to_name() }
    }

    /// If the command names no face, sets it to the face that the Interest came from. Returns the
    /// face.
    pub(crate) fn resolve_face(&self, parameters: &mut ControlParameters) -> FaceId {
        let face = parameters.face_id.filter(|face| *face != FaceId::INVALID);
        *parameters.face_id.insert(face.unwrap_or(self.ingress))
    }
}

/// The Interest that an answer is for.
#[derive(Clone, Debug)]
pub(crate) struct ReplyTarget {
    pub(crate) ingress: FaceId,
    pub(crate) name: Name,
}
