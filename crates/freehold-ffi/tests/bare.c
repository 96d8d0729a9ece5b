/* The bare allocator from one thread: every function, its result, and each way to be refused. */
#include <freehold.h>
#include <string.h>

#include "check.h"

enum { CPUS = 3 };

static freehold_error error;

static uint64_t zone_free(const freehold_allocator *allocator, size_t zone)
{
    freehold_zone_stats stats;
    OK(freehold_read_zone_stats(allocator, zone, &stats, &error));
    return stats.free;
}

static uint64_t all_free(const freehold_allocator *allocator)
{
    return zone_free(allocator, 0) + zone_free(allocator, 1);
}

/* Allocated as asked for, and freed again. */
static uint64_t once(const freehold_cpu *cpu, freehold_request request)
{
    uint64_t pfn;
    OK(freehold_alloc(cpu, &request, &pfn, &error));
    OK(freehold_free(cpu, pfn, request.order, &error));
    return pfn;
}

struct host {
    uint16_t cpu;
    unsigned barriers;
    unsigned pressures;
    freehold_pressure last;
};

static uint16_t current_cpu(void *user)
{
    return ((struct host *)user)->cpu;
}

static void heavy_barrier(void *user)
{
    /* One thread only: nothing to make visible. */
    ((struct host *)user)->barriers++;
}

static void pressure(void *user, const freehold_pressure *what)
{
    struct host *host = user;
    host->pressures++;
    host->last = *what;
}

struct mover {
    freehold_allocator *allocator;
    uint64_t moved;
};

static bool move_away(void *user, uint64_t start, uint64_t end)
{
    struct mover *mover = user;
    for (uint64_t pfn = start; pfn < end; pfn++)
        if (freehold_free(freehold_here(mover->allocator), pfn, 0, NULL) != FREEHOLD_STATUS_OK)
            return false;
    mover->moved += end - start;
    return true;
}

static void cannot_be(uint16_t cpus, const freehold_zone *zones, size_t count, int status)
{
    size_t size;
    freehold_config config;
    freehold_config_init(&config, cpus, zones, count);
    FAILS(freehold_metadata_size(&config, &size, &error), status);
}

static void configurations(void)
{
    size_t size = 1;
    freehold_config config;
    freehold_frame_range memory[2] = {{0, 1024}, {512, 2048}};
    freehold_zone zones[65];
    memset(zones, 0, sizeof zones);
    zones[0].memory = memory;
    zones[0].memory_count = 2;

    freehold_config_init(&config, 1, zones, 1);
    FAILS(freehold_metadata_size(&config, &size, &error), FREEHOLD_STATUS_CONFIG_OVERLAP);
    CHECK(error.pfn == 512 && size == 1);
    memory[1].start = 1024;
    OK(freehold_metadata_size(&config, &size, &error));
    CHECK(size > 112 * 64);

    cannot_be(0, zones, 1, FREEHOLD_STATUS_CONFIG_CPUS);
    cannot_be(1, zones, 0, FREEHOLD_STATUS_CONFIG_ZONES);
    cannot_be(1, zones, 65, FREEHOLD_STATUS_CONFIG_ZONES);
    CHECK(error.found == 65);
    cannot_be(1, NULL, 1, FREEHOLD_STATUS_NULL_POINTER);
    CHECK(strstr(error.message, "zones"));
    FAILS(freehold_metadata_size(&config, NULL, &error), FREEHOLD_STATUS_NULL_POINTER);
    FAILS(freehold_metadata_size(NULL, &size, &error), FREEHOLD_STATUS_NULL_POINTER);
    zones[0].watermarks = 3;
    cannot_be(1, zones, 1, FREEHOLD_STATUS_INVALID_ARGUMENT);
    zones[0].watermarks = FREEHOLD_WATERMARK_RULE_FRAMES;
    zones[0].min = 3;
    cannot_be(1, zones, 1, FREEHOLD_STATUS_WATERMARKS);
    zones[0].watermarks = FREEHOLD_WATERMARK_RULE_NONE;
    zones[0].span = (freehold_frame_range){1, 2048};
    cannot_be(1, zones, 1, FREEHOLD_STATUS_CONFIG_SPAN);
    zones[0].span.start = 512;
    cannot_be(1, zones, 1, FREEHOLD_STATUS_CONFIG_OUTSIDE_ZONE);

    /* As many zones as there can be. */
    freehold_frame_range pieces[64];
    for (uint64_t z = 0; z < 64; z++) {
        pieces[z] = (freehold_frame_range){z * 512, z * 512 + 512};
        zones[z] = (freehold_zone){.memory = &pieces[z],
                                   .memory_count = 1,
                                   .watermarks = FREEHOLD_WATERMARK_RULE_NONE};
    }
    freehold_config_init(&config, 1, zones, 64);
    OK(freehold_metadata_size(&config, &size, &error));
    void *metadata = malloc(size);
    freehold_allocator *allocator = NULL;
    FAILS(freehold_new(&config, metadata, size - 1, NULL, &allocator, &error),
          FREEHOLD_STATUS_METADATA_TOO_SMALL);
    CHECK(error.found == size - 1 && error.expected == size && allocator == NULL);
    FAILS(freehold_new(&config, NULL, size, NULL, &allocator, &error),
          FREEHOLD_STATUS_NULL_POINTER);
    FAILS(freehold_new(&config, metadata, size, NULL, NULL, &error), FREEHOLD_STATUS_NULL_POINTER);
    OK(freehold_new(&config, metadata, size, NULL, &allocator, &error));
    CHECK(freehold_zone_of(allocator, 63 * 512) == 63
          && freehold_zone_of(allocator, 64 * 512) == -1);
    OK(freehold_destroy(allocator, &error));
    free(metadata);
}

