from __future__ import annotations

from ottla.net.limits import OS_DEFAULT, UNLIMITED, ComplaintBudget, ConnectionLimits, ListenerLimits


def test_an_override_replaces_the_limit_of_one_address() -> None:
    limits = ConnectionLimits(max_connections_per_ip=5, max_connections_per_ip_overrides={"10.0.0.1": 100})
    assert limits.max_connections_from("10.0.0.1") == 100
    assert limits.max_connections_from("10.0.0.2") == 5


def test_complaints_are_limited_per_period_and_the_rest_is_counted() -> None:
    budget = ComplaintBudget(per_period=3, period_s=10)
    assert [budget.allow(now_s=1.0) for _ in range(5)] == [True, True, True, False, False]
    assert not budget.allow(now_s=10.9)
    assert budget.allow(now_s=11.0)
    assert budget.take_suppressed() == 3
    assert budget.take_suppressed() == 0


def test_without_settings_the_limits_are_those_of_kafka() -> None:
    limits = ConnectionLimits()
    assert (limits.max_request_bytes, limits.max_idle_ms) == (104_857_600, 600_000)
    assert UNLIMITED == 2_147_483_647 and OS_DEFAULT == -1
    assert {limits.max_connections, limits.max_connections_per_ip, ListenerLimits().max_connections} == {UNLIMITED}
    assert (limits.send_buffer_bytes, limits.receive_buffer_bytes) == (1_048_576, OS_DEFAULT)
    assert limits.max_deferred_per_connection == 256


def test_ten_complaints_are_let_through_in_ten_seconds() -> None:
    budget = ComplaintBudget()
    assert [budget.allow(now_s=0.0) for _ in range(11)] == [True] * 10 + [False]
    assert not budget.allow(now_s=9.9)
    assert [budget.allow(now_s=10.0) for _ in range(11)] == [True] * 10 + [False]
    assert budget.take_suppressed() == 3
