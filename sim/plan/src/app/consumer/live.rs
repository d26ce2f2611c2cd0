//! A player of live channels (RFC 8216, 6.3). It loads the playlist of a stream, fetches the listed
//! segments of video one after another, and reloads the playlist.

use weir_base::{Instant, NS_PER_S, Packet, Rng};
use weir_transport::{
    ConsumerConfig, ConsumerEvent, ConsumerInput, PathId, RangeId, Target, Verdict,
};
use weir_wire::{DataView, InterestView};

use super::fetch::{self, Fetch, FetchListener};
use super::objects::{ActiveObject, FetchOutcome};
use super::{AppInput, AppOutbox, ConsumerCore};
use crate::event::EventKind;
use crate::workload::random::{below, mix};
use crate::workload::{
    ConsumerPlan, Demand, LiveChannels, ObjectChooser, QualityChoice, WorkloadError,
};

/// Weight of the newest segment in the measured throughput.
const THROUGHPUT_WEIGHT: f64 = 0.3;
/// Share of the measured throughput that a quality may use.
const THROUGHPUT_SHARE: f64 = 0.8;

#[derive(Debug)]
pub(super) struct LiveLoop {
    config: ConsumerConfig,
    channels: LiveChannels,
    chooser: ObjectChooser,
    rng: Rng,
    switch_ns: u64,
    quality: QualityChoice,
    /// When the next channel is chosen.
    next_switch: Instant,
    view: Option<View>,
    playlist: Option<(Fetch, PlaylistLoad)>,
    segment: Option<(Fetch, ActiveObject)>,
    throughput_bps: Option<f64>,
}

/// A channel that is being watched.
#[derive(Debug)]
struct View {
    channel: u64,
    stream: u64,
    /// Number of the next segment to fetch; `None` until the first playlist.
    next: Option<u64>,
    /// Number of the newest segment in the last playlist of the stream.
    newest: Option<u64>,
    /// Earliest start of the next load of the playlist.
    reload_at: Instant,
}

/// A playlist that is being loaded.
#[derive(Debug)]
struct PlaylistLoad {
    stream: u64,
    started: Instant,
    /// The newest segment that it lists.
    newest: Option<u64>,
    is_over: bool,
}

impl LiveLoop {
    pub(super) fn new(
        plan: &ConsumerPlan,
        core: &ConsumerCore,
        seed: u64,
    ) -> Result<Self, WorkloadError> {
        let Demand::Live { switch_ns, quality, controller, window } = &plan.demand else {
            unreachable!("the caller looked")
        };
        let Some(channels) = core.collection.live() else {
            let problem = "are no live channels, but the consumer is a player of them";
            return Err(WorkloadError::value("names", problem));
        };
        if *switch_ns == 0 {
            return Err(WorkloadError::value("switch_ns", "is 0; write at least 1"));
        }
        let mut rng = Rng::from_seed(mix(seed ^ 3));
        // Players load their playlists at any time of a segment.
        let begins_ns = below(&mut rng, channels.segment_ns());
        Ok(Self {
            config: fetch::config_of_objects(plan, core.controllers, controller, *window)?,
            channels: channels.clone(),
            chooser: ObjectChooser::new(&plan.names.popularity, mix(seed ^ 2))?,
            rng,
            switch_ns: *switch_ns,
            quality: *quality,
            next_switch: core.start.plus_ns(begins_ns),
            view: None,
            playlist: None,
            segment: None,
            throughput_bps: None,
        })
    }

    pub(super) fn packet(&mut self, core: &mut ConsumerCore, input: AppInput) {
        let name = match input.header.nack {
            Some(_) => InterestView::decode(&input.packet).ok().map(|interest| interest.name),
            None => DataView::decode(&input.packet).ok().map(|data| data.name),
        };
        let Some(name) = name else {
            core.stats.malformed += 1;
            return;
        };
        let asked = core.collection.naming().parse(name.value());
        match (asked, &mut self.segment, &mut self.playlist) {
            (Some(asked), Some((fetch, active)), _) if asked.object == active.object => {
                fetch.push_packet(input);
            }
            (None, _, Some((fetch, _))) => fetch.push_packet(input),
            // An answer that the player no longer wants.
            _ => core.stats.unwanted += 1,
        }
    }

