// A small NDN application on NDNts, driven by the interoperation tests.
//
//   client.mjs produce PREFIX    answer Interests until killed
//   client.mjs consume NAME      express one Interest
//   client.mjs put NAME FILE     serve a file: versioned, segmented, with RDR metadata
//   client.mjs get NAME          fetch such a file
//   client.mjs key IDENTITY      make a key and its certificate
//
// It connects to the FaceUri in NDN_CLIENT_TRANSPORT and prints one JSON object a line.

import { createHash } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import { parseArgs } from "node:util";

import { consume, produce } from "@ndn/endpoint";
import { Forwarder, FwPacket } from "@ndn/fw";
import { AltUri, Version } from "@ndn/naming-convention2";
import { enableNfdPrefixReg } from "@ndn/nfdmgmt";
import { TcpTransport, UdpTransport, UnixTransport } from "@ndn/node-transport";
import { Data, digestSigning, Interest, Nack, Name, SignedInterestPolicy } from "@ndn/packet";
import { retrieveMetadata, serveMetadata, Metadata } from "@ndn/rdr";
import { BufferChunkSource, fetch, serve } from "@ndn/segmented-object";
import { WsTransport } from "@ndn/ws-transport";

import { makeIdentity, makeSigner, readSecret, readSigner, readVerifier } from "./keys.mjs";

function say(event, fields = {}) {
  process.stdout.write(`${JSON.stringify({ event, ...fields })}\n`);
}

function sha256(octets) {
  return createHash("sha256").update(octets).digest("hex");
}

/** Names with the aliases that Weir and python-ndn print: `v=` instead of `54=`. */
function uri(name) {
  return AltUri.ofName(name);
}

const fw = Forwarder.getDefault();
let transport;

async function connect() {
  const url = new URL(process.env.NDN_CLIENT_TRANSPORT ?? "unix:///run/nfd/nfd.sock");
  const callback = (created) => { transport = created; };
  const host = url.hostname.replaceAll(/[[\]]/g, "");
  const port = Number(url.port || 6363);
  switch (url.protocol.replace(/[46]?:$/, "")) {
    case "unix":
      return UnixTransport.createFace({ callback, l3: { local: true } }, url.pathname);
    case "tcp":
      return TcpTransport.createFace({ callback, l3: { local: true } }, host, port);
    case "udp":
      return UdpTransport.createFace({ callback }, host, port);
    case "ws":
      return WsTransport.createFace({ callback, l3: { local: true } }, url.href);
    default:
      throw new Error(`a transport that this client does not know: ${url}`);
  }
}

/** Registers the prefixes unless `register` is off. The promise resolves when the router agrees. */
async function announce(uplink, { register, certificate, private: privatePath }) {
  const local = transport.laddr ? `${transport.laddr.address}:${transport.laddr.port}` : null;
  if (!register) {
    return () => say("ready", { registered: false, local });
  }
  uplink.attributes.advertiseFrom = false;
  const signer = certificate ? await readSigner(certificate, privatePath) : undefined;
  const registration = enableNfdPrefixReg(uplink, { retry: { retries: 0 }, signer });
  const registered = new Promise((resolve, reject) => {
    const advertise = registration.doAdvertise.bind(registration);
    registration.doAdvertise = async (...args) => {
      try {
        await advertise(...args);
        resolve();
      } catch (error) {
        reject(error);
      }
    };
  });
  registered.catch(() => undefined); // It may fail before anybody waits for it.
  return async () => {
    try {
      await registered;
      say("ready", { registered: true, local });
    } catch (error) {
      say("error", { what: `the router refused to register: ${error}` });
      process.exit(1);
    }
  };
}

async function runProduce(uplink, [prefix], options) {
  const ready = await announce(uplink, options);
  const verifier = options.key ? await readVerifier(options.key) : digestSigning;
  async function check(interest) {
    if (!interest.sigInfo) {
      return null;
    }
    try {
      await interest.validateParamsDigest();
      await verifier.verify(interest);
      return true;
    } catch {
      return false;
    }
  }
  fw.addEventListener("pktrx", ({ face, packet }) => {
    const wanted = packet.l3 instanceof Interest && new Name(prefix).isPrefixOf(packet.l3.name);
    if (options.nack && face === uplink && wanted) {
      uplink.send(FwPacket.create(new Nack(packet.l3, Number(options.nack))));
    }
  });
  produce(prefix, async (interest) => {
    const parameters = interest.appParameters;
    say("interest", {
      name: uri(interest.name),
      canBePrefix: interest.canBePrefix,
      mustBeFresh: interest.mustBeFresh,
      hopLimit: interest.hopLimit,
      parametersHex: parameters ? Buffer.from(parameters).toString("hex") : null,
      signatureOk: await check(interest),
    });
    if (options.nack || options.content === undefined) {
      return undefined;
    }
    const name = interest.name.append(...new Name(options.suffix ?? "/").comps);
    const data = new Data(name, Buffer.from(options.content));
    data.freshnessPeriod = Number(options.freshness ?? 0);
    return data;
  }, { dataSigner: digestSigning, concurrency: 16 });
  await ready();
}

