/* Packet buffers of several neighbouring slots of another pool. */
#include "pool.h"

#include <errno.h>
#include <stdlib.h>

#include <rte_errno.h>
#include <rte_malloc.h>
#include <rte_mbuf.h>

#include "freehold_mempool.h"

/* What DPDK keeps as the jumbo pool's data. */
struct jumbo {
	struct pool *parent;
	uint8_t order;
};

static int jumbo_alloc(struct rte_mempool *mp)
{
	/* Made by freehold_mempool_jumbo_create() only, which does not come here. */
	RTE_SET_USED(mp);
	return -ENOTSUP;
}

/* Whether the parent is of this process. Another one sees this pool's books, which are in shared memory, and could only damage them. */
static inline bool is_here(const struct jumbo *jumbo)
{
	return pool_of(jumbo->parent->mp) == jumbo->parent;
}

/* The packet buffer becomes the parent's again, slot by slot. */
static int put_one(struct rte_mempool *mp, const struct jumbo *jumbo, const freehold_cpu *cpu, void *object)
{
	struct pool *pool = jumbo->parent;
	uint64_t frame = frame_of(pool, object), slots = UINT64_C(1) << jumbo->order;
	/* One that was put back already has a header of the parent's. */
	if (frame == FREEHOLD_NO_PFN || rte_mempool_from_obj(object) != mp) {
		atomic_fetch_add_explicit(&pool->refused, 1, memory_order_relaxed);
		POOL_LOG(ERR, "%s: %p was put back, which is no object of the pool\n", mp->name, object);
		return -EINVAL;
	}
	list_restore(pool, object, 0, slots);
	for (uint64_t i = 0; i < slots; i++)
		rte_pktmbuf_init(pool->mp, NULL, (uint8_t *)object + i * pool->slot, (unsigned int)i);
	freehold_error error;
	if (freehold_free(cpu_or_shared(pool, cpu), frame, jumbo->order, &error) == FREEHOLD_STATUS_OK)
		return 0;
	POOL_LOG(ERR, "%s: %s\n", mp->name, error.message);
	return -EINVAL;
}

static int jumbo_enqueue(struct rte_mempool *mp, void *const *objects, unsigned int n)
{
	const struct jumbo *jumbo = mp->pool_data;
	if (unlikely(!is_here(jumbo)))
		return pool_not_here(mp);
	const freehold_cpu *cpu = here(jumbo->parent)->cpu;
	int rc = 0;
	for (unsigned int i = 0; i < n; i++)
		if (put_one(mp, jumbo, cpu, objects[i]) < 0)
			rc = -EINVAL;
	return rc;
}

static int jumbo_dequeue(struct rte_mempool *mp, void **objects, unsigned int n)
{
	const struct jumbo *jumbo = mp->pool_data;
	struct pool *pool = jumbo->parent;
	if (unlikely(!is_here(jumbo)))
		return pool_not_here(mp);
	const freehold_cpu *cpu = cpu_or_shared(pool, here(pool)->cpu);
	const freehold_request request = {.order = jumbo->order};
	for (unsigned int i = 0; i < n; i++) {
		uint64_t frame;
		if (freehold_alloc(cpu, &request, &frame, NULL) != FREEHOLD_STATUS_OK) {
			jumbo_enqueue(mp, objects, i);
			return -ENOBUFS;
		}
		objects[i] = object_of(pool, frame);
		list_remove(pool, objects[i], UINT64_C(1) << jumbo->order);
		rte_mempool_get_header(objects[i])->mp = mp;
		rte_pktmbuf_init(mp, NULL, objects[i], i);
	}
	return 0;
}

/* What lcores have in their caches is the parent's memory; DPDK frees the caches as they are. */
static void jumbo_free(struct rte_mempool *mp)
{
	for (unsigned int lcore = 0; mp->cache_size != 0 && lcore < RTE_MAX_LCORE; lcore++)
		rte_mempool_cache_flush(&mp->local_cache[lcore], mp);
	rte_free(mp->pool_data);
}