    fn fetches(&self) -> impl Iterator<Item = &Fetch> {
        let playlist = self.playlist.as_ref().map(|(fetch, _)| fetch);
        playlist.into_iter().chain(self.segment.as_ref().map(|(fetch, _)| fetch))
    }

    fn fetches_mut(&mut self) -> impl Iterator<Item = &mut Fetch> {
        let playlist = self.playlist.as_mut().map(|(fetch, _)| fetch);
        playlist.into_iter().chain(self.segment.as_mut().map(|(fetch, _)| fetch))
    }

    /// Ends the run: nothing is sent any more.
    pub(super) fn end(&mut self, core: &ConsumerCore) {
        self.fetches_mut().for_each(|fetch| fetch.end(core));
    }

    pub(super) fn set_path(&mut self, path: PathId, is_there: bool, core: &ConsumerCore) {
        self.fetches_mut().for_each(|fetch| fetch.set_path(path, is_there, core));
    }

    pub(super) fn advance(&mut self, core: &mut ConsumerCore, out: &mut AppOutbox) {
        self.settle(core, out);
        if !core.can_request() {
            return;
        }
        if self.next_switch <= core.now {
            self.switch_channel(core, out);
        }
        self.load_playlist(core, out);
        self.fetch_segment(core, out);
    }

    /// Takes what has arrived.
    fn settle(&mut self, core: &mut ConsumerCore, out: &mut AppOutbox) {
        if let Some((fetch, load)) = &mut self.playlist {
            fetch.process(core, load, out);
        }
        if let Some((_, load)) =
            self.playlist.take_if(|(fetch, it)| it.is_over || fetch.is_over(core))
        {
            self.on_playlist(core, &load);
        }
        if let Some((fetch, active)) = &mut self.segment {
            fetch.process(core, active, out);
        }
        let ended = self.segment.take_if(|(fetch, it)| it.end.is_some() || fetch.is_over(core));
        if let Some((_, active)) = ended {
            self.on_segment(core, &active, out);
        }
    }

    /// A playlist arrived, or its load failed. The next load begins one segment after this one
    /// began, or half a segment if nothing is new (RFC 8216, 6.3.4).
    fn on_playlist(&mut self, core: &ConsumerCore, load: &PlaylistLoad) {
        let segment_ns = self.channels.segment_ns();
        let Some(view) = &mut self.view else { return };
        let Some(newest) = load.newest.filter(|&newest| view.newest != Some(newest)) else {
            view.reload_at = load.started.plus_ns(segment_ns / 2).max(core.now);
            return;
        };
        view.reload_at = load.started.plus_ns(segment_ns).max(core.now);
        view.newest = Some(newest);
        // A player that has fallen behind the playlist begins again.
        let is_listed = |next: &u64| *next >= self.channels.oldest_listed(newest);
        view.next =
            view.next.filter(is_listed).or_else(|| Some(self.channels.first_of_player(newest)));
    }

    fn on_segment(&mut self, core: &mut ConsumerCore, active: &ActiveObject, out: &mut AppOutbox) {
        let object = active.object;
        match active.end {
            Some(FetchOutcome::Complete) => core.object_completed(object, active.started, out),
            Some(FetchOutcome::Failed) => core.object_failed(object, out),
            // The run is over.
            None => return,
        }
        if self.quality == QualityChoice::Adaptive && active.end == Some(FetchOutcome::Complete) {
            self.adapt(core, active);
        }
    }

    /// Chooses the quality of the next segments by the throughput of the last ones.
    fn adapt(&mut self, core: &ConsumerCore, active: &ActiveObject) {
        let bits = core.collection.shape(active.object).bytes as f64 * 8.0;
        let seconds = core.now.ns_since(active.started).max(1) as f64 / NS_PER_S as f64;
        let now_bps = bits / seconds;
        let mean_bps = match self.throughput_bps {
            Some(mean) => mean + THROUGHPUT_WEIGHT * (now_bps - mean),
            None => now_bps,
        };
        self.throughput_bps = Some(mean_bps);
        let stream = self.view.as_ref().map(|view| {
            self.channels
                .stream(view.channel, self.channels.quality_within(mean_bps * THROUGHPUT_SHARE))
        });
        if let (Some(view), Some(stream)) = (&mut self.view, stream)
            && view.stream != stream
        {
            // The other quality has a playlist of its own.
            (view.stream, view.newest, view.reload_at) = (stream, None, core.now);
            self.playlist = None;
        }
    }

