/* The poison callbacks, from C: every frame that is freed is told to the program, which fills it, and every frame that is handed
 * out, which it checks; a write after a free is found. Needs a library with the feature debug-poison. */
#include <freehold.h>
#include <string.h>

#include "check.h"

enum { FIRST = 0x1000, FRAMES = 4096, PATTERN = 0x5a };

static freehold_error error;
/* A byte stands for a frame. */
static unsigned char memory[FRAMES];

struct host {
    uint64_t poisoned, checked, dirty, last_dirty;
};

static void poison(void *user, uint64_t start, uint64_t end)
{
    CHECK(start >= FIRST && start < end && end <= FIRST + FRAMES);
    memset(&memory[start - FIRST], PATTERN, end - start);
    ((struct host *)user)->poisoned += end - start;
}

static void check_poison(void *user, uint64_t start, uint64_t end)
{
    struct host *host = (struct host *)user;
    CHECK(start >= FIRST && start < end && end <= FIRST + FRAMES);
    for (uint64_t pfn = start; pfn < end; pfn++)
        if (memory[pfn - FIRST] != PATTERN) {
            host->dirty++;
            host->last_dirty = pfn;
        }
    host->checked += end - start;
}

int main(void)
{
    struct host host = {0, 0, 0, 0};
    freehold_frame_range range = {FIRST, FIRST + FRAMES};
    freehold_zone zone;
    freehold_config config;
    freehold_platform platform;
    memset(&zone, 0, sizeof zone);
    memset(&platform, 0, sizeof platform);
    zone.memory = &range;
    zone.memory_count = 1;
    zone.watermarks = FREEHOLD_WATERMARK_RULE_NONE;
    platform.user = &host;
    platform.poison = poison;
    platform.check_poison = check_poison;
    freehold_config_init(&config, 2, &zone, 1);
    size_t size;
    OK(freehold_metadata_size(&config, &size, &error));
    void *metadata = malloc(size);
    freehold_allocator *allocator;
    /* All memory must hold the pattern when it is first added. */
    memset(memory, PATTERN, sizeof memory);
    OK(freehold_new(&config, metadata, size, &platform, &allocator, &error));
    CHECK(host.poisoned == 0 && host.checked == 0);

    freehold_request request;
    memset(&request, 0, sizeof request);
    uint64_t handed_out = 0, freed = 0, pfn, pfns[100];
    for (uint8_t order = 0; order <= 11; order++) {
        const freehold_cpu *other = freehold_on(allocator, 1 - order % 2);
        request.order = order;
        OK(freehold_alloc(freehold_on(allocator, order % 2), &request, &pfn, &error));
        handed_out += 1u << order;
        CHECK(host.checked == handed_out && host.dirty == 0);
        memset(&memory[pfn - FIRST], order, 1u << order);
        /* On the other CPU, in two parts. */
        if (order > 0) {
            OK(freehold_free_range(other, pfn + 1, pfn + (1u << order), &error));
        }
        OK(freehold_free(other, pfn, 0, &error));
        freed += 1u << order;
        /* Each frame that was freed, once at least: part of a word of another CPU's block is told twice. */
        CHECK(host.poisoned >= freed);
        for (uint64_t i = 0; i < 1u << order; i++)
            CHECK(memory[pfn - FIRST + i] == PATTERN);
    }
    request.order = 0;
    size_t got;
    OK(freehold_alloc_bulk(freehold_here(allocator), &request, pfns, 100, &got, &error));
    CHECK(got == 100 && host.checked == handed_out + 100);
    for (int i = 0; i < 100; i++)
        memory[pfns[i] - FIRST] = 1;
    OK(freehold_free_bulk(freehold_here(allocator), pfns, 100, &error));
    for (int i = 0; i < 100; i++)
        CHECK(memory[pfns[i] - FIRST] == PATTERN);
    /* A refused free poisons nothing. */
    OK(freehold_drain_all(allocator, &error));
    const uint64_t before = host.poisoned;
    FAILS(freehold_free(freehold_here(allocator), pfns[0], 0, &error), FREEHOLD_STATUS_DOUBLE_FREE);
    CHECK(host.poisoned == before && host.dirty == 0);

    /* Somebody writes to a frame that is free. */
    memory[pfns[42] - FIRST] = 1;
    for (uint64_t i = 0; i < FRAMES; i++)
        OK(freehold_alloc(freehold_here(allocator), &request, &pfn, &error));
    CHECK(host.dirty == 1 && host.last_dirty == pfns[42]);
    OK(freehold_destroy(allocator, &error));
    free(metadata);
    printf("poison: all right\n");
    return 0;
}
