//! Viewers of live channels: HLS players without a decoder, all in one thread.
//!
//! Each viewer has a connection, chooses channels by a Zipf law, and loads playlists and segments
//! when a player would. It checks each segment. Wrong content ends the process with an error.

mod audience;
mod http;
mod player;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::sync::mpsc::unbounded_channel;
use tokio::task::JoinSet;
use tokio::time::sleep_until;
use weir_base::Rng;
use weir_scenario::trial::{QualityChoice, Video};

use super::super::hls::{MASTER, Playlist, SEGMENT_NS, Variant, channel_name, variants};
use super::super::stamp::{SegmentCheck, Stamp};
use super::{RoleError, RoleSpec, input_lines, print_line, print_ready};

pub(in super::super) use self::audience::AudienceCounts;

use self::audience::{Audience, Lineup};
use self::http::{HttpClient, HttpError};
use self::player::Player;

/// Weight of the newest sample in the throughput of a viewer.
const NEWEST_WEIGHT: f64 = 0.3;
/// The part of the throughput that a quality may use.
const USED_SHARE: f64 = 0.8;

pub(super) fn watch(spec: &RoleSpec) -> Result<(), RoleError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, run(spec))
}

/// Runs all viewers, and prints their counts at each line of input.
async fn run(spec: &RoleSpec) -> Result<(), RoleError> {
    let servers: Vec<SocketAddr> = spec
        .at
        .split(',')
        .map(str::parse)
        .collect::<Result<_, _>>()
        .map_err(|error| RoleError::Failed(format!("{}: {error}", spec.at)))?;
    let video = Rc::new(spec.trial.video.clone());
    let lineup = Rc::new(Lineup::new(&video, spec.seed));
    let audience = Rc::new(RefCell::new(Audience::new(video.channels)));
    let begun = Instant::now();
    let mut viewers = JoinSet::new();
    for (number, &server) in (0..video.viewers).zip(servers.iter().cycle()) {
        let viewer = Viewer {
            video: Rc::clone(&video),
            lineup: Rc::clone(&lineup),
            audience: Rc::clone(&audience),
            client: HttpClient::new(server),
            rng: Rng::from_seed(spec.seed.wrapping_mul(1 << 20).wrapping_add(u64::from(number))),
            begun,
            throughput_bps: 0.0,
        };
        viewers.spawn_local(viewer.watch());
    }
    print_ready()?;
    let (sender, mut lines) = unbounded_channel();
    let input = input_lines();
    std::thread::spawn(move || input.iter().try_for_each(|line| sender.send(line)));
    loop {
        tokio::select! {
            line = lines.recv() => match line {
                Some(_) => {
                    let mut audience = audience.borrow_mut();
                    let counts = audience.counts(begun.elapsed().as_nanos() as u64);
                    print_line(&json!({ "counts": counts }))?;
                }
                None => return Err(RoleError::Orphaned),
            },
            Some(ended) = viewers.join_next() => {
                return ended.map_err(|error| RoleError::Failed(error.to_string()))?;
            }
        }
    }
}

struct Viewer {
    video: Rc<Video>,
    lineup: Rc<Lineup>,
    audience: Rc<RefCell<Audience>>,
    client: HttpClient,
    rng: Rng,
    begun: Instant,
    throughput_bps: f64,
}

impl Viewer {
    /// Watches one channel after another. Viewers start within the duration of a segment, and
    /// first switch at any time, so that they do not act at the same time later.
    async fn watch(mut self) -> Result<(), RoleError> {
        let draw_ns = |rng: &mut Rng, max_ns: u64| (rng.unit() * max_ns as f64) as u64;
        let first_ns = draw_ns(&mut self.rng, SEGMENT_NS);
        self.sleep_until(first_ns).await;
        let mut until_ns = draw_ns(&mut self.rng, self.video.stay.ns);
        loop {
            let channel = self.lineup.draw(&mut self.rng);
            self.audience.borrow_mut().join(channel, self.now_ns());
            let done = self.watch_channel(channel, until_ns).await;
            self.audience.borrow_mut().leave(channel, self.now_ns());
            done?;
            until_ns = until_ns.saturating_add(self.video.stay.ns);
        }
    }

