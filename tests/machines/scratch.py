"""A place for the roots that a test builds."""
from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder that is gone afterwards: in memory where there is room, since ext4 is slow to reuse the inodes of files deleted a
    moment ago and a root has ten thousands."""
    memory = Path("/dev/shm")
    roomy = memory.is_dir() and shutil.disk_usage(memory).free > 1 << 30
    with tempfile.TemporaryDirectory(dir=memory if roomy else None) as folder:
        yield Path(folder)
