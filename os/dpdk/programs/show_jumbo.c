/* Jumbo frames in one segment, out of the memory that small packets use: a pool whose buffers are neighbouring buffers of another
 * pool. Received by net_pcap, which chains buffers where one is too small. Takes EAL's options. */
#include "show.h"

enum { BUFFERS = 8192, FRAMES = 300, FRAME_BYTES = 9000, ROOM = RTE_PKTMBUF_HEADROOM + 9018 };

static uint8_t byte_of(unsigned int frame, unsigned int i)
{
	return (uint8_t)(frame * 31 + i * 7);
}

/* A capture of jumbo frames. */
static void write_capture(const char *path)
{
	FILE *file = fopen(path, "wb");
	CHECK(file != NULL);
	const uint32_t header[] = {0xa1b2c3d4, 4u << 16 | 2, 0, 0, 65535, 1};
	CHECK(fwrite(header, sizeof header, 1, file) == 1);
	for (unsigned int frame = 0; frame < FRAMES; frame++) {
		const uint32_t record[] = {frame, 0, FRAME_BYTES, FRAME_BYTES};
		uint8_t bytes[FRAME_BYTES];
		for (unsigned int i = 0; i < FRAME_BYTES; i++)
			bytes[i] = byte_of(frame, i);
		CHECK(fwrite(record, sizeof record, 1, file) == 1 && fwrite(bytes, sizeof bytes, 1, file) == 1);
	}
	CHECK(fclose(file) == 0);
}

/* Receives the capture, beside small packets; how many segments each frame has. */
static unsigned int receive(uint16_t port, struct rte_mempool *pool, struct rte_mempool *small)
{
	struct rte_mbuf *frames[FRAMES], *others[FRAMES];
	unsigned int count = 0, segments = 0;
	start_port(port, pool, FRAME_BYTES - 14, 0);
	while (count < FRAMES) {
		uint16_t n = rte_eth_rx_burst(port, 0, frames + count, (uint16_t)RTE_MIN(FRAMES - count, 32u));
		CHECK(n != 0);
		for (uint16_t i = 0; i < n; i++) {
			others[count + i] = rte_pktmbuf_alloc(small);
			CHECK(others[count + i] != NULL);
			memset(others[count + i]->buf_addr, 0xee, others[count + i]->buf_len);
		}
		count += n;
	}
	for (unsigned int frame = 0; frame < FRAMES; frame++) {
		uint8_t copy[FRAME_BYTES];
		const uint8_t *bytes = rte_pktmbuf_read(frames[frame], 0, FRAME_BYTES, copy);
		CHECK(bytes != NULL && frames[frame]->pkt_len == FRAME_BYTES && frames[frame]->pool == pool);
		CHECK((bytes == copy) == (frames[frame]->nb_segs > 1));
		for (unsigned int i = 0; i < FRAME_BYTES; i++)
			CHECK(bytes[i] == byte_of(frame, i));
		segments += frames[frame]->nb_segs;
	}
	rte_eth_dev_stop(port);
	rte_pktmbuf_free_bulk(others, FRAMES);
	rte_pktmbuf_free_bulk(frames, FRAMES);
	CHECK(segments % FRAMES == 0);
	return segments / FRAMES;
}

static void count_bytes(struct rte_mempool *pool, void *sum, struct rte_mempool_memhdr *piece, unsigned int index)
{
	RTE_SET_USED(pool);
	RTE_SET_USED(index);
	*(size_t *)sum += piece->len;
}

/* What device drivers that register memory by pool have to know is said of the jumbo pool as of its parent. */
static void check_for_drivers(struct rte_mempool *jumbo, struct rte_mempool *small)
{
	size_t of_jumbo = 0, of_small = 0;
	CHECK(rte_mempool_mem_iter(jumbo, count_bytes, &of_jumbo) == rte_mempool_mem_iter(small, count_bytes, &of_small));
	CHECK(of_jumbo == of_small && of_small != 0);
	CHECK((jumbo->flags & RTE_MEMPOOL_F_NON_IO) == (small->flags & RTE_MEMPOOL_F_NON_IO));
}

