//! Many consumers of one growing object. One thread reads for all of them, like the tasks of an
//! executor, because the trial measures sockets and not threads.

use std::io::BufRead as _;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

use serde_json::json;
use weir_base::NS_PER_S;
use weir_scenario::trial::{Sessions, Trial};
use weir_security::Verifier;
use weir_socket::{Consumer, ConsumerOptions, Reader, Session, SessionConfig};

use super::publisher::{HEAD_BYTES, now_ns};
use super::{RoleError, RoleSpec, content, input_lines, print_line};

/// Follows with the initial subscribers, adds the late ones on command, and prints the results when
/// the object has ended.
pub(super) fn subscribe(spec: &RoleSpec) -> Result<(), RoleError> {
    let trial = &spec.trial;
    let mut crowd = SubscriberGroup::new(spec)?;
    crowd.join(trial.subscribers - late_count(trial))?;
    super::print_ready()?;
    while !crowd.has_stop_line {
        crowd.step()?;
    }
    crowd.join(late_count(trial))?;
    let joined = crowd.members.len();
    print_line(&json!({ "joined": joined }))?;
    while crowd.members.iter().any(|member| !member.is_over) {
        crowd.step()?;
    }
    let ends = |of: fn(&Subscriber) -> u64| crowd.members.iter().map(of).collect::<Vec<u64>>();
    print_line(&json!({
        "delays_s": crowd.delays_s,
        "joins_s": crowd.times_to_join(),
        "first": ends(|member| member.first.unwrap_or(u64::MAX)),
        "next": ends(|member| member.next),
    }))?;
    while crowd.events.recv().is_ok() {}
    Err(RoleError::Orphaned)
}

/// Number of a process's subscribers that join late.
pub(in super::super) fn late_count(trial: &Trial) -> u32 {
    (u64::from(trial.subscribers) * u64::from(trial.late)).div_ceil(100) as u32
}

/// An event for the reading thread.
enum Event {
    /// A subscriber may have data.
    Awake(usize),
    InputLine,
    /// Standard input has closed.
    Orphaned,
}

struct IndexWaker {
    index: usize,
    events: Sender<Event>,
}

impl Wake for IndexWaker {
    fn wake(self: Arc<Self>) {
        // If the reading thread has ended, nothing waits for the event.
        let _ = self.events.send(Event::Awake(self.index));
    }
}

struct Subscriber {
    reader: Reader,
    waker: Waker,
    begun: Instant,
    /// When it began, by the clock in the messages.
    begun_ns: u64,
    /// Time until it knew the newest message.
    join_s: Option<f64>,
    /// The first message it received, and (`next`) the one it waits for.
    first: Option<u64>,
    next: u64,
    is_over: bool,
}

struct SubscriberGroup<'a> {
    spec: &'a RoleSpec,
    verifier: Arc<dyn Verifier>,
    filling: Vec<u8>,
    shared: Option<Session>,
    members: Vec<Subscriber>,
    rings: Sender<Event>,
    events: Receiver<Event>,
    has_stop_line: bool,
    delays_s: Vec<f64>,
}

impl<'a> SubscriberGroup<'a> {
    fn new(spec: &'a RoleSpec) -> Result<Self, RoleError> {
        let (rings, events) = channel();
        let (lines, teller) = (input_lines(), rings.clone());
        std::thread::spawn(move || {
            for _ in lines {
                let _ = teller.send(Event::InputLine);
            }
            let _ = teller.send(Event::Orphaned);
        });
        Ok(Self {
            spec,
            verifier: spec.verifier()?,
            filling: content(spec.trial.size.bytes, 0),
            shared: None,
            members: Vec::new(),
            rings,
            events,
            has_stop_line: false,
            delays_s: Vec::new(),
        })
    }

    fn session(&mut self) -> Result<Session, RoleError> {
        let make = || {
            let router = Some(self.spec.router()?);
            Ok(Session::with(SessionConfig { router, threads: 1, ..SessionConfig::default() })?)
        };
        match (self.spec.trial.sessions, &self.shared) {
            (Sessions::Own, _) => make(),
            (Sessions::Shared, Some(shared)) => Ok(shared.clone()),
            (Sessions::Shared, None) => {
                let session = make()?;
                self.shared = Some(session.clone());
                Ok(session)
            }
        }
    }

