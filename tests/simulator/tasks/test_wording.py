"""Names and wordings: many, well formed, and those of evaluation never in training."""

from __future__ import annotations

import random
import re
import string

import pytest

from distrl.evaluator.suites import load_suite, promises
from distrl.simulator.names import Names
from distrl.simulator.tasks import play, wording
from distrl.simulator.tasks.suites import quickstart
from distrl.simulator.tasks.suites.general import FAMILIES, UNSEEN_APPS, UNSEEN_TEMPLATES

KINDS = ("person", "town", "event", "note", "item", "text", "query", "song", "file", "folder")


def words(text: str) -> set[str]:
    return set(re.findall(r"[a-z]+", re.sub(r"\{\w+\}", "", text).lower()))


def every(family: str, is_held_out: bool) -> set[str]:
    """Every wording that `say` may choose."""
    left, found = list(wording._lines()[family][is_held_out]), set()
    while left:
        text = left.pop()
        if choice := wording._CHOICE.search(text):
            left += [text[: choice.start()] + one + text[choice.end() :] for one in choice[1].split("|")]
        else:
            found |= {wording._framed(text, frame) for frame in wording.FRAMES[is_held_out]}
    return found


@pytest.mark.parametrize("is_held_out", [False, True])
def test_what_is_said_is_one_of_the_wordings(is_held_out: bool) -> None:
    rng = random.Random(0)
    known = every("note_delete", is_held_out)
    said = {wording.say("note_delete", is_held_out, rng) for _ in range(20_000)}
    assert said <= known
    assert len(said) > 0.8 * len(known)
    assert all(text[0] in string.ascii_uppercase + '"{' and not set(text) & set("[]|$~") for text in said)


def test_a_wording_of_training_is_never_held_out_whatever_its_family() -> None:
    families = [family.name for family in (*FAMILIES, *UNSEEN_TEMPLATES, *UNSEEN_APPS)]
    families += quickstart.WORDINGS.values()
    trained, held_out = (
        {
            re.sub(r"[^a-z0-9{} ]", "", text.lower()).strip()
            for family in families
            for text in every(family, side)
        }
        for side in (False, True)
    )
    assert not trained & held_out, "up to case and punctuation"
    counts = [[len(every(family.name, side)) for family in FAMILIES] for side in (False, True)]
    assert min(counts[0]) >= 60
    assert min(counts[1]) >= 8


def test_held_out_wordings_are_new_phrases_mostly_of_known_words() -> None:
    known, asked = (
        set().union(*(words(text) for family in FAMILIES for text in every(family.name, side)))
        for side in (False, True)
    )
    assert len(asked - known) <= 0.25 * len(asked), sorted(asked - known)


def test_commands_are_framed_and_questions_are_not() -> None:
    said = every("weather_city", False)
    assert {"Show me the weather in {city}", "Can you show me the weather in {city}?"} <= said
    assert not [
        text for text in said if text.startswith(("Can you what", "Please what", "I want you to what"))
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_names_are_many_and_those_held_out_are_others(kind: str) -> None:
    trained, held_out = ({names.name(kind) for _ in range(6000)} for names in (Names(0), Names(1)))
    assert len(trained) >= 1000
    assert len(held_out) >= 80
    assert not trained & held_out
    assert Names(4).names(kind, 30) == Names(4).names(kind, 30) != Names(6).names(kind, 30)


def test_no_person_of_training_is_on_a_phone_of_the_test() -> None:
    people: dict[str, set[str]] = {"train": set(), "test": set()}
    for split, found in people.items():
        for task in load_suite("general", split)[::9]:
            contacts = play.start_state(task.template, task.params, task.seed)["apps"]["contacts"]
            found |= {entry["name"] for entry in contacts["people"]}
    assert len(people["train"]) > 3000
    assert not people["train"] & people["test"]


@pytest.mark.parametrize("suite", ["general", "webshop"])
def test_what_must_be_typed_is_in_the_goal_letter_by_letter(suite: str) -> None:
    names = promises(suite).names
    assert not [task.id for task in load_suite(suite) if not all(name in task.goal for name in names(task))]
