"""One episode, from lease to trajectory.

lease ─► env.reset ─► ┌ screenshot ─► agent.prompt ─► policy | actor ─► agent.parse ──► env.step ─► reward ┐
                      └────────────────────────────── until done ◄─────────────────────────────────────────┘
      ─► env.evaluate ─► trajectory + the screenshots that it names
"""

from __future__ import annotations

import io
import logging
import random
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from PIL import Image, ImageDraw, ImageFont

from distrl.configs.schema import WorkerConfig
from distrl.core.actions import Action
from distrl.core.errors import ConfigError, ContextFull, EnvError, InferenceUnavailable, ProtocolError
from distrl.core.messages import Lease
from distrl.core.packing import MAX_CHATS
from distrl.core.types import (
    NO_PREFIX,
    ActionRecord,
    Branch,
    Chat,
    ChatMessage,
    Completion,
    Element,
    Fault,
    Observation,
    Outcome,
    Prefix,
    Purpose,
    Sampling,
    TimeStep,
    Timing,
    Trajectory,
    image_digest,
    shown_images,
)
from distrl.core.user_errors import call, score_of
from distrl.core.world import SUCCESS, UNSURE, question, said, text_of
from distrl.workers.actors import Abandoned, ByHand, Demonstrator, RandomActor, answer
from distrl.workers.agents.base import Agent, Prompt
from distrl.workers.board import SlotSign
from distrl.workers.devices.device import Screen
from distrl.workers.envs.base import (
    Env,
    ExpertDistance,
    ExplainsFailure,
    Frame,
    HasElements,
    PartialGroundTruth,
    ProvidesGoal,
    StepResult,
)
from distrl.workers.imagination import Shaping
from distrl.workers.rewards import Ending, awaits_judge, judge, needs_evaluation, step_penalties

Episode = tuple[Trajectory, dict[str, bytes]]
"""A trajectory, and the bytes of every screenshot that it names, by digest."""

BLANK = (16, 36)  # width and height of what stands for a picture
QUALITY = 85  # of JPEG screenshots
MAX_FORESEEN = 512  # tokens of what a learned model of the world answers
_BOX = (0, 160, 60)  # the colour of marks
CAPACITY = 1024  # encoded screens with a key that are kept; one of the simulated phone takes about 0.1 MB
_log = logging.getLogger(__name__)


class PolicyClient(Protocol):
    """Completes chats: an `ActClient`, or a ten-line fake."""

    def act(
        self,
        messages: Sequence[ChatMessage],
        images: Mapping[str, bytes],
        sampling: Sampling,
        prefix: Prefix = NO_PREFIX,
    ) -> Completion:
        """The completion; see `ActClient.act`."""

    def close(self) -> None:
        """Closes its connections. The worker calls it when the slot leaves."""


class Clock:
    """Measures an episode in real time; in `distrl simulate` a virtual clock takes its place."""

    def unix(self) -> float:
        """The time of day, in seconds since 1970."""
        return time.time()

    def seconds(self) -> float:
        """For differences."""
        return time.perf_counter()

    def started(self) -> None:
        """The environment is at the start of a task."""

    def acted(self, app: str) -> None:
        """The environment has executed an action and shows `app`."""


class Conversation:
    """The chats of one episode with one policy."""

    def __init__(self, policy: PolicyClient, images: Mapping[str, bytes], sampling: Sampling) -> None:
        self._policy, self._images, self._sampling = policy, images, sampling
        self._sequence = NO_PREFIX

    def ask(self, prompt: Prompt) -> Chat:
        """Completes `prompt`, which may continue the previous chat's token sequence; see `PolicyClient`."""
        prefix = self._sequence if prompt.continues else NO_PREFIX
        shown = dict.fromkeys((*prefix.images, *shown_images(prompt.messages)))
        images = {digest: self._images[digest] for digest in shown}
        completion = self._policy.act(prompt.messages, images, self._sampling, prefix)
        chat = Chat(messages=prompt.messages, completion=completion, continues=prompt.continues)
        self._sequence = self._sequence.after(chat)
        return chat


