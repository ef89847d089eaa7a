"""Names that are loaded when they are used."""

from __future__ import annotations

import json
from typing import Any

import pytest

import tidegate
import tidegate.interop
import tidegate_spark
from tidegate.lazy import loader


def test_a_name_is_loaded_once_and_then_there() -> None:
    module: dict[str, Any] = {"__name__": "mine"}
    load = loader(module, {"json": ("dumps",)})

    assert load("dumps") is json.dumps
    assert module["dumps"] is json.dumps


def test_an_unknown_name_is_reported_as_missing_in_its_module() -> None:
    with pytest.raises(AttributeError, match="module 'mine' has no attribute 'loads'"):
        loader({"__name__": "mine"}, {"json": ("dumps",)})("loads")


@pytest.mark.parametrize("module", [tidegate, tidegate.interop], ids=lambda module: module.__name__)
def test_every_public_name_has_a_home(module: Any) -> None:
    assert all(getattr(module, name) is not None for name in module.__all__)


def test_every_public_name_of_sparks_side_has_one_home() -> None:
    """Without loading PySpark."""
    homes = [name for names in tidegate_spark._HOMES.values() for name in names]
    assert sorted(homes) == sorted(tidegate_spark.__all__)
