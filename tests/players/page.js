// In the page: starts a player on the video element and measures what a viewer sees.

/* global Hls, shaka */

const SAMPLE_INTERVAL_MS = 50;
/** A picture that stands still for longer is a stall. */
const STALL_MS = 250;

const video = document.querySelector("video");

const seen = {
  startedAt: 0,
  firstFrameAt: null,
  stalls: 0,
  stalledMs: 0,
  latencies: [],
  switches: 0,
  heights: [],
  /** How often each error was reported. */
  errors: {},
  failed: false,
};

/** The wall-clock time of the picture, by EXT-X-PROGRAM-DATE-TIME, or null. */
let pictureDate = () => null;

function onError(text, isFatal) {
  seen.errors[text] = (seen.errors[text] ?? 0) + 1;
  seen.failed ||= isFatal;
}

function onQuality(height) {
  if (seen.heights.at(-1) !== height) {
    seen.switches += seen.heights.length > 0 ? 1 : 0;
    seen.heights.push(height);
  }
}

const PLAYERS = {
  hls(url) {
    const player = new Hls();
    player.on(Hls.Events.ERROR, (_, { details, fatal, response, frag }) => {
      onError(`${details} ${response?.code ?? ""} ${frag?.relurl ?? ""}`.trim(), fatal);
    });
    player.on(Hls.Events.LEVEL_SWITCHED, (_, { level }) => onQuality(player.levels[level].height));
    pictureDate = () => player.playingDate;
    player.loadSource(url);
    player.attachMedia(video);
  },
  shaka(url) {
    shaka.polyfill.installAll();
    const player = new shaka.Player();
    const describe = ({ message, data }) => `${message} ${data?.[0] ?? ""}`.trim();
    const isFatal = ({ severity }) => severity === shaka.util.Error.Severity.CRITICAL;
    player.addEventListener("error", ({ detail }) => onError(describe(detail), isFatal(detail)));
    player.addEventListener("adaptation", ({ newTrack }) => onQuality(newTrack.height));
    player.getNetworkingEngine().addEventListener("retry", ({ error }) => {
      onError(`retry ${describe(error)}`, false);
    });
    const tracks = () => player.getVariantTracks();
    pictureDate = () => (player.isLive() ? player.getPlayheadTimeAsDate() : null);
    player.attach(video)
      .then(() => player.load(url))
      .then(() => onQuality(tracks().find((track) => track.active)?.height))
      .catch((error) => onError(describe(error), true));
  },
};

/** Counts the time in which the picture should move and does not. */
function watch() {
  let [position, movedAt, isStalled] = [video.currentTime, performance.now(), false];
  let sampledAt = movedAt;
  setInterval(() => {
    const now = performance.now();
    if (video.currentTime !== position || video.ended) {
      [position, movedAt, isStalled] = [video.currentTime, now, false];
    } else if (now - movedAt >= STALL_MS) {
      seen.stalls += isStalled ? 0 : 1;
      seen.stalledMs += isStalled ? now - sampledAt : now - movedAt;
      isStalled = true;
    }
    sampledAt = now;
    const date = pictureDate();
    if (date !== null && !Number.isNaN(date.getTime())) {
      seen.latencies.push(Date.now() - date.getTime());
    }
  }, SAMPLE_INTERVAL_MS);
}

window.start = (player, url) => {
  seen.startedAt = performance.now();
  video.requestVideoFrameCallback(() => {
    seen.firstFrameAt = performance.now();
    watch();
  });
  PLAYERS[player](url);
};

window.isOver = () => video.ended || seen.failed;

function playedSeconds() {
  const { played } = video;
  return Array.from({ length: played.length }, (_, at) => played.end(at) - played.start(at))
    .reduce((sum, span) => sum + span, 0);
}

function inSeconds(ms) {
  return ms === null || ms === undefined ? null : Math.round(ms) / 1000;
}

window.report = () => {
  const frames = video.getVideoPlaybackQuality();
  const latencies = [...seen.latencies].sort((a, b) => a - b);
  return {
    startup_s: inSeconds(seen.firstFrameAt && seen.firstFrameAt - seen.startedAt),
    stalls: seen.stalls,
    stalled_s: inSeconds(seen.stalledMs),
    played_s: inSeconds(playedSeconds() * 1000),
    ended: video.ended,
    failed: seen.failed,
    decoded_frames: frames.totalVideoFrames,
    dropped_frames: frames.droppedVideoFrames,
    latency_median_s: inSeconds(latencies[Math.floor(latencies.length / 2)]),
    latency_max_s: inSeconds(latencies.at(-1)),
    switches: seen.switches,
    heights: seen.heights,
    errors: seen.errors,
  };
};