class EpisodeRunner:
    """Runs episodes in one environment. Used by one thread.

    Args:
        policy: Completes the agent's chats; unused in demonstrations.
        worker, slot: Recorded in the trajectory.
        stop: When set, the episode is abandoned before its next step.
        distances: Whether observations record the expert's distance from the goal, if it can be computed.
        randomly: Whether to act at random instead of using `policy`.
        clock: What times in the record are measured by.
        sign: Shows people what the episode does.

    `error` is the environment's error that ended the last episode, if any.
    """

    def __init__(
        self,
        env: Env,
        agent: Agent,
        policy: PolicyClient,
        config: WorkerConfig,
        worker: str = "",
        slot: int = 0,
        stop: threading.Event | None = None,
        distances: bool = False,
        randomly: bool = False,
        clock: Clock | None = None,
        sign: SlotSign | None = None,
    ) -> None:
        self._sign = sign or SlotSign()
        self._env, self._agent, self._policy, self._config = env, agent, policy, config
        self._clock = clock or Clock()
        self._worker, self._slot, self._randomly = worker, slot, randomly
        self._stop = stop or threading.Event()
        self._measured = env if distances and isinstance(env, ExpertDistance) else None
        self.error: EnvError | None = None
        self._has_warned_full = False

    def run(self, lease: Lease) -> Episode | None:
        """One episode of `lease.task`; None if it was abandoned: because of `stop`, or for a person.

        It ends when the agent says COMPLETE or IMPOSSIBLE, when the environment ends it, (truncated) at the
        task's step limit, or when the token sequence that the next step would continue is full. In each case
        the last step has `done` set and carries the outcome reward. A failing environment, an unreachable
        policy, or a first prompt that does not fit ends it early with `fault` set, without outcome or reward:
        such a trajectory records what happened and does not count.

        An imagined episode goes on from a state of a real one, whose steps are played again and not recorded.
        It also ends at its horizon (truncated, unjudged), and its clock is not told what the model does.
        In a learned model there are only prompts, answers, and what the model says between them.
        """
        draft, self.error = _Draft(lease, self._clock), None
        try:
            finished = self._play(lease, draft)
        except EnvError as error:
            self.error = error
            draft.fault, draft.fault_detail = Fault(error.fault), str(error)
        except (ContextFull, InferenceUnavailable, ProtocolError) as error:
            draft.fault, draft.fault_detail = Fault.INFERENCE, str(error)
        except Abandoned:
            return None
        else:
            return draft.finish(self._worker, self._slot) if finished else None
        # While the worker stops, environments and servers disappear: that is not a fault.
        return None if self._stop.is_set() else draft.finish(self._worker, self._slot)

    def _play(self, lease: Lease, draft: _Draft) -> bool:
        """Fills `draft`; False if it was abandoned."""
        task = lease.task
        if lease.branch is not None and lease.branch.start:
            return self._imagine(lease, lease.branch, draft)
        actor = self._actor(lease, draft) or Conversation(self._policy, draft.images, lease.sampling)
        frame = call(Frame, self._env.reset, task)
        shaping = None
        if lease.branch is None:
            self._clock.started()
        else:
            frame = self._branch_off(lease.branch, draft, frame)
            shaping = Shaping(lease.branch, self._env)
        screen, observe_s = self._look(frame, draft, False)
        if isinstance(self._env, ProvidesGoal):
            self._sign.task = draft.task = task = task.model_copy(update={"goal": self._env.goal})
        while not (self._stop.is_set() or self._sign.is_given_up):
            started_at, clock = self._clock.unix(), self._clock.seconds()
            self._sign.thinks()
            try:
                chats, action = self._decide(task.goal, screen, draft.history, actor)
            except ContextFull as error:
                if not draft.steps:
                    raise
                if not self._has_warned_full:  # because nothing else shows it
                    self._has_warned_full = True
                    _log.warning(
                        "%s ended after %d of its %d steps because its token sequence is full: %s "
                        "This is logged once; see Agents in docs/models.md.",
                        task.id, len(draft.steps), task.max_steps, error,
                    )  # fmt: skip
                self._cut(draft, self._look(frame, draft, True)[0])
                return True
            think_s = self._clock.seconds() - clock
            self._sign.acts(action)
            clock = self._clock.seconds()
            result = call(StepResult, self._env.step, action)
            frame = result.frame
            if shaping is None:
                self._clock.acted(frame.app)
            act_s = max(0.0, self._clock.seconds() - clock - result.settle_s)

            done = action.is_terminal or result.done
            truncated = not done and (result.truncated or len(draft.history) + 1 >= task.max_steps)
            reward = step_penalties(draft.history, action, screen.image, self._config.rewards)
            is_over = done or truncated
            if is_over:
                self._judge(draft, action, result.done, truncated)
                reward = reward.model_copy(update={"outcome": draft.ending.success})
            if shaping is not None:
                gain = shaping.reward(draft.ending.success if is_over else None)
                reward = reward.model_copy(update={"shaping": gain})
            is_cut = not is_over and shaping is not None and len(draft.steps) + 1 >= shaping.horizon
            step = TimeStep(
                observation=screen,
                chats=chats,
                action=ActionRecord(**action.model_dump(mode="json")),
                reward=reward,
                done=is_over or is_cut,
                timing=Timing(
                    started_at=started_at,
                    observe_s=observe_s,
                    think_s=think_s,
                    act_s=act_s,
                    settle_s=result.settle_s,
                ),
                guard=result.guard,
            )
            draft.add(step)
            screen, observe_s = self._look(frame, draft, step.done)
            if is_cut or truncated:
                draft.truncated = True
                # At the step limit without the first step, so that its number is one that critics train on.
                told = draft.history[1:] if truncated else draft.history
                prompt = call(Prompt, self._agent.prompt, task.goal, screen, told, [])
                draft.next_prompt = () if prompt.continues else prompt.messages
            if step.done:
                draft.final = screen
                return True
        return False

    def _imagine(self, lease: Lease, branch: Branch, draft: _Draft) -> bool:
        """Fills `draft` with what the policy does in a learned model of the world; False if abandoned."""
        policy, model = (
            Conversation(self._policy, draft.images, sampling)
            for sampling in (lease.sampling, Sampling(max_new_tokens=MAX_FORESEEN))
        )
        prompt, last = branch.start, lease.task.max_steps
        if hasattr(self._env, "max_actions"):  # after which there is no success
            last = min(last, self._env.max_actions(getattr(self._agent, "chunk", 1)))
        while not (self._stop.is_set() or self._sign.is_given_up):
            started_at, clock = self._clock.unix(), self._clock.seconds()
            screen, _ = self._look(Frame.of(_stand_in(text_of(prompt))), draft, False)
            chat = policy.ask(Prompt(prompt))
            action = call(Action, self._agent.parse, chat.completion.text, screen)
            follows = model.ask(Prompt(question(prompt, chat.completion.text))).completion.text
            num_steps, is_solved = len(draft.steps) + 1, follows == SUCCESS
            has_ended = is_solved or action.is_terminal
            is_unsure = follows.startswith(UNSURE)
            is_over = has_ended or (not is_unsure and len(branch.past) + num_steps >= last)
            is_cut = not is_over and (is_unsure or num_steps >= branch.horizon)
            reward = step_penalties(draft.history, action, screen.image, self._config.rewards)
            if is_over:
                draft.ending = judge(action, float(is_solved), not has_ended)
                reward = reward.model_copy(update={"outcome": draft.ending.success})
            draft.add(
                TimeStep(
                    observation=screen,
                    chats=(chat,),
                    action=ActionRecord(**action.model_dump(mode="json")),
                    reward=reward,
                    done=is_over or is_cut,
                    timing=Timing(started_at=started_at, think_s=self._clock.seconds() - clock),
                )
            )
            prompt = said(follows.removeprefix(UNSURE))
            if is_over or is_cut:
                draft.truncated, draft.final = not has_ended, screen
                draft.next_prompt = () if has_ended else prompt
                return True
        return False

    def _branch_off(self, branch: Branch, draft: _Draft, frame: Frame) -> Frame:
        """Plays the real steps before `branch` again, for the agent to see. Returns its first frame."""
        for past in branch.past:
            screen, _ = self._look(frame, draft, False)
            chats = [Chat(messages=(), completion=Completion(text=text)) for text in past.answers]
            draft.history.append(TimeStep(observation=screen, chats=tuple(chats), action=past.action))
            frame = call(StepResult, self._env.step, Action(**past.action.model_dump())).frame
        return frame

    def _actor(self, lease: Lease, draft: _Draft) -> Demonstrator | RandomActor | ByHand | None:
        if lease.by_hand is not None:
            return ByHand(self._agent, self._sign, self._stop)
        rng = random.Random(f"{lease.id}/{lease.task.id}/{lease.task.seed}")
        if self._randomly:
            return RandomActor(self._agent, rng)
        if lease.purpose is Purpose.DEMO:
            player = Conversation(self._policy, draft.images, lease.sampling) if lease.policy_plays else None
            return Demonstrator(self._env, self._agent, lease.noise, rng, player)
        return None

    def _look(self, frame: Frame, draft: _Draft, is_last: bool) -> tuple[Observation, float]:
        """Keeps the screenshot. Returns the observation and the seconds it took."""
        clock = self._clock.seconds()
        observation, data = observe(frame, self._config)
        recorded = self._config.elements == "all" or (is_last and self._config.elements == "final")
        if (recorded or getattr(self._agent, "needs_elements", False)) and isinstance(self._env, HasElements):
            observation = observation.model_copy(update={"elements": self._env.elements()})
        draft.images[observation.image] = data
        if observation.elements and getattr(self._agent, "needs_marks", False):
            data = encode(draw_marks(frame.image, observation.elements), self._config.screenshot_format)
            observation = observation.model_copy(update={"marked": image_digest(data)})
            draft.images[observation.marked] = data
        observe_s = self._clock.seconds() - clock
        self._sign.shows(frame, observation, data, is_drawn=observation.width != BLANK[0])
        if self._measured is not None:
            observation = observation.model_copy(update={"distance": self._measured.distance()})
        return observation, observe_s

    def _decide(
        self,
        goal: str,
        screen: Observation,
        steps: Sequence[TimeStep],
        actor: Conversation | Demonstrator | RandomActor | ByHand,
    ) -> tuple[tuple[Chat, ...], Action]:
        """The chats of a step, and its action: parsed from the last chat's answer, or an actor's own.

        With an actor the step has only the chat for the action, because an actor answers no other prompt.
        """
        said: list[Chat] = []
        for _ in range(MAX_CHATS):
            prompt = call(Prompt, self._agent.prompt, goal, screen, steps, said)
            if not isinstance(actor, Conversation):
                if prompt.is_action:
                    chat, action = actor.act(prompt, screen)
                    return (chat,), action
                said.append(answer(prompt, ""))
                continue
            said.append(actor.ask(prompt))
            if prompt.is_action:
                return tuple(said), call(Action, self._agent.parse, said[-1].completion.text, screen)
        raise ConfigError(
            f"The agent made {MAX_CHATS} prompts in one step without asking for an action.",
            "Choose another agent.",
        )

    def _cut(self, draft: _Draft, screen: Observation) -> None:
        """Ends an episode after its last step, as the step limit would."""
        last = draft.steps[-1]
        self._judge(draft, Action(**last.action.model_dump()), False, True)
        draft.final = screen
        reward = last.reward.model_copy(update={"outcome": draft.ending.success})
        draft.steps[-1] = last.model_copy(update={"reward": reward, "done": True})

    def _judge(self, draft: _Draft, last: Action, env_done: bool, truncated: bool) -> None:
        """Ends the episode; without an outcome yet if a judge decides it, see `distrl.workers.judging`."""
        draft.truncated = truncated
        counts = needs_evaluation(last, env_done, self._config.rewards)
        has_truth = not isinstance(self._env, PartialGroundTruth) or self._env.has_truth(draft.task)
        if has_truth:
            draft.ending = judge(last, score_of(self._env.evaluate) if counts else None, truncated)
            if isinstance(self._env, ExplainsFailure):
                draft.shortfall = self._env.shortfall()
        else:
            draft.ending = Ending(Outcome.UNJUDGED, 0.0)
        if awaits_judge(draft.lease.purpose, self._config.rewards):
            draft.truth = draft.ending.success if has_truth else None
            draft.ending = Ending(Outcome.UNJUDGED, 0.0) if counts else judge(last, None, truncated)