    fn switch_channel(&mut self, core: &ConsumerCore, out: &mut AppOutbox) {
        let watches_ns = match self.view {
            Some(_) => self.switch_ns,
            None => below(&mut self.rng, self.switch_ns) + 1,
        };
        self.next_switch = core.now.plus_ns(watches_ns);
        let (channel, _) = self.chooser.next_request();
        out.events.push(EventKind::ChannelWatched { channel });
        let quality = match self.quality {
            QualityChoice::One => self.channels.qualities() - 1,
            QualityChoice::Drawn => below(&mut self.rng, self.channels.qualities()),
            QualityChoice::Adaptive => {
                let bps = self.throughput_bps.unwrap_or(0.0);
                self.channels.quality_within(bps * THROUGHPUT_SHARE)
            }
        };
        let stream = self.channels.stream(channel, quality);
        self.view = Some(View { channel, stream, next: None, newest: None, reload_at: core.now });
        (self.playlist, self.segment) = (None, None);
    }

    fn load_playlist(&mut self, core: &mut ConsumerCore, out: &mut AppOutbox) {
        let Some(view) = self.view.as_ref().filter(|view| view.reload_at <= core.now) else {
            return;
        };
        if self.playlist.is_some() {
            return;
        }
        let stream = view.stream;
        let object = self.channels.playlist(stream);
        let target = Target::Latest { object, allow_stored: false };
        let mut fetch = Fetch::new(target, self.config.clone(), self.rng.next_u64(), core);
        let mut load = PlaylistLoad { stream, started: core.now, newest: None, is_over: false };
        fetch.process(core, &mut load, out);
        self.playlist = Some((fetch, load));
    }

    fn fetch_segment(&mut self, core: &mut ConsumerCore, out: &mut AppOutbox) {
        let Some(view) = self.view.as_mut().filter(|_| self.segment.is_none()) else { return };
        let (Some(next), Some(newest)) = (view.next, view.newest) else { return };
        if next > newest {
            return;
        }
        view.next = Some(next + 1);
        let object = self.channels.object(view.stream, next);
        out.events.push(EventKind::ObjectStarted { object });
        let seed = self.rng.next_u64();
        self.segment = Some(ActiveObject::begin(object, &self.config, seed, core, out));
    }

    pub(super) fn next_wakeup(&self, core: &ConsumerCore) -> Option<Instant> {
        let reload = self.view.as_ref().filter(|_| self.playlist.is_none());
        let reload = reload.map(|view| view.reload_at);
        let own = [Some(self.next_switch), reload].into_iter().flatten();
        let own = own.filter(|&at| core.now < core.stop && at < core.stop);
        self.fetches().filter_map(|fetch| fetch.next_wakeup(core)).chain(own).min()
    }

    pub(super) fn is_done(&self, core: &ConsumerCore) -> bool {
        self.fetches().next().is_none() && self.next_wakeup(core).is_none()
    }

    pub(super) fn in_flight(&self) -> u32 {
        self.fetches().map(Fetch::in_flight).sum()
    }

    pub(super) fn window(&self) -> f64 {
        self.fetches().map(Fetch::window).sum()
    }

    pub(super) fn window_of(&self, path: PathId) -> f64 {
        self.fetches().map(|fetch| fetch.window_of(path)).sum()
    }
}

impl FetchListener for PlaylistLoad {
    fn object_of(&self, _: RangeId) -> Option<u64> {
        None
    }

    fn on_first_interest(&mut self, _: &ConsumerCore, _: RangeId, _: &mut AppOutbox) {}

    fn on_segment(&mut self, _: RangeId) {}

