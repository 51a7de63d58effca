"""What topic parts ask a cluster before anything runs, and which of a pipeline's client settings concern them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import ottla
from ottla.base.errors import ErrorCode, KafkaError
from ottla.base.options import OptionSet
from ottla.client.core.admin.options import ADMIN_OPTIONS
from ottla.client.core.admin.types import NewTopic
from ottla.client.core.consumer.options import CONSUMER_OPTIONS
from ottla.client.core.producer.options import PRODUCER_OPTIONS
from ottla.client.errors import ClusterUnreachableError
from ottla.spark.connections import FAIL_FAST
from ottla.spark.options import CLIENT_PREFIX
from ottla.spark.pipeline.problems import suggestion
from ottla.spark.pipeline.section import Section

CLIENT_SETTINGS = frozenset({*CONSUMER_OPTIONS, *PRODUCER_OPTIONS, *ADMIN_OPTIONS})
_CHECK_TIMEOUT_MS = 15_000


def client_options(section: Section, known: OptionSet) -> dict[str, str]:
    """Options `kafka.X` of a part: those of the whole pipeline that mean something to its client, and its own."""
    common = {name: text for name, text in section.kafka.items() if name in known}
    settings = {**common, **section.take("kafka", dict[str, str], {})}
    return {CLIENT_PREFIX + name: text for name, text in settings.items()}


def is_client_option(option: str) -> bool:
    """Whether an option that is wrong is a client's setting, told with `kafka.` before it or without."""
    return option.startswith(CLIENT_PREFIX) or option in CLIENT_SETTINGS


def admin_settings(options: Mapping[str, str]) -> dict[str, str]:
    """What an admin client needs to know of a part's options `kafka.X`."""
    settings = {name.removeprefix(CLIENT_PREFIX): text for name, text in options.items()}
    return {**FAIL_FAST, **{name: text for name, text in settings.items() if name in ADMIN_OPTIONS}}


def find_missing_topics(options: Mapping[str, str], topics: Sequence[str]) -> list[str]:
    """Sentences about topics that are not there, or about a cluster that is not."""
    try:
        with ottla.Admin(admin_settings(options)) as admin:
            there = admin.list_topics(include_internal=True, timeout_ms=_CHECK_TIMEOUT_MS)
    except ClusterUnreachableError as e:
        return [f"{e.summary}. Is a broker running?"]
    except KafkaError as e:
        return [f"the cluster cannot be asked: {e.message}"]
    return [f"there is no topic {name!r}.{suggestion(name, there)}" for name in topics if name not in there]


def create_topic(options: Mapping[str, str], topic: NewTopic) -> None:
    """Makes a topic unless it is there."""
    with ottla.Admin(admin_settings(options)) as admin:
        try:
            admin.create_topics([topic], timeout_ms=_CHECK_TIMEOUT_MS).check()
        except KafkaError as e:
            if e.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
