// A headless Chromium with pages that play a stream.

import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";

import { chromium } from "playwright-core";

/** The browser of Debian. */
const PROGRAM = "/usr/bin/chromium";
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

/** Serves the page of a player. It comes from another origin than the stream, as on the web. */
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

export class Browser {
  #player;
  #server;
  #chromium;

  /** Starts a browser for pages of hls.js (`hls`) or shaka (`shaka`). */
  static async start(player) {
    if (PLAYERS[player] === undefined) {
      throw new Error(`${player}: the player is hls or shaka`);
    }
    const browser = new Browser();
    browser.#player = player;
    browser.#server = await serve(player);
    browser.#chromium = await chromium.launch({ executablePath: PROGRAM, args: FLAGS });
    return browser;
  }

  /** A page that is ready to play, with its own cache. */
  async open() {
    const page = await this.#chromium.newPage({ viewport: { width: 640, height: 360 } });
    const errors = [];
    page.on("pageerror", (error) => errors.push(String(error)));
    await page.goto(`http://127.0.0.1:${this.#server.address().port}/`);
    return new PlayerPage(page, this.#player, errors);
  }

  async close() {
    await this.#chromium.close();
    this.#server.close();
  }
}

class PlayerPage {
  #page;
  #player;
  #errors;
  #ended;

  constructor(page, player, errors) {
    this.#page = page;
    this.#player = player;
    this.#errors = errors;
  }

  async start(url) {
    await this.#page.evaluate(([name, stream]) => window.start(name, stream), [this.#player, url]);
    const options = { polling: 100, timeout: 0 };
    // The wait fails when the page is closed before the stream ends.
    this.#ended = this.#page.waitForFunction(() => window.isOver(), null, options).catch(() => {});
  }

  /** Waits for a time, or until the stream ends or fails. */
  async watch(seconds) {
    const timeout = new Promise((resolve) => setTimeout(resolve, seconds * 1000));
    await Promise.race([timeout, this.#ended]);
  }

  async screenshot(path) {
    await this.#page.screenshot({ path });
  }

  /** Closes the page, and returns what its viewer has seen in `seconds`. */
  async finish(seconds) {
    const report = await this.#page.evaluate(() => window.report());
    await this.#page.close();
    report.errors.push(...this.#errors);
    const played = report.startup_s !== null && !report.failed
      && (report.ended || report.played_s >= seconds / 2);
    return { player: this.#player, played, ...report };
  }
}
