/* DPDK's mempool operations. */
#include "pool.h"

#include <errno.h>

#include <rte_memory.h>

/* Frame numbers on the stack at a time: as many as DPDK takes at once to fill an lcore's cache. */
enum { BATCH = 2 * RTE_MEMPOOL_CACHE_MAX_SIZE };

static const freehold_request one_frame;

/* All of it, or the frames before the first that is refused, as `error` says. */
static inline int free_frames(struct pool *pool, const freehold_cpu *cpu, const uint64_t *frames,
    size_t n, freehold_error *error)
{
	return (int)freehold_free_bulk(cpu_or_shared(pool, cpu), frames, n, error);
}

/* Leaves out what is refused, and says so. */
static __rte_cold __rte_noinline int free_what_can_be(struct pool *pool, const freehold_cpu *cpu,
    const uint64_t *frames, size_t n, const freehold_error *first_error)
{
	freehold_error error = *first_error;
	for (;;) {
		if (atomic_fetch_add_explicit(&pool->refused, 1, memory_order_relaxed) < 16)
			POOL_LOG(ERR, "%s: an object was put back that cannot be: %s\n",
			    pool->mp->name, error.message);
		size_t done = (size_t)error.done + 1;
		if (done >= n)
			return -EINVAL;
		frames += done;
		n -= done;
		if (free_frames(pool, cpu, frames, n, &error) == FREEHOLD_STATUS_OK)
			return -EINVAL;
	}
}

static __rte_cold __rte_noinline void no_object(struct pool *pool, const void *object)
{
	if (atomic_fetch_add_explicit(&pool->refused, 1, memory_order_relaxed) < 16)
		POOL_LOG(ERR, "%s: %p was put back, which is no object of the pool\n",
		    pool->mp->name, object);
}

/* The frames of up to BATCH objects, but for those that are none of the pool; how many. */
static inline size_t frames_of(struct pool *pool, struct lcore *lcore, void *const *objects,
    unsigned int n, uint64_t *restrict frames)
{
	const uint64_t inverse = pool->inverse;
	const unsigned int shift = pool->shift;
	/* A copy: the compiler cannot know that writing frames leaves it alone. */
	struct chunk chunk = pool->by_address[guess(&lcore->put_in)];
	size_t count = 0;
	for (unsigned int i = 0; i < n; i++) {
		uint64_t slot =
		    slots_in((uintptr_t)objects[i] - (uintptr_t)chunk.object, inverse, shift);
		if (unlikely(slot >= chunk.count)) {
			unsigned int found = chunk_by_address(pool, objects[i]);
			remember(&lcore->put_in, found);
			chunk = pool->by_address[found];
			slot = slots_in(
			    (uintptr_t)objects[i] - (uintptr_t)chunk.object, inverse, shift);
			if (slot >= chunk.count) {
				no_object(pool, objects[i]);
				continue;
			}
		}
		frames[count++] = chunk.first + slot;
	}
	return count;
}

/* One object: what a device driver puts back by itself, and without an lcore cache comes here as it
 * is. False where it is not done, nor anything else. */
static __rte_always_inline bool enqueue_one(
    const struct pool *pool, const struct lcore *lcore, const void *object)
{
	const struct chunk *chunk = &pool->by_address[guess(&lcore->put_in)];
	uint64_t slot =
	    slots_in((uintptr_t)object - (uintptr_t)chunk->object, pool->inverse, pool->shift);
	return slot < chunk->count && lcore->cpu != NULL
	    && freehold_free(lcore->cpu, chunk->first + slot, 0, NULL) == FREEHOLD_STATUS_OK;
}

/* All objects that can be: DPDK's callers do not look at what is returned. */
static __rte_noinline int enqueue_many(
    struct pool *pool, struct lcore *lcore, void *const *objects, unsigned int n)
{
	uint64_t frames[BATCH];
	freehold_error error;
	int rc = 0;
	while (n != 0) {
		unsigned int batch = RTE_MIN(n, (unsigned int)BATCH);
		size_t count = frames_of(pool, lcore, objects, batch, frames);
		if (unlikely(count != batch))
			rc = -EINVAL;
		if (unlikely(
			free_frames(pool, lcore->cpu, frames, count, &error) != FREEHOLD_STATUS_OK))
			rc = free_what_can_be(pool, lcore->cpu, frames, count, &error);
		objects += batch;
		n -= batch;
	}
	return rc;
}

static int enqueue(struct rte_mempool *mp, void *const *objects, unsigned int n)
{
	struct pool *pool = pool_of(mp);
	if (unlikely(pool == NULL))
		return pool_not_here(mp);
	struct lcore *lcore = here(pool);
	if (n == 1 && likely(enqueue_one(pool, lcore, objects[0])))
		return 0;
	return enqueue_many(pool, lcore, objects, n);
}

static unsigned int get_count(const struct rte_mempool *mp)
{
	const struct pool *pool = pool_of(mp);
	uint64_t free = 0;
	for (unsigned int zone = 0; pool != NULL && zone < pool->zones; zone++) {
		freehold_zone_stats stats;
		if (freehold_read_zone_stats(pool->engine, zone, &stats, NULL)
		    == FREEHOLD_STATUS_OK)
			free += stats.free;
	}
	return (unsigned int)free;
}

/* As many frames as there are, up to `n`. */
static inline size_t alloc_frames(
    struct pool *pool, const freehold_cpu *cpu, uint64_t *frames, size_t n)
{
	size_t got = 0;
	freehold_alloc_bulk(cpu_or_shared(pool, cpu), &one_frame, frames, n, &got, NULL);
	return got;
}

