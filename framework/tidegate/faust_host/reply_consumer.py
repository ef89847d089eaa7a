"""Where the answers to `agent.ask` arrive."""

from __future__ import annotations

from typing import Any

from faust.agents.models import ReqRepResponse
from faust.agents.replies import ReplyConsumer as FaustReplyConsumer

__all__ = ("ReplyConsumer",)


class ReplyConsumer(FaustReplyConsumer):
    def _reply_topic(self, topic: str) -> Any:
        """As Faust makes it, but nothing is acknowledged: nobody goes on behind an answer later. Faust subscribes to
        it twice and reads it once; when it stops, it would wait for the other reader for ever."""
        conf = self.app.conf
        return self.app.topic(
            topic,
            partitions=1,
            replicas=conf.topic_replication_factor,
            deleting=True,
            retention=conf.reply_expires,
            value_type=ReqRepResponse,
            acks=False,
        )
