/* What a pool says about itself: to the program, and to DPDK's telemetry. */
#include "pool.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include <rte_telemetry.h>
#include <rte_version.h>

#include "freehold_mempool.h"

static void zone_stats(const struct pool *pool, struct freehold_mempool_stats *stats)
{
	for (unsigned int zone = 0; zone < pool->zones; zone++) {
		freehold_zone_stats of_zone;
		if (freehold_read_zone_stats(pool->engine, zone, &of_zone, NULL) == FREEHOLD_STATUS_OK)
			stats->free += of_zone.free;
	}
}

static void fill(const struct pool *pool, struct freehold_mempool_stats *stats)
{
	memset(stats, 0, sizeof *stats);
	for (unsigned int i = 0; i < pool->chunk_count; i++)
		stats->objects += pool->chunks[i].count;
	stats->chunks = pool->chunk_count;
	stats->metadata_bytes = pool->metadata_bytes;
	stats->puts_refused = atomic_load_explicit(&pool->refused, memory_order_relaxed);
	for (unsigned int lcore = 0; lcore < RTE_MAX_LCORE; lcore++)
		stats->lcores += pool->lcores[lcore].cpu != NULL;
	zone_stats(pool, stats);
	freehold_totals totals;
	if (freehold_read_totals(pool->engine, &totals, NULL) != FREEHOLD_STATUS_OK)
		return;
	for (int type = 0; type < 3; type++)
		for (int order = 0; order < FREEHOLD_ORDERS; order++)
			stats->gets += totals.cpus.allocs[type][order];
	stats->gets_failed = totals.cpus.failed;
	stats->puts_local = totals.cpus.local_frees;
	stats->puts_remote = totals.cpus.remote_frees + totals.unattributed_frees;
	stats->double_puts_late = totals.late_double_frees;
	stats->refills = totals.cpus.refills;
	stats->recalls = totals.cpus.recalls;
	stats->shared_writes = totals.shared_writes;
}

int freehold_mempool_stats_get(const struct rte_mempool *mp, struct freehold_mempool_stats *stats)
{
	if (!pool_is_ours(mp) || stats == NULL)
		return -EINVAL;
	fill(pool_of(mp), stats);
	return 0;
}

int freehold_mempool_validate(const struct rte_mempool *mp)
{
	if (!pool_is_ours(mp))
		return -EINVAL;
	freehold_error error;
	if (freehold_validate(pool_of(mp)->engine, &error) == FREEHOLD_STATUS_OK)
		return 0;
	POOL_LOG(ERR, "%s: %s\n", mp->name, error.message);
	return -EINVAL;
}

static void add_name(struct pool *pool, void *arg)
{
	rte_tel_data_add_array_string(arg, pool->mp->name);
}

static int list_pools(const char *cmd, const char *params, struct rte_tel_data *data)
{
	RTE_SET_USED(cmd);
	RTE_SET_USED(params);
	rte_tel_data_start_array(data, RTE_TEL_STRING_VAL);
	pool_each(add_name, data);
	return 0;
}

static void add(struct rte_tel_data *data, const char *name, uint64_t value)
{
#if RTE_VERSION >= RTE_VERSION_NUM(23, 3, 0, 0)
	rte_tel_data_add_dict_uint(data, name, value);
#else
	rte_tel_data_add_dict_u64(data, name, value);
#endif
}

static int add_stats(struct pool *pool, void *arg)
{
	struct freehold_mempool_stats stats;
	fill(pool, &stats);
	rte_tel_data_start_dict(arg);
	rte_tel_data_add_dict_string(arg, "pool", pool->mp->name);
#define ADD(field) add(arg, #field, stats.field)
	ADD(objects);
	ADD(free);
	ADD(chunks);
	ADD(lcores);
	ADD(gets);
	ADD(gets_failed);
	ADD(puts_local);
	ADD(puts_remote);
	ADD(puts_refused);
	ADD(double_puts_late);
	ADD(refills);
	ADD(recalls);
	ADD(shared_writes);
	ADD(metadata_bytes);
#undef ADD
	return 0;
}

static int pool_info(const char *cmd, const char *params, struct rte_tel_data *data)
{
	RTE_SET_USED(cmd);
	return params == NULL ? -EINVAL : pool_named(params, add_stats, data);
}

RTE_INIT(freehold_telemetry)
{
	rte_telemetry_register_cmd("/freehold/list", list_pools, "Returns the pools that Freehold keeps. Takes no parameters");
	rte_telemetry_register_cmd("/freehold/info", pool_info, "Returns a pool's statistics. Parameters: the pool's name");
}
