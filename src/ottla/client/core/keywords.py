# Written by `make generate` from the options in src/ottla/client/core: change those instead.

"""The settings of each client as keywords, with their types: Kafka's names with underscores for dots."""

from __future__ import annotations

from typing import Literal, TypedDict


class ClientKeywords(TypedDict, total=False):
    """What every client can be told."""

    bootstrap_servers: str | list[str] | tuple[str, ...]
    """Addresses (host:port) of some brokers, from which the whole cluster is found."""

    bootstrap_fail_fast: bool
    """Whether to fail at once if no broker can be reached at the start, instead of waiting for one."""

    client_id: str
    """A name for this client in the brokers' logs and quotas."""

    request_timeout_ms: int
    """How long to wait for a reply before the request counts as failed."""

    retry_backoff_ms: int
    """The first pause before a failed request is tried again."""

    retry_backoff_max_ms: int
    """The longest pause between two tries."""

    reconnect_backoff_ms: int
    """The first pause before a broker is dialled again."""

    reconnect_backoff_max_ms: int
    """The longest pause between two dials."""

    socket_connection_setup_timeout_ms: int
    """How long to wait for a connection to open."""

    socket_connection_setup_timeout_max_ms: int
    """The longest such time: it doubles with every connection to a broker that could not be opened."""

    connections_max_idle_ms: int
    """When a connection that is not used is closed; -1 never. Brokers do so after ten minutes."""

    send_buffer_bytes: int
    """The system's buffer for sending; -1 for its default."""

    receive_buffer_bytes: int
    """The system's buffer for receiving; -1 for its default."""

    client_dns_lookup: Literal["use_all_dns_ips"]
    """What a host name stands for: all its addresses are tried."""

    metadata_recovery_strategy: Literal["rebootstrap"]
    """What to do if no known broker can be reached: the bootstrap servers are tried again."""

    metadata_max_age_ms: int
    """Metadata older than this is asked for again."""

    security_protocol: Literal["PLAINTEXT"]
    """How to talk to the brokers."""


class AdminKeywords(ClientKeywords, total=False):
    """The settings of `Admin`."""

    default_api_timeout_ms: int
    """How long a call may take, retries included, unless it is given a time of its own."""


class ProducerKeywords(ClientKeywords, total=False):
    """The settings of `Producer`."""

    acks: Literal["all", "-1", "0", "1", -1, 0, 1]
    """Who must have a record before it counts as sent: 0 nobody, 1 the leader, all every replica in sync."""

    batch_size: int
    """Bytes of a partition's batch at which it is sent; no more than max.request.size has room for."""

    linger_ms: int
    """How long a batch waits for more records."""

    buffer_memory: int
    """Bytes of records that may wait to be sent."""

    max_block_ms: int
    """How long send() may wait for room in the buffer, and for a topic to be known."""

    compression_type: Literal["none", "gzip", "snappy", "lz4", "zstd"]
    """The codec of batches."""

    compression_gzip_level: int
    """The effort of gzip."""

    compression_lz4_level: int
    """The effort of lz4."""

    compression_zstd_level: int
    """The effort of zstd."""

    delivery_timeout_ms: int
    """The longest time from send() to its result, retries included."""

    enable_idempotence: bool
    """Whether retries can neither double nor reorder records."""

    max_in_flight_requests_per_connection: int
    """Requests to a broker that may be unanswered."""

    max_request_size: int
    """The largest request, and the largest record."""

    metadata_max_idle_ms: int
    """When an unused topic is forgotten."""

    retries: int
    """How often a batch is sent again."""

    transaction_timeout_ms: int
    """When the broker aborts an open transaction."""

    transactional_id: str | None
    """The name under which transactions survive restarts."""

    partitioner_ignore_keys: bool
    """Whether records with a key are spread as well."""

    partitioner_adaptive_partitioning_enable: bool
    """Whether records without a key go less often to partitions for which more batches wait."""

    partitioner_availability_timeout_ms: int
    """How long a leader may be unable to take what is due before records without a key avoid it; 0: any time."""


class ListenerKeywords(ClientKeywords, total=False):
    """The settings of a consumer whose group is named otherwise, as that of a listener of `App` is."""

    group_instance_id: str | None
    """A name that makes the member static: a restart keeps its place."""

    group_protocol: Literal["classic", "consumer"]
    """How the group is coordinated: by its members (classic) or by the broker (consumer)."""

    group_remote_assignor: str | None
    """The broker's assignor to ask for (consumer protocol)."""

    partition_assignment_strategy: str | list[str] | tuple[str, ...]
    """Assignors in the order of preference (classic protocol)."""

    session_timeout_ms: int
    """Silence after which a member counts as dead."""

    heartbeat_interval_ms: int
    """The time between two signs of life."""

    max_poll_interval_ms: int
    """The longest time between two polls; a member that takes longer leaves the group."""

    max_poll_records: int
    """The most records one poll returns."""

    auto_offset_reset: Literal["latest", "earliest", "none"]
    """Where to start without a usable committed offset."""

    enable_auto_commit: bool
    """Whether positions are committed in the background."""

    auto_commit_interval_ms: int
    """The time between two such commits."""

    fetch_min_bytes: int
    """Bytes a broker gathers before it answers a fetch."""

    fetch_max_bytes: int
    """The most bytes of one answer."""

    fetch_max_wait_ms: int
    """How long a broker may gather."""

    max_partition_fetch_bytes: int
    """The most bytes of a partition in one answer."""

    check_crcs: bool
    """Whether the checksum of every batch is verified."""

    isolation_level: Literal["read_committed", "read_uncommitted"]
    """Whether records of open and aborted transactions are hidden."""

    client_rack: str
    """Where this client is, to read from a replica nearby (KIP-392)."""

    exclude_internal_topics: bool
    """Whether patterns pass over internal topics."""

    allow_auto_create_topics: bool
    """Whether subscribing may create a missing topic."""

    default_api_timeout_ms: int
    """How long a call may take if it is not told."""


class ConsumerKeywords(ListenerKeywords, total=False):
    """The settings of `Consumer` and `ParallelConsumer`."""

    group_id: str | None
    """The group whose members share the partitions."""


class AppKeywords(ProducerKeywords, ConsumerKeywords, total=False):
    """The settings of `App`."""
