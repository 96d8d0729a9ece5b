"""Page frames of real memory as buffers.

An `Arena` hands out any number of neighbouring frames of 4096 bytes as `Frames`. Their memory is a
`memoryview`, and goes home when the last view of it is gone; so a view, or a numpy array over one,
never points at memory that is somebody else's. Calls may be made from any thread; a child of fork
makes an arena of its own.
"""

import ctypes
import weakref

from . import _library as c
from ._library import FRAME_SIZE, FreeholdError

__all__ = ["FRAME_SIZE", "Arena", "Frames", "FreeholdError", "version"]


def version():
    """The library's version."""
    return c.LIBRARY.freehold_version().decode()


class _Owner:
    """Ends an arena when neither it nor any of its frames is left."""

    def __init__(self, raw):
        self.raw = raw
        weakref.finalize(self, _destroy, raw).atexit = False


def _destroy(raw):
    c.LIBRARY.freehold_arena_destroy(ctypes.byref(raw), None)


def _free(owner, raw):
    c.LIBRARY.freehold_arena_free_frames(owner.raw, ctypes.byref(raw), None)


class _Part:
    """Frames that go home when nobody refers to this."""

    def __init__(self, owner, raw):
        self.owner, self.raw = owner, raw
        self._end = weakref.finalize(self, _free, owner, raw)
        self._end.atexit = False

    def split(self, frames):
        rest = c.Frames()
        c.call("freehold_frames_split", self.raw, frames, rest)
        self._end.detach()
        return _Part(self.owner, self.raw), _Part(self.owner, rest)


def _let_go(parts):
    parts.clear()


class Frames:
    """Neighbouring frames; made by `Arena.frames` and `Arena.zeroed`."""

    def __init__(self, part):
        self._raw, self._parts = part.raw, [part]
        # The array is what views keep alive, and it keeps the parts.
        kind = ctypes.c_ubyte * (part.raw.count * FRAME_SIZE)
        self._memory = kind.from_address(part.raw.memory)
        weakref.finalize(self._memory, _let_go, self._parts).atexit = False

    def _get(self):
        if self._memory is None:
            raise ValueError("the frames have been split: use the parts")
        return self._raw

    def __len__(self):
        """Bytes."""
        return self._get().count * FRAME_SIZE

    def __repr__(self):
        return f"Frames(pfn={self.pfn:#x}, count={self.count})"

    @property
    def pfn(self):
        """The number of the first frame: its address divided by 4096."""
        return self._get().pfn

    @property
    def count(self):
        """How many frames."""
        return self._get().count

    @property
    def address(self):
        """Where the first byte is."""
        return self._get().memory

    @property
    def view(self):
        """The bytes, to read and to write. The frames stay while the view does."""
        self._get()
        return memoryview(self._memory).cast("B")

    def array(self, dtype="u1"):
        """The memory as a numpy array of that type. The frames stay while the array does."""
        import numpy

        self._get()
        return numpy.frombuffer(self._memory, dtype=dtype)

    def split(self, frames):
        """Two handles, of the first `frames` and of the rest, in place of this one. Views of the
        whole keep both."""
        self._get()
        (part,) = self._parts
        first, rest = part.split(frames)
        self._parts[:] = [first, rest]
        self._memory = None
        return Frames(first), Frames(rest)


class Arena:
    """An arena of at least `bytes` of memory, in whole blocks of 2 MiB. Addresses only, until
    frames are used."""

    def __init__(self, bytes):
        raw = ctypes.c_void_p()
        c.call("freehold_arena_new", bytes, ctypes.byref(raw))
        self._owner = _Owner(raw)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Lets go of the arena: it ends when the last of its frames does."""
        self._owner = None

    def _get(self):
        if self._owner is None:
            raise ValueError("the arena is closed")
        return self._owner

    def frames(self, count):
        """So many neighbouring frames; what is in them is whatever their last user left."""
        owner, raw = self._get(), c.Frames()
        c.call("freehold_arena_frames", owner.raw, count, raw)
        return Frames(_Part(owner, raw))

    def zeroed(self, count):
        """So many neighbouring frames, all zero."""
        owner, raw = self._get(), c.Frames()
        c.call("freehold_arena_zeroed", owner.raw, count, raw)
        return Frames(_Part(owner, raw))

    def trim(self):
        """Gives what is free back to the system; how many bytes that were."""
        released = c.Released()
        c.call("freehold_arena_trim", self._get().raw, released)
        return released.bytes

    def free_frames(self):
        """How many frames are free."""
        return self.stats()["frames_free"]

    def stats(self):
        """Counters by name."""
        stats = c.Stats()
        c.call("freehold_arena_read_stats", self._get().raw, stats)
        return {name: getattr(stats, name) for name, *_ in c.Stats._fields_}

    def validate(self):
        """Checks every invariant: for tests."""
        c.call("freehold_arena_validate", self._get().raw)
