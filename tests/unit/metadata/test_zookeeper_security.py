"""Who may do what with nodes on ZooKeeper, what kazoo is told of credentials, and how far the other end is trusted."""

from __future__ import annotations

import importlib.util
import ssl
import subprocess
from pathlib import Path

import pytest
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from ottla.base.errors import InvalidConfigError, StartError
from ottla.metadata.zookeeper.address import EnsembleAddress
from ottla.metadata.zookeeper.security import Credentials, Security, TlsFiles

DIGEST = Credentials("digest", "broker", "secret")
SASL = Credentials("sasl", "broker", "secret")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/config/users", CREATOR_ALL_ACL),
        ("/config/users/u", CREATOR_ALL_ACL),
        ("/config/brokers/<default>", CREATOR_ALL_ACL),
        ("/delegation_token/tokens", CREATOR_ALL_ACL),
        ("/config/topics/t", [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]),
        ("/brokers", [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]),
        ("/consumers", OPEN_ACL_UNSAFE),
        ("/consumers/g", [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]),
    ],
)
def test_nodes_are_their_makers_and_may_be_read_unless_they_are_secret(path: str, expected: list[object]) -> None:
    assert Security(restricts_access=True).acl(path) == expected
    assert Security(credentials=DIGEST).acl(path) == OPEN_ACL_UNSAFE, "nothing is restricted that nobody asked for"


def test_what_kazoo_is_told_of_credentials() -> None:
    assert Security().client_options() == {}
    assert Security(credentials=DIGEST).client_options() == {"auth_data": [("digest", "broker:secret")]}
    assert Security(credentials=SASL).client_options() == {
        "sasl_options": {"mechanism": "DIGEST-MD5", "username": "broker", "password": "secret"}
    }
    assert [Security(credentials=each).proves_by_sasl for each in (None, DIGEST, SASL)] == [False, False, True]


def test_sasl_needs_a_package_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(StartError, match="pure-sasl"):
        Security(credentials=SASL).client_options()
    assert Security(credentials=DIGEST).client_options() != {}


def test_versions_and_names_are_checked_as_the_settings_say() -> None:
    assert Security().tls_context() is None
    usual = Security(tls=TlsFiles()).tls_context()
    assert usual is not None
    assert (usual.check_hostname, usual.verify_mode) == (True, ssl.CERT_REQUIRED)
    assert (usual.minimum_version, usual.maximum_version) == (
        ssl.TLSVersion.TLSv1_2,
        ssl.TLSVersion.MAXIMUM_SUPPORTED,
    )
    other = Security(
        tls=TlsFiles(checks_host_name=False, min_version=ssl.TLSVersion.TLSv1_3, max_version=ssl.TLSVersion.TLSv1_3)
    ).tls_context()
    assert other is not None
    assert (other.check_hostname, other.verify_mode) == (False, ssl.CERT_REQUIRED), "the certificate is checked always"
    assert (other.minimum_version, other.maximum_version) == (ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_3)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate that signs itself, with its key, which has a password."""
    path = tmp_path_factory.mktemp("certificate") / "own.pem"
    key, newkey = ["-keyout", "own.key", "-passout", "pass:secret"], ["ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    try:
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", *newkey, *key, "-out", "own.crt", "-subj", "/CN=own"],
            cwd=path.parent,
            check=True,
            capture_output=True,
        )
    except FileNotFoundError:
        pytest.skip("openssl is not installed")
    path.write_text((path.parent / "own.key").read_text() + (path.parent / "own.crt").read_text())
    return path


def test_certificates_are_loaded_and_a_wrong_one_is_named(certificate: Path, tmp_path: Path) -> None:
    context = Security(tls=TlsFiles(trusted=str(certificate))).tls_context()
    assert context is not None
    assert [authority["subject"] for authority in context.get_ca_certs()][-1] == ((("commonName", "own"),),)
    assert Security(tls=TlsFiles(certificate=str(certificate), password="secret")).tls_context() is not None
    with pytest.raises(StartError, match=r"the file .*own\.pem cannot be used"):
        Security(tls=TlsFiles(certificate=str(certificate), password="wrong")).tls_context()
    with pytest.raises(StartError, match=r"the file .*none\.pem cannot be used"):
        Security(tls=TlsFiles(str(tmp_path / "none.pem"), "secret", trusted=str(certificate))).tls_context()
    with pytest.raises(StartError, match=r"the file .*none\.pem cannot be used"):
        Security(tls=TlsFiles(str(certificate), "secret", trusted=str(tmp_path / "none.pem"))).tls_context()


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("a:65535", ("a:65535", "")),
        ("a:1/", ("a:1", "")),
        (" a:1 , b:2 /x", ("a:1,b:2", "/x")),
        ("[::1]", ("[::1]:2181", "")),
        ("a:1/x.y/..z", ("a:1", "/x.y/..z")),
    ],
)
def test_addresses_at_the_edge_of_what_is_allowed(text: str, address: tuple[str, str]) -> None:
    parsed = EnsembleAddress.parse(text)
    assert parsed == address
    assert str(parsed) == "".join(address)


@pytest.mark.parametrize("text", ["a:65536", "a:-1", "a:", ":1", "a:1/.", "a:1/./x", "a:1/..", "a:1,", "a:²"])
def test_addresses_just_outside_of_what_is_allowed(text: str) -> None:
    with pytest.raises(InvalidConfigError, match=r"zookeeper\.connect") as refused:
        EnsembleAddress.parse(text)
    assert refused.value.key == "zookeeper.connect"
