"""Does a vision-language model learn by `configs/qwen-vl.yaml`? A tiny random one, on two screens of buttons.

For each seed a random Qwen3-VL or GLM-4.6V of half a million parameters is made, with a tokenizer that writes
an answer in eight tokens, and `distrl train qwen-vl` is run with it: only the model, the tasks and sizes are
others. A short warm start clones the scripted expert; GRPO does the rest, on the adapter alone. Printed is
the success on held-out tasks after the warm start and after training. There are three games:

    corner   one button, below on the right on both screens, and no second try. The expert shows buttons at
             all places, until the notation is learnt and little more: which place pays is found by trying.
             Answers are sampled
    press    one button at any of four places: it must be seen. The expert shows it until that is half a
             guess (a fixed answer would have 1/16). Answers are greedy
    pick     two buttons, the goal names one: read as well (any of both buttons would have 1/4)

`corner` needs only that rewards reach the right tokens with the right sign, and rises within 16 updates. In
`press` and `pick`, learning one place at first unlearns others, because a random model represents them alike:
docs/models.md has the measurements.

    python benchmarks/toy_vlm.py [--game corner | press | pick] [--seeds 0 1 2] [--engine hf | vllm]
        [--family qwen3-vl | glm-4.6v] [--runs-dir DIR] [--set KEY=VALUE]
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from distrl.configs.goal import WARM_START
from distrl.core.types import Observation, Task
from distrl.evaluator.results import Evaluation
from distrl.evaluator.run_state import AFTER
from distrl.evaluator.statistics import Summary
from distrl.evaluator.suites import load_suite
from distrl.evaluator.suites.files import write_file
from distrl.evaluator.suites.two_screens import COLORS, NUM_PLACES, goal
from distrl.workers.agents.mobile_use import MobileUseAgent

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "fakes"))

PRESET, SUITE = "qwen-vl", "two_screens"
FAMILIES = ("qwen3-vl", "glm-4.6v")
SIZES = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2}
SETTINGS = {
    "tasks.suite": SUITE,
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
    "learner.eval_every": "0",
    "learner.keep_best": "false",
}
CLONING = "noise: 0.2, updates: 200, batch_size: 32, lr: 0.003"
SEEING = {
    "learner.episodes": "6400",
    "learner.algorithm": "{kind: grpo, group_size: 4}",  # as many tasks in a batch as pairs of places
    "learner.optim": "{lr: 0.0005, warmup_updates: 10}",
    "learner.demonstrations": f"{{episodes: 192, until_loss: 1.0, {CLONING}}}",
}
GAMES = {
    "corner": {
        "learner.episodes": "512",
        "learner.batch_trajectories": "32",
        "learner.min_replay": "32",
        "learner.replay.capacity": "32",
        "learner.updates_per_episode": "0.03125",
        "learner.optim": "{lr: 0.001, warmup_updates: 4}",
        "learner.demonstrations": f"{{episodes: 96, weights: {{corner: 0}}, until_loss: 1.45, {CLONING}}}",
        "evaluate.temperature": "1.0",
    },
    "press": SEEING,
    "pick": SEEING,
}
"""The settings of each game, which is named after the template that is measured."""
ENGINES = {
    "hf": {"inference.engine": "hf"},
    "vllm": {"inference.engine": "{kind: vllm, kv_cache_gb: 0.125}"},
}


def words() -> list[str]:
    """The texts that are one token each: the instructions, and the parts of an answer."""
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


def tasks(game: str) -> list[Task]:
    """The tasks of a game; of `corner` also some of `press`, for the expert to show."""
    suite = load_suite(SUITE)
    if game != "corner":
        return [task for task in suite if task.template == game]
    shown = [task for task in suite if task.template == "press" and task.split == "train"]
    return [*shown[: NUM_PLACES**2], *corner("train", 112), *corner("val", 16), *corner("test", 48)]


def corner(split: str, count: int) -> list[Task]:
    """Tasks with one button, of any colour, below on the right of either screen."""
    made = []
    for index in range(count):
        rng = random.Random(f"{SUITE}/corner/{split}/{index}")
        screens = [[{"color": rng.choice(COLORS), "place": NUM_PLACES - 1}] for _ in range(2)]
        params = {"screens": screens, "right": [0, 0]}
        made.append(
            Task(
                id=f"{SUITE}/corner/{split}/{index:04d}",
                suite=SUITE,
                template="corner",
                split=split,
                goal=goal("press", params),
                params=params,
                seed=rng.getrandbits(31),
                max_steps=len(screens),
            )
        )
    return made


def save_model(directory: Path, seed: int, family: str) -> None:
    """The random model and its tokenizer, as a hub would give them."""
    from hub_models import save_glm
    from tiny_qwen import save_qwen3_vl

    save = {"qwen3-vl": save_qwen3_vl, "glm-4.6v": save_glm}[family]
    save(directory, words(), SIZES, seed, sharpness=4.0)


@dataclass(frozen=True)
class Outcome:
    """The results of a run: the numbers on the test tasks, "all" and by template.

    Attributes:
        before: After the warm start.
        after: After training.
    """

    before: Mapping[str, Summary]
    after: Mapping[str, Summary]


def run(
    directory: Path,
    game: str,
    seed: int,
    engine: str = "hf",
    changes: Sequence[str] = (),
    family: str = FAMILIES[0],
) -> Outcome:
    """Makes the model of a seed in `directory`, trains it there, and reads what came of it.

    Args:
        directory: Where models, tasks and runs are.
        game: One of `GAMES`.
        seed: Of the model's weights and of the run.
        engine: One of `ENGINES`.
        changes: More `--set` assignments.
        family: One of `FAMILIES`.
    """
    name = f"{family}-{game}-{engine}-{seed}"
    model, suite = directory / f"model-{name}", directory / f"tasks-{name}.jsonl"
    save_model(model, seed, family)
    write_file(tasks(game), suite)
    own = {
        "name": name,
        "runs_dir": directory / "runs",
        "seed": seed,
        "policy.model": model,
        "tasks.suite": suite,
    }
    settings = SETTINGS | GAMES[game] | ENGINES[engine] | own
    command = [sys.executable, "-m", "distrl", "train", PRESET]
    for assignment in (*assignments(settings), *changes):
        command += ["--set", assignment]
    # Its output is shown: a run that fails reports the reason.
    if subprocess.run(command, check=False, stdout=sys.stderr).returncode:
        raise SystemExit(f"The run of seed {seed} failed; see above and {directory}/runs.")
    return read(directory / "runs" / name)


def assignments(settings: Mapping[str, object]) -> list[str]:
    """What `--set` takes."""
    return [f"{key}={value}" for key, value in settings.items()]


def read(run_dir: Path) -> Outcome:
    """The numbers of the warm start and of the result, from the report of a finished run."""
    report = json.loads((run_dir / "report.json").read_text(encoding="utf-8"))
    before, after = (Evaluation.model_validate(report["evaluations"][label]) for label in (WARM_START, AFTER))
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
    parser.add_argument("--game", choices=GAMES, default="corner")
    parser.add_argument("--family", choices=FAMILIES, default=FAMILIES[0])
    parser.add_argument("--runs-dir", type=Path, default=None, help="kept; by default a temporary one")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="changes")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="toy-vlm-") as temporary:
        directory = arguments.runs_dir or Path(temporary)
        print(f"{'seed':<6}{'tasks':<8}{'after the warm start':<24}{'after training':<24}gain")
        gains = []
        for seed in arguments.seeds:
            given = (arguments.game, seed, arguments.engine, arguments.changes, arguments.family)
            outcome = run(directory, *given)
            for name, before in outcome.before.items():
                after = outcome.after[name]
                gain = 100 * (after.success_rate - before.success_rate)
                print(f"{seed:<6}{name:<8}{_cell(before):<24}{_cell(after):<24}{gain:+.1f}", flush=True)
                gains += [gain] if name == "all" else []
        print(f"mean gain over {len(gains)} seeds: {sum(gains) / len(gains):+.1f} points")


if __name__ == "__main__":
    main()
