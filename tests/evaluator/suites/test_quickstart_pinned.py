"""The quickstart's screens and expert paths stay what they were: learning on it is compared over time."""

from __future__ import annotations

import hashlib
from dataclasses import fields

from distrl.core.types import Task
from distrl.evaluator.suites import load_suite
from distrl.workers.envs.phone import PhoneEnv
from distrl.workers.simphone.nodes import Node, walk

PINNED = "746ba68610f731fc268598fe99a578bddb124c1141e980309b4ab5738962197b"
"""SHA-256 over the screens and the expert's actions of every fifth task."""

_DEFAULTS = {field.name: field.default for field in fields(Node)}


def said(tree: Node) -> str:
    """All that a screen's nodes say, apart from what is as it always was."""
    lines = []
    for node in walk(tree):
        values = ((name, getattr(node, name)) for name in _DEFAULTS if name != "children")
        lines.append(repr([(name, value) for name, value in values if value != _DEFAULTS[name]]))
    return "\n".join(lines)


def played(env: PhoneEnv, task: Task) -> str:
    """The screens and actions of the expert's episode."""
    env.reset(task)
    told = []
    for _ in range(task.max_steps):
        action = env.expert_action()
        tree = env._backend.device.phone.tree()  # type: ignore[attr-defined]
        told += [said(tree), action.model_dump_json()]
        if action.is_terminal:
            break
        env.step(action)
    return "\n".join(told)


def test_screens_and_expert_paths_are_those_that_were_pinned() -> None:
    env = PhoneEnv(width=72, height=160)
    digest = hashlib.sha256()
    for task in load_suite("quickstart")[::5]:
        digest.update(task.model_dump_json().encode())
        digest.update(played(env, task).encode())
    assert digest.hexdigest() == PINNED
