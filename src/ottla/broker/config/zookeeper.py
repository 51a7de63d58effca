"""What the settings about ZooKeeper must be to make sense together."""

from __future__ import annotations

from ottla.base.errors import InvalidConfigError
from ottla.base.options import Values
from ottla.metadata.zookeeper.address import EnsembleAddress

_STORES = ("keystore", "truststore")


def check_zookeeper(values: Values) -> None:
    """Raises InvalidConfigError about the first that does not."""
    ensemble = values.optional_text("zookeeper.connect")
    if ensemble is None:
        return
    EnsembleAddress.parse(ensemble)
    if values["ottla.cluster.dir"] is not None:
        raise InvalidConfigError("zookeeper.connect", "zookeeper.connect and ottla.cluster.dir cannot both be set")
    credentials = values.secret("ottla.zookeeper.credentials")
    if credentials is not None and not all(credentials.partition(":")):
        raise InvalidConfigError(
            "ottla.zookeeper.credentials", "ottla.zookeeper.credentials is not of the form user:password"
        )
    if values.flag("zookeeper.set.acl") and credentials is None:
        raise InvalidConfigError(
            "zookeeper.set.acl",
            "zookeeper.set.acl is true, but there is nothing that ZooKeeper could know this broker by; set "
            "ottla.zookeeper.credentials, too",
        )
    if values.flag("zookeeper.ssl.client.enable"):
        for store in _STORES:
            _check_is_pem(values, f"zookeeper.ssl.{store}")


def _check_is_pem(values: Values, prefix: str) -> None:
    location = values.optional_text(f"{prefix}.location")
    if location is None:
        return
    form = values.optional_text(f"{prefix}.type") or ("PEM" if location.endswith(".pem") else "another form")
    if form.upper() != "PEM":
        raise InvalidConfigError(
            f"{prefix}.location",
            f"{prefix}.location: {location} has {form}, but only PEM files can be read; `keytool -importkeystore` and "
            "`openssl pkcs12` make one of a Java key store",
        )
