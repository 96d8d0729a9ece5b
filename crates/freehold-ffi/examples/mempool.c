/* See mempool.h. Compiled and run by tests/mempool.c. */
#include "mempool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { FRAME = 4096 };

static uint16_t current_lcore(void *user)
{
    const mempool *pool = user;
    return pool->lcore_id ? pool->lcore_id(user) : 0;
}

static int pool_alloc(mempool *pool)
{
    uint64_t frames = ((uint64_t)pool->element_size + FRAME - 1) / FRAME;
    if (frames == 0 || frames > 512 || pool->lcores == 0)
        return -EINVAL;
    pool->order = 0;
    while ((1ull << pool->order) < frames)
        pool->order++;
    pool->chunk_count = 0;
    return 0;
}

static void pool_free(mempool *pool)
{
    for (unsigned i = 0; i < pool->chunk_count; i++) {
        freehold_destroy(pool->chunks[i].allocator, NULL);
        free(pool->chunks[i].metadata);
    }
    pool->chunk_count = 0;
}

/* An allocator for each piece: pieces may lie anywhere in the address space, and its tables cover what lies between. */
static int pool_populate(mempool *pool, void *memory, size_t bytes)
{
    uint64_t object = 1ull << pool->order;
    freehold_frame_range range;
    range.start = ((uint64_t)(uintptr_t)memory + FRAME - 1) / FRAME;
    range.end = ((uint64_t)(uintptr_t)memory + bytes) / FRAME;
    /* Objects are naturally aligned. */
    range.start = (range.start + object - 1) / object * object;
    range.end = range.end / object * object;
    if (range.start >= range.end)
        return -EINVAL;
    if (pool->chunk_count == MEMPOOL_CHUNKS)
        return -ENOSPC;
    for (unsigned i = 0; i < pool->chunk_count; i++)
        if (range.start < pool->chunks[i].end && pool->chunks[i].start < range.end)
            return -EEXIST;

    struct mempool_chunk chunk = {NULL, NULL, range.start, range.end};
    freehold_zone zone;
    memset(&zone, 0, sizeof zone);
    zone.memory = &range;
    zone.memory_count = 1;
    zone.watermarks = FREEHOLD_WATERMARK_RULE_NONE;
    freehold_config config;
    freehold_config_init(&config, pool->lcores, &zone, 1);
    freehold_platform platform;
    memset(&platform, 0, sizeof platform);
    platform.user = pool;
    platform.current_cpu = current_lcore;
    size_t size;
    if (freehold_metadata_size(&config, &size, NULL) != FREEHOLD_STATUS_OK)
        return -EINVAL;
    chunk.metadata = malloc(size);
    if (!chunk.metadata)
        return -ENOMEM;
    if (freehold_new(&config, chunk.metadata, size, &platform, &chunk.allocator, NULL) != FREEHOLD_STATUS_OK) {
        free(chunk.metadata);
        return -EINVAL;
    }
    pool->chunks[pool->chunk_count] = chunk;
    /* Release: whoever sees the count sees the chunk. */
    __atomic_store_n(&pool->chunk_count, pool->chunk_count + 1, __ATOMIC_RELEASE);
    return (int)((range.end - range.start) / object);
}

static unsigned chunks_of(const mempool *pool)
{
    /* Acquire: with `pool_populate`. */
    return __atomic_load_n(&pool->chunk_count, __ATOMIC_ACQUIRE);
}

static const struct mempool_chunk *chunk_of(const mempool *pool, uint64_t pfn)
{
    for (unsigned i = 0, n = chunks_of(pool); i < n; i++)
        if (pfn >= pool->chunks[i].start && pfn < pool->chunks[i].end)
            return &pool->chunks[i];
    return NULL;
}

static int pool_enqueue(mempool *pool, void *const *objects, unsigned n)
{
    enum { BATCH = 64 };
    uint64_t frames[BATCH];
    for (unsigned done = 0; done < n;) {
        uintptr_t first = (uintptr_t)objects[done];
        const struct mempool_chunk *chunk = chunk_of(pool, first / FRAME);
        if (!chunk || first % FRAME != 0)
            return -EINVAL;
        if (pool->order != 0) {
            if (freehold_free(chunk->allocator, first / FRAME, pool->order, NULL) != FREEHOLD_STATUS_OK)
                return -EINVAL;
            done++;
            continue;
        }
        /* Single frames of one chunk go home together. */
        unsigned batch = 0;
        while (batch < BATCH && done + batch < n) {
            uintptr_t address = (uintptr_t)objects[done + batch];
            if (address % FRAME != 0 || address / FRAME < chunk->start || address / FRAME >= chunk->end)
                break;
            frames[batch++] = address / FRAME;
        }
        if (freehold_free_bulk(chunk->allocator, frames, batch, NULL) != FREEHOLD_STATUS_OK)
            return -EINVAL;
        done += batch;
    }
    return 0;
}

static int pool_dequeue(mempool *pool, void **objects, unsigned n)
{
    freehold_request request;
    memset(&request, 0, sizeof request);
    request.order = pool->order;
    request.migratetype = FREEHOLD_MIGRATETYPE_UNMOVABLE;
    unsigned got = 0;
    for (unsigned i = 0, chunks = chunks_of(pool); i < chunks && got < n; i++) {
        const freehold_allocator *allocator = pool->chunks[i].allocator;
        if (pool->order == 0) {
            enum { BATCH = 64 };
            uint64_t frames[BATCH];
            for (size_t more = 1; more != 0 && got < n;) {
                size_t wanted = n - got < BATCH ? n - got : BATCH;
                more = 0;
                if (freehold_alloc_bulk(allocator, &request, frames, wanted, &more, NULL) != FREEHOLD_STATUS_OK)
                    break;
                for (size_t f = 0; f < more; f++)
                    objects[got++] = (void *)(uintptr_t)(frames[f] * FRAME);
            }
        } else {
            uint64_t pfn;
            while (got < n && freehold_alloc(allocator, &request, &pfn, NULL) == FREEHOLD_STATUS_OK)
                objects[got++] = (void *)(uintptr_t)(pfn * FRAME);
        }
    }
    if (got == n)
        return 0;
    pool_enqueue(pool, objects, got);
    return -ENOBUFS;
}

static unsigned pool_get_count(const mempool *pool)
{
    uint64_t objects = 0;
    for (unsigned i = 0, n = chunks_of(pool); i < n; i++) {
        freehold_zone_stats stats;
        if (freehold_read_zone_stats(pool->chunks[i].allocator, 0, &stats, NULL) != FREEHOLD_STATUS_OK)
            continue;
        if (pool->order == 0) {
            objects += stats.free;
            continue;
        }
        for (unsigned order = pool->order; order < FREEHOLD_ORDERS; order++)
            objects += stats.free_chunks[order] << (order - pool->order);
    }
    return (unsigned)objects;
}

void *mempool_contiguous(mempool *pool, unsigned n)
{
    for (unsigned i = 0, chunks = chunks_of(pool); i < chunks; i++) {
        const struct mempool_chunk *chunk = &pool->chunks[i];
        uint64_t pfn;
        if (freehold_alloc_contig(chunk->allocator, (uint64_t)n << pool->order, pool->order, chunk->start, chunk->end, NULL,
                                  NULL, &pfn, NULL) == FREEHOLD_STATUS_OK)
            return (void *)(uintptr_t)(pfn * FRAME);
    }
    return NULL;
}

const mempool_ops mempool_freehold_ops = {
    "freehold", pool_alloc, pool_free, pool_enqueue, pool_dequeue, pool_get_count, pool_populate,
};
