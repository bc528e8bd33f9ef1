"""The engine on transformers: a policy, its weight version, and whole batches of completions.

`prepare` may run in another thread than `submit` and `load`: it only reads the tokenizer, and decoded images,
which have a lock and threads of their own. `submit` runs its batch before it returns, in the thread of
`load`, so that weights never change within a batch.
"""

from __future__ import annotations

import logging
import threading
import traceback
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor

from distrl.core.errors import DistrlError
from distrl.core.policies.base import Generated, Policy
from distrl.core.policies.images import check_total
from distrl.core.types import NO_PREFIX, ChatMessage, Completion, Prefix, Sampling, shown_images
from distrl.workers.inference.engine import NO_WEIGHTS, OnDone, Result, tokenise

MAX_BYTES = 2**30
"""Some 550 screenshots as a model reads them at 660,000 pixels: in mode `incremental`, in which each request
shows all pictures of its episode so far, those of 36 slots at their fifteenth step."""
DECODERS = 4  # threads; Pillow lets others run while it decodes and resizes


class DecodedImages:
    """Decodes pictures, several at a time, and keeps them by digest; the least recently used leave first.

    Any thread. The threads that decode are idle between requests, and end with this object.

    Args:
        decode: From encoded bytes to what the policy reads; called by several threads at once.
        max_bytes: So much is kept at most.
    """

    def __init__(self, decode: Callable[[bytes], Tensor], max_bytes: int = MAX_BYTES) -> None:
        self._decode = decode
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self._lock = threading.Lock()
        self._images: OrderedDict[str, Tensor] = OrderedDict()
        self._decoders = ThreadPoolExecutor(DECODERS, "decode")

    def of(self, digests: Sequence[str], images: Mapping[str, bytes | memoryview]) -> tuple[Tensor, ...]:
        """The pictures of `digests`, in their order.

        Args:
            digests: Which; one may be there more than once.
            images: Encoded bytes by digest.

        Raises:
            PolicyError: One is unreadable, the first of those that are; or they have too many pixels.
        """
        found = self._kept(digests)
        missing = [digest for digest in dict.fromkeys(digests) if digest not in found]
        encoded = [bytes(images[digest]) for digest in missing]
        if len(missing) > 1:  # a single one is checked when it is decoded
            check_total(encoded)
        decode_all = self._decoders.map if len(missing) > 1 else map
        decoded = decode_all(self._decode, encoded)
        for digest, image in zip(missing, decoded, strict=True):
            found[digest] = image
            self._keep(digest, image)
        return tuple(found[digest] for digest in digests)

    def _kept(self, digests: Sequence[str]) -> dict[str, Tensor]:
        with self._lock:
            found = {digest: self._images[digest] for digest in digests if digest in self._images}
            for digest in found:
                self._images.move_to_end(digest)
            return found

    def _keep(self, digest: str, image: Tensor) -> None:
        with self._lock:
            if digest in self._images or image.nbytes > self._max_bytes:
                return
            self._images[digest] = image
            self._num_bytes += image.nbytes
            while self._num_bytes > self._max_bytes:
                _, oldest = self._images.popitem(last=False)
                self._num_bytes -= oldest.nbytes


_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Prepared:
    """A request as the policy takes it.

    Attributes:
        prompt_ids: The whole sequence, up to where the completion starts.
        images: Decoded images in order of appearance.
        sampling: How the completion is drawn.
        num_prefix: How many of `prompt_ids` the request itself brought.
    """

    prompt_ids: tuple[int, ...]
    images: tuple[Tensor, ...]
    sampling: Sampling
    num_prefix: int = 0


