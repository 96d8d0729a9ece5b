/* The hosted arena: every function, from several threads, and in a forked child. */
#define _GNU_SOURCE
#include <errno.h>
#include <freehold.h>
#include <malloc.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static freehold_error error;

static freehold_arena_stats stats_of(const freehold_arena *arena)
{
    freehold_arena_stats stats;
    OK(freehold_arena_read_stats(arena, &stats, &error));
    return stats;
}

/* One of these fields is out of its range, and the message says which. */
static void refused(freehold_arena_options options, const char *named)
{
    freehold_arena *arena = NULL;
    FAILS(freehold_arena_new_with(&options, &arena, &error), FREEHOLD_STATUS_INVALID_ARGUMENT);
    CHECK(strstr(error.message, named) && arena == NULL);
}

static void knobs(void)
{
    freehold_arena *arena = NULL;
    freehold_arena_options options = {.size = sizeof options, .bytes = 8 << 20}, wrong;

    wrong = options, wrong.backing = 3, refused(wrong, "freehold_backing");
    CHECK(error.found == 3);
    wrong = options, wrong.on_fork = 2, refused(wrong, "freehold_fork_rule");
    wrong = options, wrong.numa = 4, refused(wrong, "freehold_numa_rule");
    wrong = options, wrong.least_run = 3, refused(wrong, "run");
    wrong = options, wrong.slots = 30001, refused(wrong, "slots");
    wrong = options, wrong.bytes = 0, refused(wrong, "");
    wrong = options, wrong.size = 0, refused(wrong, "size");
    wrong = options, wrong.size += 8, refused(wrong, "size");
    CHECK(error.found == sizeof options + 8);
    FAILS(freehold_arena_new_with(&options, NULL, &error), FREEHOLD_STATUS_NULL_POINTER);
    FAILS(freehold_arena_new_with(NULL, &arena, &error), FREEHOLD_STATUS_NULL_POINTER);

    options.backing = FREEHOLD_BACKING_MEMFD;
    options.on_fork = FREEHOLD_FORK_RULE_UNMAPPED;
    options.numa = FREEHOLD_NUMA_RULE_IGNORE;
    options.slots = 2;
    options.populate = 1;
    options.least_run = 16;
    OK(freehold_arena_new_with(&options, &arena, &error));

    const freehold_arena_stats all = stats_of(arena);
    CHECK(all.frames == 2048 && all.blocks == 4 && all.blocks_resident == 4);

    /* A frame, seen through a second mapping of the file. */
    freehold_frames frames;
    OK(freehold_arena_frames(arena, 1, &frames, &error));
    const int64_t offset = (int64_t)(frames.pfn - freehold_arena_range(arena).start) * 4096;
    const int file = freehold_arena_memfd(arena);
    char *twin = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, offset);
    CHECK(twin != MAP_FAILED);
    strcpy(frames.memory, "one page, two addresses");
    CHECK(strcmp(twin, "one page, two addresses") == 0);
    munmap(twin, 4096);
    OK(freehold_arena_free_frames(arena, &frames, &error));
    freehold_arena_destroy(&arena, NULL);
    CHECK(freehold_arena_destroy(NULL, NULL) == FREEHOLD_STATUS_NULL_POINTER);

    /* As a program knows the structure that was compiled with an older header: there is something
     * else behind it. */
    memset(&options, 0xff, sizeof options);
    memset(&options, 0, offsetof(freehold_arena_options, user));
    options.size = offsetof(freehold_arena_options, user);
    options.bytes = 2 << 20;
    OK(freehold_arena_new_with(&options, &arena, &error));
    FAILS(freehold_arena_frames(arena, 1024, &frames, &error), FREEHOLD_STATUS_NO_MEMORY);
    OK(freehold_arena_destroy(&arena, &error));

    FAILS(freehold_arena_new(0, &arena, &error), FREEHOLD_STATUS_INVALID_ARGUMENT);
    FAILS(freehold_arena_new(4096, NULL, &error), FREEHOLD_STATUS_NULL_POINTER);
    /* More address space than there is: the kernel's own reason comes through. */
    FAILS(freehold_arena_new(UINT64_C(1) << 47, &arena, &error), FREEHOLD_STATUS_INVALID_ARGUMENT);
}

