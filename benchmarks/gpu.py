"""What updates and answers of vision-language models cost on a GPU, part by part.

Models have real sizes and random weights, made on the device; screenshots are 1080x2400 pixels. An episode is
one sequence (`agent.options.mode: incremental`) of ten steps with answers of 256 tokens. Everything else is
`configs/qwen-vl.yaml`. Parts, in this order:

    tower      attention calls and milliseconds of the vision tower per screenshot: with a call per window, as
               transformers' sdpa makes it, and with one per layer, as the policy does on GPUs
    learner    an update of 8 trajectories with LoRA: seconds of its parts, tokens/s, FLOP/s, peak memory
    generate   `engine: hf`, a batch of `inference.max_batch`: seconds, tokens/s, actions/s, peak memory;
               KL(generate || score) of its tokens, at temperature 1 and where random weights are certain
    decode     milliseconds per token of such a batch after short prompts, with adapters and without
    formats    updates of 2 trajectories with LoRA (layers recomputed or not), and of all weights in bfloat16
               and float32: seconds, peak memory, the share of trained numbers that 4 updates do not change

    python benchmarks/gpu.py [--models qwen3-vl-2b qwen2.5-vl-7b] [--parts tower ...] [--output FILE]
    python benchmarks/gpu.py --tiny      # a small model, also on a CPU, in a minute: does it run?

Each number is printed, beside the estimate of `distrl doctor --estimate`, and as a line of JSON in --output.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import hashlib
import io
import json
import os
import random
import string
import sys
import tempfile
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import torch
from PIL import Image, ImageDraw

from distrl.cli.health.estimate import QUESTION, Subject, estimate, hardware
from distrl.configs.load import load_config
from distrl.configs.schema import Config
from distrl.core.policies import build_critic, build_policy, weights_io
from distrl.core.policies.hub_images import IN_ONE_CALL
from distrl.core.policies.images import ImageCache, Recent
from distrl.core.types import Sampling
from distrl.learner.algorithms import build_algorithm
from distrl.learner.batching import Batcher, TrajectoryBatch
from distrl.learner.episodes import Episode, GroupStats, Span, StepData, TokenSequence
from distrl.learner.mismatch import kl_of_tokens
from distrl.learner.train_step import TrainStep

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "fakes"))

# fmt: off
SIZES: dict[str, dict[str, Any]] = {  # text: `KEYS`, and the size of a head; from each model's config.json
    "qwen3-vl-2b": {"text": (2048, 6144, 28, 16, 8, 128), "vision": {
        "depth": 24, "hidden_size": 1024, "intermediate_size": 4096, "num_heads": 16, "patch_size": 16,
        "out_hidden_size": 2048, "deepstack_visual_indexes": [5, 11, 17]}},
    "qwen2.5-vl-7b": {"text": (3584, 18_944, 28, 28, 4, 128), "vision": {
        "depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16, "patch_size": 14,
        "out_hidden_size": 3584, "fullatt_block_indexes": [7, 15, 23, 31]}},
}
SMALL = {"text": (64, 128, 2, 2, 1, 32), "vision": {
    "depth": 2, "hidden_size": 64, "intermediate_size": 96, "num_heads": 2, "out_hidden_size": 64,
    "deepstack_visual_indexes": [0], "fullatt_block_indexes": [1]}}
# fmt: on
KEYS = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
VOCABULARY = 151_936
CERTAIN = 0.2  # a temperature
ALL_WEIGHTS = ("policy.lora=null", "learner.optim.lr=1e-5")
FORMATS = {
    "LoRA": (),
    "LoRA, layers not recomputed": ("policy.gradient_checkpointing=false",),
    "all bfloat16": ("policy.dtype=bfloat16", *ALL_WEIGHTS),
    "all float32": ("policy.dtype=float32", *ALL_WEIGHTS),
}
PARTS = ("tower", "learner", "generate", "decode", "formats")


@dataclass(frozen=True)
class Load:
    """How much is computed; `prompt`: tokens before the first screenshot, `rows`: answers in a batch."""

    trajectories: int = 8
    steps: int = 10
    prompt: int = 1000
    answer: int = 256
    screen: tuple[int, int] = (1080, 2400)
    max_pixels: int = 660_000
    micro_batch: int = 16_384
    rows: int = 16


TINY = Load(2, 3, 20, 8, (108, 240), 8192, 128, 3)


@dataclass
class Cost:
    """Of a block of code: seconds, bytes of peak memory, and the seconds within the methods watched in it."""

    seconds: float = 0.0
    peak: float = 0.0
    within: dict[str, float] = field(default_factory=lambda: defaultdict(float))


def synchronise() -> float:
    """Waits for the GPU; returns the time."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


