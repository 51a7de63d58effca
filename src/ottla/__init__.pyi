from ottla.client import aio as aio
from ottla.client import errors as errors
from ottla.client.core.producer_batch import RecordMetadata as RecordMetadata
from ottla.client.sync import Producer as Producer
from ottla.client.sync import SendFuture as SendFuture

__version__: str
