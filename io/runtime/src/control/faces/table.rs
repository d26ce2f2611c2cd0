//! The faces of the whole router, as the control thread knows them.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use weir_base::FaceId;
use weir_face::FaceUri;
use weir_forward::{FaceScope, LinkType};
use weir_link::LinkConfig;
use weir_manage::{FaceChanges, FaceError, FaceInfo, FacePersistency, Sender, face_flags};
use weir_wire::PACKET_SIZE_MAX;

use super::links::apply_changes;
use crate::message::link_type;
use crate::rate_limited_log::RateLimitedLog;

#[derive(Debug)]
pub(in crate::control) struct FaceRecord {
    pub(super) id: FaceId,
    pub(in crate::control) remote: FaceUri,
    pub(super) local: FaceUri,
    /// The local address that a UDP peer sends to; `None` if the system chooses.
    pub(super) source: Option<IpAddr>,
    pub(super) scope: FaceScope,
    /// Whether the connected program may command the router.
    pub(super) is_operator: bool,
    pub(super) persistency: FacePersistency,
    pub(in crate::control) link: LinkConfig,
    /// The worker thread that owns the face.
    pub(super) worker: u16,
    /// Whether the face has a socket.
    pub(in crate::control) is_up: bool,
    /// Index of the static face in the configuration.
    pub(super) static_index: Option<usize>,
    /// Connection attempts since the face was last up.
    pub(super) attempts: u32,
    /// Log of times when the face went down.
    pub(super) down_log: RateLimitedLog,
}

impl FaceRecord {
    /// The local URI. `is_shared`: packets go through shared memory.
    pub(in crate::control) fn local_uri(&self, is_shared: bool) -> String {
        match &self.local {
            FaceUri::Unix(path) if is_shared => format!("shm://{}", path.display()),
            other => other.to_string(),
        }
    }

    /// What management Interests from this face may request.
    pub(in crate::control) fn sender(&self) -> Sender {
        match self.scope {
            FaceScope::NonLocal => Sender::Remote,
            FaceScope::Local if self.is_operator => Sender::Operator,
            FaceScope::Local => Sender::Application,
        }
    }

    /// The face in terms of the management protocol.
    pub(in crate::control) fn info(&self) -> FaceInfo {
        let scope = match self.scope {
            FaceScope::Local => weir_manage::FaceScope::Local,
            FaceScope::NonLocal => weir_manage::FaceScope::NonLocal,
        };
        let mut flags = 0;
        for (is_set, bit) in [
            (self.link.codec.local_fields, face_flags::LOCAL_FIELDS),
            (self.link.codec.reliability, face_flags::LP_RELIABILITY),
            (self.link.egress.marking.is_on, face_flags::CONGESTION_MARKING),
        ] {
            flags |= u64::from(is_set) * bit;
        }
        FaceInfo {
            face_id: self.id,
            uri: self.remote.to_string(),
            local_uri: self.local.to_string(),
            scope,
            persistency: self.persistency,
            link_type: match link_type(&self.remote) {
                LinkType::PointToPoint => weir_manage::LinkType::PointToPoint,
                LinkType::MultiAccess => weir_manage::LinkType::MultiAccess,
                LinkType::AdHoc => weir_manage::LinkType::AdHoc,
            },
            flags,
            base_congestion_marking_interval_ns: Some(self.link.egress.marking.interval_ns),
            default_congestion_threshold_bytes: Some(self.link.egress.marking.threshold_bytes),
            mtu: Some(match self.remote.is_datagram() {
                true => self.link.codec.mtu as u64,
                // Streams have no frames. NFD reports the largest packet.
                false => PACKET_SIZE_MAX as u64,
            }),
        }
    }

    /// Computes the face's settings after `changes`.
    pub(super) fn with_changes(
        &self,
        changes: &FaceChanges,
        mtu_default: usize,
    ) -> Result<(FacePersistency, LinkConfig), FaceError> {
        let persistency = changes.persistency.unwrap_or(self.persistency);
        if persistency != self.persistency && self.remote.is_unreachable() {
            return Err(FaceError::Unsupported(
                "an accepted Unix or WebSocket connection is always on-demand".into(),
            ));
        }
        let mut link = self.link.clone();
        apply_changes(&mut link, changes, &self.remote, self.scope, mtu_default)?;
        Ok((persistency, link))
    }
}

/// Faces by identifier. Faces of kinds that allow only one per peer are also indexed by both ends.
#[derive(Debug, Default)]
pub(in crate::control) struct FaceTable {
    faces: BTreeMap<FaceId, FaceRecord>,
    by_ends: HashMap<Ends, FaceId>,
}

/// Key of the index: peer, and local address that the peer sends to.
type Ends = (FaceUri, Option<IpAddr>);

impl FaceTable {
    pub(super) fn insert(&mut self, record: FaceRecord) {
        let remote = &record.remote;
        if remote.is_of_one_peer() {
            let ends = (remote.clone(), record.source);
            let known = self.by_ends.entry(ends).or_insert(record.id);
            // Two faces to one peer exist briefly, until one closes. For a connection, the older
            // one closes. On a shared port, the face of an unknown peer closes; it may be reported
            // after a command has created a face to the same peer.
            if !remote.is_datagram() {
                *known = record.id;
            }
        }
        self.faces.insert(record.id, record);
    }

