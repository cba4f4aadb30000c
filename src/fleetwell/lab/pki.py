"""Certificates of a lab, made by the lab: nothing to install, nothing shared between two labs.

Keys are on the P-256 curve, since the RSA ones would take longer to make than the API server takes to start.
"""

import datetime as dt
import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

# A lab may be left up for months; nothing renews its certificates.
_LIFE = dt.timedelta(days=3650)
# Clocks step back (a resumed laptop); a certificate "not yet valid" would look like a broken lab.
_BACKDATE = dt.timedelta(hours=1)


@dataclass(frozen=True)
class KeyPair:
    """A certificate and its private key, both in PEM."""

    certificate: bytes
    key: bytes

    def write(self, folder: Path, name: str) -> tuple[Path, Path]:
        """Write ``name.crt`` and ``name.key`` (mode 0600) and return their paths in this order."""
        return write_public(folder / f"{name}.crt", self.certificate), write_secret(folder / f"{name}.key", self.key)


@dataclass(frozen=True)
class SigningKey:
    """The key pair that signs and checks service-account tokens, both in PEM."""

    private: bytes
    public: bytes


class Authority:
    """A certificate authority."""

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self._certificate = certificate
        self._key = key

    @classmethod
    def create(cls, common_name: str) -> "Authority":
        """Make a new self-signed authority."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name(common_name)
        certificate = (
            _builder(name, name, key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(signs_certificates=True), critical=True)
            .sign(key, hashes.SHA256())
        )
        return cls(certificate, key)

    @classmethod
    def load(cls, pair: KeyPair) -> "Authority":
        """Take up an authority that was written before; TypeError when its key is not of the kind that a lab makes."""
        key = serialization.load_pem_private_key(pair.key, password=None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise TypeError(
                f"the authority's key is a {type(key).__name__}, not the elliptic-curve key that a lab makes"
            )
        return cls(x509.load_pem_x509_certificate(pair.certificate), key)

    @property
    def certificate(self) -> bytes:
        """The authority's own certificate in PEM."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def pair(self) -> KeyPair:
        """The authority's certificate and key in PEM, to be kept on disk."""
        return KeyPair(self.certificate, _private_pem(self._key))

    def issue_client(self, user: str, groups: Sequence[str] = ()) -> KeyPair:
        """Issue a client certificate; Kubernetes reads the user from CN and the groups from O."""
        return self._issue(_name(user, groups), ExtendedKeyUsageOID.CLIENT_AUTH, [])

    def issue_server(self, common_name: str, *, dns_names: Sequence[str], addresses: Sequence[str]) -> KeyPair:
        """Issue a serving certificate for these DNS names and IP addresses."""
        names: list[x509.GeneralName] = [x509.DNSName(name) for name in dns_names]
        names += [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
        return self._issue(_name(common_name), ExtendedKeyUsageOID.SERVER_AUTH, names)

    def _issue(self, subject: x509.Name, use: x509.ObjectIdentifier, names: list[x509.GeneralName]) -> KeyPair:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            _builder(subject, self._certificate.subject, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([use]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return KeyPair(certificate.public_bytes(serialization.Encoding.PEM), _private_pem(key))


def signing_key() -> SigningKey:
    """Make a key pair for service-account tokens (ES256)."""
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return SigningKey(_private_pem(key), public)


def write_secret(path: Path, content: bytes) -> Path:
    """Write a file that only its owner may read, and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = path.with_name(path.name + ".new")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)
    return temporary.replace(path)


def write_public(path: Path, content: bytes) -> Path:
    """Write a file that anybody may read, and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.write_bytes(content)
    return path


def _name(common_name: str, organizations: Sequence[str] = ()) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization) for organization in organizations]
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATE)
        .not_valid_after(now + _LIFE)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
