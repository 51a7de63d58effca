"""Rates and waits are Kafka's, whatever is recorded when; limits are found for whom they are meant."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.broker.quotas import DEFAULT, ByteRate, ClientQuotas, QuotaEntity, QuotaLimits, limit_of

LIMIT = 1000
WINDOW_MS = 1000


class SlowRate:
    """The same by the book: samples that begin when something is recorded, and a rate over all that still count."""

    def __init__(self, samples: int) -> None:
        self.samples = samples
        self.kept: list[list[int]] = []

    def record(self, size: int, now_ms: int) -> int:
        if not self.kept or now_ms - self.kept[-1][0] >= WINDOW_MS:
            self.kept.append([now_ms, now_ms, 0])
            del self.kept[: -self.samples - 1]
        self.kept[-1][1] = now_ms
        self.kept[-1][2] += size
        self.kept = [sample for sample in self.kept if now_ms - sample[1] < self.samples * WINDOW_MS]
        elapsed_ms = now_ms - self.kept[0][0]
        full = elapsed_ms // WINDOW_MS
        elapsed_ms += max(self.samples - 1 - full, 0) * WINDOW_MS
        elapsed_ms = max(elapsed_ms, 1)
        rate = sum(sample[2] for sample in self.kept) / (elapsed_ms / 1000)
        return max(round((rate - LIMIT) / LIMIT * elapsed_ms), 0)


_steps = st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 8000)), min_size=1, max_size=40)


@settings(max_examples=300)
@given(samples=st.integers(1, 11), steps=_steps)
def test_waits_are_those_by_the_book(samples: int, steps: list[tuple[int, int]]) -> None:
    quick, slow = ByteRate(LIMIT, samples=samples, window_ms=WINDOW_MS), SlowRate(samples)
    now_ms = 1_700_000_000_000
    for pause_ms, size in steps:
        now_ms += pause_ms
        assert quick.record(size, now_ms) == pytest.approx(slow.record(size, now_ms), abs=1)


@pytest.mark.parametrize("samples", [2, 3, 11])
@pytest.mark.parametrize("pause_ms", [400, 999, 1000, 1500])
def test_a_slow_client_that_hurries_at_last_waits_as_by_the_book(samples: int, pause_ms: int) -> None:
    quick, slow = ByteRate(LIMIT, samples=samples, window_ms=WINDOW_MS), SlowRate(samples)
    waits = []
    for number in range(60):
        size = 30_000 if number % 20 == 19 else 30 + number
        now_ms = 1_700_000_000_000 + number * pause_ms
        waits.append(quick.record(size, now_ms))
        assert waits[-1] == pytest.approx(slow.record(size, now_ms), abs=1), number
    assert sum(map(bool, waits)) >= 2


def test_who_stays_below_the_limit_never_waits() -> None:
    rate = ByteRate(LIMIT, samples=11, window_ms=WINDOW_MS)
    assert not any(rate.record(90, now_ms) for now_ms in range(0, 60_000, 100))


def test_who_is_twice_as_fast_waits_until_the_rate_is_right() -> None:
    rate = ByteRate(LIMIT, samples=11, window_ms=WINDOW_MS)
    assert rate.record(20_000, 0) == 10_000, "20 s worth of bytes in a window of 10 s"


def test_what_is_taken_back_does_not_count() -> None:
    rate = ByteRate(LIMIT, samples=11, window_ms=WINDOW_MS)
    assert rate.record(20_000, 0)
    rate.take_back(20_000)
    assert rate.record(10_000, 0) == 0
    assert rate.most_in_window == 10_000


def test_the_most_particular_limit_wins() -> None:
    order = [
        QuotaEntity("u", "c"),
        QuotaEntity("u", DEFAULT),
        QuotaEntity(DEFAULT, "c"),
        QuotaEntity(DEFAULT, DEFAULT),
        QuotaEntity("u"),
        QuotaEntity(DEFAULT),
        QuotaEntity(None, "c"),
        QuotaEntity(None, DEFAULT),
    ]
    limits = {entity: float(number + 1) for number, entity in enumerate(order)}
    for number, entity in enumerate(order):
        found = limit_of(limits, "u", "c")
        assert found is not None
        assert found[1] == number + 1
        del limits[entity]
    assert limit_of(limits, "u", "c") is None


@pytest.mark.parametrize(
    ("entity", "shares"),
    [
        (QuotaEntity("u"), {("u", "one"), ("u", "two")}),
        (QuotaEntity(DEFAULT), {("u", "one"), ("u", "two")}),
        (QuotaEntity(None, "one"), {("u", "one"), ("v", "one")}),
        (QuotaEntity(None, DEFAULT), {("u", "one"), ("v", "one")}),
        (QuotaEntity(DEFAULT, DEFAULT), {("u", "one")}),
    ],
)
def test_with_whom_a_limit_is_shared(entity: QuotaEntity, shares: set[tuple[str, str]]) -> None:
    quotas = ClientQuotas(QuotaLimits(producers={entity: 5.0}), samples=2, window_ms=1000)
    mine = quotas.rates_of("User:u", "one", 0).producer
    assert mine is not None
    everybody = {(user, client) for user in "uv" for client in ("one", "two")}
    same = {(user, client) for user, client in everybody if quotas.rates_of(f"User:{user}", client, 0).producer is mine}
    assert same == shares
    assert quotas.rates_of("User:u", "one", 0).consumer is None


def test_a_limit_of_nothing_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="more than nothing"):
        QuotaLimits(consumers={QuotaEntity("u"): 0})


def test_new_limits_hold_at_once() -> None:
    quotas = ClientQuotas(QuotaLimits(), samples=2, window_ms=1000)
    assert not quotas.is_limiting
    before = quotas.generation
    quotas.replace(QuotaLimits(consumers={QuotaEntity("u"): 1.0}))
    assert quotas.is_limiting
    assert quotas.generation != before
    assert quotas.rates_of("User:u", "", 0).consumer is not None


def test_sensors_of_invented_clients_do_not_pile_up() -> None:
    quotas = ClientQuotas(QuotaLimits(producers={QuotaEntity(None, DEFAULT): 1.0}), samples=2, window_ms=1000)
    first = quotas.rates_of("User:u", "0", 0).producer
    before = quotas.generation
    for number in range(1, 10_001):
        quotas.rates_of("User:u", str(number), number)
    assert quotas.generation != before, "whoever remembers a sensor asks again"
    assert quotas.rates_of("User:u", "0", 20_000).producer is not first
