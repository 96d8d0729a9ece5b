/* Memory that goes back to the system while the pool is in use, and comes again. */
#include "pool.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <rte_memory.h>
#include <rte_vfio.h>

#include "freehold_mempool.h"

/* Slots in a row and the whole pages inside, but for the header of the first. */
static bool block_at(const struct pool *pool, const struct chunk *chunk, uint64_t page, uint64_t slot, struct given *window)
{
	enum { BLOCK = 512 };
	uint64_t header = pool->mp->header_size;
	uintptr_t base = (uintptr_t)chunk->object - header;
	window->first = chunk->first + slot;
	window->end = RTE_MIN(RTE_ALIGN_CEIL(window->first + 1, BLOCK), chunk->first + chunk->count);
	window->pages = RTE_ALIGN_CEIL(base + slot * pool->slot + header, page);
	window->pages_end = RTE_ALIGN_FLOOR(base + (window->end - chunk->first) * pool->slot, page);
	return slot < chunk->count;
}

/* A page that is larger than a block, and the slots that it is part of. Where `before`, pages that were given up to that slot, has
 * the slot that reaches into it, it starts with the next one, whose header can go as well. */
static bool page_at(const struct pool *pool, const struct chunk *chunk, uint64_t page, uint64_t slot, const struct given *before,
    struct given *window)
{
	uint64_t header = pool->mp->header_size;
	uintptr_t base = (uintptr_t)chunk->object - header;
	if (before != NULL) {
		window->pages = before->pages_end;
	} else {
		window->pages = RTE_ALIGN_CEIL(base + slot * pool->slot + header, page);
		slot = (window->pages - header - base) / pool->slot;
	}
	window->pages_end = window->pages + page;
	window->first = chunk->first + slot;
	window->end = chunk->first + (window->pages_end - base + pool->slot - 1) / pool->slot;
	return window->end <= chunk->first + chunk->count;
}

/* Room for one more. */
static bool room_for_given(struct pool *pool)
{
	if (pool->given_count < pool->given_room)
		return true;
	unsigned int room = pool->given_room == 0 ? 64 : 2 * pool->given_room;
	struct given *given = realloc(pool->given, room * sizeof *given);
	if (given == NULL)
		return false;
	pool->given = given;
	pool->given_room = room;
	return true;
}

/* Shared memory (a file, huge pages) loses its pages by a hole, private memory by being told that nobody needs them. */
static int discard(uintptr_t pages, size_t bytes)
{
	void *address = (void *)pages;
	if (madvise(address, bytes, MADV_REMOVE) == 0 || madvise(address, bytes, MADV_DONTNEED) == 0)
		return 0;
	return -errno;
}

/* 0: done; -EBUSY: an object is in use. Where it `joins`, it becomes part of what was given last. */
static int give(struct pool *pool, bool joins, const struct given *window)
{
	if (!room_for_given(pool))
		return -ENOMEM;
	struct given *before = joins ? &pool->given[pool->given_count - 1] : NULL;
	if (freehold_alloc_contig_range(pool->engine, window->first, window->end, NULL, NULL, NULL) != FREEHOLD_STATUS_OK)
		return -EBUSY;
	uint64_t first = before != NULL ? before->first : window->first;
	void *head = object_of(pool, first);
	list_remove(pool, head, window->end - first);
	int rc = discard(window->pages, window->pages_end - window->pages);
	if (rc < 0) {
		list_restore(pool, head, window->first - first, window->end - first);
		freehold_free_range(freehold_here(pool->engine), window->first, window->end, NULL);
		return rc;
	}
	if (before != NULL) {
		before->end = window->end;
		before->pages_end = window->pages_end;
	} else {
		pool->given[pool->given_count++] = *window;
	}
	pool->given_objects += window->end - window->first;
	pool->given_bytes += window->pages_end - window->pages;
	pool->mp->populated_size -= (uint32_t)(window->end - window->first);
	return 0;
}

/* Whole blocks of a chunk of small pages, or pages of a chunk of large ones; false where there must not be more, for the reason in
 * `rc`. */
