// Requests /v1/state every two seconds and draws it. The controller searches files, and this page
// searches routers. Names come from others, so they are only set as text, never as HTML.
"use strict";

const PERIOD_MS = 2000;
// A request that takes longer fails.
const WAIT_MS = 15000;
const SVG = "http://www.w3.org/2000/svg";
const at = (id) => document.getElementById(id);
// The address may contain a token after a #. Browsers do not send that part to the server.
const fromAddress = location.hash.startsWith("#token=") ? location.hash.slice(7) : null;
if (fromAddress) {
  sessionStorage.setItem("token", fromAddress);
  history.replaceState(null, "", location.pathname);
}
let timer = 0;

function element(kind, text, className) {
  const node = document.createElement(kind);
  if (text !== undefined) node.textContent = text;
  if (className) node.className = className;
  return node;
}

function svgElement(kind, attributes, text) {
  const node = document.createElementNS(SVG, kind);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

function scaled(value, units, step) {
  let index = 0;
  while (value >= step && index < units.length - 1) { value /= step; index += 1; }
  return `${value >= 100 || index === 0 ? Math.round(value) : value.toFixed(1)} ${units[index]}`;
}
const ago = (state, ms) => `${Math.max(0, Math.round((state.now_ms - ms) / 1000))} s ago`;
const bytes = (value) => scaled(value, ["B", "KiB", "MiB", "GiB", "TiB"], 1024);
const rate = (value) => scaled(value, ["bit/s", "kbit/s", "Mbit/s", "Gbit/s"], 1000);

// A row of a table. `labels` name the cells where the screen is too narrow for a head. A cell is a
// text, or a text and a drawing below it.
function row(cells, className, labels = []) {
  const node = element("tr", undefined, className);
  node.append(...cells.map((cell, index) => {
    const [text, drawing] = Array.isArray(cell) ? cell : [cell];
    const data = element("td", text);
    if (labels[index] && text) data.dataset.label = labels[index];
    if (drawing) data.append(drawing);
    return data;
  }));
  return node;
}

// Size of the drawing, and the distance from its edges that names of routers need.
const WIDTH = 900, HEIGHT = 420, MARGIN_X = 70, MARGIN_Y = 36;
// Positions of routers. They change only when routers or links are added or removed.
const positions = new Map();
let arrangedKey = "";

// Names in the order of a depth-first walk along the links, so that neighbours start next to each
// other.
function walk(names, lines) {
  const neighbours = new Map(names.map((name) => [name, []]));
  for (const { ends: [one, other] } of lines.values()) {
    neighbours.get(one).push(other);
    neighbours.get(other).push(one);
  }
  const order = new Set();
  for (const first of names) {
    const next = [first];
    while (next.length) {
      const name = next.pop();
      if (order.has(name)) continue;
      order.add(name);
      next.push(...neighbours.get(name));
    }
  }
  return [...order];
}

// Force-directed layout (Fruchterman and Reingold, 1991): links attract, all routers repel each
// other. It starts from the present positions, so that little moves. New routers start on a circle.
function arrange(names, lines) {
  const key = JSON.stringify([names, [...lines.keys()]]);
  if (key === arrangedKey) return;
  arrangedKey = key;
  for (const name of [...positions.keys()]) if (!names.includes(name)) positions.delete(name);
  walk(names, lines).forEach((name, index) => {
    const angle = 2 * Math.PI * (index / names.length) - 2.5;
    const start = { x: WIDTH * (0.5 + 0.4 * Math.cos(angle)),
      y: HEIGHT * (0.5 + 0.4 * Math.sin(angle)) };
    if (!positions.has(name)) positions.set(name, start);
  });
  const all = names.map((name) => positions.get(name));
  const ends = [...lines.values()].map((line) => line.ends.map((name) => positions.get(name)));
  const reach = 0.75 * Math.sqrt((WIDTH * HEIGHT) / Math.max(1, all.length));
  // About ten million pairs at most, so that a thousand routers block the page only for a moment.
  const rounds = Math.min(300, Math.floor(1e7 / (all.length * all.length + 1)));
  for (let round = 0; round < rounds; round += 1) {
    relax(all, ends, reach, 60 * (1 - round / rounds));
  }
  fit(all);
}

// How strongly the middle attracts. It keeps routers without links, such as lost ones, near the
// others.
const PULL = 1.5;

function relax(all, ends, reach, step) {
  for (const position of all) {
    position.dx = PULL * (WIDTH / 2 - position.x);
    position.dy = PULL * (HEIGHT / 2 - position.y);
  }
  const force = (one, other, strength) => {
    const dx = one.x - other.x, dy = one.y - other.y;
    const distance = Math.max(1, Math.hypot(dx, dy));
    const share = strength(distance) / distance;
    one.dx += dx * share; one.dy += dy * share;
    other.dx -= dx * share; other.dy -= dy * share;
  };
  for (let one = 0; one < all.length; one += 1) {
    for (let other = 0; other < one; other += 1) {
      force(all[one], all[other], (distance) => (reach * reach) / distance);
    }
  }
  for (const [one, other] of ends) force(one, other, (distance) => -(distance * distance) / reach);
  for (const position of all) {
    const distance = Math.max(1e-9, Math.hypot(position.dx, position.dy));
    position.x += (position.dx / distance) * Math.min(distance, step);
    position.y += (position.dy / distance) * Math.min(distance, step);
  }
}

// Scales the positions to fill the drawing.
function fit(all) {
  for (const [axis, size, margin] of [["x", WIDTH, MARGIN_X], ["y", HEIGHT, MARGIN_Y]]) {
    const values = all.map((position) => position[axis]);
    const least = Math.min(...values), span = Math.max(...values) - least;
    const scale = span > 1 ? (size - 2 * margin) / span : 0;
    for (const position of all) {
      position[axis] = scale ? margin + (position[axis] - least) * scale : size / 2;
    }
  }
}

// One line for both directions of a link.
function linesOf(state) {
  const lines = new Map();
  for (const link of state.links) {
    const ends = [link.from, link.to].sort();
    const key = ends.join(" ");
    const known = lines.get(key) || { ends, load: 0, max: 0, roundTrip: 0 };
    known.load = Math.max(known.load, link.load_bps);
    known.max = Math.max(known.max, link.rate_bps || 0);
    known.roundTrip = Math.max(known.roundTrip, link.round_trip_ns || 0);
    lines.set(key, known);
  }
  return lines;
}

// Below this load a link is idle: it carries only reports and round-trip probes.
const IDLE_BPS = 1e5;

function drawLink({ ends, load, max, roundTrip }, isDense) {
  const [one, other] = ends.map((name) => positions.get(name));
  const share = max ? load / max : 0;
  const kind = load < IDLE_BPS ? "idle" : share > 0.9 ? "full" : share > 0.5 ? "busy" : "used";
  // Width 3 at 1 Mbit/s, 9 at 1 Gbit/s.
  const baseWidth = kind === "idle" ? 1.5 : Math.min(9, Math.max(2, 2 * Math.log10(load) - 9));
  const width = isDense ? baseWidth / 2 : baseWidth;
  const line = svgElement("line", { x1: one.x, y1: one.y, x2: other.x, y2: other.y, class: kind,
    "stroke-width": width.toFixed(1) });
  const limit = max ? ` of ${rate(max)}` : "";
  const delay = roundTrip ? `, round trip ${(roundTrip / 1e6).toFixed(1)} ms` : "";
  line.append(svgElement("title", {}, `${ends.join(" - ")}: ${rate(load)}${limit}${delay}`));
  if (kind === "idle" || isDense) return [line];
  const text = { x: (one.x + other.x) / 2, y: (one.y + other.y) / 2 - 6, class: "load" };
  return [line, svgElement("text", text, `${rate(load)}${limit}`)];
}

function drawNetwork(state) {
  const lost = lostRouters(state).slice(0, LOST_SHOWN).map(([name]) => name);
  const names = [...state.routers.map((router) => router.name), ...lost];
  const lines = linesOf(state);
  arrange(names, lines);
  const isDense = names.length > 40;
  const parts = [...lines.values()].map((line) => drawLink(line, isDense));
  // Draw lines first, so that they are below all texts.
  const shapes = [...parts.map(([line]) => line), ...parts.flatMap(([, text]) => text || [])];
  const drawRouter = (name, className) => {
    const { x, y } = positions.get(name);
    const circle = svgElement("circle", { cx: x, cy: y, r: isDense ? 4 : 10, class: className });
    circle.append(svgElement("title", {}, className === "lost" ? `${name} is lost` : name));
    shapes.push(circle);
    const below = { x, y: y + (isDense ? 18 : 26), class: className };
    if (names.length <= 120) shapes.push(svgElement("text", below, name));
  };
  for (const router of state.routers) {
    drawRouter(router.name, (router.problems || []).length ? "ill" : "well");
  }
  for (const name of lost) drawRouter(name, "lost");
  at("network").replaceChildren(...shapes);
}

function bar(router, total, planned, held) {
  const node = element("div", undefined, "bar");
  const box = svgElement("svg", { viewBox: `0 0 ${total} 10`, preserveAspectRatio: "none" });
  for (const [first, last] of held.segments) {
    if (first >= total) continue;
    const width = Math.min(last, total - 1) - first + 1;
    box.append(svgElement("rect", { x: first, y: 0, width, height: 10, class: "held" }));
  }
  for (const part of planned) {
    const width = part.last - part.first + 1;
    box.append(svgElement("rect", { x: part.first, y: 0, width, height: 10, class: "planned" }));
  }
  const share = Math.floor((100 * Math.min(held.count, total)) / total);
  node.append(element("span", router), box, element("span", `${share} %`));
  return node;
}

// For each file: segments kept at the previous update, and its time. The difference gives a rate.
let kept = new Map();

// The progress of a file's parts, and how fast they fill.
function progress(transfer, total, now_ms) {
  const planned = transfer.parts.reduce((sum, part) => sum + part.last - part.first + 1, 0);
  if (!planned) {
    const from = transfer.spread.map((share) => share.router).join(", ");
    return { isWhole: true, text: `requested from ${from} in turn`, count: 0 };
  }
  const count = Math.min(transfer.kept, planned);
  const before = kept.get(transfer.object);
  const seconds = before ? (now_ms - before.now_ms) / 1000 : 0;
  const each = transfer.file.size_bytes / transfer.file.segments;
  const bps = seconds > 0 ? (8 * each * (count - before.count)) / seconds : 0;
  const missing = planned < total ? `; no router has space for ${total - planned} more` : "";
  if (count === planned) {
    const text = missing ? `${count} of ${total} segments are kept${missing}` : "kept completely";
    return { isWhole: !missing, text, count };
  }
  const speed = bps > 0 ? `, ${rate(bps)}` : "";
  return { isWhole: false, count,
    text: `being fetched: ${count} of ${planned} segments${speed}${missing}` };
}

function drawTransfers(state) {
  const now = new Map();
  const files = state.transfers.map((transfer) => {
    const node = element("div", undefined, "file");
    const total = transfer.file.segments;
    const { isWhole, text, count } = progress(transfer, total, state.now_ms);
    now.set(transfer.object, { count, now_ms: state.now_ms });
    const size = bytes(transfer.file.size_bytes);
    const readers = transfer.consumers.join(", ") || "no router";
    node.append(element("h3", transfer.object));
    const about = element("p", `${total} segments, ${size}; read at ${readers}; `, "about");
    about.append(element("span", text, isWhole ? "whole" : "under-way"));
    node.append(about);
    const held = new Map(transfer.holdings.map((one) => [one.router, one]));
    const keepers = [...new Set(transfer.parts.map((part) => part.router))];
    const others = [...held.keys()].filter((router) => !keepers.includes(router)).sort();
    for (const router of [...keepers, ...others]) {
      const planned = transfer.parts.filter((part) => part.router === router);
      node.append(bar(router, total, planned, held.get(router) || { segments: [], count: 0 }));
    }
    const more = transfer.holders_count - held.size;
    if (more > 0) node.append(element("p", `and at ${more} more routers`, "about"));
    return node;
  });
  kept = now;
  const nothing = state.plans_count
    ? "No divided file has this text in its name."
    : "No file has a plan: all requested files fit into one store.";
  drawPages("file-pages", filePage, state.found_count, FILES_SHOWN, (page) => {
    filePage = page;
    refresh();
  });
  at("transfers").replaceChildren(...(files.length ? files : [element("p", nothing)]));
}

// A router that was lost longer ago was probably removed on purpose. At most LOST_SHOWN routers are
// listed, and the rest is only counted.
const LOST_TOLD_MS = 24 * 3600 * 1000;
const LOST_SHOWN = 8;

function lostRouters(state) {
  return state.gone.filter(([, seen_ms, isLost]) =>
    isLost && state.now_ms - seen_ms < LOST_TOLD_MS);
}

// Warnings about lost and refused routers.
function routerWarnings(state) {
  const found = state.twins.map(([name, uris]) =>
    `Two routers report as ${name}: the one at ${uris.join(" ") || "an unknown address"} is ` +
    "refused. Give it its own name and its own token.");
  const lost = lostRouters(state);
  for (const [name, seen_ms] of lost.slice(0, LOST_SHOWN)) {
    found.push(`Router ${name} is lost: its last report was ${ago(state, seen_ms)}. Other ` +
      "routers get its parts, and no route uses it. Check whether it runs and is connected.");
  }
  if (lost.length > LOST_SHOWN) found.push(`${lost.length - LOST_SHOWN} more routers are lost.`);
  return found;
}

// What an operator should look at, the most important first.
function warnings(state) {
  const { health } = state;
  const found = routerWarnings(state);
  if (!health.database) {
    found.push(`The database does not work (${health.why}). Routers, plans and transfers ` +
      `continue; files and tokens cannot be added. ${health.waiting_records} records wait.`);
  }
  if (health.lost_records) {
    found.push(`${health.lost_records} records of plans and the audit were dropped, because the ` +
      "database was unavailable for too long.");
  }
  if (health.refused_records) {
    found.push(`The database refused ${health.refused_records} records of plans and the audit. ` +
      "The controller's log shows them.");
  }
  if (health.garbled_rows) {
    found.push(`Database rows cannot be read and are skipped (${health.garbled_rows}), for ` +
      `example ${health.garbled}. Repair or remove them, and restart the controller.`);
  }
  if (health.unread && health.database) {
    found.push(`Changes of other controllers cannot be read: ${health.unread}.`);
  }
  if (health.waits) {
    found.push("Routers get no new configurations: some may not have reported yet, or another " +
      "controller has more routers.");
  }
  for (const { object, parts, file } of state.transfers) {
    const planned = parts.reduce((sum, part) => sum + part.last - part.first + 1, 0);
    if (planned && planned < file.segments) {
      found.push(`Routers have space for ${planned} of the ${file.segments} segments of ` +
        `${object}: the other space is promised to other files, or a router is lost. Withdraw ` +
        "files that are no longer served (weir controller file remove), or enlarge stores.");
    }
  }
  for (const router of state.routers) {
    for (const { part, text } of router.problems || []) {
      found.push(`Router ${router.name} could not set up its ${part}: ${text}`);
    }
  }
  return found;
}

function drawWarnings(state) {
  const found = warnings(state);
  at("attention").hidden = found.length === 0;
  at("warnings").replaceChildren(...found.map((text) => element("li", text)));
}

// Events that report a problem.
const BAD_EVENTS =
  ["router lost", "two of one name", "does not keep", "does not count", "file refused"];

// Rows on one page.
const ROUTERS_SHOWN = 50, FILES_SHOWN = 20;
let routerPage = 0, filePage = 0;
let lastState;

// Buttons for the previous and the next page, if there are several.
function drawPages(id, page, count, size, show) {
  const last = Math.max(0, Math.ceil(count / size) - 1);
  if (page > last) return show(last);
  const button = (text, to) => {
    const node = element("button", text);
    node.type = "button";
    node.disabled = to < 0 || to > last;
    node.addEventListener("click", () => show(to));
    return node;
  };
  const first = page * size + 1, end = Math.min(count, (page + 1) * size);
  const range = count ? `${first} to ${end} of ${count} ` : "";
  const buttons = last ? [button("Back", page - 1), " ", button("Next", page + 1)] : [];
  return at(id).replaceChildren(range, ...buttons);
}

// Bytes in use of a capacity, with a bar.
function use(used, capacity) {
  if (!capacity) return ["none"];
  if (used === undefined) return [bytes(capacity)];
  const bar = svgElement("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none",
    class: "use" });
  const width = Math.min(100, (100 * used) / capacity).toFixed(1);
  bar.append(svgElement("rect", { x: 0, y: 0, width, height: 10 }));
  return [`${bytes(used)} of ${bytes(capacity)}`, bar];
}