/* Frames and handles that are not what they should be. */
static void mistaken(freehold_arena *arena)
{
    freehold_arena *second, *copy;
    freehold_frames mine, theirs, part;
    uint64_t not_an_arena[16]; /* More than a handle reads. */

    OK(freehold_arena_new(64 << 20, &second, &error));
    OK(freehold_arena_frames(arena, 2, &mine, &error));
    OK(freehold_arena_frames(second, 2, &theirs, &error));
    CHECK(mine.arena == arena && theirs.arena == second);
    FAILS(freehold_arena_free_frames(arena, &theirs, &error), FREEHOLD_STATUS_OUTSIDE_ARENA);
    CHECK(error.pfn == theirs.pfn && theirs.count == 2);
    FAILS(freehold_arena_free_range(arena, 0, 5, &error), FREEHOLD_STATUS_OUTSIDE_ARENA);
    FAILS(freehold_frames_split(&mine, 1, &mine, &error), FREEHOLD_STATUS_INVALID_ARGUMENT);
    OK(freehold_frames_split(&mine, 1, &part, &error));
    CHECK(part.arena == arena);
    OK(freehold_arena_free_frames(arena, &part, &error));
    OK(freehold_arena_free_frames(arena, &mine, &error));
    OK(freehold_arena_free_frames(second, &theirs, &error));

    copy = second;
    OK(freehold_arena_destroy(&second, &error));
    CHECK(second == NULL);
    OK(freehold_arena_destroy(&second, &error));
    second = copy;
    FAILS(freehold_arena_destroy(&second, &error), FREEHOLD_STATUS_ENDED);
    FAILS(freehold_arena_frames(copy, 1, &mine, &error), FREEHOLD_STATUS_ENDED);
    CHECK(freehold_arena_pointer(copy, 1) == NULL);
    memset(not_an_arena, 0x5a, sizeof not_an_arena);
    copy = (freehold_arena *)(void *)not_an_arena;
    FAILS(freehold_arena_free_range(copy, 1, 2, &error), FREEHOLD_STATUS_INVALID_ARGUMENT);
    FAILS(freehold_arena_destroy(&copy, &error), FREEHOLD_STATUS_INVALID_ARGUMENT);
}

/* Of arenas that have ended the last 64 handles are kept, and nothing else. */
static void nothing_is_left(void)
{
#if defined __GLIBC_PREREQ
#if __GLIBC_PREREQ(2, 33)
    size_t before = 0;
    for (int i = 0; i < 1200; i++) {
        freehold_arena *arena;
        freehold_frames frames;
        if (i == 200) before = mallinfo2().uordblks;
        OK(freehold_arena_new(2 << 20, &arena, &error));
        OK(freehold_arena_frames(arena, 1, &frames, &error));
        OK(freehold_arena_destroy(&arena, &error));
    }
    CHECK(mallinfo2().uordblks < before + 8192);
#endif
#endif
}

