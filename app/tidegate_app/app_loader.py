"""Loads the app that a command names: `package.module:app`, `package.module`, `path/to/hello.py`, `hello.py:app`."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tidegate.errors import AppNotFoundError, DefinitionError
from tidegate_app.error_report import is_users

if TYPE_CHECKING:
    from tidegate.app import App

__all__ = ("load_app", "load_module")

_FORMS = "Name it as package.module:app, as package.module if the variable is called app, or as a file: hello.py"


def load_app(target: str) -> App:
    """Import the module that `target` names, and return its app. AppNotFoundError: there is none."""
    return _find(load_module(target), _split(target)[1], target)


def load_module(target: str) -> ModuleType:
    """The module of `target`, for commands that also use other objects in it."""
    place, _ = _split(target)
    return _load_file(Path(place)) if _is_path(place) else _load_module(place)


def _split(target: str) -> tuple[str, str | None]:
    place, colon, attribute = target.rpartition(":")
    if not colon:
        return target, None
    if not place or not attribute:
        raise AppNotFoundError(f"{target!r} does not name an app. {_FORMS}.")
    return place, attribute


def _is_path(place: str) -> bool:
    return place.endswith(".py") or os.sep in place or place in (os.curdir, os.pardir)


# ----------------------------------------------------------------------------------------------------------- loading


def _load_file(path: Path) -> ModuleType:
    if path.is_dir() and (path / "__init__.py").exists():
        path = path / "__init__.py"
    if path.is_dir():
        raise AppNotFoundError(f"{path} is a directory without an __init__.py. {_FORMS}. {_files_in(path)}")
    if not path.is_file():
        raise AppNotFoundError(f"there is no file {path}. {_files_in(path.parent)}")
    root, name = _module_of(path.absolute())
    _search_first(root)
    known = sys.modules.get(name)
    if known is not None and not _is_from(known, path):
        return _load_under(f"_tidegate_{name}", path)  # the file has the name of a library
    return _import(name, str(path), f"the file {path}")


def _files_in(directory: Path) -> str:
    names = sorted(found.name for found in directory.glob("*.py"))
    return f"Python files in {directory.absolute()}: {', '.join(names[:10]) or 'none'}."


def _load_module(name: str) -> ModuleType:
    _search_first(Path.cwd())
    return _import(name, name, f"the module {name!r}")


def _module_of(path: Path) -> tuple[Path, str]:
    """The directory to import from, and the module's dotted name, including its packages."""
    parts = [] if path.name == "__init__.py" else [path.stem]
    root = path.parent
    while (root / "__init__.py").exists():
        parts.insert(0, root.name)
        root = root.parent
    return root, ".".join(parts)


def _search_first(directory: Path) -> None:
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))


def _is_from(module: ModuleType, path: Path) -> bool:
    return getattr(module, "__file__", None) is not None and Path(str(module.__file__)).resolve() == path.resolve()


def _import(name: str, shown: str, label: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise AppNotFoundError(
                f"there is no module {error.name!r} in {Path.cwd()} or on Python's path. {_FORMS}."
            ) from error
        raise _broken(label, error) from error
    except (Exception, SystemExit) as error:
        raise _broken(label, error) from error


def _load_under(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise AppNotFoundError(f"{path} cannot be imported: it is not a Python file")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise _broken(f"the file {path}", error) from error
    return module


def _broken(label: str, error: BaseException) -> AppNotFoundError:
    """The error for a module that exists, but raises when it is imported."""
    if isinstance(error, SyntaxError):
        where = f"{error.filename}, line {error.lineno}: {(error.text or '').strip()}"
    else:
        where = _last_frame(error)
    what = f"{label} raises {type(error).__name__} when it is imported: {error}"
    hint = "" if isinstance(error, DefinitionError) else "\n--debug shows the full traceback."
    return AppNotFoundError(f"{what}\n  {where}{hint}")


def _last_frame(error: BaseException) -> str:
    """The last frame in the user's code; frames of libraries below it are less helpful."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if is_users(frame.filename)]
    frame = (own or list(frames))[-1]
    return f"{frame.filename}, line {frame.lineno}: {frame.line or ''}".rstrip()


# ----------------------------------------------------------------------------------------------------------- finding


def _find(module: ModuleType, attribute: str | None, target: str) -> App:
    from tidegate.app import App

    apps = {name: value for name, value in vars(module).items() if isinstance(value, App)}
    if attribute is not None:
        found = _get(module, attribute)
        if isinstance(found, App):
            return found
        raise AppNotFoundError(f"{target!r}: {_what_is(module, attribute, found)} {_candidates(module, apps)}")
    if isinstance(apps.get("app"), App):
        return apps["app"]
    if len(set(map(id, apps.values()))) == 1:
        return next(iter(apps.values()))
    which = f" Name one: {target}:{min(apps)}" if apps else ""
    raise AppNotFoundError(f"{target!r} does not name one app. {_candidates(module, apps)}{which}")


def _get(module: ModuleType, attribute: str) -> Any:
    found: Any = module
    for part in attribute.split("."):
        found = getattr(found, part, None)
    return found


def _what_is(module: ModuleType, attribute: str, found: Any) -> str:
    if found is None:
        return f"{module.__name__} has no {attribute!r}."
    kind = type(found)
    if any(base.__module__.startswith("faust.") and base.__name__ == "App" for base in kind.__mro__):
        return f"{attribute!r} is a plain Faust app: make it a tidegate.App, whose app.faust is a Faust app."
    return f"{attribute!r} is a {kind.__name__}, not an App."


def _candidates(module: ModuleType, apps: dict[str, App]) -> str:
    if apps:
        return f"Apps in {module.__name__}: {', '.join(sorted(apps))}."
    return f"{module.__name__} defines no App: write app = tidegate.App('name')."
