/* Making a pool and taking it apart: its engine, its chunks of memory, the lcores that own CPUs of
 * it. */
#include "pool.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <rte_debug.h>
#include <rte_errno.h>
#include <rte_malloc.h>

RTE_LOG_REGISTER(freehold_logtype, mempool.freehold, NOTICE)

struct pool *freehold_pools[POOLS];

/* Held while pools come and go, and while lcores do. Never taken by getting and putting. */
static pthread_mutex_t pools_lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned int pool_count;
static void *lcore_callback;

static void release_of(struct pool *pool, unsigned int lcore)
{
	const freehold_cpu **cpu = &pool->lcores[lcore].cpu;
	if (*cpu != NULL)
		freehold_release(*cpu, NULL);
	*cpu = NULL;
}

/* DPDK calls this as the thread unregisters, or for a thread that is gone. */
static void lcore_exits(unsigned int lcore, void *arg)
{
	RTE_SET_USED(arg);
	pthread_mutex_lock(&pools_lock);
	for (int i = 1; i < POOLS; i++)
		if (freehold_pools[i] != NULL)
			release_of(freehold_pools[i], lcore);
	pthread_mutex_unlock(&pools_lock);
}

/* An entry in `freehold_pools`: its number, or a negative errno. */
static int pool_enter(struct pool *pool)
{
	int id = -ENOSPC;
	pthread_mutex_lock(&pools_lock);
	/* Number 0 stays empty: it is what a mempool that has not been made has. */
	for (int i = 1; i < POOLS && id < 0; i++)
		if (freehold_pools[i] == NULL)
			id = i;
	if (id > 0) {
		freehold_pools[id] = pool;
		pool_count++;
	}
	int first = id > 0 && pool_count == 1;
	pthread_mutex_unlock(&pools_lock);
	/* Outside our lock: DPDK holds its own around the callbacks, which take ours. */
	if (first && lcore_callback == NULL)
		lcore_callback =
		    rte_lcore_callback_register("mempool_freehold", NULL, lcore_exits, NULL);
	return id;
}

int pool_not_here(const struct rte_mempool *mp)
{
	POOL_LOG(ERR, "%s: belongs to another process\n", mp->name);
	return -ENOTSUP;
}

static uint16_t current_cpu(void *user)
{
	RTE_SET_USED(user);
	unsigned int lcore = rte_lcore_id();
	return lcore < RTE_MAX_LCORE ? (uint16_t)lcore : SHARED_CPU;
}

enum { BARRIER_ATTEMPTS = 1000 };

