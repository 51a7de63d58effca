"""What a problem says of the names there are."""

from __future__ import annotations

from ottla.spark.pipeline.problems import suggestion


def test_a_name_that_is_close_is_proposed_and_else_all_if_they_are_few() -> None:
    names = [f"source_{number:02}" for number in range(21)]
    assert suggestion("source_7x", ["source_07", "other"]) == " Did you mean 'source_07'?"
    assert suggestion("zzz", ["a", "b"]) == " There is 'a', 'b'."
    assert suggestion("zzz", names[:20]) == f" There is {', '.join(map(repr, names[:20]))}."
    assert suggestion("zzz", names) == suggestion("zzz", []) == ""
