"""Likes as JSON lines: what another process sends on."""

from __future__ import annotations

import subprocess
import sys

import msgspec

from examples.tinder_match.events import Like
from tests.docs.pages import ROOT


def test_likes_are_printed_as_lines_that_the_topic_accepts() -> None:
    command = [sys.executable, "-m", "examples.tinder_match.likes", "--rate", "1000", "--count", "200"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=100, check=True)
    likes = msgspec.json.Decoder(Like).decode_lines(done.stdout)
    assert len(likes) >= 200
    assert len({like.id for like in likes}) == len(likes)