static void heavy_barrier(void *user)
{
	RTE_SET_USED(user);
	/* The kernel may lack the memory for a moment. */
	for (int attempt = 0; attempt < BARRIER_ATTEMPTS; attempt++) {
		if (syscall(__NR_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0)
			return;
		sched_yield();
	}
	/* It worked when the pool was made, so somebody has forbidden it since. Without it two
	 * threads would be in one lcore's state, and there is nobody to tell. */
	rte_panic(
	    "freehold: membarrier(2) has been forbidden after a pool was made that relies on it\n");
}

static void put_twice(void *user, uint64_t frame)
{
	const struct pool *pool = user;
	POOL_LOG(ERR, "%s: object %" PRIu64 " was put back twice at the same moment\n",
	    pool->mp->name, frame);
}

/* How many memory nodes the pool's memory may be on: one where DPDK says which. */
static unsigned int nodes_of(const struct rte_mempool *mp)
{
	unsigned int sockets = rte_socket_count();
	return mp->socket_id == SOCKET_ID_ANY && sockets > 1 ? RTE_MIN(sockets, (unsigned int)NODES)
							     : 1;
}

/* The zone for memory of that socket: the last one where DPDK knows no such socket. */
static unsigned int zone_of(const struct pool *pool, int socket)
{
	for (unsigned int i = 0; i + 1 < pool->zones; i++)
		if (rte_socket_id_by_idx(i) == socket)
			return i;
	return pool->zones - 1;
}

/* Metadata for `zones` zones, of which every frame is taken: populating frees those that there is
 * memory for. */
static int make_engine(struct pool *pool)
{
	freehold_frame_range ranges[NODES + 1];
	freehold_zone zones[NODES + 1];
	uint8_t cpu_nodes[RTE_MAX_LCORE];
	memset(zones, 0, sizeof zones);
	for (unsigned int i = 0; i < pool->zones; i++) {
		pool->next[i] = i * pool->zone_frames;
		ranges[i] =
		    (freehold_frame_range){pool->next[i], pool->next[i] + pool->zone_frames};
		zones[i].memory = &ranges[i];
		zones[i].memory_count = 1;
		zones[i].watermarks = FREEHOLD_WATERMARK_RULE_NONE;
		zones[i].node = (uint8_t)i;
	}
	for (unsigned int i = 0; i < RTE_MAX_LCORE; i++)
		cpu_nodes[i] = (uint8_t)zone_of(pool, (int)rte_lcore_to_socket_id(i));
	freehold_config config;
	freehold_config_init(&config, CPUS, zones, pool->zones);
	config.cpu_nodes = cpu_nodes;
	config.cpu_node_count = RTE_DIM(cpu_nodes);
	freehold_platform platform;
	memset(&platform, 0, sizeof platform);
	platform.user = pool;
	platform.current_cpu = current_cpu;
	platform.late_double_free = put_twice;
	if (syscall(__NR_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0)
		platform.heavy_barrier = heavy_barrier;

	freehold_error error;
	if (freehold_metadata_size(&config, &pool->metadata_bytes, &error) != FREEHOLD_STATUS_OK)
		goto refused;
	pool->metadata = rte_malloc_socket(
	    "freehold", pool->metadata_bytes, RTE_CACHE_LINE_SIZE, pool->mp->socket_id);
	if (pool->metadata == NULL)
		return -ENOMEM;
	if (freehold_new(
		&config, pool->metadata, pool->metadata_bytes, &platform, &pool->engine, &error)
	    != FREEHOLD_STATUS_OK)
		goto refused;
	for (unsigned int i = 0; i < pool->zones; i++)
		if (freehold_alloc_contig_range(
			pool->engine, ranges[i].start, ranges[i].end, NULL, NULL, &error)
		    != FREEHOLD_STATUS_OK)
			goto refused;
	return 0;
refused:
	POOL_LOG(ERR, "%s: %s\n", pool->mp->name, error.message);
	return -EINVAL;
}

static void dispose(struct pool *pool)
{
	if (pool->engine != NULL)
		freehold_destroy(pool->engine, NULL);
	rte_free(pool->metadata);
	free(pool->chunks);
	free(pool->by_address);
	rte_free(pool);
}

/* The inverse of an odd number modulo 2^64: each step doubles the bits that are right, and x itself
 * is right in three. */
static uint64_t inverse_of(uint64_t odd)
{
	uint64_t inverse = odd;
	for (int i = 0; i < 5; i++)
		inverse *= 2 - odd * inverse;
	return inverse;
}

/* Room for another chunk in both arrays. */
static int grow_chunks(struct pool *pool)
{
	if (pool->chunk_count < pool->chunk_room)
		return 0;
	unsigned int room = pool->chunk_room == 0 ? 8 : 2 * pool->chunk_room;
	struct chunk *chunks = realloc(pool->chunks, room * sizeof *chunks);
	if (chunks == NULL)
		return -ENOMEM;
	pool->chunks = chunks;
	chunks = realloc(pool->by_address, room * sizeof *chunks);
	if (chunks == NULL)
		return -ENOMEM;
	pool->by_address = chunks;
	pool->chunk_room = room;
	return 0;
}

int pool_create(struct rte_mempool *mp)
{
	if (rte_eal_process_type() != RTE_PROC_PRIMARY)
		return -ENOTSUP;
	struct pool *pool =
	    rte_zmalloc_socket("freehold", sizeof *pool, RTE_CACHE_LINE_SIZE, mp->socket_id);
	if (pool == NULL)
		return -ENOMEM;
	pool->mp = mp;
	pool->slot = (uint64_t)mp->header_size + mp->elt_size + mp->trailer_size;
	pool->shift = (unsigned int)__builtin_ctzll(pool->slot);
	pool->inverse = inverse_of(pool->slot >> pool->shift);
	unsigned int nodes = nodes_of(mp);
	pool->zones = nodes > 1 ? nodes + 1 : 1;
	pool->zone_frames = RTE_ALIGN_CEIL((uint64_t)mp->size, 512);
	int id = grow_chunks(pool);
	if (id == 0) {
		/* A chunk of no slots, for guesses. */
		memset(pool->chunks, 0, sizeof *pool->chunks);
		memset(pool->by_address, 0, sizeof *pool->by_address);
		id = make_engine(pool);
	}
	if (id == 0)
		id = pool_enter(pool);
	if (id < 0) {
		dispose(pool);
		return id;
	}
	mp->pool_id = (uint64_t)id;
	return 0;
}

void pool_destroy(struct rte_mempool *mp)
{
	struct pool *pool = pool_of(mp);
	if (pool == NULL || pool->mp != mp)
		return;
	pthread_mutex_lock(&pools_lock);
	freehold_pools[mp->pool_id] = NULL;
	pool_count--;
	pthread_mutex_unlock(&pools_lock);
	for (unsigned int lcore = 0; lcore < RTE_MAX_LCORE; lcore++)
		release_of(pool, lcore);
	dispose(pool);
}

static void insert(struct chunk *sorted, unsigned int count, struct chunk chunk,
    int (*before)(const struct chunk *, const struct chunk *))
{
	unsigned int at = count;
	for (; at > 0 && before(&chunk, &sorted[at - 1]); at--)
		sorted[at] = sorted[at - 1];
	sorted[at] = chunk;
}

static int lower_frame(const struct chunk *a, const struct chunk *b)
{
	return a->first < b->first;
}

static int lower_address(const struct chunk *a, const struct chunk *b)
{
	return (uintptr_t)a->object < (uintptr_t)b->object;
}

/* Gives slots their frames, which stay taken. */
int pool_add_chunk(struct pool *pool, uint8_t *object, uint64_t count, int socket, uint64_t *first)
{
	unsigned int zone = zone_of(pool, socket);
	uint64_t start = pool->next[zone];
	if (start + count > (zone + 1) * pool->zone_frames)
		return -ENOSPC;
	int rc = grow_chunks(pool);
	if (rc < 0)
		return rc;
	struct chunk chunk = {object, start, count};
	insert(pool->chunks, pool->chunk_count, chunk, lower_frame);
	insert(pool->by_address, pool->chunk_count, chunk, lower_address);
	pool->chunk_count++;
	pool->next[zone] = start + count;
	*first = start;
	return 0;
}

static unsigned int last_up_to(const struct chunk *sorted, unsigned int count, struct chunk key,
    int (*before)(const struct chunk *, const struct chunk *))
{
	unsigned int low = 0, high = count;
	while (high - low > 1 && high != 0) {
		unsigned int middle = low + (high - low) / 2;
		if (before(&key, &sorted[middle]))
			high = middle;
		else
			low = middle;
	}
	return low;
}

unsigned int chunk_by_frame(const struct pool *pool, uint64_t frame)
{
	const struct chunk key = {NULL, frame, 0};
	return last_up_to(pool->chunks, pool->chunk_count, key, lower_frame);
}

unsigned int chunk_by_address(const struct pool *pool, const void *object)
{
	const struct chunk key = {(uint8_t *)(uintptr_t)object, 0, 0};
	return last_up_to(pool->by_address, pool->chunk_count, key, lower_address);
}

/* The first call of an lcore on a pool; each call of a thread that is none. */
void pool_own(struct pool *pool, unsigned int lcore)
{
	if (lcore == SHARED_CPU)
		return;
	freehold_error error;
	const freehold_cpu *cpu = NULL;
	if (freehold_own(pool->engine, (uint16_t)lcore, &cpu, &error) == FREEHOLD_STATUS_OK)
		pool->lcores[lcore].cpu = cpu;
	else
		POOL_LOG(ERR, "%s: lcore %u shares: %s\n", pool->mp->name, lcore, error.message);
}
