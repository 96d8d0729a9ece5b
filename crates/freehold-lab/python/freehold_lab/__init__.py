"""Recordings of the Linux page allocator through several designs, as tables of pyarrow.

The package brings the command `freehold` as well. Memory is in proportion to the recorded
machine's frames, not to the recording's length; other threads of Python go on meanwhile.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import signal
import sys
import tempfile
from typing import TYPE_CHECKING, BinaryIO, Iterable, Union
from urllib.parse import quote

from . import _native

if TYPE_CHECKING:
    import pyarrow

Recording = Union[str, os.PathLike, bytes, bytearray, memoryview, BinaryIO]


class FreeholdError(ValueError):
    """What the command says on standard error."""


def _called(words):
    """What the command prints, and whether all went well; notes go to standard error."""
    try:
        code, output, said = _native.called(["freehold", *words])
    except ValueError as error:
        raise FreeholdError(str(error)) from None
    if code > 1 and not output:
        raise FreeholdError(said.strip())
    if code < 2:
        sys.stderr.write(said)
    return output, said.strip() if code > 1 else None


@contextlib.contextmanager
def _file(recording, name):
    """The path of a recording: of bytes and of what has `read` that of a copy of this name."""
    if isinstance(recording, (bytes, bytearray, memoryview)):
        recording = io.BytesIO(recording)
    if not hasattr(recording, "read"):
        yield os.fspath(recording)
        return
    with tempfile.TemporaryDirectory(prefix="freehold-") as folder:
        path = os.path.join(folder, os.path.basename(name))
        with open(path, "wb") as copy:
            shutil.copyfileobj(recording, copy, 1 << 20)
        yield path


def replay(
    recording: Recording,
    *,
    engines: Iterable[str] = (),
    options: Iterable[str] = (),
    name: str = "-",
    errors: str = "raise",
) -> pyarrow.Table:
    """The rows that `freehold replay --format parquet` writes: one for each zone and engine.

    recording: a path, bytes, or what has `read`; rows call the latter `name`. engines: as
    `--engine` names them; options: any other words of the command line. errors: "raise" raises
    FreeholdError where the recording cannot be read, in the words of the command; "row" has its
    row of status `unreadable`.

    >>> rows = replay(recording, engines=["6.18", "freehold"])
    >>> rows.select(["engine", "failed"]).to_pylist()
    [{'engine': '6.18', 'failed': 0}, {'engine': 'freehold', 'failed': 0}]
    """
    import pyarrow.compute
    import pyarrow.parquet

    words = ["replay", "--no-progress", "-j", "1", "--format", "parquet", "-o", "-"]
    words += [word for engine in engines for word in ("-e", engine)] + list(options)
    with _file(recording, name) as path:
        output, error = _called([*words, path])
    # No object of Python's: a thread of Arrow's that reads one when the interpreter ends aborts.
    rows = pyarrow.parquet.read_table(pyarrow.BufferReader(output))
    if not isinstance(recording, (str, os.PathLike)):
        for column in ("command", "path", "error", "warnings"):
            at = rows.schema.get_field_index(column)
            renamed = pyarrow.compute.replace_substring(rows[column], path, name)
            rows = rows.set_column(at, rows.schema.field(at), renamed)
            error = error and error.replace(path, name)
    if error and errors == "raise":
        raise FreeholdError(error)
    return rows


def read(recording: Recording) -> pyarrow.Table:
    """The events of a recording in any format that the command reads, as `freehold pack` has them.

    The machine's files are in the schema's metadata. All of it is in memory.

    >>> events = read(recording)
    >>> events.num_rows, "pfn" in events.column_names
    (230000, True)
    """
    import pyarrow.parquet

    with _file(recording, "copy") as path:
        output, _ = _called(["pack", "-o", "-", path])
    return pyarrow.parquet.read_table(pyarrow.BufferReader(output))


def look(machine: str | os.PathLike = "/proc") -> dict:
    """How fragmented a machine's memory is: what `freehold look --json` prints.

    >>> sorted({"zones"} & look().keys())
    ['zones']
    """
    return json.loads(_called(["look", "--json", os.fspath(machine)])[0])


def replay_into(recording: str, folder: str, **how) -> str:
    """Replays a recording into a table of its own in a folder, unless that is there already.

    Both are paths or URLs that pyarrow.fs knows (s3://, gs://, hdfs://); `how` goes to `replay`. A
    table is there whole or not at all. A recording that cannot be read has its row; a store that
    cannot be reached is an error, for the caller to try again. Returns the table's path.

    >>> replay_into("s3://fleet/host7/trace.parquet", "s3://rows")  # doctest: +SKIP
    'rows/fleet%2Fhost7%2Ftrace.parquet'
    """
    import pyarrow.fs
    import pyarrow.parquet

    def located(path):
        return pyarrow.fs.FileSystem.from_uri(path if "://" in path else os.path.abspath(path))

    (store, path), (target, folder) = located(recording), located(folder)
    place = quote(path, safe="")
    table = f"{folder}/{place}"
    if target.get_file_info(table).type == pyarrow.fs.FileType.NotFound:
        with store.open_input_stream(path) as stream:
            rows = replay(stream, name=path, errors="row", **how)
        target.create_dir(folder)
        # Readers of a folder pass over names with this beginning.
        unfinished = f"{folder}/_{os.getpid()}-{place}"
        pyarrow.parquet.write_table(rows, unfinished, filesystem=target)
        target.move(unfinished, table)
    return table


def main():
    """The command `freehold`."""
    # Ctrl-C ends the command where it does not say otherwise itself.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(_native.main(sys.argv))