/* Requests that are refused, and what is found. */
static const struct refused {
    freehold_request request;
    int status;
    uint64_t found;
} refusals[] = {
    {{.order = 19}, FREEHOLD_STATUS_ORDER_TOO_LARGE, 19},
    {{.order = 18}, FREEHOLD_STATUS_NO_MEMORY, 18},
    {{.migratetype = FREEHOLD_MIGRATETYPE_ISOLATE}, FREEHOLD_STATUS_BAD_MIGRATETYPE, 5},
    {{.migratetype = 6}, FREEHOLD_STATUS_BAD_MIGRATETYPE, 6},
    {{.flags = 0x8000}, FREEHOLD_STATUS_INVALID_ARGUMENT, 0x8000},
    {{.align = 19}, FREEHOLD_STATUS_ORDER_TOO_LARGE, 19},
};

static void requests(freehold_allocator *allocator, struct host *host)
{
    uint64_t pfn = 0, other;
    const freehold_request one = {.flags = FREEHOLD_ALLOC_NON_BLOCK | FREEHOLD_ALLOC_MIN_RESERVE},
                           apart = {.migratetype = FREEHOLD_MIGRATETYPE_MOVABLE, .align = 4};
    const freehold_cpu *here = freehold_here(allocator);
    const uint64_t before = all_free(allocator);

    for (uint8_t order = 0; order <= 10; order++) {
        pfn = once(here, (freehold_request){.order = order, .migratetype = order % 3});
        CHECK(pfn % (1u << order) == 0 && freehold_zone_of(allocator, pfn) >= 0);
    }
    OK(freehold_alloc(here, &apart, &pfn, &error));
    OK(freehold_alloc(here, &apart, &other, &error));
    CHECK(pfn % 16 == 0 && other % 16 == 0 && pfn != other);
    OK(freehold_free(here, pfn, 0, &error));
    OK(freehold_free(here, other, 0, &error));
    CHECK(once(here, (freehold_request){.below = 0x2000}) < 0x2000);
    pfn = once(here, (freehold_request){.from = 0x80000});
    CHECK(pfn >= 0x80000 && freehold_zone_of(allocator, pfn) == 1);
    pfn = once(here, (freehold_request){.use_node = 1, .node = 1});
    CHECK(freehold_zone_of(allocator, pfn) == 1);

    /* Refused, with nothing written. */
    pfn = 77;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const struct refused *row = &refusals[i];
        FAILS(freehold_alloc(here, &row->request, &pfn, &error), row->status);
        CHECK(error.found == row->found && error.pfn == FREEHOLD_NO_PFN);
        CHECK((int)freehold_alloc(here, &row->request, &pfn, NULL) == row->status);
    }
    FAILS(freehold_alloc(here, &refusals[0].request, &pfn, &error), refusals[0].status);
    CHECK(error.expected == 18 && strstr(error.message, "order 19"));
    FAILS(freehold_alloc(here, &one, NULL, &error), FREEHOLD_STATUS_NULL_POINTER);
    FAILS(freehold_alloc(here, NULL, &pfn, &error), FREEHOLD_STATUS_NULL_POINTER);
    FAILS(freehold_alloc(NULL, &one, &pfn, &error), FREEHOLD_STATUS_NULL_POINTER);
    host->cpu = CPUS;
    FAILS(freehold_alloc(here, &one, &pfn, &error), FREEHOLD_STATUS_CPU_OFFLINE);
    CHECK(error.found == CPUS && pfn == 77);
    host->cpu = 0;
    (void)once(here, one);
    CHECK(all_free(allocator) == before);
}

