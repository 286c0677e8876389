"""The counts as tables of Markdown."""

from collections.abc import Callable, Iterable
from typing import Protocol

ORDER = ["Q1_0", "TQ2", "Q4_0", "Q4_K", "Q6_K", "Q8_0", "F16"]
MANY = ["Q4_0", "Q4_1", "Q5_0", "Q4_K", "Q6_K", "Q8_0", "MXFP4"]
PEERS = ["warpsmith", "llama.cpp", "Marlin, groups of 32", "Marlin, groups of 128", "OxiBonsai", "Triton"]
WIDTHS = [3072, 4096]
SHAPES = [(1024, 3072), (4096, 4096), (14336, 4096)]


class Counted(Protocol):
    """What it needs of a count (counts.py)."""

    peer: str
    format: str
    activations: str
    cols: int
    kernel: str
    error: float
    launches: int
    loop: float
    slots: float
    counted: float
    once: float


class Attended(Protocol):
    """What it needs of a count of attention."""

    peer: str
    kernel: str
    positions: int
    launches: int
    loop: float
    slots: float


class Multiplied(Protocol):
    """What it needs of a count of several columns."""

    peer: str
    format: str
    activations: str
    columns: int
    loop: float
    slots: float


def whole(c: Counted, rows: int) -> float:
    """Slots a weight of all launches of a product: what is done once is shared by its rows."""
    return c.slots + c.once / rows


def places(c: Counted) -> tuple[int, int]:
    return ORDER.index(c.format), PEERS.index(c.peer)


def markdown(heading: list[str], rows: Iterable[str]) -> str:
    return "\n".join(["| " + " | ".join(heading) + " |", "|---" * len(heading) + "|", *rows])


def products(counts: Iterable[Counted]) -> str:
    """A row a product. Formats that only we have are left out."""
    counts = [c for c in counts if c.format in ORDER]
    rows: dict[tuple, dict[int, Counted]] = {(c.peer, c.format, c.activations): {} for c in sorted(counts, key=places)}
    for c in counts:
        rows[c.peer, c.format, c.activations][c.cols] = c
    heading = ["format", "product", "activations", "error", "launches", "loop", "counted", "whole"]
    return markdown(heading, (line(at) for at in rows.values()))


def name(c: Counted | Attended) -> str:
    return f"`{c.kernel}`" if c.peer == "warpsmith" else c.peer


def attention(counts: Iterable[Attended]) -> str:
    """A row a number of positions."""
    ordered = sorted(counts, key=lambda c: (round(c.positions, -3), PEERS.index(c.peer)))
    rows = (f"| {c.positions} | {name(c)} | {c.launches} | {c.loop:.2f} | {c.slots:.2f} |" for c in ordered)
    return markdown(["positions", "attention", "launches", "loop", "whole"], rows)


def many(counts: Iterable[Multiplied]) -> str:
    """A row a format and peer, a column a number of columns. Formats that only we have are left out."""
    counts = list(counts)
    theirs = {c.format for c in counts if c.peer != "warpsmith"}
    columns = sorted({c.columns for c in counts if c.peer != "warpsmith"})
    rows: dict[tuple, dict[int, Multiplied]] = {}
    for c in sorted(counts, key=lambda c: (MANY.index(c.format) if c.format in MANY else -1, PEERS.index(c.peer), -len(c.activations))):
        if c.format in theirs and c.columns in columns:
            rows.setdefault((c.format, c.peer, c.activations), {})[c.columns] = c
    lines = []
    for (format, peer, activations), at in rows.items():
        lines.append("| " + " | ".join([format, peer, activations, *(f"{at[n].loop:.3f}, {at[n].slots:.3f}" for n in columns)]) + " |")
    return markdown(["format", "product", "activations", *map(str, columns)], lines)


def line(at: dict[int, Counted]) -> str:
    c = at[max(at)]

    def each(figure: Callable[[Counted], float]) -> str:
        return ", ".join(f"{figure(at[cols]):.2f}" for cols in WIDTHS)

    shapes = ", ".join(f"{whole(at[cols], rows):.2f}" for rows, cols in SHAPES)
    cells = [c.format, name(c), c.activations, f"{c.error:.0e}".replace("e-0", "e-"), str(c.launches)]
    return "| " + " | ".join([*cells, each(lambda c: c.loop), each(lambda c: c.counted), shapes]) + " |"


def written(page: str, tables: dict[str, str]) -> str:
    """A page with tables between `<!-- counted: NAME -->` and `<!-- end of NAME -->`."""
    for name, text in tables.items():
        begin, end = f"<!-- counted: {name} -->\n", f"<!-- end of {name} -->"
        before, _, rest = page.partition(begin)
        _, found, after = rest.partition(end)
        if not found:
            raise LookupError(f"the page has no place for {name}: a line {begin.strip()} and a line {end}")
        page = before + begin + text + "\n" + end + after
    return page