class _Draft:
    """An episode so far. A faulted one keeps the steps that it completed."""

    def __init__(self, lease: Lease, clock: Clock) -> None:
        self.lease = lease
        self.task = lease.task
        self.steps: list[TimeStep] = []
        self.history: list[TimeStep] = []  # with the real steps before an imagined episode
        self.next_prompt: tuple[ChatMessage, ...] = ()
        self.images: dict[str, bytes] = {}
        self.final: Observation | None = None
        self.ending = Ending(Outcome.UNJUDGED, 0.0)
        self.shortfall = ""
        self.truth: float | None = None
        self.truncated = False
        self.fault = Fault.NONE
        self.fault_detail = ""
        self._clock, self._started_at, self._start = clock, clock.unix(), clock.seconds()

    def add(self, step: TimeStep) -> None:
        self.steps.append(step)
        self.history.append(step)

    def finish(self, worker: str, slot: int) -> Episode:
        trajectory = Trajectory(
            id=uuid.uuid4().hex,
            task=self.task,
            purpose=self.lease.purpose,
            lease_id=self.lease.id,
            group_id=self.lease.group_id,
            worker=worker,
            slot=slot,
            steps=tuple(self.steps),
            final=self.final,
            outcome=self.ending.outcome,
            success=self.ending.success,
            shortfall=self.shortfall,
            truth=self.truth,
            fault=self.fault,
            fault_detail=self.fault_detail[:500],
            truncated=self.truncated,
            branch=self.lease.branch,
            next_prompt=self.next_prompt,
            started_at=self._started_at,
            duration_s=self._clock.seconds() - self._start,
        )
        return trajectory, {digest: self.images[digest] for digest in trajectory.image_digests}


