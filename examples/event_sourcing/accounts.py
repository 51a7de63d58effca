"""How an account changes: events in, answers out. `Account.apply` is the rule; the rest brings it to Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

ANSWERS = (
    "account STRING, version BIGINT, event STRING, is_accepted BOOLEAN, reason STRING, balance BIGINT, is_open BOOLEAN"
)
STATE = "version BIGINT, balance BIGINT, is_open BOOLEAN"


@dataclass(frozen=True)
class Account:
    """An account after `version` accepted events."""

    version: int = 0
    balance: int = 0
    is_open: bool = False

    def apply(self, kind: str, amount: int) -> Account | str:
        """The account after the event, or the reason why the event is refused."""
        match kind:
            case "opened":
                return "it is open already" if self.is_open else replace(self.next(), is_open=True)
            case _ if not self.is_open:
                return "it is not open"
            case "deposited":
                return replace(self.next(), balance=self.balance + amount) if amount > 0 else "nothing was deposited"
            case "withdrawn":
                return (
                    replace(self.next(), balance=self.balance - amount)
                    if amount <= self.balance
                    else "too little is left"
                )
            case "closed":
                return replace(self.next(), is_open=False) if self.balance == 0 else "it is not empty"
            case _:
                return f"nobody knows what {kind!r} means"

    def next(self) -> Account:
        return replace(self, version=self.version + 1)


class Answer(NamedTuple):
    account: str
    version: int
    event: str
    is_accepted: bool
    reason: str | None
    balance: int
    is_open: bool


class Accounts(StatefulProcessor):
    """Keeps one `Account` per key."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState("account", STATE)

    def handleInputRows(  # noqa: N802  # Spark's name
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        account = Account(*self._state.get()) if self._state.exists() else Account()
        # Spark may bring the rows of one key in any order; in the topic they have one.
        events = pd.concat(rows).sort_values(["partition", "offset"])
        answers = []
        for kind, amount in zip(events["type"], events["amount"].fillna(0), strict=True):
            outcome = account.apply(kind, int(amount))
            reason = outcome if isinstance(outcome, str) else None
            account = account if isinstance(outcome, str) else outcome
            answers.append(
                Answer(key[0], account.version, kind, reason is None, reason, account.balance, account.is_open)
            )
        self._state.update((account.version, account.balance, account.is_open))
        yield pd.DataFrame(answers, columns=list(Answer._fields))


def answers(events: DataFrame) -> DataFrame:
    # Spark gives columns whose names begin with "_" to a stateful function under other names.
    named = events.withColumnsRenamed({"_partition": "partition", "_offset": "offset"})
    return named.groupBy("account").transformWithStateInPandas(
        Accounts(), outputStructType=ANSWERS, outputMode="append", timeMode="none"
    )
