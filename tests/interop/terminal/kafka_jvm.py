"""Kafka's own commands, many in one Java process: each is its `main`, with input and output of its own.

A command that ends the process does so through Kafka's `Exit`, which is told to stop the calling thread instead: it has
to wait until what was printed is taken and what the command has registered for the end (a producer's last flush) is
run, and is then unwound by an error, so that nothing of it is left.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
from py4j.java_gateway import CallbackServerParameters, GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JError, Py4JJavaError

from tests.interop.kafka_tools import COMMAND_LIBS, COMMAND_NAMES, fetch_kafka_libs
from tests.interop.terminal.transcript import Said

COMMAND_TIMEOUT_S = 60
_OPTIONS = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
MAIN_CLASSES = {
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-console-producer.sh": "kafka.tools.ConsoleProducer",
    "kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-consumer-groups.sh": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
    "kafka-get-offsets.sh": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-log-dirs.sh": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-delete-records.sh": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-transactions.sh": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-acls.sh": "kafka.admin.AclCommand",
    "kafka-reassign-partitions.sh": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-leader-election.sh": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-dump-log.sh": "kafka.tools.DumpLogSegments",
}


class _UnwindError(Exception):
    """Takes a command that has ended out of its thread."""


class _Exit:
    """What Kafka's `Exit` calls in place of ending the process, from the thread of the command."""

    def __init__(self) -> None:
        self.code: int | None = None
        self.hooks: list[Any] = []
        self.ended = threading.Event()
        self.unwinds = threading.Event()

    def execute(self, code: int, message: str | None) -> None:
        if not self.ended.is_set():
            self.code = code
            self.ended.set()
        self.unwinds.wait()
        raise _UnwindError

    def addShutdownHook(self, name: str, hook: Any) -> None:
        self.hooks.append(hook)

    class Java:
        implements = (
            "org.apache.kafka.common.utils.Exit$Procedure",
            "org.apache.kafka.common.utils.Exit$ShutdownHookAdder",
        )


class KafkaJvm:
    def __init__(self, *libs: Path) -> None:
        jar = next(Path(pyspark.__path__[0], "jars").glob("py4j-*.jar"))
        port, self._process = launch_gateway(
            classpath=":".join(
                str(path) for path in {path.name: path for lib in libs for path in lib.glob("*.jar")}.values()
            ),
            jarpath=str(jar),
            javaopts=_OPTIONS,
            die_on_exit=True,
            return_proc=True,
        )
        self._gateway = JavaGateway(
            gateway_parameters=GatewayParameters(port=port, auto_convert=True),
            callback_server_parameters=CallbackServerParameters(port=0, daemonize=True, daemonize_connections=True),
        )
        self._gateway.java_gateway_server.resetCallbackClient(
            self._gateway.java_gateway_server.getCallbackClient().getAddress(),
            self._gateway.get_callback_server().get_listening_port(),
        )
        self._jvm: Any = self._gateway.jvm
        system, streams = self._jvm.java.lang.System, self._jvm.java.io
        # Kafka's tools in Scala print to what was there when the first of them began.
        self._out, self._error = streams.ByteArrayOutputStream(), streams.ByteArrayOutputStream()
        system.setOut(streams.PrintStream(self._out, True, "UTF-8"))
        system.setErr(streams.PrintStream(self._error, True, "UTF-8"))

    def run(self, script: str, arguments: list[str], text: str = "") -> Said:
        jvm = self._jvm
        self._out.reset()
        self._error.reset()
        jvm.java.lang.System.setIn(jvm.java.io.ByteArrayInputStream(text.encode()))
        ending = _Exit()
        kafka_exit = jvm.org.apache.kafka.common.utils.Exit
        for set_procedure in (kafka_exit.setExitProcedure, kafka_exit.setHaltProcedure):
            set_procedure(ending)
        kafka_exit.setShutdownHookAdder(ending)
        command = threading.Thread(target=self._main, args=(script, arguments, ending), daemon=True)
        command.start()
        assert ending.ended.wait(COMMAND_TIMEOUT_S), f"{script} {arguments} did not end:\n{self._stacks()}"
        for hook in ending.hooks:
            hook.run()
        said = Said(ending.code or 0, self._out.toString("UTF-8"), self._error.toString("UTF-8"))
        ending.unwinds.set()
        command.join(COMMAND_TIMEOUT_S)
        assert not command.is_alive(), f"{script} {arguments} was not unwound:\n{self._stacks()}"
        return said

    def _main(self, script: str, arguments: list[str], ending: _Exit) -> None:
        words = self._gateway.new_array(self._jvm.java.lang.String, len(arguments))
        for number, word in enumerate(arguments):
            words[number] = word
        main = self._jvm
        for part in MAIN_CLASSES[script].split("."):
            main = getattr(main, part)
        try:
            main.main(words)
        except Py4JJavaError as e:
            if ending.ended.is_set():
                return  # unwound
            self._jvm.java.lang.System.err.println(f'Exception in thread "main" {e.java_exception.toString()}')
            ending.code = 1
        except Py4JError:
            return
        ending.ended.set()

    def _stacks(self) -> str:
        """What the process printed, and where its threads are."""
        threads = self._jvm.java.lang.management.ManagementFactory.getThreadMXBean().dumpAllThreads(True, True)
        return "\n".join(
            [self._out.toString("UTF-8"), self._error.toString("UTF-8"), *(thread.toString() for thread in threads)]
        )

    def close(self) -> None:
        self._gateway.shutdown()
        self._process.terminate()
        self._process.wait(COMMAND_TIMEOUT_S)


@pytest.fixture(scope="session", name="kafka_jvm")
def kafka_jvm_fixture() -> Iterator[KafkaJvm]:
    jvm = KafkaJvm(fetch_kafka_libs(COMMAND_LIBS, str(COMMAND_NAMES)), fetch_kafka_libs())
    yield jvm
    jvm.close()
