"""Writes the clients for threads from those for asyncio: `python -m scripts.sync_shells`.

`ottla.client.aio` is the one place for signatures, docstrings and what is the same in both; here is which modules are
written from it, and what is to be otherwise in them.
"""

from __future__ import annotations

import sys
from pathlib import Path

from scripts.formatting import formatted
from scripts.unasync import AIO, Shell, Translation

CLIENT = Path(__file__).parents[1] / "src" / "ottla" / "client"

_SYNC = "ottla.client.sync"
_WITH = ("Use it with `async with`, or call `start` and `close`.", "Use it with `with`, or call `close`.")

_ADMIN = {f"{AIO}.admin": f"{_SYNC}.admin"}

SHELLS = (
    *(
        Shell(f"admin/{name.lower()}_calls.py", {f"{name}Calls": f"{name}Calls(AdminCalls)"}, _ADMIN)
        for name in ("Topic", "Cluster", "Group", "Transaction", "Access")
    ),
    Shell(
        "admin/admin.py",
        {"Admin": "Admin(TopicCalls, ClusterCalls, GroupCalls, TransactionCalls, AccessCalls)"},
        _ADMIN,
        by_hand=("start",),
        words=(
            ("The admin client for asyncio.", "The admin client for threads."),
            (
                "access and quotas. Use it with `async with`, or `start` and `close`.",
                "access and quotas; any thread may use it. Use it with `with`, or call `close`.",
            ),
        ),
    ),
    Shell(
        "consumer/calls.py",
        {"ConsumerCalls": "ConsumerCalls(LoopCalls[K, V])"},
        imports=(
            "from ottla.client.core.consumer.record import K, V",
            f"from {_SYNC}.consumer.loop_calls import LoopCalls",
        ),
        at_once=("paused", "lag"),
        words=(
            (
                "The callback is called in the event loop: it must not wait.",
                "The callback is called during a later call, or else in the consumer's own thread. It must not wait,"
                " and cannot call the consumer.",
            ),
        ),
    ),
    Shell(
        "consumer/consumer.py",
        {"Consumer": "Consumer(BaseConsumer[K, V])"},
        imports=(f"from {_SYNC}.consumer.polling import BaseConsumer",),
        as_they_are=("subscribe", "poll_arrow"),
        by_hand=("start", "poll", "unsubscribe"),
        at_once=("subscription", "assignment"),
        words=(
            ("The consumer for asyncio.", "The consumer for threads."),
            _WITH,
            ('(`group_id="billing"`).', '(`group_id="billing"`). One thread at a time may poll.'),
        ),
    ),
    Shell(
        "processing/parallel.py",
        {"ParallelConsumer": "ParallelConsumer(BaseParallelConsumer[K, V])"},
        imports=(f"from {_SYNC}.processing.handling import BaseParallelConsumer",),
        by_hand=("start", "partitions_of"),
        at_once=("stop", "assignment"),
        left_out=("producer",),
        arguments={"handler": "self._for_threads(handler, settings)"},
        words=(
            (
                "at once: runs the handlers that a `WorkPlan` allows, commits what it says.",
                "at once, in threads.",
            ),
            (
                "Polling, commits and rebalances happen in the one task that runs `run`, so a partition that has been"
                " given up is never committed any more. Handlers run in tasks of their own, or in threads if they are"
                " no coroutines; a coroutine that comes out of a thread runs in its task.",
                "",
            ),
            ("up to `concurrency` of them at once.", "in up to `concurrency` threads at once."),
            ("Use it with `async with`, and call `run`.", "Use it with `with`, and call `run`."),
            ("when partitions go; then they are cancelled.", "when partitions go to another member."),
            (
                "`producer` sends the dead letters, and must take bytes; without it there will be one with the same"
                " settings, for records of any size.",
                "A thread cannot be stopped: a handler that takes longer goes on, and its record is processed twice."
                " Dead letters are sent by a producer with the same settings, for records of any size; unlike"
                " `ottla.aio.ParallelConsumer` it takes no other, for a producer sends in an event loop of its own.",
            ),
            (
                "Makes `run` return soon, for good. What",
                "Makes `run` return soon, for good. Any thread or signal handler may call it. What",
            ),
        ),
    ),
    Shell(
        "producer/transaction_calls.py",
        {"ProducerTransactionCalls": "ProducerTransactionCalls(InThread, ABC)"},
        imports=(f"from {_SYNC}.thread_client import InThread",),
        as_they_are=(
            "_transactional",
            "init_transactions",
            "begin_transaction",
            "send_offsets",
            "prepare_transaction",
            "commit_transaction",
            "abort_transaction",
            "transaction",
        ),
        words=(("What a producer that has", "What a producer for threads that has"),),
    ),
    Shell(
        "producer/producer.py",
        {"Producer": "Producer(BaseProducer[KeyT, ValueT], ProducerTransactionCalls)"},
        {f"{AIO}.producer.{name}": f"{_SYNC}.producer.{name}" for name in ("send_futures", "transaction_calls")},
        imports=(f"from {_SYNC}.producer.sending import BaseProducer",),
        as_they_are=("__init__", "send_many", "send_arrow", "partitions_for", "_transactional"),
        by_hand=("start", "send", "send_and_wait", "flush", "close"),
        words=(
            ("The producer for asyncio.", "The producer for threads."),
            (f"topics. {_WITH[0]}", f"topics; any thread may use it. {_WITH[1]}"),
        ),
    ),
)


def render(shell: Shell) -> str:
    """The module for threads, formatted."""
    source = (CLIENT / "aio" / shell.path).read_text(encoding="utf-8")
    return formatted(Translation(shell, source).text(), CLIENT / "sync" / shell.path)


def main() -> int:
    for shell in SHELLS:
        (CLIENT / "sync" / shell.path).write_text(render(shell), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
