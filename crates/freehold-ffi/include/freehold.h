/*
 * Freehold: a page-frame allocator in which no allocation and no free takes a lock that CPUs share,
 * each CPU leases words of 64 frames, and every freed frame goes home.
 *
 * Frames are of 4096 bytes and named by their number (PFN); 512 of them are a pageblock; a chunk of
 * order n is 2^n neighbouring, naturally aligned frames. Two allocators are here: the bare one over
 * frame numbers, for kernels (freehold_new), and the hosted arena of real memory in a Linux process
 * (freehold_arena_new). Define FREEHOLD_FREESTANDING before including this header where the library
 * was built without std: the arena is not in it.
 *
 * In short, for a Linux process:
 *
 *     freehold_arena *arena;                                 real memory; addresses only until used
 *     freehold_arena_new(bytes, &arena, &error);             (freehold_arena_new_with: the knobs)
 *     freehold_frames frames;
 *     freehold_arena_frames(arena, n, &frames, &error);      n neighbouring frames: frames.memory
 *     freehold_frames_split(&frames, n, &rest, &error);      parts of them, without the arena
 *     freehold_arena_free_frames(arena, &frames, &error);    from any thread
 *     freehold_arena_trim(arena, NULL, &error);              what is free goes back to the system
 *     freehold_arena_destroy(&arena, &error);
 *
 * and for a kernel, or for frames that are somebody else's memory:
 *
 *     freehold_config_init(&config, cpus, zones, zone_count);     what memory there is
 *     freehold_metadata_size(&config, &size, &error);
 *     freehold_new(&config, metadata, size, &platform, &allocator, &error);
 *     const freehold_cpu *cpu = freehold_here(allocator);         as platform.current_cpu says, or
 *     cpu = freehold_on(allocator, 3);                            CPU 3, from anywhere, or
 *     freehold_own(allocator, 3, &cpu, &error);                   for the caller alone: fastest
 *     freehold_alloc(cpu, &request, &pfn, &error);
 *     freehold_free(cpu, pfn, order, &error);
 *
 * Errors. Calls that can fail return a status, 0 for success; freehold_strerror puts it into words.
 * Their last parameter is null or gets the details of a failure. Results are written to out
 * parameters, which are not touched on failure, and nothing else has changed then either, unless
 * the function says so. A panic inside aborts the program. Callbacks must not throw or longjmp.
 *
 * Pointers. A null pointer is refused (FREEHOLD_STATUS_NULL_POINTER), or does nothing and yields 0,
 * -1, false or null in the calls that return no status. All others must be what they are called: an
 * allocator, CPU or arena comes from this library and is not destroyed; what is named in the
 * singular can be read, or written to where it is a result; an array has as many entries as is
 * said; a callback may be called with its `user`, during the call and, where the library keeps it,
 * as long as it does.
 *
 * Threads. Any thread may make any call at any time, with these exceptions. A function that asks
 * for more says so under "Thread safety". The handle of an owned CPU, and a freehold_frames, belong
 * to one thread at a time. In a callback of the platform only those calls may be made that take no
 * lock; they say so. In a signal handler there is no call on an arena.
 *
 * Ownership. Frames are their caller's from the allocation to the free; who frees them must be sure
 * that nobody uses them any more. What is handed over by pointer stays the caller's and is read
 * during the call only, but for the metadata and what the platform points to, which an allocator
 * keeps until it is destroyed.
 *
 * Sizes. Structures stay as they are within a version of the ABI (FREEHOLD_VERSION_MINOR, which is
 * part of the shared library's soname). freehold_arena_options may gain fields at its end: it says
 * how large the program knows it.
 *
 * ThreadSanitizer does not see inside a library that is built without it, and reports races on
 * memory that went from one thread to another through this one. They are none: a free happens
 * before the allocation that gets the frames. Build the library instrumented (see its Makefile:
 * `make tsan`), or suppress them.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef FREEHOLD_H
#define FREEHOLD_H

/* Made by cbindgen of the sources of freehold-ffi: `make header`. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#if !defined(FREEHOLD_FREESTANDING)
#define FREEHOLD_HOSTED 1
#endif
/* clang calls its own stdbool.h an extension in strict C89. */
#if defined(__clang__) && !defined(__cplusplus)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wc99-extensions"
#define FREEHOLD_POP_DIAGNOSTICS
#endif

/** "No such frame", wherever a frame number is returned. */
#define FREEHOLD_NO_PFN 18446744073709551615ull

/** Bytes of `freehold_error.message`, the terminating zero included. */
#define FREEHOLD_MESSAGE_SIZE 256

/** The caller may not wait (atomic context): part of the reserves may be used. */
#define FREEHOLD_ALLOC_NON_BLOCK 1

/** The caller is important: half of the min watermark may be used. */
#define FREEHOLD_ALLOC_MIN_RESERVE 2

/** A high-order request that may not wait: HIGHATOMIC blocks first. */
#define FREEHOLD_ALLOC_HIGH_ATOMIC 4

/** The request is the way out of an out-of-memory condition: half of what is left may be used. */
#define FREEHOLD_ALLOC_OOM 8

/** The caller may already hold any lock (NMI): locks are only tried, never waited for. */
#define FREEHOLD_ALLOC_NO_LOCK 16

/** Prefer failing a zone to mixing migratetypes within a pageblock. */
#define FREEHOLD_ALLOC_NO_FRAGMENT 32

/** Frames of CMA pageblocks will do; meaningful for movable requests only. */
#define FREEHOLD_ALLOC_CMA 64

/** Ignore the watermarks altogether. */
#define FREEHOLD_ALLOC_NO_WATERMARKS 128

/** Orders that there are: 0 to 18. */
#define FREEHOLD_ORDERS 19

/** Migratetypes that there are. */
#define FREEHOLD_MIGRATETYPES 6

/** The major version of this header. */
#define FREEHOLD_VERSION_MAJOR 0

/** The minor version of this header. Before 1.0.0, another minor version is another ABI. */
#define FREEHOLD_VERSION_MINOR 1

/** The patch version of this header. */
#define FREEHOLD_VERSION_PATCH 0

/** What became of a call. Zero is success; the numbers are part of the ABI and never change
 * their meaning (12 and 13 had one that is gone).
 *
 * Whatever a failed call returns: nothing has changed, unless the function says otherwise. */
