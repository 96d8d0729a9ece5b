/* Pools of this driver beside those of DPDK's own: packets a second. Every run of a workload is made with each driver in turn, so
 * that what else the machine does hits all of them; the median of the runs is what is told.
 *
 *   bench [--json] [--runs N] [--milliseconds N] [--objects N] [--lcores LIST] [--drivers A,B,...] [--workload NAME]
 *         [--cache N] [--eal "OPTIONS"]
 *
 * forward: bursts of 32 from a net_null port (which takes each packet from the pool) to the same port (which puts it back).
 * burst:   32 objects taken, 32 put back, nothing done with them.
 * keep:    1,024 objects held; 32 taken, the 32 oldest put back.
 * pass:    each lcore takes 32 and hands them to the next lcore, which puts them back.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_ring.h>

enum { BURST = 32, KEEP = 1024, MAX_RUNS = 99, MAX_DRIVERS = 8, MAX_LCORES = 64 };

static struct options {
	bool json;
	unsigned int runs, milliseconds, objects;
	int cache; /* -1: without, and with one of 256 */
	const char *lcores, *eal, *workload;
	char *drivers[MAX_DRIVERS];
	unsigned int driver_count;
} options = {
	.runs = 5,
	.milliseconds = 300,
	.objects = 16383,
	.cache = -1,
	.lcores = "0,1",
	.eal = "--no-huge -m 512",
	.drivers = {"ring_mp_mc", "stack", "lf_stack", "freehold"},
	.driver_count = 4,
};

static struct rte_mempool *pool;
static struct rte_ring *rings[MAX_LCORES];
static struct result {
	uint64_t objects, cycles;
} __rte_cache_aligned results[MAX_LCORES];

static uint64_t end_of_run(void)
{
	return rte_get_tsc_cycles() + rte_get_tsc_hz() * options.milliseconds / 1000;
}

static uint64_t forward(unsigned int lcore, uint64_t end)
{
	struct rte_mbuf *packets[BURST];
	uint64_t count = 0;
	while (rte_get_tsc_cycles() < end)
		for (int i = 0; i < 64; i++) {
			uint16_t received = rte_eth_rx_burst(0, (uint16_t)lcore, packets, BURST);
			uint16_t sent = rte_eth_tx_burst(0, (uint16_t)lcore, packets, received);
			rte_pktmbuf_free_bulk(packets + sent, received - sent);
			count += received;
		}
	return count;
}

static uint64_t burst(unsigned int lcore, uint64_t end)
{
	void *objects[BURST];
	uint64_t count = 0;
	RTE_SET_USED(lcore);
	while (rte_get_tsc_cycles() < end)
		for (int i = 0; i < 64; i++)
			if (rte_mempool_get_bulk(pool, objects, BURST) == 0) {
				rte_mempool_put_bulk(pool, objects, BURST);
				count += BURST;
			}
	return count;
}

static uint64_t keep(unsigned int lcore, uint64_t end)
{
	void *objects[KEEP];
	uint64_t count = 0;
	unsigned int at = 0;
	RTE_SET_USED(lcore);
	if (rte_mempool_get_bulk(pool, objects, KEEP) != 0)
		return 0;
	while (rte_get_tsc_cycles() < end)
		for (int i = 0; i < 64; i++) {
			rte_mempool_put_bulk(pool, objects + at, BURST);
			if (rte_mempool_get_bulk(pool, objects + at, BURST) != 0)
				return 0;
			at = (at + BURST) % KEEP;
			count += BURST;
		}
	rte_mempool_put_bulk(pool, objects, KEEP);
	return count;
}

static uint64_t pass(unsigned int lcore, uint64_t end)
{
	struct rte_ring *in = rings[lcore], *out = rings[(lcore + 1) % rte_lcore_count()];
	void *objects[BURST];
	uint64_t count = 0;
	while (rte_get_tsc_cycles() < end)
		for (int i = 0; i < 64; i++) {
			unsigned int n = rte_ring_sc_dequeue_bulk(in, objects, BURST, NULL);
			if (n != 0)
				rte_mempool_put_bulk(pool, objects, n);
			count += n;
			if (rte_ring_free_count(out) >= BURST && rte_mempool_get_bulk(pool, objects, BURST) == 0)
				rte_ring_sp_enqueue_bulk(out, objects, BURST, NULL);
		}
	return count;
}

