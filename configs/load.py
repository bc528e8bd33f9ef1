"""Loading a configuration: a YAML file or a preset's name, `--set a.b=c` on top, checked by the schema."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from distrl.configs.parse import parse_yaml, read_yaml
from distrl.configs.schema import Config
from distrl.configs.section import CUSTOM
from distrl.core.errors import ConfigError
from distrl.core.importing import look_in

_OBJECTIVES = ("aride", "digirl", "ppo", "gipo", "grpo", "vtrace", "bc", "appo")
MOVED = {
    **{f"learner.{name}": "learner.algorithm" for name in _OBJECTIVES},
    "learner.group_size": "learner.algorithm.group_size",
    "learner.group_wait_s": "learner.algorithm.group_wait_s",
    "inference.vllm": "inference.engine",
    "inference.max_wait_ms": "inference.engine.max_wait_ms",
    "policy.gaussian": "policy",
    "judge.vlm": "judge",
    "judge.local": "judge",
}
"""Keys of earlier versions, and where they are now."""

PRESETS_DIR = Path(__file__).resolve().parent
RUN_CONFIG, RUN_FOLDERS = "config.yaml", ("checkpoints", "logs")
"""A run's own copy of its configuration, and folders beside it."""


def presets() -> list[str]:
    """The names of the configurations that come with distrl."""
    return preset_names(PRESETS_DIR)


def find_config(config: str | Path) -> Path:
    """The file that `config` names: a path, a run's directory (its config.yaml), or the name of a preset.

    Raises:
        ConfigError: If there is no such file and no such preset.
    """
    own = Path(config) / RUN_CONFIG
    if own.is_file():
        return own
    return find_file(config, PRESETS_DIR, "configuration file")


def load_config(path: Path | str, overrides: Sequence[str] = ()) -> Config:
    """The checked configuration; the user's own modules that it names can be imported from then on.

    Args:
        path: A YAML file, a run's directory, or the name of a preset such as "quickstart". A run's own
            configuration gets the `name` and the `runs_dir` of where it is: the run may have been moved.
        overrides: `a.b=c` assignments with YAML values, applied in order.

    Raises:
        ConfigError: If the file is missing or not YAML, or a key or a value is not one of the schema's.
    """
    file = find_config(path)
    data = read_yaml(file)
    if data is None:
        data = {}
    if not isinstance(data, dict):
        raise ConfigError(
            f"{file} holds a {type(data).__name__}, not sections with keys.", "Write `section: {key: value}`."
        )
    place = place_of_run(file)
    data |= place
    if place and isinstance(data.get("learner"), dict) and "aride" in data["learner"]:
        data = from_old_form(data)
    config = check_config(data, str(file))  # before the overrides: the file's own mistakes are told as its
    if overrides:
        for override in overrides:
            apply_override(data, override)
        config = check_config(data, "--set")
    return find_modules(config, Path.cwd() if file.parent == PRESETS_DIR else file.parent)


def place_of_run(file: Path) -> dict[str, str]:
    """The keys that say where a run is, if `file` is a run's own configuration; none for another file."""
    folder = file.parent
    if file.name != RUN_CONFIG or not all((folder / name).is_dir() for name in RUN_FOLDERS):
        return {}
    if folder.is_symlink() or folder.name in ("", ".."):
        folder = folder.resolve()
    return {"name": folder.name, "runs_dir": str(folder.parent)}


def from_old_form(data: dict[str, Any]) -> dict[str, Any]:
    """A run's configuration as versions without kinds saved it; keys that had no effect in it are dropped."""
    learner, inference, policy, judge = (data[name] for name in ("learner", "inference", "policy", "judge"))
    objective, engine = learner["algorithm"], inference["engine"]
    own = learner[objective.removeprefix("filtered-")]
    group = {name: learner.get(name) for name in ("group_size", "group_wait_s")}
    waits = {"max_wait_ms": inference.get("max_wait_ms")}
    has_judge = judge["kind"] != "none" or judge["import_path"]
    converted = {
        **data,
        "learner": {**learner, "algorithm": {"kind": objective, **own, **group}},
        "inference": {**inference, "engine": {"kind": engine, **inference.get(engine, {}), **waits}},
        "policy": {**policy, **policy["gaussian"], **({"kind": CUSTOM} if policy["import_path"] else {})},
        "judge": None,
    }
    if has_judge:
        kind = CUSTOM if judge["import_path"] else judge["kind"]
        converted["judge"] = {**judge, **judge.get(kind, {}), "kind": kind}
    known: dict[str, Any] = _known(converted, Config)
    return known


def _known(data: Any, model: type[BaseModel]) -> Any:
    """`data` without keys that the schema does not have."""
    if not isinstance(data, dict):
        return data
    kept = {}
    for name in data.keys() & model.model_fields.keys():
        field = model.model_fields[name]
        found = list(sections_of(field.annotation)) if get_origin(field.annotation) is not list else []
        kind = data[name].get("kind") if isinstance(data[name], dict) else None
        section = next((one for one in found if kind in kinds_of(one)), found[0] if len(found) == 1 else None)
        kept[name] = data[name] if section is None else _known(data[name], section)
    return kept


