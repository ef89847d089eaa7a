"""The declaration of a job: its inputs, its outputs, and a function from frames to frames."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tidegate_spark.errors import JobDefinitionError
from tidegate_spark.session.table_formats import PARQUET, formats_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidegate import Topic

__all__ = ("Input", "Job", "Output", "Source", "Table", "ToTopic", "find_jobs", "job", "source")

_NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True)
class Table:
    """A table of Parquet files in the app's tables directory.

    Without a key, rows are appended. With a key, there is one row per key, the newest: the rows of a day are one file,
    which is replaced atomically, so the date must be determined by the key."""

    name: str
    key: str | tuple[str, ...] = ()
    date: str | None = "event_time"
    """The timestamp or date column by whose day the table is partitioned; None: not partitioned."""
    format: str = PARQUET
    """Or `delta`, for a table without a key."""

    def __post_init__(self) -> None:
        _check_name("table", self.name)
        if formats_of([self.format]) and self.keys:
            raise JobDefinitionError(
                f"table {self.name!r}: a table in {self.format} only supports appends: leave out the key"
            )

    @property
    def keys(self) -> tuple[str, ...]:
        return (self.key,) if isinstance(self.key, str) else tuple(self.key)


@dataclass(frozen=True, eq=False)
class ToTopic:
    """Writes records to a topic, at least once: when a driver dies, the records of its last batch may be written again.

    Each has an id in its header `tidegate-id`, which is the same for a duplicate, so that a service can deduplicate."""

    topic: Topic[Any]
    key: str | None = None
    """The key column; None: records have no key, and the topic must not require one."""
    id: tuple[str, ...] = ()
    """The columns that identify a record; empty: all of them."""

    def __post_init__(self) -> None:
        if self.key is None and self.topic.definition.key is not None:
            raise JobDefinitionError(
                f"records of topic {self.name!r} need a key: name its column, ToTopic(topic, key='column')"
            )

    @property
    def name(self) -> str:
        return str(self.topic.name)


@dataclass(frozen=True, eq=False)
class Source:
    """A topic as an input, with options that override its declaration."""

    topic: Topic[Any]
    watermark: str | None = ""
    """As in stream_topic; empty: as the topic declares."""
    schema: Any = None
    options: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        return str(self.topic.name)


def source(topic: Topic[Any], *, watermark: str | None = "", schema: Any = None, **options: str) -> Source:
    return Source(topic, watermark, schema, tuple(options.items()))


Input = Source | Table
Output = Table | ToTopic


class Job:
    """Derive from it, or use @job. A job that reads a topic is a stream; one that reads only tables is a batch."""

    name: str = ""
    inputs: Sequence[Any] = ()
    outputs: Sequence[Any] = ()
    description: str = ""

    def __init__(self) -> None:
        kind = type(self)
        self.name = kind.name or re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()
        self.description = self.description or (kind.__doc__ or "").strip().partition("\n")[0]
        self.inputs, self.outputs = _inputs(self.name, kind.inputs), _outputs(self.name, kind.outputs)
        _check_job(self)

    def run(self, *frames: DataFrame) -> Any:
        """Gets a frame per input, and returns a frame per output: one, a sequence, or a mapping by output names."""
        raise NotImplementedError

    @property
    def sources(self) -> list[Source]:
        return [given for given in self.inputs if isinstance(given, Source)]

    @property
    def tables(self) -> list[Table]:
        return [made for made in self.outputs if isinstance(made, Table)]

    @property
    def formats(self) -> set[str]:
        """The formats of the tables that it reads and writes."""
        return {each.format for each in (*self.inputs, *self.outputs) if isinstance(each, Table)}

    @property
    def streams(self) -> bool:
        return bool(self.sources)

    @property
    def quarantine(self) -> Table:
        """The table for its bad records."""
        return Table(f"quarantine_{self.name}", date="timestamp")

    def results(self, frames: Sequence[DataFrame]) -> list[tuple[Output, DataFrame]]:
        """Each output with its frame."""
        made = self.run(*frames)
        if isinstance(made, Mapping):
            unknown = made.keys() ^ {output.name for output in self.outputs}
            if unknown:
                raise JobDefinitionError(f"job {self.name!r} returned other names than its outputs: {sorted(unknown)}")
            return [(output, made[output.name]) for output in self.outputs]
        found = list(made) if isinstance(made, (list, tuple)) else [made]
        if len(found) != len(self.outputs) or any(frame is None for frame in found):
            raise JobDefinitionError(
                f"job {self.name!r} has {len(self.outputs)} outputs but returned {len(found)} frames: return one per "
                f"output, in order"
            )
        return list(zip(self.outputs, found, strict=True))


class FunctionJob(Job):
    def __init__(self, function: Callable[..., Any], name: str, inputs: Any, outputs: Any) -> None:
        self.function = function
        self.name = name or function.__name__
        self.description = (function.__doc__ or "").strip().partition("\n")[0]
        self.inputs, self.outputs = _inputs(self.name, inputs), _outputs(self.name, outputs)
        _check_job(self)

    def run(self, *frames: DataFrame) -> Any:
        return self.function(*frames)


def job(name: str = "", *, inputs: Any, outputs: Any) -> Callable[[Callable[..., Any]], Job]:
    """Declare a function as a job: it gets a frame per input and returns one per output.

    inputs: topics of an app, source(topic, ...), or Tables that other jobs write. outputs: Tables, ToTopic(topic)."""
    return lambda function: FunctionJob(function, name, inputs, outputs)


def find_jobs(module: ModuleType) -> dict[str, Job]:
    """The jobs of a module, by name."""
    found: dict[str, Job] = {}
    for value in vars(module).values():
        made = value() if isinstance(value, type) and issubclass(value, Job) and value.inputs else value
        if isinstance(made, Job):
            known = found.setdefault(made.name, made)
            if known is not made and not isinstance(value, type):
                raise JobDefinitionError(f"two jobs of {module.__name__} have the name {made.name!r}")
    return found


# -------------------------------------------------------------------------------------------------------------- checks


def _inputs(name: str, given: Any) -> tuple[Input, ...]:
    found: list[Input] = []
    for item in _listed(given):
        if isinstance(item, (Source, Table)):
            found.append(item)
        elif hasattr(item, "definition"):
            found.append(Source(item))
        else:
            raise JobDefinitionError(f"job {name!r} reads {item!r}: inputs are topics, source(topic, ...) and Tables")
    return tuple(found)


def _outputs(name: str, given: Any) -> tuple[Output, ...]:
    for item in _listed(given):
        if not isinstance(item, (Table, ToTopic)):
            raise JobDefinitionError(f"job {name!r} writes {item!r}: outputs are Table(...) and ToTopic(topic)")
    return tuple(_listed(given))


def _listed(given: Any) -> list[Any]:
    return list(given) if isinstance(given, Iterable) and not hasattr(given, "definition") else [given]


def _check_job(made: Job) -> None:
    _check_name("job", made.name)
    if not made.inputs or not made.outputs:
        raise JobDefinitionError(f"job {made.name!r} needs inputs and outputs")
    names = [output.name for output in made.outputs]
    if len(set(names)) != len(names):
        raise JobDefinitionError(f"job {made.name!r} has the same output twice: {', '.join(names)}")


def _check_name(kind: str, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise JobDefinitionError(f"{name!r} is not a valid name of a {kind}: use lower-case letters, digits and _")
