"""`--plugin MODULE`: a module of the user's own, imported first, so that it can add rows to the tables.

The command line alone can name one: a module is code, and a recipe or a model folder may come from a stranger.
"""

import importlib
import os
import runpy
import sys

IMPORTED: list[str] = []
"""The plugins of this process, for those that it starts: `python -m bertkit.plugins --plugin=NAME ... MODULE`."""


def import_plugins(argv: list[str]) -> list[str]:
    """Import every plugin that a command line names, in order; returns the line without them."""
    rest: list[str] = []
    words = iter(argv)
    for word in words:
        option, equals, name = word.partition("=")
        if option == "--plugin":
            _import(name if equals else next(words, ""))
        else:
            rest += [word, *words] if word == "--" else [word]
    return rest


def _import(name: str) -> None:
    if not name or not all(part.isidentifier() for part in name.split(".")):
        raise ValueError(f"--plugin takes the name of a module, such as my_module, got {name!r}")
    # Behind all that is installed, which a file of the current folder must not replace.
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        importlib.import_module(name)
        IMPORTED.append(name)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
            reason = f"there is no module {error.name!r} in the current folder or on the Python path"
        else:
            reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise ValueError(f"--plugin {name}: {reason}") from error


if __name__ == "__main__":
    module, *sys.argv[1:] = import_plugins(sys.argv[1:])
    runpy.run_module(module, run_name="__main__")
