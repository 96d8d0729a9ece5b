#!/bin/sh
# The programs in C and C++, against the library as `make check` has installed it below $STAGE:
# compiled, run, and what they say looked at. With QUICK set, as `cargo test` has it, without what
# takes long: clang, AddressSanitizer, valgrind, RocksDB.
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
            "$CHECK/$test-$link" | grep "^$test: all right"
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

c_by cc
header_by cc c c89 c99 c11 c17 gnu89
readme
installation
for compiler in g++ clang++; do
    have "$compiler" || continue
    header_by "$compiler" c++ c++98 c++11 c++20
    build "$compiler -std=c++17 -O2" examples/buffer_pool.cpp buffer_pool "$shared"
    "$CHECK/buffer_pool" | grep '16384 of 16384 frames free'
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
    echo '#include <rocksdb/memory_allocator.h>' > "$CHECK/rocksdb.cpp"
    if c++ -std=c++17 -E "$CHECK/rocksdb.cpp" > /dev/null 2>&1; then
        build "c++ -std=c++17 -O2" examples/rocksdb_cache.cpp rocksdb_cache "$shared -lrocksdb"
        "$CHECK/rocksdb_cache"
    else
        echo "SKIPPED: the block cache for RocksDB needs librocksdb's headers" >&2
    fi
fi
make --no-print-directory --silent uninstall DESTDIR="$STAGE" PREFIX=/usr
test -z "$(find "$STAGE" -name '*freehold*' ! -type d)"
echo "freehold-ffi: everything passed"