static unsigned int jumbo_count(const struct rte_mempool *mp)
{
	const struct jumbo *jumbo = mp->pool_data;
	const struct pool *pool = jumbo->parent;
	uint64_t free = 0;
	for (unsigned int zone = 0; is_here(jumbo) && zone < pool->zones; zone++) {
		freehold_zone_stats stats;
		if (freehold_read_zone_stats(pool->engine, zone, &stats, NULL) != FREEHOLD_STATUS_OK)
			continue;
		for (unsigned int order = jumbo->order; order < FREEHOLD_ORDERS; order++)
			free += stats.free_chunks[order] << (order - jumbo->order);
	}
	return (unsigned int)free;
}

static const struct rte_mempool_ops jumbo_ops = {
	.name = "freehold_jumbo",
	.alloc = jumbo_alloc,
	.free = jumbo_free,
	.enqueue = jumbo_enqueue,
	.dequeue = jumbo_dequeue,
	.get_count = jumbo_count,
};

RTE_MEMPOOL_REGISTER_OPS(jumbo_ops)

/* Device drivers that register a pool's memory themselves ask for its pieces, and whether packets go through it at all: both are the
 * parent's. DPDK frees what describes the pieces with the pool, and the pieces, for which nothing says how, not. */
static int share_memory(struct rte_mempool *mp, const struct rte_mempool *parent)
{
	const struct rte_mempool_memhdr *piece;
	STAILQ_FOREACH(piece, &parent->mem_list, next) {
		struct rte_mempool_memhdr *same = rte_zmalloc("freehold", sizeof *same, 0);
		if (same == NULL)
			return -ENOMEM;
		same->mp = mp;
		same->addr = piece->addr;
		same->iova = piece->iova;
		same->len = piece->len;
		STAILQ_INSERT_TAIL(&mp->mem_list, same, next);
		mp->nb_mem_chunks++;
	}
	mp->flags = (mp->flags & ~RTE_MEMPOOL_F_NON_IO) | (parent->flags & RTE_MEMPOOL_F_NON_IO);
	return 0;
}

struct rte_mempool *freehold_mempool_jumbo_create(struct rte_mempool *parent, const char *name, uint16_t data_room,
    unsigned int cache_size)
{
	if (!pool_is_ours(parent) || parent->private_data_size < sizeof(struct rte_pktmbuf_pool_private)) {
		rte_errno = EINVAL;
		return NULL;
	}
	struct pool *pool = pool_of(parent);
	uint16_t priv = rte_pktmbuf_priv_size(parent);
	uint32_t element = (uint32_t)sizeof(struct rte_mbuf) + priv + data_room;
	uint8_t order = 0;
	while ((pool->slot << order) < (uint64_t)parent->header_size + element)
		order++;
	if (order > pool->align_order) {
		rte_errno = ENOTSUP;
		return NULL;
	}
	struct jumbo *jumbo = rte_zmalloc_socket("freehold", sizeof *jumbo, 0, parent->socket_id);
	struct rte_mempool *mp = rte_mempool_create_empty(name, RTE_MAX(parent->size >> order, 1u), element, cache_size,
	    sizeof(struct rte_pktmbuf_pool_private), parent->socket_id, 0);
	if (jumbo == NULL || mp == NULL || mp->header_size != parent->header_size
	    || share_memory(mp, parent) < 0 || rte_mempool_set_ops_byname(mp, jumbo_ops.name, NULL) < 0) {
		rte_free(jumbo);
		rte_mempool_free(mp);
		return NULL;
	}
	struct rte_pktmbuf_pool_private room = {.mbuf_data_room_size = data_room, .mbuf_priv_size = priv};
	*jumbo = (struct jumbo){pool, order};
	mp->pool_data = jumbo;
	/* There is nothing to populate: its objects are the parent's memory. */
	mp->flags |= RTE_MEMPOOL_F_POOL_CREATED;
	mp->populated_size = mp->size;
	rte_pktmbuf_pool_init(mp, &room);
	return mp;
}
