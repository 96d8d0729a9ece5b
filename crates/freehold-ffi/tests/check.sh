#!/bin/sh
# The programs in C and C++, against the library as `make check` has installed it below $STAGE:
# compiled, run, and what they say looked at. With QUICK set, as `cargo test` has it, without what
# takes long: clang, AddressSanitizer, valgrind, databases, programs that know nothing of the malloc.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
programs="bare arena"
warnings="-Wall -Wextra -Werror"
installed="-I$STAGE/usr/include"
shared="-L$STAGE/usr/lib -lfreehold -lpthread"
static="$STAGE/usr/lib/libfreehold.a $LIBS_PRIVATE"
export LD_LIBRARY_PATH="$STAGE/usr/lib"

have() {
    command -v "$1" > /dev/null && return
    echo "SKIPPED: there is no $1" >&2
    return 1
}

# says WORDS PROGRAM...: ends well, and has said them.
says() {
    words=$1
    shift
    "$@" > "$CHECK/said" 2>&1 || { cat "$CHECK/said"; return 1; }
    grep "$words" "$CHECK/said" || { cat "$CHECK/said"; return 1; }
}

# compiler and flags, source, name of the program, library
build() {
    # shellcheck disable=SC2086
    $1 $warnings $installed "$2" -o "$CHECK/$3" $4
}

# Every test program by a compiler, linked in both ways.
c_by() {
    for test in $programs; do
        for link in shared static; do
            eval "library=\$$link"
            build "$1 -std=c11 -O2 -g" "tests/$test.c" "$test-$link" "$library"
            says "^$test: all right" "$CHECK/$test-$link"
        done
    done
    build "$1 -std=c11 -pedantic" examples/boot.c boot "$shared"
    "$CHECK/boot"
}

# One that is caught by a sanitizer ends otherwise than its own way.
sanitized_by() {
    flags="-std=c11 -g -fsanitize=address,undefined -fno-sanitize-recover=all"
    echo 'int main(void) { return 0; }' > "$CHECK/probe.c"
    # shellcheck disable=SC2086
    if ! $1 $flags "$CHECK/probe.c" -o "$CHECK/probe" 2> /dev/null; then
        echo "SKIPPED: $1 has no AddressSanitizer" >&2
        return
    fi
    for test in $programs; do
        build "$1 $flags" "tests/$test.c" "$test-sanitized" "$static"
        "$CHECK/$test-sanitized"
    done
}

# The header alone, twice, with and without the arena.
header_by() {
    compiler=$1 language=$2
    shift 2
    for define in "" "#define FREEHOLD_FREESTANDING"; do
        printf '%s\n#include <freehold.h>\n#include <freehold.h>\n%s\n' "$define" \
            'int main(void) { return (int)freehold_version_number(); }' > "$CHECK/header.c"
        for dialect in "$@"; do
            # shellcheck disable=SC2086
            "$compiler" $warnings -pedantic-errors -fsyntax-only -x "$language" -std="$dialect" \
                $installed "$CHECK/header.c"
        done
    done
}

# The cache of a database, where its header is.
example_with() {
    echo "#include <$2>" > "$CHECK/$1.cpp"
    if c++ -std=c++17 -E "$CHECK/$1.cpp" > /dev/null 2>&1; then
        build "c++ -std=c++17 -O2" "examples/$1_cache.cpp" "$1_cache" "$shared -l${3:-$1}"
        "$CHECK/$1_cache"
    else
        echo "SKIPPED: the cache for $1 needs $2" >&2
    fi
}

# The example of the crate's README.
readme() {
    sed -n '/^```c$/,/^```$/{/^```/d;p}' README.md > "$CHECK/readme.c"
    grep -q freehold_arena "$CHECK/readme.c"
    build "cc -std=c11" "$CHECK/readme.c" readme "$shared"
    "$CHECK/readme"
}

# What others find the library by: its names and soname, freehold.pc, and nothing once it is gone.
installation() {
    if have readelf; then
        soname=$(readlink "$STAGE/usr/lib/libfreehold.so")
        readelf -d "$STAGE/usr/lib/libfreehold.so" | grep -F "Library soname: [$soname]"
    fi
    if have nm; then
        nm -D --defined-only "$STAGE/usr/lib/libfreehold.so" | cut -d' ' -f3 > "$CHECK/names"
        test "$(grep -c '^freehold_' "$CHECK/names")" -gt 50
        if grep -v '^freehold_' "$CHECK/names"; then
            echo "names without the prefix" >&2
            exit 1
        fi
    fi
    have pkg-config || return 0
    export PKG_CONFIG_LIBDIR="$STAGE/usr/lib/pkgconfig" PKG_CONFIG_SYSROOT_DIR="$STAGE"
    # Where the installation is not the system's, /usr/lib must be named all the same.
    export PKG_CONFIG_ALLOW_SYSTEM_LIBS=1 PKG_CONFIG_ALLOW_SYSTEM_CFLAGS=1
    test "$(pkg-config --modversion freehold)" = "$VERSION"
    # shellcheck disable=SC2046
    cc examples/boot.c $(pkg-config --cflags --libs freehold) -o "$CHECK/with-pkg-config"
    "$CHECK/with-pkg-config"
    # And without any shared library.
    # shellcheck disable=SC2046
    cc -static examples/boot.c $(pkg-config --static --cflags --libs freehold) -o "$CHECK/static"
    "$CHECK/static"
}

