"""Loading configurations: overrides, exact types, and one clear line for every mistake."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from distrl.configs.load import check_config, find_config, load_config, presets
from distrl.configs.schema import Config
from distrl.core.errors import ConfigError


@pytest.fixture
def write(tmp_path: Path):
    def _write(text: str) -> Path:
        path = tmp_path / "config.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return _write


@pytest.mark.parametrize("name", presets())
def test_every_preset_loads_and_is_named_after_its_file(name: str) -> None:
    config = load_config(name)
    assert config.name == name
    assert load_config(find_config(name)) == config
    assert config.learner.max_minutes is None, "runs of presets end by their amount of work"
    if config.policy.kind == "hub":  # large models are learned from in passes that have room
        assert config.policy.gradient_checkpointing
        assert (config.learner.micro_batch_tokens or 2**20) <= 32768


def test_an_empty_file_is_all_defaults(write) -> None:
    assert load_config(write("")) == Config()


def test_dump_reads_back_equal(write) -> None:
    config = load_config(write("policy: {lora: {rank: 4}}\nenv: {options: {a: [1, x, null], b: 'yes'}}"))
    assert load_config(write(config.to_yaml())) == config


def test_overrides_apply_in_order_and_make_sections(write) -> None:
    config = load_config(
        write("worker: {slots: 2}"),
        [
            "worker.slots=3",
            "worker.slots=4",
            "policy.lora.rank=2",
            "policy.image_size=[36, 80]",
            "env.options.latency={kind: none}",
            "network.act=tcp://127.0.0.1:*",
            "learner.optim.lr=1e-5",
            "tasks.test=[test, layout]",
        ],
    )
    assert config.worker.slots == 4
    assert config.policy.lora is not None
    assert config.policy.lora.rank == 2
    assert config.policy.image_size == (36, 80)
    assert config.env.options == {"latency": {"kind": "none"}}
    assert config.network.act == "tcp://127.0.0.1:*"
    assert config.learner.optim.lr == 1e-5
    assert config.tasks.test == ["test", "layout"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("worker: {slts: 3}", "unknown key `worker.slts`. Did you mean `worker.slots`?"),
        ("worker: {texts: all}", "unknown key `worker.texts`. Did you mean `worker.elements`?"),
        (
            "learner: {algorithm: {negative_weight: 0.1}}",
            "Did you mean `learner.algorithm.failure_weight`?",
        ),
        ("slots: 3", "unknown key `slots`. Did you mean `worker.slots`?"),
        ("learner: {grpo: {}}", "`learner.grpo`. Set `learner.algorithm.kind` to grpo, and its keys"),
        ("inference: {max_wait_ms: 3}", "Did you mean `inference.engine.max_wait_ms`?"),
        ("policy: {lora: {rnk: 2}}", "unknown key `policy.lora.rnk`. Did you mean `policy.lora.rank`?"),
        ("worker: {slots: '3'}", "`worker.slots` is '3', expected a valid integer"),
        ("learner: {value_recompute: yes}", "`learner.value_recompute` is 'yes', expected a valid boolean"),
        ("learner: {optim: {lr: .nan}}", "`learner.optim.lr` is nan, expected a finite number"),
        ("worker: 3", "`worker` is 3, expected an object"),
        ("name: a b", "`name` is 'a b', expected a string"),
        ("learner: {algorithm: {policy_clip: 0.2, policy_clip_high: 0.1}}", "is less than policy_clip"),
        ("worker:\n  slots: [1\n", "line 3: "),
        ("name: a\nname: b", "line 2: the key `name` appears twice"),
        ("name: !!python/object:os.system x", "line 1: could not determine a constructor"),
        ("- 1", "holds a list"),
    ],
)
def test_a_mistake_in_the_file_is_one_line_that_names_it(write, text: str, message: str) -> None:
    path = write(text)
    with pytest.raises(ConfigError) as caught:
        load_config(path, ["seed=1"])
    assert message in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("worker.slts=3", "--set: unknown key `worker.slts`. Did you mean `worker.slots`?"),
        ("worker.slots", "not an assignment"),
        ("worker.slots=[1", "--set worker.slots=[1, line 1"),
        ("name.first=x", "`name` holds 'run', it is not a section"),
    ],
)
def test_a_mistake_in_an_override_is_one_line_that_names_it(write, override: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(write("name: run"), [override])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_names_the_presets(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no configuration file .*quickstart"):
        load_config(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match="is a directory"):
        load_config(tmp_path)


def test_a_file_wins_over_the_preset_of_the_same_name(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "quickstart").write_text("name: mine", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert load_config("quickstart").name == "mine"


def test_several_mistakes_are_counted() -> None:
    with pytest.raises(ConfigError, match=r"unknown key `nam`. \(1 more problem\)"):
        check_config({"seed": -1, "nam": "x"}, "file")


@pytest.fixture
def _restored_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))


@pytest.mark.usefixtures("_restored_path")
@pytest.mark.parametrize(
    "text",
    [
        "env: {import_path: 'mine:Env'}",
        "agent: {import_path: 'mine:Agent'}",
        "judge: {import_path: 'mine:Judge'}",
        "tasks: {suite: 'mine:tasks'}",
        "evaluate: {prompted: {agent: {import_path: 'mine:Agent'}}}",
    ],
)
def test_own_modules_are_beside_the_file_and_the_run_remembers_where(
    write, tmp_path: Path, text: str
) -> None:
    config = load_config(write(text))
    assert config.modules_dir == str(tmp_path)
    assert sys.path[-1] == str(tmp_path)
    (tmp_path / "run").mkdir()
    copy = tmp_path / "run" / "config.yaml"
    copy.write_text(config.to_yaml(), encoding="utf-8")
    assert load_config(copy) == config


@pytest.mark.usefixtures("_restored_path")
def test_own_modules_may_be_elsewhere(write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    named = ["env.import_path=mine:Env"]
    assert load_config(write(""), [*named, "modules_dir=code"]).modules_dir == str(tmp_path / "code")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert load_config("quickstart", named).modules_dir == str(tmp_path / "here")


def test_a_class_of_the_user_s_replaces_a_built_in_kind_and_its_keys() -> None:
    config = load_config("quickstart", ["policy.options={size: 3}", "policy.import_path=mine:Policy"])
    assert config.policy.model_dump() == {
        "kind": "custom",
        "import_path": "mine:Policy",
        "options": {"size": 3},
        "device": "auto",
        "critic": "attention",
        "max_prompt_tokens": 96,
    }
    assert "policy:\n  kind: custom\n" in config.to_yaml()
