/* Allocations and frees on an owned CPU and nothing else, for tools that count instructions: `make count` does.
 *
 *   pairs ORDER BARRIER N     N pairs of that order; BARRIER 1: the platform has a heavy barrier, 0: it has none
 *   pairs bulk BARRIER N      N calls that allocate 64 single frames, and free them by another
 *
 * What is done before is the same for every N, so the difference of two runs is what the pairs cost, loop included. */

#include <freehold.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BULK = 64, USED = 4096 };

static void heavy_barrier(void *user)
{
    /* There is one thread: nobody to wait for. */
    (void)user;
}

static const freehold_owned_cpu *own_cpu(int barrier)
{
    static const freehold_frame_range memory = {0, 1 << 20};
    freehold_zone zone = {0};
    freehold_config config;
    freehold_platform platform = {0};
    freehold_allocator *allocator;
    const freehold_owned_cpu *cpu;
    freehold_error error;
    size_t size;
    void *metadata;

    zone.span = memory;
    zone.memory = &memory;
    zone.memory_count = 1;
    freehold_config_init(&config, 1, &zone, 1);
    platform.heavy_barrier = barrier ? heavy_barrier : NULL;
    if (freehold_metadata_size(&config, &size, &error) != FREEHOLD_STATUS_OK || (metadata = malloc(size)) == NULL
        || freehold_new(&config, metadata, size, &platform, &allocator, &error) != FREEHOLD_STATUS_OK
        || freehold_own(allocator, 0, &cpu, &error) != FREEHOLD_STATUS_OK) {
        return NULL;
    }
    return cpu;
}

/* So that no frame is handed out for the first time in the loop. */
static freehold_status used(const freehold_owned_cpu *cpu, const freehold_request *request)
{
    static uint64_t pfns[USED];
    size_t i, allocated;
    freehold_status status = freehold_owned_alloc_bulk(cpu, request, pfns, USED, &allocated, NULL);

    for (i = 0; status == FREEHOLD_STATUS_OK && i < allocated; i++) {
        status = freehold_owned_free(cpu, pfns[i], 0, NULL);
    }
    return status;
}

static freehold_status pairs(const freehold_owned_cpu *cpu, const freehold_request *request, unsigned long n)
{
    freehold_status status;
    uint64_t pfn;

    for (; n > 0; n--) {
        if ((status = freehold_owned_alloc(cpu, request, &pfn, NULL)) != FREEHOLD_STATUS_OK
            || (status = freehold_owned_free(cpu, pfn, request->order, NULL)) != FREEHOLD_STATUS_OK) {
            return status;
        }
    }
    return FREEHOLD_STATUS_OK;
}

static freehold_status bulks(const freehold_owned_cpu *cpu, const freehold_request *request, unsigned long n)
{
    freehold_status status;
    uint64_t pfns[BULK];
    size_t allocated;

    for (; n > 0; n--) {
        if ((status = freehold_owned_alloc_bulk(cpu, request, pfns, BULK, &allocated, NULL)) != FREEHOLD_STATUS_OK
            || (status = freehold_owned_free_bulk(cpu, pfns, allocated, NULL)) != FREEHOLD_STATUS_OK) {
            return status;
        }
    }
    return FREEHOLD_STATUS_OK;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "0";
    const int bulk = strcmp(what, "bulk") == 0;
    const freehold_owned_cpu *cpu = own_cpu(argc > 2 ? atoi(argv[2]) : 1);
    const unsigned long n = argc > 3 ? strtoul(argv[3], NULL, 10) : 1000;
    freehold_request request = {0};
    freehold_status status = FREEHOLD_STATUS_OTHER;

    request.migratetype = FREEHOLD_MIGRATETYPE_MOVABLE;
    if (cpu != NULL) {
        status = used(cpu, &request);
    }
    if (status == FREEHOLD_STATUS_OK) {
        request.order = bulk ? 0 : (uint8_t)atoi(what);
        status = bulk ? bulks(cpu, &request, n) : pairs(cpu, &request, n);
    }
    if (status != FREEHOLD_STATUS_OK) {
        fprintf(stderr, "pairs: %s\n", freehold_strerror(status));
    }
    return status != FREEHOLD_STATUS_OK;
}
