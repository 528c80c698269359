"""YAML text becomes nested dictionaries whose numbers are still text, so that they are read as on the command line."""

from typing import Any, ClassVar

import yaml


def load_yaml(text: str) -> Any:
    """What the text holds, or a ValueError that says where it is not YAML, or more than plain YAML."""
    try:
        return yaml.load(text, PlainLoader)
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"is not YAML: {' '.join(str(error).split())}") from None


def _only(wanted: tuple[str, ...]) -> dict[Any, list[tuple[str, Any]]]:
    resolvers = yaml.SafeLoader.yaml_implicit_resolvers
    return {first: [pair for pair in pairs if pair[0].endswith(wanted)] for first, pairs in resolvers.items()}


class PlainLoader(yaml.SafeLoader):
    """Reads text, true, false, null, lists and mappings. A number stays as it was written: YAML 1.1 reads 010 as 8 and
    1:30 as 90, which nobody means. A key written twice is refused, and so are aliases:
    a few lines of aliases of aliases can hold a billion values."""

    yaml_implicit_resolvers = _only((":bool", ":null", ":merge"))
    yaml_constructors: ClassVar = {
        tag: constructor
        for tag, constructor in yaml.SafeLoader.yaml_constructors.items()
        if tag is None or tag.endswith((":bool", ":null", ":str", ":seq", ":map"))
    }

    def construct_mapping(self, node, deep=False):
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and (key.tag, key.value) in seen:
                problem = f"key {key.value!r} is written twice"
                raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
            seen.add((key.tag, key.value) if isinstance(key, yaml.ScalarNode) else None)
        return super().construct_mapping(node, deep)

    def compose_node(self, parent, index):
        if self.check_event(yaml.events.AliasEvent):
            mark = self.peek_event().start_mark
            raise yaml.composer.ComposerError(None, None, "an alias (*name); write the value out", mark)
        return super().compose_node(parent, index)
