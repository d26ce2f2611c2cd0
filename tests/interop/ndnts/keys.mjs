// Keys and signatures for the NDNts client: reading public keys, verifying, signing.

import { readFile, writeFile } from "node:fs/promises";

import {
  CertNaming,
  Certificate,
  createSigner,
  createVerifier,
  ECDSA,
  Ed25519,
  HMAC,
  RSA,
  SigningAlgorithmListFull,
} from "@ndn/keychain";
import { Component, Data, digestSigning, Name } from "@ndn/packet";
import { Decoder, Encoder } from "@ndn/tlv";
import * as asn1 from "@yoursunny/asn1";

const DATA_TYPE = 0x06;
const DER_SEQUENCE = 0x30;

/** A verifier from the octets of an HMAC secret in a file: they may begin as anything. */
export async function readSecret(path) {
  const importRaw = await readFile(path);
  return createVerifier(HMAC, await HMAC.cryptoGenerate({ importRaw }, false));
}

/** A verifier from a file: certificate, or SPKI in DER or PEM. */
export async function readVerifier(path) {
  const octets = await readFile(path);
  const text = octets.toString("latin1");
  if (text.startsWith("-----BEGIN")) {
    return fromOctets(Buffer.from(text.split("-----")[2], "base64"));
  }
  const stripped = text.replaceAll(/\s/g, "");
  const decoded = /^[A-Za-z0-9+/]+=*$/.test(stripped) ? Buffer.from(stripped, "base64") : octets;
  return fromOctets(decoded);
}

async function fromOctets(octets) {
  if (octets[0] === DATA_TYPE) {
    const certificate = Certificate.fromData(Decoder.decode(octets, Data));
    certificate.checkValidity();
    // Without the key's name, so that only the signature itself can fail.
    return createVerifier(...await certificate.importPublicKey(SigningAlgorithmListFull));
  }
  const der = asn1.parseVerbose(octets);
  for (const algorithm of [ECDSA, Ed25519, RSA]) {
    try {
      return createVerifier(algorithm, await algorithm.importSpki(octets, der));
    } catch {
      // Not a key of this algorithm: the next one may know it.
    }
  }
  throw new Error("a public key of no algorithm that NDNts knows");
}

/** A signer with a new key, and that key's name; certificate (HMAC: secret) go into a file. */
export async function makeSigner(kind, identity, path) {
  if (kind === "digest") {
    return { signer: digestSigning };
  }
  const keyName = new Name(identity).append("KEY", Component.from(`k${Date.now()}`));
  if (kind === "hmac") {
    const secret = crypto.getRandomValues(new Uint8Array(32));
    const key = await HMAC.cryptoGenerate({ importRaw: secret }, false);
    await write(path, secret);
    return { signer: createSigner(keyName, HMAC, key), keyName };
  }
  const algorithm = { ecdsa: ECDSA, ed25519: Ed25519, rsa: RSA }[kind];
  const pair = await algorithm.cryptoGenerate({}, true);
  return { signer: await selfSigned(keyName, algorithm, pair, path), keyName };
}

async function selfSigned(keyName, algorithm, pair, path) {
  const privateKey = createSigner(keyName, algorithm, pair);
  const publicKey = Object.assign(createVerifier(keyName, algorithm, pair), { spki: pair.spki });
  const certificate = await Certificate.selfSign({ privateKey, publicKey });
  await write(path, Encoder.encode(certificate.data));
  return privateKey.withKeyLocator(certificate.name);
}

/** Makes an ECDSA key; its certificate and its private key go into files. */
export async function makeIdentity(identity, certificatePath, privatePath) {
  const keyName = new Name(identity).append("KEY", Component.from(`k${Date.now()}`));
  const pair = await ECDSA.cryptoGenerate({}, true);
  await selfSigned(keyName, ECDSA, pair, certificatePath);
  const pkcs8 = await crypto.subtle.exportKey("pkcs8", pair.privateKey);
  await writeFile(privatePath, Buffer.from(pkcs8));
}

/** A signer from the files that `makeIdentity` wrote. */
export async function readSigner(certificatePath, privatePath) {
  const data = Decoder.decode(await readFile(certificatePath), Data);
  const { name, publicKeySpki } = Certificate.fromData(data);
  const pkcs8 = await readFile(privatePath);
  const pair = await ECDSA.cryptoGenerate({ importPkcs8: [pkcs8, publicKeySpki] }, false);
  return createSigner(CertNaming.toKeyName(name), ECDSA, pair).withKeyLocator(name);
}

async function write(path, octets) {
  if (path !== undefined) {
    await writeFile(path, octets);
  }
}
