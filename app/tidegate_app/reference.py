"""Generates docs/configuration.md from the descriptions of the settings: python -m tidegate_app.reference"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from tidegate.settings import Settings, variable

__all__ = ("SECTIONS", "fields", "reference")

_INTRODUCTION = """\
# Configuration

Every setting can be given in three ways. A flag takes precedence over the environment, the environment over `App(...)`,
and that over the default:

```console
$ tidegate worker hello.py --commit-interval 0.5
$ TIDEGATE_COMMIT_INTERVAL=0.5 tidegate worker hello.py
```

```python
from tidegate import App

app = App("hello", commit_interval=0.5)
```

`tidegate config hello.py` shows the effective values and their sources. A `TIDEGATE_` variable that is not a
setting, such as a misspelt one, is reported there and when a worker starts. None of the settings changes what services
compute.

This page is generated from the settings by `make docs`.
"""

SECTIONS = {
    "log": "The log",
    "kafka": "Kafka",
    "state": "State",
    "engine": "The engine",
    "checkpoints": "Checkpoints",
    "worker": "The worker",
    "api": "HTTP",
    "spark": "Spark",
}


def fields() -> Mapping[str, dataclasses.Field[Any]]:
    return {item.name: item for item in dataclasses.fields(Settings)}


def reference() -> str:
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield _INTRODUCTION
    for section, title in SECTIONS.items():
        yield f"## {title}\n"
        yield "| setting | default | flag | variable | what it does |"
        yield "|---|---|---|---|---|"
        for item in fields().values():
            if item.metadata["section"] == section:
                yield _row(item)
        yield ""


def _row(item: dataclasses.Field[Any]) -> str:
    default = f"`{item.default}`" if str(item.default) else "none"
    flag = "none" if item.metadata["secret"] else f"`--{item.name.replace('_', '-')}`"
    return f"| `{item.name}` | {default} | {flag} | `{variable(item.name)}` | {item.metadata['description']} |"


if __name__ == "__main__":
    print(reference(), end="")
