"""An S3 server for tests: moto's, in a thread of this process."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import boto3
import fsspec
import pytest
from moto.server import ThreadedMotoServer

__all__ = ("S3", "bucket", "running")


class S3:
    """A server that can be stopped and restarted with its contents."""

    def __init__(self) -> None:
        self._server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
        self._server.start()
        self._host, self._port = self._server.get_host_and_port()

    @property
    def environment(self) -> dict[str, str]:
        """Sets the environment variables of its address and credentials."""
        return {
            "AWS_ENDPOINT_URL": f"http://{self._host}:{self._port}",
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    def stop(self) -> None:
        self._server.stop()

    def start(self) -> None:
        """Restart at the same address; the contents are in this process."""
        self._server = ThreadedMotoServer("127.0.0.1", port=self._port, verbose=False)
        self._server.start()


@contextmanager
def running(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[S3, str]]:
    """A server, and the name of a new bucket on it; the environment holds its address."""
    server = S3()
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    fsspec.get_filesystem_class("s3").clear_instance_cache()  # a cached client of an earlier server
    name = f"tidegate-{uuid.uuid4().hex[:8]}"
    boto3.client("s3").create_bucket(Bucket=name)
    try:
        yield server, name
    finally:
        server.stop()


@contextmanager
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a new bucket."""
    with running(monkeypatch) as (_, name):
        yield name
