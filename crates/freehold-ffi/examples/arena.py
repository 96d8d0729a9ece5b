"""Page frames from Python, with the standard library's ctypes only.

    make -C crates/freehold-ffi check     runs it, or after an installation:
    python3 arena.py                      (FREEHOLD_LIBRARY=/path/to/libfreehold.so where the loader does not find it)
"""

import ctypes
import ctypes.util
import os
import sys
import threading
from ctypes import POINTER, byref, c_char, c_int, c_int32, c_uint32, c_uint64, c_void_p

FRAME = 4096
NO_MEMORY, DOUBLE_FREE = 1, 10


class Error(ctypes.Structure):
    """freehold_error"""

    _fields_ = [
        ("status", c_int),
        ("os_errno", c_int32),
        ("pfn", c_uint64),
        ("found", c_uint64),
        ("expected", c_uint64),
        ("done", c_uint64),
        ("message", c_char * 256),
    ]


class Frames(ctypes.Structure):
    """freehold_frames"""

    _fields_ = [("memory", c_void_p), ("pfn", c_uint64), ("count", c_uint64), ("arena", c_void_p)]


class Trouble(Exception):
    def __init__(self, error):
        super().__init__(error.message.decode())
        self.status, self.pfn = error.status, error.pfn


def load():
    path = os.environ.get("FREEHOLD_LIBRARY") or ctypes.util.find_library("freehold")
    if not path:
        sys.exit("libfreehold.so not found: install it, or set FREEHOLD_LIBRARY")
    library = ctypes.CDLL(path)
    signatures = {
        "freehold_arena_new": [c_uint64, POINTER(c_void_p), POINTER(Error)],
        "freehold_arena_zeroed": [c_void_p, c_uint64, POINTER(Frames), POINTER(Error)],
        "freehold_frames_split": [POINTER(Frames), c_uint64, POINTER(Frames), POINTER(Error)],
        "freehold_arena_free_frames": [c_void_p, POINTER(Frames), POINTER(Error)],
        "freehold_arena_drain": [c_void_p, POINTER(Error)],
        "freehold_arena_validate": [c_void_p, POINTER(Error)],
    }
    for name, arguments in signatures.items():
        getattr(library, name).argtypes = arguments
    library.freehold_arena_destroy.argtypes = [POINTER(c_void_p), POINTER(Error)]
    library.freehold_arena_destroy.restype = c_int
    library.freehold_arena_free_frame_count.argtypes = [c_void_p]
    library.freehold_arena_free_frame_count.restype = c_uint64
    library.freehold_version.restype = ctypes.c_char_p
    library.freehold_version_number.restype = c_uint32
    return library


LIBRARY = load()


def call(name, *arguments):
    error = Error()
    if getattr(LIBRARY, name)(*arguments, byref(error)) != 0:
        raise Trouble(error)


def main():
    arena = c_void_p()
    call("freehold_arena_new", 64 << 20, byref(arena))
    everything = LIBRARY.freehold_arena_free_frame_count(arena)

    frames, rest = Frames(), Frames()
    call("freehold_arena_zeroed", arena, 5, byref(frames))
    buffer = (c_char * (frames.count * FRAME)).from_address(frames.memory)
    assert bytes(buffer) == bytes(5 * FRAME)
    buffer[:5] = b"hello"
    call("freehold_frames_split", byref(frames), 2, byref(rest))
    assert (frames.count, rest.count, rest.pfn) == (2, 3, frames.pfn + 2)

    # Each part goes home on its own, from any thread.
    twin = Frames(rest.memory, rest.pfn, rest.count, rest.arena)
    thread = threading.Thread(target=call, args=("freehold_arena_free_frames", arena, byref(frames)))
    thread.start()
    thread.join()
    assert frames.count == 0
    call("freehold_arena_free_frames", arena, byref(rest))

    # Wrong frees are refused and change nothing; the error names the frame.
    try:
        call("freehold_arena_free_frames", arena, byref(twin))
        raise AssertionError("freed twice")
    except Trouble as trouble:
        assert (trouble.status, trouble.pfn) == (DOUBLE_FREE, twin.pfn), trouble
        print("freed once more:", trouble)
    try:
        call("freehold_arena_zeroed", arena, everything + 1, byref(frames))
        raise AssertionError("more than there is")
    except Trouble as trouble:
        assert trouble.status == NO_MEMORY, trouble

    call("freehold_arena_drain", arena)
    call("freehold_arena_validate", arena)
    assert LIBRARY.freehold_arena_free_frame_count(arena) == everything
    call("freehold_arena_destroy", byref(arena))
    print("freehold", LIBRARY.freehold_version().decode(), "from Python: all right")


if __name__ == "__main__":
    main()
