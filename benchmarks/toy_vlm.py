"""Does a vision-language model learn by `configs/qwen-vl.yaml`? A tiny random one, on two screens of buttons.

For each seed a random Qwen3-VL of half a million parameters is made, with a tokenizer that writes an answer
in eight tokens, and `distrl train qwen-vl` is run with it: only the model, the tasks and sizes are others. A
short warm start clones the notation, and little more, from the scripted expert; GRPO does the rest, on the
adapter alone. Printed is the success on held-out tasks, greedy, after the warm start and after training.

    press   one button: where it is must be seen              a fixed answer would have 1/16
    pick    two buttons, the goal names one: read as well     any of both buttons would have 1/4

Tasks are of `press` alone unless `--templates` says otherwise: what a random model shows of a picture is
enough for it to learn where something is, and by far not which of two colours a word means.

    python benchmarks/toy_vlm.py [--seeds 0 1 2] [--engine hf | vllm] [--templates press [pick]]
        [--runs-dir DIR] [--set KEY=VALUE]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from distrl.cli.local.run import EVALUATIONS
from distrl.core.types import Observation
from distrl.evaluator.results import Evaluation
from distrl.evaluator.statistics import Summary
from distrl.evaluator.suites import load_suite
from distrl.evaluator.suites.files import write_file
from distrl.workers.agents.mobile_use import MobileUseAgent

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "fakes"))

PRESET, SUITE = "qwen-vl", "two_screens"
SIZES = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2}
SETTINGS = {
    "tasks.test": "[test]",
    "env.kind": SUITE,
    "policy.device": "cpu",
    "policy.max_pixels": "8192",  # 64x128: 8 tokens a screen
    "policy.max_prompt_tokens": "96",
    "policy.max_context_tokens": "480",
    "policy.gradient_checkpointing": "false",
    "worker.slots": "32",
    "inference.max_batch": "32",
    "evaluate.slots": "24",
    "learner.device": "cpu",
    "learner.max_new_tokens": "12",
    "learner.episodes": "1280",
    "learner.group_size": "4",
    "learner.eval_every": "0",
    "learner.keep_best": "false",
    # So early an end of cloning that where to tap is half a guess.
    "learner.demonstrations": "{episodes: 192, noise: 0.2, updates: 200, until_loss: 1.0, batch_size: 32, "
    "lr: 0.003}",
    # The first steps of AdamW are as large as its rate, however little the first gradients tell.
    "learner.optim": "{lr: 0.0005, warmup_updates: 3}",
}
ENGINES = {
    "hf": {"inference.engine": "hf"},
    "vllm": {"inference.engine": "vllm", "inference.vllm": "{kv_cache_gb: 0.125}"},
}


def words() -> list[str]:
    """The texts that are one token each: the instructions, and what an answer is made of."""
    screen = Observation(image="", width=1, height=1, app="")
    return [
        MobileUseAgent(mode="incremental", coordinates="relative").system(screen),
        *("system: ", "user: ", "assistant: "),
        *("The user query: ", "Step ", ". The screen now:"),
        *("Tap ", "the button", " on both screens", ", then ", "red", "green", "blue", "yellow"),
        '<tool_call>\n{"name": "mobile_use", "arguments": {"action": "',
        *('click", "coordinate": [', 'system_button", "button": "Back"', "}}\n</tool_call>"),
        *("250", "300", "750", ", "),
    ]


def save_tasks(file: Path, templates: Sequence[str]) -> None:
    """The suite's tasks of these templates, as a task file, unless it is there."""
    if not file.exists():
        write_file([task for task in load_suite(SUITE) if task.template in templates], file)


def save_model(directory: Path, seed: int) -> None:
    """The random model and its tokenizer, as a hub would give them."""
    from tiny_qwen import save_qwen3_vl

    save_qwen3_vl(directory, words(), SIZES, seed, sharpness=4.0)


