/* Memory goes back to the system while packets flow, and comes again: a pool sized for the worst hour of the day need not hold its
 * memory all day. Takes EAL's options; at least two lcores. */
#include "show.h"

#include <stdatomic.h>

enum { BUFFERS = 65536 };

static _Atomic uint64_t packets;
static _Atomic int stop;

static int forward(void *arg)
{
	struct rte_mbuf *burst[32];
	RTE_SET_USED(arg);
	while (!stop) {
		uint16_t n = rte_eth_rx_burst(0, 0, burst, 32);
		uint16_t sent = rte_eth_tx_burst(0, 0, burst, n);
		rte_pktmbuf_free_bulk(burst + sent, n - sent);
		packets += n;
	}
	return 0;
}

/* MiB of this process in memory, huge pages included. */
static double resident(void)
{
	char line[256];
	unsigned long kib, sum = 0;
	FILE *status = fopen("/proc/self/status", "r");
	CHECK(status != NULL);
	while (fgets(line, sizeof line, status) != NULL)
		if (sscanf(line, "VmRSS: %lu", &kib) == 1 || sscanf(line, "HugetlbPages: %lu", &kib) == 1)
			sum += kib;
	fclose(status);
	return (double)sum / 1024;
}

static void flow_on(void)
{
	uint64_t before = packets;
	while (packets < before + 100000)
		rte_pause();
}

int main(int argc, char **argv)
{
	start_eal(argc, argv, "net_null0");
	unsigned int lcore = rte_get_next_lcore(rte_lcore_id(), 1, 0);
	CHECK(lcore != RTE_MAX_LCORE);
	struct rte_mempool *pool = rte_pktmbuf_pool_create_by_ops("day", BUFFERS, 256, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY,
	    "freehold");
	CHECK(pool != NULL);
	check_all_buffers(pool, BUFFERS);
	start_port(0, pool, 0, 0);
	rte_eal_remote_launch(forward, NULL, lcore);
	flow_on();

	double full = resident();
	int64_t given = freehold_mempool_give_back(pool, UINT64_MAX);
	if (given == -ENOTSUP) {
		fprintf(stderr, "SKIPPED: IO addresses are physical ones here, or VFIO is in use; --iova-mode=va\n");
		stop = 1;
		rte_eal_wait_lcore(lcore);
		return 0;
	}
	CHECK(given > 0);
	flow_on();
	double lean = resident();
	struct freehold_mempool_stats stats;
	CHECK(freehold_mempool_stats_get(pool, &stats) == 0);
	printf("%u buffers in use or not: %.0f MiB in memory; %.0f MiB given back while packets flow: %.0f MiB; %" PRIu64
	       " buffers are left\n", BUFFERS, full, (double)given / (1 << 20), lean, stats.objects);
	/* Nine tenths of the pool, and that much less in memory. */
	CHECK(given > (int64_t)(BUFFERS * UINT64_C(2304) / 10 * 9));
	CHECK(full - lean > (double)given / (1 << 20) * 0.95);
	CHECK(stats.objects + stats.given_back == BUFFERS && objects_in_list(pool) < BUFFERS / 10);
	CHECK(freehold_mempool_give_back(pool, UINT64_MAX) <= given / 10);

	CHECK(freehold_mempool_take_back(pool, BUFFERS / 2, rte_pktmbuf_init, NULL) >= BUFFERS / 2);
	flow_on();
	double half = resident();
	CHECK(freehold_mempool_take_back(pool, UINT32_MAX, rte_pktmbuf_init, NULL) > 0);
	flow_on();
	stop = 1;
	rte_eal_wait_lcore(lcore);
	printf("half of it again: %.0f MiB; %" PRIu64 " packets meanwhile\n", half, packets);
	rte_eth_dev_stop(0);

	rte_mempool_cache_flush(rte_mempool_default_cache(pool, lcore), pool);
	CHECK(freehold_mempool_stats_get(pool, &stats) == 0 && stats.given_back == 0 && stats.objects == BUFFERS);
	CHECK(objects_in_list(pool) == BUFFERS && pool->populated_size == BUFFERS);
	CHECK(freehold_mempool_validate(pool) == 0);
	check_all_buffers(pool, BUFFERS);
	rte_mempool_free(pool);
	printf("show_give_back: all right\n");
	return rte_eal_cleanup() == 0 ? 0 : 1;
}
