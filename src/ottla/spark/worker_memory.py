"""How the Python processes that Spark keeps for many tasks are spared looking for garbage where there is none."""

from __future__ import annotations

import gc
from functools import cache


@cache
def set_imports_aside() -> None:
    """For the end of a process's first task: what is there by then is never looked at again.

    After every task, and after every question about a sink, PySpark's daemon has the whole process searched for
    garbage. Nearly all there is are modules, tens of thousands of objects that stay as long as the process does. To
    look at them took a third of the processor time of a task that writes half a million rows, and other tasks waited
    for that processor. Garbage of later tasks is found as before.
    """
    gc.freeze()
