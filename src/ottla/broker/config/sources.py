"""Where a broker's settings are written down: a properties file, the environment, the command line.

Gathers their text and knows where each one stands, so that an error can say so. What they mean is not known here.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from ottla.base.environment import BOOTSTRAP_SERVERS, KAFKA_PREFIX, PREFIX
from ottla.base.errors import InvalidConfigError
from ottla.base.properties import parse_properties

_AFTER_THE_FILE = sys.maxsize
_BITNAMI_PREFIX = f"{KAFKA_PREFIX}CFG_"
_UNDERSCORES = {"_": ".", "__": "-", "___": "_"}
_OF_LISTENERS = "listener.name."
_NO_SETTINGS = re.compile(
    "KAFKA_("
    "(HEAP|JMX|LOG4J|JVM_PERFORMANCE|GC_LOG)?_?OPTS|JMX_(PORT|HOSTNAME)|(TOOLS_)?LOG4J_.*|DEBUG.*|"
    "VERSION|HOME|CONF_DIR|MODE|(KRAFT_)?CLUSTER_ID|BOOTSTRAP_SERVERS?|BROKERS"
    ")"
)
"""What Kafka's scripts, its container images and its users' programs know by such names."""


class Sources:
    """`settings` by name, the strongest source last read; `problems` are lines and arguments that are no setting."""

    def __init__(self, known: Collection[str]) -> None:
        self.settings: dict[str, str] = {}
        self.problems: list[InvalidConfigError] = []
        self.ignored_environment: list[str] = []
        self._known = known
        self._places: dict[str, str] = {}
        self._lines: dict[str, int] = {}

    def read_file(self, path: Path) -> None:
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as e:
            raise InvalidConfigError(str(path), f"cannot read {path}: {(e.strerror or str(e)).lower()}") from None
        except UnicodeDecodeError:
            raise InvalidConfigError(str(path), f"{path} is not a text file in UTF-8") from None
        for found in parse_properties(text):
            self._places[found.name] = f"{path}, line {found.line}"
            self._lines[found.name] = found.line
            if found.problem:
                self.problems.append(InvalidConfigError(found.name, found.problem))
            else:
                self.settings[found.name] = found.value

    def read_environment(self, environ: Mapping[str, str]) -> None:
        """Variables with our prefix that are no setting are not an error.

        Kubernetes sets such variables for every service that happens to be called ottla.
        """
        given = sorted(name for name in environ if name.startswith(PREFIX) and name != BOOTSTRAP_SERVERS)
        names = {environment_name(name): name for name in self._known} if given else {}
        for variable in given:
            if variable in names:
                self.settings[names[variable]] = environ[variable]
                self._places[names[variable]] = f"the environment variable {variable}"
            else:
                self.ignored_environment.append(variable)

    def read_kafka_environment(self, environ: Mapping[str, str]) -> None:
        """The same with the prefix that container images of Kafka have. Some of these are there by chance."""
        known = {name.lower(): name for name in self._known}
        for variable in sorted(name for name in environ if name.startswith(KAFKA_PREFIX)):
            name = kafka_setting(variable)
            name = known.get(name, name)
            if name in self._known or name.startswith(_OF_LISTENERS):
                self.settings[name] = environ[variable]
                self._places[name] = f"the environment variable {variable}"
            elif not _NO_SETTINGS.fullmatch(variable):
                self.ignored_environment.append(variable)

    def read_overrides(self, overrides: Iterable[str]) -> None:
        for override in overrides:
            name, equals, value = override.partition("=")
            if equals and name.strip():
                self.settings[name.strip()] = value
                self._places.pop(name.strip(), None)
            else:
                self.problems.append(
                    InvalidConfigError(override, f"--override {override!r} is not of the form name=value")
                )

    def located(self, error: InvalidConfigError) -> InvalidConfigError:
        """The same error, each problem led by where the setting stands. What was just typed needs no such help.

        Problems of the file come first, in the order of its lines.
        """
        found = error.problems if isinstance(error, InvalidConfigsError) else [error]
        problems = sorted(found, key=lambda problem: self._lines.get(problem.key, _AFTER_THE_FILE))
        return together(
            [
                InvalidConfigError(e.key, f"{self._places[e.key]}: {e.message}") if e.key in self._places else e
                for e in problems
            ]
        )


def environment_name(name: str) -> str:
    """The environment variable that sets `name`: log.dirs is OTTLA_LOG_DIRS."""
    return PREFIX + name.upper().replace(".", "_").removeprefix(PREFIX)


def kafka_setting(variable: str) -> str:
    """The setting a variable of Kafka's images is meant for: KAFKA_LOG_DIRS is log.dirs. One underscore is a dot, two
    are a dash, three an underscore."""
    prefix = _BITNAMI_PREFIX if variable.startswith(_BITNAMI_PREFIX) else KAFKA_PREFIX
    plain = variable.removeprefix(prefix).lower()
    return re.sub("_{1,3}", lambda found: _UNDERSCORES[found[0]], plain)


class InvalidConfigsError(InvalidConfigError):
    """Several things are wrong; the message has a line for each."""

    def __init__(self, problems: list[InvalidConfigError]) -> None:
        super().__init__(problems[0].key, "\n".join(problem.message for problem in problems))
        self.problems = problems


def together(problems: list[InvalidConfigError]) -> InvalidConfigError:
    return problems[0] if len(problems) == 1 else InvalidConfigsError(problems)


def require_none(problems: list[InvalidConfigError]) -> None:
    if problems:
        raise together(problems)
