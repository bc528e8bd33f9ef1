"""Post-mortem bundles: what is in them, and that they stay few and small."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from distrl.core.errors import EnvError
from distrl.workers.devices import postmortem
from distrl.workers.devices.errors import DeviceTimeout
from distrl.workers.devices.health import SlotState, StepOutcome, Transition
from distrl.workers.devices.postmortem import Facts, Postmortems

ERROR = DeviceTimeout("no answer.", "Look at its cable.", serial="a:1", evidence="silence \udcff")
PAST = Transition(5.0, SlotState.READY, SlotState.BUSY, 2.0, "leased")


def kept(folder: Path, wall: float = 0.0, **limits: int) -> Postmortems:
    return Postmortems(lambda: folder, wall=lambda: wall, **limits)


def test_a_bundle_tells_what_happened(tmp_path: Path) -> None:
    facts = Facts("a:1", "adb", ERROR, busy_s=3.0, silent_s=4.0, history=(PAST,))
    bundle = kept(tmp_path).begin(facts)
    bundle.add({"screen-0.jpg": b"picture", "logcat.txt": b"log"})
    bundle.step(StepOutcome("wait", 5.0, "still silent"))
    bundle.step(StepOutcome("reconnect", 0.5))
    bundle.close("ready")
    (folder,) = tmp_path.iterdir()
    assert folder.name == "19700101-000000_a_1"
    assert {path.name for path in folder.iterdir()} == {"fault.json", "screen-0.jpg", "logcat.txt"}
    told = json.loads((folder / "fault.json").read_text())
    assert told["error"] == {
        "type": "DeviceTimeout",
        "scope": "device",
        "retryable": True,
        "message": "a:1: no answer.",
        "remedy": "Look at its cable.",
        "evidence": "silence \udcff",
        "caused_by": "",
    }
    assert (told["device"], told["kind"], told["busy_s"], told["silent_s"]) == ("a:1", "adb", 3.0, 4.0)
    assert told["history"] == [
        {"at": 5.0, "before": "ready", "after": "busy", "after_s": 2.0, "reason": "leased"}
    ]
    assert [(step["name"], step["error"]) for step in told["ladder"]] == [
        ("wait", "still silent"),
        ("reconnect", ""),
    ]
    assert (told["result"], told["after_s"]) == ("ready", 0.0)


def test_what_is_known_is_written_at_once(tmp_path: Path) -> None:
    """So that it is there if the process dies over the repair."""
    bundle = kept(tmp_path).begin(Facts("a", "adb", EnvError("gone.", fault="device")))
    assert json.loads((bundle.folder / "fault.json").read_text())["result"] == "under way"


def test_faults_of_one_second_have_folders_of_their_own(tmp_path: Path) -> None:
    bundles = [kept(tmp_path).begin(Facts("a", "adb", ERROR)) for _ in range(3)]
    assert len({bundle.folder for bundle in bundles}) == 3


def test_long_files_keep_their_end_and_there_are_not_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postmortem, "MAX_FILE_BYTES", 4)
    monkeypatch.setattr(postmortem, "MAX_FILES", 3)
    bundle = kept(tmp_path).begin(Facts("a", "adb", ERROR))
    bundle.add({f"log-{n}": b"long tail" for n in range(5)})
    logs = sorted(path for path in bundle.folder.glob("log-*"))
    assert [(path.name, path.read_bytes()) for path in logs] == [(f"log-{n}", b"tail") for n in range(3)]


def test_names_stay_inside_the_folder(tmp_path: Path) -> None:
    bundle = kept(tmp_path / "p").begin(Facts("../../up", "adb", ERROR))
    bundle.add({"../escape": b"x", "/etc/x": b"x"})
    assert bundle.folder.parent == tmp_path / "p"
    assert sorted(path.name for path in bundle.folder.iterdir()) == ["_escape", "_etc_x", "fault.json"]


def test_the_oldest_make_room_by_number_and_by_size(tmp_path: Path) -> None:
    for second in range(5):
        kept(tmp_path, wall=second, max_count=3).begin(Facts("a", "adb", ERROR))
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [f"19700101-00000{second}_a" for second in (2, 3, 4)]
    kept(tmp_path, wall=9.0, max_bytes=10).begin(Facts("a", "adb", ERROR))
    assert [path.name for path in tmp_path.iterdir()] == ["19700101-000009_a"]


def test_a_folder_that_cannot_be_written_costs_no_more_than_the_bundle(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    bundle = kept(tmp_path / "file").begin(Facts("a", "adb", ERROR))
    bundle.add({"log": b"x"})
    bundle.close("ready")
    assert "no post-mortem of a" in caplog.text