typedef enum freehold_status {
    /** Done. */
    FREEHOLD_STATUS_OK = 0,
    /** No free chunk of that size that the request may use. `found`: the order, or the frames. */
    FREEHOLD_STATUS_NO_MEMORY = 1,
    /** There are no chunks of that order. `found`: the order; `expected`: the largest. */
    FREEHOLD_STATUS_ORDER_TOO_LARGE = 2,
    /** No migratetype, or one that no request may name. `found`: it. */
    FREEHOLD_STATUS_BAD_MIGRATETYPE = 3,
    /** A range of no frames. */
    FREEHOLD_STATUS_ZERO_LENGTH = 4,
    /** Not inside one zone, or over a hole. `pfn`: the first frame that cannot be part of it. */
    FREEHOLD_STATUS_BAD_RANGE = 5,
    /** A frame is in use, or its block is being isolated; try again. `pfn`: the frame. */
    FREEHOLD_STATUS_BUSY = 6,
    /** The request may not wait for locks and one was held. */
    FREEHOLD_STATUS_WOULD_BLOCK = 7,
    /** There is no such CPU, or it is offline. `found`: the CPU. */
    FREEHOLD_STATUS_CPU_OFFLINE = 8,
    /** Somebody owns that CPU. `found`: the CPU. */
    FREEHOLD_STATUS_CPU_OWNED = 9,
    /** The frame is free already. `pfn`: the frame. */
    FREEHOLD_STATUS_DOUBLE_FREE = 10,
    /** The frame was never handed out. `pfn`: the frame. */
    FREEHOLD_STATUS_NEVER_ALLOCATED = 11,
    /** No zone has that frame. `pfn`: the frame. */
    FREEHOLD_STATUS_OUT_OF_ZONE = 14,
    /** There is no memory at that frame. `pfn`: the frame. */
    FREEHOLD_STATUS_HOLE = 15,
    /** The range ends behind its zone. `pfn`: the first frame behind the zone. */
    FREEHOLD_STATUS_PAST_END = 16,
    /** No such chunk starts there, or memory cannot be removed from there. `found`: the order. */
    FREEHOLD_STATUS_MISALIGNED = 17,
    /** Memory to be added is there already. `pfn`: the first such frame. */
    FREEHOLD_STATUS_PRESENT = 18,
    /** Memory to be removed is not there. `pfn`: the first such frame. */
    FREEHOLD_STATUS_ABSENT = 19,
    /** The configuration left no room for another section or piece of memory. */
    FREEHOLD_STATUS_NO_ROOM = 20,
    /** There must be 1 to 32,766 CPUs, no more online than there are. `found`: the number. */
    FREEHOLD_STATUS_CONFIG_CPUS = 21,
    /** There must be 1 to 64 zones, and the zone one of them. `found`: the number, or index. */
    FREEHOLD_STATUS_CONFIG_ZONES = 22,
    /** A span or CMA piece is empty, or not of whole pageblocks. `pfn`: where it starts. */
    FREEHOLD_STATUS_CONFIG_SPAN = 23,
    /** Configuration: memory or CMA outside its zone, or empty. `pfn`: where it starts. */
    FREEHOLD_STATUS_CONFIG_OUTSIDE_ZONE = 24,
    /** Two pieces of memory, or two zones, share frames. `pfn`: the first of them. */
    FREEHOLD_STATUS_CONFIG_OVERLAP = 25,
    /** Watermarks must rise: min, low, high. */
    FREEHOLD_STATUS_WATERMARKS = 26,
    /** The metadata region is too small. `found`: bytes given; `expected`: bytes needed. */
    FREEHOLD_STATUS_METADATA_TOO_SMALL = 27,
    /** That CPU handle has been released. `found`: the CPU. */
    FREEHOLD_STATUS_CPU_NOT_OWNED = 28,
    /** A pointer was null that must not be. The message names it. */
    FREEHOLD_STATUS_NULL_POINTER = 29,
    /** A value is out of its range. `found`: it; the message says which and what is allowed. */
    FREEHOLD_STATUS_INVALID_ARGUMENT = 30,
    /** The invariant walk found a defect. `pfn`, `found`, `expected`: what is broken. */
    FREEHOLD_STATUS_BROKEN = 31,
    /** The kernel refused a system call. `os_errno`: why; `found`: how many bytes it was about. */
    FREEHOLD_STATUS_OS = 32,
    /** The arena is the parent process's. Make a new one after a fork. */
    FREEHOLD_STATUS_FORKED = 33,
    /** The system's pages are not 4 KiB. `found`: their size. */
    FREEHOLD_STATUS_PAGE_SIZE = 34,
    /** Frames of another arena, or of none. `pfn`: the first such frame. */
    FREEHOLD_STATUS_OUTSIDE_ARENA = 35,
    /** Trouble of a kind that this version has no number for; the message says what. */
    FREEHOLD_STATUS_OTHER = 36,
    /** The arena has been destroyed. */
    FREEHOLD_STATUS_ENDED = 37,
    /** A signal handler has called while its thread was inside its first call on an arena. */
    FREEHOLD_STATUS_REENTERED = 38,
    /** The arena's limit on resident memory is reached. `found`: the limit in bytes. */
    FREEHOLD_STATUS_LIMIT = 39
} freehold_status;

/** The bands between a zone's watermarks. */
typedef enum freehold_pressure_level {
    /** Above high, or above low after never having been below it. */
    FREEHOLD_PRESSURE_LEVEL_NONE = 0,
    /** Below low and not above high since. */
    FREEHOLD_PRESSURE_LEVEL_LOW = 1,
    /** Below min: only requests with reserves are served from the zone. */
    FREEHOLD_PRESSURE_LEVEL_MIN = 2
} freehold_pressure_level;

#if defined(FREEHOLD_HOSTED)
/** What the frames of an arena are made of. */
typedef enum freehold_backing {
    /** Private anonymous memory. */
    FREEHOLD_BACKING_PRIVATE = 0,
    /** A memfd, so that a frame can be mapped a second time. */
    FREEHOLD_BACKING_MEMFD = 1,
    /** Private anonymous memory that the kernel may back with huge pages. */
    FREEHOLD_BACKING_HUGE_PAGES = 2
} freehold_backing;

/** What a forked child finds at the arena's addresses. */
typedef enum freehold_fork_rule {
    /** Its own copy (private memory only). */
    FREEHOLD_FORK_RULE_COPY = 0,
    /** Nothing: touching a frame is a segmentation fault. */
    FREEHOLD_FORK_RULE_UNMAPPED = 1
} freehold_fork_rule;
#endif

/** What a pageblock is meant for. Requests name one of the first three; the others are states of
 * a pageblock. */
