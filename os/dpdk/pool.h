/* A pool's books, shared by the driver's parts. */
#ifndef FREEHOLD_DPDK_POOL_H
#define FREEHOLD_DPDK_POOL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_mempool.h>

#include "freehold.h"

extern int freehold_logtype;
#define POOL_LOG(level, ...)                                                                       \
	rte_log(RTE_LOG_##level, (uint32_t)freehold_logtype, "FREEHOLD: " __VA_ARGS__)

/* Freehold's CPU n is lcore n. Threads that are no lcore share one more. */
#define SHARED_CPU ((uint16_t)RTE_MAX_LCORE)
#define CPUS ((uint16_t)(RTE_MAX_LCORE + 1))

/* Memory nodes that a pool for "any socket" tells apart. */
#define NODES RTE_MAX_NUMA_NODES

/* A piece of memory that is full of slots. */
struct chunk {
	uint8_t *object;       /* the first slot's object */
	uint64_t first, count; /* frame numbers: those of its slots */
};

/* An lcore's own, or what threads that are none share. */
struct lcore {
	const freehold_cpu *cpu; /* null before its first call, and for the shared one */
	/* Where its last objects were: indices of chunks. A guess, which may be wrong, and which
	 * threads that share it change at any moment: read once, and written, with nothing ordered
	 * by it. */
	_Atomic unsigned int put_in, got_from;
} __rte_cache_aligned;

struct pool {
	/* What getting and putting read. Written before the first object is there. */
	freehold_allocator *engine;
	uint64_t slot;	    /* bytes */
	uint64_t inverse;   /* of the odd part of that, modulo 2^64 */
	unsigned int shift; /* its trailing zero bits */
	unsigned int chunk_count;
	struct chunk *chunks; /* by frame number */
	struct chunk *by_address;
	struct lcore lcores[CPUS];

	/* The rest. */
	struct rte_mempool *mp;
	void *metadata;
	size_t metadata_bytes;
	uint64_t zone_frames; /* frames of each zone */
	unsigned int zones; /* one for each memory node, and one for other memory, if there is more
			       than one */
	uint64_t next[NODES + 1]; /* the next zone's frame that has no slot */
	unsigned int chunk_room;
	_Atomic uint64_t refused;
};

/* A pool of this process, by what DPDK keeps in `pool_id`; null in another process, which has the
 * numbers but not the memory. */
#define POOLS 1024
extern struct pool *freehold_pools[POOLS];

static inline struct pool *pool_of(const struct rte_mempool *mp)
{
	return freehold_pools[mp->pool_id % POOLS];
}

int pool_create(struct rte_mempool *mp);
void pool_destroy(struct rte_mempool *mp);
int pool_add_chunk(struct pool *pool, uint8_t *object, uint64_t count, int socket, uint64_t *first);
void pool_own(struct pool *pool, unsigned int lcore);
/* Says that the pool is another process's. */
__rte_cold int pool_not_here(const struct rte_mempool *mp);

/* What the caller has in the pool. */
static inline struct lcore *here(struct pool *pool)
{
	unsigned int id = RTE_MIN(rte_lcore_id(), (unsigned int)SHARED_CPU);
	struct lcore *lcore = &pool->lcores[id];
	if (unlikely(lcore->cpu == NULL))
		pool_own(pool, id);
	return lcore;
}

/* An lcore's own CPU, or the one that is shared. */
static inline const freehold_cpu *cpu_or_shared(const struct pool *pool, const freehold_cpu *cpu)
{
	return likely(cpu != NULL) ? cpu : freehold_on(pool->engine, SHARED_CPU);
}

static inline unsigned int guess(const _Atomic unsigned int *chunk)
{
	return atomic_load_explicit(chunk, memory_order_relaxed);
}

static inline void remember(_Atomic unsigned int *chunk, unsigned int index)
{
	atomic_store_explicit(chunk, index, memory_order_relaxed);
}

/* The last chunk that starts at or before it, as an index; 0 where there is none. */
unsigned int chunk_by_frame(const struct pool *pool, uint64_t frame);
unsigned int chunk_by_address(const struct pool *pool, const void *object);

/* Dividing by the size of a slot what is a multiple of it: times the inverse of its odd part, which
 * for anything else gives more than 2^64 divided by that size, as many slots as no chunk has. */
static inline uint64_t slots_in(uint64_t bytes, uint64_t inverse, unsigned int shift)
{
	uint64_t product = bytes * inverse;
	return product >> shift | product << (-shift & 63);
}

static inline void *object_of(const struct pool *pool, uint64_t frame)
{
	const struct chunk *chunk = &pool->chunks[chunk_by_frame(pool, frame)];
	return chunk->object + (frame - chunk->first) * pool->slot;
}

#endif