class PolicyEngine:
    """What engines have in common that complete the chats of a `Policy`: how they read and write.

    Args:
        policy: In eval mode.
        max_cached_bytes: Bound of the decoded images that are kept for later requests, which show them again.
    """

    def __init__(self, policy: Policy, max_cached_bytes: int = MAX_BYTES) -> None:
        self.policy = policy
        self.version = NO_WEIGHTS
        self._images = DecodedImages(policy.image, max_cached_bytes)

    @property
    def name(self) -> str:
        """The policy's."""
        return self.policy.name

    @property
    def published_kind(self) -> str:
        """What weights the policy takes, "full" or "adapter"."""
        return self.policy.published_kind()

    def prepare(
        self,
        messages: Sequence[ChatMessage],
        images: Mapping[str, bytes | memoryview],
        sampling: Sampling,
        prefix: Prefix = NO_PREFIX,
    ) -> Prepared:
        """Tokenises a chat and decodes its images.

        Args:
            messages: The chat, or what comes after the prefix.
            images: Encoded bytes by digest, at least of the images that the chat and the prefix show.
            sampling: How its completion is drawn.
            prefix: The sequence that the chat goes on from; its token ids stay as they are.

        Raises:
            PolicyError: The chat is too long, or an image is unreadable.
        """
        digests = (*prefix.images, *shown_images(messages))
        decoded = self._images.of(digests, images)
        prompt = tokenise(self.policy, messages, sampling, decoded[len(prefix.images) :], prefix.token_ids)
        return Prepared(prompt.ids, decoded, prompt.sampling, prompt.num_prefix)

    def text(self, token_ids: Sequence[int]) -> str:
        """The text of sampled tokens."""
        return self.policy.text(token_ids)

    def token_bytes(self, token_id: int) -> bytes | None:
        """What a sampled token adds to a text, in UTF-8; None where the policy cannot tell."""
        return self.policy.token_bytes(token_id)

    @property
    def end_ids(self) -> Sequence[int]:
        """The tokens that end a completion."""
        return self.policy.end_ids

    def completion(self, request: Prepared, generated: Generated, version: int) -> Completion:
        """What weights of one version answered; of the prompt what the request did not bring itself."""
        token_ids = generated.token_ids
        return Completion(
            text=self.policy.text(token_ids),
            prompt_token_ids=request.prompt_ids[request.num_prefix :],
            token_ids=tuple(token_ids),
            logprobs=tuple(generated.logprobs),
            weight_versions=(version,) * len(token_ids),
            sampling=request.sampling,
            top_logprobs=tuple(generated.top) if request.sampling.top_logprobs else (),
        )


class HFEngine(PolicyEngine):
    """A policy behind batches; an `Engine`.

    Args:
        policy: On its device, in eval mode.
        seed: Seed of the sampling.
        max_cached_bytes: As in `PolicyEngine`.
    """

    is_continuous = False

    def __init__(self, policy: Policy, seed: int, max_cached_bytes: int = MAX_BYTES) -> None:
        super().__init__(policy, max_cached_bytes)
        self._generator = torch.Generator(device=policy.device).manual_seed(seed)
        self._lost: str | None = None  # what the device said when it was lost

    def submit(self, requests: Sequence[Prepared], on_done: OnDone) -> None:
        """Runs a batch. If it fails each request is tried alone, so that only the guilty fail.

        If memory was what it lacked, halves of it are tried: they need not run one by one.
        """
        failure, is_full = "", False
        try:
            results = list(zip(range(len(requests)), self.act(requests), strict=True))
        except Exception as error:  # noqa: BLE001 - what fails must not end the service for everybody
            if isinstance(error, torch.AcceleratorError):  # after which nothing of this process runs there
                self._lost = str(error)
            if len(requests) == 1:
                on_done(0, error)
                return
            is_full = isinstance(error, torch.OutOfMemoryError)
            how = "halves are" if is_full else "each is"
            _log.warning("a batch of %d failed (%s), %s tried alone", len(requests), str(error), how)
            failure = traceback.format_exc()
        if failure:  # only its text: the error itself would hold the batch's tensors while others need room
            any_failed = self._submit_parts(requests, on_done, (len(requests) + 1) // 2 if is_full else 1)
            if not any_failed and not is_full:  # else the guilty are logged
                _log.error("a batch failed of which every request succeeds alone: %s", failure)
            return
        for index, completion in results:
            on_done(index, completion)

    def _submit_parts(self, requests: Sequence[Prepared], on_done: OnDone, size: int) -> bool:
        """Runs so many requests at a time. Returns whether any failed."""
        if self.policy.device.type == "cuda" and self._lost is None:
            torch.cuda.empty_cache()
        failed: list[int] = []

        def note(index: int, result: Result) -> None:
            if isinstance(result, Exception):
                failed.append(index)
            on_done(index, result)

        for first in range(0, len(requests), size):
            part = requests[first : first + size]
            self.submit(part, lambda index, result, first=first: note(first + index, result))  # type: ignore[misc]
        return bool(failed)

    def act(self, requests: Sequence[Prepared]) -> list[Completion]:
        """One completion for each request, all with the present weights."""
        batch = self.policy.collate([r.prompt_ids for r in requests], [r.images for r in requests])
        generated = self.policy.generate(batch, [r.sampling for r in requests], self._generator)
        return [
            self.completion(request, result, self.version)
            for request, result in zip(requests, generated, strict=True)
        ]

    def load(self, version: int, state: dict[str, Tensor]) -> None:
        """Replaces the weights; what is sampled from now on carries `version`.

        Raises:
            PolicyError: The weights are of another policy; the old ones stay.
        """
        self.policy.load_published(state)
        self.version = version

    def check(self) -> None:
        """Raises a DistrlError if the device is lost: another process may have it again."""
        if self._lost is not None:
            raise DistrlError(f"The device is lost: {self._lost}", "Start the server again.")

    def stats(self) -> dict[str, float]:
        """None."""
        return {}

    def close(self) -> None:
        """Holds nothing that must be freed."""
