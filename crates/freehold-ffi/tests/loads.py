#!/usr/bin/env python3
"""Loads of mimalloc-bench that pass memory between threads, with one malloc after the other.

    loads.py LIBFREEHOLD_MALLOC.so MIMALLOC_BENCH [RUNS]

MIMALLOC_BENCH is a clone of github.com/daanx/mimalloc-bench, whose programs are compiled here.
jemalloc and mimalloc are preloaded where the loader finds them. A row is the median of RUNS (5),
taken in turn: for each malloc millions of operations a second, or a CPU second for rptest, mstress
and cache-scratch, and the most memory resident in MiB. Rows in which Freehold is furthest behind
the best of the others come first. A quiet machine is wanted.
"""

import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

THREADS = "2"
PROGRAMS = {
    "larson": ["larson/larson.cpp"],
    "xmalloc": ["xmalloc-test/xmalloc-test.c"],
    "rptest": ["rptest/rptest.c", "rptest/thread.c", "rptest/timer.c"],
    "mstress": ["mstress/mstress.c"],
    "cache-scratch": ["cache-scratch/cache-scratch.cpp"],
}
# What each says of itself, and what makes millions of operations a second of it.
SAYS = {
    "larson": (r"Throughput = +(\d+) operations per second", 1e-6),
    "xmalloc": (r"free/sec: ([\d.]+) M", 1),
    "rptest": (r"(\d+) memory ops/CPU second", 1e-6),
}
# Loads that do a given work: its million operations.
WORK = {"mstress": 1.125, "cache-scratch": 0.4}
ROWS = [
    ("larson", "4 to 64 KiB, not written to", ["3", "4096", "65536", "500", "200", "1", THREADS]),
    ("larson", "64 KiB to 4 MiB", ["3", "65536", "4194304", "50", "200", "1", THREADS]),
    ("xmalloc", "4 KiB", ["-w", THREADS, "-t", "3", "-s", "4096"]),
    ("xmalloc", "64 KiB", ["-w", THREADS, "-t", "3", "-s", "65536"]),
    ("xmalloc", "1 MiB", ["-w", THREADS, "-t", "3", "-s", "1048576"]),
    ("rptest", "4 to 64 KiB", [THREADS, "0", "1", "2", "100", "500", "200", "4096", "65536"]),
    ("rptest", "64 KiB to 4 MiB", [THREADS, "0", "1", "2", "50", "50", "50", "65536", "4194304"]),
    ("mstress", "its own sizes", [THREADS, "50", "50"]),
    ("cache-scratch", "4 KiB", [THREADS, "1", "4096", "200000", THREADS]),
]


def once(program, words, preload, name):
    """Millions of operations a second, and MiB."""
    environment = dict(os.environ, LD_PRELOAD=preload, FREEHOLD_MALLOC_FROM="4K")
    child = subprocess.Popen([program, *words], env=environment, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    said = child.stdout.read()
    _, status, used = os.wait4(child.pid, 0)
    if status != 0:
        sys.exit(f"loads.py: {name} {' '.join(words)} with '{preload}' ended with {status}: {said}")
    if name in SAYS:
        pattern, scale = SAYS[name]
        found = re.search(pattern, said)
        if not found:
            sys.exit(f"loads.py: {name} says no figure: {said}")
        figure = float(found[1]) * scale
    else:
        figure = WORK[name] / (used.ru_utime + used.ru_stime)
    return figure, used.ru_maxrss / 1024


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    ours, bench = os.path.realpath(sys.argv[1]), pathlib.Path(sys.argv[2]) / "bench"
    runs = int(sys.argv[3]) if len(sys.argv) == 4 else 5
    mallocs = {"freehold": ours, "glibc": ""}
    for name, library in (("jemalloc", "libjemalloc.so.2"), ("mimalloc", "libmimalloc.so.2")):
        tried = subprocess.run(["/bin/true"], env={"LD_PRELOAD": library}, capture_output=True)
        if tried.stderr:
            print(f"SKIPPED: there is no {library}", file=sys.stderr)
        else:
            mallocs[name] = library
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, sources in PROGRAMS.items():
            subprocess.run(["g++" if sources[0].endswith("pp") else "gcc", "-O2", "-w", f"-I{bench}/rptest",
                            *(bench / source for source in sources), "-o", f"{folder}/{name}",
                            "-lpthread", "-lm"], check=True)
        for name, what, words in ROWS:
            print(f"{name}, {what} ...", file=sys.stderr)
            figures = {malloc: [] for malloc in mallocs}
            for _ in range(runs):
                for malloc, preload in mallocs.items():
                    figures[malloc].append(once(f"{folder}/{name}", words, preload, name))
            middle = {malloc: [statistics.median(column) for column in zip(*of)]
                      for malloc, of in figures.items()}
            best = max(of[0] for malloc, of in middle.items() if malloc != "freehold")
            cells = [f"{of[0]:.3g}; {of[1]:.0f}" for of in middle.values()]
            rows.append((middle["freehold"][0] / best, f"| {name}, {what} | {' | '.join(cells)} |"))
    print(f"| load | {' | '.join(mallocs)} |\n|---|{'--:|' * len(mallocs)}")
    for _, row in sorted(rows):
        print(row)


if __name__ == "__main__":
    main()
