"""Keys and signatures for the python-ndn client: reading public keys, verifying, signing."""

import base64
import hashlib
import secrets

from Cryptodome.PublicKey import ECC, RSA
from ndn import encoding as enc
from ndn.app_support import security_v2
from ndn.security import DigestSha256Signer
from ndn.security.signer import (
    Ed25519Signer,
    HmacSha256Signer,
    Sha256WithEcdsaSigner,
    Sha256WithRsaSigner,
)
from ndn.security.validator import known_key_validator as known

DATA_TYPE = 0x06
DER_SEQUENCE = 0x30


def read_public_key(path):
    """The SubjectPublicKeyInfo in a file: certificate, or SPKI in DER or PEM."""
    with open(path, "rb") as file:
        octets = file.read()
    if octets.startswith(b"-----BEGIN"):
        return base64.b64decode(b"".join(octets.split(b"-----")[2].split()))
    if octets[0] not in (DATA_TYPE, DER_SEQUENCE):
        octets = base64.b64decode(b"".join(octets.split()), validate=True)
    return public_key_of(octets)


def read_secret(path):
    """The bytes of an HMAC secret: they may begin as anything, a certificate as well."""
    with open(path, "rb") as file:
        return file.read()


def public_key_of(octets):
    if octets[0] == DER_SEQUENCE:
        return octets
    return bytes(security_v2.parse_certificate(octets).content)


def verify(signature, key):
    """True if the signature of a parsed packet is right; without a key only a digest can be."""
    kind = signature.signature_info.signature_type
    if kind == enc.SignatureType.DIGEST_SHA256:
        digest = hashlib.sha256()
        for part in signature.signature_covered_part:
            digest.update(part)
        return digest.digest() == bytes(signature.signature_value_buf)
    if key is None:
        return False
    if kind == enc.SignatureType.HMAC_WITH_SHA256:
        return known.verify_hmac(key, signature)
    if kind == enc.SignatureType.SHA256_WITH_ECDSA:
        return known.verify_ecdsa(ECC.import_key(key), signature)
    if kind == enc.SignatureType.ED25519:
        return known.verify_ed25519(ECC.import_key(key), signature)
    if kind == enc.SignatureType.SHA256_WITH_RSA:
        return known.verify_rsa(RSA.import_key(key), signature)
    return False


def make_signer(kind, identity, public_key_path):
    """A signer with a new key, and the key's name.

    The self-signed certificate of the key (HMAC: the secret) goes into a file.
    """
    if kind == "digest":
        return DigestSha256Signer(), None
    key_name = enc.Name.from_str(identity) + [
        enc.Component.from_str("KEY"),
        enc.Component.from_bytes(secrets.token_bytes(8)),
    ]
    if kind == "hmac":
        secret = secrets.token_bytes(32)
        write(public_key_path, secret)
        return HmacSha256Signer(key_name, secret), key_name
    if kind == "rsa":
        key = RSA.generate(2048)
        private, public = key.export_key("DER"), key.public_key().export_key("DER")
        signer_class = Sha256WithRsaSigner
    else:
        key = ECC.generate(curve="P-256" if kind == "ecdsa" else "Ed25519")
        private, public = key.export_key(format="DER"), key.public_key().export_key(format="DER")
        signer_class = Sha256WithEcdsaSigner if kind == "ecdsa" else Ed25519Signer
    certificate_name, certificate = security_v2.self_sign(
        key_name, public, signer_class(key_name, private)
    )
    write(public_key_path, bytes(certificate))
    return signer_class(certificate_name, private), key_name


def write(path, octets):
    if path is not None:
        with open(path, "wb") as file:
            file.write(octets)