static void frees(freehold_allocator *allocator)
{
    uint64_t pfn;
    freehold_request request = {0};
    const freehold_cpu *here = freehold_here(allocator);
    request.order = 4;
    const uint64_t before = all_free(allocator);

    OK(freehold_alloc(here, &request, &pfn, &error));
    FAILS(freehold_free(here, pfn + 1, 1, &error), FREEHOLD_STATUS_MISALIGNED);
    CHECK(error.pfn == pfn + 1 && error.found == 1);
    FAILS(freehold_free(here, pfn, 19, &error), FREEHOLD_STATUS_ORDER_TOO_LARGE);
    OK(freehold_free(here, pfn, 0, &error));
    FAILS(freehold_free(here, pfn, 0, &error), FREEHOLD_STATUS_DOUBLE_FREE);
    CHECK(error.pfn == pfn && strstr(error.message, "double free"));
    OK(freehold_free_range(here, pfn + 1, pfn + 4, &error));
    for (uint64_t odd = pfn + 5; odd < pfn + 16; odd += 2)
        OK(freehold_free(here, odd, 0, &error));
    FAILS(freehold_free_range(here, pfn, pfn, &error), FREEHOLD_STATUS_ZERO_LENGTH);
    FAILS(freehold_free(here, 5, 0, &error), FREEHOLD_STATUS_OUT_OF_ZONE);

    /* Those that were kept, and one that was not: what is before it is free, the rest is not. */
    uint64_t pfns[6];
    for (unsigned i = 0; i < 6; i++)
        pfns[i] = pfn + 4 + 2 * i;
    pfns[4]++;
    FAILS(freehold_free_bulk(here, pfns, 6, &error), FREEHOLD_STATUS_DOUBLE_FREE);
    CHECK(error.done == 4 && error.pfn == pfns[4]);
    pfns[4]--;
    OK(freehold_free_bulk(here, pfns + 4, 2, &error));
    OK(freehold_free_bulk(here, NULL, 0, &error));
    FAILS(freehold_free_bulk(here, NULL, 1, &error), FREEHOLD_STATUS_NULL_POINTER);
    FAILS(freehold_free_bulk(here, pfns, SIZE_MAX / 4, &error), FREEHOLD_STATUS_INVALID_ARGUMENT);
    CHECK(all_free(allocator) == before);
}

/* An owned handle has code of its own for what most ask for: it says of every request what the code
 * for all handles says. */
