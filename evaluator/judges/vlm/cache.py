"""Answers on disk, by content: FOLDER/TASK/DIGEST.json. The same question is never paid for twice.

The digest is of model, question, pictures and the number of the vote, so nothing that changes an answer can
be missed; each task has a folder of its own, which can be removed alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from pathlib import Path

from distrl.core.errors import JudgeError
from distrl.evaluator.judges.vlm.endpoints import Answer


class AnswerCache:
    """A folder of answers; several processes may use it.

    Args:
        folder: Created when the first answer comes.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, task_id: str, digest: str) -> Answer | None:
        """The answer that was kept; None if there is none, or only a damaged one."""
        try:
            data = json.loads(self._file(task_id, digest).read_text(encoding="utf-8"))
            return Answer(str(data["text"]), int(data["input_tokens"]), int(data["output_tokens"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def put(self, task_id: str, digest: str, answer: Answer) -> None:
        """Keeps an answer.

        Raises:
            JudgeError: The folder cannot be written.
        """
        file = self._file(task_id, digest)
        temporary = file.with_name(f".{file.name}.{os.getpid()}.{threading.get_ident()}")
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_text(json.dumps(vars(answer), ensure_ascii=False), encoding="utf-8")
            os.replace(temporary, file)
        except OSError as error:
            raise JudgeError(
                f"judge.vlm.cache {self._folder} cannot be written: {error.strerror}.", "Name another folder."
            ) from error

    def _file(self, task_id: str, digest: str) -> Path:
        task = hashlib.blake2b(task_id.encode(), digest_size=8).hexdigest()
        return self._folder / task / f"{digest}.json"