    /// Adds `count` subscribers at once. Returns when each of them knows the newest message.
    fn join(&mut self, count: u32) -> Result<(), RoleError> {
        let from = self.members.len();
        let sessions: Vec<Session> =
            (0..count).map(|_| self.session()).collect::<Result<_, RoleError>>()?;
        for session in sessions {
            let prefix = self.spec.prefix();
            let mut consumer = Consumer::bind(&session, prefix.clone(), self.verifier.clone());
            consumer.set_options(ConsumerOptions {
                lifetime: self.spec.trial.lifetime,
                verify: self.spec.is_signed(),
                ..ConsumerOptions::default()
            })?;
            let bell = IndexWaker { index: self.members.len(), events: self.rings.clone() };
            self.members.push(Subscriber {
                begun: Instant::now(),
                begun_ns: now_ns()?,
                reader: consumer.fetch_newest(&prefix)?,
                waker: Waker::from(Arc::new(bell)),
                join_s: None,
                first: None,
                next: 0,
                is_over: false,
            });
            // The first poll starts the fetch and registers the waker.
            self.advance(self.members.len() - 1)?;
        }
        while self.members[from..].iter().any(|member| member.join_s.is_none()) {
            self.step()?;
        }
        Ok(())
    }

    fn times_to_join(&self) -> Vec<f64> {
        self.members.iter().filter_map(|member| member.join_s).collect()
    }

    /// Waits for an event and handles it.
    fn step(&mut self) -> Result<(), RoleError> {
        match self.events.recv().map_err(|_| RoleError::Orphaned)? {
            Event::Awake(index) => self.advance(index),
            Event::InputLine => {
                self.has_stop_line = true;
                Ok(())
            }
            Event::Orphaned => Err(RoleError::Orphaned),
        }
    }

    /// Reads what has arrived for one subscriber.
    fn advance(&mut self, index: usize) -> Result<(), RoleError> {
        let member = &mut self.members[index];
        let waker = member.waker.clone();
        let mut context = Context::from_waker(&waker);
        if member.join_s.is_none() {
            let Poll::Ready(found) = member.reader.poll_metadata(&mut context) else {
                return Ok(());
            };
            member.next = found?.newest_segment().unwrap_or(0);
            let took_ns = member.begun.elapsed().as_nanos();
            member.join_s = Some(took_ns as f64 / NS_PER_S as f64);
        }
        while !member.is_over {
            let Poll::Ready(message) = member.reader.poll_fill_buf(&mut context) else {
                return Ok(());
            };
            let message = message?;
            let len = message.len();
            if len == 0 {
                member.is_over = true;
                continue;
            }
            let published_ns = check(message, member.next, &self.filling)?;
            member.reader.consume(len);
            member.first.get_or_insert(member.next);
            member.next += 1;
            // The delay counts only for messages published after the subscriber began.
            if published_ns >= member.begun_ns {
                let delay_ns = now_ns()?.saturating_sub(published_ns);
                self.delays_s.push(delay_ns as f64 / NS_PER_S as f64);
            }
        }
        let reader = &member.reader;
        if reader.missed() > 0 || reader.is_verified() != self.spec.is_signed() {
            return Err(RoleError::Failed(format!(
                "subscriber {index} missed {} messages, or verified them in another way than \
                 requested",
                reader.missed()
            )));
        }
        Ok(())
    }
}

/// Compares a message with what was published. Returns its publication time.
fn check(message: &[u8], number: u64, filling: &[u8]) -> Result<u64, RoleError> {
    let read = |at: usize| Some(u64::from_be_bytes(*message.get(at..)?.first_chunk()?));
    let is_right = message.len() == filling.len()
        && message.get(HEAD_BYTES..) == filling.get(HEAD_BYTES..)
        && read(0) == Some(number);
    match read(8) {
        Some(published_ns) if is_right => Ok(published_ns),
        _ => {
            let came = read(0);
            Err(RoleError::Failed(format!("received message {came:?} instead of {number}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unexpected_message_is_an_error() {
        let filling = content(64, 0);
        let mut message = filling.clone();
        message[..8].copy_from_slice(&7_u64.to_be_bytes());
        message[8..16].copy_from_slice(&1000_u64.to_be_bytes());
        assert_eq!(check(&message, 7, &filling).unwrap(), 1000);
        assert!(check(&message, 8, &filling).is_err(), "one was lost");
        assert!(check(&message[..63], 7, &filling).is_err());
        message[40] ^= 1;
        assert!(check(&message, 7, &filling).is_err());
        assert!(check(&[], 7, &filling).is_err());
    }
}