static void owned_says_the_same(freehold_allocator *allocator, const freehold_cpu *owned)
{
    static const uint16_t flags[] = {0, FREEHOLD_ALLOC_NON_BLOCK, FREEHOLD_ALLOC_CMA, 1 << 15};
    const freehold_cpu *shared = freehold_on(allocator, 0);
    const uint64_t before = all_free(allocator);
    unsigned served = 0;

    /* The last digit asks for one thing more than order, type and flags. */
    for (unsigned i = 0; i < 21 * 8 * 4 * 5; i++) {
        const unsigned more = i % 5;
        freehold_request request = {0};
        uint64_t pfn = 0, other = 0;
        request.order = (uint8_t)(i / 5 / 4 / 8);
        request.migratetype = (uint8_t)(i / 5 / 4 % 8);
        request.flags = flags[i / 5 % 4];
        request.align = more == 1 ? 10 : 0;
        request.use_node = more == 2;
        request.below = more == 3 ? 4096 : 0;
        request.from = more == 4 ? 4096 : 0;
        const int expected = (int)freehold_alloc(shared, &request, &other, NULL);
        if (expected != FREEHOLD_STATUS_OK) {
            const uint64_t untouched = pfn;
            FAILS(freehold_alloc(owned, &request, &pfn, &error), expected);
            CHECK((int)freehold_alloc(owned, &request, &pfn, NULL) == expected && pfn == untouched);
            continue;
        }
        OK(freehold_free(shared, other, request.order, &error));
        OK(freehold_alloc(owned, &request, &pfn, &error));
        CHECK(pfn % (1u << request.order) == 0 && (more != 1 || pfn % 1024 == 0));
        CHECK((more != 3 || pfn < 4096) && (more != 4 || pfn >= 4096));
        FAILS(freehold_free(owned, pfn, 19, &error), FREEHOLD_STATUS_ORDER_TOO_LARGE);
        FAILS(freehold_free(owned, UINT64_MAX, request.order, &error),
              request.order == 0 ? FREEHOLD_STATUS_OUT_OF_ZONE : FREEHOLD_STATUS_MISALIGNED);
        OK(freehold_free(owned, pfn, request.order, &error));
        FAILS(freehold_free(owned, pfn, request.order, &error), FREEHOLD_STATUS_DOUBLE_FREE);
        FAILS(freehold_alloc(owned, &request, NULL, &error), FREEHOLD_STATUS_NULL_POINTER);
        FAILS(freehold_alloc(NULL, &request, &pfn, &error), FREEHOLD_STATUS_NULL_POINTER);
        FAILS(freehold_free(NULL, pfn, request.order, &error), FREEHOLD_STATUS_NULL_POINTER);
        served |= 1u << request.order;
    }
    CHECK((served & 1023) == 1023);
    uint64_t pfn;
    FAILS(freehold_alloc(owned, NULL, &pfn, &error), FREEHOLD_STATUS_NULL_POINTER);
    CHECK(all_free(allocator) == before);
}

static void on_and_owned(freehold_allocator *allocator, struct host *host)
{
    enum { MANY = 300 };
    uint64_t pfns[MANY], pfn;
    size_t allocated = 0;
    freehold_request request = {0};
    freehold_totals totals, later;
    const freehold_cpu *here = freehold_here(allocator);
    const freehold_cpu *one = freehold_on(allocator, 1), *two = freehold_on(allocator, 2);
    const freehold_cpu *owned = NULL, *again = NULL;
    const uint64_t before = all_free(allocator);

    OK(freehold_alloc_bulk(here, &request, pfns, MANY, &allocated, &error));
    CHECK(allocated == MANY);
    OK(freehold_free(two, pfns[0], 0, &error));
    OK(freehold_free_bulk(one, pfns + 1, MANY - 1, &error));
    request.order = 3;
    OK(freehold_alloc(one, &request, &pfn, &error));
    OK(freehold_free_range(one, pfn, pfn + 4, &error));
    OK(freehold_free(one, pfn + 4, 2, &error));
    OK(freehold_tick(one, &error));
    OK(freehold_flush(two, &error));
    CHECK(freehold_on(allocator, CPUS) == NULL && freehold_on(NULL, 0) == NULL);
    CHECK(freehold_here(NULL) == NULL);
    FAILS(freehold_tick(freehold_on(allocator, 9), &error), FREEHOLD_STATUS_NULL_POINTER);
    FAILS(freehold_release(one, &error), FREEHOLD_STATUS_CPU_NOT_OWNED);
    CHECK(error.found == 1);
    FAILS(freehold_release(here, &error), FREEHOLD_STATUS_CPU_NOT_OWNED);

    OK(freehold_own(allocator, 2, &owned, &error));
    owned_says_the_same(allocator, owned);
    OK(freehold_release(owned, &error));
    OK(freehold_own(allocator, 1, &owned, &error));
    FAILS(freehold_own(allocator, 1, &again, &error), FREEHOLD_STATUS_CPU_OWNED);
    CHECK(error.found == 1 && again == NULL);
    FAILS(freehold_destroy(allocator, &error), FREEHOLD_STATUS_CPU_OWNED);
    FAILS(freehold_cpu_offline(allocator, 1, &error), FREEHOLD_STATUS_CPU_OWNED);
    OK(freehold_read_totals(allocator, &totals, &error));
    request.order = 0;
    OK(freehold_alloc(owned, &request, &pfn, &error));
    OK(freehold_free(owned, pfn, 0, &error));
    OK(freehold_alloc_bulk(owned, &request, pfns, MANY, &allocated, &error));
    CHECK(allocated == MANY);
    OK(freehold_free_bulk(owned, pfns, MANY, &error));
    request.order = 9;
    OK(freehold_alloc(owned, &request, &pfn, &error));
    OK(freehold_free_range(owned, pfn, pfn + 512, &error));
    OK(freehold_tick(owned, &error));
    OK(freehold_flush(owned, &error));
    /* Somebody else reaches into the owned CPU: the host's barrier is called for it. */
    const unsigned barriers = host->barriers;
    OK(freehold_tick(one, &error));
    CHECK(host->barriers > barriers);
    OK(freehold_release(owned, &error));
    FAILS(freehold_release(owned, &error), FREEHOLD_STATUS_CPU_NOT_OWNED);
    FAILS(freehold_alloc(owned, &request, &pfn, &error), FREEHOLD_STATUS_CPU_NOT_OWNED);
    FAILS(freehold_free(owned, pfn, 0, &error), FREEHOLD_STATUS_CPU_NOT_OWNED);
    FAILS(freehold_tick(owned, &error), FREEHOLD_STATUS_CPU_NOT_OWNED);
    FAILS(freehold_release(NULL, &error), FREEHOLD_STATUS_NULL_POINTER);
    OK(freehold_own(allocator, 1, &again, &error));
    OK(freehold_release(again, &error));
    FAILS(freehold_own(allocator, 99, &again, &error), FREEHOLD_STATUS_CPU_OFFLINE);

    OK(freehold_read_totals(allocator, &later, &error));
    CHECK(later.cpus.allocs[FREEHOLD_MIGRATETYPE_UNMOVABLE][0]
          == totals.cpus.allocs[FREEHOLD_MIGRATETYPE_UNMOVABLE][0] + MANY + 1);
    CHECK(later.cpus.allocs[FREEHOLD_MIGRATETYPE_UNMOVABLE][9]
          == totals.cpus.allocs[FREEHOLD_MIGRATETYPE_UNMOVABLE][9] + 1);
    CHECK(all_free(allocator) == before);
}

