"""The engine on transformers: a policy, its weight version, and whole batches of completions.

`prepare` may run in another thread than `act` and `load`: it only reads the tokenizer and an image cache with
its own lock. `act` and `load` belong to one thread, so that weights never change within a batch.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from distrl.core.policies.base import Policy
from distrl.core.types import ChatMessage, Completion, ImagePart, Sampling

MAX_CACHED_BYTES = 64 * 2**20
NO_WEIGHTS = -1


@dataclass(frozen=True)
class Prepared:
    """A request as the policy takes it: prompt ids, decoded images in order of appearance, sampling."""

    prompt_ids: tuple[int, ...]
    images: tuple[Tensor, ...]
    sampling: Sampling


class HFEngine:
    """A policy behind batches.

    Args:
        policy: On its device, in eval mode.
        seed: Seed of the sampling.
        max_cached_bytes: Bound of the cache of decoded images, which an unchanged screen meets again.
    """

    def __init__(self, policy: Policy, seed: int, max_cached_bytes: int = MAX_CACHED_BYTES) -> None:
        self.policy = policy
        self.version = NO_WEIGHTS
        self._generator = torch.Generator(device=policy.device).manual_seed(seed)
        self._cache = _ImageCache(max_cached_bytes)

    def prepare(
        self, messages: Sequence[ChatMessage], images: Mapping[str, bytes | memoryview], sampling: Sampling
    ) -> Prepared:
        """Tokenises a chat and decodes its images.

        Args:
            messages: The chat.
            images: Encoded bytes by digest, at least of the images that the chat shows.
            sampling: How its completion is drawn.

        Raises:
            PolicyError: The chat is too long, or an image is unreadable.
        """
        digests = [p.digest for message in messages for p in message.parts if isinstance(p, ImagePart)]
        decoded = tuple(self._image(digest, images[digest]) for digest in digests)
        return Prepared(tuple(self.policy.prompt_ids(messages, decoded)), decoded, sampling)

    def _image(self, digest: str, data: bytes | memoryview) -> Tensor:
        cached = self._cache.get(digest)
        if cached is None:
            cached = self.policy.image(bytes(data))
            self._cache.put(digest, cached)
        return cached

    def act(self, requests: Sequence[Prepared]) -> list[Completion]:
        """One completion for each request, all with the present weights."""
        batch = self.policy.collate([r.prompt_ids for r in requests], [r.images for r in requests])
        generated = self.policy.generate(batch, [r.sampling for r in requests], self._generator)
        return [
            Completion(
                text=self.policy.text(result.token_ids),
                prompt_token_ids=request.prompt_ids,
                token_ids=tuple(result.token_ids),
                logprobs=tuple(result.logprobs),
                weight_versions=(self.version,) * len(result.token_ids),
                sampling=request.sampling,
            )
            for request, result in zip(requests, generated, strict=True)
        ]

    def load(self, version: int, state: dict[str, Tensor]) -> None:
        """Replaces the weights; what is sampled from now on carries `version`.

        Raises:
            PolicyError: The weights are of another policy; the old ones stay.
        """
        self.policy.load_published(state)
        self.version = version


class _ImageCache:
    """Decoded images by digest, the least recently used leave first."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self._lock = threading.Lock()
        self._images: OrderedDict[str, Tensor] = OrderedDict()

    def get(self, digest: str) -> Tensor | None:
        with self._lock:
            if digest in self._images:
                self._images.move_to_end(digest)
            return self._images.get(digest)

    def put(self, digest: str, image: Tensor) -> None:
        with self._lock:
            if digest in self._images or image.nbytes > self._max_bytes:
                return
            self._images[digest] = image
            self._num_bytes += image.nbytes
            while self._num_bytes > self._max_bytes:
                _, oldest = self._images.popitem(last=False)
                self._num_bytes -= oldest.nbytes