async function runConsume(uplink, [name], options) {
  const interest = new Interest(name);
  interest.canBePrefix = options["can-be-prefix"];
  interest.mustBeFresh = options["must-be-fresh"];
  interest.lifetime = Number(options.lifetime);
  if (options["hop-limit"]) {
    interest.hopLimit = Number(options["hop-limit"]);
  }
  if (options.signed) {
    interest.appParameters = Buffer.from(options.parameters);
    const { Nonce, Time } = SignedInterestPolicy;
    const policy = new SignedInterestPolicy(Nonce(), Time());
    await policy.makeSigner(digestSigning).sign(interest);
  }
  const nack = new Promise((resolve) => {
    fw.addEventListener("pktrx", ({ packet }) => {
      if (packet.l3 instanceof Nack && packet.l3.interest.name.equals(interest.name)) {
        resolve(packet.l3);
      }
    });
  });
  const found = await Promise.race([
    consume(interest, { verifier: digestSigning }).catch(() => undefined),
    nack,
  ]);
  if (found instanceof Nack) {
    say("nack", { reason: found.reason });
  } else if (found instanceof Data) {
    say("data", {
      name: uri(found.name),
      content: Buffer.from(found.content).toString(),
      sha256: sha256(found.content),
      freshnessMs: found.freshnessPeriod,
      signatureOk: true,
    });
  } else {
    say("timeout");
  }
  process.exit(0);
}

async function runPut(uplink, [prefix, file], options) {
  const ready = await announce(uplink, options);
  const content = await readFile(file);
  const { signer, keyName } = await makeSigner(options.sign, prefix, options["key-out"]);
  const versioned = new Name(prefix).append(Version, Date.now());
  const chunkSize = Number(options["segment-size"]);
  serve(versioned, new BufferChunkSource(content, { chunkSize }), {
    signer,
    freshnessPeriod: 10000,
    pOpts: { announcement: new Name(prefix) },
  });
  serveMetadata(new Metadata(versioned), {
    prefix: new Name(prefix),
    freshnessPeriod: 1000,
    signer,
    pOpts: { announcement: new Name(prefix) },
  });
  const segments = Math.max(1, Math.ceil(content.length / chunkSize));
  say("object", {
    name: uri(versioned),
    sha256: sha256(content),
    segments,
    keyName: keyName ? uri(keyName) : null,
  });
  await ready();
}

async function runGet(uplink, [name], options) {
  let verifier = options.key ? await readVerifier(options.key) : digestSigning;
  if (options.secret) {
    verifier = await readSecret(options.secret);
  }
  let unverified = 0;
  const counting = {
    async verify(packet) {
      try {
        await verifier.verify(packet);
      } catch {
        unverified += 1;
      }
    },
  };
  try {
    const metadata = await retrieveMetadata(name, { retx: 3, verifier: counting });
    const pieces = [];
    let last;
    for await (const data of fetch(metadata.name, { verifier: counting })) {
      pieces.push(data.content);
      last = data;
    }
    const content = Buffer.concat(pieces);
    if (options.out) {
      await writeFile(options.out, content);
    }
    say("object", {
      name: uri(metadata.name),
      size: content.length,
      sha256: sha256(content),
      segments: pieces.length,
      verified: unverified === 0,
      signatureType: last.sigInfo.type,
      keyLocator: last.sigInfo.keyLocator?.name ? uri(last.sigInfo.keyLocator.name) : null,
    });
  } catch (error) {
    say("timeout", { what: `${error}` });
  }
  process.exit(0);
}

async function runKey([identity], options) {
  await makeIdentity(identity, options.certificate, options.private);
  say("key");
}

const text = { type: "string" };
const flag = { type: "boolean", default: false };
const { positionals, values } = parseArgs({
  allowPositionals: true,
  allowNegative: true,
  options: {
    "can-be-prefix": flag,
    "certificate": text,
    "content": text,
    "freshness": text,
    "hop-limit": text,
    "key": text,
    "key-out": text,
    "lifetime": { ...text, default: "4000" },
    "must-be-fresh": flag,
    "nack": text,
    "out": text,
    "parameters": { ...text, default: "" },
    "private": text,
    "register": { type: "boolean", default: true },
    "secret": text,
    "segment-size": { ...text, default: "4096" },
    "sign": { ...text, default: "digest" },
    "signed": flag,
    "suffix": text,
  },
});
const [command, ...rest] = positionals;
const run = { produce: runProduce, consume: runConsume, put: runPut, get: runGet }[command];
if (command === "key") {
  await runKey(rest, values);
} else if (run) {
  await run(await connect(), rest, values);
} else {
  throw new Error(`a command that this client does not know: ${command}`);
}