static void handles(freehold_arena *arena)
{
    freehold_frames all, rest, other;
    const freehold_frame_range range = freehold_arena_range(arena);
    const uint64_t free_before = stats_of(arena).frames_free;

    OK(freehold_arena_zeroed(arena, 5, &all, &error));
    CHECK(all.count == 5 && all.memory == freehold_arena_pointer(arena, all.pfn));
    for (size_t i = 0; i < 5 * 4096; i++)
        CHECK(((unsigned char *)all.memory)[i] == 0);
    memset(all.memory, 0xaa, 5 * 4096);
    FAILS(freehold_frames_split(&all, 0, &rest, &error), FREEHOLD_STATUS_INVALID_ARGUMENT);
    FAILS(freehold_frames_split(&all, 5, &rest, &error), FREEHOLD_STATUS_INVALID_ARGUMENT);
    FAILS(freehold_frames_split(&all, 2, NULL, &error), FREEHOLD_STATUS_NULL_POINTER);
    OK(freehold_frames_split(&all, 2, &rest, &error));
    CHECK(all.count == 2 && rest.count == 3 && rest.pfn == all.pfn + 2);
    CHECK(rest.memory == (char *)all.memory + 8192);
    OK(freehold_arena_free_frames(arena, &all, &error));
    other = rest;
    OK(freehold_arena_free_frames(arena, &rest, &error));
    CHECK(rest.count == 0 && rest.memory == NULL);
    OK(freehold_arena_free_frames(arena, &rest, &error));
    FAILS(freehold_arena_free_frames(arena, &other, &error), FREEHOLD_STATUS_DOUBLE_FREE);
    CHECK(error.pfn == other.pfn && other.count == 3);
    CHECK(stats_of(arena).frames_free == free_before);

    /* What is free of a block in use is given back. */
    OK(freehold_arena_frames(arena, 512, &all, &error));
    memset(all.memory, 1, 512 * 4096);
    OK(freehold_frames_split(&all, 100, &rest, &error));
    OK(freehold_arena_free_frames(arena, &rest, &error));
    {
        freehold_released released;
        OK(freehold_arena_trim(arena, &released, &error));
        CHECK(released.frames >= 384 && released.bytes >= released.frames * 4096);
    }
    CHECK(((char *)all.memory)[100 * 4096 - 1] == 1);
    OK(freehold_arena_free_frames(arena, &all, &error));

    FAILS(freehold_arena_frames(arena, 0, &all, &error), FREEHOLD_STATUS_ZERO_LENGTH);
    FAILS(freehold_arena_frames(arena, 1 << 30, &all, &error), FREEHOLD_STATUS_NO_MEMORY);

    OK(freehold_arena_frames(arena, 512, &all, &error));
    CHECK(all.count == 512 && all.pfn % 512 == 0 && (size_t)all.memory % (2 << 20) == 0);
    OK(freehold_arena_populate(arena, all.pfn, all.pfn + all.count, &error));
    uint64_t in_memory = 0;
    OK(freehold_arena_frames_in_memory(arena, all.pfn, all.pfn + all.count, &in_memory, &error));
    CHECK(in_memory == 512);
    FAILS(freehold_arena_populate(arena, range.end, range.end + 1, &error),
          FREEHOLD_STATUS_OUTSIDE_ARENA);
    CHECK(error.pfn == range.end);
    OK(freehold_arena_free_frames(arena, &all, &error));
}

static void numbers(freehold_arena *arena)
{
    freehold_frames four;
    const freehold_frame_range range = freehold_arena_range(arena);

    OK(freehold_arena_frames(arena, 4, &four, &error));
    const uint64_t pfn = four.pfn;
    char *memory = freehold_arena_pointer(arena, pfn);
    CHECK(memory && freehold_arena_pfn_of(arena, memory + 4095) == pfn);
    CHECK(freehold_arena_pfn_of(arena, memory + 4096) == pfn + 1);
    CHECK(freehold_arena_pfn_of(arena, &pfn) == FREEHOLD_NO_PFN
          && freehold_arena_pointer(arena, range.end) == NULL);
    CHECK(range.start <= pfn && pfn < range.end);
    OK(freehold_arena_free_range(arena, pfn, pfn + 2, &error));
    OK(freehold_arena_free_range(arena, pfn + 2, pfn + 4, &error));
    FAILS(freehold_arena_free_range(arena, pfn, pfn + 4, &error), FREEHOLD_STATUS_DOUBLE_FREE);
    FAILS(freehold_arena_free_range(arena, range.end, range.end + 1, &error),
          FREEHOLD_STATUS_OUTSIDE_ARENA);
    FAILS(freehold_arena_read_stats(arena, NULL, &error), FREEHOLD_STATUS_NULL_POINTER);
    FAILS(freehold_arena_validate(NULL, &error), FREEHOLD_STATUS_NULL_POINTER);
    CHECK(freehold_arena_memfd(arena) == -1);
}