static const struct workload {
	const char *name;
	uint64_t (*run)(unsigned int lcore, uint64_t end);
} workloads[] = {{"forward", forward}, {"burst", burst}, {"keep", keep}, {"pass", pass}};

static int on_lcore(void *arg)
{
	const struct workload *workload = arg;
	unsigned int lcore = (unsigned int)rte_lcore_index((int)rte_lcore_id());
	uint64_t start = rte_get_tsc_cycles();
	results[lcore].objects = workload->run(lcore, end_of_run());
	results[lcore].cycles = rte_get_tsc_cycles() - start;
	return 0;
}

static void die(const char *what)
{
	fprintf(stderr, "bench: %s: %s\n", what, rte_strerror(rte_errno));
	exit(1);
}

static void port_up(void)
{
	struct rte_eth_conf conf;
	memset(&conf, 0, sizeof conf);
	uint16_t queues = (uint16_t)rte_lcore_count();
	if (rte_eth_dev_configure(0, queues, queues, &conf) != 0)
		die("port");
	for (uint16_t queue = 0; queue < queues; queue++)
		if (rte_eth_rx_queue_setup(0, queue, 512, SOCKET_ID_ANY, NULL, pool) != 0
		    || rte_eth_tx_queue_setup(0, queue, 512, SOCKET_ID_ANY, NULL) != 0)
			die("queue");
	if (rte_eth_dev_start(0) != 0)
		die("start");
}

/* What is still on its way from one lcore to the next. */
static void empty_rings(void)
{
	void *object;
	for (unsigned int i = 0; i < rte_lcore_count(); i++)
		while (rte_ring_sc_dequeue(rings[i], &object) == 0)
			rte_mempool_put(pool, object);
}

