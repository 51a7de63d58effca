"""Balances of wallets, restored from a topic when there is no checkpoint: `Wallet` is the rule, the rest brings it to
Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

RECEIPTS, BACKUP = "wallet.receipts", "wallet.balances"
RECORDS = "topic STRING, key STRING, value STRING"


@dataclass
class Wallet:
    """What was paid in and out, and up to which offset of each partition: that is how a payment which comes again after
    a restore is recognised."""

    balance: int = 0
    payments: int = 0
    up_to: dict[str, int] = field(default_factory=dict)

    def pay(self, partition: int, offset: int, amount: int) -> bool:
        """Whether it is a payment that was not seen before."""
        if offset <= self.up_to.get(str(partition), -1):
            return False
        self.balance += amount
        self.payments += 1
        self.up_to[str(partition)] = offset
        return True


class Wallets(StatefulProcessor):
    """Keeps one `Wallet` per key, as the text that the backup holds as well."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState("wallet", "text STRING")

    def handleInitialState(self, key: Any, initialState: pd.DataFrame, timerValues: Any) -> None:  # noqa: N802, N803
        """Called before the first batch of a new checkpoint, for each key of the backup."""
        self._state.update((initialState["text"].iloc[0],))

    def handleInputRows(  # noqa: N802  # Spark's name
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        wallet = Wallet(**json.loads(self._state.get()[0])) if self._state.exists() else Wallet()
        payments = pd.concat(rows).sort_values(["partition", "offset"])
        records = []
        for partition, offset, amount in zip(
            payments["partition"], payments["offset"], payments["amount"], strict=True
        ):
            if wallet.pay(int(partition), int(offset), int(amount)):
                receipt = {"wallet": key[0], "number": wallet.payments, "balance": wallet.balance}
                records.append((RECEIPTS, key[0], json.dumps(receipt)))
        if records:
            text = json.dumps(asdict(wallet))
            self._state.update((text,))
            yield pd.DataFrame([*records, (BACKUP, key[0], text)], columns=["topic", "key", "value"])


def results(payments: DataFrame, backup: DataFrame) -> DataFrame:
    # All of the topic is read, compacted or not: of each key the last value counts.
    last = backup.groupBy(f.col("key").cast("string").alias("wallet")).agg(f.max_by("value", "offset").alias("value"))
    restored = last.where("value IS NOT NULL").select("wallet", f.col("value").cast("string").alias("text"))
    # Spark gives columns whose names begin with "_" to a stateful function under other names.
    named = payments.withColumnsRenamed({"_partition": "partition", "_offset": "offset"})
    return named.groupBy("wallet").transformWithStateInPandas(
        Wallets(),
        outputStructType=RECORDS,
        outputMode="append",
        timeMode="none",
        initialState=restored.groupBy("wallet"),
    )
