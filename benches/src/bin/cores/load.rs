//! The load: consumers and producers, each with its own socket and thread.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant as Clock};

use anyhow::{Context, bail, ensure};
use cpu_time::ThreadTime;
use mio::{Events, Interest, Poll, Token};
use weir_base::{Instant, Packet, Pool, Rng};
use weir_benches::{NAMES_PER_PARENT, data, interest};
use weir_face::{FaceUri, RecvStatus, SendStatus, Socket};
use weir_link::{Link, Received};
use weir_wire::LpHeader;

/// The present time for all links, which need no timers here.
const START: Instant = Instant::ZERO;
/// How long a consumer waits for an answer before it gives up all pending Interests.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(500);
/// Number of Data that a consumer requests from one object before it turns to the next.
const DATA_PER_TURN: u64 = 32;
/// Maximum egress queue of a producer's link; more packets would be dropped.
const QUEUE_BYTES_MAX: u64 = 1 << 20;

/// The names that a consumer requests.
pub(crate) enum Names {
    /// Objects in order from `first`, several in turn; starts again from 0 after `count`.
    InOrder {
        first: u64,
        count: u64,
    },
    AtRandom {
        count: u64,
        rng: Rng,
    },
}

/// Creates Interests quickly: those of one object differ in one byte of the name and in the nonce.
pub(crate) struct Interests {
    names: Names,
    interleave: u64,
    asked: u64,
    /// One for each object that is requested in turn.
    templates: Vec<Vec<u8>>,
}

impl Interests {
    pub(crate) fn new(names: Names, interleave: u64) -> Self {
        Self { names, interleave, asked: 0, templates: vec![Vec::new(); interleave as usize] }
    }

    fn next(&mut self) -> Packet {
        let number = self.asked;
        self.asked += 1;
        let nonce = (number as u32).wrapping_mul(0x9e37_79b9);
        let (first, count) = match &mut self.names {
            Names::AtRandom { count, rng } => {
                return interest(rng.next_u64() % *count, nonce).into();
            }
            Names::InOrder { first, count } => (*first, *count),
        };
        // Turns alternate between `interleave` objects, and take each object from start to end.
        const TURNS_PER_OBJECT: u64 = NAMES_PER_PARENT / DATA_PER_TURN;
        let turn = number / DATA_PER_TURN;
        let (round, template_index) = (turn / self.interleave, turn % self.interleave);
        let object = round / TURNS_PER_OBJECT * self.interleave + template_index;
        let segment = round % TURNS_PER_OBJECT * DATA_PER_TURN + number % DATA_PER_TURN;
        let template = &mut self.templates[template_index as usize];
        if segment == 0 {
            *template = interest((first + object) % count * NAMES_PER_PARENT, 0);
        }
        // The last byte of the name, then type, length and value of the nonce.
        let len = template.len();
        template[len - 7] = segment as u8;
        template[len - 4..].copy_from_slice(&nonce.to_be_bytes());
        Packet::from(template.clone())
    }
}

/// A socket with its link and its thread's poll.
pub(crate) struct End {
    socket: Socket,
    link: Link,
    pool: Pool,
    poll: Poll,
    events: Events,
    frames: Vec<Packet>,
    is_drained: bool,
}

impl End {
    pub(crate) fn new(mut socket: Socket) -> anyhow::Result<Self> {
        let poll = Poll::new()?;
        poll.registry().register(&mut socket, Token(0), Interest::READABLE | Interest::WRITABLE)?;
        let link = Link::new(socket.link_config());
        let (pool, events) = (Pool::new(16 << 20), Events::with_capacity(8));
        let frames = Vec::new();
        Ok(Self { socket, link, pool, poll, events, frames, is_drained: false })
    }

    pub(crate) fn connect(uri: &str) -> anyhow::Result<Self> {
        let uri = FaceUri::resolve(uri)?;
        let socket = Socket::connect(&uri, Duration::from_secs(5))
            .with_context(|| format!("cannot connect to {uri}"))?;
        Self::new(socket)
    }

    fn send(&mut self) -> anyhow::Result<()> {
        // Frames that do not fit are sent in the next turn, which starts with input or writability.
        let _: SendStatus = self.socket.send(&mut self.link)?;
        Ok(())
    }