@contextlib.contextmanager
def measured(*watched: tuple[Any, str, Callable[[], str]]) -> Iterator[Cost]:
    """The cost of the block, filled in at its end.

    Args:
        watched: Methods: the object, the name, and a function that gives the name under which a call counts.
    """
    cost = Cost()

    def watch(owner: Any, method: str, name: Callable[[], str]) -> None:
        original = getattr(owner, method)

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            label, start = name(), synchronise()
            result = original(*args, **kwargs)
            cost.within[label] += synchronise() - start
            return result

        object.__setattr__(owner, method, wrapped)  # not a submodule

    for one in watched:
        watch(*one)
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    start = synchronise()
    yield cost
    cost.seconds = synchronise() - start
    cost.peak = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0.0
    for owner, method, _ in watched:
        object.__delattr__(owner, method)


class Bench:
    """Measures one model, whose files it writes to `directory`; `output` takes a line for each number."""

    def __init__(self, model: str, load: Load, directory: Path, device: str, output: TextIO) -> None:
        self.model, self.load, self.directory, self.device = model, load, directory, device
        self._output, self._rng = output, random.Random(0)
        self._where = hardware(torch.cuda.get_device_name() if device == "cuda" else None, 1)
        save_model(directory, model, SMALL if load is TINY else SIZES[model])
        self._shots = [screenshot(self._rng, load.screen) for _ in range(load.steps)]
        self.picture = 1
        self.picture = self.subject(self.config()).picture  # tokens of a screenshot

    def report(self, what: str, value: float, unit: str = "", expected: float | None = None) -> None:
        """One number, and the estimate of it."""
        beside = "" if expected is None else f"  estimate {expected:.4g}"
        print(f"{self.model:<14} {what:<58} {value:>11.4g} {unit:<8}{beside}", flush=True)
        values = {"model": self.model, "what": what, "value": value, "unit": unit, "estimate": expected}
        print(json.dumps(values), file=self._output, flush=True)

    def config(self, *changes: str) -> Config:
        """The preset with this model and load."""
        load, count = self.load, self.load.trajectories
        settings = [
            f"policy.max_pixels={load.max_pixels}",
            f"policy.max_prompt_tokens={load.prompt + self.picture}",
            *(f"{section}.device={self.device}" for section in ("policy", "learner")),
            *(f"learner.{key}={count}" for key in ("batch_trajectories", "min_replay", "replay.capacity")),
            *(f"policy.model={self.directory}", f"learner.algorithm.group_size={count}"),
            *(f"learner.max_new_tokens={load.answer}", f"learner.micro_batch_tokens={load.micro_batch}"),
            *("learner.optim={lr: 1.0e-4, warmup_updates: 0}", f"inference.max_batch={load.rows}"),
        ]
        return load_config("qwen-vl", [*settings, *changes])

    def subject(self, config: Config) -> Subject:
        """The sizes with which the estimate computes."""
        return Subject(config, self.device == "cuda", self.load.steps, self.load.screen)

    def expected(self, config: Config, process: str) -> dict[str, float]:
        """The estimate."""
        lines = estimate(config, self._where, self.load.steps, self.load.screen)
        return {line.what: line.value for line in lines if line.process == process}

    def policy(self, config: Config) -> Any:
        """The policy with random weights, made where it computes."""
        from transformers import AutoConfig, AutoModelForImageTextToText

        def made_here(name: str, **options: Any) -> Any:
            with torch.device(self.device):
                return AutoModelForImageTextToText.from_config(AutoConfig.from_pretrained(name), **options)

        torch.manual_seed(0)
        usual = AutoModelForImageTextToText.from_pretrained
        AutoModelForImageTextToText.from_pretrained = made_here
        try:
            return build_policy(config.policy, [], 0)
        finally:
            AutoModelForImageTextToText.from_pretrained = usual

    def engine(self, config: Config) -> TrainStep:
        policy = self.policy(config)
        return TrainStep(policy, build_critic(policy, 0), build_algorithm(config.learner), config.learner)

    def episode(self, number: int) -> Episode:
        """Text, then screenshot and answer in turn, all of them in one sequence."""
        load, ids, starts = self.load, list[int](), list[int]()
        for step in range(load.steps):
            ids += self._rng.choices(range(10, 900), k=QUESTION - 2 if step else load.prompt - 2)
            ids += [4, *[3] * self.picture, 5]
            starts.append(len(ids))
            ids += self._rng.choices(range(10, 900), k=load.answer)
        sequence = TokenSequence(tuple(ids), tuple(f"{number}/{step}" for step in range(load.steps)))
        steps = []
        for n, start in enumerate(starts):
            span = Span(sequence, start, start + load.answer, n + 1)
            tokens, outcome = sequence.ids[start : span.stop], float(number % 2 and n == load.steps - 1)
            shown, logprobs = (sequence.images[n],), (0.0,) * load.answer
            steps.append(StepData((), shown, tokens, logprobs, 1.0, outcome, 0.0, False, spans=(span,)))
        group = GroupStats(0.5, 0.5, load.trajectories)
        return Episode(str(number), "task", tuple(steps), True, (), float(number % 2), 0, group=group)

    def batch(self, engine: TrainStep, count: int) -> tuple[TrajectoryBatch, float]:
        """A batch with the log-probabilities of now, and the seconds of decoding and collating it."""
        episodes = [self.episode(number) for number in range(count)]
        shots = {f"{number}/{n}": shot for number in range(count) for n, shot in enumerate(self._shots)}
        cache = ImageCache(engine.policy.image, lambda digests: {digest: shots[digest] for digest in digests})
        with measured() as cost:
            batch = Batcher(engine.policy, cache).trajectories(episodes)
        batch.steps.behaviour_logprobs = engine.logprobs(batch.steps)
        features: Any = engine.policy._features  # as if no update had seen the pictures
        features.kept = Recent(features.kept.max_bytes, lambda kept: kept.nbytes)
        return batch, cost.seconds

    # ---- parts ----

    @torch.no_grad()
    def tower(self) -> None:
        policy, steps = self.policy(self.config()), self.load.steps
        inputs = policy.images.inputs([policy.image(self._shots[0]).to(policy.device)] * steps)
        pixels, grid = inputs["pixel_values"].to(policy.model.dtype), inputs["image_grid_thw"]
        for name in ("sdpa", IN_ONE_CALL) if self.device == "cuda" else ("sdpa",):
            policy.model.set_attn_implementation({"vision_config": name})
            visual = policy.model.base_model.visual
            with Calls() as calls:
                visual(pixels, grid_thw=grid)
            with measured() as cost:
                for _ in range(3):
                    visual(pixels, grid_thw=grid)
            self.report(f"tower: calls of sdpa with {name}", calls.count / steps, "/shot")
            self.report(f"tower: time with {name}", 1e3 * cost.seconds / 3 / steps, "ms/shot")

    def learner(self) -> None:
        config, load = self.config(), self.load
        engine, subject = self.engine(config), self.subject(config)
        speed, memory = self.expected(config, "speed"), self.expected(config, "learner")
        engine.update(self.batch(engine, 1)[0])  # warms up
        batch, decoding = self.batch(engine, load.trajectories)
        optimiser, policy = engine._policy_optimiser, engine.policy
        features: Any = policy._features
        with measured(
            (policy, "score", lambda: "forward" if torch.is_grad_enabled() else "first pass"),
            (features, "_seen", lambda: "vision tower, in them"),
            (optimiser, "backward", lambda: "backward"),
            *((optimiser, name, lambda: "step") for name in ("norm", "step")),
        ) as cost:
            engine.update(batch)
        with measured() as publication:
            digest = hashlib.sha256()
            data = weights_io.to_bytes(policy.published_state(), policy.published_metadata(), digest)
        self.report("learner: an update", cost.seconds, "s", speed["an update"])
        for name, seconds in cost.within.items():
            self.report(f"learner: of it {name}", seconds, "s")
        self.report("learner: decoding and collating, before it", decoding, "s")
        self.report(f"learner: publication of {len(data) / 1e6:.0f} MB, after it", publication.seconds, "s")
        self.report("learner: tokens", load.trajectories * subject.sequence / cost.seconds, "1/s")
        done = load.trajectories * subject.training_flops() / cost.seconds / self._where.flops
        self.report(f"learner: FLOP/s of the peak of {self._where.name}", 100 * done, "%")
        self.report("learner: peak memory", cost.peak / 1e9, "GB", memory["device memory"] / 1e9)

    @torch.no_grad()
    def generate(self) -> None:
        config, load = self.config(), self.load
        policy, speed = self.policy(config), self.expected(config, "speed")
        memory = self.expected(config, "inference")["device memory"]
        pictures = [policy.image(data) for data in self._shots]
        spans = [self.episode(row).steps[row % load.steps].spans[0] for row in range(load.rows)]
        prompts = [span.sequence.ids[: span.start] for span in spans]
        batch = policy.collate(prompts, [pictures[: span.num_images] for span in spans])
        temperatures = [(1.0, CERTAIN)[row % 2] for row in range(load.rows)]
        generator = torch.Generator(self.device).manual_seed(0)
        costs = []
        for count in (1, load.answer):
            sampling = [Sampling(temperature=t, max_new_tokens=count) for t in temperatures]
            with measured() as cost:
                answers = policy.generate(batch, sampling, generator)
            costs.append(cost)
        reading, whole = costs[0].seconds, costs[1].seconds
        num_tokens = sum(len(answer.token_ids) - 1 for answer in answers)
        self.report("generate: a batch", whole, "s")
        self.report("generate: of it reading the prompts", reading, "s")
        self.report("generate: actions", load.rows / whole, "1/s", speed["actions"])
        rate = num_tokens / max(1e-9, whole - reading)
        self.report("generate: tokens, without reading", rate, "1/s", speed["tokens sampled"])
        self.report("generate: peak memory", costs[1].peak / 1e9, "GB", memory / 1e9)
        found: dict[float, list[tuple[float, float]]] = defaultdict(list)
        for row, answer in enumerate(answers):
            tokens = torch.tensor([answer.token_ids], device=policy.device)
            temperature = torch.tensor([temperatures[row]], device=policy.device)
            one = batch[torch.tensor([row], device=policy.device)]
            scores = policy.score(one, tokens, torch.ones_like(tokens, dtype=torch.bool), temperature)
            d = scores.logprobs[0].double().cpu() - torch.tensor(answer.logprobs).double()
            pairs = zip(kl_of_tokens(d.numpy()).tolist(), scores.entropy[0].tolist(), strict=True)
            found[temperatures[row]] += pairs
        for temperature, pairs in found.items():
            kls, entropies = zip(*pairs, strict=True)
            self.report(f"generate: entropy at temperature {temperature:g}", sum(entropies) / len(kls))
            self.report(f"generate: KL per token at temperature {temperature:g}", sum(kls) / len(kls))

    @torch.no_grad()
    def decode(self) -> None:
        for name, changes in (("with LoRA", ()), ("without", ("policy.lora=null",))):
            policy, rows = self.policy(self.config(*changes)), self.load.rows
            span, picture = self.episode(0).steps[0].spans[0], policy.image(self._shots[0])
            batch = policy.collate([span.sequence.ids[: span.start]] * rows, [[picture]] * rows)
            seconds = []
            for count in (2, 2, 34):  # the first warms up
                with measured() as cost:
                    policy.generate(batch, [Sampling(max_new_tokens=count)] * rows)
                seconds.append(cost.seconds)
            self.report(f"decode: a token of {rows} rows, {name}", 1e3 * (seconds[2] - seconds[1]) / 32, "ms")

    def formats(self) -> None:
        for name, changes in FORMATS.items():
            config = self.config(*changes)
            memory, engine = self.expected(config, "learner")["device memory"], self.engine(config)
            batch, _ = self.batch(engine, 2)
            parameters = engine.policy.named_parameters()  # without those of words that do not occur
            trained = [p for key, p in parameters if p.requires_grad and ".layers." in key]
            before = [p.detach().to("cpu", copy=True) for p in trained]
            engine.update(batch)
            with measured() as cost:
                for _ in range(3):
                    engine.update(batch)
            same = sum(int((p.cpu() == old).sum()) for p, old in zip(trained, before, strict=True))
            share = 100 * same / sum(p.numel() for p in trained)
            self.report(f"formats: {name}, an update", cost.seconds / 3, "s")
            self.report(f"formats: {name}, peak memory", cost.peak / 1e9, "GB", memory / 1e9)
            self.report(f"formats: {name}, unchanged at lr {config.learner.optim.lr:g}", share, "%")
            del engine, batch, trained, before, parameters


