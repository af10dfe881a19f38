"""Disk images for the machines: Debian by debootstrap, with a boot loader of its own. Built once per recipe, kept in the cache.

No loop device is needed: sfdisk writes the partition table into a file and mke2fs the file system. Only the boot loader is installed in
the machine itself, on its first boot, since its tools look for real devices.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import textwrap
import urllib.request
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Iterator

from machine import CACHE, KEY, Machine, progress, say

PACKAGES = (
    *("systemd", "systemd-sysv", "dbus", "libpam-systemd", "udev", "kmod", "linux-image-amd64", "grub-pc", "initramfs-tools", "zstd"),
    *("procps", "iproute2", "openssh-server", "python3", "python3-yaml", "numactl", "ethtool", "irqbalance", "tuned"),
)
MIRROR = "http://deb.debian.org/debian"
MIB = 1024 * 1024
BOOT, SYSTEM, SWAP = 2, 3400, 256  # MiB
# On the first boot: a boot loader needs real devices, and a swap file blocks on the disk (mke2fs leaves holes for zeros).
FIRST_BOOT = (
    "mkswap /dev/vda3",
    "dd if=/dev/zero of=/swapfile bs=1M count=64 status=none",
    "chmod 600 /swapfile",
    "mkswap /swapfile",
    "grub-install /dev/vda",
    "update-grub",
    "sync",
    "systemctl poweroff",
)

FILES = {
    "/etc/fstab": "/dev/vda2 / ext4 errors=remount-ro 0 1\n# swap of this machine\n/swapfile none swap sw 0 0\n",
    "/etc/hostname": "node\n",
    "/etc/hosts": "127.0.0.1 localhost node\n",
    "/etc/systemd/network/80-machine.network": "[Match]\nName=e*\n[Network]\nAddress=10.0.2.15/24\n",
    "/etc/initramfs-tools/conf.d/machine": "MODULES=list\n",
    "/etc/initramfs-tools/modules": "virtio_pci\nvirtio_blk\next4\n",
    # The emulator is slow at what mitigations do at each system call, and sometimes wrong: a kernel that panics while it boots boots again.
    "/etc/default/grub": 'GRUB_DEFAULT=0\nGRUB_TIMEOUT=0\nGRUB_DISTRIBUTOR=Debian\nGRUB_CMDLINE_LINUX_DEFAULT="quiet"\n'
    'GRUB_CMDLINE_LINUX="console=ttyS0 mitigations=off panic=10"\nGRUB_TERMINAL=serial\n',
    "/etc/ssh/sshd_config.d/machine.conf": "UseDNS no\nPermitRootLogin prohibit-password\n",
}
COMMANDS = (
    "systemctl enable systemd-networkd ssh",
    "systemctl disable tuned",
    "systemctl mask apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer fstrim.timer systemd-networkd-wait-online",
    "update-initramfs -u",
)


@dataclass(frozen=True)
class Recipe:
    """What an image is made of; ``files`` and ``commands`` come after those of all images."""

    release: str
    files: dict[str, str] = field(default_factory=dict)
    commands: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()


RECIPES = {
    # Swap on compressed memory beside the file and the partition, made at boot by systemd's generator.
    "bookworm": Recipe("bookworm", packages=("systemd-zram-generator",)),
    # Drop-ins as on Ubuntu's cloud images, which assign what /etc/default/grub assigns too; and a stand-in for kubelet, which only sleeps.
    "trixie": Recipe(
        "trixie",
        files={
            "/etc/default/grub.d/50-cloudimg-settings.cfg": "GRUB_RECORDFAIL_TIMEOUT=0\nGRUB_TIMEOUT=0\n"
            'GRUB_CMDLINE_LINUX_DEFAULT="console=tty1 console=ttyS0"\nGRUB_TERMINAL=serial\n',
            "/etc/default/grub.d/99-site.cfg": 'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX mitigations=off panic=10"\n',
            "/usr/bin/kubelet": "#!/bin/sh\ncase $1 in --version) echo Kubernetes v1.34.2 ;; *) exec sleep infinity ;; esac\n",
            "/etc/systemd/system/kubelet.service": "[Service]\nExecStart=/usr/bin/kubelet --config=/var/lib/kubelet/config.yaml\n"
            "[Install]\nWantedBy=multi-user.target\n",
            "/var/lib/kubelet/config.yaml": "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n",
        },
        commands=("chmod 755 /usr/bin/kubelet", "systemctl enable kubelet"),
    ),
}


def image(name: str, recipe: Recipe) -> Path:
    """The image of a recipe, built now if the cache hasn't got it."""
    key = _key()
    path = _path(name, recipe, key)
    if not path.exists():
        with _alone():
            if not path.exists():  # another may have built it meanwhile
                _build(path, recipe, key)
    return path


def obtainable(name: str, recipe: Recipe) -> bool:
    """Whether the image of a recipe is in the cache, or can be made: its packages are there, or Debian's mirror answers."""
    if _path(name, recipe, _key()).exists() or _archive(recipe).exists():
        return True
    try:
        with urllib.request.urlopen(f"{MIRROR}/dists/{recipe.release}/Release", timeout=60):
            return True
    except OSError:
        return False


