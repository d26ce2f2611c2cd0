//! Packets that are not what their producers signed, which routers of this host are to forget.
//!
//! A router may have one in its store, and the neighbour that it came from may go on: verdicts on
//! such packets wait for its answer, as what follows from them is another Interest. Nothing else
//! waits.

use weir_base::{Instant, NS_PER_S, Packet};
use weir_client::Client;
use weir_manage::commands::{self, Command};
use weir_manage::{ControlParameters, ControlResponse};
use weir_transport::{ConsumerInput, PathId, Verdict, VerifyId};
use weir_wire::{DataView, InterestView, LpHeader, Name};

/// How long an answer is waited for.
const WAIT_NS: u64 = NS_PER_S;

/// Verdicts that wait, and the commands whose answers they wait for, by the names of their
/// Interests.
struct Erasure {
    commands: Vec<(PathId, Name)>,
    deadline: Instant,
    verdicts: Vec<(VerifyId, Verdict)>,
}

#[derive(Default)]
pub(crate) struct Erasures {
    open: Vec<Erasure>,
    /// Routers that do not erase packets by their full names, which are not asked again.
    unsupported_paths: Vec<PathId>,
}

impl Erasures {
    /// Whether answers are waited for.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.open.is_empty()
    }

    /// Has the packets of these full names erased at the end of each path, and then `verdicts`
    /// taken.
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

    /// Takes an answer, if it is one that is waited for.
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

    /// A path is no more: nothing is waited for there.
    pub(crate) fn path_removed(&mut self, path: PathId) {
        for erasure in &mut self.open {
            erasure.commands.retain(|&(other, _)| other != path);
        }
    }

    /// Gives the verdicts that wait for nothing any more.
    pub(crate) fn poll(&mut self, now: Instant, inputs: &mut Vec<ConsumerInput>) {
        let is_over =
            |erasure: &mut Erasure| erasure.commands.is_empty() || erasure.deadline <= now;
        for erasure in self.open.extract_if(.., is_over) {
            // Who does not answer is not asked again.
            erasure
                .commands
                .iter()
                .for_each(|&(path, _)| insert_once(&mut self.unsupported_paths, path));
            let verdicts = erasure.verdicts.into_iter();
            inputs.extend(verdicts.map(|(op, verdict)| ConsumerInput::Verified { op, verdict }));
        }
    }

    /// When [`Erasures::poll`] has something to do.
    pub(crate) fn next_wakeup(&self) -> Option<Instant> {
        self.open.iter().map(|erasure| erasure.deadline).min()
    }
}

fn insert_once(paths: &mut Vec<PathId>, path: PathId) {
    if !paths.contains(&path) {
        paths.push(path);
    }
}