static bool give_of_chunk(struct pool *pool, const struct chunk *chunk, uint64_t page, uint64_t most, int *rc)
{
	bool small = page < 512 * pool->slot;
	bool joins = false;
	struct given window;
	uint64_t slot = 0;
	while (small ? block_at(pool, chunk, page, slot, &window)
	             : page_at(pool, chunk, page, slot, joins ? &pool->given[pool->given_count - 1] : NULL, &window)) {
		slot = window.end - chunk->first;
		if (window.pages >= window.pages_end)
			continue;
		if (pool->given_bytes + (window.pages_end - window.pages) > most)
			return false;
		*rc = give(pool, joins, &window);
		if (*rc < 0 && *rc != -EBUSY)
			return false;
		/* A page that is in use has its last slot in common with the next one, which is to be tried all the same. */
		if (*rc == -EBUSY && !small)
			slot--;
		joins = *rc == 0 && !small;
	}
	return true;
}

static bool devices_may_have_it(void)
{
	return rte_eal_iova_mode() != RTE_IOVA_VA || rte_vfio_is_enabled("vfio") != 0;
}

int64_t freehold_mempool_give_back(struct rte_mempool *mp, uint64_t bytes)
{
	if (!pool_is_ours(mp))
		return -EINVAL;
	if (devices_may_have_it())
		return -ENOTSUP;
	struct pool *pool = pool_of(mp);
	uint64_t before = pool->given_bytes, most = before + RTE_MIN(bytes, (uint64_t)INT64_MAX - before);
	int rc = 0;
	for (unsigned int i = 0; i < pool->chunk_count; i++) {
		const struct chunk *chunk = &pool->chunks[i];
		const struct rte_memseg_list *list = rte_mem_virt2memseg_list(chunk->object);
		if (list == NULL || list->external != 0)
			continue;
		if (!give_of_chunk(pool, chunk, list->page_sz, most, &rc))
			break;
	}
	uint64_t given = pool->given_bytes - before;
	return given == 0 && rc < 0 && rc != -EBUSY ? rc : (int64_t)given;
}

/* The first slot of the last `objects` of them; all of them where there would be no page left. */
static uint64_t cut(const struct pool *pool, struct given *given, uint64_t objects)
{
	if (objects >= given->end - given->first)
		return given->first;
	uint64_t from = given->end - objects;
	void *object = object_of(pool, from);
	const struct rte_memseg_list *list = rte_mem_virt2memseg_list(object);
	uintptr_t pages_end = RTE_ALIGN_FLOOR((uintptr_t)object - pool->mp->header_size, (uintptr_t)list->page_sz);
	if (pages_end <= given->pages)
		return given->first;
	given->pages_end = RTE_MIN(given->pages_end, pages_end);
	return from;
}

int64_t freehold_mempool_take_back(struct rte_mempool *mp, uint32_t objects, rte_mempool_obj_cb_t *init, void *init_arg)
{
	if (!pool_is_ours(mp))
		return -EINVAL;
	struct pool *pool = pool_of(mp);
	uint64_t taken = 0;
	while (taken < objects && pool->given_count != 0) {
		struct given *given = &pool->given[pool->given_count - 1];
		uint64_t first = given->first, end = given->end, bytes = given->pages_end - given->pages;
		uint64_t from = cut(pool, given, objects - taken);
		if (from == first) {
			pool->given_count--;
			pool->given_bytes -= bytes;
		} else {
			given->end = from;
			pool->given_bytes -= bytes - (given->pages_end - given->pages);
		}
		void *head = object_of(pool, first);
		list_restore(pool, head, from - first, end - first);
		for (uint64_t i = from; init != NULL && i < end; i++)
			init(mp, init_arg, object_of(pool, i), (unsigned int)(i - from));
		pool->given_objects -= end - from;
		mp->populated_size += (uint32_t)(end - from);
		freehold_error error;
		if (freehold_free_range(freehold_here(pool->engine), from, end, &error) != FREEHOLD_STATUS_OK) {
			POOL_LOG(ERR, "%s: %s\n", mp->name, error.message);
			return -EINVAL;
		}
		taken += end - from;
	}
	return (int64_t)taken;
}