function percent(hits, misses) {
  return hits + misses ? `${Math.round((100 * hits) / (hits + misses))} %` : "";
}

const ROUTER_LABELS = ["", "Memory", "Disks", "Hits", "Prefixes", "Configuration", "Last report"];

function drawRouters(state) {
  const wanted = at("find-router").value.trim();
  const isMeant = (name) => name.includes(wanted);
  const rows = state.routers.filter((router) => isMeant(router.name)).map((router) => () => {
    const problems = (router.problems || []).length;
    const isSetUp = router.generation === router.configuration;
    const configuration = problems ? "not set up completely" : isSetUp ? "up to date" : "pending";
    const store = router.store_use || {};
    return row([router.name, use(store.memory_bytes, router.store_bytes),
      use(store.disk_bytes, router.disk_bytes), percent(store.hits || 0, store.misses || 0),
      router.prefixes.join(" "), configuration, ago(state, router.seen_ms)],
      problems ? "ill" : "", ROUTER_LABELS);
  });
  const gone = state.gone.filter(([name]) => isMeant(name)).map(([name, , isLost]) => () =>
    row([name, "", "", "", "", "", isLost ? "lost" : "gone"], "gone", ROUTER_LABELS));
  const all = [...gone, ...rows];
  drawPages("router-pages", routerPage, all.length, ROUTERS_SHOWN, (page) => {
    routerPage = page;
    drawRouters(state);
  });
  const first = routerPage * ROUTERS_SHOWN;
  const shown = all.slice(first, first + ROUTERS_SHOWN).map((make) => make());
  at("routers").replaceChildren(...shown);
}

