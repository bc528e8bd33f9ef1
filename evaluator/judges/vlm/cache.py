"""Answers on disk, by content: FOLDER/TASK/DIGEST.json. The same question is never paid for twice.

The digest is of model, question, pictures and the number of the vote, so nothing that changes an answer can
be missed; each task has a folder of its own, which can be removed alone.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import threading
from pathlib import Path

from distrl.evaluator.judges.vlm.endpoints import Answer

_log = logging.getLogger(__name__)


class AnswerCache:
    """A folder of answers; several processes may use it.

    Args:
        folder: Created when the first answer comes.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._has_warned = False  # guarded by the lock

    def get(self, task_id: str, digest: str) -> Answer | None:
        """The answer that was kept; None if there is none, or only a damaged one."""
        try:
            data = json.loads(self._file(task_id, digest).read_text(encoding="utf-8"))
            return Answer(str(data["text"]), int(data["input_tokens"]), int(data["output_tokens"]))
        except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
            return None

    def put(self, task_id: str, digest: str, answer: Answer) -> None:
        """Keeps an answer. A folder that cannot be written is told once: the answer counts all the same."""
        file = self._file(task_id, digest)
        temporary = file.with_name(f".{file.name}.{os.getpid()}.{threading.get_ident()}")
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_text(json.dumps(vars(answer), ensure_ascii=False), encoding="utf-8")
            os.replace(temporary, file)
        except OSError as error:
            self._warn(error)

    def _warn(self, error: OSError) -> None:
        with self._lock:
            if self._has_warned:
                return
            self._has_warned = True
        _log.warning(
            "judge.vlm.cache %s cannot be written (%s): answers count, and are paid for again when they are "
            "needed again; name another folder",
            self._folder,
            error.strerror,
        )

    def _file(self, task_id: str, digest: str) -> Path:
        task = hashlib.blake2b(task_id.encode(), digest_size=8).hexdigest()
        return self._folder / task / f"{digest}.json"