static void giving_back(freehold_arena *arena)
{
    freehold_released released;
    freehold_frames frames;
    OK(freehold_arena_frames(arena, 4 * 512, &frames, &error));
    memset(frames.memory, 1, 4 * 512 * 4096);
    OK(freehold_arena_free_frames(arena, &frames, &error));
    OK(freehold_arena_pass(arena, &released, &error));
    CHECK(released.blocks == 0 && released.seen >= 4);
    OK(freehold_arena_pass(arena, &released, &error));
    CHECK(released.blocks >= 4 && released.bytes == released.blocks << 21 && released.calls >= 1
          && !released.cut_short);
    OK(freehold_arena_trim(arena, NULL, &error));
    const freehold_arena_stats stats = stats_of(arena);
    CHECK(stats.blocks_resident == 0 && stats.blocks_released >= released.blocks);
}

enum { PAGES = 20 * 512 };
static freehold_frames pages[PAGES];

/* A page has its number in it. */
static bool move(void *user, void *from, void *to)
{
    const int number = *(const int *)from;
    CHECK(pages[number].memory == from);
    memcpy(to, from, 4096);
    pages[number].memory = to;
    pages[number].pfn = freehold_arena_pfn_of(pages[number].arena, to);
    ++*(uint64_t *)user;
    return true;
}

/* A cache that has shrunk to a page in 40: of its 20 blocks 15 or more become whole. */
static void emptied(freehold_arena *arena)
{
    freehold_evacuated done;
    uint64_t moved = 0, left = PAGES / 40;

    for (int i = 0; i < PAGES; i++) {
        OK(freehold_arena_frames(arena, 1, &pages[i], &error));
        *(int *)pages[i].memory = i;
    }
    for (int i = 0; i < PAGES; i++)
        if (i % 40 != 1)
            OK(freehold_arena_free_frames(arena, &pages[i], &error));
    FAILS(freehold_arena_evacuate(arena, 0, left, NULL, &moved, &done, &error),
          FREEHOLD_STATUS_NULL_POINTER);
    FAILS(freehold_arena_evacuate(arena, 99, left, move, &moved, &done, &error),
          FREEHOLD_STATUS_ORDER_TOO_LARGE);
    OK(freehold_arena_evacuate(arena, 0, left, move, &moved, &done, &error));
    CHECK(done.blocks >= 15 && done.frames == moved && moved < left && !done.refused);
    for (int i = 0; i < PAGES; i++)
        if (pages[i].count != 0) {
            CHECK(*(int *)pages[i].memory == i);
            OK(freehold_arena_free_frames(arena, &pages[i], &error));
        }
}

static bool evict(void *user, uint64_t frames, uint32_t attempts)
{
    freehold_frames *cached = user;
    CHECK(frames == 512 && attempts >= 1);
    if (cached->count == 0)
        return false;
    OK(freehold_arena_free_frames(cached->arena, cached, NULL));
    return true;
}

static void press(void *user, uint64_t resident, uint64_t limit)
{
    CHECK(resident == limit && limit == 2 << 20);
    ++*(unsigned *)user;
}

