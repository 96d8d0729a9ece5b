/* Mistakes with an arena's memory, one for each number from 1 to 10, which the guard mode finds: by
 * itself, under AddressSanitizer and under valgrind. 0 makes none. Prints how far it came. */
#include <freehold.h>
#include <pthread.h>

#include "check.h"

static freehold_error error;
static freehold_arena *arena;

static volatile char *frames(uint64_t count, freehold_frames *frames)
{
    OK(freehold_arena_frames(arena, count, frames, &error));
    memset(frames->memory, 1, count * 4096);
    return frames->memory;
}

static void *writes(void *memory)
{
    *(volatile char *)memory = 2;
    return NULL;
}

int main(int count, char **arguments)
{
    freehold_frames these, others, rest;
    pthread_t thread;
    int number = count > 1 ? atoi(arguments[1]) : 0, sum = 0;
    OK(freehold_arena_new(64 << 20, &arena, &error));
    volatile char *five = frames(5, &these), *four = frames(4, &others);
    puts("before");
    fflush(stdout);
    switch (number) {
    case 1: /* A read of what was freed. */
        OK(freehold_arena_free_frames(arena, &these, &error));
        sum += five[100];
        break;
    case 2: /* A write. */
        OK(freehold_arena_free_frames(arena, &these, &error));
        five[4096] = 2;
        break;
    case 3: /* A part was freed. */
        OK(freehold_frames_split(&these, 2, &rest, &error));
        OK(freehold_arena_free_frames(arena, &rest, &error));
        five[0] = 2, five[2 * 4096] = 2;
        break;
    case 4: /* A byte behind. */
        sum += five[5 * 4096];
        break;
    case 5: /* A byte behind a power of two. */
        four[4 * 4096] = 2;
        break;
    case 6: /* A byte before. */
        five[-1] = 2;
        break;
    case 7: /* Others ask for as much. */
        OK(freehold_arena_free_frames(arena, &these, &error));
        (void)frames(5, &rest);
        sum += five[0];
        break;
    case 8: /* It has gone back to the system. */
        OK(freehold_arena_free_frames(arena, &others, &error));
        OK(freehold_arena_trim(arena, NULL, &error));
        sum += four[0];
        break;
    case 9: /* Behind frames that are zero. */
        OK(freehold_arena_zeroed(arena, 3, &rest, &error));
        ((volatile char *)rest.memory)[3 * 4096 - 1] = 1;
        ((volatile char *)rest.memory)[3 * 4096] = 1;
        break;
    case 10: /* Another thread has kept it. */
        OK(freehold_arena_free_frames(arena, &others, &error));
        CHECK(pthread_create(&thread, NULL, writes, (void *)four) == 0);
        pthread_join(thread, NULL);
        break;
    }
    puts("behind");
    if (these.count)
        OK(freehold_arena_free_frames(arena, &these, &error));
    if (others.count)
        OK(freehold_arena_free_frames(arena, &others, &error));
    OK(freehold_arena_destroy(&arena, &error));
    return sum < 0;
}