// An area below a line through `values`, which are undefined where they are unknown. The right end
// is now, the left end one hour before.
function drawArea(id, samples, now_ms, max, valueOf) {
  const hour_ms = 3600 * 1000;
  const points = samples.filter((sample) => valueOf(sample) !== undefined).map((sample) => {
    const x = 600 * (1 - (now_ms - sample.at_ms) / hour_ms);
    return `${x.toFixed(1)},${(120 - (116 * valueOf(sample)) / max).toFixed(1)}`;
  });
  if (points.length < 2) return at(id).replaceChildren();
  const [first] = points[0].split(","), [end] = points[points.length - 1].split(",");
  const d = `M${first},120 L${points.join(" L")} L${end},120 Z`;
  return at(id).replaceChildren(svgElement("path", { d }));
}

function drawHistory({ history, now_ms }) {
  const last = history[history.length - 1];
  const most = Math.max(0, ...history.map((sample) => sample.load_bps));
  drawArea("load", history, now_ms, Math.max(1, most), (sample) => sample.load_bps);
  at("load-now").textContent = last ? `${rate(last.load_bps)} now, at most ${rate(most)}` : "";
  const share = ({ hits, misses }) => hits + misses ? hits / (hits + misses) : undefined;
  drawArea("hits", history, now_ms, 1, share);
  const hits = history.reduce((sum, sample) => sum + sample.hits, 0);
  const misses = history.reduce((sum, sample) => sum + sample.misses, 0);
  const asked = hits + misses;
  at("hits-now").textContent =
    asked ? `${percent(hits, misses)} of ${asked.toLocaleString("en")}` : "none yet";
}