/* What an arena asks of the program before it refuses, and what it refuses. */
static void watched(void)
{
    freehold_arena *arena = NULL;
    freehold_frames cached = {0}, frames, whole, none;
    freehold_arena_options options = {.size = sizeof options, .bytes = 4 << 20, .user = &cached};
    unsigned pressed = 0;

    /* A cache is asked before an allocation fails. */
    options.on_exhausted = evict;
    OK(freehold_arena_new_with(&options, &arena, &error));
    OK(freehold_arena_frames(arena, 512, &frames, &error));
    OK(freehold_arena_frames(arena, 512, &cached, &error));
    OK(freehold_arena_frames(arena, 512, &whole, &error));
    CHECK(cached.count == 0);
    FAILS(freehold_arena_frames(arena, 512, &none, &error), FREEHOLD_STATUS_NO_MEMORY);
    CHECK(stats_of(arena).frames_used == 1024 && stats_of(arena).frames_free == 0);
    OK(freehold_arena_free_frames(arena, &whole, &error));
    OK(freehold_arena_free_frames(arena, &frames, &error));
    OK(freehold_arena_destroy(&arena, &error));

    /* All of an arena stays that was asked to. */
    freehold_released released;
    options.pinned = 1;
    OK(freehold_arena_new_with(&options, &arena, &error));
    OK(freehold_arena_frames(arena, 512, &frames, &error));
    OK(freehold_arena_free_frames(arena, &frames, &error));
    OK(freehold_arena_trim(arena, &released, &error));
    CHECK(released.blocks == 0);
    OK(freehold_arena_destroy(&arena, &error));

    options.pinned = 0;
    options.on_exhausted = NULL;
    options.on_pressure = press;
    options.user = &pressed;
    options.resident_limit = 2 << 20;
    OK(freehold_arena_new_with(&options, &arena, &error));
    OK(freehold_arena_frames(arena, 512, &frames, &error));
    FAILS(freehold_arena_frames(arena, 1, &whole, &error), FREEHOLD_STATUS_LIMIT);
    CHECK(error.found == 2 << 20 && pressed >= 1);
    OK(freehold_arena_free_frames(arena, &frames, &error));
    OK(freehold_arena_destroy(&arena, &error));
}

/* Threads that end one arena at once: one of them does, and the others are told. */
static void *end_it(void *argument)
{
    freehold_arena *copy = argument;
    return freehold_arena_destroy(&copy, NULL) == FREEHOLD_STATUS_OK ? argument : NULL;
}

static void ended_by_many(void)
{
    for (unsigned round = 0; round < 100; round++) {
        freehold_arena *arena = NULL;
        pthread_t threads[4];
        unsigned ended = 0;
        OK(freehold_arena_new(2 << 20, &arena, &error));
        for (unsigned i = 0; i < 4; i++)
            CHECK(pthread_create(&threads[i], NULL, end_it, arena) == 0);
        for (unsigned i = 0; i < 4; i++) {
            void *result;
            CHECK(pthread_join(threads[i], &result) == 0);
            ended += result != NULL;
        }
        CHECK(ended == 1);
    }
}

static void forked(freehold_arena *arena)
{
    freehold_frames frames;
    OK(freehold_arena_frames(arena, 2, &frames, &error));
    strcpy(frames.memory, "the parent's");
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        freehold_frames mine;
        FAILS(freehold_arena_frames(arena, 1, &mine, &error), FREEHOLD_STATUS_FORKED);
        CHECK(strcmp(frames.memory, "the parent's") == 0);
        FAILS(freehold_arena_free_frames(arena, &frames, &error), FREEHOLD_STATUS_FORKED);
        FAILS(freehold_arena_validate(arena, &error), FREEHOLD_STATUS_FORKED);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    OK(freehold_arena_free_frames(arena, &frames, &error));
}

int main(void)
{
    freehold_arena *arena;
    knobs();
    watched();
    ended_by_many();
    nothing_is_left();
    OK(freehold_arena_new(64 << 20, &arena, &error));
    mistaken(arena);
    handles(arena);
    numbers(arena);
    giving_back(arena);
    emptied(arena);
    forked(arena);
    OK(freehold_arena_validate(arena, &error));
    const freehold_arena_stats stats = stats_of(arena);
    CHECK(stats.frames_free == stats.frames && stats.late_double_frees == 0);
    freehold_arena_destroy(&arena, NULL);
    puts("arena: all right");
    return 0;
}
