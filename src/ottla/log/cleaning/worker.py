"""One pass in a process of its own, which `process` has started. Ends with the one that has started it."""

from __future__ import annotations

import os
import pickle
import sys
import threading

from ottla.base.errors import KafkaError, OttlaError
from ottla.log.cleaning.cleaner import Cleaner
from ottla.log.cleaning.process import Done, Failed, Job, Made, Message, pack_message
from ottla.log.cleaning.throttle import Throttle

_NICENESS = 5


def main() -> None:
    try:
        job: Job = pickle.load(sys.stdin.buffer)
    except (EOFError, pickle.UnpicklingError):
        return
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.nice(_NICENESS)
    try:
        _run(job)
    except OSError as e:
        _tell(Failed(e.errno, e.strerror or str(e), None if e.filename is None else str(e.filename)))
    except OttlaError as e:
        _tell(Failed(None, e.message if isinstance(e, KafkaError) else str(e)))
    except Exception as e:
        _tell(Failed(None, repr(e)))


def _run(job: Job) -> None:
    cleaner = Cleaner(job.open_plan(), job.limits, throttle=Throttle(lambda: job.bytes_per_second))
    for sources, segment in cleaner.groups():
        _tell(Made([source.base_offset for source in sources], segment.size))
    _tell(Done(cleaner.end_offset, cleaner.keyless, cleaner.counts))


def _tell(message: Message) -> None:
    try:
        sys.stdout.buffer.write(pack_message(message))
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        os._exit(1)


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


if __name__ == "__main__":
    main()
