from ottla.base.types import TopicPartition as TopicPartition
from ottla.client import aio as aio
from ottla.client import errors as errors
from ottla.client.core.consumer_record import ConsumerRecord as ConsumerRecord
from ottla.client.core.cursors import OffsetAndMetadata as OffsetAndMetadata
from ottla.client.core.group_protocol import GroupAssignor as GroupAssignor
from ottla.client.core.producer_batch import RecordMetadata as RecordMetadata
from ottla.client.core.rebalance import RebalanceListener as RebalanceListener
from ottla.client.sync import Consumer as Consumer
from ottla.client.sync import Producer as Producer
from ottla.client.sync import SendFuture as SendFuture

__version__: str
