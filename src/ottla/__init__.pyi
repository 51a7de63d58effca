from ottla import aio as aio
from ottla import errors as errors
from ottla.base.types import TopicPartition as TopicPartition
from ottla.client.app import App as App
from ottla.client.core.admin_outcomes import Outcomes as Outcomes
from ottla.client.core.admin_types import ConfigChange as ConfigChange
from ottla.client.core.admin_types import ConfigOperation as ConfigOperation
from ottla.client.core.admin_types import ConfigResource as ConfigResource
from ottla.client.core.admin_types import NewPartitions as NewPartitions
from ottla.client.core.admin_types import NewTopic as NewTopic
from ottla.client.core.admin_types import OffsetSpec as OffsetSpec
from ottla.client.core.admin_types import TopicPartitionReplica as TopicPartitionReplica
from ottla.client.core.consumer_record import ConsumerRecord as ConsumerRecord
from ottla.client.core.cursors import OffsetAndMetadata as OffsetAndMetadata
from ottla.client.core.group_protocol import GroupAssignor as GroupAssignor
from ottla.client.core.parallel import Retries as Retries
from ottla.client.core.producer_batch import RecordMetadata as RecordMetadata
from ottla.client.core.rebalance import RebalanceListener as RebalanceListener
from ottla.client.sync import Admin as Admin
from ottla.client.sync import Consumer as Consumer
from ottla.client.sync import ParallelConsumer as ParallelConsumer
from ottla.client.sync import Producer as Producer
from ottla.client.sync import SendFuture as SendFuture

__version__: str
