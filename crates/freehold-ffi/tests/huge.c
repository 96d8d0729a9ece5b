/* Arenas over huge pages, from C: made, used, given back, or refused with a reason. */
#define _DEFAULT_SOURCE
#include <freehold.h>
#include <string.h>

#include "check.h"

static freehold_error error;

/* Reserved huge pages that nobody uses. */
static long spare_huge_pages(void)
{
    long spare = 0;
    FILE *file = fopen("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "r");
    if (file) {
        if (fscanf(file, "%ld", &spare) != 1)
            spare = 0;
        fclose(file);
    }
    return spare;
}

static void use(freehold_arena *arena)
{
    freehold_frames whole, rest;
    freehold_released released;
    freehold_arena_stats stats;
    OK(freehold_arena_zeroed(arena, 1024, &whole, &error));
    unsigned char *bytes = (unsigned char *)whole.memory;
    for (size_t i = 0; i < 1024 * 4096u; i += 4096)
        CHECK(bytes[i] == 0);
    memset(bytes, 0xa5, 1024 * 4096u);
    OK(freehold_frames_split(&whole, 700, &rest, &error));
    OK(freehold_arena_free_frames(arena, &rest, &error));
    CHECK(bytes[0] == 0xa5 && bytes[700 * 4096u - 1] == 0xa5);
    OK(freehold_arena_free_frames(arena, &whole, &error));
    /* By whole blocks, which is all that a huge page can be given back by. */
    OK(freehold_arena_trim(arena, &released, &error));
    OK(freehold_arena_read_stats(arena, &stats, &error));
    CHECK(released.blocks >= 2 && released.bytes == released.blocks << 21 && stats.blocks_resident == 0);
    /* And what comes back is zero again. */
    OK(freehold_arena_zeroed(arena, 1, &whole, &error));
    CHECK(*(unsigned char *)whole.memory == 0);
    OK(freehold_arena_free_frames(arena, &whole, &error));
    OK(freehold_arena_validate(arena, &error));
    freehold_arena_destroy(&arena, NULL);
}

int main(void)
{
    freehold_arena *arena = NULL;
    freehold_arena_options options = {
        .size = sizeof options, .backing = FREEHOLD_BACKING_HUGE_PAGES, .bytes = 8 << 20};
    freehold_status status = freehold_arena_new_with(&options, &arena, &error);
    if (status == FREEHOLD_STATUS_OK) {
        use(arena);
    } else {
        CHECK(status == FREEHOLD_STATUS_OS && strstr(error.message, "huge"));
        fprintf(stderr, "SKIPPED transparent huge pages: %s\n", error.message);
    }

    options.backing = FREEHOLD_BACKING_HUGETLB;
    if (spare_huge_pages() >= 4) {
        OK(freehold_arena_new_with(&options, &arena, &error));
        use(arena);
    } else {
        fprintf(stderr, "SKIPPED hugetlb arenas: fewer than four huge pages are set aside\n");
    }

    /* More than can be set aside: said when the arena is made, not by a signal later. */
    options.bytes = (uint64_t)(spare_huge_pages() + 100) << 21;
    arena = NULL;
    FAILS(freehold_arena_new_with(&options, &arena, &error), FREEHOLD_STATUS_OS);
    CHECK(arena == NULL && error.os_errno == 12 && strstr(error.message, "nr_hugepages"));
    printf("huge: all right\n");
    return 0;
}