function drawEvents(state) {
  const today = new Date(state.now_ms).toDateString();
  const when = (ms) => {
    const date = new Date(ms);
    const isToday = date.toDateString() === today;
    return isToday ? date.toLocaleTimeString() : date.toLocaleString();
  };
  // The numbers of plans are for programs.
  const detail = ({ action, detail: text }) =>
    action.startsWith("plan") ? text.replace(/^\d+ for /, "") : text;
  const events = state.events.map((event) =>
    row([when(event.at_ms), event.who, event.action, detail(event)],
      BAD_EVENTS.includes(event.action) ? "ill" : ""));
  at("events").replaceChildren(...events);
}

function draw(state) {
  const { others } = state.health;
  const shared = others.length ? `; other controllers: ${others.join(", ")}` : "";
  const counted = (count, what) => `${count} ${what}${count === 1 ? "" : "s"}`;
  at("summary").textContent = `${counted(state.routers.length, "router")}, ` +
    `${counted(state.files_count, "file")}, ${counted(state.plans_count, "plan")}${shared}`;
  at("summary").className = "";
  drawWarnings(state);
  drawNetwork(state);
  drawHistory(state);
  drawTransfers(state);
  drawRouters(state);
  drawEvents(state);
  lastState = state;
}

function signIn(refusal) {
  at("view").hidden = true;
  at("sign-in").hidden = false;
  at("refusal").textContent = refusal;
  at("summary").textContent = "";
}