def apply_override(data: dict[str, Any], override: str) -> None:
    """Writes one `a.b=c` into `data`, making the sections on the way.

    Raises:
        ConfigError: It is not an assignment, its value is not YAML, or its path leads through a plain value.
    """
    key, equals, value = override.partition("=")
    parts = key.strip().split(".")
    if not equals or not all(parts):
        raise ConfigError(f"--set {override!r} is not an assignment.", "Write it as --set section.key=value.")
    section: Any = data
    for depth, part in enumerate(parts[:-1]):
        if section.get(part) is None:
            section[part] = {}
        if isinstance(section[part], str) and choices(parts[: depth + 1]):
            section[part] = {"kind": section[part]}
        section = section[part]
        if not isinstance(section, dict):
            raise ConfigError(
                f"--set {override}: `{'.'.join(parts[: depth + 1])}` holds {section!r}, it is not a section.",
                f"Set `{'.'.join(parts[: depth + 1])}` itself.",
            )
    given = parse_yaml(value, f"--set {override}")
    kinds = choices(parts[:-1])
    kind = given if parts[-1] == "kind" else CUSTOM if parts[-1] == "import_path" and given else None
    if kinds and isinstance(kind, str):  # another kind has other keys
        kept = kinds[kind].model_fields if kind in kinds else {}
        for name in [name for name in section if name not in kept]:
            del section[name]
        section["kind"] = kind
    section[parts[-1]] = given


def choices(path: Sequence[str]) -> dict[str, type[BaseModel]]:
    """The sections that `path` can be, by kind; none if it isn't a choice."""
    model: type[BaseModel] | None = Config
    kinds: dict[str, type[BaseModel]] = {}
    for name in path:
        field = model.model_fields.get(name) if model is not None else None
        found = list(sections_of(field.annotation)) if field is not None else []
        is_choice = field is not None and field.discriminator is not None
        kinds = {kind: one for one in found for kind in kinds_of(one)} if is_choice else {}
        model = found[0] if len(found) == 1 else None
    return kinds


def kinds_of(section: type[BaseModel]) -> tuple[str, ...]:
    """The values of `kind` that a section of a choice has."""
    field = section.model_fields.get("kind")
    return get_args(field.annotation) if field is not None else ()


def check_config(data: dict[str, Any], source: str) -> Config:
    """`data` as a Config; types are exact (no "3" for 3), lists serve as tuples.

    Raises:
        ConfigError: Names the first offending key, its value and what was expected.
    """
    _refuse_moved(data, source)
    try:
        return Config.model_validate_json(
            json.dumps(data), strict=True
        )  # JSON: strict, but lists fill tuples
    except ValidationError as error:
        problems = error.errors(include_url=False)
        # An unknown key first: a mistyped key often causes the other problems.
        problems.sort(key=lambda problem: problem["type"] != "extra_forbidden")
        raise _explain(problems[0], len(problems) - 1, source) from error
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{source}: {error}.", "Use plain YAML data only.") from error


def _refuse_moved(data: dict[str, Any], source: str) -> None:
    for old, new in MOVED.items():
        section, _, name = old.partition(".")
        if isinstance(data.get(section), dict) and name in data[section]:
            remedy = f"Set `{new}` instead."
            if isinstance(data[section][name], dict):
                remedy = f"Move its keys to `{new}`, beside `kind`."
            raise ConfigError(f"{source}: `{old}` is now `{new}`.", remedy)


def _path_of(problem: Any) -> str:
    """The key that a problem is about, without the kinds that pydantic puts between."""
    parts: list[str] = []
    for part in problem["loc"]:
        if not (parts and part in choices(parts)):
            parts.append(str(part))
    return ".".join(parts)


def _explain(problem: Any, others: int, source: str) -> ConfigError:
    path = _path_of(problem)
    more = f" ({others} more problem{'s' if others > 1 else ''})" if others else ""
    if problem["type"] == "extra_forbidden":
        parent, _, name = path.rpartition(".")
        having = [kind for kind, one in choices(parent.split(".")).items() if name in one.model_fields]
        if having:
            return ConfigError(
                f"{source}: `{path}` is a key of {', '.join(having)} only.{more}",
                f"Remove it, or set `{parent}.kind`.",
            )
        nearest = nearest_key(path)
        if nearest and any(isinstance(part, int) for part in problem["loc"]):
            there, _, nearest = nearest.rpartition(".")  # an entry of a list: where it stands was said
            if nearest == name:
                other = there.rpartition(".")[2]
                return ConfigError(
                    f"{source}: unknown key `{path}`.{more}", f"It is a key of `{other}`: remove it."
                )
        remedy = (
            f"Did you mean `{nearest}`?" if nearest else "`distrl train quickstart --dry-run` shows all keys."
        )
        return ConfigError(f"{source}: unknown key `{path}`.{more}", remedy)
    expected = problem["msg"].removeprefix("Value error, ")
    expected = expected.replace("Input should be", "expected").replace(
        "String should", "expected a string that should"
    )
    if problem["type"] == "union_tag_not_found":
        key = problem["ctx"]["discriminator"].strip("'")
        return ConfigError(f"{source}: `{path}` has no `{key}`.{more}", "It says what kind of entry this is.")
    if problem["type"] == "union_tag_invalid":
        key, tags = problem["ctx"]["discriminator"].strip("'"), problem["ctx"]["expected_tags"]
        tag = problem["ctx"]["tag"]
        near = difflib.get_close_matches(tag, tags.replace("'", "").split(", "), n=1)
        hint = f"Did you mean {near[0]!r}?" if near else ""
        return ConfigError(f"{source}: `{path}.{key}` is {tag!r}, expected one of {tags}.{more}", hint)
    if problem["type"] == "missing":
        return ConfigError(f"{source}: `{path}` is missing.{more}")
    if problem["type"] == "value_error":
        return ConfigError(f"{source}: {f'`{path}`: ' if path else ''}{expected}.{more}")
    return ConfigError(f"{source}: `{path}` is {problem['input']!r:.80}, {expected}.{more}")


