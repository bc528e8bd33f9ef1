"""How true imagined episodes are: their actions once more, in the environment itself.

RUN/agreement-world.json    how they end by the model of the world and by the environment, and by how much the
                            imagined states are wrong, by step
RUN/agreement-world.html    the same, with the real screens of episodes that end otherwise

Whatever is a success only in the model can be exploited by a policy: see `precision`.
"""

from __future__ import annotations

import contextlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from distrl.configs.judge import RewardConfig
from distrl.configs.load import load_config
from distrl.core.actions import Action
from distrl.core.errors import StoreError
from distrl.core.files import write_atomically
from distrl.core.rundir import RunDir
from distrl.core.types import Fault, Observation, Outcome, Purpose, Trajectory, Verdict, image_digest
from distrl.core.world import text_of
from distrl.evaluator.agreement import AgreementReport, Drift, Judged, compare, disagreements, solved
from distrl.evaluator.report.viewer import write_agreement_page
from distrl.evaluator.stores import StoredEpisodes
from distrl.workers.envs import build_env
from distrl.workers.envs.base import Env, Frame
from distrl.workers.episode import encode
from distrl.workers.rewards import SUCCESS_SCORE, needs_evaluation

JUDGE = "world"


@dataclass
class Replayed:
    """An imagined episode in the environment: the frame before each action and after the last, up to the
    environment's own end, and whether the task is solved then.
    """

    trajectory: Trajectory
    frames: list[Frame] = field(default_factory=list)
    is_solved: bool = False

    @property
    def errors(self) -> Iterator[tuple[float, float]]:
        """For each imagined state after the first: its squared error, and what the first one's would be here.

        Nothing for agents whose prompts have no state.
        """
        first = self.frames[0].state
        for step, frame in zip(self.trajectory.steps[1:], self.frames[1:], strict=False):
            text = text_of(step.chats[0].messages).partition("State: ")[2]
            imagined = [float(number) for number in re.findall(r"-?\d+\.\d+", text)]
            if len(imagined) == len(frame.state) > 0:
                yield (_distance(imagined, frame.state), _distance(first, frame.state))

    def as_shown(self) -> tuple[Trajectory, Mapping[str, bytes]]:
        """The episode with the real screens, and their pictures by digest."""
        data = [encode(frame.image, "jpeg") for frame in self.frames]
        screens = [
            Observation(image=image_digest(one), width=frame.image.width, height=frame.image.height)
            for one, frame in zip(data, self.frames, strict=True)
        ]
        steps = [
            step.model_copy(update={"observation": screen})
            for step, screen in zip(self.trajectory.steps, screens, strict=False)
        ]
        update = {"steps": tuple(steps), "final": screens[-1]}
        return self.trajectory.model_copy(update=update), {image_digest(one): one for one in data}


def _distance(a: Sequence[float], b: Sequence[float]) -> float:
    return sum((x - y) ** 2 for x, y in zip(a, b, strict=True))


def replay(env: Env, trajectory: Trajectory, rewards: RewardConfig) -> Replayed:
    """Plays the real steps before an imagined episode again, and then its own."""
    assert trajectory.branch is not None
    frame, found = env.reset(trajectory.task), Replayed(trajectory)
    for past in trajectory.branch.past:
        frame = env.step(Action(**past.action.model_dump())).frame
    found.frames.append(frame)
    for step in trajectory.steps:
        result = env.step(Action(**step.action.model_dump()))
        found.frames.append(result.frame)
        if result.done or result.truncated:
            break
    counts = needs_evaluation(step.action, result.done, rewards)
    found.is_solved = counts and env.evaluate() >= SUCCESS_SCORE
    return found


def verdict(trajectory: Trajectory) -> Verdict:
    """Whether the task is solved at the end of an episode or branch, as the model of the world says;
    undecided where it was unsure before.
    """
    assert trajectory.branch is not None
    if trajectory.outcome is Outcome.UNJUDGED and len(trajectory.steps) < trajectory.branch.horizon:
        return Verdict.none(JUDGE, f"unsure at step {len(trajectory.steps)}")
    score = trajectory.success
    return Verdict(success=score >= SUCCESS_SCORE, score=score, reason="", judge=JUDGE)


def drift(step: int, errors: Sequence[tuple[float, float]]) -> Drift:
    """That of the states after `step` imagined steps, from their `Replayed.errors`."""
    missed, changed = (sum(values) for values in zip(*errors, strict=True))
    return Drift(step=step, episodes=len(errors), missed=missed / changed if changed else 0.0)


def compare_imagined(run: RunDir, limit: int, on_episode: Callable[[int], None]) -> AgreementReport:
    """Plays imagined episodes of a run again, and writes the numbers and the page.

    Args:
        limit: The largest number of episodes, which are spread evenly over the run.
        on_episode: Called with the number of episodes so far.

    Raises:
        StoreError: The run has no imagined episodes.
    """
    judged, origins = list[Judged](), list[tuple[str, bool]]()
    errors = defaultdict[int, list[tuple[float, float]]](list)
    config = load_config(run.config)
    rewards = config.worker.rewards
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(contextlib.closing(StoredEpisodes(run.path)))
        names = store.ids(Purpose.IMAGINED)
        if not names:
            raise StoreError(f"{run.path} has no imagined episodes.", "Name a run with world.model.")
        env = stack.enter_context(contextlib.closing(build_env(config.env.timeless)))
        for trajectory in store.kept(names[:: -(-len(names) // limit)]):
            if trajectory.fault is not Fault.NONE:
                continue
            found = replay(env, trajectory, rewards)
            judged.append(Judged.of(trajectory.id, trajectory.task, found.is_solved, verdict(trajectory)))
            assert trajectory.branch is not None
            for origin in store.kept([trajectory.branch.trajectory]):
                origins.append((origin.task.id, origin.success >= SUCCESS_SCORE))
            for number, error in enumerate(found.errors, 1):
                errors[number].append(error)
            on_episode(len(judged))
        report = compare(judged, JUDGE, str(run.path)).model_copy(
            update={"origins": solved(origins), "drift": tuple(drift(*one) for one in errors.items())}
        )
        write_atomically(run.path / f"agreement-{JUDGE}.json", report.model_dump_json(indent=2))
        wrong = ((one, found) for one in disagreements(judged) for found in store.kept([one.trajectory_id]))
        shown = ((one, replay(env, trajectory, rewards).as_shown()) for one, trajectory in wrong)
        write_agreement_page(run.path / f"agreement-{JUDGE}.html", report, judged, shown)
    return report
