/* What is put back twice, or was never an object of the pool, is refused, and is not handed out
 * twice. Takes EAL's options. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_mempool.h>

#define CHECK(what)                                                                                \
	do {                                                                                       \
		if (!(what)) {                                                                     \
			fprintf(stderr, "%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, #what,     \
			    rte_strerror(rte_errno));                                              \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

enum { OBJECTS = 1023, BYTES = 256 };

int main(int argc, char **argv)
{
	CHECK(rte_eal_init(argc, argv) >= 0);
	struct rte_mempool *pool =
	    rte_mempool_create_empty("refused", OBJECTS, BYTES, 0, 0, SOCKET_ID_ANY, 0);
	CHECK(pool != NULL);
	CHECK(rte_mempool_set_ops_byname(pool, "freehold", NULL) == 0);
	CHECK(rte_mempool_populate_default(pool) == OBJECTS);
	static void *objects[OBJECTS];
	CHECK(rte_mempool_get_bulk(pool, objects, OBJECTS) == 0);
	uint64_t foreign[BYTES] = {0};
	rte_mempool_put(pool, objects[7]);
	rte_mempool_put(pool, objects[7]);
	rte_mempool_put(pool, (uint8_t *)objects[8] + 1);
	rte_mempool_put(pool, &foreign[BYTES / 2]);
	CHECK(rte_mempool_avail_count(pool) == 1);
	void *again, *none;
	CHECK(rte_mempool_get(pool, &again) == 0 && again == objects[7]);
	CHECK(rte_mempool_get(pool, &none) != 0);
	rte_mempool_put_bulk(pool, objects, OBJECTS);
	CHECK(rte_mempool_full(pool));
	rte_mempool_free(pool);
	printf("refused: all right\n");
	return rte_eal_cleanup() == 0 ? 0 : 1;
}
