"""The engine on vLLM: continuous batching in a process of its own. The one file that imports vllm.

    engine thread: submit, load ──► loop thread: one task per request ⇄ vLLM's process (model, caches)
                                        │ on_done: completion or error

Adapters: each version is loaded under an id of its own before the first request takes it, and a request ends
with the one that it began with. vLLM's caches distinguish adapters. With all slots in use a new version
waits, and requests continue. Full weights: running requests are paused with the tokens, keys and values that
they have, the weights are replaced, and requests go on with the new ones (Piché et al. 2025, "PipelineRL").
vLLM reports which version sampled which token, and later requests share no keys and values with earlier ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import replace
from typing import Any, TypeVar

import torch
from PIL import Image
from torch import Tensor
from vllm import AsyncEngineArgs, SamplingParams
from vllm.distributed.weight_transfer.base import WeightTransferInitRequest, WeightTransferUpdateRequest
from vllm.lora.request import LoRARequest
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.sample.logits_processor import LogitsProcessor as FirstProcessor
from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcessor as SecondProcessor

from distrl.configs.schema import Config
from distrl.core.errors import ContextFull, DistrlError, PolicyError
from distrl.core.files import Scratch
from distrl.core.policies import weights_io
from distrl.core.policies.base import CONFIG_KEY, Generated
from distrl.core.policies.hub import HubPolicy
from distrl.core.policies.hub_images import exchange
from distrl.core.transfer import Transfer
from distrl.core.types import NO_PREFIX, ChatMessage, Prefix, Sampling
from distrl.workers.inference.adapter_slots import Adapter, AdapterSlots
from distrl.workers.inference.engine import Engine, OnDone, Prepared, Result, within
from distrl.workers.inference.vllm_options import (
    ALLOWED_TOKENS,
    end_with_server,
    engine_arguments,
    max_adapters,
    max_images,
    max_model_len,
    quieten,
)

JOIN_S = 5.0

T = TypeVar("T")


class LoopThread:
    """Runs coroutines for other threads."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float) -> T:
        """Runs a coroutine to its end, at most `timeout_s`, and waits for it. Not from the loop's thread."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(timeout_s)
        finally:
            future.cancel()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Starts a coroutine that must see to its own errors."""
        asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """Cancels what runs, waits for it, and ends the thread. May be called twice."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(JOIN_S)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        self._loop.close()


START_S = 1800.0  # large models are read from disk and compiled
LOAD_S = 600.0
CONTROL_S = 120.0  # until it has joined or received, sleeps or is awake
STOP_S = 2.0
POLL_S = 0.01
MIN_TEMPERATURE = 0.01  # vLLM samples at this one when it is asked for less


class AllowedTokens(FirstProcessor, SecondProcessor):  # type: ignore[misc]
    """Leaves only those tokens that the policy may sample, in vLLM's processes; these end with the server.

    It is a processor of both of vLLM's model runners, of which GPUs get the second, and CPUs the first.

    Args:
        where: The device; the second runner's record of its requests names it.
    """

    def __init__(self, vllm_config: Any, where: Any, is_pin_memory: bool = False) -> None:
        end_with_server()
        quieten()
        allowed = vllm_config.additional_config[ALLOWED_TOKENS]
        self._masked = torch.ones(vllm_config.model_config.get_vocab_size(), dtype=torch.bool)
        self._masked[allowed] = False
        self._masked = self._masked.to(where if isinstance(where, torch.device) else where.device)

    def is_argmax_invariant(self) -> bool:
        """The likeliest token may be one of the others."""
        return False

    def update_state(self, batch_update: object) -> None:
        """All requests are alike."""

    def apply(self, logits: Tensor, context: object = None) -> Tensor:
        """[B, V] logits, the others' at minus infinity; in place."""
        return logits.masked_fill_(self._masked, float("-inf"))