def _path(name: str, recipe: Recipe, key: str) -> Path:
    ingredients = json.dumps([asdict(recipe), PACKAGES, FILES, COMMANDS, FIRST_BOOT, [BOOT, SYSTEM, SWAP], key], sort_keys=True)
    return CACHE / f"{name}-{hashlib.sha256(ingredients.encode()).hexdigest()[:12]}.raw"


@contextmanager
def _alone() -> Iterator[None]:
    """Two that build at once would share the tree and the machine that installs the boot loader."""
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(path: Path, recipe: Recipe, key: str) -> None:
    say(f"building the image {path}: some minutes, once")
    unfinished = path.with_suffix(".unfinished")
    tree = _tree(recipe)
    try:
        _fill(tree, recipe, key)
        _write_disk(unfinished, tree)
        _install_boot_loader(unfinished, tree)
    finally:
        shutil.rmtree(tree, ignore_errors=True)
    unfinished.rename(path)
    say(f"built {path}")


def _key() -> str:
    """The public key that machines let in."""
    CACHE.mkdir(parents=True, exist_ok=True)
    if not KEY.exists():
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "gpufleet", "-f", str(KEY))
    return KEY.with_suffix(".pub").read_text()


def _archive(recipe: Recipe) -> Path:
    return CACHE / f"{recipe.release}-{hashlib.sha256(_packages(recipe).encode()).hexdigest()[:12]}.tar"


def _packages(recipe: Recipe) -> str:
    return ",".join((*PACKAGES, *recipe.packages))


def _tree(recipe: Recipe) -> Path:
    """A copy of the release's tree as debootstrap leaves it; the tree itself stays in the cache as an archive."""
    archive = _archive(recipe)
    tree = CACHE / f"{recipe.release}.tree"
    shutil.rmtree(tree, ignore_errors=True)
    if archive.exists():
        tree.mkdir()
        run("tar", "-xf", str(archive), "-C", str(tree))
        return tree
    run("debootstrap", "--variant=minbase", f"--include={_packages(recipe)}", recipe.release, str(tree), MIRROR)
    unfinished = archive.with_suffix(".unfinished")
    run("tar", "-cf", str(unfinished), "-C", str(tree), "--exclude=./var/cache/apt/archives/*.deb", ".")
    unfinished.rename(archive)
    return tree


def _fill(tree: Path, recipe: Recipe, key: str) -> None:
    for path, text in {**FILES, **recipe.files, "/root/.ssh/authorized_keys": key}.items():
        target = tree / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    for command in (*COMMANDS, *recipe.commands):
        run("chroot", str(tree), "sh", "-c", command, env={**os.environ, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"})
    shutil.rmtree(tree / "var/cache/apt", ignore_errors=True)


def _write_disk(path: Path, tree: Path) -> None:
    path.unlink(missing_ok=True)
    with path.open("wb") as disk:
        disk.truncate((1 + BOOT + SYSTEM + SWAP + 1) * MIB)
    table = textwrap.dedent(f"""\
        label: gpt
        start=1MiB, size={BOOT}MiB, type=21686148-6449-6E6F-744E-656564454649
        size={SYSTEM}MiB, type=0FC63DAF-8483-4772-8E79-3D69D8477DE4
        size={SWAP}MiB, type=0657FD6D-A4AB-43C4-84E5-0933C84B4F4F
        """)
    run("sfdisk", "-q", str(path), input=table)
    run("mke2fs", "-q", "-F", "-t", "ext4", "-d", str(tree), "-E", f"offset={(1 + BOOT) * MIB}", str(path), f"{SYSTEM * 1024}k")


def _install_boot_loader(path: Path, tree: Path) -> None:
    kernel = max((tree / "boot").glob("vmlinuz-*"))
    initrd = max((tree / "boot").glob("initrd.img-*"))
    shape = {"numa_nodes": [{"cpus": "0-1", "memory_mib": 1024}], "nic": {"model": "virtio-net-pci"}, "devices": []}
    machine = Machine("image", 22199, shape)
    machine.remove()
    try:
        boot = ["-kernel", str(kernel), "-initrd", str(initrd), "-append", "root=/dev/vda2 rw console=ttyS0 mitigations=off panic=10"]
        machine.start(path, boot)
        machine.wait(600)
        run(*machine.ssh(" && ".join(FIRST_BOOT)))
        machine.wait_for_end(120)
        run("qemu-img", "commit", "-q", str(machine.folder / "disk.qcow2"))
    finally:
        machine.remove()


def run(*command: str, input: str | None = None, env: dict[str, str] | None = None) -> None:
    """Run a command that may take minutes, with a line now and then that says so.

    :raises SystemExit: it failed; with the end of what it printed
    """
    with progress(lambda: f"still at: {' '.join(command)[:100]}"):
        result = subprocess.run(command, input=input, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if result.returncode:
        raise SystemExit(f"{' '.join(command)[:200]}\nended with status {result.returncode}:\n{result.stdout[-2000:]}")
