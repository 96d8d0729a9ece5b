/* What a pool says about itself while it works: to the program, and to anybody who asks DPDK's telemetry (dpdk-telemetry.py, then
 * /freehold/info,<pool>), in programs that know nothing of it too. Takes EAL's options. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_launch.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>

#include "freehold_mempool.h"

#define CHECK(what)                                                                \
	do {                                                                       \
		if (!(what)) {                                                     \
			fprintf(stderr, "%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, \
			    #what, rte_strerror(rte_errno));                       \
			exit(1);                                                   \
		}                                                                  \
	} while (0)

enum { BUFFERS = 4095, ROUNDS = 20000 };

static int work(void *pool)
{
	void *objects[32];
	for (int i = 0; i < ROUNDS; i++)
		if (rte_mempool_get_bulk(pool, objects, 32) == 0)
			rte_mempool_put_bulk(pool, objects, 32);
	return 0;
}

/* An answer of DPDK's telemetry, as anybody's who connects to the socket. */
static void ask(const char *question, char *answer, size_t room)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int at = snprintf(address.sun_path, sizeof address.sun_path, "%s/dpdk_telemetry.v2", rte_eal_get_runtime_dir());
	CHECK(at > 0 && at < (int)sizeof address.sun_path);
	int server = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	CHECK(server >= 0 && connect(server, (struct sockaddr *)&address, sizeof address) == 0);
	CHECK(read(server, answer, room) > 0); /* its greeting */
	CHECK(write(server, question, strlen(question)) == (ssize_t)strlen(question));
	ssize_t bytes = read(server, answer, room - 1);
	CHECK(bytes > 0);
	answer[bytes] = 0;
	close(server);
}

/* EAL with these options and those of the command line. */
static void start_eal(int argc, char **argv)
{
	static char prefix[64];
	static char no_pci[] = "--no-pci", quiet[] = "--log-level=error";
	char *all[32] = {argv[0], prefix, no_pci, quiet};
	int n = 4;
	snprintf(prefix, sizeof prefix, "--file-prefix=freehold-show-%d", getpid());
	for (int i = 1; i < argc && n < 31; i++)
		all[n++] = argv[i];
	CHECK(rte_eal_init(n, all) >= 0);
}

int main(int argc, char **argv)
{
	start_eal(argc, argv);
	struct rte_mempool *pool = rte_pktmbuf_pool_create_by_ops("packets", BUFFERS, 0, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY,
	    "freehold");
	CHECK(pool != NULL);
	rte_eal_mp_remote_launch(work, pool, CALL_MAIN);
	rte_eal_mp_wait_lcore();
	void *held[7];
	CHECK(rte_mempool_get_bulk(pool, held, 7) == 0);

	struct freehold_mempool_stats stats;
	CHECK(freehold_mempool_stats_get(pool, &stats) == 0);
	printf("objects %" PRIu64 ", free %" PRIu64 ", lcores %" PRIu64 "\n", stats.objects, stats.free, stats.lcores);
	printf("taken out %" PRIu64 ", put back %" PRIu64 " here and %" PRIu64 " from elsewhere, refused %" PRIu64 "\n", stats.gets,
	    stats.puts_local, stats.puts_remote, stats.puts_refused);
	printf("refills %" PRIu64 ", shared writes %" PRIu64 ": one for each %.0f objects; %" PRIu64 " bytes of metadata\n",
	    stats.refills, stats.shared_writes, (double)stats.gets / (double)RTE_MAX(stats.shared_writes, UINT64_C(1)),
	    stats.metadata_bytes);
	CHECK(stats.objects == BUFFERS && stats.free == BUFFERS - 7 && stats.lcores == rte_lcore_count());
	CHECK(stats.gets >= UINT64_C(32) * ROUNDS && stats.puts_refused == 0);
	CHECK(stats.shared_writes < stats.gets / 100);

	char question[64], answer[4096], expected[64];
	snprintf(question, sizeof question, "/freehold/info,%s", pool->name);
	ask(question, answer, sizeof answer);
	printf("%s: %s\n", question, answer);
	snprintf(expected, sizeof expected, "\"free\":%d", BUFFERS - 7);
	CHECK(strstr(answer, expected) != NULL || strstr(answer, "\"free\": 4088") != NULL);
	ask("/freehold/list", answer, sizeof answer);
	CHECK(strstr(answer, "packets") != NULL);

	rte_mempool_put_bulk(pool, held, 7);
	rte_mempool_put(pool, held[3]);
	CHECK(freehold_mempool_stats_get(pool, &stats) == 0 && stats.puts_refused == 1 && stats.free == BUFFERS);
	rte_mempool_free(pool);
	printf("show_statistics: all right\n");
	return rte_eal_cleanup() == 0 ? 0 : 1;
}