class VLLMEngine(Engine):
    """vLLM behind the interface of engines.

    The policy has no weights: it reads chats, writes texts, and says which tensors published weights have.
    `seed` is that of the sampling; which request meets which random numbers depends on their timing.
    """

    policy: HubPolicy
    is_continuous = True

    def __init__(self, policy: HubPolicy, config: Config, seed: int) -> None:
        super().__init__(policy)
        self._max_model_len = max_model_len(config, policy.longest_sequence)
        self._max_images = max_images(config)
        self._numbers = itertools.count()
        self._running: set[asyncio.Task[None]] = set()  # belongs to the loop's thread
        self._num_cached_tokens = self._num_swaps = 0
        self._is_closed = self._is_asleep = False
        self._broken: DistrlError | None = None
        arguments = engine_arguments(config, policy, seed)
        self._scratch = Scratch("vllm")
        adapter = policy.published_metadata().get(CONFIG_KEY)
        slots = None if adapter is None else AdapterSlots(self._scratch.path, adapter, max_adapters(config))
        self._adapters = slots
        self._loop = LoopThread("vllm-loop")
        try:
            self._llm: Any = self._loop.run(_start(arguments), START_S)
        except Exception as error:
            self._loop.close()
            self._scratch.remove()
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise PolicyError(
                f"vLLM does not start with policy.model {config.hub_policy.model!r}: {reason}",
                "Its log is above. If memory is short, lower gpu_memory_utilization, kv_cache_gb or "
                "max_model_len in inference.engine. If vLLM does not support the model, use the engine hf.",
            ) from error

    # ---- any thread ----

    def prepare(
        self,
        messages: Sequence[ChatMessage],
        images: Mapping[str, bytes | memoryview],
        sampling: Sampling,
        prefix: Prefix = NO_PREFIX,
    ) -> Prepared:
        prepared = super().prepare(messages, images, sampling, prefix)
        length, shown = len(prepared.prompt_ids), len(prepared.images)
        if shown > self._max_images:
            raise ContextFull(
                f"The sequence shows {shown} pictures, and inference.engine.images_per_prompt is "
                f"{self._max_images}.",
                "Raise it.",
            )
        room = within(self._max_model_len, "inference.engine.max_model_len", length, prepared.sampling)
        return replace(prepared, sampling=room)

    # ---- engine thread ----

    def submit(self, requests: Sequence[Prepared], on_done: OnDone) -> None:
        """Starts requests with the weights of now; each answers for itself."""
        for index, request in enumerate(requests):
            adapter = self._adapters.acquire() if self._adapters is not None else None
            self._loop.spawn(self._serve(index, request, self.version, adapter, on_done))

    def can_load(self) -> bool:
        """Whether vLLM is awake, and an adapter finds a free slot; full weights always find room."""
        return not self._is_asleep and (self._adapters is None or self._adapters.has_room)

    def load(self, version: int, state: dict[str, Tensor]) -> None:
        """Loads an adapter beside those in use, or replaces all weights while requests are paused."""
        self.policy.load_published(state)  # only looks whether they fit: there is nothing to copy them to
        try:
            if self._adapters is not None:
                self._load_adapter(self._adapters, version, state)
            else:
                self._load_all(version, state)
        except DistrlError:
            raise
        except Exception as error:
            raise PolicyError(
                f"vLLM cannot load weights {version}: {str(error) or type(error).__name__}",
                "See its log above.",
            ) from error
        self.version = version

    def join(self, transfer: Transfer, offset: int) -> None:
        """Joins the group of a transfer by its ranks from `offset` on; leaves an earlier one.

        Raises:
            DistrlError: It has not ended in time, and may never.
        """
        if weights_io.layout(self.policy.published_state())[1] != transfer.layout:
            raise ValueError("the learner's tensors have other names, types or shapes")
        info = {"master_address": transfer.host, "master_port": transfer.port, "packed": True}
        info |= {"rank_offset": offset, "world_size": transfer.num_ranks}
        self._in_time(self._llm.shutdown_weight_transfer_engine(), "leave the learner's last group")
        joined = self._llm.init_weight_transfer_engine(WeightTransferInitRequest(info))
        self._in_time(joined, "join the learner's group")

    def receive(self, version: int) -> None:
        """Receives the weights that the learner broadcasts; requests are paused meanwhile. Raises as `join`.

        After another error requests stay paused until `load` has put in all weights.
        """
        self._in_time(self._replace_weights(version, self._receive()), f"receive weights {version}")
        self.version = version

    def sleep(self) -> None:
        """Frees the GPU; requests are kept, and their keys and values computed again after `wake`."""
        self._in_time(self._sleep(), "free the GPU")
        self._is_asleep = True

    def wake(self) -> None:
        """Takes the GPU again, and goes on with all requests."""
        self._in_time(self._llm.wake_up(), "take the GPU")
        self._is_asleep = False

    def _in_time(self, work: Coroutine[Any, Any, object], what: str) -> None:
        try:
            self._loop.run(work, CONTROL_S)
        except FutureTimeout as error:
            raise DistrlError(
                f"vLLM did not {what} within {CONTROL_S:g} s.",
                "See its log above, and start the server again.",
            ) from error

    def _load_adapter(self, slots: AdapterSlots, version: int, state: dict[str, Tensor]) -> None:
        adapter = slots.add(version, state)
        self._loop.run(self._llm.add_lora(_lora_request(adapter)), LOAD_S)
        former = slots.activate(adapter)
        if former is not None:
            self._loop.spawn(self._unload(slots, former))

    def _load_all(self, version: int, state: dict[str, Tensor]) -> None:
        directory = self._scratch.path / "weights"
        directory.mkdir(exist_ok=True)
        file = directory / "model.safetensors"
        try:
            # The policy's names are those of its model, one level down.
            renamed = {name.removeprefix("model."): tensor for name, tensor in state.items()}
            weights_io.write(file, renamed, is_durable=False)
            reload = self._llm.collective_rpc("reload_weights", kwargs={"weights_path": str(directory)})
            self._loop.run(self._replace_weights(version, reload), LOAD_S)
        finally:
            file.unlink(missing_ok=True)

    # ---- loop thread ----

    async def _replace_weights(self, version: int, installed: Awaitable[object]) -> None:
        """Pauses all requests until the weights of a version are installed.

        If that fails, they stay paused: the weights may be half the new ones.
        """
        await self._llm.pause_generation(mode="keep", clear_cache=False)
        await installed
        await self._llm.reset_encoder_cache()
        await self._llm.update_weight_version(str(version))
        self._num_swaps += 1
        await self._llm.resume_generation()

    async def _receive(self) -> None:
        tensors, _ = weights_io.layout(self.policy.published_state())
        names = [name.removeprefix("model.") for name in tensors["names"]]
        await self._llm.start_weight_update()
        await self._llm.update_weights(WeightTransferUpdateRequest({**tensors, "names": names}))
        await self._llm.finish_weight_update()

    async def _sleep(self) -> None:
        # The first model runner cannot read a kept request's pictures again if the prefix cache had them.
        # vLLM forgets pictures on both sides; a request must not be on its way between them.
        while len(self._llm.output_processor.request_states) < len(self._running):
            await asyncio.sleep(POLL_S)
        await self._llm.sleep(level=1, mode="keep")

    async def _unload(self, slots: AdapterSlots, adapter: Adapter) -> None:
        if self._is_closed:  # all go with vLLM
            return
        try:
            await self._llm.remove_lora(adapter.id)
        except Exception as error:  # noqa: BLE001 - raised by `check`: new versions would wait for its slot
            message = f"vLLM cannot unload the adapter of version {adapter.version}: {error}"
            self._broken = DistrlError(message, "See its log above, and start the server again.")
            return
        slots.drop(adapter)

    async def _serve(
        self, index: int, request: Prepared, version: int, adapter: Adapter | None, on_done: OnDone
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        result: Result = RuntimeError("the engine has been closed")
        try:
            result = await self._complete(request, version, adapter)
        except Exception as error:  # noqa: BLE001 - what fails must not end the service for everybody
            result = error
        finally:  # also when it is cancelled
            self._running.discard(task)
            on_done(index, result)
            if self._adapters is not None and adapter is not None and self._adapters.release(adapter):
                await self._unload(self._adapters, adapter)

    async def _complete(self, request: Prepared, version: int, adapter: Adapter | None) -> Result:
        prompt = {**self._prompt(request), "cache_salt": str(self._num_swaps)}
        params = self._params(request.sampling)
        lora = _lora_request(adapter) if adapter is not None else None
        final = None
        try:
            async for output in self._llm.generate(
                prompt, params, str(next(self._numbers)), lora_request=lora
            ):
                final = output
        except ValueError as error:  # vLLM's word for what is wrong with a request
            raise PolicyError(f"vLLM refuses the request: {error}") from error
        assert final is not None, "vLLM ended a request without a word"
        if tuple(final.prompt_token_ids) != request.prompt_ids:
            raise PolicyError(
                f"vLLM reads {len(final.prompt_token_ids)} tokens where the policy has "
                f"{len(request.prompt_ids)}: it sees pictures at another size.",
                "Use the image processor of transformers' version on both sides, or inference.engine hf.",
            )
        self._num_cached_tokens += final.num_cached_tokens or 0
        (answer,) = final.outputs
        if answer.finish_reason not in ("stop", "length"):
            raise RuntimeError(f"vLLM aborted a request: {answer.finish_reason}")
        logprobs = [at[token].logprob for token, at in zip(answer.token_ids, answer.logprobs, strict=True)]
        most = request.sampling.top_logprobs  # tokens; none that could not be drawn
        top = [
            tuple((token, one.logprob) for token, one in ranked if one.logprob > float("-inf"))[:most]
            for ranked in (sorted(at.items(), key=lambda item: item[1].rank) for at in answer.logprobs)
        ]
        generated = Generated(list(answer.token_ids), logprobs, top)
        completion = self.completion(request, generated, version)
        if adapter is None and (spans := answer.weight_versions):
            names = [one.version for one in spans for _ in range(one.start, one.end)]
            versions = [int(name) if name.isdigit() else version for name in names]
            # What was submitted before a swap may have read its prompt by both weights: its tokens name both.
            versions[0] = min(version, versions[0])
            completion = completion.model_copy(update={"weight_versions": tuple(versions)})
        return completion

    def _prompt(self, request: Prepared) -> dict[str, Any]:
        """vLLM wants one placeholder per picture, and puts in as many as it takes itself."""
        self.policy.verify(request.prompt_ids, request.images)
        counts = [self.policy.image_tokens(image) for image in request.images]
        ids = exchange(request.prompt_ids, self.policy.image_token, counts, [1] * len(counts))
        prompt: dict[str, Any] = {"prompt_token_ids": ids}
        if request.images:
            prompt["multi_modal_data"] = {"image": [_picture(image) for image in request.images]}
        return prompt

    def _params(self, sampling: Sampling) -> SamplingParams:
        if 0.0 < sampling.temperature < MIN_TEMPERATURE:
            raise PolicyError(
                f"vLLM cannot sample at temperature {sampling.temperature:g}.",
                f"Set 0 (greedy) or at least {MIN_TEMPERATURE}.",
            )
        return SamplingParams(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            max_tokens=sampling.max_new_tokens,
            stop_token_ids=self.policy.end_ids,
            ignore_eos=True,  # the policy's own ends are all there are
            logprobs=sampling.top_logprobs,  # beside that of the sampled token
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )

    # ---- any thread ----

    def check(self) -> None:
        if not self._is_closed and self._llm.errored:
            raise DistrlError(
                "vLLM's process has died.", "Its log is above; it may need more memory than there is."
            )
        if self._broken is not None:
            raise self._broken

    def stats(self) -> dict[str, float]:
        """How many versions of an adapter are held; prompt tokens that the prefix cache has saved so far."""
        held = len(self._adapters) if self._adapters is not None else 0
        return {"adapters": float(held), "cached_tokens": float(self._num_cached_tokens)}

    def close(self) -> None:
        """Ends vLLM's process, however busy it is; requests that run fail."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            with contextlib.suppress(FutureTimeout):  # the loop's end cancels what has not ended yet
                self._loop.run(self._cancel(), STOP_S)
            self._llm.shutdown(timeout=STOP_S)
        finally:
            self._llm = None  # its destructor must not wait for the interpreter's end
            self._loop.close()
            self._scratch.remove()

    async def _cancel(self) -> None:
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _start(arguments: dict[str, Any]) -> Any:
    return AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments))


def _lora_request(adapter: Adapter) -> LoRARequest:
    return LoRARequest(f"adapter-{adapter.id}", adapter.id, str(adapter.directory))


def _picture(image: Tensor) -> Image.Image:
    """[3, H, W] uint8 as vLLM takes it; the policy has resized it already."""
    return Image.fromarray(image.permute(1, 2, 0).contiguous().numpy())
