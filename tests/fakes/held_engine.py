"""An engine of an inference server that answers when the test says so, and requests to the server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from policy_fakes import chat
from torch import Tensor

from distrl.core.errors import DistrlError
from distrl.core.messages import ActReply, ActRequest, Reject
from distrl.core.sockets import Channel
from distrl.core.types import ChatMessage, Completion, Sampling, TextPart
from distrl.workers.inference.engine import OnDone

WAIT_S = 30.0


class HeldEngine:
    """Keeps requests until the test ends them, by the text of their chats.

    Attributes:
        running: What ends a request, by its text, in the order of submission.
        submits: How many requests each submit brought.
        ended_by: What `check` raises.
    """

    version, is_continuous = 1, True

    def __init__(self) -> None:
        self.running: dict[str, Callable[[Exception | None], None]] = {}
        self.submits: list[int] = []
        self.ended_by: DistrlError | None = None

    def prepare(self, messages: Sequence[ChatMessage], *_: object) -> str:
        part = messages[0].parts[-1]
        assert isinstance(part, TextPart)
        return part.text

    def submit(self, requests: Sequence[str], on_done: OnDone) -> None:
        self.submits.append(len(requests))
        for index, text in enumerate(requests):
            self.running[text] = self._end(index, text, on_done)

    def _end(self, index: int, text: str, on_done: OnDone) -> Callable[[Exception | None], None]:
        versions = (self.version,)

        def end(error: Exception | None) -> None:
            completion = Completion(text=text, token_ids=(1,), logprobs=(0.0,), weight_versions=versions)
            thread = threading.Thread(target=on_done, args=(index, error or completion))
            thread.start()
            thread.join()

        return end

    def finish(self, text: str, error: Exception | None = None) -> None:
        self.running.pop(text)(error)

    def load(self, version: int, state: dict[str, Tensor]) -> None:
        self.version = version

    def check(self) -> None:
        if self.ended_by is not None:
            raise self.ended_by

    def stats(self) -> dict[str, float]:
        return {"adapters": 2.0}

    def close(self) -> None:
        for text in list(self.running):
            self.finish(text, RuntimeError("closed"))


def send(channel: Channel, *texts: str) -> None:
    for text in texts:
        part = TextPart(text=text)
        messages = (chat("")[0].model_copy(update={"parts": (part,)}),)
        channel.send(ActRequest(id=text, messages=messages, images=(), sampling=Sampling()), timeout_s=WAIT_S)


def reply(channel: Channel) -> ActReply | Reject:
    received = channel.recv(WAIT_S)
    assert received is not None
    assert isinstance(received.message, (ActReply, Reject))
    return received.message
