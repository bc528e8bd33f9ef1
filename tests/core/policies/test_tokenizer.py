"""Action and prompt tokens: short, lossless, known to every process."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distrl.core.actions import Action, ActionKind
from distrl.core.errors import CheckpointError, PolicyError
from distrl.core.policies import checkpoint_words
from distrl.core.policies.tokenizer import END, ActionTokenizer, grid_values
from distrl.core.types import ActionRecord, Observation, TextPart, TimeStep
from distrl.workers.agents.autoui import KINDS, AutoUIAgent

AGENT = AutoUIAgent()
TOKENIZER = ActionTokenizer(["red", "shoes", "alice", "wi-fi", "iphone15"], (12, 24))
GRID_X, GRID_Y = grid_values(12), grid_values(24)


def names(ids: list[int]) -> list[str]:
    return [TOKENIZER.tokens[index] for index in ids]


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_of_action_comes_back(kind: ActionKind) -> None:
    to = (0.29, 0.81) if kind is ActionKind.SWIPE else None
    action = Action(kind=kind, point=(0.29, 0.31), to=to, text="Red shoes, size 7:05")
    decoded = AGENT.parse(TOKENIZER.decode(TOKENIZER.encode_action(AGENT.format(action))))
    assert decoded.kind is kind
    if kind in (ActionKind.TAP, ActionKind.LONG_PRESS, ActionKind.SWIPE):
        assert decoded.point == (float(GRID_X[3]), float(GRID_Y[7]))
    if kind is ActionKind.SWIPE:
        assert decoded.to == (float(GRID_X[3]), float(GRID_Y[19]))
    if kind is ActionKind.TYPE:
        assert decoded.text == "Red shoes, size 7:05"


@given(x=st.floats(0, 1), y=st.floats(0, 1))
def test_a_tap_is_two_tokens_and_moves_less_than_half_a_cell(x: float, y: float) -> None:
    ids = TOKENIZER.encode_action(AGENT.format(Action.tap(x, y)))
    assert len(ids) == 2
    assert ids[-1] in TOKENIZER.end_ids
    point = AGENT.parse(TOKENIZER.decode(ids)).point
    assert point is not None
    assert TOKENIZER.decode(ids) == AGENT.format(Action.tap(*point)), "the lift point is the touch point"
    rounding = 0.011  # two decimals in the given text and in the grid's
    assert abs(point[0] - x) <= 0.5 / 12 + rounding
    assert abs(point[1] - y) <= 0.5 / 24 + rounding


PIECES = st.sampled_from(["red", "Shoes", " ", "  ", ":", "7", "05", "x", "\n", "Ä", '"'])


@given(text=st.text(min_size=1, max_size=40) | st.lists(PIECES, min_size=1).map("".join))
def test_any_typed_text_comes_back(text: str) -> None:
    if text != text.encode("utf-8", "replace").decode():
        return  # half a surrogate pair has no bytes
    action = Action.type_text(text)
    assert AGENT.parse(TOKENIZER.decode(TOKENIZER.encode_action(AGENT.format(action)))) == action


def test_known_words_are_single_tokens() -> None:
    typed = TOKENIZER.encode_action(AGENT.format(Action.type_text("red shoes")))
    assert names(typed) == ["<TYPE>", "red", "shoes", END]
    assert len(TOKENIZER.encode_action(AGENT.format(Action(kind=ActionKind.BACK)))) == 1
    prompt = names(TOKENIZER.encode_prompt("step 3 last tap Goal: Red  SHOES"))
    assert prompt == ["step", "3", "last", "tap", "goal", "<0x3a>", "red", "shoes", END]


@given(text=st.text(max_size=40))
def test_every_prompt_ends_once(text: str) -> None:
    ids = TOKENIZER.encode_prompt(text)
    assert names(ids).count(END) == 1
    assert names(ids)[-1] == END


@given(
    x=st.floats(0, 1),
    y=st.floats(0, 1),
    typed=st.text(st.characters(exclude_characters='"\\'), min_size=1, max_size=24),
)
def test_the_agents_memory_of_its_actions_reaches_the_policy(x: float, y: float, typed: str) -> None:
    """An agent that must go on from what it did sees where it tapped and what it typed."""
    tap, text = Action.tap(x, y), Action.type_text(typed)
    steps = [
        TimeStep(
            observation=Observation(image="a", width=1, height=1),
            chats=(),
            action=ActionRecord(**action.model_dump(mode="json")),
        )
        for action in (tap, text)
    ]
    screen = Observation(image="f00d", width=1, height=1)
    (message,) = AutoUIAgent(history=2).prompt("red shoes", screen, steps).messages
    part = message.parts[1]
    assert isinstance(part, TextPart)
    said = [token for action in (tap, text) for token in TOKENIZER.encode_action(AGENT.format(action))]
    ids = TOKENIZER.encode_prompt(part.text)
    assert names(ids[:3]) == ["step", "2", "last"]
    assert ids[3 : 3 + len(said)] == said
    assert names(ids[3 + len(said) :]) == ["goal", "<0x3a>", "red", "shoes", END]


def test_what_is_no_action_has_no_completion() -> None:
    for text in ("", "tap the button", '"action_type": "DANCE"'):
        with pytest.raises(PolicyError, match="AutoUI"):
            TOKENIZER.encode_action(text)


@given(ids=st.lists(st.integers(0, len(TOKENIZER.tokens) - 1), max_size=12))
def test_any_token_sequence_has_a_text(ids: list[int]) -> None:
    AGENT.parse(TOKENIZER.decode(ids))


def test_ids_do_not_depend_on_the_order_of_words(tmp_path: Path) -> None:
    assert ActionTokenizer(["b", "a", "b"], (12, 24)).tokens == ActionTokenizer(["a", "b"], (12, 24)).tokens
    TOKENIZER.save(tmp_path)
    loaded = ActionTokenizer.load(tmp_path)
    assert loaded is not None
    assert loaded.tokens == TOKENIZER.tokens
    words = checkpoint_words(tmp_path)
    assert words is not None
    assert ActionTokenizer(words, (12, 24)).tokens == TOKENIZER.tokens


def test_a_truncated_tokenizer_file_is_a_checkpoint_error(tmp_path: Path) -> None:
    TOKENIZER.save(tmp_path)
    file = tmp_path / "tokenizer.json"
    file.write_bytes(file.read_bytes()[:40])
    with pytest.raises(CheckpointError, match="cannot be read"):
        ActionTokenizer.load(tmp_path)
    with pytest.raises(CheckpointError, match="cannot be read"):
        checkpoint_words(tmp_path)
    assert checkpoint_words(tmp_path / "elsewhere") is None
