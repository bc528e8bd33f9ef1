"""Loading a configuration: a YAML file or a preset's name, `--set a.b=c` on top, checked by the schema."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from distrl.configs.parse import parse_yaml, read_yaml
from distrl.configs.schema import Config
from distrl.configs.section import CUSTOM
from distrl.core.errors import ConfigError
from distrl.core.importing import did_you_mean, look_in

PRESETS_DIR = Path(__file__).resolve().parent
RENAMED = {"worker.texts": "worker.elements"}
RUN_CONFIG, RUN_FOLDERS = "config.yaml", ("checkpoints", "logs")
"""A run's own copy of its configuration, and folders beside it."""


def presets() -> list[str]:
    """The names of the configurations that come with distrl."""
    return preset_names(PRESETS_DIR)


def find_config(config: str | Path) -> Path:
    """The file that `config` names: a path, a run's directory (its config.yaml), or the name of a preset."""
    own = Path(config) / RUN_CONFIG
    if own.is_file():
        return own
    return find_file(config, PRESETS_DIR, "configuration file")


def load_config(path: Path | str, overrides: Sequence[str] = ()) -> Config:
    """The checked configuration; the user's own modules that it names can be imported from then on.

    `overrides` are `a.b=c` assignments with YAML values, applied in order. A run's own configuration gets the
    `name` and the `runs_dir` of where it is, because the run may have been moved.
    """
    file = find_config(path)
    data = read_yaml(file)
    if data is None:
        data = {}
    if not isinstance(data, dict):
        raise ConfigError(
            f"{file} holds a {type(data).__name__}, not sections with keys.", "Write `section: {key: value}`."
        )
    data |= _place_of_run(file)
    config = check_config(data, str(file))  # before the overrides, so that errors name the file
    if overrides:
        for override in overrides:
            apply_override(data, override)
        config = check_config(data, "--set")
    return find_modules(config, Path.cwd() if file.parent == PRESETS_DIR else file.parent)


def _place_of_run(file: Path) -> dict[str, str]:
    """The keys that say where a run is, if `file` is a run's own configuration; none for another file."""
    folder = file.parent
    if file.name != RUN_CONFIG or not all((folder / name).is_dir() for name in RUN_FOLDERS):
        return {}
    if folder.is_symlink() or folder.name in ("", ".."):
        folder = folder.resolve()
    return {"name": folder.name, "runs_dir": str(folder.parent)}


def apply_override(data: dict[str, Any], override: str) -> None:
    """Writes one `a.b=c` into `data`, making the sections on the way."""
    key, equals, value = override.partition("=")
    *path, name = key.strip().split(".")
    if not equals or not all([*path, name]):
        raise ConfigError(f"--set {override!r} is not an assignment.", "Write it as --set section.key=value.")
    section: Any = data
    for depth, part in enumerate(path, start=1):
        if isinstance(section.get(part), str) and kinds_at(path[:depth]):
            section[part] = {"kind": section[part]}
        section[part] = {} if section.get(part) is None else section[part]
        section = section[part]
        if not isinstance(section, dict):
            above = ".".join(path[:depth])
            problem = f"`{above}` holds {section!r}, it is not a section"
            raise ConfigError(f"--set {override}: {problem}.", f"Set `{above}` itself.")
    given, kinds = parse_yaml(value, f"--set {override}"), kinds_at(path)
    kind = None
    if name == "kind":
        kind = given
    elif name == "import_path" and given:
        kind = CUSTOM
    if kinds and isinstance(kind, str):  # another kind has other keys
        kept = kinds[kind].model_fields if kind in kinds else {}
        for other in [other for other in section if other not in kept]:
            del section[other]
        section["kind"] = kind
    section[name] = given


@cache
def sections() -> tuple[tuple[str, type[BaseModel]], ...]:
    """All sections with their dotted paths, in the order of the schema; of a choice or a list each kind."""

    def walk(model: type[BaseModel], path: str) -> Iterator[tuple[str, type[BaseModel]]]:
        yield path, model
        for name, field in model.model_fields.items():
            for section in sections_of(field.annotation):
                yield from walk(section, f"{path}.{name}" if path else name)

    return tuple(walk(Config, ""))


def sections_of(annotation: Any) -> Iterator[type[BaseModel]]:
    """The sections that a field may hold, also in a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from sections_of(inner)


def kinds_of(section: type[BaseModel]) -> tuple[str, ...]:
    """The values of `kind` that a section of a choice has."""
    field = section.model_fields.get("kind")
    return get_args(field.annotation) if field is not None else ()


def kinds_at(path: Sequence[str]) -> dict[str, type[BaseModel]]:
    """The sections that are at `path`, by kind; none if it isn't a choice. Indices of lists are skipped."""
    dotted = ".".join(part for part in path if not part.isdigit())
    return {kind: one for at, one in sections() if at == dotted for kind in kinds_of(one)}


def keys() -> list[str]:
    """All dotted keys of the schema, sections included."""
    found = [f"{path}.{name}" if path else name for path, model in sections() for name in model.model_fields]
    return list(dict.fromkeys(found))