static void hotplug(freehold_allocator *allocator)
{
    uint64_t pfn;
    freehold_request request = {0};
    const freehold_cpu *here = freehold_here(allocator), *two = freehold_on(allocator, 2);

    OK(freehold_cpu_offline(allocator, 2, &error));
    FAILS(freehold_alloc(two, &request, &pfn, &error), FREEHOLD_STATUS_CPU_OFFLINE);
    OK(freehold_cpu_online(allocator, 2, &error));
    (void)once(two, request);
    FAILS(freehold_cpu_online(allocator, CPUS, &error), FREEHOLD_STATUS_CPU_OFFLINE);

    const uint64_t before = zone_free(allocator, 1);
    OK(freehold_add_memory(allocator, 0x90000, 0x90000 + 1024, &error));
    CHECK(zone_free(allocator, 1) == before + 1024);
    FAILS(freehold_add_memory(allocator, 0x90000 + 512, 0x90000 + 2048, &error),
          FREEHOLD_STATUS_PRESENT);
    CHECK(error.pfn == 0x90000 + 512);
    FAILS(freehold_add_memory(allocator, 0x10, 0x20, &error), FREEHOLD_STATUS_OUT_OF_ZONE);
    CHECK(once(here, (freehold_request){.from = 0x90000}) >= 0x90000);
    FAILS(freehold_add_memory(allocator, 0x98000, 0x98000 + 16 * 32768, &error),
          FREEHOLD_STATUS_OUT_OF_ZONE);

    FAILS(freehold_add_memory_in_use(allocator, 0x90400, 0x90400 + 1, &error),
          FREEHOLD_STATUS_MISALIGNED);
    OK(freehold_add_memory_in_use(allocator, 0x90400, 0x90400 + 512, &error));
    CHECK(zone_free(allocator, 1) == before + 1024);
    OK(freehold_free(here, 0x90400, 9, &error));
    CHECK(zone_free(allocator, 1) == before + 1024 + 512);
}

