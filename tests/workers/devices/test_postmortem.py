"""Post-mortem bundles: what is in them, and that they stay few and small."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from distrl.workers.devices import postmortem
from distrl.workers.devices.errors import DeviceTimeout
from distrl.workers.devices.postmortem import Bundle, Postmortems

ERROR = DeviceTimeout("no answer.", "Look at its cable.", serial="a:1", evidence="silence \udcff")


def begin(folder: Path, device: str = "a", max_count: int = 100) -> Bundle:
    return Postmortems(lambda: folder, max_count).begin(device, ERROR, {"kind": "adb"})


def record(bundle: Bundle) -> dict[str, object]:
    read: dict[str, object] = json.loads((bundle.folder / "fault.json").read_text())
    return read


def test_a_bundle_tells_what_happened(tmp_path: Path) -> None:
    bundle = begin(tmp_path, "a:1")
    assert record(bundle)["result"] == "under way"  # at once: the process may die over the repair
    bundle.add({"screen-0.jpg": b"picture"})
    bundle.step("wait", 5.0, "still silent")
    bundle.collect(lambda: {"logcat.txt": b"log"})
    bundle.collect(lambda: {"later.txt": b"log"})
    bundle.close("ready")
    assert bundle.folder.name.endswith("_a_1")
    assert {path.name for path in bundle.folder.iterdir()} == {"fault.json", "screen-0.jpg", "logcat.txt"}
    told = record(bundle)
    assert told["error"] == {
        "type": "DeviceTimeout",
        "scope": "device",
        "retryable": True,
        "message": "a:1: no answer.",
        "remedy": "Look at its cable.",
        "evidence": "silence \udcff",
        "caused_by": "",
    }
    assert (told["device"], told["kind"], told["result"]) == ("a:1", "adb", "ready")
    assert told["ladder"] == [{"name": "wait", "seconds": 5.0, "error": "still silent"}]


def test_faults_of_one_second_have_folders_of_their_own(tmp_path: Path) -> None:
    assert len({begin(tmp_path).folder for _ in range(3)}) == 3


def test_long_files_keep_their_end_and_there_are_not_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postmortem, "MAX_FILE_BYTES", 4)
    monkeypatch.setattr(postmortem, "MAX_FILES", 3)
    bundle = begin(tmp_path)
    bundle.add({f"log-{n}": b"long tail" for n in range(5)})
    logs = sorted(path for path in bundle.folder.glob("log-*"))
    assert [(path.name, path.read_bytes()) for path in logs] == [(f"log-{n}", b"tail") for n in range(3)]


def test_names_stay_inside_the_folder(tmp_path: Path) -> None:
    bundle = begin(tmp_path / "p", "../../up")
    bundle.add({"../escape": b"x", "/etc/x": b"x"})
    assert bundle.folder.parent == tmp_path / "p"
    assert sorted(path.name for path in bundle.folder.iterdir()) == ["_escape", "_etc_x", "fault.json"]


def test_the_oldest_make_room_by_number_and_by_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for second in range(4):
        (tmp_path / f"1970-{second}").mkdir()
    begin(tmp_path, max_count=3)
    assert [path.name for path in sorted(tmp_path.iterdir())][:2] == ["1970-2", "1970-3"]
    monkeypatch.setattr(postmortem, "MAX_BYTES", 10)
    last = begin(tmp_path)
    assert list(tmp_path.iterdir()) == [last.folder]


def test_a_folder_that_cannot_be_written_costs_no_more_than_the_bundle(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    bundle = begin(tmp_path / "file")
    bundle.add({"log": b"x"})
    bundle.close("ready")
    assert "no post-mortem in" in caplog.text