    /// Receives what is available. Waits first, if there was nothing the last time.
    fn receive(&mut self, mut take: impl FnMut(&mut Link, LpHeader, Packet)) -> anyhow::Result<()> {
        if self.is_drained && !self.socket.is_writable_again() {
            self.poll.poll(&mut self.events, Some(Duration::from_millis(20)))?;
        }
        let status = self.socket.recv(&mut self.pool, &mut self.frames)?;
        ensure!(status != RecvStatus::Closed, "the router closes");
        self.is_drained = status == RecvStatus::Drained;
        for frame in self.frames.drain(..) {
            match self.link.receive(START, frame, &mut self.pool) {
                Received::Packet { header, packet } => take(&mut self.link, header, packet),
                Received::Run => {
                    while let Some((header, packet)) = self.link.next_in_run(START, &mut self.pool)
                    {
                        take(&mut self.link, header, packet);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// State that all consumers of a run share.
#[derive(Default)]
pub(crate) struct Shared {
    pub(crate) stop: AtomicBool,
    pub(crate) data: AtomicU64,
    pub(crate) lost: AtomicU64,
    pub(crate) processor_ns: AtomicU64,
}

/// Requests `count` Data, or until it is stopped.
pub(crate) fn consume(
    end: &mut End,
    interests: &mut Interests,
    window: usize,
    count: u64,
    shared: &Shared,
) -> anyhow::Result<()> {
    let (mut under_way, mut answered) = (0_u64, 0_u64);
    let (mut last, mut given_up) = (Clock::now(), 0);
    let mut processor = ThreadTime::now();
    while answered + given_up < count && !shared.stop.load(Ordering::Relaxed) {
        while under_way < window as u64 && answered + given_up + under_way < count {
            if end.link.enqueue(START, LpHeader::default(), interests.next()).is_err() {
                break;
            }
            under_way += 1;
        }
        end.send()?;
        let (mut came, mut nacked) = (0, 0);
        end.receive(|_, header, _| match header.nack {
            None => came += 1,
            Some(_) => nacked += 1,
        })?;
        answered += came;
        given_up += nacked;
        // Saturating: an answer may belong to an Interest that was given up.
        under_way = under_way.saturating_sub(came + nacked);
        shared.data.fetch_add(came, Ordering::Relaxed);
        if nacked > 0 {
            shared.lost.fetch_add(nacked, Ordering::Relaxed);
        }
        if came > 0 {
            last = Clock::now();
            let now = ThreadTime::now();
            let ran = now.duration_since(processor).as_nanos() as u64;
            shared.processor_ns.fetch_add(ran, Ordering::Relaxed);
            processor = now;
        } else if last.elapsed() > ANSWER_TIMEOUT {
            shared.lost.fetch_add(under_way, Ordering::Relaxed);
            given_up += under_way;
            under_way = 0;
            last = Clock::now();
        }
    }
    Ok(())
}

/// Answers every Interest until it is stopped.
pub(crate) fn produce(end: &mut End, payload: usize, stop: &AtomicBool) -> anyhow::Result<()> {
    // The Data of one name. Those of other names have the same length and layout.
    let template = data(0, payload);
    let name_len = weir_benches::name_value(0).len() + 2;
    let name_at = if template.len() < 255 { 2 } else { 4 };
    let mut asked = VecDeque::new();
    while !stop.load(Ordering::Relaxed) {
        if asked.is_empty() {
            end.receive(|_, header, packet| asked.push_back((header.pit_token, packet)))?;
        } else if end.link.queue_bytes() > 0 {
            end.poll.poll(&mut end.events, Some(Duration::from_millis(20)))?;
        }
        while end.link.queue_bytes() < QUEUE_BYTES_MAX
            && let Some((pit_token, packet)) = asked.pop_front()
        {
            // An Interest of this program: two bytes of type and length, then the name.
            let name = packet.get(2..2 + name_len).context("a foreign Interest")?;
            let mut answer = template.clone();
            answer[name_at..name_at + name_len].copy_from_slice(name);
            let header = LpHeader { pit_token, ..LpHeader::default() };
            if let Err(reason) = end.link.enqueue(START, header, answer.into()) {
                bail!("a producer's link drops: {reason:?}");
            }
        }
        end.send()?;
    }
    Ok(())
}

/// Sets a flag when dropped, so that threads stop however the run ends.
pub(crate) struct StopWhenDropped<'a>(pub(crate) &'a AtomicBool);

impl Drop for StopWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
