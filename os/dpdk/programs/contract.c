/* What DPDK's own tests do not look at: several chunks, objects of all sizes, threads that are no lcore, lcores that end, what is put
 * back wrongly, and that nothing is lost. Takes EAL's options. */
#include <errno.h>
#include <inttypes.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_malloc.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>

#include "freehold_mempool.h"

#define CHECK(what)                                                                                  \
	do {                                                                                         \
		if (!(what)) {                                                                       \
			fprintf(stderr, "contract: %s:%d: not so: %s\n", __FILE__, __LINE__, #what); \
			exit(1);                                                                     \
		}                                                                                    \
	} while (0)

static struct rte_mempool *empty_pool(const char *name, unsigned int objects, unsigned int bytes, unsigned int cache)
{
	struct rte_mempool *pool = rte_mempool_create_empty(name, objects, bytes, cache, 0, SOCKET_ID_ANY, 0);
	CHECK(pool != NULL);
	CHECK(rte_mempool_set_ops_byname(pool, "freehold", NULL) == 0);
	return pool;
}

/* Every object is there once, is written to from end to end, is known to DPDK, and can be put back. */
static void take_everything(struct rte_mempool *pool, unsigned int objects)
{
	void **all = calloc(objects + 1, sizeof *all);
	CHECK(all != NULL && rte_mempool_avail_count(pool) == objects);
	void *untouched = &untouched;
	all[objects] = untouched;
	for (unsigned int i = 0; i < objects; i++) {
		CHECK(rte_mempool_get(pool, &all[i]) == 0);
		CHECK(rte_mempool_from_obj(all[i]) == pool);
		rte_iova_t iova = rte_mempool_virt2iova(all[i]);
		CHECK(iova == RTE_BAD_IOVA || rte_eal_iova_mode() != RTE_IOVA_VA || iova == (uintptr_t)all[i]);
		memset(all[i], (int)(i % 251), pool->elt_size);
	}
	/* Where there are none, DPDK has other objects at the place it asks them to be written to. */
	CHECK(rte_mempool_get_bulk(pool, &all[objects], 1) != 0 && all[objects] == untouched);
	for (unsigned int i = 0; i < objects; i++) {
		const uint8_t *bytes = all[i];
		for (unsigned int byte = 0; byte < pool->elt_size; byte++)
			CHECK(bytes[byte] == i % 251);
	}
	rte_mempool_put_bulk(pool, all, objects);
	CHECK(rte_mempool_avail_count(pool) == objects && rte_mempool_full(pool));
	CHECK(freehold_mempool_validate(pool) == 0);
	free(all);
}

static void sizes(void)
{
	static const unsigned int bytes[] = {8, 64, 100, 2304, 4096, 9216, 20000, 70000};
	for (unsigned int i = 0; i < RTE_DIM(bytes); i++) {
		struct rte_mempool *pool = empty_pool("sizes", 777, bytes[i], 0);
		CHECK(rte_mempool_populate_default(pool) == 777);
		take_everything(pool, 777);
		rte_mempool_free(pool);
	}
}

/* Chunks that come in any order of addresses, each of another size, beside objects that are in use. */
static void chunks(void)
{
	enum { OBJECTS = 3000 };
	struct rte_mempool *pool = empty_pool("chunks", OBJECTS, 2304, 0);
	uint8_t *area = mmap(NULL, 64 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(area != MAP_FAILED);
	unsigned int objects = 0;
	void *held = NULL;
	for (unsigned int i = 0; objects < OBJECTS; i++) {
		unsigned int place = i * 37 % 64;
		size_t length = 4096 + i * 24000 % ((1 << 20) - 4096);
		int added = rte_mempool_populate_iova(pool, (char *)area + ((size_t)place << 20), RTE_BAD_IOVA, length, NULL, NULL);
		CHECK(added > 0 && i < 64);
		objects += (unsigned int)added;
		if (held == NULL)
			CHECK(rte_mempool_get(pool, &held) == 0);
	}
	CHECK(objects == OBJECTS && pool->nb_mem_chunks > 8);
	CHECK(rte_mempool_populate_iova(pool, (char *)area, RTE_BAD_IOVA, 1 << 20, NULL, NULL) == -ENOSPC);
	rte_mempool_put(pool, held);
	take_everything(pool, OBJECTS);
	struct freehold_mempool_stats stats;
	CHECK(freehold_mempool_stats_get(pool, &stats) == 0 && stats.chunks == pool->nb_mem_chunks && stats.objects == OBJECTS);
	rte_mempool_free(pool);
	/* One page a chunk, as where pages are small and IO addresses physical. */
	pool = empty_pool("pages", 500, 2304, 0);
	for (unsigned int i = 0; i < 500; i++)
		CHECK(rte_mempool_populate_iova(pool, (char *)area + (499 - i) * 4096, RTE_BAD_IOVA, 4096, NULL, NULL) == 1);
	take_everything(pool, 500);
	rte_mempool_free(pool);
	munmap(area, 64 << 20);
	pool = empty_pool("anonymous", 500, 2304, 0);
	CHECK(rte_mempool_populate_anon(pool) == 500);
	take_everything(pool, 500);
	rte_mempool_free(pool);
}

/* Neither of these is handed out twice, or to be seen in the count. */
static void misuse(void)
{
	struct rte_mempool *pool = empty_pool("misuse", 100, 2304, 0);
	CHECK(rte_mempool_populate_default(pool) == 100);
	void *object;
	CHECK(rte_mempool_get(pool, &object) == 0);
	rte_mempool_put(pool, object);
	rte_mempool_put(pool, object);
	rte_mempool_put(pool, (char *)object + 64);
	rte_mempool_put(pool, &object);
	struct freehold_mempool_stats stats;
	CHECK(freehold_mempool_stats_get(pool, &stats) == 0 && stats.puts_refused == 3);
	take_everything(pool, 100);
	/* A wrong one among right ones: they go back all the same. */
	void *some[8];
	CHECK(rte_mempool_get_bulk(pool, some, 8) == 0);
	rte_mempool_put(pool, some[3]);
	void *mixed[10];
	memcpy(mixed, some, sizeof some);
	mixed[8] = &object;
	mixed[9] = some[5];
	rte_mempool_put_bulk(pool, mixed, 10);
	CHECK(freehold_mempool_stats_get(pool, &stats) == 0 && stats.puts_refused == 6);
	take_everything(pool, 100);
	rte_mempool_free(pool);
}

enum { ROUNDS = 2000 };

static void work(struct rte_mempool *pool)
{
	void *objects[32];
	for (int i = 0; i < ROUNDS; i++) {
		unsigned int n = 1 + (unsigned int)i % 32;
		if (rte_mempool_get_bulk(pool, objects, n) != 0)
			continue;
		for (unsigned int k = 0; k < n; k++)
			*(void **)objects[k] = objects;
		rte_pause();
		for (unsigned int k = 0; k < n; k++)
			CHECK(*(void **)objects[k] == objects);
		rte_mempool_put_bulk(pool, objects, n);
	}
}

static void *stranger(void *pool)
{
	CHECK(rte_lcore_id() == LCORE_ID_ANY);
	work(pool);
	return NULL;
}

static void *guest(void *pool)
{
	CHECK(rte_thread_register() == 0 && rte_lcore_id() != LCORE_ID_ANY);
	work(pool);
	struct freehold_mempool_stats stats;
	CHECK(freehold_mempool_stats_get(pool, &stats) == 0 && stats.lcores >= 1);
	rte_thread_unregister();
	return NULL;
}

static int worker(void *pool)
{
	work(pool);
	return 0;
}

/* Lcores, threads that register as one and go again, and threads that do not, on a pool that is too small for all of them. */
static void threads(unsigned int cache)
{
	enum { THREADS = 3, OBJECTS = 150 };
	struct rte_mempool *pool = empty_pool("threads", OBJECTS, 2304, cache);
	CHECK(rte_mempool_populate_default(pool) == OBJECTS);
	pthread_t strangers[THREADS], guests[THREADS];
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&strangers[i], NULL, stranger, pool) == 0 && pthread_create(&guests[i], NULL, guest, pool) == 0);
	rte_eal_mp_remote_launch(worker, pool, CALL_MAIN);
	rte_eal_mp_wait_lcore();
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(strangers[i], NULL) == 0 && pthread_join(guests[i], NULL) == 0);
	struct freehold_mempool_stats stats;
	CHECK(freehold_mempool_stats_get(pool, &stats) == 0);
	/* The guests have gone, and what they owned with them. */
	CHECK(stats.lcores == rte_lcore_count());
	CHECK(stats.puts_refused == 0 && stats.double_puts_late == 0);
	if (cache == 0)
		take_everything(pool, OBJECTS);
	CHECK(rte_mempool_avail_count(pool) == OBJECTS);
	rte_mempool_free(pool);
}

