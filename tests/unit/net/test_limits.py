from __future__ import annotations

from ottla.net.limits import ComplaintBudget, ConnectionLimits


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