/* Millions of objects a second, over all lcores. */
static double run(const struct workload *workload, const char *driver, unsigned int cache)
{
	pool = rte_pktmbuf_pool_create_by_ops("bench", options.objects, cache, 0, RTE_MBUF_DEFAULT_BUF_SIZE, (int)rte_socket_id(), driver);
	if (pool == NULL)
		die(driver);
	if (workload->run == forward)
		port_up();
	rte_eal_mp_remote_launch(on_lcore, (void *)(uintptr_t)workload, CALL_MAIN);
	rte_eal_mp_wait_lcore();
	double rate = 0;
	for (unsigned int i = 0; i < rte_lcore_count(); i++)
		rate += (double)results[i].objects / (double)results[i].cycles * (double)rte_get_tsc_hz() / 1e6;
	if (workload->run == forward)
		rte_eth_dev_stop(0);
	empty_rings();
	if (rte_mempool_avail_count(pool) != options.objects) {
		fprintf(stderr, "bench: %s, %s: %u of %u objects came back\n", workload->name, driver, rte_mempool_avail_count(pool),
		    options.objects);
		exit(1);
	}
	rte_mempool_free(pool);
	return rate;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static void compare(const struct workload *workload, unsigned int cache, bool first)
{
	double rates[MAX_DRIVERS][MAX_RUNS];
	/* Each time another one is the first. The round before does not count: it is what warms up the machine. */
	for (unsigned int i = 0; i <= options.runs; i++)
		for (unsigned int k = 0; k < options.driver_count; k++) {
			unsigned int d = (i + k) % options.driver_count;
			rates[d][i == 0 ? 0 : i - 1] = run(workload, options.drivers[d], cache);
		}
	if (options.json)
		printf("%s\n    {\"workload\": \"%s\", \"cache\": %u, \"million_per_second\": {", first ? "" : ",", workload->name, cache);
	else
		printf("%-8s %5u", workload->name, cache);
	for (unsigned int d = 0; d < options.driver_count; d++) {
		qsort(rates[d], options.runs, sizeof rates[d][0], by_value);
		double median = rates[d][options.runs / 2], low = rates[d][0], high = rates[d][options.runs - 1];
		if (options.json)
			printf("%s\"%s\": {\"median\": %.3f, \"low\": %.3f, \"high\": %.3f}", d == 0 ? "" : ", ", options.drivers[d], median, low,
			    high);
		else
			printf("  %7.2f (%5.1f to %5.1f)", median, low, high);
	}
	printf(options.json ? "}}" : "\n");
	fflush(stdout);
}

static void parse(int argc, char **argv)
{
	static const struct option known[] = {{"json", no_argument, NULL, 'j'}, {"runs", required_argument, NULL, 'r'},
		{"milliseconds", required_argument, NULL, 'm'}, {"objects", required_argument, NULL, 'o'},
		{"lcores", required_argument, NULL, 'l'}, {"eal", required_argument, NULL, 'e'},
		{"drivers", required_argument, NULL, 'd'}, {"workload", required_argument, NULL, 'w'},
		{"cache", required_argument, NULL, 'c'}, {NULL, 0, NULL, 0}};
	for (int c; (c = getopt_long(argc, argv, "", known, NULL)) != -1;) {
		switch (c) {
		case 'j': options.json = true; break;
		case 'r': options.runs = RTE_MAX(1u, RTE_MIN((unsigned int)atoi(optarg), (unsigned int)MAX_RUNS)); break;
		case 'm': options.milliseconds = (unsigned int)atoi(optarg); break;
		case 'o': options.objects = (unsigned int)atoi(optarg); break;
		case 'l': options.lcores = optarg; break;
		case 'w': options.workload = optarg; break;
		case 'c': options.cache = atoi(optarg); break;
		case 'e': options.eal = optarg; break;
		case 'd':
			options.driver_count = 0;
			for (char *name = strtok(optarg, ","); name != NULL && options.driver_count < MAX_DRIVERS; name = strtok(NULL, ","))
				options.drivers[options.driver_count++] = name;
			break;
		default: exit(2);
		}
	}
}

static void start_dpdk(char *program)
{
	static char line[512];
	char *argv[32] = {program, "-l", (char *)(uintptr_t)options.lcores, "--no-pci", "--vdev=net_null0", "--log-level=error"};
	int argc = 6;
	snprintf(line, sizeof line, "%s --file-prefix=freehold-bench-%d", options.eal, getpid());
	for (char *word = strtok(line, " "); word != NULL && argc < 31; word = strtok(NULL, " "))
		argv[argc++] = word;
	if (rte_eal_init(argc, argv) < 0)
		die("rte_eal_init");
	if (rte_lcore_count() > MAX_LCORES)
		die("too many lcores");
	for (unsigned int i = 0; i < rte_lcore_count(); i++) {
		char name[16];
		snprintf(name, sizeof name, "ring-%u", i);
		rings[i] = rte_ring_create(name, 1024, SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
		if (rings[i] == NULL)
			die("ring");
	}
}

int main(int argc, char **argv)
{
	parse(argc, argv);
	start_dpdk(argv[0]);
	if (options.json) {
		printf("{\n  \"lcores\": %u, \"objects\": %u, \"runs\": %u, \"milliseconds\": %u,\n  \"results\": [", rte_lcore_count(),
		    options.objects, options.runs, options.milliseconds);
	} else {
		printf("millions of objects a second over %u lcores: median (lowest to highest) of %u runs of %u ms, %u objects\n",
		    rte_lcore_count(), options.runs, options.milliseconds, options.objects);
		printf("workload cache");
		for (unsigned int d = 0; d < options.driver_count; d++)
			printf("  %-24s", options.drivers[d]);
		printf("\n");
	}
	static const int caches[] = {0, 256};
	bool first = true;
	for (unsigned int w = 0; w < RTE_DIM(workloads); w++) {
		if (options.workload != NULL && strcmp(options.workload, workloads[w].name) != 0)
			continue;
		for (unsigned int c = 0; c < (options.cache < 0 ? RTE_DIM(caches) : 1); c++) {
			compare(&workloads[w], (unsigned int)(options.cache < 0 ? caches[c] : options.cache), first);
			first = false;
		}
	}
	printf(options.json ? "\n  ]\n}\n" : "");
	rte_eal_cleanup();
	return 0;
}