/* One frame of a block is in use; the rest is taken, comes back, and all of it goes. */
static void isolated(freehold_allocator *allocator)
{
    const uint64_t start = 0x90600, end = start + 512;
    freehold_request request = {.migratetype = FREEHOLD_MIGRATETYPE_MOVABLE, .from = start};
    const freehold_cpu *here = freehold_here(allocator);
    freehold_block_frames taken;
    freehold_pageblock block;
    uint64_t pfn;

    OK(freehold_add_memory(allocator, start, end, &error));
    OK(freehold_alloc(here, &request, &pfn, &error));
    CHECK(pfn >= start && pfn < end);
    OK(freehold_isolate(allocator, start, end, &error));
    FAILS(freehold_isolate(allocator, start, end, &error), FREEHOLD_STATUS_BUSY);
    OK(freehold_read_pageblock(allocator, pfn, &block, &error));
    CHECK(block.migratetype == FREEHOLD_MIGRATETYPE_ISOLATE && block.frames == 512
          && block.free == 511);
    CHECK(!(block.free_frames.words[pfn % 512 / 64] >> pfn % 64 & 1) && block.holder == -1);
    OK(freehold_take_free(allocator, start, end, &taken, &error));
    CHECK(!memcmp(&taken, &block.free_frames, sizeof(taken)));
    FAILS(freehold_take_free(allocator, start + 1, end + 1, &taken, &error),
          FREEHOLD_STATUS_BAD_RANGE);
    FAILS(freehold_take_free(allocator, start, start, &taken, &error), FREEHOLD_STATUS_ZERO_LENGTH);
    for (uint64_t frame = start; frame < end; frame++)
        if (frame != pfn)
            OK(freehold_free(here, frame, 0, &error));
    OK(freehold_restore(allocator, start, end, &error));
    OK(freehold_free(here, pfn, 0, &error));
    FAILS(freehold_read_pageblock(allocator, end, &block, &error), FREEHOLD_STATUS_BAD_RANGE);
    FAILS(freehold_isolate(allocator, end, end + 512, &error), FREEHOLD_STATUS_BAD_RANGE);
}

struct seen {
    uint64_t starts[2];
    uint32_t used;
    int count;
    uint64_t unwanted;
};

static bool see(void *user, uint64_t start, uint32_t used)
{
    struct seen *seen = user;
    CHECK(used >= seen->used && used < 512);
    seen->used = used;
    seen->starts[seen->count++] = start;
    return seen->count < 2;
}

static bool is_other(void *user, uint64_t start)
{
    return start != ((struct seen *)user)->unwanted;
}

/* The block with less in use comes first, and becomes whole when its frame is freed. */
static void emptied(freehold_allocator *allocator)
{
    const uint64_t start = 0x90800, end = start + 512;
    const freehold_cpu *here = freehold_here(allocator);
    freehold_request request = {.migratetype = FREEHOLD_MIGRATETYPE_MOVABLE};
    struct seen seen = {0};
    uint64_t pfns[3], pfn;

    OK(freehold_add_memory(allocator, start, end + 512, &error));
    for (int i = 0; i < 3; i++) {
        request.from = i ? end : start;
        request.below = request.from + 512;
        OK(freehold_alloc(here, &request, &pfns[i], &error));
    }
    OK(freehold_drain_all(allocator, &error));
    CHECK(freehold_emptiest(allocator, 1, 1000, NULL, see, &seen) < 1000);
    CHECK(seen.count == 2 && seen.starts[0] == start && seen.starts[1] == end);
    CHECK(freehold_emptiest(allocator, 1, 1000, NULL, NULL, NULL) == 1000
          && freehold_emptiest(NULL, 1, 7, NULL, see, &seen) == 7);
    seen = (struct seen){.unwanted = start};
    CHECK(freehold_emptiest(allocator, 1, 1000, is_other, see, &seen) < 1000);
    CHECK(seen.count == 1 && seen.starts[0] == end);

    /* The first one is no block of its own, the second is there twice. */
    pfn = UINT64_MAX / 2;
    uint64_t given[] = {pfn, pfns[0], pfns[0]};
    CHECK(freehold_evacuate(allocator, given, 3) == 1 && given[0] == start);
    CHECK(given[1] == pfn && given[2] == pfns[0]);
    CHECK(freehold_evacuate(allocator, given, 1) == 0);
    CHECK(freehold_evacuate(allocator, NULL, 1) == 0 && freehold_evacuate(NULL, given, 1) == 0);
    OK(freehold_free(here, pfns[0], 0, &error));
    request = (freehold_request){.order = 9, .from = start, .below = end};
    FAILS(freehold_alloc(here, &request, &pfn, &error), FREEHOLD_STATUS_NO_MEMORY);
    OK(freehold_restore(allocator, start, end, &error));
    OK(freehold_alloc(here, &request, &pfn, &error));
    OK(freehold_free(here, pfn, 9, &error));
    CHECK(freehold_evacuate(allocator, &pfn, 1) == 0);
    OK(freehold_free(here, pfns[1], 0, &error));
    OK(freehold_free(here, pfns[2], 0, &error));
}

