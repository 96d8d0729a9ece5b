/* What the programs that show something share. */
#ifndef FREEHOLD_DPDK_SHOW_H
#define FREEHOLD_DPDK_SHOW_H

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>

#include "freehold_mempool.h"

#define CHECK(what)                                                                                                  \
	do {                                                                                                         \
		if (!(what)) {                                                                                       \
			fprintf(stderr, "%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, #what, rte_strerror(rte_errno)); \
			exit(1);                                                                                     \
		}                                                                                                    \
	} while (0)

/* EAL with these options and those of the command line; `port` is a virtual device or null. */
static inline void start_eal(int argc, char **argv, const char *port)
{
	static char prefix[64], device[512];
	char *all[32] = {argv[0], prefix, (char *)(uintptr_t)"--no-pci", (char *)(uintptr_t)"--log-level=error"};
	int n = 4;
	snprintf(prefix, sizeof prefix, "--file-prefix=freehold-show-%d", getpid());
	if (port != NULL) {
		snprintf(device, sizeof device, "--vdev=%s", port);
		all[n++] = device;
	}
	for (int i = 1; i < argc && n < 31; i++)
		all[n++] = argv[i];
	CHECK(rte_eal_init(n, all) >= 0);
}

static inline void start_port(uint16_t port, struct rte_mempool *pool, uint32_t mtu, uint64_t rx_offloads)
{
	struct rte_eth_conf conf;
	memset(&conf, 0, sizeof conf);
	conf.rxmode.mtu = mtu;
	conf.rxmode.offloads = rx_offloads;
	CHECK(rte_eth_dev_configure(port, 1, 1, &conf) == 0);
	CHECK(rte_eth_rx_queue_setup(port, 0, 512, SOCKET_ID_ANY, NULL, pool) == 0);
	CHECK(rte_eth_tx_queue_setup(port, 0, 512, SOCKET_ID_ANY, NULL) == 0);
	CHECK(rte_eth_dev_start(port) == 0);
}

/* Every object of a pool of packet buffers is there once, and as rte_pktmbuf_init() leaves it. */
static inline void check_all_buffers(struct rte_mempool *pool, unsigned int count)
{
	struct rte_mbuf **all = calloc(count, sizeof *all);
	CHECK(all != NULL);
	CHECK(rte_mempool_avail_count(pool) == count);
	for (unsigned int i = 0; i < count; i++) {
		struct rte_mbuf *m = all[i] = rte_pktmbuf_alloc(pool);
		CHECK(m != NULL && m->pool == pool && rte_mempool_from_obj(m) == pool);
		CHECK(m->buf_addr == (char *)m + sizeof *m && m->buf_len == rte_pktmbuf_data_room_size(pool));
		CHECK(m->next == NULL && m->nb_segs == 1 && rte_mbuf_refcnt_read(m) == 1);
		memset(m->buf_addr, 0x5a, m->buf_len);
	}
	CHECK(rte_pktmbuf_alloc(pool) == NULL);
	rte_pktmbuf_free_bulk(all, count);
	free(all);
}

static inline void count_object(struct rte_mempool *pool, void *count, void *object, unsigned int i)
{
	RTE_SET_USED(i);
	RTE_SET_USED(pool);
	RTE_SET_USED(object);
	++*(unsigned int *)count;
}

static inline unsigned int objects_in_list(struct rte_mempool *pool)
{
	unsigned int count = 0;
	rte_mempool_obj_iter(pool, count_object, &count);
	return count;
}

#endif