    /// Watches a channel until a time.
    async fn watch_channel(&mut self, channel: u32, until_ns: u64) -> Result<(), RoleError> {
        let path = format!("/{}", channel_name(channel));
        let drawn = self.rng.next_u32();
        let mut player = Player::default();
        let mut qualities = None;
        while self.now_ns() < until_ns {
            let began_ns = self.now_ns();
            if qualities.is_none() {
                qualities = self.master(&path).await;
            }
            let mut reload_ns = began_ns.saturating_add(SEGMENT_NS / 2);
            if let Some(variants) = &qualities {
                let quality = self.quality(channel, drawn, variants);
                let path = format!("{path}/{}", variants[quality].uri);
                if let Some(playlist) = self.playlist(&path).await {
                    reload_ns = player.on_playlist(playlist, began_ns);
                }
                self.load_segments(&mut player, channel, quality, &path, until_ns).await?;
            }
            self.sleep_until(reload_ns.min(until_ns)).await;
        }
        Ok(())
    }

    /// Loads the segments that the player lacks. After a failure, the player loads the playlist
    /// first.
    async fn load_segments(
        &mut self,
        player: &mut Player,
        channel: u32,
        quality: usize,
        playlist: &str,
        until_ns: u64,
    ) -> Result<(), RoleError> {
        let folder = playlist.rsplit_once('/').map_or("", |(folder, _)| folder);
        while let Some((number, segment)) = player.next_segment()
            && self.now_ns() < until_ns
        {
            let path = format!("{folder}/{}", segment.uri);
            let mut check = SegmentCheck::new();
            let (began_ns, mut len) = (self.now_ns(), 0);
            let sink = |bytes: &[u8]| {
                len += bytes.len() as u64;
                check.update(bytes);
            };
            let done = self.client.get(&path, sink).await;
            if !self.count(done, len) {
                return Ok(());
            }
            let expected = Stamp { channel, quality: quality as u32, number };
            let is_live = self.video.rtmp && channel == 0;
            match check.finish() {
                Ok(Some(stamp)) if stamp == expected => {}
                Ok(None) if is_live => {}
                found => {
                    let what = format!("{path} is not what was published: {found:?}");
                    return Err(RoleError::Failed(what));
                }
            }
            let now_ns = self.now_ns();
            self.on_throughput(len, now_ns - began_ns);
            let stalled_ns = player.on_segment(now_ns);
            self.audience.borrow_mut().stalled(stalled_ns);
        }
        Ok(())
    }

    async fn master(&mut self, path: &str) -> Option<Vec<Variant>> {
        variants(&self.text(&format!("{path}/{MASTER}")).await?)
    }

    async fn playlist(&mut self, path: &str) -> Option<Playlist> {
        Playlist::parse(&self.text(path).await?)
    }

    async fn text(&mut self, path: &str) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        let done = self.client.get(path, |bytes| text.extend_from_slice(bytes)).await;
        self.count(done, text.len() as u64).then_some(text)
    }

    /// Counts a request. Returns whether it succeeded.
    fn count(&self, done: Result<(), HttpError>, len: u64) -> bool {
        let is_done = done.is_ok();
        self.audience.borrow_mut().request(done.map_err(|error| error.to_string()), len);
        is_done
    }

    /// The place of the quality to load, among those of a channel.
    fn quality(&self, channel: u32, drawn: u32, variants: &[Variant]) -> usize {
        let count = variants.len();
        match self.video.quality {
            QualityChoice::One => self.lineup.quality(channel) as usize % count,
            QualityChoice::Drawn => drawn as usize % count,
            QualityChoice::Adaptive => {
                let usable_bps = USED_SHARE * self.throughput_bps;
                let fits = |variant: &&Variant| variant.rate_bps as f64 <= usable_bps;
                variants.iter().take_while(fits).count().saturating_sub(1)
            }
        }
    }

    fn on_throughput(&mut self, len: u64, took_ns: u64) {
        let sample_bps = super::super::report::rate_bps(len, took_ns);
        self.throughput_bps = match self.throughput_bps {
            0.0 => sample_bps,
            known_bps => known_bps + NEWEST_WEIGHT * (sample_bps - known_bps),
        };
    }

    fn now_ns(&self) -> u64 {
        self.begun.elapsed().as_nanos() as u64
    }

    async fn sleep_until(&self, at_ns: u64) {
        sleep_until((self.begun + Duration::from_nanos(at_ns)).into()).await;
    }
}
