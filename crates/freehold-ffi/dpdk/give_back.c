/* Memory that goes back to the system while the pool is in use, and comes again. */
#include "pool.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <rte_memory.h>
#include <rte_vfio.h>

#include "freehold_mempool.h"

/* Slots in a row and the whole pages inside, but for the header of the first. */
struct window {
	uint64_t slot, end;
	uintptr_t pages, pages_end;
};

/* The window at or after a slot: a block of slots where pages are smaller than it, else a page. False where there is none. */
static bool window_at(const struct pool *pool, const struct chunk *chunk, uint64_t page, uint64_t slot, struct window *window)
{
	enum { BLOCK = 512 };
	uint64_t header = pool->mp->header_size;
	uintptr_t base = (uintptr_t)chunk->object - header;
	window->slot = slot;
	window->pages = RTE_ALIGN_CEIL(base + slot * pool->slot + header, page);
	if (page < BLOCK * pool->slot) {
		window->end = RTE_MIN(RTE_ALIGN_CEIL(chunk->first + slot + 1, BLOCK) - chunk->first, chunk->count);
		window->pages_end = RTE_ALIGN_FLOOR(base + window->end * pool->slot, page);
	} else {
		/* The page may start behind more slots than one. */
		window->slot = (window->pages - header - base) / pool->slot;
		window->pages_end = window->pages + page;
		window->end = (window->pages_end - base + pool->slot - 1) / pool->slot;
	}
	return window->end <= chunk->count && slot < chunk->count;
}

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
static int discard(void *pages, size_t bytes)
{
	if (madvise(pages, bytes, MADV_REMOVE) == 0 || madvise(pages, bytes, MADV_DONTNEED) == 0)
		return 0;
	return -errno;
}

/* 0: done; -EBUSY: an object is in use. */
static int give(struct pool *pool, const struct chunk *chunk, const struct window *window)
{
	if (!room_for_given(pool))
		return -ENOMEM;
	uint64_t first = chunk->first + window->slot, end = chunk->first + window->end;
	if (freehold_alloc_contig_range(pool->engine, first, end, NULL, NULL, NULL) != FREEHOLD_STATUS_OK)
		return -EBUSY;
	void *object = object_of(pool, first);
	void *pages = (void *)window->pages;
	size_t bytes = window->pages_end - window->pages;
	list_remove(pool, object, end - first);
	int rc = discard(pages, bytes);
	if (rc < 0) {
		list_restore(pool, object, end - first);
		freehold_free_range(pool->engine, first, end, NULL);
		return rc;
	}
	pool->given[pool->given_count++] = (struct given){first, end, pages, bytes};
	pool->given_objects += end - first;
	pool->given_bytes += bytes;
	pool->mp->populated_size -= (uint32_t)(end - first);
	return 0;
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
	uint64_t before = pool->given_bytes;
	for (unsigned int i = 0; i < pool->chunk_count; i++) {
		const struct chunk *chunk = &pool->chunks[i];
		const struct rte_memseg_list *list = rte_mem_virt2memseg_list(chunk->object);
		if (list == NULL || list->external != 0)
			continue;
		struct window window;
		for (uint64_t slot = 0; window_at(pool, chunk, list->page_sz, slot, &window);) {
			slot = window.end;
			if (window.pages >= window.pages_end)
				continue;
			if (pool->given_bytes - before + (window.pages_end - window.pages) > bytes)
				return (int64_t)(pool->given_bytes - before);
			int rc = give(pool, chunk, &window);
			if (rc < 0 && rc != -EBUSY)
				return pool->given_bytes == before ? rc : (int64_t)(pool->given_bytes - before);
			/* A page further on shares its first slot with this one's last, unless that is given. */
			if (rc == -EBUSY && window.end > window.slot + 1 && list->page_sz >= 512 * pool->slot)
				slot = window.end - 1;
		}
	}
	return (int64_t)(pool->given_bytes - before);
}

int64_t freehold_mempool_take_back(struct rte_mempool *mp, uint32_t objects, rte_mempool_obj_cb_t *init, void *init_arg)
{
	if (!pool_is_ours(mp))
		return -EINVAL;
	struct pool *pool = pool_of(mp);
	uint64_t taken = 0;
	while (taken < objects && pool->given_count != 0) {
		struct given given = pool->given[--pool->given_count];
		uint64_t count = given.end - given.first;
		void *object = object_of(pool, given.first);
		list_restore(pool, object, count);
		for (uint64_t i = 0; init != NULL && i < count; i++)
			init(mp, init_arg, (uint8_t *)object + i * pool->slot, (unsigned int)i);
		pool->given_objects -= count;
		pool->given_bytes -= given.bytes;
		mp->populated_size += (uint32_t)count;
		freehold_error error;
		if (freehold_free_range(pool->engine, given.first, given.end, &error) != FREEHOLD_STATUS_OK) {
			POOL_LOG(ERR, "%s: %s\n", mp->name, error.message);
			return -EINVAL;
		}
		taken += count;
	}
	return (int64_t)taken;
}
