"""Lists of instructions become tasks: normalised, distinct, with lasting ids, nothing tested trained on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from distrl.core.errors import TaskError
from distrl.evaluator.suites.files import (
    EMPTY,
    LEAKED,
    REPEATED,
    LeftOut,
    import_lists,
    normalised,
    read_list,
)


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("  Open   the\tClock ", "Open the Clock"),
        ("12. Turn on Wi-Fi", "Turn on Wi-Fi"),
        ("- What's the weather?", "What's the weather?"),
        ("\u201cGo to ebay.com\u201d", "Go to ebay.com"),
        ("2 + 2 is what?", "2 + 2 is what?"),
        ('"Open a" and "close b"', '"Open a" and "close b"'),
        ("Open\x00\x07 mail", "Open mail"),
    ],
)
def test_normalised(given: str, expected: str) -> None:
    assert normalised(given) == expected


def test_repeats_and_leaks_are_left_out_and_told(tmp_path: Path) -> None:
    train = write(tmp_path / "a.txt", "Open Chrome\nopen chrome.\n\nSet a timer\nCheck the news\n")
    test = write(tmp_path / "b.txt", "check the NEWS!\nPlay music\n")
    tasks, left_out = import_lists([f"train={train}", f"test={test}"], "aitw", 10)
    goals = [(task.split, task.goal) for task in tasks]
    assert goals == [
        ("train", "Open Chrome"),
        ("train", "Set a timer"),
        ("test", "check the NEWS!"),
        ("test", "Play music"),
    ]
    assert left_out == [
        LeftOut("train", "open chrome.", REPEATED),
        LeftOut("train", "Check the news", LEAKED),
    ]
    assert {task.max_steps for task in tasks} == {10}


@pytest.mark.parametrize(
    "different",
    [
        ("Calculate 36 + 48", "Calculate 36 - 48", "Calculate 36 \u00d7 48", "Calculate 36 48"),
        ("Set temperature to -5", "Set temperature to 5", "Set temperature to 5\u00b0"),
        ("What is C++?", "What is C#?", "What is C?"),
        ("Calculate 5!", "Calculate 5", "Calculate 5\u00b2", "Calculate 52"),
        ("\u0915\u093f", "\u0915\u0940", "\u0915"),
        ("\U0001f600", "\U0001f622"),
        ("Type .", "Type ?", "Type"),
        ("Set it for 7:15", "Set it for 7.15", "Set it for 715"),
    ],
)
def test_signs_and_marks_make_a_difference(different: tuple[str, ...], tmp_path: Path) -> None:
    tasks, left_out = import_lists([f"test={write(tmp_path / 'a.txt', chr(10).join(different))}"], "s", 5)
    assert tuple(task.goal for task in tasks) == different
    assert len({task.id for task in tasks}) == len(different)
    assert left_out == []


@pytest.mark.parametrize(
    "same",
    [
        ("Open Chrome", "open  CHROME.", "Open Chrome!?", "Open\u200b Chrome\u2026"),
        (
            'Open the note "Rent"',
            "open the note \u201cRent\u201d.",
            "Open the note Rent",
            "Open the note 'rent.'",
        ),
        ("What\u2019s new?", "What's new"),
        ("Caf\u00e9", "Cafe\u0301"),
    ],
)
def test_case_spaces_quotes_and_the_last_stop_make_none(same: tuple[str, ...], tmp_path: Path) -> None:
    tasks, left_out = import_lists([f"test={write(tmp_path / 'a.txt', chr(10).join(same))}"], "s", 5)
    assert [task.goal for task in tasks] == [same[0]]
    assert [one.why for one in left_out] == [REPEATED] * (len(same) - 1)


def test_ids_do_not_hang_on_the_order(tmp_path: Path) -> None:
    one = write(tmp_path / "a.txt", "Open Chrome\nSet a timer\n")
    other = write(tmp_path / "b.txt", "1. Take a photo\n2. set a timer!\n3. Open  Chrome\n")
    first = {task.goal: task.id for task in import_lists([f"train={one}"], "s", 5)[0]}
    ids = {task.id for task in import_lists([f"train={other}"], "s", 5)[0]}
    assert set(first.values()) < ids
    assert first["Open Chrome"].startswith("s/instruction/train/")


def test_every_kind_of_list_reads_alike(tmp_path: Path) -> None:
    goals = ["Open Chrome", "Buy a mug, blue"]
    files = [
        write(tmp_path / "a.txt", "\n".join(goals)),
        write(tmp_path / "a.csv", 'id,goal\n1,Open Chrome\n2,"Buy a mug, blue"\n'),
        write(tmp_path / "a.jsonl", "\n".join(json.dumps(goal) for goal in ({"task": goals[0]}, goals[1]))),
    ]
    assert [read_list(file) for file in files] == [(goals, [])] * len(files)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.txt", "  \n...\n", "contains no instructions"),
        ("a.csv", "name,text\nx,y\n", "one column must be named goal or .*; its columns: name, text"),
        ("a.csv", "", "its columns: "),
        ("a.csv", 'goal,n\n"Open,2\nGo,3\n"Mail",4\n', "begins in line 2 is not valid CSV"),
        ("a.csv", 'goal,n\n"Open,2\nGo,3\nSay "",4\nMail",5\n', "begins in line 2 continues to line 5"),
        ("a.csv", "goal,goal\na,b\n", "one column must be named goal"),
        (
            "a.txt",
            "Open mail\nOpen " + "x" * 5000,
            "instruction 2 has 5005 characters, more than 4000: 'Open xxx",
        ),
        ("a.jsonl", '{"goal": 3}', "line 1: there is no instruction"),
        ("a.jsonl", '"fine"\n{', "line 2: not valid JSON"),
        ("a.parquet", "", "extension is one of .txt"),
    ],
)
def test_what_is_wrong_with_a_list_is_told(tmp_path: Path, name: str, text: str, said: str) -> None:
    with pytest.raises(TaskError, match=said):
        read_list(write(tmp_path / name, text))


def test_marks_and_gaps_in_a_list(tmp_path: Path) -> None:
    marked = write(tmp_path / "a.csv", "\ufeffgoal ,n\nOpen mail,1\n,2\n3\n")
    assert read_list(marked) == (["Open mail", "3"], [""])
    short = write(tmp_path / "b.csv", "id,goal\n1,Open mail\n2\n")
    assert import_lists([f"test={short}"], "s", 5)[1] == [LeftOut("test", "", EMPTY)]
    latin = tmp_path / "c.txt"
    latin.write_bytes("Open mail\nOpen café\n".encode("latin-1"))
    with pytest.raises(TaskError, match=r"c\.txt, line 2: the list is not encoded in UTF-8\. Save it"):
        read_list(latin)


def test_splits_are_named_once_each(tmp_path: Path) -> None:
    file = write(tmp_path / "a.txt", "Open Chrome\n")
    with pytest.raises(TaskError, match="is not a valid list"):
        import_lists([str(file)], "s", 5)
    with pytest.raises(TaskError, match="named twice"):
        import_lists([f"train={file}", f"train={file}"], "s", 5)
    with pytest.raises(TaskError, match="every instruction of 'train'"):
        import_lists([f"train={file}", f"test={file}"], "s", 5)
