"""Clients none of us wrote, each behind the same few calls."""

from __future__ import annotations

from tests.interop.peers.aiokafka_client import Aiokafka
from tests.interop.peers.confluent import ConfluentKafka
from tests.interop.peers.kafka_python import KafkaPython
from tests.interop.peers.kcat import KCAT, Kcat
from tests.interop.peers.peer import Peer

PEERS: list[Peer] = [ConfluentKafka(), KafkaPython(), Aiokafka()]
if KCAT is not None:
    PEERS.append(Kcat())
