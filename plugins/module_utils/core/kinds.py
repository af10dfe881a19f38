# Copyright: gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The kinds of PCI devices that facts and plan tell apart."""

from __future__ import annotations

GPU, NIC, NVME, OTHER = "gpu", "nic", "nvme", "other"
