//! Single Interests and their Data.

use crossbeam_channel::Receiver;
use weir_base::{Instant, NS_PER_MS, Packet};
use weir_client::{Client, Context, Endpoint, ReceivedPacket};
use weir_wire::{DataView, InterestView, NackReason};

use super::SocketError;
use super::pending::Completer;

/// Upper bound of pending single Interests. More are refused.
const PENDING_INTERESTS_MAX: usize = 1 << 14;

/// A valid Interest, and the receiver of its Data.
pub(crate) struct ExpressRequest {
    pub(crate) interest: Packet,
    pub(crate) data: Completer<Packet>,
}

struct PendingExpress {
    expressed: ExpressRequest,
    deadline: Instant,
}

pub(crate) struct ExpressEndpoint {
    new: Receiver<ExpressRequest>,
    open: Vec<PendingExpress>,
}

impl ExpressEndpoint {
    pub(crate) fn new(new: Receiver<ExpressRequest>) -> Self {
        Self { new, open: Vec::new() }
    }

    fn send(&mut self, client: &mut Client) {
        while let Ok(ExpressRequest { interest, data }) = self.new.try_recv() {
            let Ok(view) = InterestView::decode(&interest) else { continue };
            let Some(path) = client.paths().next() else {
                data.complete(Err(SocketError::NoRouter("the connection was lost".into())));
                continue;
            };
            if self.open.len() >= PENDING_INTERESTS_MAX
                || client.send_bytes(path, &interest).is_err()
            {
                data.complete(Err(SocketError::Refused(
                    "too many Interests are pending; wait for answers".into(),
                )));
                continue;
            }
            let lifetime_ns = view.lifetime_ms_or_default().saturating_mul(NS_PER_MS);
            let until = client.now().plus_ns(lifetime_ns);
            self.open.push(PendingExpress {
                expressed: ExpressRequest { interest, data },
                deadline: until,
            });
        }
    }

    /// Ends those for which `ends` returns a result.
    fn end(&mut self, ends: impl Fn(&InterestView<'_>, Instant) -> Option<ExpressOutcome>) {
        let mut at = 0;
        while let Some(open) = self.open.get(at) {
            let interest = InterestView::decode(&open.expressed.interest).expect("it was checked");
            match ends(&interest, open.deadline) {
                Some(ended) => self.open.swap_remove(at).expressed.data.complete(ended),
                None => at += 1,
            }
        }
    }

    fn take(&mut self, ReceivedPacket { header, packet, .. }: &ReceivedPacket) {
        if let Some(reason) = header.nack {
            let Ok(nacked) = InterestView::decode(packet) else { return };
            return self.end(|interest, _| {
                let is_it = interest.name == nacked.name && interest.nonce == nacked.nonce;
                is_it.then(|| Err(error_of(interest, reason)))
            });
        }
        let Ok(data) = DataView::decode(packet) else { return };
        self.end(|interest, _| data.satisfies(interest).then(|| Ok(packet.clone())));
    }
}

type ExpressOutcome = Result<Packet, SocketError>;

fn error_of(interest: &InterestView<'_>, reason: NackReason) -> SocketError {
    match reason {
        NackReason::NoRoute => SocketError::NoRoute(interest.name.to_name()),
        other => SocketError::Refused(format!("{other:?}")),
    }
}

impl Endpoint for ExpressEndpoint {
    fn handle(&mut self, context: &mut Context<'_>, packets: &mut Vec<ReceivedPacket>) {
        for packet in packets.drain(..) {
            self.take(&packet);
        }
        let now = context.client.now();
        self.end(|interest, until| {
            let error = || SocketError::TimedOut(interest.name.to_name());
            (until <= now).then(|| Err(error()))
        });
        self.send(context.client);
    }

    fn next_wakeup(&self) -> Option<Instant> {
        self.open.iter().map(|open| open.deadline).min()
    }

    fn is_done(&self) -> bool {
        false
    }
}
