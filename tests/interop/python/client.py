"""A small NDN application on python-ndn, driven by the interoperation tests.

    client.py produce PREFIX    answer Interests until killed
    client.py consume NAME      express one Interest
    client.py put NAME FILE     serve a file: versioned, segmented, with RDR metadata
    client.py get NAME          fetch such a file

It connects to the FaceUri in NDN_CLIENT_TRANSPORT and prints one JSON object a line.
"""

import argparse
import asyncio
import hashlib
import json
import logging
import sys

import keys
from ndn import encoding as enc
from ndn import types, utils
from ndn.appv2 import NDNApp, pass_all
from ndn.encoding.ndnlp_v2 import make_network_nack
from ndn.security import DigestSha256Signer

METADATA = enc.Component.from_str("32=metadata")


def say(event, **fields):
    print(json.dumps({"event": event, **fields}), flush=True)


def uri(name):
    return enc.Name.to_str(name)


def sha256(octets):
    return hashlib.sha256(octets).hexdigest()


async def announce(app, args, prefix):
    """Registers the prefix unless `register` is off, and prints the application's address."""
    registered = args.register and await app.register(prefix)
    if args.register and not registered:
        say("error", what=f"the router refused to register {uri(prefix)}")
        app.shutdown()
        return
    transport = getattr(app.face, "transport", None) or app.face.writer
    address = transport.get_extra_info("sockname")
    local = f"{address[0]}:{address[1]}" if isinstance(address, tuple) else None
    say("ready", registered=registered, local=local)


def run_produce(app, args):
    prefix = enc.Name.from_str(args.name)
    suffix = enc.Name.from_str(args.suffix) if args.suffix else []
    key = keys.read_public_key(args.key) if args.key else None

    async def check(_name, signature, context):
        context["signature_ok"] = keys.verify(signature, key)
        return types.ValidResult.PASS

    def on_interest(name, parameters, reply, context):
        param = context["int_param"]
        say(
            "interest",
            name=uri(name),
            canBePrefix=param.can_be_prefix,
            mustBeFresh=param.must_be_fresh,
            hopLimit=param.hop_limit,
            parametersHex=None if parameters is None else bytes(parameters).hex(),
            signatureOk=context.get("signature_ok"),
        )
        if args.nack is not None:
            app.face.send(make_network_nack(context["raw_packet"], args.nack))
        elif args.content is not None:
            reply(
                app.make_data(
                    list(name) + suffix,
                    args.content.encode(),
                    signer=DigestSha256Signer(),
                    freshness_period=args.freshness,
                )
            )

    app.attach_handler(prefix, on_interest, check)
    app.run_forever(after_start=announce(app, args, prefix))


def run_consume(app, args):
    async def once():
        signer = DigestSha256Signer(for_interest=True) if args.signed else None
        parameters = args.parameters.encode() if args.signed else None
        try:
            name, content, context = await app.express(
                enc.Name.from_str(args.name),
                validator=pass_all,
                app_param=parameters,
                signer=signer,
                can_be_prefix=args.can_be_prefix,
                must_be_fresh=args.must_be_fresh,
                lifetime=args.lifetime,
                hop_limit=args.hop_limit,
            )
            content = bytes(content or b"")
            say(
                "data",
                name=uri(name),
                content=content.decode("utf-8", "replace"),
                sha256=sha256(content),
                freshnessMs=context["meta_info"].freshness_period,
                signatureOk=keys.verify(context["sig_ptrs"], None),
            )
        except types.InterestNack as nack:
            say("nack", reason=nack.reason)
        except types.InterestTimeout:
            say("timeout")
        finally:
            app.shutdown()

    app.run_forever(after_start=once())


