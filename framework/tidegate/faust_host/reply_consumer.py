"""The consumer of replies to `agent.ask`."""

from __future__ import annotations

from typing import Any

from faust.agents.models import ReqRepResponse
from faust.agents.replies import ReplyConsumer as FaustReplyConsumer

__all__ = ("ReplyConsumer",)


class ReplyConsumer(FaustReplyConsumer):
    def _reply_topic(self, topic: str) -> Any:
        """Faust's reply topic, without acknowledgements: no reader resumes after a reply. Faust subscribes to it twice
        and reads it once; with acknowledgements it would wait forever for the other reader when it stops."""
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
