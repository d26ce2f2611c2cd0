// Compares a player on two servers of the same channel, such as the gateway and plain nginx.
//
//   compare.mjs hls|shaka URL OTHER [--pairs 20] [--seconds 600]
//
// URL and OTHER are master playlists. Two players start at the same time, one on each, so both join
// at the same point of a segment. Short pairs measure the start and the distance to live. A last
// pair plays for a long time and measures stalls. The program prints one line of JSON for each
// pair, and a summary with the ratio of the starts and the mean difference of the distances.

import { parseArgs } from "node:util";

import { Browser } from "./browser.mjs";

// Long enough for a start and a stable distance to live.
const SHORT_S = 8;

function median(numbers) {
  return numbers.toSorted((a, b) => a - b)[Math.floor(numbers.length / 2)];
}

function rounded(number) {
  return Math.round(number * 1000) / 1000;
}

async function pair(browser, urls, seconds) {
  const pages = [await browser.open(), await browser.open()];
  await Promise.all(pages.map((page, at) => page.start(urls[at])));
  await Promise.all(pages.map((page) => page.watch(seconds)));
  const reports = await Promise.all(pages.map((page) => page.finish(seconds)));
  process.stdout.write(`${JSON.stringify(reports)}\n`);
  if (reports.some((report) => report.startup_s === null || report.failed)) {
    throw new Error("a player did not start, or failed");
  }
  return reports;
}

function summary(player, pairs, long) {
  const starts = [0, 1].map((at) => median(pairs.map((reports) => reports[at].startup_s)));
  const behind = pairs.map(([one, other]) => one.latency_median_s - other.latency_median_s);
  return {
    player,
    startup_median_s: starts,
    startup_ratio: rounded(starts[0] / starts[1]),
    behind_mean_s: rounded(behind.reduce((sum, difference) => sum + difference) / behind.length),
    behind_max_s: rounded(Math.max(...behind)),
    stalls: long.map((report) => report.stalls),
    stalled_s: long.map((report) => report.stalled_s),
    dropped_frames: long.map((report) => report.dropped_frames),
  };
}

const { values, positionals: [player, ...urls] } = parseArgs({
  allowPositionals: true,
  options: {
    pairs: { type: "string", default: "20" },
    seconds: { type: "string", default: "600" },
  },
});
if (urls.length !== 2) {
  throw new Error("give a player and two URLs");
}
const browser = await Browser.start(player);
try {
  const pairs = [];
  for (let at = 0; at < Number(values.pairs); at += 1) {
    pairs.push(await pair(browser, urls, SHORT_S));
  }
  const long = await pair(browser, urls, Number(values.seconds));
  process.stdout.write(`${JSON.stringify(summary(player, pairs, long))}\n`);
} finally {
  await browser.close();
}
