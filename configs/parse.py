"""YAML as people expect it: the 1.2 core scalars, no duplicate keys, plain data only.

PyYAML follows YAML 1.1, where `1e-4` is a string, `no` is false, `12:30` is 750 and `010` is 8. A training
configuration is full of such values, so this loader reads numbers and booleans by YAML 1.2's core schema.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from distrl.core.errors import ConfigError

_INT = re.compile(r"^(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$")
_FLOAT = re.compile(
    r"^(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
)
_BOOL = re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$")
_REPLACED = ("int", "float", "bool", "timestamp")
MAX_REPEATED = 10_000
"""Values (or hundreds of characters) that aliases may repeat: nested ones can expand to billions."""


class _Loader(yaml.SafeLoader):
    """SafeLoader with YAML 1.2's scalars and bounded aliases; a key that appears twice is an error."""

    def get_single_node(self) -> yaml.Node | None:
        """The document's root, once it is clear that its aliases do not expand to too much."""
        root = super().get_single_node()
        sizes: dict[int, int] = {}  # of nodes with all that they contain; 0 while that is counted

        def size(node: yaml.Node) -> int:
            if sizes.get(id(node)) == 0:
                raise _problem(node, "an alias must not stand inside the value that it repeats")
            if id(node) not in sizes:
                sizes[id(node)] = 0
                is_scalar = isinstance(node, yaml.ScalarNode)
                parts = [] if is_scalar else node.value
                if isinstance(node, yaml.MappingNode):
                    parts = [part for pair in parts for part in pair]
                own = 1 + (len(node.value) // 100 if is_scalar else 0)
                sizes[id(node)] = own + sum(map(size, parts))
                self.own_size += own
            return sizes[id(node)]

        self.own_size = 0  # each node is counted once, so this takes no longer than reading
        if root is not None and size(root) - self.own_size > MAX_REPEATED:
            raise _problem(root, f"the document's aliases repeat more than {MAX_REPEATED:,} values")
        return root

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """The mapping at `node`; merge keys (`<<`) may repeat what the mapping itself defines."""
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise _problem(key, "a key must be a word")
            if key.value in seen:
                raise _problem(key, f"the key `{key.value}` appears twice")
            seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


def _problem(node: yaml.Node, what: str) -> yaml.MarkedYAMLError:
    return yaml.constructor.ConstructorError(None, None, what, node.start_mark)


def _int(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    text = loader.construct_scalar(node)
    return int(text, 0) if text[:2] in ("0o", "0x") else int(text)


def _float(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> float:
    text = loader.construct_scalar(node).lower()
    return float(text.replace(".inf", "inf").replace(".nan", "nan"))


_Loader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag.rpartition(":")[2] not in _REPLACED]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", _BOOL, list("tTfF"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", _INT, list("-+0123456789"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+.0123456789"))
_Loader.add_constructor("tag:yaml.org,2002:int", _int)
_Loader.add_constructor("tag:yaml.org,2002:float", _float)


def read_yaml(file: Path) -> Any:
    """The data in a YAML file. Raises ConfigError as `parse_yaml`, and if it cannot be read."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read: {error}.", "Give a YAML file in UTF-8.") from error
    return parse_yaml(text, str(file))


def parse_yaml(text: str, source: str) -> Any:
    """The data in a YAML document; errors call it `source`."""
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f", line {mark.line + 1}" if mark is not None else ""
        raise ConfigError(
            f"{source}{where}: {error.problem or error.context}.", "Correct the YAML."
        ) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        first_line = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ConfigError(f"{source}: {first_line}.", "Correct the YAML.") from error