/* The engine may find nothing where all that is free is on its way from one lcore to another.
 * DPDK's programs expect of a pool that what has been put back can be taken out: so, again, as long
 * as there are enough. Hardly ever needed (README.md says how often), and once has always been
 * enough; a few times more cost nothing. */
enum { AGAIN = 4 };

static __rte_cold __rte_noinline bool alloc_the_rest(
    struct pool *pool, const freehold_cpu *cpu, uint64_t *frames, size_t got, size_t n)
{
	for (int attempt = 0; attempt < AGAIN && got < n; attempt++) {
		if (get_count(pool->mp) < n - got)
			break;
		got += alloc_frames(pool, cpu, frames + got, n - got);
	}
	if (got == n)
		return true;
	if (got != 0)
		free_frames(pool, cpu, frames, got, NULL);
	return false;
}

/* Up to BATCH objects, or none; then `objects` stays as it is, since DPDK may have others there
 * yet. */
static __rte_noinline bool dequeue_batch(
    struct pool *pool, struct lcore *lcore, void **objects, unsigned int n)
{
	uint64_t frames[BATCH];
	size_t got = alloc_frames(pool, lcore->cpu, frames, n);
	if (unlikely(got < n) && !alloc_the_rest(pool, lcore->cpu, frames, got, n))
		return false;
	const uint64_t bytes = pool->slot;
	struct chunk chunk = pool->chunks[guess(&lcore->got_from)];
	for (unsigned int i = 0; i < n; i++) {
		uint64_t slot = frames[i] - chunk.first;
		if (unlikely(slot >= chunk.count)) {
			unsigned int found = chunk_by_frame(pool, frames[i]);
			remember(&lcore->got_from, found);
			chunk = pool->chunks[found];
			slot = frames[i] - chunk.first;
		}
		objects[i] = chunk.object + slot * bytes;
	}
	return true;
}

static __rte_always_inline bool dequeue_one(
    const struct pool *pool, const struct lcore *lcore, void **object)
{
	uint64_t frame;
	if (unlikely(lcore->cpu == NULL)
	    || freehold_alloc(lcore->cpu, &one_frame, &frame, NULL) != FREEHOLD_STATUS_OK)
		return false;
	const struct chunk *chunk = &pool->chunks[guess(&lcore->got_from)];
	uint64_t slot = frame - chunk->first;
	*object = likely(slot < chunk->count) ? chunk->object + slot * pool->slot
					      : object_of(pool, frame);
	return true;
}

static __rte_cold __rte_noinline int dequeue_many(
    struct rte_mempool *mp, struct lcore *lcore, void **objects, unsigned int n)
{
	for (unsigned int done = 0; done < n;) {
		unsigned int batch = RTE_MIN(n - done, (unsigned int)BATCH);
		if (!dequeue_batch(pool_of(mp), lcore, objects + done, batch)) {
			enqueue(mp, objects, done);
			return -ENOBUFS;
		}
		done += batch;
	}
	return 0;
}

/* `n` objects, or none. */
static int dequeue(struct rte_mempool *mp, void **objects, unsigned int n)
{
	struct pool *pool = pool_of(mp);
	if (unlikely(pool == NULL))
		return pool_not_here(mp);
	struct lcore *lcore = here(pool);
	if (n == 1 && likely(dequeue_one(pool, lcore, objects)))
		return 0;
	if (unlikely(n > BATCH))
		return dequeue_many(mp, lcore, objects, n);
	return dequeue_batch(pool, lcore, objects, n) ? 0 : -ENOBUFS;
}

/* DPDK brings memory whose IO addresses are contiguous, unless `iova` says that nobody cares: every
 * object's are then. */
static int populate(struct rte_mempool *mp, unsigned int max_objects, void *memory, rte_iova_t iova,
    size_t bytes, rte_mempool_populate_obj_cb_t *add, void *add_arg)
{
	struct pool *pool = pool_of(mp);
	if (pool == NULL)
		return pool_not_here(mp);
	uint64_t count = RTE_MIN(bytes / pool->slot, (uint64_t)max_objects);
	if (count == 0)
		return 0;
	const struct rte_memseg_list *list = rte_mem_virt2memseg_list(memory);
	uint8_t *object = (uint8_t *)memory + mp->header_size;
	uint64_t first;
	int rc = pool_add_chunk(
	    pool, object, count, list == NULL ? SOCKET_ID_ANY : list->socket_id, &first);
	if (rc < 0)
		return rc;
	for (uint64_t i = 0; i < count; i++) {
		uint64_t offset = mp->header_size + i * pool->slot;
		add(mp, add_arg, (uint8_t *)memory + offset,
		    iova == RTE_BAD_IOVA ? RTE_BAD_IOVA : iova + offset);
	}
	freehold_error error;
	if (freehold_free_range(freehold_here(pool->engine), first, first + count, &error)
	    != FREEHOLD_STATUS_OK) {
		POOL_LOG(ERR, "%s: %s\n", mp->name, error.message);
		return -EINVAL;
	}
	return (int)count;
}

static const struct rte_mempool_ops ops = {
    .name = "freehold",
    .alloc = pool_create,
    .free = pool_destroy,
    .enqueue = enqueue,
    .dequeue = dequeue,
    .get_count = get_count,
    .populate = populate,
};

RTE_MEMPOOL_REGISTER_OPS(ops)
