//! Queues of answers to single Interests.

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

/// Answers to the Interests for one name, in the order of the Interests.
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

    /// Number of answers that have not been delivered.
    pub(crate) fn count(&self) -> usize {
        self.answers().len()
    }

    /// Adds an answer. `poll` reports it when it arrives.
    pub(crate) fn add(&self, answer: Pending<Packet>) {
        self.answers().push(AnswerState::Waiting(answer));
        // Fails if the socket is closed. Then there is nothing to report.
        let _ = self.source.wait(false, |context| {
            let has_more = self.answers().iter_mut().any(|answer| answer.has_arrived(context));
            SourcePoll { found: Poll::Ready(()), has_more }
        });
    }

    /// Delivers the content of the first answer that has arrived.
    ///
    /// # Errors
    /// The error of the answer. EMSGSIZE: the buffers are too small, and the next call gets the
    /// same answer. ENOMSG: other calls have received all answers.
    pub(crate) fn recv(&self, buffer: &mut ScatterBuffer, may_wait: bool) -> Result<usize, Errno> {
        let got = self.source.wait(may_wait, |context| {
            let mut answers = self.answers();
            if answers.is_empty() {
                return SourcePoll::of(Err(Errno::ENOMSG));
            }
            // Poll all of them: any of them must wake this call.
            let here = answers.iter_mut().map(|answer| answer.has_arrived(context));
            let here: Vec<bool> = here.collect();
            let Some(at) = here.iter().position(|&is_here| is_here) else {
                return SourcePoll { found: Poll::Pending, has_more: false };
            };
            let AnswerState::Arrived(answer) = &answers[at] else { unreachable!("it is there") };
            let got = deliver(answer, buffer);
            let is_kept = got == Err(Errno::EMSGSIZE);
            if !is_kept {
                answers.remove(at);
            }
            let left = here.iter().filter(|&&is_here| is_here).count() - usize::from(!is_kept);
            SourcePoll { found: Poll::Ready(got), has_more: left > 0 }
        })?;
        // Other waiting calls must find that no answer is left.
        self.source.wake_if(self.count() == 0);
        got
    }
}

fn deliver(
    answer: &Result<Packet, SocketError>,
    buffer: &mut ScatterBuffer,
) -> Result<usize, Errno> {
    let packet = answer.as_ref().map_err(errno_of)?;
    let data = DataView::decode(packet).map_err(|_| Errno::EBADMSG)?;
    match data.content.len() <= buffer.left() {
        true => Ok(buffer.put(data.content)),
        false => Err(Errno::EMSGSIZE),
    }
}