def run_put(app, args):
    with open(args.file, "rb") as file:
        content = file.read()
    prefix = enc.Name.from_str(args.name)
    signer, key_name = keys.make_signer(args.sign, args.name, args.key_out)
    version = enc.Component.from_version(utils.timestamp())
    size = args.segment_size
    pieces = [content[at : at + size] for at in range(0, len(content), size)] or [b""]
    final = enc.Component.from_segment(len(pieces) - 1)

    def make(name, octets, freshness, last):
        return app.make_data(
            name, octets, signer=signer, freshness_period=freshness, final_block_id=last
        )

    segments = [
        make(prefix + [version, enc.Component.from_segment(i)], piece, 10000, final)
        for i, piece in enumerate(pieces)
    ]
    metadata_name = prefix + [METADATA, version, enc.Component.from_segment(0)]
    metadata = make(
        metadata_name, enc.Name.to_bytes(prefix + [version]), 1000, enc.Component.from_segment(0)
    )

    def on_interest(name, _parameters, reply, _context):
        rest = name[len(prefix) :]
        if rest and rest[0] == METADATA:
            reply(metadata)
        elif len(rest) == 2 and rest[0] == version:
            number = enc.Component.to_number(rest[1])
            if number < len(segments):
                reply(segments[number])

    app.attach_handler(prefix, on_interest)
    say(
        "object",
        name=uri(prefix + [version]),
        sha256=sha256(content),
        segments=len(segments),
        keyName=uri(key_name) if key_name else None,
    )
    app.run_forever(after_start=announce(app, args, prefix))


def run_get(app, args):
    key = keys.read_public_key(args.key) if args.key else None
    if args.secret:
        key = keys.read_secret(args.secret)
    verified = []

    async def fetch(name, **options):
        for attempt in range(5):
            try:
                found, content, context = await app.express(name, validator=pass_all, **options)
                verified.append(keys.verify(context["sig_ptrs"], key))
                return found, bytes(content or b""), context
            except types.InterestTimeout:
                if attempt == 4:
                    raise

    async def whole():
        try:
            name = enc.Name.from_str(args.name)
            if enc.Component.get_type(name[-1]) != enc.Component.TYPE_VERSION:
                _, content, _ = await fetch(
                    name + [METADATA], can_be_prefix=True, must_be_fresh=True, lifetime=2000
                )
                name = enc.Name.from_bytes(content)
            pieces = []
            while True:
                segment = enc.Component.from_segment(len(pieces))
                _, content, context = await fetch(name + [segment], lifetime=2000)
                pieces.append(content)
                if context["meta_info"].final_block_id == segment:
                    break
            content = b"".join(pieces)
            info = context["sig_ptrs"].signature_info
            locator = info.key_locator.name if info.key_locator else None
            if args.out:
                keys.write(args.out, content)
            say(
                "object",
                name=uri(name),
                size=len(content),
                sha256=sha256(content),
                segments=len(pieces),
                verified=all(verified),
                signatureType=info.signature_type,
                keyLocator=uri(locator) if locator else None,
            )
        except types.InterestNack as nack:
            say("nack", reason=nack.reason)
        except types.InterestTimeout:
            say("timeout")
        finally:
            app.shutdown()

    app.run_forever(after_start=whole())


def parse_arguments():
    parser = argparse.ArgumentParser(description="python-ndn client for Weir's tests")
    commands = parser.add_subparsers(dest="command", required=True)

    produce = commands.add_parser("produce")
    produce.add_argument("name")
    produce.add_argument("--content", help="without it, Interests are seen but not answered")
    produce.add_argument("--suffix", help="components added to the name of the Data")
    produce.add_argument("--freshness", type=int)
    produce.add_argument("--nack", type=int, metavar="REASON")
    produce.add_argument("--key", help="verify signed Interests with this public key")
    produce.add_argument("--no-register", dest="register", action="store_false")

    consume = commands.add_parser("consume")
    consume.add_argument("name")
    consume.add_argument("--can-be-prefix", action="store_true")
    consume.add_argument("--must-be-fresh", action="store_true")
    consume.add_argument("--lifetime", type=int, default=4000)
    consume.add_argument("--hop-limit", type=int)
    consume.add_argument("--signed", action="store_true")
    consume.add_argument("--parameters", default="")

    put = commands.add_parser("put")
    put.add_argument("name")
    put.add_argument("file")
    put.add_argument("--segment-size", type=int, default=4096)
    put.add_argument("--sign", default="digest")
    put.add_argument("--key-out", help="where the certificate (HMAC: the secret) goes")
    put.add_argument("--no-register", dest="register", action="store_false")

    get = commands.add_parser("get")
    get.add_argument("name")
    get.add_argument("--out")
    get.add_argument("--key", help="certificate or public key to verify with")
    get.add_argument("--secret", help="HMAC secret to verify with")
    return parser.parse_args()


def main():
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    args = parse_arguments()
    run = {"produce": run_produce, "consume": run_consume, "put": run_put, "get": run_get}
    run[args.command](NDNApp(), args)


if __name__ == "__main__":
    main()
