/* The bare allocator from several threads: each owns a CPU, frames are freed by others than those
 * who allocated them. */
#define _GNU_SOURCE
#include <freehold.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"

enum { THREADS = 3, ROUNDS = 400, BATCH = 64 };

static freehold_allocator *allocator;
static int has_membarrier;

/* A ring from each thread to the next, one batch long. */
static struct ring {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    uint64_t pfns[BATCH];
    int full;
} rings[THREADS];

static void heavy_barrier(void *user)
{
    (void)user;
    CHECK(syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0);
}

static void *work(void *argument)
{
    const unsigned me = (unsigned)(size_t)argument;
    struct ring *out = &rings[me], *in = &rings[(me + THREADS - 1) % THREADS];
    const freehold_cpu *cpu;
    freehold_error error;
    freehold_request request;
    memset(&request, 0, sizeof request);
    request.migratetype = FREEHOLD_MIGRATETYPE_MOVABLE;

    OK(freehold_own(allocator, (uint16_t)me, &cpu, &error));
    for (unsigned round = 0; round < ROUNDS; round++) {
        uint64_t pfns[BATCH];
        size_t allocated;
        OK(freehold_alloc_bulk(cpu, &request, pfns, BATCH, &allocated, &error));
        CHECK(allocated == BATCH);
        pthread_mutex_lock(&out->mutex);
        while (out->full)
            pthread_cond_wait(&out->changed, &out->mutex);
        memcpy(out->pfns, pfns, sizeof pfns);
        out->full = 1;
        pthread_cond_broadcast(&out->changed);
        pthread_mutex_unlock(&out->mutex);

        pthread_mutex_lock(&in->mutex);
        while (!in->full)
            pthread_cond_wait(&in->changed, &in->mutex);
        memcpy(pfns, in->pfns, sizeof pfns);
        in->full = 0;
        pthread_cond_broadcast(&in->changed);
        pthread_mutex_unlock(&in->mutex);
        if (round % 2) {
            OK(freehold_free_bulk(cpu, pfns, BATCH, &error));
        } else {
            for (unsigned i = 0; i < BATCH; i++)
                OK(freehold_free(cpu, pfns[i], 0, &error));
        }
        if (round % 50 == 0)
            OK(freehold_tick(freehold_on(allocator, (uint16_t)((me + 1) % THREADS)), &error));
    }
    OK(freehold_release(cpu, &error));
    return NULL;
}

static void run(const freehold_config *config, const freehold_platform *platform)
{
    freehold_error error;
    size_t size;
    pthread_t threads[THREADS];
    freehold_zone_stats stats;
    OK(freehold_metadata_size(config, &size, &error));
    void *metadata = malloc(size);
    OK(freehold_new(config, metadata, size, platform, &allocator, &error));
    for (size_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
    for (size_t i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    OK(freehold_drain_all(allocator, &error));
    OK(freehold_validate(allocator, &error));
    OK(freehold_read_zone_stats(allocator, 0, &stats, &error));
    CHECK(stats.free == stats.managed && stats.free_blocks == stats.managed / 512);
    OK(freehold_destroy(allocator, &error));
    free(metadata);
}

int main(void)
{
    const freehold_frame_range memory = {0, 16384};
    freehold_zone zone;
    freehold_config config;
    freehold_platform platform;
    memset(&zone, 0, sizeof zone);
    memset(&platform, 0, sizeof platform);
    zone.memory = &memory;
    zone.memory_count = 1;
    freehold_config_init(&config, THREADS, &zone, 1);
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_mutex_init(&rings[i].mutex, NULL);
        pthread_cond_init(&rings[i].changed, NULL);
    }
    run(&config, &platform);
    has_membarrier = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
    if (has_membarrier) {
        platform.heavy_barrier = heavy_barrier;
        run(&config, &platform);
    }
    printf("threads: all right%s\n",
           has_membarrier ? "" : "; SKIPPED the heavy barrier: no membarrier(2) here");
    return 0;
}
