/* The mempool of examples/, through its table only, as a program with a mempool uses it: one core receives, another transmits. */
#define _DEFAULT_SOURCE
#include "../examples/mempool.c"

#include <pthread.h>
#include <stdlib.h>

#include "check.h"

/* No more under way than the smaller of the pools has: 512 objects of 16 KiB. */
enum { BURST = 32, BURSTS = 2000, SLOTS = 8, MEMORY = 8 << 20 };

static _Thread_local uint16_t lcore;

static uint16_t my_lcore(void *user)
{
    (void)user;
    return lcore;
}

static const mempool_ops *ops = &mempool_freehold_ops;

struct link {
    mempool *pool;
    void *bursts[SLOTS][BURST];
    unsigned sent, received;
    uint64_t sum;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
};

static void *transmit(void *user)
{
    struct link *link = user;
    lcore = 1;
    for (unsigned b = 0; b < BURSTS; b++) {
        void *burst[BURST];
        pthread_mutex_lock(&link->mutex);
        while (link->received == link->sent)
            pthread_cond_wait(&link->changed, &link->mutex);
        memcpy(burst, link->bursts[b % SLOTS], sizeof burst);
        link->received++;
        pthread_cond_signal(&link->changed);
        pthread_mutex_unlock(&link->mutex);
        for (unsigned i = 0; i < BURST; i++)
            link->sum += *(uint64_t *)burst[i];
        CHECK(ops->enqueue(link->pool, burst, BURST) == 0);
    }
    return NULL;
}

static void pipeline(mempool *pool)
{
    struct link link = {.pool = pool, .mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    pthread_t thread;
    uint64_t sum = 0;
    CHECK(pthread_create(&thread, NULL, transmit, &link) == 0);
    for (unsigned b = 0; b < BURSTS; b++) {
        void *burst[BURST];
        CHECK(ops->dequeue(pool, burst, BURST) == 0);
        for (unsigned i = 0; i < BURST; i++) {
            *(uint64_t *)burst[i] = b * BURST + i;
            sum += b * BURST + i;
        }
        pthread_mutex_lock(&link.mutex);
        while (link.sent - link.received == SLOTS)
            pthread_cond_wait(&link.changed, &link.mutex);
        memcpy(link.bursts[b % SLOTS], burst, sizeof burst);
        link.sent++;
        pthread_cond_signal(&link.changed);
        pthread_mutex_unlock(&link.mutex);
    }
    pthread_join(thread, NULL);
    CHECK(link.sum == sum);
}

/* Of elements of that size. `memory` is aligned to a megabyte. */
static void pool_of(uint32_t element_size, unsigned order, char *memory)
{
    mempool pool = {.element_size = element_size, .lcores = 2, .lcore_id = my_lcore};
    const unsigned total = (MEMORY / 4096) >> order;
    static void *objects[MEMORY / 4096 + 1];

    CHECK(ops->alloc(&pool) == 0 && pool.order == order);
    CHECK(ops->get_count(&pool) == 0 && ops->dequeue(&pool, objects, 1) == -ENOBUFS);
    /* In two pieces that are no neighbours to it, and each of them once. */
    CHECK(ops->populate(&pool, memory, MEMORY / 2) == (int)total / 2);
    CHECK(ops->populate(&pool, memory + MEMORY / 2, MEMORY / 2) == (int)total / 2);
    CHECK(ops->populate(&pool, memory + MEMORY / 4, MEMORY / 2) == -EEXIST);
    CHECK(ops->populate(&pool, memory, 100) == -EINVAL);
    CHECK(ops->get_count(&pool) == total);

    /* All or nothing. */
    CHECK(ops->dequeue(&pool, objects, total + 1) == -ENOBUFS);
    CHECK(ops->get_count(&pool) == total);
    CHECK(ops->dequeue(&pool, objects, total) == 0);
    CHECK(ops->get_count(&pool) == 0 && ops->dequeue(&pool, objects + total, 1) == -ENOBUFS);
    for (unsigned i = 0; i < total; i++) {
        CHECK((uintptr_t)objects[i] % (4096u << order) == 0);
        memset(objects[i], (int)i, 4096u << order);
    }
    for (unsigned i = 0; i < total; i++)
        CHECK(*(unsigned char *)objects[i] == (unsigned char)i);
    CHECK(ops->enqueue(&pool, objects, total) == 0);
    CHECK(ops->get_count(&pool) == total);

    /* Put back twice, never taken, or no object: refused, and none is handed out twice. */
    void *wrong[] = {objects[0], memory - 4096, memory + MEMORY, memory + 1, NULL};
    for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++)
        CHECK(ops->enqueue(&pool, &wrong[i], 1) == -EINVAL);
    CHECK(ops->get_count(&pool) == total);

    pipeline(&pool);
    for (unsigned i = 0; i < pool.chunk_count; i++) {
        CHECK(freehold_drain_all(pool.chunks[i].allocator, NULL) == FREEHOLD_STATUS_OK);
        CHECK(freehold_validate(pool.chunks[i].allocator, NULL) == FREEHOLD_STATUS_OK);
    }
    CHECK(ops->get_count(&pool) == total);

    /* What no ring of pointers can do: whatever came back in pieces is one piece. */
    char *run = mempool_contiguous(&pool, total / 2);
    CHECK(run == memory || run == memory + MEMORY / 2);
    CHECK(mempool_contiguous(&pool, total / 2 + 1) == NULL);
    for (unsigned i = 0; i < total / 2; i++)
        objects[i] = run + (size_t)i * (4096u << order);
    CHECK(ops->enqueue(&pool, objects, total / 2) == 0);
    ops->free(&pool);
}

int main(void)
{
    char *memory = aligned_alloc(1 << 20, MEMORY);
    CHECK(memory != NULL);
    mempool pool = {.element_size = 0, .lcores = 1};
    CHECK(ops->alloc(&pool) == -EINVAL);
    pool_of(2048, 0, memory);
    pool_of(9000, 2, memory);
    free(memory);
    printf("mempool: all right\n");
    return 0;
}
