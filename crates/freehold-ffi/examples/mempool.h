/* A pool of packet buffers behind a table of functions, in the shape of DPDK's `rte_mempool_ops`: what a program that has a
 * mempool calls stays as it is. DPDK itself is not needed; where it is there, each function is the body of the one of the same
 * name, with `mempool *` for `struct rte_mempool *` (its `pool_data`, to be exact).
 *
 * Why over Freehold? A ring of object pointers, DPDK's default, cannot merge, split or give back: memory that went into the
 * pool is the pool's for ever, and in pieces of one size. Here an object is a chunk of frames of memory that the program brings
 * (`populate`: huge pages, a memzone, anything mapped), accounted for in bitmaps beside it. A core frees what another one has
 * received without a lock, objects that are free are wholly free memory again (`mempool_contiguous`), and an object that is put
 * back twice, or was never taken, is refused instead of being handed out twice (or, where the first free still waits in another
 * core's buffer, counted when that arrives). It has the shape of rte_mempool_ops and needs no DPDK.
 *
 * Each function says in a word who may call it; 0 is success, a negative errno anything else.
 */
#ifndef FREEHOLD_EXAMPLE_MEMPOOL_H
#define FREEHOLD_EXAMPLE_MEMPOOL_H

#include <freehold.h>

/* Pieces of memory that a pool can be made of. */
enum { MEMPOOL_CHUNKS = 16 };

struct mempool_chunk {
    freehold_allocator *allocator;
    void *metadata;
    uint64_t start, end; /* frame numbers: addresses divided by 4096 */
};

typedef struct mempool {
    uint32_t element_size; /* bytes; rounded up to frames, and to a power of two of them */
    uint16_t lcores;
    uint16_t (*lcore_id)(void *user); /* which core the caller is on: below `lcores` */
    uint8_t order;
    unsigned chunk_count;
    struct mempool_chunk chunks[MEMPOOL_CHUNKS];
} mempool;

typedef struct mempool_ops {
    char name[32];
    /* Once, before all others. */
    int (*alloc)(mempool *pool);
    /* Once, after all others. The memory is the program's again. */
    void (*free)(mempool *pool);
    /* Any core. Puts objects back: all of them, or those before the first that is refused (-EINVAL). */
    int (*enqueue)(mempool *pool, void *const *objects, unsigned n);
    /* Any core. Takes `n` objects, or none (-ENOBUFS). */
    int (*dequeue)(mempool *pool, void **objects, unsigned n);
    /* Any core. Objects that could be taken; exact while nothing runs. */
    unsigned (*get_count)(const mempool *pool);
    /* One core at a time, others may run. Adds memory; how many objects that makes, or a negative errno. */
    int (*populate)(mempool *pool, void *memory, size_t bytes);
} mempool_ops;

/* The operations over Freehold. */
extern const mempool_ops mempool_freehold_ops;

/* What DPDK's operations do not have: `n` objects' worth of memory in one piece, to be put back object by object or in any other
 * parts. Any core. Null where there is no such run. */
void *mempool_contiguous(mempool *pool, unsigned n);

#endif
