//! Answers to single Interests.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use nix::errno::Errno;
use weir_base::Packet;
use weir_socket::{Pending, SocketError};
use weir_wire::DataView;

use crate::errors::errno_of;
use crate::memory::ScatterBuffer;
use crate::readiness::{Readiness, SourcePoll, WakeSource};

enum AnswerState {
    Waiting(Pending<Packet>),
    Arrived(Result<Packet, SocketError>),
}

impl AnswerState {
    fn has_arrived(&mut self, context: &mut Context<'_>) -> bool {
        if let Self::Waiting(pending) = self
            && let Poll::Ready(found) = Pin::new(pending).poll(context)
        {
            *self = Self::Arrived(found);
        }
        matches!(self, Self::Arrived(_))
    }
}

/// Those to the Interests of one name, in the order of these.
pub(crate) struct AnswerQueue {
    source: WakeSource,
    answers: Mutex<Vec<AnswerState>>,
}

impl AnswerQueue {
    pub(crate) fn new(readiness: &Arc<Readiness>) -> Self {
        Self { source: WakeSource::new(readiness), answers: Mutex::default() }
    }

    fn answers(&self) -> MutexGuard<'_, Vec<AnswerState>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those that have not been got.
    pub(crate) fn count(&self) -> usize {
        self.answers().len()
    }

    /// Another one, which `poll` is to see when it comes.
    pub(crate) fn add(&self, answer: Pending<Packet>) {
        self.answers().push(AnswerState::Waiting(answer));
        // If the socket is closed, there is nothing to see.
        let _ = self.source.wait(false, |context| {
            let has_more = self.answers().iter_mut().any(|answer| answer.has_arrived(context));
            SourcePoll { found: Poll::Ready(()), has_more }
        });
    }

    /// The content of the first that is there.
    ///
    /// # Errors
    /// Why there is none; EMSGSIZE: it has no room, and the next call gets the same; ENOMSG: others
    /// got them all.
    pub(crate) fn recv(&self, room: &mut ScatterBuffer, may_wait: bool) -> Result<usize, Errno> {
        let got = self.source.wait(may_wait, |context| {
            let mut answers = self.answers();
            if answers.is_empty() {
                return SourcePoll::of(Err(Errno::ENOMSG));
            }
            // All of them are looked at: whoever waits is woken by any.
            let here = answers.iter_mut().map(|answer| answer.has_arrived(context));
            let here: Vec<bool> = here.collect();
            let Some(at) = here.iter().position(|&is_here| is_here) else {
                return SourcePoll { found: Poll::Pending, has_more: false };
            };
            let AnswerState::Arrived(answer) = &answers[at] else { unreachable!("it is there") };
            let got = deliver(answer, room);
            let is_kept = got == Err(Errno::EMSGSIZE);
            if !is_kept {
                answers.remove(at);
            }
            let left = here.iter().filter(|&&is_here| is_here).count() - usize::from(!is_kept);
            SourcePoll { found: Poll::Ready(got), has_more: left > 0 }
        })?;
        // Whoever else waits finds that there is none left.
        self.source.wake_if(self.count() == 0);
        got
    }
}

fn deliver(answer: &Result<Packet, SocketError>, room: &mut ScatterBuffer) -> Result<usize, Errno> {
    let packet = answer.as_ref().map_err(errno_of)?;
    let data = DataView::decode(packet).map_err(|_| Errno::EBADMSG)?;
    match data.content.len() <= room.left() {
        true => Ok(room.put(data.content)),
        false => Err(Errno::EMSGSIZE),
    }
}
