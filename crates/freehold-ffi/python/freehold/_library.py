"""The C interface, as far as the package uses it."""

import ctypes
import ctypes.util
import os
from ctypes import POINTER, byref, c_bool, c_char, c_int, c_int32, c_uint64, c_void_p

FRAME_SIZE = 4096


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


class Released(ctypes.Structure):
    """freehold_released"""

    _fields_ = [
        ("blocks", c_uint64),
        ("bytes", c_uint64),
        ("calls", c_uint64),
        ("seen", c_uint64),
        ("cut_short", c_bool),
        ("frames", c_uint64),
    ]


class Stats(ctypes.Structure):
    """freehold_arena_stats"""

    _fields_ = [
        (name, c_uint64)
        for name in (
            "frames blocks blocks_resident blocks_released bytes_released release_refused"
            " metadata_bytes late_double_frees frames_used frames_free frames_released"
        ).split()
    ]


class FreeholdError(Exception):
    """What a call was refused with."""

    def __init__(self, error):
        super().__init__(error.message.decode())
        self.status, self.pfn = error.status, error.pfn
        self.found, self.expected = error.found, error.expected


def _load():
    beside = os.path.join(os.path.dirname(__file__), "libfreehold.so")
    found = os.environ.get("FREEHOLD_LIBRARY") or (
        beside if os.path.exists(beside) else ctypes.util.find_library("freehold")
    )
    if not found:
        raise ImportError("no libfreehold.so: install it, or set FREEHOLD_LIBRARY to its path")
    library = ctypes.CDLL(found)
    signatures = {
        "freehold_arena_new": [c_uint64, POINTER(c_void_p), POINTER(Error)],
        "freehold_arena_destroy": [POINTER(c_void_p), POINTER(Error)],
        "freehold_arena_frames": [c_void_p, c_uint64, POINTER(Frames), POINTER(Error)],
        "freehold_arena_zeroed": [c_void_p, c_uint64, POINTER(Frames), POINTER(Error)],
        "freehold_arena_free_frames": [c_void_p, POINTER(Frames), POINTER(Error)],
        "freehold_frames_split": [POINTER(Frames), c_uint64, POINTER(Frames), POINTER(Error)],
        "freehold_arena_trim": [c_void_p, POINTER(Released), POINTER(Error)],
        "freehold_arena_read_stats": [c_void_p, POINTER(Stats), POINTER(Error)],
        "freehold_arena_validate": [c_void_p, POINTER(Error)],
    }
    for name, arguments in signatures.items():
        getattr(library, name).argtypes = arguments
    library.freehold_version.restype = ctypes.c_char_p
    return library


LIBRARY = _load()


def call(name, *arguments):
    """Makes a call; raises what it is refused with."""
    error = Error()
    if getattr(LIBRARY, name)(*arguments, byref(error)) != 0:
        raise FreeholdError(error)