async function refresh() {
  clearTimeout(timer);
  const token = sessionStorage.getItem("token");
  if (!token) return signIn("");
  let failure = "The controller does not answer";
  try {
    const headers = { Authorization: `Bearer ${token}` };
    const query = new URLSearchParams({ find: at("find-file").value.trim(), page: filePage });
    const signal = AbortSignal.timeout(WAIT_MS);
    const answer = await fetch(`/v1/state?${query}`, { headers, signal });
    const state = await answer.json();
    if (answer.status === 401 || answer.status === 403) {
      sessionStorage.removeItem("token");
      return signIn(state.error);
    }
    if (!answer.ok) throw new Error(state.error);
    failure = "The answer of the controller cannot be shown";
    at("sign-in").hidden = true;
    at("view").hidden = false;
    return draw(state);
  } catch (error) {
    at("summary").textContent = `${failure}: ${error.message}`;
    at("summary").className = "bad";
    return undefined;
  } finally {
    // Start the timer only now: with two requests in progress, the older answer might come last.
    clearTimeout(timer);
    if (sessionStorage.getItem("token")) timer = setTimeout(refresh, PERIOD_MS);
  }
}

at("find-file").addEventListener("input", () => {
  filePage = 0;
  refresh();
});
at("find-router").addEventListener("input", () => {
  routerPage = 0;
  if (lastState) drawRouters(lastState);
});
at("sign-in").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", at("token").value.trim());
  at("token").value = "";
  refresh();
});
refresh();
