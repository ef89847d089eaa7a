"""Publishes the saved results in the README, docs/benchmarks.md and the chart.

python -m benchmarks.reports.publish     regenerates them from benchmarks/results/published.json
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.reports.chart import bars
from benchmarks.reports.embedded_section import embedded_markdown
from benchmarks.reports.summary import lines_of, ratios_of
from benchmarks.reports.tables import details, overview

__all__ = ("publish", "render")

_ROOT = Path(__file__).parents[2]
_RESULTS = Path("benchmarks", "results", "published.json")
_PICTURE = Path("docs", "images", "benchmark.svg")
_START, _END = "<!-- bench:start -->", "<!-- bench:end -->"
_PEERS = ("w", "yahoo", "latency")


def publish(sections: Mapping[str, Any], root: Path = _ROOT) -> None:
    """The workloads of this run replace their published results; other workloads are kept."""
    saved = root / _RESULTS
    known = json.loads(saved.read_text()) if saved.exists() else {}
    saved.parent.mkdir(parents=True, exist_ok=True)
    saved.write_text(json.dumps({**known, **sections}, indent=1, ensure_ascii=False) + "\n")
    render(root)


def render(root: Path = _ROOT) -> None:
    sections = json.loads((root / _RESULTS).read_text())
    if "w" in sections:
        title = "A persistent counter per key on Kafka, events per second"
        subtitle = "One process or thread, 4 partitions, exactly once, unless a label says otherwise. Same run."
        (root / _PICTURE).write_text(bars(title, subtitle, lines_of(sections["w"])))
    _fill(root / "README.md", _readme(sections))
    _fill(root / "docs" / "benchmarks.md", _page(sections))


def _readme(sections: Mapping[str, Any]) -> str:
    parts = []
    peers = {kind: sections[kind] for kind in _PEERS if kind in sections}
    if peers:
        where = next(iter(peers.values()))["machine"]
        parts.append(
            "On a real Kafka broker, against others, each as its documentation recommends, on the same topic in the "
            f"same run, every output checked. {where['processor']}, {where['memory']}, shared with the broker. What is "
            "measured and how: [docs/benchmarks.md](docs/benchmarks.md)."
        )
        if "w" in peers:
            parts += ["![Events per second, Tidegate and others](docs/images/benchmark.svg)", _ratios(peers["w"])]
        parts.append(overview(peers))
    if "embedded" in sections:
        parts.append(
            "On the embedded log, one process, exactly once, each commit synced to disk; the bare loop does nothing "
            "but parse and count, in memory:"
        )
        parts.append(embedded_markdown(sections["embedded"]))
    return "\n\n".join(part for part in parts if part)


def _ratios(section: Mapping[str, Any]) -> str:
    """The ratios to peers; the ratios between own configurations are on the page."""
    comparisons = [
        f"{times:.2g} × {label.partition(',')[0]}"
        for label, times in ratios_of(lines_of(section))
        if "against" not in label
    ]
    return f"In *W*, Tidegate's rate is {', '.join(comparisons)}." if comparisons else ""


def _page(sections: Mapping[str, Any]) -> str:
    parts = [details(kind, sections[kind]) for kind in _PEERS if kind in sections]
    if "embedded" in sections:
        parts.append(f"### W on the embedded log\n\n{embedded_markdown(sections['embedded'])}")
    return "\n\n".join(parts)


def _fill(page: Path, text: str) -> None:
    """Replace the text between the markers."""
    before, start, rest = page.read_text().partition(_START)
    _, end, after = rest.partition(_END)
    if not start or not end:
        raise ValueError(f"{page} has no place for the figures: {_START} ... {_END}")
    page.write_text(f"{before}{start}\n{text}\n{end}{after}")


if __name__ == "__main__":
    render()
