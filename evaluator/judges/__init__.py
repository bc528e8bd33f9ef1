"""The judges by name. A new judge is one file and one line here."""

from __future__ import annotations

JUDGES: dict[str, str] = {"ground_truth": "distrl.evaluator.judges.ground_truth:GroundTruthJudge"}
