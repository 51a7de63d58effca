"""The schema registry that a source or a sink names: its section, and how it is asked."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from functools import lru_cache

from ottla.client.serdes.registry import RegisteredSchema, SchemaRegistry, SchemaRegistryError
from ottla.spark.pipeline.section import Section

_DEFAULT_SUBJECT = "{topic}-value"
_TIMEOUT_MS = 10_000


@dataclass(frozen=True)
class RegistryOptions:
    """Travels to Spark's workers, and is never shown: it may hold a password."""

    url: str = field(repr=False)
    auth: tuple[str, str] | None = field(default=None, repr=False)
    timeout_ms: int = _TIMEOUT_MS
    ca_certificates: str | None = field(default=None, repr=False)

    @classmethod
    def from_section(cls, section: Section) -> RegistryOptions | None:
        """None if the part names no registry."""
        if "registry" not in section:
            return None
        below = section.take_section("registry")
        if below is None:
            section.fail("registry", "the registry needs a 'url'")
        below.title = f"{section.title}, registry"
        user, password = below.take("user", str, None), below.take("password", str, None)
        if (user is None) != (password is None):
            below.fail("user", "give it both 'user' and 'password'")
        ca_certificates = None
        if "ca_file" in below:
            path = section.resolve(below.take("ca_file", str))
            try:
                ca_certificates = path.read_text()
            except (OSError, UnicodeDecodeError) as e:
                below.fail("ca_file", f"{path} cannot be read: {e}")
        auth = None if user is None or password is None else (user, password)
        timeout_ms = below.take_duration_ms("timeout", _TIMEOUT_MS)
        made = cls(below.take("url", str), auth, timeout_ms, ca_certificates)
        below.finish()
        try:
            made.connect()
        except ssl.SSLError as e:
            below.fail("ca_file", f"there are no certificates in it: {e}")
        except ValueError as e:
            below.fail("url", str(e))
        return made

    def connect(self) -> SchemaRegistry:
        """The registry's client; the same one for the same options, with the schemas it knows already."""
        return _connected(self)


@lru_cache(maxsize=32)
def _connected(options: RegistryOptions) -> SchemaRegistry:
    return SchemaRegistry(
        options.url, auth=options.auth, timeout_ms=options.timeout_ms, ca_certificates=options.ca_certificates
    )


def subject_of(section: Section, topic: str | None, record: str) -> str:
    """The name under which the registry keeps a part's schemas: `subject`, in which {topic} and {record} stand for the
    names of the topic and of the schema's record."""
    text = section.take("subject", str, _DEFAULT_SUBJECT)
    if "{topic}" in text and topic is None:
        section.fail("subject", "the source reads several topics: give it the 'subject' of the schema to read with")
    return text.replace("{topic}", topic or "").replace("{record}", record)


def find_schema(registry: SchemaRegistry, schema_id: int) -> RegisteredSchema | None:
    """The schema of an id, None if the registry knows none. What may pass is a ConnectionError, for the flow to be
    started again; all else, such as a wrong password, is the registry's own error and ends the flow."""
    try:
        return registry.schema(schema_id)
    except SchemaRegistryError as e:
        if e.is_not_found:
            return None
        if e.retriable:
            raise ConnectionError(str(e)) from None
        raise
