// Asks for /v1/state every two seconds and draws it. Names come from others: they are only ever set
// as text.
"use strict";

const PERIOD_MS = 2000;
const SVG = "http://www.w3.org/2000/svg";
const at = (id) => document.getElementById(id);
// A token may come behind a # in the address, which no server sees.
const fromAddress = location.hash.startsWith("#token=") ? location.hash.slice(7) : null;
if (fromAddress) {
  sessionStorage.setItem("token", fromAddress);
  history.replaceState(null, "", location.pathname);
}
let timer = 0;
// Where routers are drawn: they stay there as long as they are known.
const places = new Map();

function element(kind, text, className) {
  const made = document.createElement(kind);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function drawn(kind, attributes, text) {
  const made = document.createElementNS(SVG, kind);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function scaled(value, units, step) {
  let index = 0;
  while (value >= step && index < units.length - 1) { value /= step; index += 1; }
  return `${value >= 100 || index === 0 ? Math.round(value) : value.toFixed(1)} ${units[index]}`;
}
const octets = (value) => scaled(value, ["B", "KiB", "MiB", "GiB", "TiB"], 1024);
const rate = (value) => scaled(value, ["bit/s", "kbit/s", "Mbit/s", "Gbit/s"], 1000);

function row(cells, className) {
  const made = element("tr", undefined, className);
  made.append(...cells.map((cell) => element("td", cell)));
  return made;
}

// Places on an ellipse, each new router in the widest gap.
function place(names) {
  for (const name of [...places.keys()]) if (!names.includes(name)) places.delete(name);
  for (const name of names) {
    if (places.has(name)) continue;
    const turns = [...places.values()].sort((one, other) => one - other);
    let best = 0, widest = turns.length ? 0 : 1;
    turns.forEach((turn, index) => {
      const next = index + 1 < turns.length ? turns[index + 1] : turns[0] + 1;
      if (next - turn > widest + 1e-9) { widest = next - turn; best = (turn + widest / 2) % 1; }
    });
    places.set(name, best);
  }
}

function point(name) {
  const angle = 2 * Math.PI * (places.get(name) - 0.25);
  return [450 + 360 * Math.cos(angle), 205 + 155 * Math.sin(angle)];
}

function drawNetwork(state) {
  const names = state.routers.map((router) => router.name);
  place(names);
  const parts = [];
  // Both directions of a link as one line.
  const lines = new Map();
  for (const link of state.links) {
    const ends = [link.from, link.to].sort();
    const key = ends.join(" ");
    const known = lines.get(key) || { ends, load: 0, max: 0 };
    known.load = Math.max(known.load, link.load_bps);
    known.max = Math.max(known.max, link.rate_bps || 0);
    lines.set(key, known);
  }
  for (const { ends, load, max } of lines.values()) {
    const [[x1, y1], [x2, y2]] = ends.map(point);
    const share = max ? load / max : 0;
    const kind = share > 0.9 ? "full" : share > 0.5 ? "busy" : "idle";
    const line = drawn("line", { x1, y1, x2, y2, class: kind });
    const limit = max ? ` of ${rate(max)}` : "";
    line.append(drawn("title", {}, `${ends.join(" - ")}: ${rate(load)}${limit}`));
    parts.push(line);
    if (load > 0) {
      const text = { x: (x1 + x2) / 2, y: (y1 + y2) / 2 - 5, class: "load" };
      parts.push(drawn("text", text, rate(load)));
    }
  }
  for (const router of state.routers) {
    const [cx, cy] = point(router.name);
    parts.push(drawn("circle", { cx, cy, r: names.length > 40 ? 5 : 11 }));
    parts.push(drawn("text", { x: cx, y: cy + 28 }, router.name));
  }
  at("network").replaceChildren(...parts);
}

function bar(router, total, planned, held) {
  const made = element("div", undefined, "bar");
  const box = drawn("svg", { viewBox: `0 0 ${total} 10`, preserveAspectRatio: "none" });
  for (const [first, last] of held.segments) {
    if (first >= total) continue;
    const width = Math.min(last, total - 1) - first + 1;
    box.append(drawn("rect", { x: first, y: 0, width, height: 10, class: "held" }));
  }
  for (const part of planned) {
    const width = part.last - part.first + 1;
    box.append(drawn("rect", { x: part.first, y: 0, width, height: 10, class: "planned" }));
  }
  const share = Math.floor((100 * Math.min(held.count, total)) / total);
  made.append(element("span", router), box, element("span", `${share} %`));
  return made;
}

function drawTransfers(state) {
  const files = state.transfers.map((transfer) => {
    const made = element("div", undefined, "file");
    const last = Math.max(0, ...transfer.parts.map((part) => part.last));
    const total = transfer.file ? transfer.file.segments : last + 1;
    const size = transfer.file ? `, ${octets(transfer.file.size_bytes)}` : "";
    const readers = transfer.consumers.join(", ") || "nobody";
    const title = `${transfer.object}: ${total} segments${size}, plan ${transfer.number}, ` +
      `asked for at ${readers}`;
    made.append(element("h3", title));
    const held = new Map(transfer.holdings.map((one) => [one.router, one]));
    const keepers = transfer.parts.map((part) => part.router);
    for (const router of [...new Set([...keepers, ...held.keys()])].sort()) {
      const planned = transfer.parts.filter((part) => part.router === router);
      made.append(bar(router, total, planned, held.get(router) || { segments: [], count: 0 }));
    }
    return made;
  });
  const nothing = "No file is planned for: all that was asked for fits into one store.";
  at("transfers").replaceChildren(...(files.length ? files : [element("p", nothing)]));
}

function drawTables(state) {
  const since = (ms) => `${Math.max(0, Math.round((state.now_ms - ms) / 1000))} s ago`;
  const rows = state.routers.map((router) => {
    const has = router.generation === router.configuration;
    const configuration = `${router.generation}` + (has ? "" : `, ${router.configuration} is due`);
    const store = octets(router.store_bytes), disks = octets(router.disk_bytes);
    const prefixes = router.prefixes.join(" ");
    return row([router.name, store, disks, prefixes, configuration, since(router.seen_ms)]);
  });
  const gone = state.gone.map(([name]) => row([name, "", "", "", "", "gone"], "gone"));
  at("routers").replaceChildren(...rows, ...gone);
  const when = (ms) => new Date(ms).toLocaleTimeString();
  const events = state.events.map((event) =>
    row([when(event.at_ms), event.who, event.action, event.detail]));
  at("events").replaceChildren(...events);
}

function draw(state) {
  const counts = `${state.routers.length} routers, ${state.files_count} files, ` +
    `${state.plans_count} in parts`;
  at("summary").textContent = state.database ? counts : `${counts}; the database does not answer`;
  at("summary").className = state.database ? "" : "bad";
  drawNetwork(state);
  drawTransfers(state);
  drawTables(state);
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
  try {
    const answer = await fetch("/v1/state", { headers: { Authorization: `Bearer ${token}` } });
    const body = await answer.json();
    if (answer.status === 401 || answer.status === 403) {
      sessionStorage.removeItem("token");
      return signIn(body.error);
    }
    if (!answer.ok) throw new Error(body.error);
    at("sign-in").hidden = true;
    at("view").hidden = false;
    draw(body);
  } catch (error) {
    at("summary").textContent = `The controller does not answer: ${error.message}`;
    at("summary").className = "bad";
  }
  timer = setTimeout(refresh, PERIOD_MS);
}

at("sign-in").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", at("token").value.trim());
  at("token").value = "";
  refresh();
});
refresh();
