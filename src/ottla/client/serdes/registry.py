"""A small client of a schema registry: the ids of schemas, and the schemas of ids, each asked for only once.

Calls block; from asyncio run them in a thread, as the clients do. Safe to share between threads and serdes.
"""

from __future__ import annotations

import base64
import json
import math
import ssl
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from http.client import HTTPException, HTTPMessage
from typing import IO, Any, NamedTuple

from ottla.base.errors import ErrorCode
from ottla.client.errors import ClientError

_CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
_TRY_ANOTHER = 500
_TRY_LATER = (408, 429)
"""The request took too long, or too many were made."""
_NOT_FOUND = (40401, 40402, 40403)
"""There is no such subject, version or schema. A 404 without one of these comes from something else than a registry."""


class SchemaRegistryError(ClientError):
    """The registry could not be reached or refused. `status` is HTTP's, None if there was no answer; `error_code` is
    the registry's own, None if it gave none."""

    code = ErrorCode.UNKNOWN_SERVER_ERROR

    def __init__(self, message: str, *, status: int | None = None, error_code: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.error_code = error_code

    @property
    def is_not_found(self) -> bool:
        """The registry has no such subject, version or schema."""
        return self.error_code in _NOT_FOUND

    @property
    def retriable(self) -> bool:
        return self.status is None or self.status >= _TRY_ANOTHER or self.status in _TRY_LATER


class RegisteredSchema(NamedTuple):
    text: str
    """The schema itself."""
    schema_type: str
    """AVRO, JSON or PROTOBUF."""
    references: tuple[RegisteredSchema, ...] = ()
    """Schemas that this one uses by name, those that others need first."""

    def texts_of_references(self) -> list[str]:
        """The schemas that this one needs, in the order in which they can be parsed."""
        return [text for each in self.references for text in (*each.texts_of_references(), each.text)]


class SchemaRegistry:
    """`urls` are the addresses of one registry; the next is tried where one does not answer.

    Credentials are given as `auth`, or in an address (http://user:password@host:8081, with %40 for an @ in them). For
    https, `ca_certificates` (PEM) are those to trust instead of the system's.
    """

    def __init__(
        self,
        urls: str | Sequence[str],
        *,
        auth: tuple[str, str] | None = None,
        timeout_ms: int = 10_000,
        ca_certificates: str | None = None,
    ) -> None:
        if auth is not None and not _is_pair(auth):
            raise ValueError("the auth of a schema registry is a user and a password: auth=(user, password)")
        if not 0 < timeout_ms < math.inf:
            raise ValueError(f"timeout_ms must be above 0, but was {timeout_ms!r}")
        given = [url.strip() for url in (urls.split(",") if isinstance(urls, str) else urls) if url.strip()]
        addresses = [address for address in map(_Address.parse, given) if address is not None]
        if not addresses or len(addresses) < len(given):
            shown = "something with an @ (not shown: it may be after a password)" if "@" in str(urls) else repr(urls)
            raise ValueError(f"a schema registry needs addresses such as http://host:8081, but {shown} was given")
        known = {tuple(found) for found in (auth, *(address.auth for address in addresses)) if found is not None}
        if len(known) > 1:
            raise ValueError("a schema registry has one user and password, but different ones were given")
        self._urls = [address.url for address in addresses]
        context = ssl.create_default_context(cadata=ca_certificates)
        self._opener = urllib.request.build_opener(_Redirects, urllib.request.HTTPSHandler(context=context))
        self._timeout_s = timeout_ms / 1000
        self._headers = {"Accept": f"{_CONTENT_TYPE}, application/json", "Content-Type": _CONTENT_TYPE}
        for credentials in known:
            self._headers["Authorization"] = "Basic " + base64.b64encode(":".join(credentials).encode()).decode()
        self._lock = threading.Lock()
        self._schemas: dict[int, RegisteredSchema] = {}
        self._ids: dict[tuple[str, str], int] = {}

    def schema(self, schema_id: int) -> RegisteredSchema:
        known = self._schemas.get(schema_id)
        if known is not None:
            return known
        with self._lock:
            if schema_id not in self._schemas:
                answer = self._ask("GET", f"/schemas/ids/{schema_id}", f"schema id {schema_id}")
                self._schemas[schema_id] = self._parse(answer)
            return self._schemas[schema_id]

    def latest(self, subject: str) -> RegisteredSchema:
        """The newest schema of a subject, asked for each time."""
        path = f"/subjects/{_quote(subject)}/versions/latest"
        return self._parse(self._ask("GET", path, f"subject {subject}"))

    def register(self, subject: str, schema: str, *, schema_type: str = "AVRO") -> int:
        """The id of the schema under the subject, where it is added if it is new and compatible."""
        return self._id_of(subject, schema, schema_type, f"/subjects/{_quote(subject)}/versions")

    def lookup(self, subject: str, schema: str, *, schema_type: str = "AVRO") -> int:
        """The id of a schema that must be under the subject already."""
        return self._id_of(subject, schema, schema_type, f"/subjects/{_quote(subject)}")

    def _id_of(self, subject: str, schema: str, schema_type: str, path: str) -> int:
        key = subject, schema
        known = self._ids.get(key)
        if known is not None:
            return known
        with self._lock:
            if key not in self._ids:
                body = {"schema": schema} if schema_type == "AVRO" else {"schema": schema, "schemaType": schema_type}
                answer = self._ask("POST", path, f"subject {subject}", body)
                schema_id = answer.get("id")
                if not isinstance(schema_id, int):
                    raise SchemaRegistryError(f"the schema registry gave no id for subject {subject}: {answer}")
                self._ids[key] = schema_id
            return self._ids[key]

    def _parse(self, answer: dict[str, Any]) -> RegisteredSchema:
        text = answer.get("schema")
        if not isinstance(text, str):
            raise SchemaRegistryError(f"the schema registry answered without a schema: {answer}")
        references = []
        for reference in answer.get("references") or ():
            subject, version = reference["subject"], reference["version"]
            path = f"/subjects/{_quote(subject)}/versions/{version}"
            references.append(self._parse(self._ask("GET", path, f"version {version} of subject {subject}")))
        return RegisteredSchema(text, answer.get("schemaType") or "AVRO", tuple(references))

    def _ask(self, method: str, path: str, what: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        failure: SchemaRegistryError | None = None
        for url in self._urls:
            request = urllib.request.Request(url + path, data, self._headers, method=method)
            try:
                with self._opener.open(request, timeout=self._timeout_s) as response:
                    answer = json.load(response)
            except urllib.error.HTTPError as e:
                with e:
                    failure = _refusal(e, url, what)
                if e.code < _TRY_ANOTHER:
                    raise failure from None
            except (OSError, HTTPException) as e:
                reason = e.reason if isinstance(e, urllib.error.URLError) else e
                failure = SchemaRegistryError(f"{what}: the schema registry at {url} cannot be reached: {reason}")
            except ValueError as e:
                failure = SchemaRegistryError(f"{what}: what answers at {url} is no schema registry: {e}")
            else:
                if isinstance(answer, dict):
                    return answer
                failure = SchemaRegistryError(f"{what}: what answers at {url} is no schema registry")
        assert failure is not None
        raise failure


def _is_pair(given: object) -> bool:
    return isinstance(given, tuple | list) and len(given) == 2 and all(isinstance(part, str) for part in given)


class _Address(NamedTuple):
    url: str
    """Without credentials: errors, logs and dead letters show it."""
    auth: tuple[str, str] | None

    @classmethod
    def parse(cls, given: str) -> _Address | None:
        """None if it is no address of a registry."""
        try:
            parts = urllib.parse.urlsplit(given)
            is_valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:
            return None
        # An @ behind the host is most likely that of a password with a slash in it.
        if not is_valid or parts.query or parts.fragment or "@" in parts.path:
            return None
        userinfo, _, host = parts.netloc.rpartition("@")
        user, _, password = userinfo.partition(":")
        auth = (urllib.parse.unquote(user), urllib.parse.unquote(password)) if userinfo else None
        return cls(f"{parts.scheme}://{host}{parts.path}".rstrip("/"), auth)


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, but credentials are for the registry's own address only."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> urllib.request.Request | None:
        following = super().redirect_request(req, fp, code, msg, headers, newurl)
        if following is not None and _origin(following.full_url) != _origin(req.full_url):
            following.remove_header("Authorization")
        return following


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urllib.parse.urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


def _refusal(error: urllib.error.HTTPError, url: str, what: str) -> SchemaRegistryError:
    """The registry says what is wrong in JSON; whatever stands before it, in whatever it likes."""
    try:
        answer = json.load(error)
        message, error_code = answer["message"], answer.get("error_code")
    except (ValueError, KeyError, TypeError):
        message, error_code = error.reason, None
    told = f"{what}: the schema registry at {url} answered {error.code}: {message}"
    return SchemaRegistryError(told, status=error.code, error_code=error_code)


def _quote(subject: str) -> str:
    return urllib.parse.quote(subject, safe="")