def check_config(data: dict[str, Any], source: str) -> Config:
    """`data` as a Config; types are exact (no "3" for 3), lists serve as tuples."""
    try:  # JSON: strict, but lists fill tuples
        return Config.model_validate_json(json.dumps(data), strict=True)
    except ValidationError as error:
        problems = error.errors(include_url=False)
        # An unknown key first: a mistyped key often causes the other problems.
        problems.sort(key=lambda problem: problem["type"] != "extra_forbidden")
        more = len(problems) - 1
        problem, hint = _explain(problems[0])
        others = f" ({more} more problem{'s' if more > 1 else ''})" if more else ""
        raise ConfigError(f"{source}: {problem}.{others}", hint) from error
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{source}: {error}.", "Use plain YAML data only.") from error


def _explain(problem: Any) -> tuple[str, str]:
    """A problem in words, and the remedy, "" for none."""
    parts: list[str] = []
    kind_of: list[str] = []  # the path of the section whose kind was passed over
    for part in map(str, problem["loc"]):  # pydantic puts the kinds between
        if part in kinds_at(parts) and kind_of != parts:
            kind_of = [*parts]
        else:
            parts.append(part)
    path, kind, context = ".".join(parts), problem["type"], problem.get("ctx", {})
    if kind == "extra_forbidden":
        having = [name for name, one in kinds_at(parts[:-1]).items() if parts[-1] in one.model_fields]
        if having:
            above = ".".join(parts[:-1])
            return f"`{path}` is a key of {', '.join(having)} only", f"Remove it, or set `{above}.kind`."
        parent = ".".join(parts[:-1])
        for at, one in sections():
            if parts[-1] in kinds_of(one) and parent in (at, at.rpartition(".")[0]):
                return f"unknown key `{path}`", f"Set `{at}.kind` to {parts[-1]}, and its keys beside it."
        near = RENAMED.get(path) or nearest_key(path)
        remedy = f"Did you mean `{near}`?" if near else "`distrl config reference` lists all keys."
        return f"unknown key `{path}`", remedy
    if kind == "union_tag_invalid":
        tag, tags = context["tag"], context["expected_tags"]
        hint = did_you_mean(tag, tags.replace("'", "").split(", ")).strip()
        return f"`{path}.kind` is {tag!r}, expected one of {tags}", hint
    if kind == "union_tag_not_found":
        return f"`{path}.kind` is missing", ""
    if kind == "missing":
        return f"`{path}` is missing", ""
    expected = problem["msg"].removeprefix("Value error, ").replace("Input should be", "expected")
    if kind == "value_error":
        return f"`{path}`: {expected}" if path else expected, ""
    expected = expected.replace("String should", "expected a string to")
    return f"`{path}` is {problem['input']!r:.80}, {expected}", ""


def nearest_key(path: str) -> str | None:
    """The existing key most like `path`: one of the same name elsewhere, else the nearest of its siblings."""
    everything = keys()
    path = ".".join(part for part in path.split(".") if not part.isdigit())
    parent, _, name = path.rpartition(".")
    siblings = {key.rpartition(".")[2]: key for key in everything if key.rpartition(".")[0] == parent}
    namesakes = [key for key in everything if key.rpartition(".")[2] == name]
    near = [siblings[one] for one in difflib.get_close_matches(name, siblings, n=1)]
    found = [*namesakes, *near, *difflib.get_close_matches(path, everything, n=1)]
    return found[0] if found else None


def preset_names(directory: Path) -> list[str]:
    """The names of the presets in `directory`."""
    return sorted(path.stem for path in directory.glob("*.yaml"))


def find_file(given: str | Path, directory: Path, what: str) -> Path:
    """The file that `given` names: a path, or the bare name of a preset in `directory`."""
    path, known = Path(given), preset_names(directory)
    if path.is_file():
        return path
    if path.name == str(given) and path.stem in known and path.suffix in ("", ".yaml"):
        return directory / f"{path.stem}.yaml"
    problem = f"{path} is a directory, not a file" if path.is_dir() else f"There is no {what} {path}"
    near = difflib.get_close_matches(path.stem, known, n=1) if path.name == str(given) else []
    hint = f"Did you mean {near[0]}? " if near else ""
    raise ConfigError(f"{problem}.", f"{hint}Give the path of a YAML file, or a preset: {', '.join(known)}.")


def find_modules(config: Config, directory: Path) -> Config:
    """Lets the run's own modules be imported, and writes down where they are.

    The run's copy of the configuration thus finds them from wherever its processes are started.

    `modules_dir` is taken if it is set, a relative one as seen from `directory`, else `directory` itself. The
    result has it absolute, unless `config` names no module outside of distrl.
    """
    agents = (config.agent, config.evaluate.prompted.agent)
    parts = (config.env, *agents, config.policy, config.judge, config.learner.algorithm)
    if ":" not in config.tasks.suite and not any(getattr(one, "import_path", None) for one in parts):
        return config
    place = (directory / Path(config.modules_dir or ".").expanduser()).resolve()
    look_in(place)
    return config.model_copy(update={"modules_dir": str(place)})


def wanted_of(config: Config) -> dict[str, Any]:
    """The suite, the split and the agent that they must be of, for `core.demonstrations.check_dataset`.

    Other splits are for measuring: what is learnt from them measures nothing.
    """
    return {
        "suite": config.tasks.suite,
        "split": config.tasks.train,
        "agent": config.agent.model_dump(mode="json"),
    }