typedef enum freehold_migratetype {
    /** Stays where it is until freed: kernel objects, page tables. */
    FREEHOLD_MIGRATETYPE_UNMOVABLE = 0,
    /** Can be migrated elsewhere: user memory, page cache. */
    FREEHOLD_MIGRATETYPE_MOVABLE = 1,
    /** Cannot be moved but can be dropped under pressure: inode and dentry caches. */
    FREEHOLD_MIGRATETYPE_RECLAIMABLE = 2,
    /** Kept back for high-order requests that may not wait. */
    FREEHOLD_MIGRATETYPE_HIGH_ATOMIC = 3,
    /** Lent to movable requests until a device claims it. */
    FREEHOLD_MIGRATETYPE_CMA = 4,
    /** Being emptied: nothing may be allocated from it. */
    FREEHOLD_MIGRATETYPE_ISOLATE = 5
} freehold_migratetype;

#if defined(FREEHOLD_HOSTED)
/** What to do where there is more than one memory node. */
typedef enum freehold_numa_rule {
    /** A zone for each node, whose pages come from that node while it has memory. */
    FREEHOLD_NUMA_RULE_PREFER = 0,
    /** A zone for each node, whose pages come from that node or not at all. */
    FREEHOLD_NUMA_RULE_BIND = 1,
    /** A zone for each node, without telling the kernel. */
    FREEHOLD_NUMA_RULE_ZONES_ONLY = 2,
    /** One zone, whatever the machine looks like. */
    FREEHOLD_NUMA_RULE_IGNORE = 3
} freehold_numa_rule;
#endif

/** Below how many free frames a zone serves whom. */
typedef enum freehold_watermark_rule {
    /** The Linux formulae over all zones. */
    FREEHOLD_WATERMARK_RULE_KERNEL = 0,
    /** The numbers of frames given. */
    FREEHOLD_WATERMARK_RULE_FRAMES = 1,
    /** Nothing is held back. */
    FREEHOLD_WATERMARK_RULE_NONE = 2
} freehold_watermark_rule;

/** A page-frame allocator over the caller's metadata memory. Opaque. */
typedef struct freehold_allocator freehold_allocator;

#if defined(FREEHOLD_HOSTED)
/** An arena of real page frames in this process. Opaque.
 *
 * Its calls may be made from any thread, but not from signal handlers. In a child of fork(2)
 * every call is refused with `FREEHOLD_STATUS_FORKED`: the frames belong to the parent. */
typedef struct freehold_arena freehold_arena;
#endif

/** A CPU, as its owner, or anybody, calls the allocator on it. Opaque.
 *
 * Made by `freehold_own`, `freehold_on` and `freehold_here`; ends with its allocator. An owned
 * one belongs to one thread at a time; the others are for any thread, at any time but inside a
 * callback. */
typedef struct freehold_cpu freehold_cpu;

/** Neighbouring frames: `start` included, `end` not. */
typedef struct freehold_frame_range {
    /** The first frame. */
    uint64_t start;
    /** The frame after the last. */
    uint64_t end;
} freehold_frame_range;

/** A zone: memory of one node with its own watermarks. All zero but for its memory is a
 * zone of node 0 with the Linux watermarks and no room for more memory. */
typedef struct freehold_zone {
    /** Where its memory may lie, now and later. Both ends pageblock-aligned (512 frames); zones
     * must not overlap. Both zero: just what its memory needs. */
    struct freehold_frame_range span;
    /** The memory there is at first: pieces within the span, apart, of any alignment. */
    const struct freehold_frame_range *memory;
    /** How many pieces. */
    size_t memory_count;
    /** Which of it is CMA: pageblock-aligned pieces. */
    const struct freehold_frame_range *cma;
    /** How many pieces. */
    size_t cma_count;
    /** The watermarks in frames, for `FREEHOLD_WATERMARK_RULE_FRAMES`: ordinary requests may not
     * take the zone's own free frames below this. */
    uint64_t min;
    /** CPUs may not take whole blocks below this; the first pressure level. */
    uint64_t low;
    /** Pressure is over above this. */
    uint64_t high;
    /** A `freehold_watermark_rule`. */
    uint32_t watermarks;
    /** How many sections of 128 MiB that `memory` does not touch may get memory at run time. */
    uint32_t spare_sections;
    /** The node. */
    uint8_t node;
} freehold_zone;

/** The machine to manage. Read by `freehold_metadata_size` and `freehold_new` only; nothing of
 * it is kept. */
typedef struct freehold_config {
    /** The zones, 1 to 64. On each node, those with higher frame numbers are used first. */
    const struct freehold_zone *zones;
    /** How many zones. */
    size_t zone_count;
    /** The node of each CPU; those behind the end of the array are on node 0. */
    const uint8_t *cpu_nodes;
    /** How many entries that has. */
    size_t cpu_node_count;
    /** How many CPUs there can be, 1 to 32,766, numbered from 0. */
    uint16_t cpus;
    /** How many of them, from CPU 0 on, are online at once. */
    uint16_t online;
    /** How many pieces of memory may be added at run time, over all zones. */
    uint16_t extra_ranges;
} freehold_config;

/** The details of a failure. A function that takes a pointer to one writes all of it when it
 * fails, and does not touch it when it succeeds; the pointer may be null. */
typedef struct freehold_error {
    /** What was returned. */
    enum freehold_status status;
    /** The kernel's error number, as in errno(3), where the kernel refused something; 0
     * otherwise. */
    int32_t os_errno;
    /** The frame concerned; `FREEHOLD_NO_PFN` where there is none. */
    uint64_t pfn;
    /** The offending value: an order, a CPU, a number of bytes; see the status. 0 where there is
     * none. */
    uint64_t found;
    /** What it should have been, or may be at most; see the status. 0 where there is none. */
    uint64_t expected;
    /** Bulk frees: how many frames, from the start of the array, have been freed nevertheless. */
    uint64_t done;
    /** All of it in English, with a terminating zero; cut off where it is too long. */
    char message[FREEHOLD_MESSAGE_SIZE];
} freehold_error;

/** How much memory a zone is short of. */
typedef struct freehold_pressure {
    /** The zone, as an index into the configuration. */
    uint32_t zone;
    /** How bad it is. */
    enum freehold_pressure_level level;
    /** Free frames in the zone's own hand when the level was read. */
    uint64_t free;
    /** The watermarks, in frames: min, low, high. */
    uint64_t watermarks[3];
} freehold_pressure;

/** What the host brings. Copied by `freehold_new`. Any function may be null, which means what it
 * says beside it.
 *
 * Every function may be called on any CPU, by several at once, and gets `user` as it is. None
 * may throw a C++ exception or longjmp out, and none but `pressure` may call the allocator. */