class Calls(torch.overrides.TorchFunctionMode):
    """Counts calls of torch's attention in its block."""

    count = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func is torch.nn.functional.scaled_dot_product_attention
        return func(*args, **(kwargs or {}))


def save_model(directory: Path, model: str, sizes: dict[str, Any]) -> None:
    """The files of the model without its weights; a token is a word like `w17`, or a character."""
    from tiny_qwen import IDS, PICTURE, SPECIAL, save_tokenizer
    from transformers import Qwen2_5_VLConfig, Qwen3VLConfig
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    *dimensions, head = sizes["text"]
    is_third, is_tied = model.startswith("qwen3"), model.endswith("2b")
    section = [head // 8, 3 * head // 16, 3 * head // 16]
    rope = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": section}
    text = dict(zip(KEYS, dimensions, strict=True))
    text |= {"vocab_size": VOCABULARY, "max_position_embeddings": 32_768, "tie_word_embeddings": is_tied}
    text |= {"eos_token_id": 1, "bos_token_id": None, "pad_token_id": 0}
    text["rope_parameters"] = rope | ({"mrope_interleaved": True} if is_third else {})
    text |= {"head_dim": head} if is_third else {}
    config_class = Qwen3VLConfig if is_third else Qwen2_5_VLConfig
    config = config_class(text_config=text, vision_config=sizes["vision"], tie_word_embeddings=is_tied, **IDS)
    config.save_pretrained(str(directory))
    patch = 16 if is_third else 14
    bounds = {"shortest_edge": 4 * patch**2, "longest_edge": 12_845_056}
    Qwen2VLImageProcessorPil(size=bounds, patch_size=patch).save_pretrained(str(directory))
    words = [f"w{number}" for number in range(VOCABULARY - len(SPECIAL) - len(string.printable))]
    save_tokenizer(directory, PICTURE, words, r"w\d+")


def screenshot(rng: random.Random, size: tuple[int, int]) -> bytes:
    """A picture of boxes and words, as JPEG."""
    image = Image.new("RGB", size, "white")
    draw, unit = ImageDraw.Draw(image), size[0] // 12
    for y in range(0, size[1], unit):
        x, words = rng.randrange(size[0]), "".join(rng.choices("abcdefghij ", k=30))
        draw.rectangle((x, y, x + 3 * unit, y + unit - 4), tuple(rng.choices(range(256), k=3)))
        draw.text((x // 2, y), words, "black", font_size=unit // 2)
    file = io.BytesIO()
    image.save(file, "JPEG", quality=85)
    return file.getvalue()


def main() -> None:
    """Measures model by model; a part that fails, as where memory ends, is reported and left out."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--tiny", action="store_true", help="a small model; needs no GPU")
    parser.add_argument("--output", type=Path, default=Path(os.devnull))
    arguments = parser.parse_args()
    if not (arguments.tiny or torch.cuda.is_available()):
        parser.error("This machine has no GPU that torch can use: give --tiny.")
    device, load = "cuda" if torch.cuda.is_available() else "cpu", TINY if arguments.tiny else Load()
    with arguments.output.open("a") as output, tempfile.TemporaryDirectory() as temporary:
        for model in arguments.models:
            bench = Bench(model, load, Path(temporary) / model, device, output)
            for part in arguments.parts:
                try:
                    getattr(bench, part)()
                except Exception:  # noqa: BLE001 - the other parts can be measured
                    traceback.print_exc()


if __name__ == "__main__":
    main()