/* As another process sees it, for whom the number of the parent is that of no pool: refused, and nothing of it is touched. */
static void check_elsewhere(struct rte_mempool *jumbo, struct rte_mempool *small)
{
	uint64_t id = small->pool_id;
	struct rte_mbuf *m = rte_pktmbuf_alloc(jumbo);
	void *none = NULL;
	CHECK(m != NULL);
	small->pool_id = 1023;
	CHECK(rte_mempool_get(jumbo, &none) == -ENOTSUP && rte_mempool_avail_count(jumbo) == 0);
	rte_pktmbuf_free(m);
	small->pool_id = id;
	CHECK(rte_mempool_avail_count(small) + 4 == BUFFERS);
	rte_pktmbuf_free(m);
	CHECK(rte_mempool_avail_count(small) == BUFFERS);
}

int main(int argc, char **argv)
{
	char path[64], devices[256];
	snprintf(path, sizeof path, "/tmp/freehold-jumbo-%d.pcap", getpid());
	write_capture(path);
	snprintf(devices, sizeof devices, "net_pcap0,rx_pcap=%s", path);
	start_eal(argc, argv, devices);
	struct rte_mempool *small = rte_pktmbuf_pool_create_by_ops("small", BUFFERS, 0, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY,
	    "freehold");
	CHECK(small != NULL);
	struct rte_mempool *jumbo = freehold_mempool_jumbo_create(small, "jumbo", ROOM, 0);
	CHECK(jumbo != NULL && rte_pktmbuf_data_room_size(jumbo) == ROOM);

	check_for_drivers(jumbo, small);
	check_elsewhere(jumbo, small);
	unsigned int chained = receive(0, small, small);
	printf("frames of %d bytes in buffers of %d: %u segments each\n", FRAME_BYTES, RTE_MBUF_DEFAULT_BUF_SIZE, chained);
	CHECK(chained > 1);
	unsigned int whole = receive(0, jumbo, small);
	unlink(path);
	printf("the same from the jumbo pool over the same memory: %u segment each\n", whole);
	CHECK(whole == 1);
	CHECK(rte_mempool_avail_count(small) == BUFFERS && objects_in_list(small) == BUFFERS);

	/* All of the memory is for either. */
	unsigned int jumbos = rte_mempool_avail_count(jumbo);
	check_all_buffers(jumbo, jumbos);
	printf("%u buffers of %d bytes, or %u of %d, or any mixture\n", BUFFERS, RTE_MBUF_DEFAULT_BUF_SIZE, jumbos, ROOM);
	/* All but what is over at the end of each piece of memory. */
	CHECK(jumbos <= BUFFERS / 4 && jumbos >= BUFFERS / 4 - small->nb_mem_chunks);
	/* Put back once too often: refused, and the memory is nobody's twice. */
	struct rte_mbuf *m = rte_pktmbuf_alloc(jumbo);
	rte_pktmbuf_free(m);
	rte_mempool_put(jumbo, m);
	struct freehold_mempool_stats stats;
	CHECK(freehold_mempool_stats_get(small, &stats) == 0 && stats.puts_refused == 1);
	check_all_buffers(small, BUFFERS);
	CHECK(freehold_mempool_validate(small) == 0);
	rte_mempool_free(jumbo);
	CHECK(rte_mempool_avail_count(small) == BUFFERS);

	/* One that goes while lcores have some of its buffers in their caches. */
	jumbo = freehold_mempool_jumbo_create(small, "cached", ROOM, 32);
	CHECK(jumbo != NULL);
	m = rte_pktmbuf_alloc(jumbo);
	CHECK(m != NULL);
	rte_pktmbuf_free(m);
	CHECK(rte_mempool_avail_count(small) < BUFFERS);
	rte_mempool_free(jumbo);
	CHECK(rte_mempool_avail_count(small) == BUFFERS && objects_in_list(small) == BUFFERS);
	check_all_buffers(small, BUFFERS);
	CHECK(freehold_mempool_validate(small) == 0);
	rte_mempool_free(small);
	printf("show_jumbo: all right\n");
	return rte_eal_cleanup() == 0 ? 0 : 1;
}
