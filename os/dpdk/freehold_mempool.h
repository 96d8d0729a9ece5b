/* What a pool of the `freehold` mempool driver can do beyond DPDK's own mempool functions. A program needs none of this to use
 * the driver: `--mbuf-pool-ops-name=freehold`, or rte_pktmbuf_pool_create_by_ops(..., "freehold"), is enough.
 *
 * A slot is what one object of a pool takes up: DPDK's header, the object, its trailer. Slots are neighbours in memory, so that
 * n slots are one piece of n times a slot's size; to Freehold each is a frame.
 *
 * The functions return 0 or a count where they succeed, and a negative errno otherwise. All of them are for control threads: they
 * may run while lcores get and put objects, but not two at once on the same pool, nor beside rte_mempool_populate_*() or
 * rte_mempool_obj_iter() of it.
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

/* A pool of packet buffers each of which is 2^n neighbouring slots of `parent`: the smallest 2^n that give `data_room` bytes in one
 * segment (at most UINT16_MAX), headroom included. The memory is the parent's: what no jumbo buffer takes up is there for ordinary
 * ones, and the other way round. Device drivers see its memory in pieces and flags, as the parent's (rte_mempool_mem_iter()), but
 * are sent no event that it is there (rte_mempool_event_callback_register()).
 *
 * `parent` is a pool of this driver made by rte_pktmbuf_pool_create*(), with nothing in its objects that rte_pktmbuf_init() does
 * not put there. The jumbo pool goes by rte_mempool_free(), before its parent. Null with rte_errno set: -ENOTSUP where the parent's
 * memory is in pieces too small for it. */
struct rte_mempool *freehold_mempool_jumbo_create(struct rte_mempool *parent, const char *name, uint16_t data_room,
    unsigned int cache_size);

/* Gives memory that no object in use lies in back to the system, at most `bytes` of it and in whole pages of whatever size the pool
 * has; how many bytes that was. The objects in it are taken out of the pool until freehold_mempool_take_back().
 *
 * Only where no device has the pages mapped: refused with -ENOTSUP where IO addresses are physical ones or VFIO is in use, since a
 * page that comes back is another one. Drivers that register memory with the kernel by themselves (mlx5, mlx4, mana) are not seen:
 * not beside one of them. Memory that DPDK did not allocate is left alone. Objects that lie in lcores' caches are in
 * use. */
int64_t freehold_mempool_give_back(struct rte_mempool *pool, uint64_t bytes);

/* Puts at least `objects` objects that were given back into the pool again, or all that were; how many it is. `init` is called for
 * each (rte_pktmbuf_init() for packet buffers), and may be null. */
int64_t freehold_mempool_take_back(struct rte_mempool *pool, uint32_t objects, rte_mempool_obj_cb_t *init, void *init_arg);

struct freehold_mempool_stats {
	uint64_t objects;            /* that the pool has now, free or in use */
	uint64_t free;               /* of these; what lies in lcores' caches is in use */
	uint64_t given_back;         /* objects whose memory the system has */
	uint64_t given_back_bytes;   /* of memory */
	uint64_t jumbo_slots;        /* neighbouring free slots that the largest jumbo buffer could have; 0 where none is free */
	uint64_t chunks;             /* pieces of memory that DPDK brought */
	uint64_t lcores;             /* that have a CPU of the pool for themselves */
	uint64_t gets;               /* objects taken out, jumbo buffers included */
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
