"""What the node of the real kubelet gets from outside, on a disk of its own: the kubelet, built from its Go module, and a container image.

Both are kept in the cache: the kubelet by its version, the disk by what is on it.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

from image import run
from machine import CACHE, say

FOLDER = Path(__file__).resolve().parent
ORACLE = FOLDER.parents[1] / "oracle"  # its go.mod resolves kubelet with all of its modules
MINOR = "v1.37"
LABEL = "kubelet"
IMAGE = "localhost/pause:1"


def version() -> str:
    """The version that the oracle's go.mod names, as v1.37.2."""
    found = re.search(r"^\s*k8s\.io/kubernetes (v\S+)", (ORACLE / MINOR / "go.mod").read_text(), re.MULTILINE)
    assert found
    return found[1]


def kubelet() -> Path:
    """The binary, built now if the cache hasn't got it."""
    path = CACHE.parent / "kubelet" / version() / "kubelet"
    if not path.exists():
        say(f"building {path}: up to half an hour, once")
        path.parent.mkdir(parents=True, exist_ok=True)
        package = "k8s.io/component-base/version"
        major, minor, unused = version().lstrip("v").split(".")
        said = {"gitVersion": version(), "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
        flags = " ".join(["-s -w", *(f"-X {package}.{name}={value}" for name, value in said.items())])
        unfinished = path.with_suffix(".unfinished")
        # With the settings of tests/oracle/driver.py, so that what was compiled for the oracle is only linked.
        run(
            *("nice", "-n", "10", "go", "build", "-C", str(ORACLE), f"-modfile={MINOR}/go.mod", "-ldflags", flags),
            *("-o", str(unfinished), "k8s.io/kubernetes/cmd/kubelet"),
            env={**os.environ, "GOARCH": "amd64", "GOAMD64": "v1", "GOFLAGS": "-mod=readonly -buildvcs=false", "GOWORK": "off"},
        )
        unfinished.rename(path)
    return path


def disk() -> Path:
    """A disk image with the label ``kubelet``: the files ``kubelet`` and ``image.tar``."""
    binary, archive = kubelet(), _oci_archive(_static_program())
    digest = hashlib.sha256(binary.read_bytes() + archive).hexdigest()[:12]
    path = CACHE / f"kubelet-payload-{digest}.raw"
    if not path.exists():
        unfinished = path.with_suffix(".unfinished")
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            shutil.copy2(binary, folder)
            (Path(folder) / "image.tar").write_bytes(archive)
            size = (binary.stat().st_size + len(archive)) // 1024 * 11 // 10 + 8 * 1024
            unfinished.unlink(missing_ok=True)
            run("mke2fs", "-q", "-F", "-t", "ext4", "-O", "^has_journal", "-L", LABEL, "-d", folder, str(unfinished), f"{size}k")
        unfinished.rename(path)
    return path


def _static_program() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pause"
        subprocess.run(["cc", "-Os", "-static", "-s", "-o", str(path), str(FOLDER / "pause.c")], check=True)
        return path.read_bytes()


def _oci_archive(program: bytes) -> bytes:
    """An image of one layer with one file, /pause, as a tar file in the layout of the OCI image specification."""
    layer = _tar({"pause": program}, mode=0o755)
    blobs: dict[str, bytes] = {}

    def blob(kind: str, content: bytes) -> dict[str, object]:
        digest = hashlib.sha256(content).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = content
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(content)}

    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": ["/pause"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": blob("config.v1+json", json.dumps(config).encode()),
        "layers": [blob("layer.v1.tar", layer)],
    }
    entry = {**blob("manifest.v1+json", json.dumps(manifest).encode()), "annotations": {"io.containerd.image.name": IMAGE}}
    index = {"schemaVersion": 2, "manifests": [entry]}
    return _tar({"oci-layout": b'{"imageLayoutVersion": "1.0.0"}', "index.json": json.dumps(index).encode(), **blobs})


def _tar(files: dict[str, bytes], mode: int = 0o644) -> bytes:
    """The same bytes for the same files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(content), mode
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()
