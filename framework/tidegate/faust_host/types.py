"""Faust's types in the signatures of App's methods."""

from __future__ import annotations

from faust.cli.base import AppCommand
from faust.types import AgentT, ChannelT
from faust.types.agents import AgentFun, SinkT
from mode import SupervisorStrategyT

__all__ = ("AgentFun", "AgentT", "AppCommand", "ChannelT", "SinkT", "SupervisorStrategyT")
