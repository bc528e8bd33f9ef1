"""Synthetic episodes with drawn screens, for tests of the numbers and of the pages."""

from __future__ import annotations

import io
import random
import uuid
from pathlib import Path

from PIL import Image, ImageDraw

from distrl.configs.schema import WorkerConfig
from distrl.core.messages import Lease
from distrl.core.types import (
    ActionRecord,
    Chat,
    ChatMessage,
    Completion,
    Element,
    Fault,
    ImagePart,
    Observation,
    Outcome,
    Purpose,
    RewardParts,
    Task,
    TextPart,
    TimeStep,
    Trajectory,
    image_digest,
)
from distrl.evaluator.failure_modes import FailureMode
from distrl.evaluator.results import (
    EPISODES_FILE,
    Evaluation,
    EvaluationDirectory,
    EvaluationSpec,
    Subject,
    episode_result,
    split_result,
)
from distrl.evaluator.suites import load_suite
from distrl.workers.agents.elements import ElementsAgent
from distrl.workers.envs.phone import PhoneEnv
from distrl.workers.episode import EpisodeRunner

Episode = tuple[Trajectory, dict[str, bytes]]
SCREEN = (180, 400)


def make_task(number: int = 0, template: str = "toggle", split: str = "test", goal: str = "") -> Task:
    """A task of the suite "fake"."""
    return Task(
        id=f"fake/{template}/{split}/{number:04d}",
        suite="fake",
        template=template,
        split=split,
        goal=goal or f"Turn on switch {number}",
        params={"switch": number},
        seed=number,
        max_steps=6,
    )


def screen(seed: int, size: tuple[int, int] = SCREEN) -> bytes:
    """A drawn screen, encoded."""
    image = Image.new("RGB", size, (236, 238, 242))
    draw = ImageDraw.Draw(image)
    draw.rectangle((0, 0, size[0], 24), fill=(40 + 13 * seed % 160, 80, 160))
    for row in range(6):
        y = 40 + row * 56
        fill = (255, 255, 255) if row != seed % 6 else (205, 222, 255)
        draw.rounded_rectangle((10, y, size[0] - 10, y + 44), 8, fill=fill)
        draw.rectangle((20, y + 16, 20 + 60 + 13 * ((seed + row) % 5), y + 26), fill=(120, 124, 132))
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=85)
    return buffer.getvalue()


def make_step(
    action: ActionRecord,
    image: bytes,
    text: str = "",
    version: int = 3,
    reward: RewardParts | None = None,
    done: bool = False,
    size: tuple[int, int] = SCREEN,
) -> TimeStep:
    """A step whose completion has two tokens."""
    digest = image_digest(image)
    prompt = ChatMessage(role="user", parts=(ImagePart(digest=digest), TextPart(text="step 0 Goal: go")))
    completion = Completion(
        text=text or f'"action_type": "{action.kind}"',
        prompt_token_ids=(1, 2, 3),
        token_ids=(7, 8),
        logprobs=(-0.1, -0.25),
        weight_versions=(version, version),
    )
    return TimeStep(
        observation=Observation(image=digest, width=size[0], height=size[1], app="settings"),
        chats=(Chat(messages=(prompt,), completion=completion),),
        action=action,
        reward=reward or RewardParts(),
        done=done,
    )


def make_episode(
    task: Task | None = None,
    success: bool = True,
    num_steps: int = 3,
    version: int = 3,
    fault: Fault = Fault.NONE,
    text: str = "",
) -> Episode:
    """An episode that taps its way down the screen; a failure repeats its last tap until the end."""
    task = task or make_task()
    images: dict[str, bytes] = {}
    steps = []
    for i in range(num_steps):
        last = i == num_steps - 1
        data = screen(task.seed + (i if success else min(i, 1)))
        images[image_digest(data)] = data
        action = ActionRecord(kind="tap", point=(0.5, 0.2 + 0.1 * (i if success else min(i, 1))))
        if last and success:
            action = ActionRecord(kind="complete")
        repeats = max(0, i - 1) if not success else 0
        reward = RewardParts(outcome=float(last and success), repetition=-0.05 * repeats)
        steps.append(make_step(action, data, text, version, reward, done=last))
    final = screen(task.seed + num_steps)
    images[image_digest(final)] = final
    outcome = Outcome.SUCCESS if success else Outcome.STEP_LIMIT
    trajectory = Trajectory(
        id=uuid.uuid4().hex,
        task=task,
        purpose=Purpose.EVAL,
        worker="evaluate",
        steps=tuple(steps),
        final=Observation(image=image_digest(final), width=SCREEN[0], height=SCREEN[1]),
        outcome=Outcome.UNJUDGED if fault is not Fault.NONE else outcome,
        fault=fault,
        fault_detail="the device went away" if fault is not Fault.NONE else "",
        success=float(success and fault is Fault.NONE),
        truncated=not success,
        duration_s=2.5,
    )
    return trajectory, images


def with_elements(trajectory: Trajectory, elements: tuple[Element, ...]) -> Trajectory:
    """The episode, with these elements on each of its steps' screens."""
    steps = [
        step.model_copy(update={"observation": step.observation.model_copy(update={"elements": elements})})
        for step in trajectory.steps
    ]
    return trajectory.model_copy(update={"steps": tuple(steps)})


TEMPLATES = ("toggle", "alarm", "contact", "search")
IMAGES_AT_ONCE = 500


def write_evaluation(directory: Path, count: int, solved: float, seed: int = 0) -> Path:
    """An evaluation of `count` episodes of which about the share `solved` is solved; the last one faulted."""
    rng = random.Random(seed)
    spec = EvaluationSpec(suite="fake", splits=("test",), subject=Subject(kind="checkpoint", name="step_9"))
    written = EvaluationDirectory(directory, spec)
    patterns = {success: make_episode(success=success, num_steps=5) for success in (True, False)}
    results, items = [], []
    for number in range(count):
        task = make_task(number, TEMPLATES[number % len(TEMPLATES)])
        trajectory, images = patterns[rng.random() < solved]
        made: Trajectory = trajectory.model_copy(update={"id": f"{rng.getrandbits(128):032x}", "task": task})
        if number == count - 1:
            made = made.model_copy(update={"fault": Fault.DEVICE, "fault_detail": "unplugged"})
        result = episode_result(made)
        if result.mode is not None:
            result = result.model_copy(update={"mode": rng.choice(list(FailureMode))})
        results.append(result)
        items.append((made, images))
        if len(items) == IMAGES_AT_ONCE or number == count - 1:
            written.store.add_many(items)
            items = []
    (directory / EPISODES_FILE).write_text("".join(one.model_dump_json() + "\n" for one in results))
    written.finish(Evaluation(spec=spec, splits={"test": split_result(results)}, duration_s=9.0))
    written.close()
    return directory


def make_undrawn() -> Episode:
    """A demonstration on a simulated phone with stand-ins for its pictures."""
    lease = Lease(id="a", task=load_suite("quickstart", "test")[0], purpose=Purpose.DEMO)
    runner = EpisodeRunner(PhoneEnv(), ElementsAgent(), None, WorkerConfig(screenshot_format="none"))
    episode = runner.run(lease)
    assert episode is not None
    return episode