@dataclass(frozen=True)
class Screenshot:
    """An encoded picture, its digest and its size in pixels."""

    data: bytes
    digest: str
    size: tuple[int, int]


class _Shot:
    """A screen to encode, and its format. Equal to another with the same key and format.

    The hash is computed once, because hashing the tree of a simulated screen is slow.
    """

    __slots__ = ("_hash", "_key", "picture")

    def __init__(self, screen: Screen, image_format: str) -> None:
        self.picture = screen.picture
        self._key = screen.key, image_format
        self._hash = hash(self._key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Shot) and self._hash == other._hash and self._key == other._key


@lru_cache(CAPACITY)
def _encoded(shot: _Shot) -> Screenshot:
    image = shot.picture()
    del shot.picture  # the cache keeps the shot; its screen may hold a picture
    data = encode(image, shot._key[1])
    return Screenshot(data, image_digest(data), image.size)


def observe(frame: Frame, config: WorkerConfig) -> tuple[Observation, bytes]:
    """The observation of a frame, and the encoded bytes that its digest names.

    Identical pixels give identical bytes. A screen with a key that was seen before is not drawn again. Where
    no pictures are wanted, a screen with a key is a small picture of that key.
    """
    if config.screenshot_format == "none" and frame.screen.key is not None:
        data = encode(_stand_in(hash(frame.screen.key)), "png")
        return _observation(frame, image_digest(data), BLANK), data
    take = _encoded if frame.screen.key is not None else _encoded.__wrapped__
    shot = take(_Shot(frame.screen, config.screenshot_format))
    return _observation(frame, shot.digest, shot.size), shot.data


