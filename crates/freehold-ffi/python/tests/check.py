"""What the package does, tried: frames as buffers, views that keep them, wrong calls. `make check`
runs it.

    FREEHOLD_LIBRARY=/path/to/libfreehold.so python3 python/tests/check.py
"""

import gc
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import freehold  # noqa: E402

NO_MEMORY, ZERO_LENGTH = 1, 4


def refused(call, status):
    try:
        call()
    except freehold.FreeholdError as error:
        assert error.status == status, error
        return str(error)
    raise AssertionError("not refused")


def views(arena):
    everything = arena.free_frames()
    frames = arena.zeroed(5)
    assert len(frames) == 5 * freehold.FRAME_SIZE and bytes(frames.view) == bytes(len(frames))
    frames.view[:5] = b"hello"
    view = frames.view
    del frames
    gc.collect()
    assert arena.free_frames() == everything - 5, "a view keeps its frames"
    assert bytes(view[:5]) == b"hello"
    del view
    assert arena.free_frames() == everything, "the last view is gone"


def parts(arena):
    everything = arena.free_frames()
    whole = arena.zeroed(5)
    view, first = whole.view, whole.pfn
    head, tail = whole.split(2)
    assert (head.count, tail.count, head.pfn, tail.pfn) == (2, 3, first, first + 2)
    try:
        whole.view
        raise AssertionError("split, and used as a whole")
    except ValueError:
        pass
    view[2 * freehold.FRAME_SIZE] = 7
    assert tail.view[0] == 7
    del head, tail
    assert arena.free_frames() == everything - 5, "a view of the whole keeps the parts"
    del view, whole
    assert arena.free_frames() == everything

    # Each part goes home on its own, on any thread.
    head, tail = arena.frames(5).split(1)
    kept = [tail]
    del tail
    thread = threading.Thread(target=kept.clear)
    thread.start()
    thread.join()
    assert arena.free_frames() == everything - 1
    del head


def arrays(arena):
    try:
        import numpy
    except ImportError:
        print("SKIPPED: numpy is not installed", file=sys.stderr)
        return
    everything = arena.free_frames()
    array = arena.zeroed(4).array("f4")
    array += numpy.arange(4096, dtype="f4")
    assert array.sum() == 4095 * 4096 / 2 and arena.free_frames() == everything - 4
    del array
    assert arena.free_frames() == everything


def main():
    with freehold.Arena(64 << 20) as arena:
        everything = arena.free_frames()
        views(arena)
        parts(arena)
        arrays(arena)
        print("more than there is:", refused(lambda: arena.frames(everything + 1), NO_MEMORY))
        refused(lambda: arena.frames(0), ZERO_LENGTH)
        assert arena.trim() > 0 and arena.stats()["blocks_resident"] == 0
        assert arena.stats()["frames"] == everything == arena.free_frames()
        arena.validate()
        last = arena.zeroed(1)
    last.view[0] = 1  # A closed arena ends when the last of its frames does.
    try:
        arena.frames(1)
        raise AssertionError("closed, and used")
    except ValueError:
        pass
    print("freehold", freehold.version(), "from Python: all right")


if __name__ == "__main__":
    main()