@dataclass(frozen=True)
class Outcome:
    """What a run has come to: the numbers on the test tasks, "all" and by template.

    Attributes:
        before: After the warm start.
        after: After training.
    """

    before: Mapping[str, Summary]
    after: Mapping[str, Summary]


def run(
    directory: Path,
    seed: int,
    engine: str = "hf",
    changes: Sequence[str] = (),
    templates: Sequence[str] = ("press",),
) -> Outcome:
    """Makes the model of a seed in `directory`, trains it there, and reads what came of it.

    Args:
        directory: Where models, tasks and runs are.
        seed: Of the model's weights and of the run.
        engine: One of `ENGINES`.
        changes: More `--set` assignments.
        templates: Whose tasks it is trained and measured on.
    """
    model, tasks = directory / f"model-{seed}", directory / f"{'-'.join(templates)}.jsonl"
    save_model(model, seed)
    save_tasks(tasks, templates)
    name = f"toy-{engine}-{seed}"
    own = {
        "name": name,
        "runs_dir": directory / "runs",
        "seed": seed,
        "policy.model": model,
        "tasks.suite": tasks,
    }
    settings = SETTINGS | ENGINES[engine] | own
    command = [sys.executable, "-m", "distrl", "train", PRESET]
    for assignment in (*assignments(settings), *changes):
        command += ["--set", assignment]
    # What it prints goes on being printed: a run that fails says why.
    if subprocess.run(command, check=False, stdout=sys.stderr).returncode:
        raise SystemExit(f"The run of seed {seed} failed; see above and {directory}/runs.")
    return read(directory / "runs" / name)


def assignments(settings: Mapping[str, object]) -> list[str]:
    """What `--set` takes."""
    return [f"{key}={value}" for key, value in settings.items()]


def read(run_dir: Path) -> Outcome:
    """What the report of a finished run says of the warm start and of the result."""
    report = json.loads((run_dir / "report.json").read_text(encoding="utf-8"))
    before, after = (Evaluation.model_validate(report["evaluations"][label]) for label in EVALUATIONS)
    return Outcome(_numbers(before), _numbers(after))


def _numbers(evaluation: Evaluation) -> dict[str, Summary]:
    """All tasks of a split, then its templates; of several splits with their names before."""
    found: dict[str, Summary] = {}
    for name, split in evaluation.splits.items():
        before = f"{name} " if len(evaluation.splits) > 1 else ""
        for key, summary in {"all": split.overall, **split.templates}.items():
            found[before + key] = summary
    return found


def _cell(summary: Summary) -> str:
    low, high = (100 * bound for bound in (summary.interval.low, summary.interval.high))
    return f"{100 * summary.success_rate:5.1f}% [{low:4.1f}, {high:5.1f}]"


def main() -> None:
    """Runs the seeds one after another and prints a line for each as it ends."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--engine", choices=ENGINES, default="hf")
    parser.add_argument("--templates", choices=("press", "pick"), nargs="+", default=["press"])
    parser.add_argument("--runs-dir", type=Path, default=None, help="kept; by default a temporary one")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="changes")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="toy-vlm-") as temporary:
        directory = arguments.runs_dir or Path(temporary)
        print(f"{'seed':<6}{'tasks':<8}{'after the warm start':<24}{'after training':<24}gain")
        gains = []
        for seed in arguments.seeds:
            outcome = run(directory, seed, arguments.engine, arguments.changes, arguments.templates)
            for name, before in outcome.before.items():
                after = outcome.after[name]
                gain = 100 * (after.success_rate - before.success_rate)
                print(f"{seed:<6}{name:<8}{_cell(before):<24}{_cell(after):<24}{gain:+.1f}", flush=True)
                gains += [gain] if name == "all" else []
        print(f"mean gain over {len(gains)} seeds: {sum(gains) / len(gains):+.1f} points")


if __name__ == "__main__":
    main()
