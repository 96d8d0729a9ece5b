#!/usr/bin/env python3
"""Loads of mimalloc-bench that pass memory between threads, with one malloc after the other.

    loads.py LIBFREEHOLD_MALLOC.so MIMALLOC_BENCH

MIMALLOC_BENCH is a clone of github.com/daanx/mimalloc-bench, whose programs are compiled here.
jemalloc and mimalloc are preloaded where the loader finds them. For each malloc a row has the
instructions of an operation, by callgrind, from the difference of a shorter and a longer run, the
page faults of 1,000 operations of the longer one without callgrind, and MiB resident at most.
An operation is a call by which the program asks for memory, and its free.
Callgrind runs one thread at a time: what waiting for each other costs is not in it. Rows in which
Freehold takes most instructions beside the best of the others come first.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

PROGRAMS = {
    "larson": ["larson/larson.cpp"],
    "xmalloc": ["xmalloc-test/xmalloc-test.c"],
    "rptest": ["rptest/rptest.c", "rptest/thread.c", "rptest/timer.c"],
    "mstress": ["mstress/mstress.c"],
    "cache-scratch": ["cache-scratch/cache-scratch.cpp"],
}
# What those that run for a given time say of their operations: a rate, and a time; or all.
SAYS = {
    "larson": r"Throughput = +(\d+) .*time: +([\d.]+)s",
    "xmalloc": r"Total (\d+) freed()",
}
# Words with N in place of the two lengths, for two threads.
ROWS = [
    ("larson", "4 to 64 KiB, not written to", "N 4096 65536 500 200 1 2", 2, 12),
    ("larson", "64 KiB to 4 MiB", "N 65536 4194304 50 200 1 2", 2, 12),
    ("xmalloc", "4 KiB", "-v -w 2 -t N -s 4096", 2, 12),
    ("xmalloc", "64 KiB", "-v -w 2 -t N -s 65536", 2, 12),
    ("xmalloc", "1 MiB", "-v -w 2 -t N -s 1048576", 2, 12),
    ("rptest", "4 to 64 KiB", "2 0 1 2 N 500 200 4096 65536", 2, 6),
    ("rptest", "64 KiB to 4 MiB", "2 0 1 2 N 50 50 65536 4194304", 2, 6),
    ("mstress", "its own sizes", "2 50 N", 2, 6),
    ("cache-scratch", "4 KiB", "2 N 4096 2 2", 1000, 5000),
]
TAKES = re.compile(r"(malloc|calloc|realloc|operator new.*)$")


def run(words, preload):
    """What it says, and what it used."""
    environment = dict(os.environ, LD_PRELOAD=preload, FREEHOLD_MALLOC_FROM="4K")
    child = subprocess.Popen(words, env=environment, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    said = child.stdout.read()
    _, status, used = os.wait4(child.pid, 0)
    if status != 0:
        sys.exit(f"loads.py: {' '.join(words)} with '{preload}' ended with {status}: {said}")
    return said, used


def counted(line, preload):
    """Instructions under callgrind, and how often the program itself has asked for memory."""
    said, _ = run(["valgrind", "--tool=callgrind", "--fair-sched=yes", "--callgrind-out-file=calls",
                   *line], preload)
    names, within, callee, asked = {}, False, "", 0
    for text in open("calls"):
        # A name stands beside its number the first time, which is one of objects or of functions.
        found = re.match(r"(ob|cob|fn|cfn)=\((\d+)\)(?: (.*))?", text)
        if found:
            kind, number, name = found.groups()
            key = kind[-2:] + number
            name = names.setdefault(key, name)
            if kind == "ob":
                within = name == line[0]
            elif kind == "cfn":
                callee = name
        elif text.startswith("calls=") and within and TAKES.match(callee):
            asked += int(text[6:].split()[0])
    return int(re.search(r"Collected : (\d+)", said)[1]), asked


def measured(program, name, words, lengths, preload):
    """Instructions of an operation, faults of 1,000, and MiB."""
    lines = [[program, *words.replace("N", str(length)).split()] for length in lengths]
    (few, begun), (many, done) = (counted(line, preload) for line in lines)
    said, used = run(lines[1], preload)
    if name in SAYS:
        rate, time = re.search(SAYS[name], said).groups()
        native = float(rate) * float(time or 1)
    else:
        native = done
    return (many - few) / (done - begun), 1000 * used.ru_minflt / native, used.ru_maxrss / 1024


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    ours, bench = os.path.realpath(sys.argv[1]), pathlib.Path(sys.argv[2]) / "bench"
    mallocs = {"freehold": ours, "glibc": ""}
    for name, library in (("jemalloc", "libjemalloc.so.2"), ("mimalloc", "libmimalloc.so.2")):
        tried = subprocess.run(["/bin/true"], env=dict(os.environ, LD_PRELOAD=library),
                               capture_output=True)
        if tried.stderr:
            print(f"SKIPPED: there is no {library}", file=sys.stderr)
        else:
            mallocs[name] = library
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, sources in PROGRAMS.items():
            # Memory that nobody reads is asked for all the same.
            subprocess.run(["g++" if sources[0].endswith("pp") else "gcc", "-O2", "-w",
                            "-fno-allocation-dce", f"-I{bench}/rptest", *(bench / source for source in sources),
                            "-o", f"{folder}/{name}", "-lpthread", "-lm"], check=True)
        os.chdir(folder)
        for name, what, words, *lengths in ROWS:
            figures = {malloc: measured(f"{folder}/{name}", name, words, lengths, preload)
                       for malloc, preload in mallocs.items()}
            best = min(of[0] for malloc, of in figures.items() if malloc != "freehold")
            cells = [f"{of[0]:,.0f}; {of[1]:.3g}; {of[2]:.0f}" for of in figures.values()]
            rows.append((figures["freehold"][0] / best, f"| {name}, {what} | {' | '.join(cells)} |"))
            print(rows[-1][1], file=sys.stderr)
    print(f"| load | {' | '.join(mallocs)} |\n|---|{'--:|' * len(mallocs)}")
    for _, row in sorted(rows, reverse=True):
        print(row)


if __name__ == "__main__":
    main()