static void contiguous(freehold_allocator *allocator)
{
    uint64_t pfn;
    freehold_request request = {0};
    const freehold_cpu *here = freehold_here(allocator);
    struct mover mover = {allocator, 0};
    const uint64_t before = all_free(allocator);

    request.migratetype = FREEHOLD_MIGRATETYPE_MOVABLE;
    OK(freehold_alloc(here, &request, &pfn, &error));
    const uint64_t block = pfn & ~UINT64_C(511);
    FAILS(freehold_alloc_contig_range(allocator, block, block + 512, NULL, NULL, &error),
          FREEHOLD_STATUS_BUSY);
    CHECK(error.pfn == pfn);
    OK(freehold_alloc_contig_range(allocator, block, block + 512, move_away, &mover, &error));
    CHECK(mover.moved == 1);
    OK(freehold_free_range(here, block, block + 512, &error));
    FAILS(freehold_alloc_contig_range(allocator, 0x100, 0x200, NULL, NULL, &error),
          FREEHOLD_STATUS_BAD_RANGE);
    CHECK(all_free(allocator) == before);
}

/* Zone 0 is of 64 blocks, of which 1 % is less than one: nothing is kept. */
static void reserve(freehold_allocator *allocator)
{
    freehold_request request = {.order = 3,
                                .flags = FREEHOLD_ALLOC_HIGH_ATOMIC | FREEHOLD_ALLOC_NO_LOCK};
    const freehold_cpu *here = freehold_here(allocator);
    freehold_reserve kept = {1, 1};
    uint64_t pfn;

    FAILS(freehold_read_reserve(allocator, 2, &kept, &error), FREEHOLD_STATUS_CONFIG_ZONES);
    FAILS(freehold_read_reserve(allocator, 0, NULL, &error), FREEHOLD_STATUS_NULL_POINTER);
    OK(freehold_alloc(here, &request, &pfn, &error));
    OK(freehold_read_reserve(allocator, 0, &kept, &error));
    CHECK(kept.blocks == 0 && kept.free == 0);
    CHECK(!freehold_give_up_reserve(allocator, 0, FREEHOLD_MIGRATETYPE_MOVABLE));
    CHECK(!freehold_give_up_reserve(allocator, 0, FREEHOLD_MIGRATETYPES)
          && !freehold_give_up_reserve(NULL, 0, 0));
    OK(freehold_free(here, pfn, 3, &error));
}