def nearest_key(path: str) -> str | None:
    """The existing key most like `path`: first among its siblings, then by its last name anywhere."""
    everything = list(keys())
    path = ".".join(part for part in path.split(".") if not part.isdigit())
    parent, _, name = path.rpartition(".")
    siblings = {key.rpartition(".")[2]: key for key in everything if key.rpartition(".")[0] == parent}
    near = difflib.get_close_matches(name, siblings, n=1, cutoff=0.6)
    if near:
        return siblings[near[0]]
    for key in everything:
        if key.rpartition(".")[2] == name:
            return key
    whole = difflib.get_close_matches(path, everything, n=1, cutoff=0.6)
    return whole[0] if whole else None


def keys(model: type[BaseModel] = Config, prefix: str = "") -> Iterator[str]:
    """All dotted keys of the schema, sections included; in a list by the kind of entry, without an index."""
    for name, field in model.model_fields.items():
        yield prefix + name
        for section in sections_of(field.annotation):
            if field.discriminator is not None:
                yield from keys(section, f"{prefix}{name}.")
                continue
            kind = section.model_fields.get("kind") if get_origin(field.annotation) is list else None
            tag = f"{get_args(kind.annotation)[0]}." if kind is not None else ""
            yield from keys(section, f"{prefix}{name}.{tag}")


def sections_of(annotation: Any) -> Iterator[type[BaseModel]]:
    """The sections that a field may hold, also in a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from sections_of(inner)


def dump_config(config: Config) -> str:
    """The whole configuration, defaults included, as YAML that `load_config` reads back to an equal one."""
    return config.to_yaml()


def preset_names(directory: Path) -> list[str]:
    """The names of the presets in `directory`."""
    return sorted(path.stem for path in directory.glob("*.yaml"))


def find_file(given: str | Path, directory: Path, what: str) -> Path:
    """The file that `given` names: a path, or the bare name of a preset in `directory`.

    Args:
        given: A path or a name.
        directory: Where the presets are.
        what: What they are, for the error: "table", "sweep".

    Raises:
        ConfigError: There is no such file and no such preset.
    """
    path, known = Path(given), preset_names(directory)
    if path.is_file():
        return path
    if path.name == str(given) and path.stem in known and path.suffix in ("", ".yaml"):
        return directory / f"{path.stem}.yaml"
    problem = f"{path} is a directory, not a file" if path.is_dir() else f"There is no {what} {path}"
    near = difflib.get_close_matches(path.stem, known, n=1)
    hint = f"Did you mean {near[0]}? " if near else ""
    raise ConfigError(f"{problem}.", f"{hint}Give the path of a YAML file, or a preset: {', '.join(known)}.")


def find_modules(config: Config, directory: Path) -> Config:
    """Lets the run's own modules be imported, and writes down where they are.

    The run's copy of the configuration thus finds them from wherever its processes are started.

    Args:
        config: Its `modules_dir` is taken if it is set, a relative one as seen from `directory`.
        directory: Where they are otherwise, such as that of the configuration file.

    Returns:
        `config` with an absolute `modules_dir`; as it is if it names no module.
    """
    if not names_modules(config):
        return config
    place = directory / Path(config.modules_dir or ".").expanduser()
    look_in(place.resolve())
    return config.model_copy(update={"modules_dir": str(place.resolve())})


def names_modules(config: Config) -> bool:
    """Whether anything in it is from a module outside of distrl."""
    sections = (config.env, config.agent, config.policy, config.judge, config.learner.algorithm)
    return ":" in config.tasks.suite or any(getattr(one, "import_path", None) for one in sections)


def wanted_of(config: Config) -> dict[str, Any]:
    """The suite, the split and the agent that they must be of, for `core.demonstrations.check_dataset`.

    Other splits are for measuring: what is learnt from them measures nothing.
    """
    return {
        "suite": config.tasks.suite,
        "split": config.tasks.train,
        "agent": config.agent.model_dump(mode="json"),
    }
