// The page of `browser.mjs`: NDNts in a browser fetches a file over WebSocket, and verifies it.
//
// The query names the router (`router`) and the object (`name`). The server of the page has the
// producer's certificate. The page posts what it found to `/result`.

import { Certificate, createVerifier, SigningAlgorithmListFull } from "@ndn/keychain";
import { Data } from "@ndn/packet";
import { retrieveMetadata } from "@ndn/rdr";
import { fetch as fetchSegments } from "@ndn/segmented-object";
import { Decoder } from "@ndn/tlv";
import { WsTransport } from "@ndn/ws-transport";

async function readVerifier() {
  const response = await fetch("/certificate");
  const octets = new Uint8Array(await response.arrayBuffer());
  const certificate = Certificate.fromData(Decoder.decode(octets, Data));
  certificate.checkValidity();
  return createVerifier(...await certificate.importPublicKey(SigningAlgorithmListFull));
}

function hex(octets) {
  const pair = (octet) => octet.toString(16).padStart(2, "0");
  return Array.from(new Uint8Array(octets), pair).join("");
}

async function run() {
  const query = new URLSearchParams(location.search);
  const verifier = await readVerifier();
  await WsTransport.createFace({}, query.get("router"));
  const began = performance.now();
  // Both fail at the first packet whose signature is wrong.
  const metadata = await retrieveMetadata(query.get("name"), { retx: 3, verifier });
  const pieces = [];
  for await (const data of fetchSegments(metadata.name, { verifier })) {
    pieces.push(data.content);
  }
  const seconds = (performance.now() - began) / 1000;
  const content = await new Blob(pieces).arrayBuffer();
  const sha256 = hex(await crypto.subtle.digest("SHA-256", content));
  return { event: "object", size: content.byteLength, sha256, segments: pieces.length, seconds };
}

const result = await run().catch((error) => ({ event: "error", what: `${error}` }));
await fetch("/result", { method: "POST", body: JSON.stringify(result) });
