"""The lab's certificates."""

import ipaddress
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from fleetwell.lab.pki import Authority, KeyPair, SigningKey, signing_key


def store(authority: Authority) -> Store:
    return Store([x509.load_pem_x509_certificate(authority.certificate)])


def certificate(pair: KeyPair) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pair.certificate)


def test_a_server_certificate_is_trusted_for_each_of_its_names_and_no_other() -> None:
    authority = Authority.create("lab-ca")
    pair = authority.issue_server("server", dns_names=["localhost"], addresses=["127.0.0.1"])
    policy = PolicyBuilder().store(store(authority))

    for subject in (x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))):
        chain = policy.build_server_verifier(subject).verify(certificate(pair), [])
        assert len(chain) == 2
    with pytest.raises(VerificationError):
        policy.build_server_verifier(x509.DNSName("elsewhere")).verify(certificate(pair), [])


def test_a_certificate_of_another_authority_is_not_trusted() -> None:
    pair = Authority.create("other-ca").issue_server("server", dns_names=["localhost"], addresses=[])
    policy = PolicyBuilder().store(store(Authority.create("lab-ca")))
    with pytest.raises(VerificationError):
        policy.build_server_verifier(x509.DNSName("localhost")).verify(certificate(pair), [])


def test_a_client_certificate_names_its_user_and_groups() -> None:
    authority = Authority.create("lab-ca")
    issued = certificate(authority.issue_client("system:node:n1", ("system:nodes", "others")))

    issued.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.certificate))
    assert [name.value for name in issued.subject.get_attributes_for_oid(NameOID.COMMON_NAME)] == ["system:node:n1"]
    groups = issued.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    assert [group.value for group in groups] == ["system:nodes", "others"]
    uses = issued.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(uses) == [ExtendedKeyUsageOID.CLIENT_AUTH]


def test_an_authority_that_is_read_from_its_files_signs_for_the_same_chain(tmp_path: Path) -> None:
    authority = Authority.create("lab-ca")
    crt, key = authority.pair.write(tmp_path, "ca")

    again = Authority.load(KeyPair(crt.read_bytes(), key.read_bytes()))

    issued = certificate(again.issue_client("someone"))
    issued.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.certificate))


def test_an_authority_whose_key_is_of_another_kind_is_refused() -> None:
    authority = Authority.create("lab-ca")
    signing = ec.generate_private_key(ec.SECP256R1()).public_key()
    public = signing.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    with pytest.raises(ValueError, match=r"."):
        Authority.load(KeyPair(authority.certificate, public))


def test_only_the_owner_may_read_a_key(tmp_path: Path) -> None:
    crt, key = Authority.create("lab-ca").issue_client("someone").write(tmp_path / "pki", "someone")
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert stat.S_IMODE(crt.parent.stat().st_mode) == 0o700


def test_the_public_half_checks_what_the_signing_key_signed() -> None:
    pair: SigningKey = signing_key()
    private = serialization.load_pem_private_key(pair.private, password=None)
    public = serialization.load_pem_public_key(pair.public)
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    assert isinstance(public, ec.EllipticCurvePublicKey)
    public.verify(private.sign(b"token", ec.ECDSA(hashes.SHA256())), b"token", ec.ECDSA(hashes.SHA256()))
