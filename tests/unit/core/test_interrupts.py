"""/proc/interrupts of every shape."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gpufleet.node.plugins.module_utils.core.interrupts import InterruptLine, parse_interrupts


def render(columns: int, lines: list[tuple[str, list[int], str]]) -> str:
    """The file as the kernel prints it."""
    header = "           " + "".join(f"CPU{cpu:<8}" for cpu in range(columns))
    return "\n".join([header, *(f"{label:>4}:" + "".join(f" {n:10}" for n in counts) + tail for label, counts, tail in lines)]) + "\n"


def test_the_forms_of_a_line() -> None:
    text = render(2, [
        ("0", [66, 0], "  IR-IO-APIC    2-edge      timer"),
        ("16", [1, 2], "  IR-IO-APIC   16-fasteoi   i801_smbus, ahci"),
        ("124", [0, 0], "  IR-PCI-MSI-0000:16:02.0    0-edge      PCIe PME, pciehp"),
        ("144", [7, 0], "  IR-PCI-MSIX-10000:b1:00.0    0-edge      nvme0q0"),
        ("145", [7, 0], "  PCI-MSI 524288-edge      eth0"),
        ("146", [0, 0], "  IR-PCI-MSIX-0000:98:00.1  230-edge      ice-0000:98:00.1:ctrl-TxRx-0"),
        ("147", [0, 0], "  ITS-PCI-MSIX-0000:01:00.0   0 Edge      mlx5_async0@pci:0000:01:00.0"),
        ("148", [0, 0], "     GICv3  27 Level     arch_timer"),
        ("149", [0, 0], "  IR-PCI-MSIX-0000:aa:00.0    3-edge    "),
        ("NMI", [5, 5], "   Non-maskable interrupts"),
        ("ERR", [0], ""),
    ])  # fmt: skip
    assert parse_interrupts(text) == {
        0: InterruptLine(None, "timer"),
        16: InterruptLine(None, "i801_smbus, ahci"),
        124: InterruptLine("0000:16:02.0", "PCIe PME, pciehp"),
        144: InterruptLine("10000:b1:00.0", "nvme0q0"),
        145: InterruptLine(None, "eth0"),
        146: InterruptLine("0000:98:00.1", "ice-0000:98:00.1:ctrl-TxRx-0"),
        147: InterruptLine("0000:01:00.0", "mlx5_async0@pci:0000:01:00.0"),
        148: InterruptLine(None, "arch_timer"),
        149: InterruptLine("0000:aa:00.0", ""),
    }


def test_an_empty_or_absent_file() -> None:
    assert parse_interrupts("") == {} and parse_interrupts("           CPU0\n") == {}


def test_a_row_with_an_empty_number() -> None:  # E4
    assert parse_interrupts("           CPU0\n    :          1  x 1-edge y\n") == {}


@given(
    st.integers(1, 1152),
    st.dictionaries(st.integers(0, 9999), st.tuples(st.integers(0, 2**32 - 1), st.from_regex(r"\A[a-z0-9@:. -]{0,20}\Z")), max_size=4),
)
def test_any_number_of_columns_and_any_counts(columns: int, interrupts: dict[int, tuple[int, str]]) -> None:
    lines = [
        (str(irq), [count] * columns, f"  IR-PCI-MSIX-0000:01:00.0    0-edge      {action}") for irq, (count, action) in interrupts.items()
    ]
    found = parse_interrupts(render(columns, lines))
    assert found == {irq: InterruptLine("0000:01:00.0", action.strip()) for irq, (_count, action) in interrupts.items()}


@given(st.integers(1, 40))
def test_counts_of_another_width_are_split_off(columns: int) -> None:
    text = (
        "  ".join(f"CPU{cpu}" for cpu in range(columns))
        + "\n12: "
        + " ".join("7" for unused in range(columns))
        + " PCI-MSIX-0000:01:00.0 1-edge nvme0q1\n"
    )
    assert parse_interrupts(text) == {12: InterruptLine("0000:01:00.0", "nvme0q1")}