typedef struct freehold_platform {
    /** Handed to every function. */
    void *user;
    /** Which CPU the caller runs on, for `freehold_here`. The answer may be stale by the time
     * it is used; a CPU's state is locked either way. Null: CPU 0, always. */
    uint16_t (*current_cpu)(void *user);
    /** Makes every CPU that may run a CPU's owner pass a full memory barrier before it returns:
     * membarrier(2) with MEMBARRIER_CMD_PRIVATE_EXPEDITED, an inter-processor interrupt. Only
     * called when somebody reaches into a CPU that another party owns. Null: there is none, and
     * owned CPUs are entered with an ordinary lock. */
    void (*heavy_barrier)(void *user);
    /** Called in every turn of a wait for a lock. Null: the processor's pause instruction. */
    void (*relax)(void *user);
    /** A zone's pressure level has changed. Called without any lock held. */
    void (*pressure)(void *user, const struct freehold_pressure *pressure);
    /** A frame was freed twice in a way that the second call could not see; it is free once.
     * May be called with locks held: record it. Null: only counted. */
    void (*late_double_free)(void *user, uint64_t pfn);
} freehold_platform;

/** A request for `2^order` neighbouring, naturally aligned frames. All zero is one unmovable
 * frame, anywhere. */
typedef struct freehold_request {
    /** How much: `2^order` frames. 0 to 18 (1 GiB). */
    uint8_t order;
    /** A `freehold_migratetype`: unmovable, movable or reclaimable. */
    uint8_t migratetype;
    /** `FREEHOLD_ALLOC_*`, ored together. */
    uint16_t flags;
    /** The chunk has to start at a multiple of `2^align` frames, where that is more than its own
     * order asks for. At most 18. */
    uint8_t align;
    /** Not zero: look on `node` first. Zero: on the CPU's own. */
    uint8_t use_node;
    /** The node to look on first; others follow. */
    uint8_t node;
    /** Every frame has to lie below this one; 0 for no limit. */
    uint64_t below;
    /** No frame may lie below this one; 0 for no limit. */
    uint64_t from;
} freehold_request;

#if defined(FREEHOLD_HOSTED)
/** Neighbouring frames of an arena. A plain value: the frames are the one copy's that is
 * in use. */
typedef struct freehold_frames {
    /** The first byte; null where there are no frames. */
    void *memory;
    /** The first frame. */
    uint64_t pfn;
    /** How many frames, of 4096 bytes each. */
    uint64_t count;
    /** Their arena; null where there are no frames. */
    const struct freehold_arena *arena;
} freehold_frames;

/** What giving memory back to the OS did. */
typedef struct freehold_released {
    /** Blocks of 2 MiB given back. */
    uint64_t blocks;
    /** Bytes given back. */
    uint64_t bytes;
    /** System calls that took. */
    uint64_t calls;
    /** Blocks found free for the first time: they go in the next pass, unless they are used. */
    uint64_t seen;
    /** The pass ended early because an allocation failed meanwhile, or did not begin: another one
     * runs, and this thread is in a mover, which waits for none. */
    bool cut_short;
    /** Frames given back out of blocks in use. */
    uint64_t frames;
} freehold_released;

/** Copies the chunk at `from` to `to`, has whoever uses it use `to` from then on, and returns true.
 * False says that it did not: the chunk is nobody's that it knows, or busy. It may call any arena,
 * but not free the chunk at `from`, nor wait for another thread that allocates in this one. Its
 * calls wait for no pass nor move of any arena: an allocation that would is refused, what would
 * give back or move is cut short. Must not throw or longjmp. */
typedef bool (*freehold_mover)(void *user, void *from, void *to);

/** What emptying blocks came to. */
typedef struct freehold_evacuated {
    /** Blocks that are wholly free now. */
    uint64_t blocks;
    /** Frames moved. */
    uint64_t frames;
    /** Blocks of which something could not move. */
    uint64_t refused;
    /** An allocation failed meanwhile and waited for the call, which ended early; or the call came
     * from a mover. */
    bool cut_short;
} freehold_evacuated;

/** An allocation of so many neighbouring frames is about to fail, for the `attempts`th time. Says
 * whether it has freed something, so that it is to be tried again. Must not throw or longjmp. */
typedef bool (*freehold_on_exhausted)(void *user, uint64_t frames, uint32_t attempts);

/** An arena is at its limit of resident memory: bytes that the OS may back, and the limit. Must
 * not throw or longjmp. */
typedef void (*freehold_on_pressure)(void *user, uint64_t resident, uint64_t limit);

/** The knobs of an arena to be made. Zero is the default of each but the first two. */
typedef struct freehold_arena_options {
    /** `sizeof` this structure, as the program knows it. */
    uint32_t size;
    /** What the frames are made of: a `freehold_backing`. Default: private memory. */
    uint32_t backing;
    /** At least so many bytes, in whole blocks of 2 MiB; only what is used counts. */
    uint64_t bytes;
    /** What a forked child finds: a `freehold_fork_rule`. Default: its own copy. Memfd arenas
     * are always unmapped there. */
    uint32_t on_fork;
    /** A `freehold_numa_rule`. Default: memory of the thread's own node first. */
    uint32_t numa;
    /** How many threads can have a CPU for themselves at once, at most 30,000; later ones share
     * others. Default: four for each of the machine's CPUs, but no more than one for each 16
     * blocks. */
    uint16_t slots;
    /** Not zero: the kernel backs the whole arena while it is made. */
    uint8_t populate;
    /** Not zero: nothing is ever given back: for memory that a device knows the pages of. */
    uint8_t pinned;
    /** The least run of free frames, a power of two from 1 to 512, that is given back out of a
     * block in use. Default: 4. */
    uint64_t least_run;
    /** The most bytes that the OS may back, in blocks of 2 MiB. At the limit free memory is given
     * back first; calls that need more are refused with `FREEHOLD_STATUS_LIMIT`. Default: none. */
    uint64_t resident_limit;
    /** Handed to the two callbacks. */
    void *user;
    /** Called before an allocation fails for want of frames, on the thread that allocates, with
     * no lock held, as the next one is: they may free, allocate and trim. Default: nobody. */
    freehold_on_exhausted on_exhausted;
    /** Called at the limit on resident memory, before free memory is given back. */
    freehold_on_pressure on_pressure;
} freehold_arena_options;

/** A snapshot of an arena: each number is exact, but they may be of slightly different moments
 * while others work. */
