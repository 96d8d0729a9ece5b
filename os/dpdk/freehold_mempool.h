/* What a pool of the `freehold` mempool driver says of itself beyond DPDK's own functions. Programs
 * need none of this to use the driver: `--mbuf-pool-ops-name=freehold`, or
 * rte_pktmbuf_pool_create_by_ops(..., "freehold"), is enough. The functions return 0 where they
 * succeed and a negative errno otherwise.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef FREEHOLD_MEMPOOL_H
#define FREEHOLD_MEMPOOL_H

#include <stdint.h>

#include <rte_mempool.h>

#ifdef __cplusplus
extern "C" {
#endif

struct freehold_mempool_stats {
	uint64_t objects;            /* that the pool has now, free or in use */
	uint64_t free;               /* of these; what lies in lcores' caches is in use */
	uint64_t chunks;             /* pieces of memory that DPDK brought */
	uint64_t lcores;             /* that have a CPU of the pool for themselves */
	uint64_t gets;               /* objects taken out */
	uint64_t gets_failed;        /* calls that found too few */
	uint64_t puts_local;         /* objects put back by the lcore that had their block */
	uint64_t puts_remote;        /* by another */
	uint64_t puts_refused;       /* objects that were free already, or none of the pool */
	uint64_t double_puts_late;   /* objects put back twice at the same moment, which no call could see */
	uint64_t refills;            /* times an lcore went to the shared part for more */
	uint64_t recalls;            /* times all lcores were asked for what they have in hand */
	uint64_t shared_writes;      /* to what all lcores write */
	uint64_t metadata_bytes;     /* beside the objects */
};

/* Takes no lock that lcores wait for; exact while no lcore is at work. */
int freehold_mempool_stats_get(const struct rte_mempool *pool, struct freehold_mempool_stats *stats);

/* Walks the pool's books and says whether they are in order: 0 or -EINVAL, the defect being logged. No lcore must be at work. */
int freehold_mempool_validate(const struct rte_mempool *pool);

#ifdef __cplusplus
}
#endif

#endif