/* What one lcore has put back another one gets, to the last object, while the first goes on. */
static struct rte_ring *ring;

static int put_back(void *pool)
{
	for (unsigned int i = 0; i < ROUNDS;) {
		void *object;
		if (rte_ring_dequeue(ring, &object) == 0) {
			rte_mempool_put(pool, object);
			i++;
		}
	}
	return 0;
}

static void none_is_missed(void)
{
	unsigned int other = rte_get_next_lcore(rte_lcore_id(), 1, 0);
	if (other == RTE_MAX_LCORE) {
		fprintf(stderr, "SKIPPED: objects that pass between lcores need two\n");
		return;
	}
	enum { OBJECTS = 64 };
	struct rte_mempool *pool = empty_pool("passed", OBJECTS, 2304, 0);
	CHECK(rte_mempool_populate_default(pool) == OBJECTS);
	ring = rte_ring_create("passed", 128, SOCKET_ID_ANY, 0);
	CHECK(ring != NULL);
	rte_eal_remote_launch(put_back, pool, other);
	for (unsigned int i = 0; i < ROUNDS; i++) {
		void *object;
		/* All others have been taken: one has to come back first. */
		while (rte_mempool_avail_count(pool) == 0)
			rte_pause();
		CHECK(rte_mempool_get(pool, &object) == 0);
		CHECK(rte_ring_enqueue(ring, object) == 0);
	}
	rte_eal_wait_lcore(other);
	take_everything(pool, OBJECTS);
	rte_mempool_free(pool);
	rte_ring_free(ring);
}