typedef struct freehold_arena_stats {
    /** Frames there are. */
    uint64_t frames;
    /** Blocks of 2 MiB there are. */
    uint64_t blocks;
    /** Blocks of which frames were handed out since they last came from the OS: at most these
     * are backed by memory. */
    uint64_t blocks_resident;
    /** Blocks given back to the OS so far, each time counted. */
    uint64_t blocks_released;
    /** Bytes given back to the OS so far. */
    uint64_t bytes_released;
    /** Runs of blocks that the kernel refused to take back (locked memory). */
    uint64_t release_refused;
    /** Bytes of metadata. */
    uint64_t metadata_bytes;
    /** Double frees that only showed after the second call had returned: a defect of the
     * program. */
    uint64_t late_double_frees;
    /** Frames in use. Exact while nothing runs. */
    uint64_t frames_used;
    /** Frames that are free, wherever they are held. */
    uint64_t frames_free;
    /** Frames given back out of blocks in use so far, each time counted. */
    uint64_t frames_released;
} freehold_arena_stats;
#endif

/** Moves the contents of the frames from `start` to `end` (not included) elsewhere and frees the
 * frames; says whether trying was of use. Called without any lock held, so it may call the
 * allocator. Must not throw or longjmp. */
typedef bool (*freehold_migrate)(void *user, uint64_t start, uint64_t end);

/** Frames of one pageblock, a bit for each: bit 0 of the first word is the block's first frame. */
typedef struct freehold_block_frames {
    /** The bits, by rising address. */
    uint64_t words[8];
} freehold_block_frames;

/** The state of one pageblock. */
typedef struct freehold_pageblock {
    /** Its free frames, wherever they are. */
    struct freehold_block_frames free_frames;
    /** How many these are. */
    uint32_t free;
    /** Frames that exist, at most 512. */
    uint32_t frames;
    /** The first CPU that leases words of it; -1 where there is none. */
    int32_t holder;
    /** Its migratetype; `FREEHOLD_MIGRATETYPE_ISOLATE` while it is isolated. */
    uint32_t migratetype;
} freehold_pageblock;

/** Whether a pageblock is one to be emptied, by its first frame. Called without any lock held. Must
 * not throw or longjmp. */
typedef bool (*freehold_wanted)(void *user, uint64_t start);

/** Sees a pageblock that could be emptied, by its first frame, and how many of its frames are in
 * use; says whether to go on. Called without any lock held. Must not throw or longjmp. */
typedef bool (*freehold_visit)(void *user, uint64_t start, uint32_t used);

/** What a zone keeps for requests that may not wait. */
typedef struct freehold_reserve {
    /** HIGHATOMIC pageblocks. */
    uint64_t blocks;
    /** Their free frames. */
    uint64_t free;
} freehold_reserve;

/** The state and the history of one zone. */
typedef struct freehold_zone_stats {
    /** Frames there are. */
    uint64_t managed;
    /** Frames free, wherever they are held. */
    uint64_t free;
    /** Of these, in nobody's hand. */
    uint64_t free_in_zone;
    /** Of these, in CPUs' hands. */
    uint64_t free_in_cpus;
    /** Free frames in CMA blocks. */
    uint64_t free_cma;
    /** Free frames in HIGHATOMIC blocks. */
    uint64_t free_high_atomic;
    /** Watermarks now, in frames: min, low, high. */
    uint64_t watermarks[3];
    /** Whole blocks that nobody has; of CMA and HIGHATOMIC blocks none counts. */
    uint64_t whole_blocks;
    /** Whole blocks that CPUs keep. */
    uint64_t blocks_in_cpus;
    /** Allocations that fell back to another migratetype. */
    uint64_t fallbacks;
    /** Of these, allocations placed inside a block that kept its other type. */
    uint64_t mixed;
} freehold_zone_stats;

/** What a walk over one zone's blocks finds. */
typedef struct freehold_zone_blocks {
    /** Blocks by migratetype. */
    uint64_t blocks_by_type[FREEHOLD_MIGRATETYPES];
    /** Blocks of which no frame is in use, wherever they are held. */
    uint64_t free_blocks;
    /** Blocks by largest free order: index 0 = nothing free, k = order k - 1. */
    uint64_t blocks_by_largest_order[11];
    /** The fewest naturally aligned chunks that the free frames form, by order. */
    uint64_t free_chunks[FREEHOLD_ORDERS];
} freehold_zone_blocks;

/** What all CPUs have done since the allocator was made. */
typedef struct freehold_cpu_stats {
    /** Allocations by requested migratetype (unmovable, movable, reclaimable), then by order;
     * each frame of a bulk allocation counts as one of order 0. */
    uint64_t allocs[3][FREEHOLD_ORDERS];
    /** Frees (calls, or frames of bulk calls) into words that this CPU leases. */
    uint64_t local_frees;
    /** Other frees. */
    uint64_t remote_frees;
    /** Allocations that failed. */
    uint64_t failed;
    /** Allocations that needed more than what the CPU held. */
    uint64_t slow;
    /** Times it went to a zone for more. */
    uint64_t refills;
    /** Refills that gave something: from a partly free block, a whole one, one of another type. */
    uint64_t refills_by_phase[3];
    /** Free frames that zones handed over. */
    uint64_t refilled_frames;
    /** Times it asked all other CPUs for what they had in hand. */
    uint64_t recalls;
    /** Writes to memory that all CPUs of a zone write. */
    uint64_t shared_writes;
} freehold_cpu_stats;

/** Sums over all CPUs and zones. */
typedef struct freehold_totals {
    /** Sums over all CPUs. */
    struct freehold_cpu_stats cpus;
    /** Frees made while the CPU's own state was in use by somebody else; no CPU counts them. */
    uint64_t unattributed_frees;
    /** Double frees that no call could see. */
    uint64_t late_double_frees;
    /** Writes to memory that all CPUs of a zone write, over all CPUs. */
    uint64_t shared_writes;
} freehold_totals;

