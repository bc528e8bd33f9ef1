"""The judges by name. A new judge is one file and one line here, or an `import_path` in the configuration."""

from __future__ import annotations

JUDGES: dict[str, str] = {
    "ground_truth": "distrl.evaluator.judges.ground_truth:GroundTruthJudge",
    "rules": "distrl.evaluator.judges.rules:RulesJudge",
    "vlm": "distrl.evaluator.judges.vlm.judge:VlmJudge",
    "local": "distrl.evaluator.judges.local.judge:LocalJudge",
}