    fn on_metadata(
        &mut self,
        core: &mut ConsumerCore,
        packet: &Packet,
        out: &mut AppOutbox,
    ) -> Verdict {
        let data = DataView::decode(packet).expect("the consumer decoded it");
        let channels = core.collection.live().expect("it is a player of live channels");
        let Some(newest) = channels.newest_of(self.stream, &data, core.now) else {
            let wrong = format!("{} arrived with wrong content", data.name);
            core.playlist_damaged(self.stream, &wrong, out);
            return Verdict::Bad { reason: wrong, digest: None };
        };
        let (stream, packet_bytes) = (self.stream, packet.len() as u32);
        out.events.push(EventKind::PlaylistReceived { stream, newest, packet_bytes });
        self.newest = Some(newest);
        Verdict::Good
    }

    fn on_event(
        &mut self,
        _: &mut ConsumerCore,
        event: ConsumerEvent,
        _: &mut Vec<ConsumerInput>,
        _: &mut AppOutbox,
    ) {
        // The metadata say everything, so the player never starts the segments below them.
        self.is_over |= matches!(event, ConsumerEvent::Found { .. } | ConsumerEvent::Failed(_));
    }
}

#[cfg(test)]
mod tests {
    use weir_transport::Controllers;

    use super::super::{Consumer, ConsumerMode};
    use super::*;
    use crate::workload::{LivePlan, Names, Popularity, Sizes};

    const S: u64 = NS_PER_S;

    fn player() -> (ConsumerCore, Box<LiveLoop>) {
        let names = Names {
            prefix: "/tv".into(),
            components: 0,
            popularity: Popularity::Uniform { objects: 3 },
            sizes: Sizes::List { bytes: [1000, 2000].into() },
            segment_bytes: 1000,
            live: Some(LivePlan { segment_ns: 2 * S, listed: 5 }),
        };
        let quality = QualityChoice::One;
        let (switch_ns, controller, window) = (600 * S, "fixed".into(), None);
        let plan =
            ConsumerPlan::new(names, Demand::Live { switch_ns, quality, controller, window });
        let consumer = Consumer::new(&plan, Controllers::BUILT_IN, 1000 * S, 1).unwrap();
        let ConsumerMode::Live(mut live) = consumer.mode else { unreachable!() };
        let reload_at = Instant::ZERO;
        live.view = Some(View { channel: 0, stream: 1, next: None, newest: None, reload_at });
        (consumer.core, live)
    }

    fn load(started_ms: u64, newest: Option<u64>) -> PlaylistLoad {
        let started = Instant::from_ns(started_ms * S / 1000);
        PlaylistLoad { stream: 1, started, newest, is_over: true }
    }

    /// Times in ms; each row is a load that takes 100 ms.
    #[test]
    fn unchanged_playlist_is_reloaded_after_half_a_segment() {
        let (mut core, mut live) = player();
        for (started_ms, newest, reload_ms, next) in [
            (1000, Some(9), 3000, 7),
            (3000, Some(9), 4000, 7),
            (4000, Some(10), 6000, 7),
            (6000, None, 7000, 7),
            (7000, Some(11), 9000, 7),
            // Segment 7 has left the playlist.
            (9000, Some(12), 11_000, 10),
        ] {
            core.now = Instant::from_ns((started_ms + 100) * S / 1000);
            live.on_playlist(&core, &load(started_ms, newest));
            let view = live.view.as_ref().unwrap();
            let reload = (view.reload_at.as_ns() / (S / 1000), view.next);
            assert_eq!(reload, (reload_ms, Some(next)), "{started_ms}");
        }
    }

    #[test]
    fn late_playlist_is_reloaded_at_once() {
        let (mut core, mut live) = player();
        core.now = Instant::from_ns(5 * S);
        live.on_playlist(&core, &load(1000, Some(9)));
        assert_eq!(live.view.unwrap().reload_at, core.now);
    }

    #[test]
    fn throughput_decides_quality() {
        let (mut core, mut live) = player();
        // The high quality has 8 kbit/s. Its segments of 2000 bytes take this long.
        for (took_ms, stream) in [(1000, 1), (5000, 1), (5000, 0), (500, 1)] {
            let started = core.now;
            core.now = core.now.plus_ns(took_ms * S / 1000);
            live.adapt(&core, &ActiveObject { object: 1, started, end: None });
            assert_eq!(live.view.as_ref().unwrap().stream, stream, "{took_ms} ms");
        }
    }
}
