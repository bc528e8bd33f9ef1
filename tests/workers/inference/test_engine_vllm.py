"""vLLM itself against transformers, on tiny random models of two families."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import MagicMock

import pytest

pytest.importorskip("torch", reason="needs torch: not installed")

import killed_vllm_server
import psutil
import torch
from policy_fakes import chat, png
from serving_world import LORA, WAIT_S, make_config, request, scores, show, submit, weights
from tiny_qwen import FAMILIES
from waiting import until

from distrl.configs.schema import Config
from distrl.core.errors import ContextFull, DistrlError, PolicyError
from distrl.core.messages import Status
from distrl.core.policies.hub import HubPolicy
from distrl.core.sockets import Wire
from distrl.core.transfer import Transfer
from distrl.core.types import Completion, Prefix, Sampling, image_digest
from distrl.learner.server import Endpoints
from distrl.learner.transfer import WeightTransfer
from distrl.workers.inference.control import EngineControl
from distrl.workers.inference.engine import HFEngine, Prepared
from distrl.workers.inference.serve import serve_checkpoint, start_vllm
from distrl.workers.inference.vllm_options import ALLOWED_TOKENS, LOGITS_PROCESSOR

if TYPE_CHECKING:
    from distrl.workers.inference.engine_vllm import VLLMEngine

pytestmark = [pytest.mark.needs("vllm"), pytest.mark.timeout(600)]

TOLERANCE = 2e-4  # of a log-probability, nats; float32
TEXTS = ["open settings", "red shoes", "turn on the alarm at 7:20", "x"]
SAMPLINGS = [
    Sampling(temperature=0.0, max_new_tokens=12),
    Sampling(temperature=1.0, max_new_tokens=40),
    Sampling(temperature=0.6, max_new_tokens=24),
    Sampling(temperature=1.3, top_p=0.8, top_k=20, max_new_tokens=16),
]


class Pair:
    """The same model behind both engines."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.policy = HubPolicy(config.policy, [], 0).eval()
        self.hf = HFEngine(self.policy, 0)
        self.start = {name: tensor.clone() for name, tensor in self.policy.published_state().items()}
        self.vllm: VLLMEngine = start_vllm(config, "a")
        self.states: dict[int, dict[str, torch.Tensor]] = {}

    def load(self, version: int) -> None:
        """New weights for vLLM."""
        self.policy.load_published(self.start)
        self.states[version] = weights(self.policy, version)
        until(self.vllm.can_load, "a free slot", WAIT_S)
        self.vllm.load(version, self.states[version])

    def expect(self, requests: Sequence[Prepared], completions: Sequence[Completion]) -> None:
        """Each completion is what the weights of its version would have answered."""
        for version in {one.weight_versions[0] for one in completions}:
            self.hf.load(version, self.states[version])
            pairs = [
                (r, one)
                for r, one in zip(requests, completions, strict=True)
                if one.weight_versions[0] == version
            ]
            mine, answers = [r for r, _ in pairs], [one for _, one in pairs]
            plain = [i for i, r in enumerate(mine) if r.sampling.top_p == 1.0]
            found = [value for i in plain for value in answers[i].logprobs]
            expected = scores(self.policy, [mine[i] for i in plain], [answers[i] for i in plain])
            assert found == pytest.approx(expected, abs=TOLERANCE)
            greedy = [i for i, r in enumerate(mine) if r.sampling.temperature == 0.0]
            reference = self.hf.act([mine[i] for i in greedy])
            for i, one in zip(greedy, reference, strict=True):
                assert answers[i].token_ids == one.token_ids
                assert answers[i].text == one.text
                assert answers[i].logprobs == pytest.approx(one.logprobs, abs=TOLERANCE)

    def expect_tokens(self, requests: Sequence[Prepared], completions: Sequence[Completion]) -> None:
        """Each token is as probable as by the weights of its version, until they were replaced.

        A first token alone may have been sampled after that, see `VLLMEngine`.
        """
        by = []
        for one in completions:
            first, count = one.weight_versions[0], one.weight_versions.count(one.weight_versions[0])
            known = count if count > 1 else 0
            by += [first] * known + [-1] * (len(one.token_ids) - known)
        found = [value for one in completions for value in one.logprobs]
        for version in set(by) - {-1}:
            self.hf.load(version, self.states[version])
            expected = scores(self.policy, requests, completions)
            of = [i for i, its in enumerate(by) if its == version]
            assert [found[i] for i in of] == pytest.approx([expected[i] for i in of], abs=TOLERANCE)

    def children(self) -> list[psutil.Process]:
        return psutil.Process().children(recursive=True)


