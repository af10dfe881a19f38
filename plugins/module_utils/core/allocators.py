# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Memory allocators that a batch service may be given in place of the C library's: which file, from which package, with which settings.

Paths: Debian's and Ubuntu's libraries lie in a folder named after the architecture, those of Red Hat and kin in /usr/lib64 (jemalloc and
gperftools come from EPEL there).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Mapping, Optional, Tuple

from .change import Installs
from .errors import InvalidInput

MULTIARCH = {
    "x86_64": "x86_64-linux-gnu",
    "aarch64": "aarch64-linux-gnu",
    "ppc64le": "powerpc64le-linux-gnu",
    "s390x": "s390x-linux-gnu",
}


@dataclass(frozen=True)
class Allocator:
    """``library`` is the file's name, ``packages`` the package by family (debian, redhat)."""

    library: str
    packages: Mapping[str, str]


ALLOCATORS = {
    "jemalloc": Allocator("libjemalloc.so.2", {"debian": "libjemalloc2", "redhat": "jemalloc"}),
    "tcmalloc": Allocator("libtcmalloc_minimal.so.4", {"debian": "libtcmalloc-minimal4", "redhat": "gperftools-libs"}),
}
_INSTALL = {"debian": ("apt-get", "install", "--yes", "--no-install-recommends"), "redhat": ("dnf", "install", "-y")}
_LISTING = {
    "debian": ("dpkg-query", "--show", r"--showformat=${db:Status-Status} ${Package}\n"),
    "redhat": ("rpm", "--query", "--all", r"--queryformat=installed %{NAME}\n"),
}


def install_command(allocator: str, family: str) -> Tuple[str, ...]:
    """The command that installs the distribution's package."""
    return (*_INSTALL[family], ALLOCATORS[allocator].packages[family])


def installs(allocator: str, family: str) -> Installs:
    """What that command brings to the node, so that it can be listed later."""
    return Installs(ALLOCATORS[allocator].packages[family], _LISTING[family])


def library_path(allocator: str, architecture: str, family: str) -> str:
    """Where the distribution puts the library.

    :raises InvalidInput: an architecture whose folder isn't known
    """
    library = ALLOCATORS[allocator].library
    if family != "debian":
        return "/usr/lib64/" + library
    if architecture not in MULTIARCH:
        raise InvalidInput("Where %s lies on %s is not known." % (library, architecture), "Set LD_PRELOAD in the service's environment.")
    return "/usr/lib/%s/%s" % (MULTIARCH[architecture], library)


def missing(service: str, allocator: str, path: str, family: str) -> InvalidInput:
    """The refusal of a service whose allocator isn't installed."""
    return InvalidInput(
        "Service %s wants %s, and %s is not there." % (service, allocator, path),
        "Install %s, or set gpufleet_batch_install_allocators: true." % ALLOCATORS[allocator].packages[family],
    )


def variables(allocator: str, settings: Mapping[str, str], path: Optional[str]) -> Dict[str, str]:
    """The environment: the library, and its settings as it reads them (MALLOC_CONF=key:value,…; TCMALLOC_KEY=value)."""
    found = {"LD_PRELOAD": path} if path else {}
    if allocator == "jemalloc" and settings:
        found["MALLOC_CONF"] = ",".join("%s:%s" % item for item in sorted(settings.items()))
    if allocator == "tcmalloc":
        found.update(("TCMALLOC_" + key.upper(), value) for key, value in sorted(settings.items()))
    return found
