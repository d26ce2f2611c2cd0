//! Control messages of hicn-light, by which hICN programs of this host register prefixes
//! (decision 0050).

use alloc::vec::Vec;

use weir_base::FaceId;
use weir_hicn::HicnPrefix;
use weir_hicn::control::{ControlMessage, ControlView, ListedRoute, MessageKind, Request};
use weir_wire::Name;

use crate::rib::Rib;

/// Routes in one answer. More would not fit into a datagram of a loopback face.
const ROUTES_LISTED_MAX: usize = 78;

/// What a request wants from the manager.
#[derive(Debug)]
pub(crate) enum HicnRequest {
    Register(Name),
    Unregister(Name),
    /// Remove all routes of the face, and the face.
    Close,
    ListRoutes,
    /// Nothing. hICN's library ends the program when it gets a NACK, so requests that only improve
    /// something are acknowledged: a strategy, and announcements to other routers.
    Accept,
    Refuse,
}

impl HicnRequest {
    /// The request of a message from this face; `None` if it is no request. A program may only
    /// change its own face.
    pub(crate) fn of(message: &ControlView<'_>, face: FaceId) -> Option<Self> {
        if message.kind != MessageKind::Request {
            return None;
        }
        let Ok(request) = message.request() else { return Some(Self::Refuse) };
        Some(match request {
            Request::AddRoute { connection, prefix } if connection.is_own(face.0) => {
                prefix.to_name().map_or(Self::Refuse, Self::Register)
            }
            Request::RemoveRoute { connection, prefix } if connection.is_own(face.0) => {
                prefix.to_name().map_or(Self::Refuse, Self::Unregister)
            }
            Request::RemoveConnection { connection } if connection.is_own(face.0) => Self::Close,
            Request::ListRoutes => Self::ListRoutes,
            Request::SetStrategy { .. } | Request::UpdateMobility => Self::Accept,
            _ => Self::Refuse,
        })
    }
}

/// Answers [`HicnRequest::ListRoutes`], with the first routes that hICN can express.
pub(crate) fn list_routes(request: &ControlView<'_>, rib: &Rib) -> Vec<u8> {
    let routes: Vec<ListedRoute> = rib
        .iter()
        .filter_map(|(name, routes)| Some((HicnPrefix::from_name(name.as_view())?, routes)))
        .flat_map(|(prefix, routes)| {
            routes.map(move |route| ListedRoute {
                connection: u32::try_from(route.face.0).unwrap_or(u32::MAX),
                prefix,
                cost: u16::try_from(route.cost).unwrap_or(u16::MAX),
            })
        })
        .take(ROUTES_LISTED_MAX)
        .collect();
    ControlMessage::answer(request, true).encode_routes(&routes)
}
