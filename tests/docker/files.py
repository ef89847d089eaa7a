"""The files that ship an app, as the tests look at them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tidegate.settings import Settings, variable

__all__ = ("DOCKER", "KUBERNETES", "ROOT", "compose", "known_variable", "manifests", "of_kind")

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"
KUBERNETES = DOCKER / "kubernetes"
_SCRIPTS = {"TIDEGATE_APP", "TIDEGATE_ALLOW_ROOT"}
"""What only the entrypoint reads."""


def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text())
    return loaded


def manifests() -> list[tuple[str, dict[str, Any]]]:
    """Each object, with the file that it is in."""
    return [
        (path.name, document)
        for path in sorted(KUBERNETES.glob("*.yaml"))
        for document in yaml.safe_load_all(path.read_text())
    ]


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [document for _, document in manifests() if document["kind"] == kind]


def known_variable(name: str) -> bool:
    settings = {variable(setting) for setting in Settings.__dataclass_fields__}
    return name in settings | _SCRIPTS