#ifdef __cplusplus
extern "C" {
#endif  /* __cplusplus */

/* ---- The bare allocator: making it, looking at it ---- */

/** Fills in a configuration of these zones with `cpus` CPUs, all online, on node 0. Everything else
 * is zero. */
void freehold_config_init(struct freehold_config *config, uint16_t cpus,
    const struct freehold_zone *zones, size_t zone_count);

/** How many bytes of metadata `freehold_new` needs, whatever the alignment of the region: 100 for
 * each 2 MiB of memory (0.0048 %), in whole sections of 128 MiB, and a few KiB for each CPU. */
enum freehold_status freehold_metadata_size(const struct freehold_config *config, size_t *size,
    struct freehold_error *error);

/** Makes an allocator inside `metadata`, with all memory of the configuration free. Takes time
 * proportional to that memory: one bit is written for each 2 MiB, and what CPUs need; a
 * pageblock's own metadata only when its section of 128 MiB is first used. The memory managed is
 * never touched.
 *
 * Requires: `metadata` points to `metadata_size` bytes that are the allocator's alone until
 * `freehold_destroy`. Other threads get the pointer by a release and an acquire. */
enum freehold_status freehold_new(const struct freehold_config *config, void *metadata,
    size_t metadata_size, const struct freehold_platform *platform,
    struct freehold_allocator **allocator, struct freehold_error *error);

/** Ends an allocator: its metadata region is the caller's again. Fails while a CPU is owned. A null
 * pointer is fine and does nothing.
 *
 * Thread safety: nobody may be using the allocator, or use it later. */
enum freehold_status freehold_destroy(struct freehold_allocator *allocator,
    struct freehold_error *error);

/** The zone that a frame belongs to, as an index into the configuration; -1 where there is no
 * memory. Constant time, but for blocks with holes. */
int32_t freehold_zone_of(const struct freehold_allocator *allocator, uint64_t pfn);

/** Whether a zone may have a free chunk of that order which no CPU has in hand: for a kernel's
 * watermark check of a high order. Of `flags` `FREEHOLD_ALLOC_CMA` says whether frames of CMA
 * blocks will do, `FREEHOLD_ALLOC_HIGH_ATOMIC` and `FREEHOLD_ALLOC_OOM` whether those of
 * HIGHATOMIC blocks will. False where there is no such zone, order or flag.
 *
 * Looks at the board, at CMA and HIGHATOMIC blocks where only those are left, and above order 9 at
 * the bitmap of whole blocks. "No" is exact while nothing runs and no CPU has frames in hand;
 * "yes" may be out of date until a request has failed. */
bool freehold_may_have_free(const struct freehold_allocator *allocator, size_t zone, uint8_t order,
    uint16_t flags);

/** Gives all that CPUs hold free back to the zones. Waits for each CPU's lock in turn. */
enum freehold_status freehold_drain_all(const struct freehold_allocator *allocator,
    struct freehold_error *error);

/** Checks every invariant; fails with the first violation. Takes time proportional to the memory
 * managed, while everybody else waits. Only to be relied on while nobody frees. */
enum freehold_status freehold_validate(const struct freehold_allocator *allocator,
    struct freehold_error *error);

/* ---- The bare allocator: many frames, ranges, periodic work ---- */

/** Allocates single frames until `count` are there or memory is not; writes them to `pfns` and how
 * many there are to `allocated`. Fails only where there is not one. The request is of order 0. */
enum freehold_status freehold_alloc_bulk(const struct freehold_cpu *cpu,
    const struct freehold_request *request, uint64_t *pfns, size_t count, size_t *allocated,
    struct freehold_error *error);

/** Frees the frames from `start` to `end` (not included), whatever the allocations were. Never
 * waits for a lock. */
enum freehold_status freehold_free_range(const struct freehold_cpu *cpu, uint64_t start,
    uint64_t end, struct freehold_error *error);

/** Frees single frames, in any order. Never waits for a lock. Where a frame cannot be freed the
 * call ends: `error->done` frames before it have been freed, those behind it have not. */
enum freehold_status freehold_free_bulk(const struct freehold_cpu *cpu, const uint64_t *pfns,
    size_t count, struct freehold_error *error);

/** The periodic work of a CPU, about once a second: leases that were not used end, and a CPU
 * that allocated nothing since the last tick gives back everything. */
enum freehold_status freehold_tick(const struct freehold_cpu *cpu, struct freehold_error *error);

/** Ends a CPU's leases: for a CPU about to go idle. What it has freed is visible to others
 * without this. */
enum freehold_status freehold_flush(const struct freehold_cpu *cpu, struct freehold_error *error);

/* ---- The bare allocator: one chunk ---- */

/** Allocates what the request says; writes the first frame to `pfn`. Constant time from what the
 * CPU has in hand; otherwise a bounded amount of work to get more. Before it fails every CPU is
 * asked, unless the request may not wait. */
enum freehold_status freehold_alloc(const struct freehold_cpu *cpu,
    const struct freehold_request *request, uint64_t *pfn, struct freehold_error *error);

/** Frees `2^order` frames: any aligned part of what was allocated, on whatever CPU. Never waits for
 * a lock. Frames that are free already are refused; of two frees at the same moment, one of them
 * by the CPU that leases the frame's word, neither may see the other: the frame is free once, and
 * the platform's `late_double_free` is told. */
enum freehold_status freehold_free(const struct freehold_cpu *cpu, uint64_t pfn, uint8_t order,
    struct freehold_error *error);

/* ---- The bare allocator: CPUs ---- */

/** Takes a CPU for the caller, until `freehold_release`: its calls need no atomic read-modify-write
 * then, where the platform has a heavy barrier. */
enum freehold_status freehold_own(const struct freehold_allocator *allocator, uint16_t cpu,
    const struct freehold_cpu **handle, struct freehold_error *error);

/** Gives an owned CPU back, with all that it holds, by the thread that uses the handle; the handle
 * is dead then. Using it again is refused with `FREEHOLD_STATUS_CPU_NOT_OWNED`, unless somebody
 * else owns the CPU by then, whose handle it is. */
enum freehold_status freehold_release(const struct freehold_cpu *cpu, struct freehold_error *error);

/** That CPU, from anywhere; null where there is no such CPU. Whether it is online is checked by
 * each call. Nothing to give back. */
const struct freehold_cpu *freehold_on(const struct freehold_allocator *allocator, uint16_t cpu);

/** The current CPU: each call asks the platform's `current_cpu` which one that is. */
const struct freehold_cpu *freehold_here(const struct freehold_allocator *allocator);

/** A CPU comes online; nothing where it is already. Calls of this kind, for CPUs and for
 * memory, wait for each other. */
enum freehold_status freehold_cpu_online(const struct freehold_allocator *allocator, uint16_t cpu,
    struct freehold_error *error);

/** A CPU that nobody owns goes offline: everything it holds goes to the zones. Frees of what it
 * allocated may go on meanwhile. */
enum freehold_status freehold_cpu_offline(const struct freehold_allocator *allocator, uint16_t cpu,
    struct freehold_error *error);

#if defined(FREEHOLD_HOSTED)
/* ---- The arena: making it, frames by number ---- */

/** An arena of at least that many bytes of private memory, with every knob at its default. To be
 * given to `freehold_arena_destroy`. In a process that has called mlockall(MCL_FUTURE) the kernel
 * backs and locks all of it at once. */
enum freehold_status freehold_arena_new(uint64_t bytes, struct freehold_arena **arena,
    struct freehold_error *error);

/** Ends an arena and sets the pointer to null; its memory goes back to the OS, frames that are
 * still allocated included. A null arena is fine and nothing is done. A later use of another
 * copy of the pointer is answered with `FREEHOLD_STATUS_ENDED`, until 64 more have ended.
 *
 * Thread safety: nobody may be using the arena or its frames, or use them later. */
enum freehold_status freehold_arena_destroy(struct freehold_arena **arena,
    struct freehold_error *error);

/** Frees the frames from `start` to `end` (not included), whatever the allocations were, from any
 * thread. Never waits for a lock. Frames that are free already are refused, as by `freehold_free`;
 * what neither of two frees could see is counted in `late_double_frees` of the statistics. */
enum freehold_status freehold_arena_free_range(const struct freehold_arena *arena, uint64_t start,
    uint64_t end, struct freehold_error *error);

/** Checks every invariant; fails with the first violation. Everybody else waits meanwhile. Only to
 * be relied on while nobody frees. */
enum freehold_status freehold_arena_validate(const struct freehold_arena *arena,
    struct freehold_error *error);

/* ---- The arena: frames as memory ---- */

/** So many neighbouring frames, any number, written to `out`. What is in them is whatever their
 * last user left. A power of two of frames is a chunk, aligned to its size. Any other number is
 * taken from wherever so many are free; where memory is scarce that is a search of the whole
 * arena. */
enum freehold_status freehold_arena_frames(const struct freehold_arena *arena, uint64_t count,
    struct freehold_frames *out, struct freehold_error *error);

/** So many neighbouring frames, all zero. Frames that come fresh from the OS are zero already
 * and are not touched. */
enum freehold_status freehold_arena_zeroed(const struct freehold_arena *arena, uint64_t count,
    struct freehold_frames *out, struct freehold_error *error);

/** Gives frames back to their arena, on whichever thread, and sets `frames` to no frames. No
 * frames are fine and nothing is done. */
enum freehold_status freehold_arena_free_frames(const struct freehold_arena *arena,
    struct freehold_frames *frames, struct freehold_error *error);

/** Cuts frames in two: `first` keeps the first `count`, `rest` gets the others. Nothing happens in
 * the arena: any part of an allocation may be freed on its own. */
enum freehold_status freehold_frames_split(struct freehold_frames *first, uint64_t count,
    struct freehold_frames *rest, struct freehold_error *error);

/** Where a frame is; null for frames of other arenas. Only the frame's owner reads and
 * writes there. */
void *freehold_arena_pointer(const struct freehold_arena *arena, uint64_t pfn);

/** Which frame a byte is in; `FREEHOLD_NO_PFN` outside the arena. */
uint64_t freehold_arena_pfn_of(const struct freehold_arena *arena, const void *pointer);

/** All frames there are. */
struct freehold_frame_range freehold_arena_range(const struct freehold_arena *arena);

/** The memfd behind the frames, for a second mapping, with frame `pfn` at (`pfn` -
 * `freehold_arena_range(arena).start`) * 4096; -1 for other kinds of memory, and once the program
 * has closed it. Its size is not to be changed. Frames used through it must be the caller's. */
int freehold_arena_memfd(const struct freehold_arena *arena);

/** Has the kernel back the frames from `start` to `end` (not included) now, so that it says here if
 * it cannot, instead of by a signal at the first touch. On failure those before may be backed. */
enum freehold_status freehold_arena_populate(const struct freehold_arena *arena, uint64_t start,
    uint64_t end, struct freehold_error *error);

/** How many of the frames from `start` to `end` (not included) the kernel has in memory at this
 * moment, written to `count`. Takes time proportional to the range. */
enum freehold_status freehold_arena_frames_in_memory(const struct freehold_arena *arena,
    uint64_t start, uint64_t end, uint64_t *count, struct freehold_error *error);

/** Gives free memory back to the OS, now: every wholly free block, and of blocks in use the aligned
 * runs of `least_run` free frames (4) or more. What it did is written to `released`, unless that is
 * null. Of what the kernel refuses it tells the first; all else was given back. */
enum freehold_status freehold_arena_trim(const struct freehold_arena *arena,
    struct freehold_released *released, struct freehold_error *error);

/** Empties blocks, those with least in use first, of a program that holds chunks of `order` and can
 * move each of them; moves at most `budget` frames, each chunk by a call of `mover`. Other threads
 * work on meanwhile. What is free then goes back by the next `freehold_arena_trim`. What it did is
 * written to `done`, unless that is null. Of an arena in guard mode nothing moves. */
enum freehold_status freehold_arena_evacuate(const struct freehold_arena *arena, uint8_t order,
    uint64_t budget, freehold_mover mover, void *user, struct freehold_evacuated *done,
    struct freehold_error *error);

/** Gives back the blocks that have been wholly free, and untouched, since the last call, and
 * free runs of those of which nothing was handed out since; does the periodic work of the
 * threads' CPUs. To be called each 10 s or so, from a thread of the program's. What it did is
 * written to `released`, unless that is null. */
enum freehold_status freehold_arena_pass(const struct freehold_arena *arena,
    struct freehold_released *released, struct freehold_error *error);

/** An arena with these knobs. Takes about a millisecond, whatever its size.
 *
 * Requires: the callbacks can be called with `user` on any thread until the arena is destroyed. */
enum freehold_status freehold_arena_new_with(const struct freehold_arena_options *options,
    struct freehold_arena **arena, struct freehold_error *error);

/** Counters, and what is resident. What threads keep is freed first, by a barrier on every CPU. */
enum freehold_status freehold_arena_read_stats(const struct freehold_arena *arena,
    struct freehold_arena_stats *stats, struct freehold_error *error);
#endif

/* ---- The bare allocator: ranges, pageblocks, reserves ---- */

/** Allocates exactly the frames from `start` to `end` (not included), having `migrate` move their
 * users away. Takes time proportional to the range, times the rounds of migration (5 at most). On
 * failure every block is as it was, but for what `migrate` has moved; one never used counts as
 * used. */
enum freehold_status freehold_alloc_contig_range(const struct freehold_allocator *allocator,
    uint64_t start, uint64_t end, freehold_migrate migrate, void *user,
    struct freehold_error *error);

/** Adds the frames from `start` to `end` (not included) to the zone whose span covers them, all of
 * them free. Watermarks that follow the Linux formulae are computed again. */
enum freehold_status freehold_add_memory(const struct freehold_allocator *allocator, uint64_t start,
    uint64_t end, struct freehold_error *error);

/** `freehold_add_memory` of whole pageblocks, all of them in use: they become free as somebody
 * frees them, in chunks of any order. */
enum freehold_status freehold_add_memory_in_use(const struct freehold_allocator *allocator,
    uint64_t start, uint64_t end, struct freehold_error *error);

/** Writes to `block` what the pageblock is that a frame lies in. Takes no lock; exact while nothing
 * runs. */
enum freehold_status freehold_read_pageblock(const struct freehold_allocator *allocator,
    uint64_t pfn, struct freehold_pageblock *block, struct freehold_error *error);

/** Takes those frames from `start` to `end` (not included), all of one pageblock, that are free, as
 * if each had been allocated by itself; writes which these were to `taken`. Waits for nobody.
 *
 * Left are frames that a CPU has in hand, and a block that is free as a whole; of an isolated
 * block nothing is left. */
enum freehold_status freehold_take_free(const struct freehold_allocator *allocator, uint64_t start,
    uint64_t end, struct freehold_block_frames *taken, struct freehold_error *error);

/** Isolates every pageblock that the frames from `start` to `end` (not included) touch, or none,
 * where one is isolated already: nothing is allocated from them until `freehold_restore`. What is
 * freed into them stays there. Takes one heavy barrier where CPUs have owners, and one more where
 * CPUs keep whole blocks of it. */
enum freehold_status freehold_isolate(const struct freehold_allocator *allocator, uint64_t start,
    uint64_t end, struct freehold_error *error);

/** Ends the isolation of every pageblock that the frames from `start` to `end` (not included)
 * touch, by the party that has isolated them. Waits for nobody. */
enum freehold_status freehold_restore(const struct freehold_allocator *allocator, uint64_t start,
    uint64_t end, struct freehold_error *error);

/** Calls `visit` with the movable pageblocks of a zone that have free and used frames, the one with
 * least in use first; not with isolated ones, nor those with holes, nor where `wanted` is false;
 * null wants all. At most `looks` are looked at: returns how many are left of these, where 0 may
 * mean that there are others. Takes no lock. */
uint32_t freehold_emptiest(const struct freehold_allocator *allocator, size_t zone, uint32_t looks,
    freehold_wanted wanted, freehold_visit visit, void *user);

/** Begins to empty the pageblocks that `count` frames lie in, those which are movable ones with free
 * and used frames: `freehold_isolate` of each, with one heavy barrier for every eight. `pfns` has
 * their first frames first then, of which it returns how many, and the others behind them.
 * `freehold_restore` ends it: a block is whole then, or in use as before. Of null it is 0. */
size_t freehold_evacuate(const struct freehold_allocator *allocator, uint64_t *pfns, size_t count);

/** A HIGHATOMIC pageblock of a zone that has free frames becomes an ordinary one of that
 * `freehold_migratetype`. False where there is none, no such zone or type. Takes no lock. */
bool freehold_give_up_reserve(const struct freehold_allocator *allocator, size_t zone,
    uint8_t migratetype);

/** Writes to `reserve` what a zone keeps: for a watermark that its free frames do not count for.
 * Takes no lock. Exact while nothing runs; looks at a line of each CPU where anything is kept. */
enum freehold_status freehold_read_reserve(const struct freehold_allocator *allocator, size_t zone,
    struct freehold_reserve *reserve, struct freehold_error *error);

/* ---- The bare allocator: statistics. Errors and versions ---- */

/** The state and history of a zone. Takes no lock, and time that grows with the number of CPUs, not
 * with the memory. Exact while nothing runs. */
enum freehold_status freehold_read_zone_stats(const struct freehold_allocator *allocator,
    size_t zone, struct freehold_zone_stats *stats, struct freehold_error *error);

/** What each block of a zone is, summed up. Takes no lock; walks all of its blocks. Exact while
 * nothing runs. */
enum freehold_status freehold_read_zone_blocks(const struct freehold_allocator *allocator,
    size_t zone, struct freehold_zone_blocks *blocks, struct freehold_error *error);

/** About how many free chunks of each order a zone has that no CPU has in hand: `chunks` has room
 * for `FREEHOLD_ORDERS` numbers. Whole blocks are counted exactly; a partly free block counts as
 * its largest run, as far as is known, and all else as single frames, so that all of them are what
 * is free. Takes no lock; looks at 240 bytes for each 128 MiB, and at CMA blocks. */
enum freehold_status freehold_read_listed_chunks(const struct freehold_allocator *allocator,
    size_t zone, uint64_t *chunks, struct freehold_error *error);

/** The fewest naturally aligned chunks that the free frames of a zone's blocks of one
 * `freehold_migratetype` form, by order: `chunks` has room for `FREEHOLD_ORDERS` numbers. Takes no
 * lock; walks all blocks of the zone. Exact while nothing runs. */
enum freehold_status freehold_read_free_chunks(const struct freehold_allocator *allocator,
    size_t zone, uint8_t migratetype, uint64_t *chunks, struct freehold_error *error);

/** Sums over all CPUs and zones. Takes no lock; does not walk. */
enum freehold_status freehold_read_totals(const struct freehold_allocator *allocator,
    struct freehold_totals *totals, struct freehold_error *error);

/** What a status means, in a few English words; `"unknown status"` for numbers that are none.
 * Never null; not to be freed. */
const char *freehold_strerror(int status);

/** The version of the library that is linked: `(major << 16) | (minor << 8) | patch`. */
uint32_t freehold_version_number(void);

/** The version of the library that is linked, as text: `"0.1.0"`. Never null; not to be freed. */
const char *freehold_version(void);

#if !defined(FREEHOLD_HOSTED)
/** To be brought by a program that links the library without std: told why, with `len` bytes
 * of text and a zero behind them, when the allocator has found a defect in itself. Must not
 * return. */
extern void freehold_panic(const char *message, size_t len);
#endif

#ifdef __cplusplus
}  /* extern "C" */
#endif  /* __cplusplus */

#endif  /* FREEHOLD_H */

#ifdef FREEHOLD_POP_DIAGNOSTICS
#pragma clang diagnostic pop
#undef FREEHOLD_POP_DIAGNOSTICS
#endif
