"""Episodes of one growing token sequence, from the agent over real sockets to the engine and back."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

pytest.importorskip("torch", reason="needs torch: not installed")

from counting_env import CountingEnv, counting_task
from policy_fakes import chat, png
from sequence_policy import SequencePolicy

from distrl.configs.schema import Config, WorkerConfig
from distrl.core.errors import ProtocolError
from distrl.core.messages import Lease
from distrl.core.policies import build_policy
from distrl.core.policies.base import Policy
from distrl.core.sockets import Wire
from distrl.core.types import Fault, Outcome, Prefix, Sampling, Trajectory, image_digest
from distrl.workers.act_client import ActClient
from distrl.workers.agents.androidworld import AndroidWorldAgent
from distrl.workers.episode import EpisodeRunner
from distrl.workers.inference.engine import HFEngine
from distrl.workers.inference.server import InferenceServer

WAIT_S = 30.0
TAP = 'Reason: tap. Action: {"action_type": "click", "x": 1, "y": 1}'
DONE = 'Action: {"action_type": "status", "goal_status": "complete"}'
MakeClient = Callable[[SequencePolicy], ActClient]


def odd_ids(policy: SequencePolicy, text: str) -> list[int]:
    """One token for each character: what the tokenizer itself would not make of "tap"."""
    return [token for letter in text for token in policy.tokenise(letter)]


@pytest.fixture
def make_client(wire: Wire, serve: Callable[..., InferenceServer]) -> Iterator[MakeClient]:
    with ExitStack() as stack:

        def make(policy: SequencePolicy | Policy) -> ActClient:
            server = serve(HFEngine(policy, 0))  # type: ignore[arg-type]
            client = ActClient(wire, lambda: [server.endpoint], timeout_s=WAIT_S)
            stack.callback(client.close)
            return client

        yield make


def play(client: ActClient, mode: str, max_steps: int = 6, max_new_tokens: int = 500) -> Trajectory:
    agent = AndroidWorldAgent(mode=mode)  # type: ignore[arg-type]
    runner = EpisodeRunner(CountingEnv(), agent, client, WorkerConfig())
    sampling = Sampling(max_new_tokens=max_new_tokens)
    episode = runner.run(Lease(id="l", task=counting_task(max_steps=max_steps), sampling=sampling))
    assert episode is not None
    trajectory, images = episode
    assert set(images) == set(trajectory.image_digests)
    return trajectory


def test_what_the_policy_saw_is_the_record_extended_and_nothing_is_tokenised_twice(
    make_client: MakeClient,
) -> None:
    policy = SequencePolicy()
    taps = [odd_ids(policy, TAP)] * 3
    policy.answers = iter([[*taps[0], policy.end], taps[1], [*taps[2], policy.end], policy.tokenise(DONE)])
    assert policy.tokenise(policy.text(taps[0])) != taps[0], "this answer is retokenised to other ids"
    trajectory = play(make_client(policy), "incremental")
    assert trajectory.success == 1.0
    chats = [step.chats[0] for step in trajectory.steps]
    assert [one.continues for one in chats] == [False, True, True, True]
    assert [len(one.messages) for one in chats] == [2, 1, 1, 1]
    sequence = Prefix()
    for one, (ids, pixels, _) in zip(chats, policy.seen, strict=True):
        before = sequence.before(one)
        assert ids == (*before.token_ids, *one.completion.prompt_token_ids)
        assert len(pixels) == len((*before.images, *one.images))
        sequence = sequence.after(one)
    assert sequence.images == tuple(step.observation.image for step in trajectory.steps)
    stored = sum(len(one.completion.prompt_token_ids) + len(one.completion.token_ids) for one in chats)
    assert stored == len(sequence.token_ids), "an episode's tokens are stored once"
    whole = policy.tokenizer.decode(list(sequence.token_ids))
    assert whole.count("<|im_end|>\n<|im_start|>user\nStep") == 3
    assert whole.count("<|im_end|><|im_end|>") == 0


def test_a_prefix_that_the_policy_cannot_continue_is_refused(
    make_client: MakeClient, make_config: Callable[..., Config], words: list[str]
) -> None:
    tiny, digest = build_policy(make_config().policy, words, 0), image_digest(png(0))
    for policy, ids, message in (
        (tiny, (1, 2), r"'tiny' cannot continue.*agent\.options\.mode to history"),
        (SequencePolicy([0]), (1, 5000, 2), "has the token 5000, but the policy's vocabulary has"),
    ):
        asked = chat("red", digest), {digest: png(0)}, Sampling(), Prefix(token_ids=ids)
        with pytest.raises(ProtocolError, match=message):
            make_client(policy).act(*asked)


def test_answers_get_what_the_budget_leaves_and_a_full_sequence_ends_the_episode(
    make_client: MakeClient,
) -> None:
    policy = SequencePolicy()
    policy.answers = itertools.repeat(policy.tokenise(TAP))
    free = play(make_client(policy), "incremental", max_steps=4)
    lengths = [len(ids) for ids, _, _ in policy.seen]
    assert (free.outcome, len(free.steps)) == (Outcome.STEP_LIMIT, 4)
    policy.seen.clear()
    policy.max_context_tokens = limit = lengths[2] + 7
    trajectory = play(make_client(policy), "incremental", max_steps=4)
    assert [most for _, _, most in policy.seen] == [min(500, limit - length) for length in lengths[:3]]
    assert len(trajectory.steps) == 3, "there is no fourth answer"
    assert (trajectory.outcome, trajectory.fault) == (Outcome.STEP_LIMIT, Fault.NONE)
    assert trajectory.truncated
    last = trajectory.steps[-1]
    assert (last.done, last.action.kind, len(last.chats[0].completion.token_ids)) == (True, "invalid", 7)
    whole = Prefix()
    for step in trajectory.steps:
        whole = whole.after(step.chats[0])
    assert len(whole.token_ids) == limit
