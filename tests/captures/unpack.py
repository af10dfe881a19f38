"""Captured machines, unpacked once: into .cache, one folder per archive, shared by all test processes and later sessions."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
CAPTURES = Path(os.environ.get("GPUFLEET_CAPTURES") or REPOSITORY.parent / "shared" / "captures")
CACHE = REPOSITORY / ".cache" / "captures"


def names() -> list[str]:
    """The captures that are there."""
    return sorted(path.name.removesuffix(".tar.xz") for path in CAPTURES.glob("*.tar.xz"))


def unpacked(name: str) -> Path:
    """The root of a capture. Two processes may race: each unpacks for itself, and the folder that is renamed first counts."""
    archive = CAPTURES / f"{name}.tar.xz"
    status = archive.stat()
    target = CACHE / f"{name}-{status.st_size:x}-{status.st_mtime_ns:x}"
    if not target.is_dir():
        CACHE.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(dir=CACHE, prefix=".new-"))
        subprocess.run(["tar", "-xJf", archive, "-C", folder], check=True)
        try:
            folder.rename(target)
        except OSError:
            shutil.rmtree(folder)
    return target
