// Plays a stream in a headless Chromium and prints one line of JSON about it.
//
//   play.mjs hls|shaka URL [--seconds 30] [--at MS] [--screenshot FILE]
//
// URL is a master playlist. The player starts at once, or at a time in milliseconds since 1970. The
// screenshot is taken after half of the time. The page comes from another origin than the stream.
// The exit code is 0 if the player played at least half of the time, or to the end of a film.

import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { parseArgs } from "node:util";

import { chromium } from "playwright-core";

/** The browser of Debian. */
const BROWSER = "/usr/bin/chromium";
const FLAGS = ["--no-sandbox", "--autoplay-policy=no-user-gesture-required", "--no-proxy-server"];
const PLAYERS = {
  hls: "node_modules/hls.js/dist/hls.min.js",
  shaka: "node_modules/shaka-player/dist/shaka-player.compiled.js",
};
const PAGE = `<!doctype html>
<title>player</title>
<style>body { margin: 0; background: #222 } video { width: 100% }</style>
<video muted autoplay></video>
<script src="/player.js"></script>
<script src="/page.js"></script>
`;

function local(path) {
  return readFile(new URL(path, import.meta.url));
}

async function serve(player) {
  const files = {
    "/": ["text/html", PAGE],
    "/player.js": ["text/javascript", await local(PLAYERS[player])],
    "/page.js": ["text/javascript", await local("page.js")],
  };
  const server = createServer((request, response) => {
    const [type, body] = files[request.url] ?? ["text/plain", undefined];
    response.writeHead(body === undefined ? 404 : 200, { "content-type": type });
    response.end(body);
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  return server;
}

function sleep(seconds) {
  return new Promise((resolve) => setTimeout(resolve, seconds * 1000));
}

async function play(browser, address, player, url, { seconds, at, screenshot }) {
  const page = await browser.newPage({ viewport: { width: 640, height: 360 } });
  const errors = [];
  page.on("pageerror", (error) => errors.push(String(error)));
  await page.goto(address);
  if (at > 0 && at < Date.now()) {
    throw new Error(`the browser was ready ${Date.now() - at} ms too late`);
  }
  await sleep((at - Date.now()) / 1000);
  await page.evaluate(([name, stream]) => window.start(name, stream), [player, url]);
  const ended = page.waitForFunction(() => window.isOver(), null, { polling: 100, timeout: 0 });
  // The page is closed while this waits, unless the stream ends first.
  ended.catch(() => {});
  await Promise.race([sleep(seconds / 2), ended]);
  if (screenshot !== undefined) {
    await page.screenshot({ path: screenshot });
  }
  await Promise.race([sleep(seconds / 2), ended]);
  const report = await page.evaluate(() => window.report());
  report.errors.push(...errors);
  return report;
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    seconds: { type: "string", default: "30" },
    at: { type: "string", default: "0" },
    screenshot: { type: "string" },
  },
});
const [player, url] = positionals;
if (PLAYERS[player] === undefined || url === undefined) {
  throw new Error("play.mjs hls|shaka URL [--seconds 30] [--at MS] [--screenshot FILE]");
}
const seconds = Number(values.seconds);
const server = await serve(player);
const browser = await chromium.launch({ executablePath: BROWSER, args: FLAGS });
try {
  const address = `http://127.0.0.1:${server.address().port}/`;
  const options = { seconds, at: Number(values.at), screenshot: values.screenshot };
  const report = await play(browser, address, player, url, options);
  const played = report.startup_s !== null && !report.failed
    && (report.ended || report.played_s >= seconds / 2);
  process.stdout.write(`${JSON.stringify({ player, played, ...report })}\n`);
  process.exitCode = played ? 0 : 1;
} finally {
  await browser.close();
  server.close();
}