@pytest.fixture(scope="module")
def save(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    def _save(family: str) -> Path:
        directory: Path = tmp_path_factory.mktemp("models") / family
        FAMILIES[family](directory)
        return directory

    return _save


@pytest.fixture(scope="module", params=list(FAMILIES))
def adapted(request: pytest.FixtureRequest, save: Callable[[str], Path]) -> Iterator[Pair]:
    pair = Pair(make_config(save(request.param), LORA))
    yield pair
    pair.vllm.close()


@pytest.fixture(scope="module")
def full(save: Callable[[str], Path]) -> Iterator[Pair]:
    pair = Pair(make_config(save("qwen2.5-vl"), None))
    yield pair
    pair.vllm.close()


def test_both_model_runners_of_vllm_keep_to_the_policy_s_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.v1.sample.logits_processor import build_logitsprocs
    from vllm.v1.worker.gpu.sample.logits_processor import build_custom_logits_processors

    config, device = MagicMock(speculative_config=None), torch.device("cpu")
    config.model_config.get_vocab_size.return_value = 5
    config.additional_config = {ALLOWED_TOKENS: [1, 3]}
    first = build_logitsprocs(config, device, False, False, (LOGITS_PROCESSOR,))
    (second,) = build_custom_logits_processors(config, MagicMock(device=device), False, (LOGITS_PROCESSOR,))
    (own,) = (one for one in first.non_argmax_invariant if type(one) is type(second))
    expected = torch.tensor([[-math.inf, 0.0, -math.inf, 0.0, -math.inf]] * 2)
    assert torch.equal(own.apply(torch.zeros(2, 5)), expected)
    assert torch.equal(second.apply(torch.zeros(2, 5), None), expected)


def mixed(pair: Pair, count: int) -> list[Prepared]:
    return [
        request(pair.vllm, TEXTS[n % len(TEXTS)], SAMPLINGS[n % 3 if n % 4 else 3], picture=n % 2)
        for n in range(count)
    ]


def swap_under_load(pair: Pair, first_version: int) -> None:
    """Four versions, each loaded while requests of the one before run: none is lost or mixed."""
    requests = mixed(pair, 8)
    running = []
    for version in range(first_version, first_version + 4):
        pair.load(version)
        running.append((version, submit(pair.vllm, requests)))
    for version, answers in running:
        completions = answers.completions()
        assert {v for one in completions for v in one.weight_versions} == {version}
        check_tokens(completions)
        pair.expect(requests, completions)


def check_tokens(completions: Sequence[Completion]) -> None:
    """Everything is there for each token, and only tokens were sampled that may be."""
    for one in completions:
        assert len(one.token_ids) == len(one.logprobs) == len(one.weight_versions) > 0
        assert not set(one.token_ids) & (set(range(7)) - {1})


def test_adapters_are_swapped_under_load_and_answer_as_transformers_does(adapted: Pair) -> None:
    swap_under_load(adapted, 1)
    held = Path(adapted.vllm._scratch.path)
    until(lambda: len(list(held.glob("adapter-*"))) == 1, "old adapters are unloaded and their files deleted")
    assert adapted.vllm.stats()["adapters"] == 1
    assert len(adapted.vllm._loop.run(adapted.vllm._llm.list_loras(), WAIT_S)) == 1
    adapted.vllm.check()


def test_requests_go_on_with_new_weights_and_each_token_names_its_own(full: Pair) -> None:
    plain = [Sampling(temperature=t, max_new_tokens=90) for t in (0.6, 1.0, 1.3)]
    requests = [request(full.vllm, TEXTS[n % 4], plain[n % 3], picture=n % 2) for n in range(8)]
    full.load(1)
    answers = submit(full.vllm, requests)
    for version in (2, 3, 4):
        full.load(version)
    completions = answers.completions()
    check_tokens(completions)
    versions = [one.weight_versions for one in completions]
    full.expect_tokens(requests, completions)
    assert any(len(set(row)) > 1 for row in versions), "no request was running during a swap"
    assert all(list(row) == sorted(row) and set(row) <= {1, 2, 3, 4} for row in versions)
    assert not list(Path(full.vllm._scratch.path).rglob("*.safetensors"))


def test_what_is_submitted_after_a_swap_answers_as_transformers_does(full: Pair) -> None:
    requests = mixed(full, 8)
    full.load(5)
    completions = submit(full.vllm, requests).completions()
    assert {v for one in completions for v in one.weight_versions} == {5}
    full.expect(requests, completions)


def test_the_most_probable_tokens_are_those_that_could_be_drawn(full: Pair) -> None:
    """Others have a log-probability of minus infinity, which JSON does not have."""
    full.load(401)
    asked = request(full.vllm, "red", Sampling(top_k=2, max_new_tokens=4, top_logprobs=5))
    (found,) = submit(full.vllm, [asked]).completions()
    assert [len(row) for row in found.top_logprobs] == [2] * len(found.token_ids)
    assert all(token in dict(row) for token, row in zip(found.token_ids, found.top_logprobs, strict=True))


def test_several_pictures_and_sequences_that_go_on_are_read_alike(adapted: Pair) -> None:
    adapted.load(700)
    engine = adapted.vllm
    two = show(engine, [0, 1], "which is red")
    (first,) = submit(engine, [two]).completions()
    digests = tuple(image_digest(png(number)) for number in (0, 1))
    prefix = Prefix(token_ids=(*two.prompt_ids, *first.token_ids), images=digests)
    on = show(engine, [2], "and now", prefix)
    (second,) = submit(engine, [on]).completions()
    assert on.prompt_ids == (*prefix.token_ids, *second.prompt_token_ids), "only what is new is sent back"
    assert len(on.images) == 3
    adapted.expect([two, on], [first, second])


def test_a_policy_with_an_adapter_is_served_as_it_begins(save: Callable[[str], Path], wire: Wire) -> None:
    config = make_config(save("qwen2.5-vl"), LORA)
    images, greedy = {image_digest(png(1)): png(1)}, Sampling(temperature=0.0, max_new_tokens=8)
    asked = chat("open settings", *images)
    with serve_checkpoint(config, [], None, wire) as server:
        found = server.complete(asked, images, greedy, WAIT_S)
        server.check()
    hf = HFEngine(HubPolicy(config.policy, [], 0).eval(), 0)
    (expected,) = hf.act([hf.prepare(asked, images, greedy)])
    assert found.token_ids == expected.token_ids
    assert found.logprobs == pytest.approx(expected.logprobs, abs=TOLERANCE)
    assert set(found.weight_versions) == {0}


LONG = "the quick brown fox jumps over the lazy dog " * 2


def prefix_cache(pair: Pair) -> None:
    greedy = [request(pair.vllm, LONG, Sampling(temperature=0.0, max_new_tokens=8))]
    found = {}
    for version in (11, 12):
        pair.load(version)
        before = pair.vllm.stats()["cached_tokens"]
        first = submit(pair.vllm, greedy).completions()
        assert pair.vllm.stats()["cached_tokens"] == before, "keys and values of other weights were used"
        again = submit(pair.vllm, greedy).completions()
        assert pair.vllm.stats()["cached_tokens"] > before, "the prompt is too short to be cached"
        assert again[0].token_ids == first[0].token_ids
        pair.expect([*greedy, *greedy], [*first, *again])
        found[version] = first[0].logprobs
    assert found[11] != pytest.approx(found[12], abs=TOLERANCE)


def test_the_prefix_cache_never_mixes_adapters(adapted: Pair) -> None:
    prefix_cache(adapted)


def test_the_prefix_cache_never_mixes_weights(full: Pair) -> None:
    prefix_cache(full)
    before = full.vllm.stats()["cached_tokens"]
    full.vllm.load(12, weights(full.policy, 13))  # as another run may number its own
    submit(full.vllm, [request(full.vllm, LONG, Sampling(temperature=0.0, max_new_tokens=8))]).wait()
    assert full.vllm.stats()["cached_tokens"] == before


@pytest.mark.parametrize("adapted", ["qwen2.5-vl"], indirect=True)
def test_what_is_wrong_with_a_request_is_its_own_fault(adapted: Pair) -> None:
    adapted.load(400)
    engine = adapted.vllm
    good = request(engine, "red", Sampling(temperature=0.0, max_new_tokens=4))
    cold = Prepared(good.prompt_ids, good.images, Sampling(temperature=0.001))
    small = Prepared(good.prompt_ids, (good.images[0][:, :32, :32],), good.sampling)
    place = engine.policy.image_token
    start, size = good.prompt_ids.index(place), good.prompt_ids.count(place)
    tokens = (*good.prompt_ids[:start], *[place] * 8, *good.prompt_ids[start + size :])
    large = Prepared(
        tokens, (torch.zeros(3, 28, 8 * 28, dtype=torch.uint8),), good.sampling
    )  # 6 are the most
    results = submit(engine, [good, cold, small, large, good]).wait()
    assert isinstance(results[0], Completion)
    assert isinstance(results[4], Completion)
    for result, part in zip(results[1:4], ("Temperature", "placeholders", "another size"), strict=True):
        assert isinstance(result, PolicyError)
        assert part in str(result)


@pytest.mark.parametrize("adapted", ["qwen2.5-vl"], indirect=True)
def test_a_sequence_that_vllm_has_no_room_for_is_full(adapted: Pair) -> None:
    engine = adapted.vllm

    def after(length: int) -> Prepared:
        return show(engine, [], "on", Prefix(token_ids=(20,) * length, images=()))

    added = len(after(10).prompt_ids) - 10
    free = engine._max_model_len - added
    assert after(free - 5).sampling.max_new_tokens == 5
    with pytest.raises(ContextFull, match="max_model_len"):
        after(free)
    with pytest.raises(ContextFull, match="images_per_prompt is 3"):
        show(engine, [0, 1, 2, 3], "red")


def test_what_hangs_in_vllm_holds_up_neither_other_requests_nor_the_end(
    save: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = start_vllm(make_config(save("qwen2.5-vl"), LORA, max_adapters=2), "a")
    own = Path(engine._scratch.path)
    processes = engine._llm.engine_core.resources.engine_manager.processes
    assert processes
    zeros = {name: torch.zeros(one.shape) for name, one in engine.policy.published_state().items()}
    one = request(engine, "red", Sampling(max_new_tokens=2))
    unloaded: list[int] = []

    async def unload(number: int) -> None:
        unloaded.append(number)

    async def hang(*_: object, **__: object) -> AsyncIterator[None]:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.Event().wait()  # nor does it end when it is told to
        yield

    try:
        engine.load(1, zeros)
        monkeypatch.setattr(engine._llm, "remove_lora", unload)
        with monkeypatch.context() as patch:
            patch.setattr(engine._llm, "generate", hang)
            stuck = submit(engine, [one])
            until(lambda: engine._running, "it runs")
        engine.load(2, zeros)
        assert not engine.can_load(), "the stuck request keeps the first version"
        (other,) = submit(engine, [one]).completions()
        assert set(other.weight_versions) == {2}
    finally:
        engine.close()
    (result,) = stuck.wait()
    assert isinstance(result, RuntimeError)
    assert not unloaded, "vLLM is asked for nothing more when it is closed"
    assert not own.exists()
    until(lambda: not any(process.is_alive() for process in processes), "vLLM's processes end")


@pytest.mark.parametrize("adapted", ["qwen2.5-vl"], indirect=True)
def test_weights_that_do_not_fit_change_nothing(adapted: Pair) -> None:
    adapted.load(500)
    with pytest.raises(PolicyError, match=r"[Tt]ensor"):
        adapted.vllm.load(501, {"other": torch.zeros(1)})
    assert adapted.vllm.version == 500
    good = [request(adapted.vllm, "red", Sampling(temperature=0.0, max_new_tokens=4))]
    adapted.expect(good, submit(adapted.vllm, good).completions())


def test_a_dead_process_is_noticed_and_every_request_is_answered(full: Pair) -> None:
    full.load(600)
    answers = submit(full.vllm, mixed(full, 8))
    for process in full.children():
        os.kill(process.pid, signal.SIGKILL)
    results = answers.wait()
    assert any(isinstance(result, Exception) for result in results)
    until(lambda: full.vllm._llm.errored, "vLLM notices")
    with pytest.raises(DistrlError, match="has died"):
        full.vllm.check()


def test_vllm_ends_with_a_server_that_is_killed(save: Callable[[str], Path], tmp_path: Path) -> None:
    noted = tmp_path / "pids"
    command = [sys.executable, killed_vllm_server.__file__, str(save("qwen2.5-vl")), str(noted)]
    with (tmp_path / "log").open("wb") as log:  # no pipe: whoever is left would hold it open
        ended = subprocess.run(command, stdout=log, stderr=log, timeout=3 * WAIT_S, check=False)
    assert ended.returncode == -signal.SIGKILL, (tmp_path / "log").read_text()
    left = [psutil.Process(int(pid)) for pid in noted.read_text().split() if psutil.pid_exists(int(pid))]
    try:
        until(lambda: all(map(is_over, left)), "vLLM's processes end")
    finally:
        for process in left:
            if not is_over(process):
                process.kill()


def is_over(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


class Learner:
    """Announces transfers to one engine, as broadcasts would, and has its answers."""

    def __init__(self, engine: VLLMEngine) -> None:
        self.endpoints = Endpoints(*["tcp://127.0.0.1:9"] * 3)
        self.control = EngineControl(engine, "a", 1, report=lambda: None, on_received=print)
        self._server = ThreadPoolExecutor(1)  # its engine thread

    def announce_transfer(self, transfer: Transfer | None) -> None:
        self.control.heard(Status(run_id="run", phase="training", transfer=transfer))
        self._server.submit(self.control.act)

    def server_stats(self) -> dict[str, dict[str, float]]:
        return {"a": self.control.stats()}


def test_weights_arrive_by_vllm_s_transfer_while_requests_are_kept(save: Callable[[str], Path]) -> None:
    import tcp_transfer

    options = {"block_size": 32, "worker_extension_cls": tcp_transfer.WORKER_EXTENSION}
    config = make_config(save("qwen2.5-vl"), None, options=options)
    pair = Pair(config.model_copy(update={"learner": config.learner.model_copy(update={"transfer": "nccl"})}))
    try:
        learner = Learner(pair.vllm)
        transfer = WeightTransfer(learner)
        pair.load(1)
        requests = [
            request(pair.vllm, text, Sampling(temperature=1.0, max_new_tokens=90), picture=n % 2)
            for n, text in enumerate([*TEXTS, *TEXTS])
        ]
        answers = submit(pair.vllm, requests)
        for version in (2, 3):
            pair.policy.load_published(pair.start)
            pair.states[version] = weights(pair.policy, version)
            assert transfer.send(pair.states[version], version)
            assert pair.vllm.version == version
        completions = answers.completions()
        check_tokens(completions)
        assert any(len(set(one.weight_versions)) > 1 for one in completions), "nothing ran during a transfer"
        pair.expect_tokens(requests, completions)
        again = submit(pair.vllm, mixed(pair, 8)).completions()
        assert {v for one in again for v in one.weight_versions} == {3}
        pair.expect(mixed(pair, 8), again)

        # A transfer that breaks off leaves requests paused; the version that comes in chunks lets them go on.
        answers = submit(pair.vllm, requests)
        whole = weights(pair.policy, 4)
        assert not transfer.send({**whole, max(whole): torch.zeros(1)}, 4)
        assert pair.vllm.version == 3
        pair.load(4)
        completions = answers.completions()
        assert {one.weight_versions[-1] for one in completions} <= {3, 4}
        pair.expect_tokens(requests, completions)
    finally:
        pair.vllm.close()