# Preloads the malloc, with variables of its own before the program: `preloaded A=1 program...`.
preloaded() {
    env "LD_PRELOAD=$STAGE/usr/lib/libfreehold-malloc.so" "$@"
}

# A mistake ends the program, which says what it was.
ends() {
    if preloaded "$CHECK/malloc" "$1" 2> "$CHECK/said"; then
        echo "malloc: '$1' went on" >&2
        exit 1
    fi
    grep "$2" "$CHECK/said"
}

# The malloc: our own program, which says what is wrong, and others that know nothing of it and say
# without it what they have to say with it.
malloc() {
    # shellcheck disable=SC2086
    cc -std=c11 -O2 -g -fno-builtin $warnings tests/malloc.c -o "$CHECK/malloc" -lpthread
    for thread in 1 0; do
        [ -z "${QUICK:-}" ] || [ $thread = 1 ] || continue
        says '^malloc: all right' \
            preloaded FREEHOLD_MALLOC_DECAY_MS=100 FREEHOLD_MALLOC_THREAD=$thread "$CHECK/malloc"
    done
    ends twice 'it is no allocation, or has been freed'
    ends inside 'it is no allocation, or has been freed'
    says ': malloc\[[0-9]*\]: allocations of whole frames: 1;' \
        preloaded FREEHOLD_MALLOC_STATS=1 "$CHECK/malloc" stats
    says 'allowed is bytes, 4K to' preloaded FREEHOLD_MALLOC_FROM=2K "$CHECK/malloc" stats
    says 'process: no request was large enough$' \
        preloaded FREEHOLD_MALLOC_STATS=1 FREEHOLD_MALLOC_FROM=1M "$CHECK/malloc" stats
    (ulimit -v 1000000; says 'process: there was no room for one$' \
        preloaded FREEHOLD_MALLOC_STATS=1 FREEHOLD_MALLOC_SIZE=64G "$CHECK/malloc" stats)
    says 'MALLOC_STAT: there is no such' preloaded FREEHOLD_MALLOC_STAT=1 "$CHECK/malloc" stats
    says ' 0 moved by .*, 1 copied' preloaded FREEHOLD_MALLOC_STATS=1 "$CHECK/malloc" refused
    two_nodes "$CHECK/malloc" moves
    preloaded FREEHOLD_GUARD=1 timeout 60 "$CHECK/malloc" guard
    preloaded FREEHOLD_MALLOC_DECAY_MS=100 "$CHECK/malloc" ended
    [ -z "${QUICK:-}" ] || return 0
    if have python3; then
        program='
import zlib, threading, os, random
def work(seed):
    r = random.Random(seed); kept = {}
    for n in range(800):
        kept[r.randrange(40)] = bytearray(r.randbytes(r.randrange(150000))) + b"x" * r.randrange(9)
        if n % 9 == 0: kept[r.randrange(40)] = zlib.compress(bytes(200000), 1)
    sums[seed] = zlib.crc32(b"".join(bytes(kept[k]) for k in sorted(kept)))
sums = {}
threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
[t.start() for t in threads]; [t.join() for t in threads]
read, write = os.pipe()
if os.fork() == 0: work(9); os.write(write, b"%d" % sums[9]); os._exit(0)
print(sorted(sums.items()), os.read(read, 20), os.wait()[1])'
        alike python3 -c "$program"
    fi
    if have sqlite3; then
        alike sqlite3 :memory: "create table t(a integer primary key, b text);
            with recursive n(i) as (select 1 union all select i + 1 from n where i < 2000)
            insert into t select i, hex(zeroblob(i * 37 % 40000)) from n;
            create index x on t(b); delete from t where a % 20 <> 7; vacuum;
            pragma integrity_check; select count(*), sum(length(b)), group_concat(a) from t;"
    fi
}