def _stand_in(key: int | str) -> Image.Image:
    """A small picture of a key."""
    return Image.frombytes("RGB", BLANK, random.Random(key).randbytes(16 * 3) * BLANK[1])


def _observation(frame: Frame, digest: str, size: tuple[int, int]) -> Observation:
    return Observation(image=digest, width=size[0], height=size[1], app=frame.app, state=frame.state)


def encode(image: Image.Image, image_format: str) -> bytes:
    """The bytes of `image` as RGB "jpeg" or (lossless) "png"."""
    buffer = io.BytesIO()
    rgb = image if image.mode == "RGB" else image.convert("RGB")
    if image_format == "png":
        rgb.save(buffer, "PNG", compress_level=1)  # level 1: a third of the time for a few percent more bytes
    else:
        rgb.save(buffer, "JPEG", quality=QUALITY)
    return buffer.getvalue()


def draw_marks(image: Image.Image, elements: Sequence[Element]) -> Image.Image:
    """A copy of `image` with a box around each element and its number on it ("set of marks").

    A number stands in the box's top left corner, or in another one if a number is there already.
    """
    marked, (width, height) = image.convert("RGB"), image.size
    pen, font = ImageDraw.Draw(marked), ImageFont.load_default(max(10, width // 45))
    taken: list[tuple[float, ...]] = []
    for number, element in enumerate(elements):
        left, top, right, bottom = (
            round(edge * (width, height)[n % 2]) for n, edge in enumerate(element.bounds)
        )
        pen.rectangle(
            (left, top, max(left, right - 1), max(top, bottom - 1)), outline=_BOX, width=max(1, width // 360)
        )
        across, down = (size + 3 for size in pen.textbbox((0, 0), str(number), font)[2:])
        corners = [(x, y) for y in (top, bottom - down) for x in (left, right - across)]
        free = (
            (x, y)
            for x, y in corners
            if not any(x < r and lf < x + across and y < b and t < y + down for lf, t, r, b in taken)
        )
        x, y = next(free, corners[0])
        taken.append((x, y, x + across, y + down))
        pen.rectangle(taken[-1], fill="white", outline=_BOX)
        pen.text((x + 2, y + 1), str(number), fill="black", font=font)
    return marked
