/* DPDK's mempool as an engine of `freehold bench`: what dpdk.rs calls. Most of a mempool is inline functions of DPDK's headers, which
 * only C can call.
 *
 * A pool's objects are chunks of one order, kept by its default driver, a ring for any number of producers and consumers. Before it
 * each CPU has a cache, made by the caller as DPDK tells threads to that are not its own lcores: so one thread can play two CPUs,
 * and no thread has to be registered. The code that uses a cache is the same for both.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_mempool.h>

/* Starts DPDK, once in a process; 0, or why not. Its memory is for what a pool is made of: objects are in mappings of their own.
 * Whoever calls this is bound to a CPU afterwards. */
int freehold_dpdk_start(void)
{
	cpu_set_t allowed;
	int cpu = 0;
	char lcores[32];
	if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
		return -1;
	while (cpu < CPU_SETSIZE - 1 && !CPU_ISSET(cpu, &allowed))
		cpu++;
	snprintf(lcores, sizeof lcores, "--lcores=0@%d", cpu);
	char *words[] = {"freehold-bench", lcores, "--no-huge", "--no-shconf", "--no-pci", "--no-telemetry", "--iova-mode=va",
	    "--log-level=error", "-m", "128", NULL};
	if (rte_eal_init(RTE_DIM(words) - 1, words) >= 0)
		return 0;
	/* Not all ways to fail say why. */
	return rte_errno != 0 ? rte_errno : EINVAL;
}

const char *freehold_dpdk_error(int error)
{
	return rte_strerror(error);
}

static void unmap(struct rte_mempool_memhdr *chunk, void *length)
{
	munmap(chunk->addr, (size_t)(uintptr_t)length);
}

/* So many objects of so many bytes, all free; NULL, and `error` says why. A name is for one pool. */
struct rte_mempool *freehold_dpdk_pool(const char *name, unsigned int objects, unsigned int bytes, int *error)
{
	struct rte_mempool *pool = rte_mempool_create_empty(name, objects, bytes, 0, 0, SOCKET_ID_ANY, RTE_MEMPOOL_F_NO_IOVA_CONTIG);
	int named = pool != NULL ? rte_mempool_set_ops_byname(pool, "ring_mp_mc", NULL) : 0;
	if (named != 0) {
		rte_errno = -named;
	} else if (pool != NULL) {
		size_t length = ((size_t)pool->header_size + pool->elt_size + pool->trailer_size) * objects;
		/* Of which only the objects' headers are written, and what the user writes. */
		void *memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (memory != MAP_FAILED) {
			int got = rte_mempool_populate_iova(pool, memory, RTE_BAD_IOVA, length, unmap, (void *)(uintptr_t)length);
			if (got == (int)objects)
				return pool;
			rte_errno = got < 0 ? -got : ENOMEM;
			/* It is the pool's, which unmaps it, where objects lie in it. */
			if (got <= 0)
				munmap(memory, length);
		} else {
			rte_errno = ENOMEM;
		}
	}
	*error = rte_errno;
	rte_mempool_free(pool);
	return NULL;
}

void freehold_dpdk_pool_free(struct rte_mempool *pool)
{
	rte_mempool_free(pool);
}

struct rte_mempool_cache *freehold_dpdk_cache(unsigned int objects)
{
	return rte_mempool_cache_create(objects, SOCKET_ID_ANY);
}

void freehold_dpdk_cache_free(struct rte_mempool_cache *cache)
{
	rte_mempool_cache_free(cache);
}

void freehold_dpdk_flush(struct rte_mempool *pool, struct rte_mempool_cache *cache)
{
	rte_mempool_cache_flush(cache, pool);
}

/* An object; NULL where there is none. */
void *freehold_dpdk_get(struct rte_mempool *pool, struct rte_mempool_cache *cache)
{
	void *object;
	return rte_mempool_generic_get(pool, &object, 1, cache) == 0 ? object : NULL;
}

void freehold_dpdk_put(struct rte_mempool *pool, struct rte_mempool_cache *cache, void *object)
{
	rte_mempool_generic_put(pool, &object, 1, cache);
}

int freehold_dpdk_get_bulk(struct rte_mempool *pool, struct rte_mempool_cache *cache, void **objects, unsigned int count)
{
	return rte_mempool_generic_get(pool, objects, count, cache);
}

void freehold_dpdk_put_bulk(struct rte_mempool *pool, struct rte_mempool_cache *cache, void *const *objects, unsigned int count)
{
	rte_mempool_generic_put(pool, objects, count, cache);
}

/* Objects that lie in no cache and are in nobody's use. */
unsigned int freehold_dpdk_available(const struct rte_mempool *pool)
{
	return rte_mempool_avail_count(pool);
}
