//! Erases packets that failed verification from the routers of this host.
//!
//! A local router may have such a packet in its store, and continue to use the neighbour that sent
//! it. The next Interest must not get the same packet again. So the consumer gets the verdicts only
//! after the router's answer. Nothing else waits for it.

use weir_base::{Instant, NS_PER_S, Packet};
use weir_client::Client;
use weir_manage::commands::{self, Command};
use weir_manage::{ControlParameters, ControlResponse};
use weir_transport::{ConsumerInput, PathId, Verdict, VerifyId};
use weir_wire::{DataView, InterestView, LpHeader, Name};

/// How long to wait for an answer.
const WAIT_NS: u64 = NS_PER_S;

/// Verdicts that wait for routers, and the pending commands by the names of their Interests.
struct Erasure {
    commands: Vec<(PathId, Name)>,
    deadline: Instant,
    verdicts: Vec<(VerifyId, Verdict)>,
}

#[derive(Default)]
pub(crate) struct Erasures {
    open: Vec<Erasure>,
    /// Routers that cannot erase packets by full name, or did not answer. They get no more
    /// commands.
    unsupported_paths: Vec<PathId>,
}

impl Erasures {
    /// Whether answers are pending.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.open.is_empty()
    }

    /// Erases the packets with these full names at the router of each path, and then passes on
    /// `verdicts`.
    pub(crate) fn begin(
        &mut self,
        client: &mut Client,
        paths: &[PathId],
        names: &[Name],
        verdicts: Vec<(VerifyId, Verdict)>,
    ) {
        let mut commands = Vec::new();
        for &path in paths.iter().filter(|path| !self.unsupported_paths.contains(path)) {
            if !client.is_local_at(path) {
                continue;
            }
            commands.extend(names.iter().filter_map(|name| {
                let parameters =
                    ControlParameters { name: Some(name.clone()), ..Default::default() };
                Some((path, client.send_command(path, Command::CsErase, &parameters)?))
            }));
        }
        let until = client.now().plus_ns(WAIT_NS);
        self.open.push(Erasure { commands, deadline: until, verdicts });
    }

    /// Takes an answer. Returns whether it was pending.
    pub(crate) fn on_answer(&mut self, header: &LpHeader, packet: &Packet) -> bool {
        let name = match header.nack {
            Some(_) => InterestView::decode(packet).map(|interest| interest.name),
            None => DataView::decode(packet).map(|data| data.name),
        };
        let Ok(name) = name else { return false };
        let is_it = |(_, asked): &(PathId, Name)| asked.as_view() == name;
        for erasure in &mut self.open {
            let Some(at) = erasure.commands.iter().position(is_it) else { continue };
            let (path, _) = erasure.commands.swap_remove(at);
            let response = DataView::decode(packet).ok();
            let response = response.and_then(|data| commands::parse_response(&data).ok());
            if !matches!(response, Some(ControlResponse { code: 200, .. })) {
                insert_once(&mut self.unsupported_paths, path);
            }
            return true;
        }
        false
    }

    /// A path was removed: no answer will arrive there.
    pub(crate) fn path_removed(&mut self, path: PathId) {
        for erasure in &mut self.open {
            erasure.commands.retain(|&(other, _)| other != path);
        }
    }

    /// Passes on verdicts that wait for no more answers.
    pub(crate) fn poll(&mut self, now: Instant, inputs: &mut Vec<ConsumerInput>) {
        let is_over =
            |erasure: &mut Erasure| erasure.commands.is_empty() || erasure.deadline <= now;
        for erasure in self.open.extract_if(.., is_over) {
            // A router that does not answer gets no more commands.
            erasure
                .commands
                .iter()
                .for_each(|&(path, _)| insert_once(&mut self.unsupported_paths, path));
            let verdicts = erasure.verdicts.into_iter();
            inputs.extend(verdicts.map(|(op, verdict)| ConsumerInput::Verified { op, verdict }));
        }
    }

    /// When [`Erasures::poll`] has work.
    pub(crate) fn next_wakeup(&self) -> Option<Instant> {
        self.open.iter().map(|erasure| erasure.deadline).min()
    }
}

fn insert_once(paths: &mut Vec<PathId>, path: PathId) {
    if !paths.contains(&path) {
        paths.push(path);
    }
}