/* Many chunks, and threads that share what is remembered of them. */
static void strangers(void)
{
	enum { THREADS = 4, OBJECTS = 256 };
	struct rte_mempool *pool = empty_pool("strangers", OBJECTS, 2304, 0);
	uint8_t *area = mmap(NULL, OBJECTS * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(area != MAP_FAILED);
	for (unsigned int i = 0; i < OBJECTS; i++)
		CHECK(rte_mempool_populate_iova(pool, (char *)area + i * 4096, RTE_BAD_IOVA, 4096, NULL, NULL) == 1);
	pthread_t threads[THREADS];
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, stranger, pool) == 0);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	take_everything(pool, OBJECTS);
	rte_mempool_free(pool);
	munmap(area, OBJECTS * 4096);
}

static int take_one(void *pool)
{
	void *object;
	CHECK(rte_mempool_get(pool, &object) == 0);
	rte_mempool_put(pool, object);
	return 0;
}

/* Where the barrier by which one lcore reaches into another's books is forbidden later, the program ends: to go on would be to hand
 * an object out twice. The pool is lost: its memory is the child's too, which dies with the books open. */
static void forbidden_barrier(void)
{
	unsigned int other = rte_get_next_lcore(rte_lcore_id(), 1, 0);
	if (other == RTE_MAX_LCORE) {
		fprintf(stderr, "SKIPPED: a barrier that is forbidden needs two lcores\n");
		return;
	}
	enum { OBJECTS = 64 };
	struct rte_mempool *pool = empty_pool("barrier", OBJECTS, 2304, 0);
	CHECK(rte_mempool_populate_default(pool) == OBJECTS);
	rte_eal_remote_launch(take_one, pool, other);
	CHECK(rte_eal_wait_lcore(other) == 0);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		struct sock_filter filter[] = {
			BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
			BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_membarrier, 0, 1),
			BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
			BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		};
		struct sock_fprog program = {RTE_DIM(filter), filter};
		/* No dump of memory. */
		struct rlimit none = {0, 0};
		setrlimit(RLIMIT_CORE, &none);
		if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
			_exit(3);
		/* Looks into the books of every lcore. */
		freehold_mempool_validate(pool);
		_exit(0);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 3)
		fprintf(stderr, "SKIPPED: a barrier that is forbidden needs seccomp\n");
	else
		CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

int main(int argc, char **argv)
{
	CHECK(rte_eal_init(argc, argv) >= 0);
	struct rte_malloc_socket_stats before, after;
	/* The first pool registers for lcores that end, which stays. */
	rte_mempool_free(empty_pool("first", 1, 64, 0));
	sizes();
	rte_malloc_get_socket_stats((int)rte_socket_id(), &before);
	sizes();
	chunks();
	misuse();
	threads(0);
	threads(8);
	strangers();
	none_is_missed();
	rte_malloc_get_socket_stats((int)rte_socket_id(), &after);
	CHECK(after.alloc_count == before.alloc_count);
	forbidden_barrier();
	printf("contract: all right\n");
	return rte_eal_cleanup() == 0 ? 0 : 1;
}