# Preloads the malloc where it finds a machine with two memory nodes, of which the kernel has one,
# with all CPUs.
two_nodes() {
    nodes="$CHECK/nodes"
    mkdir -p "$nodes/node0" "$nodes/node1"
    echo 0-1 > "$nodes/has_memory"
    echo 0-1023 > "$nodes/node0/cpulist"
    echo 1024 > "$nodes/node1/cpulist"
    if ! unshare -m mount --bind "$nodes" /sys/devices/system/node 2> /dev/null; then
        echo "SKIPPED: what needs two memory nodes: nothing may be mounted here" >&2
        return
    fi
    # shellcheck disable=SC2016
    unshare -m sh -c 'mount --bind "$0" /sys/devices/system/node && exec "$@"' "$nodes" \
        env "LD_PRELOAD=$STAGE/usr/lib/libfreehold-malloc.so" "$@"
}

# Says with the malloc what it says without it.
alike() {
    "$@" > "$CHECK/without"
    for from in 4K 16K; do
        preloaded FREEHOLD_MALLOC_FROM=$from FREEHOLD_MALLOC_DECAY_MS=100 FREEHOLD_MALLOC_STATS=1 \
            "$@" > "$CHECK/with" 2> "$CHECK/said"
        cmp "$CHECK/without" "$CHECK/with"
        grep ' allocations of whole frames: ' "$CHECK/said"
    done
}

# The guard mode finds each of the mistakes.
# A program (with what runs it), and what is said of them.
finds() {
    words=$1
    shift
    FREEHOLD_GUARD=1 "$@" 0 > "$CHECK/said" 2>&1 || { cat "$CHECK/said"; exit 1; }
    for number in 1 2 3 4 5 6 7 8 9 10; do
        status=0
        FREEHOLD_GUARD=1 "$@" $number > "$CHECK/said" 2>&1 || status=$?
        if [ $status -lt 1 ] || ! grep -q before "$CHECK/said" || grep -q behind "$CHECK/said" \
            || ! grep -qE "$words" "$CHECK/said"; then
            cat "$CHECK/said"
            echo "$*: mistake $number was not found, or not said: $words" >&2
            exit 1
        fi
    done
}

planted() {
    build "cc -std=c11 -O1 -g" tests/planted.c planted "$shared"
    finds before "$CHECK/planted"
    without=0
    for number in 1 2 3 4 5 6 7 8 9 10; do
        "$CHECK/planted" $number > /dev/null 2>&1 || without=$((without + 1))
    done
    echo "planted mistakes that end a program without the guard mode: $without"
    [ $without -le 1 ]
    [ -z "${QUICK:-}" ] || return 0
    flags="-std=c11 -g -fsanitize=address"
    # shellcheck disable=SC2086
    if echo 'int main(void) { return 0; }' | cc $flags -x c -o "$CHECK/probe" - 2> /dev/null; then
        build "cc $flags" tests/planted.c planted-sanitized "$static"
        finds 'AddressSanitizer: (use-after-poison|SEGV)' "$CHECK/planted-sanitized"
    else
        echo "SKIPPED: cc has no AddressSanitizer" >&2
    fi
    if have valgrind; then
        finds "Invalid (read|write)" valgrind --quiet --error-exitcode=9 "$CHECK/planted"
    fi
}

c_by cc
planted
if [ -e "$STAGE/usr/lib/libfreehold-malloc.so" ]; then
    malloc
else
    echo "SKIPPED: libfreehold-malloc.so was not built; 'cargo test -p freehold-ffi' builds it" >&2
fi
header_by cc c c89 c99 c11 c17 gnu89
readme
installation
for compiler in g++ clang++; do
    have "$compiler" || continue
    header_by "$compiler" c++ c++98 c++11 c++20
    build "$compiler -std=c++17 -O2" examples/buffer_pool.cpp buffer_pool "$shared"
    says '16384 of 16384 frames free' "$CHECK/buffer_pool"
done
if [ -z "${QUICK:-}" ]; then
    sanitized_by gcc
    if have clang; then
        header_by clang c c89 c99 c11 c17
        sanitized_by clang
        c_by clang
    fi
    if have valgrind; then
        for test in $programs; do
            valgrind --quiet --error-exitcode=9 --leak-check=full \
                --errors-for-leak-kinds=definite,indirect "$CHECK/$test-shared"
        done
    fi
    example_with rocksdb rocksdb/memory_allocator.h
    example_with sqlite sqlite3.h sqlite3
fi
make --no-print-directory --silent uninstall DESTDIR="$STAGE" PREFIX=/usr
test -z "$(find "$STAGE" -name '*freehold*' ! -type d)"
echo "freehold-ffi: everything passed"
