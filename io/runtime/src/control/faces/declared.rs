//! Reloads: brings the static faces and their routes to a new configuration.
//!
//! Faces and routes that commands have added stay. A face whose settings change keeps its
//! identifier, and so its routes and its pending Interests.

use weir_base::FaceId;
use weir_link::{LinkConfig, RunsConfig};
use weir_manage::{FaceChanges, FaceError, MTU_AUTO, ManagerInput, route_origin};

use super::create::static_request;
use super::links::begin_runs;
use super::{Faces, StaticEntry};
use crate::config::{FaceDefaults, StaticFace};
use crate::message::ConnectPurpose;

/// What a reload has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::control) struct DeclaredChanges {
    pub(in crate::control) faces_added: usize,
    pub(in crate::control) faces_removed: usize,
    pub(in crate::control) faces_changed: usize,
    pub(in crate::control) routes_added: usize,
    pub(in crate::control) routes_removed: usize,
}

impl Faces {
    /// Replaces the faces of the configuration. A face with the same URI as before is kept.
    pub(in crate::control) fn declare(&mut self, statics: Vec<StaticFace>) -> DeclaredChanges {
        let mut done = DeclaredChanges::default();
        let mut old: Vec<usize> = self.statics.keys().copied().collect();
        let mut new = Vec::new();
        for config in statics {
            let same = old.iter().position(|index| self.statics[index].config.uri == config.uri);
            match same {
                Some(at) => self.redeclare(old.remove(at), config, &mut done),
                None => new.push(config),
            }
        }
        // Removed faces go first: a new one may have the same peer under another name.
        for index in old {
            self.undeclare(index, &mut done);
        }
        for config in new {
            let index = self.next_static;
            self.next_static += 1;
            done.faces_added += 1;
            done.routes_added += config.routes.len();
            self.statics.insert(index, StaticEntry { config, attempts: 0 });
            self.connect(ConnectPurpose::Static { index });
        }
        done
    }

    fn undeclare(&mut self, index: usize, done: &mut DeclaredChanges) {
        let Some(entry) = self.statics.remove(&index) else { return };
        done.faces_removed += 1;
        done.routes_removed += entry.config.routes.len();
        if let Some(id) = self.table.find_static(index).map(|face| face.id) {
            self.destroy(id);
        }
    }

    /// Applies the new settings and routes of a face.
    fn redeclare(&mut self, index: usize, config: StaticFace, done: &mut DeclaredChanges) {
        let Some(entry) = self.statics.get_mut(&index) else { return };
        let old = std::mem::replace(&mut entry.config, config.clone());
        let face = self.table.find_static(index).map(|face| face.id);
        let has_new_settings = StaticFace { routes: Vec::new(), ..old.clone() }
            != StaticFace { routes: Vec::new(), ..config.clone() };
        if has_new_settings {
            done.faces_changed += 1;
            if let Some(id) = face
                && let Err(error) = self.configure_again(id, &config)
            {
                tracing::error!(uri = config.uri, ?error, "cannot apply the settings of [[face]]");
            }
        }
        let gone = old
            .routes
            .iter()
            .filter(|(prefix, _)| !config.routes.iter().any(|(kept, _)| kept == prefix));
        for (prefix, _) in gone {
            done.routes_removed += 1;
            let (prefix, origin) = (prefix.clone(), route_origin::STATIC);
            // A face that does not exist yet gets only the new routes.
            if let Some(face) = face {
                self.notices.push_back(ManagerInput::RemoveRoute { prefix, face, origin });
            }
        }
        for (prefix, cost) in config.routes {
            if old.routes.contains(&(prefix.clone(), cost)) {
                continue;
            }
            done.routes_added += 1;
            if let Some(face) = face {
                self.add_static_route(face, prefix, cost);
            }
        }
    }

    /// Gives an existing face the settings that it would have if it were created now.
    fn configure_again(&mut self, id: FaceId, config: &StaticFace) -> Result<(), FaceError> {
        let face = self.table.find_mut(id).ok_or(FaceError::NotFound)?;
        let is_datagram = face.remote.is_datagram();
        restore_defaults(&mut face.link, &self.defaults);
        let request = static_request(config, is_datagram);
        let changes = FaceChanges {
            mtu: is_datagram.then(|| request.changes.mtu.unwrap_or(MTU_AUTO)),
            congestion_marking: Some(
                config.congestion_marking.unwrap_or(self.defaults.congestion_marking),
            ),
            ..request.changes
        };
        self.update_declared(id, &changes, Some(config))?;
        self.send_attributes(id);
        Ok(())
    }
}

/// Undoes the overrides of a static face.
fn restore_defaults(link: &mut LinkConfig, defaults: &FaceDefaults) {
    let base = LinkConfig::stream();
    link.shaping = defaults.shaping;
    link.egress.marking.policy = defaults.marking.clone();
    link.egress.discipline = defaults.discipline.clone().unwrap_or(base.egress.discipline);
    link.codec.reliability = defaults.reliability && link.codec.fragmentation;
    link.codec.runs = if defaults.runs { RunsConfig::Accept } else { RunsConfig::Off };
    begin_runs(link);
}