    pub(super) fn remove(&mut self, id: FaceId) -> Option<FaceRecord> {
        let record = self.faces.remove(&id)?;
        let ends = (record.remote.clone(), record.source);
        if self.by_ends.get(&ends) == Some(&id) {
            self.by_ends.remove(&ends);
        }
        Some(record)
    }

    /// Changes both ends of a face. The system chooses its local address from now on.
    pub(super) fn set_ends(&mut self, id: FaceId, remote: FaceUri, local: FaceUri) {
        if let Some(record) = self.remove(id) {
            self.insert(FaceRecord { remote, local, source: None, ..record });
        }
    }

    pub(in crate::control) fn find(&self, id: FaceId) -> Option<&FaceRecord> {
        self.faces.get(&id)
    }

    /// Finds the face of the configuration with this index.
    pub(super) fn find_static(&self, index: usize) -> Option<&FaceRecord> {
        self.faces.values().find(|face| face.static_index == Some(index))
    }

    pub(super) fn find_mut(&mut self, id: FaceId) -> Option<&mut FaceRecord> {
        self.faces.get_mut(&id)
    }

    /// Finds the face to a UDP, TCP or WebSocket peer. `source`: the local address; `None` if the
    /// system chooses.
    pub(super) fn to_peer(&self, remote: &FaceUri, source: Option<IpAddr>) -> Option<&FaceRecord> {
        self.faces.get(self.by_ends.get(&(remote.clone(), source))?)
    }
}

#[cfg(test)]
mod tests {
    use weir_manage::MTU_AUTO;

    use super::*;

    fn record(remote: &str, scope: FaceScope) -> FaceRecord {
        FaceRecord {
            id: FaceId(256),
            remote: remote.parse().unwrap(),
            local: "udp4://127.0.0.1:6363".parse().unwrap(),
            source: None,
            scope,
            is_operator: false,
            persistency: FacePersistency::OnDemand,
            link: LinkConfig::datagram(1420),
            worker: 0,
            is_up: true,
            static_index: None,
            attempts: 0,
            down_log: RateLimitedLog::default(),
        }
    }

    #[test]
    fn changes_follow_nfd() {
        let udp = record("udp4://192.0.2.1:6363", FaceScope::NonLocal);
        let tcp = record("tcp4://127.0.0.1:6363", FaceScope::Local);
        let fd = record("fd://9", FaceScope::Local);
        let refused = |record: &FaceRecord, changes: FaceChanges| {
            matches!(record.with_changes(&changes, 1420), Err(FaceError::Unsupported(_)))
        };
        let mtu = |mtu| FaceChanges { mtu: Some(mtu), ..Default::default() };
        assert_eq!(udp.with_changes(&mtu(9000), 1420).unwrap().1.codec.mtu, 8800);
        assert_eq!(udp.with_changes(&mtu(MTU_AUTO), 1420).unwrap().1.codec.mtu, 1420);
        assert_eq!(udp.with_changes(&mtu(MTU_AUTO), 8800).unwrap().1.codec.mtu, 8800);
        assert!(refused(&udp, mtu(63)));
        assert!(refused(&tcp, mtu(1420)));
        let fields = FaceChanges { local_fields: Some(true), ..Default::default() };
        assert!(refused(&udp, fields));
        assert!(tcp.with_changes(&fields, 1420).unwrap().1.codec.local_fields);
        let permanent =
            FaceChanges { persistency: Some(FacePersistency::Permanent), ..Default::default() };
        assert!(refused(&fd, permanent));
        assert_eq!(udp.with_changes(&permanent, 1420).unwrap().0, FacePersistency::Permanent);
        let reliability = FaceChanges { reliability: Some(true), ..Default::default() };
        assert!(udp.with_changes(&reliability, 1420).unwrap().1.codec.reliability);
        assert!(refused(&tcp, reliability) && refused(&fd, reliability));
        let off = FaceChanges { reliability: Some(false), ..Default::default() };
        assert!(!tcp.with_changes(&off, 1420).unwrap().1.codec.reliability);
    }

    #[test]
    fn one_face_per_remote_except_unix() {
        let mut table = FaceTable::default();
        table.insert(record("udp4://192.0.2.1:6363", FaceScope::NonLocal));
        let remote: FaceUri = "udp4://192.0.2.1:6363".parse().unwrap();
        assert_eq!(table.to_peer(&remote, None).unwrap().id, FaceId(256));
        table.insert(FaceRecord { id: FaceId(257), ..record("fd://9", FaceScope::Local) });
        assert!(table.to_peer(&"fd://9".parse().unwrap(), None).is_none());
        table.remove(FaceId(256));
        assert!(table.to_peer(&remote, None).is_none());
        assert!(table.find(FaceId(257)).is_some());
    }

    #[test]
    fn command_face_outlives_replaced_face() {
        let mut table = FaceTable::default();
        table.insert(record("udp4://192.0.2.1:6363", FaceScope::NonLocal));
        let late = record("udp4://192.0.2.1:6363", FaceScope::NonLocal);
        table.insert(FaceRecord { id: FaceId(257), ..late });
        table.remove(FaceId(257));
        let remote: FaceUri = "udp4://192.0.2.1:6363".parse().unwrap();
        assert_eq!(table.to_peer(&remote, None).unwrap().id, FaceId(256));
    }
}
