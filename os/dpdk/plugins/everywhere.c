/* A plugin for tests (`-d`, behind the driver): every pool that asks for one of DPDK's own software
 * drivers gets this one. DPDK's tests make most of their pools without asking which driver would be
 * liked. */
#include <string.h>

#include <rte_mempool.h>

RTE_INIT(everywhere)
{
	struct rte_mempool_ops *freehold = NULL;
	for (unsigned int i = 0; i < rte_mempool_ops_table.num_ops; i++)
		if (strcmp(rte_mempool_ops_table.ops[i].name, "freehold") == 0)
			freehold = &rte_mempool_ops_table.ops[i];
	for (unsigned int i = 0; freehold != NULL && i < rte_mempool_ops_table.num_ops; i++) {
		struct rte_mempool_ops *ops = &rte_mempool_ops_table.ops[i];
		if (strncmp(ops->name, "ring_", 5) != 0 && strcmp(ops->name, "stack") != 0
		    && strcmp(ops->name, "lf_stack") != 0)
			continue;
		struct rte_mempool_ops ours = *freehold;
		memcpy(ours.name, ops->name, sizeof ours.name);
		*ops = ours;
	}
}