static void statistics(freehold_allocator *allocator, struct host *host)
{
    uint64_t frames, chunks[FREEHOLD_ORDERS];
    freehold_zone_stats stats;
    freehold_zone_blocks blocks;
    freehold_totals totals;

    FAILS(freehold_read_zone_stats(allocator, 2, &stats, &error), FREEHOLD_STATUS_CONFIG_ZONES);
    CHECK(error.found == 2 && strstr(error.message, "no zone 2"));
    FAILS(freehold_read_zone_blocks(allocator, 2, &blocks, &error), FREEHOLD_STATUS_CONFIG_ZONES);
    FAILS(freehold_read_listed_chunks(allocator, 2, chunks, &error), FREEHOLD_STATUS_CONFIG_ZONES);
    FAILS(freehold_read_zone_stats(allocator, 0, NULL, &error), FREEHOLD_STATUS_NULL_POINTER);
    FAILS(freehold_read_totals(allocator, NULL, &error), FREEHOLD_STATUS_NULL_POINTER);
    OK(freehold_drain_all(allocator, &error));

    OK(freehold_read_zone_stats(allocator, 0, &stats, &error));
    CHECK(stats.managed == 32768 && stats.free == stats.managed
          && stats.free_in_zone == stats.free);
    OK(freehold_read_zone_blocks(allocator, 0, &blocks, &error));
    CHECK(blocks.free_blocks >= stats.whole_blocks && stats.whole_blocks > 0);
    OK(freehold_read_listed_chunks(allocator, 0, chunks, &error));
    frames = stats.free;
    for (int order = 0; order < FREEHOLD_ORDERS; order++)
        frames -= chunks[order] << order;
    CHECK(frames == 0);
    CHECK(freehold_may_have_free(allocator, 0, 9, 0)
          && freehold_may_have_free(allocator, 0, 10, 0));
    CHECK(!freehold_may_have_free(allocator, 2, 0, 0)
          && !freehold_may_have_free(allocator, 0, 19, 0));
    CHECK(!freehold_may_have_free(NULL, 0, 0, 0)
          && !freehold_may_have_free(allocator, 0, 0, 1 << 15));
    frames = stats.free;
    for (int type = 0; type < FREEHOLD_MIGRATETYPES; type++) {
        OK(freehold_read_free_chunks(allocator, 0, (uint8_t)type, chunks, &error));
        for (int order = 0; order < FREEHOLD_ORDERS; order++)
            frames -= chunks[order] << order;
    }
    CHECK(frames == 0);
    FAILS(freehold_read_free_chunks(allocator, 0, FREEHOLD_MIGRATETYPES, chunks, &error),
          FREEHOLD_STATUS_BAD_MIGRATETYPE);
    CHECK(strstr(error.message, "must be 0 to 5"));
    FAILS(freehold_read_free_chunks(allocator, 2, 0, chunks, &error), FREEHOLD_STATUS_CONFIG_ZONES);
    OK(freehold_read_totals(allocator, &totals, &error));
    CHECK(totals.shared_writes > 0 && totals.cpus.allocs[0][0] > 0);

    /* Watermarks above all there is: a request comes under pressure, and the host is told which
     * zone. */
    OK(freehold_read_zone_stats(allocator, 1, &stats, &error));
    CHECK(stats.watermarks[0] == 10 && stats.watermarks[1] == 20000
          && stats.watermarks[2] == 30000);
    (void)once(freehold_here(allocator),
               (freehold_request){.order = 9, .use_node = 1, .node = 1});
    CHECK(host->pressures > 0 && host->last.zone == 1
          && host->last.level == FREEHOLD_PRESSURE_LEVEL_LOW);
    CHECK(host->last.watermarks[1] == 20000);
}

int main(void)
{
    configurations();

    /* Two nodes of a zone each; the second has room for more memory. */
    const freehold_frame_range memory[3] = {
        {0x1000, 0x9000}, {0x80000, 0x83000}, {0x83000, 0x84000}};
    const freehold_zone zones[2] = {
        {.memory = &memory[0], .memory_count = 1, .watermarks = FREEHOLD_WATERMARK_RULE_NONE},
        {.memory = &memory[1],
         .memory_count = 2,
         .span = {0x80000, 0xa0000},
         .node = 1,
         .spare_sections = 1,
         .watermarks = FREEHOLD_WATERMARK_RULE_FRAMES,
         .min = 10,
         .low = 20000,
         .high = 30000},
    };
    freehold_config config;
    freehold_config_init(&config, CPUS, zones, 2);
    config.extra_ranges = 4;

    struct host host = {0};
    const freehold_platform platform = {.user = &host,
                                        .current_cpu = current_cpu,
                                        .heavy_barrier = heavy_barrier,
                                        .pressure = pressure};

    size_t size;
    OK(freehold_metadata_size(&config, &size, &error));
    /* Any alignment will do. */
    for (size_t shift = 0; shift < 130; shift += 43) {
        char *metadata = malloc(size + shift);
        freehold_allocator *allocator;
        OK(freehold_new(&config, metadata + shift, size, &platform, &allocator, &error));
        requests(allocator, &host);
        OK(freehold_validate(allocator, &error));
        frees(allocator);
        on_and_owned(allocator, &host);
        OK(freehold_validate(allocator, &error));
        hotplug(allocator);
        isolated(allocator);
        emptied(allocator);
        contiguous(allocator);
        OK(freehold_validate(allocator, &error));
        reserve(allocator);
        statistics(allocator, &host);
        OK(freehold_validate(allocator, &error));
        OK(freehold_destroy(allocator, &error));
        free(metadata);
    }
    OK(freehold_destroy(NULL, &error));
    FAILS(freehold_validate(NULL, &error), FREEHOLD_STATUS_NULL_POINTER);
    CHECK(strcmp(freehold_strerror(FREEHOLD_STATUS_OK), "success") == 0);
    CHECK(strcmp(freehold_strerror(12345), "unknown status") == 0);
    CHECK(freehold_version_number() >> 16 == FREEHOLD_VERSION_MAJOR);
    CHECK(freehold_version()[0] == '0' + FREEHOLD_VERSION_MAJOR);
    puts("bare: all right");
    return 0;
}
