// Plays a stream in a headless Chromium and prints one line of JSON about it.
//
//   play.mjs hls|shaka URL [--seconds 30] [--screenshot FILE]
//
// URL is a master playlist. The screenshot is taken after half of the time. The exit code is 0 if
// the player played at least half of the time, or to the end of a film.

import { parseArgs } from "node:util";

import { Browser } from "./browser.mjs";

const { values, positionals: [player, url] } = parseArgs({
  allowPositionals: true,
  options: { seconds: { type: "string", default: "30" }, screenshot: { type: "string" } },
});
const seconds = Number(values.seconds);
const browser = await Browser.start(player);
try {
  const page = await browser.open();
  await page.start(url);
  await page.watch(seconds / 2);
  if (values.screenshot !== undefined) {
    await page.screenshot(values.screenshot);
  }
  await page.watch(seconds / 2);
  const report = await page.finish(seconds);
  process.stdout.write(`${JSON.stringify(report)}\n`);
  process.exitCode = report.played ? 0 : 1;
} finally {
  await browser.close();
}
