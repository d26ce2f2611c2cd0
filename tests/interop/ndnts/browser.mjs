// A headless Chromium with a page that fetches a file over WebSocket.
//
//   browser.mjs ROUTER NAME CERTIFICATE FOLDER
//
// ROUTER is a URL such as ws://127.0.0.1:9696/, CERTIFICATE the file of the producer's certificate,
// FOLDER an empty folder for the profile. Prints what the page found as one JSON object. On SIGUSR2
// it closes the page, not the browser, and prints the event `closed`.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";

import { build } from "esbuild";

const PROGRAM = "chromium";
const FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--no-proxy-server",
  "--no-first-run", "--disable-background-networking", "--disable-dev-shm-usage"];
const PAGE = `<!doctype html><title>NDNts</title><script type="module" src="/page.js"></script>`;

function say(message) {
  process.stdout.write(`${JSON.stringify(message)}\n`);
}

async function bundle() {
  const entry = new URL("page.mjs", import.meta.url).pathname;
  const { outputFiles } = await build({
    entryPoints: [entry],
    bundle: true,
    format: "esm",
    platform: "browser",
    write: false,
    logLevel: "error",
  });
  return outputFiles[0].contents;
}

/** Reads a certificate in the form of ndnsec: base64. */
async function readCertificate(path) {
  return Buffer.from(await readFile(path, "latin1"), "base64");
}

/** Serves the page, and prints its result. */
async function serve(certificate) {
  const files = {
    "/": ["text/html", PAGE],
    "/page.js": ["text/javascript", await bundle()],
    "/certificate": ["application/octet-stream", await readCertificate(certificate)],
  };
  const server = createServer(async (request, response) => {
    if (request.method === "POST") {
      let body = "";
      for await (const chunk of request) {
        body += chunk;
      }
      say(JSON.parse(body));
    }
    const [type, body] = files[request.url.split("?")[0]] ?? ["text/plain", ""];
    response.writeHead(200, { "content-type": type });
    response.end(body);
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  return `http://127.0.0.1:${server.address().port}/`;
}

/** A browser that ends with this process, because it is controlled over pipes. */
class Browser {
  #child;
  #answers = new Map();

  constructor(profile) {
    const flags = [...FLAGS, "--remote-debugging-pipe", `--user-data-dir=${profile}`];
    const stdio = ["ignore", "ignore", "ignore", "pipe", "pipe"];
    this.#child = spawn(PROGRAM, [...flags, "about:blank"], { stdio });
    this.#child.on("error", (error) => say({ event: "error", what: `${error}` }));
    let text = "";
    this.#child.stdio[4].setEncoding("utf8").on("data", (chunk) => {
      const messages = (text + chunk).split("\0");
      text = messages.pop();
      messages.map((message) => JSON.parse(message)).forEach(({ id, result }) => {
        this.#answers.get(id)?.(result);
      });
    });
  }

  call(method, params) {
    const id = this.#answers.size + 1;
    const answer = new Promise((resolve) => { this.#answers.set(id, resolve); });
    this.#child.stdio[3].write(`${JSON.stringify({ id, method, params })}\0`);
    return answer;
  }
}

const [router, name, certificate, profile] = process.argv.slice(2);
const url = new URL(await serve(certificate));
url.search = new URLSearchParams({ router, name });
const browser = new Browser(profile);
const { targetId } = await browser.call("Target.createTarget", { url: url.href });
process.on("SIGUSR2", async () => {
  await browser.call("Target.closeTarget", { targetId });
  say({ event: "closed" });
});
