// SPDX-License-Identifier: GPL-2.0
/*
 * What /proc tells of Freehold's zones: buddyinfo, pagetypeinfo, the report on memory that an OOM
 * prints; and Freehold's own counts, as /sys/kernel/debug/freehold. freehold_marked, beside it, is
 * how many pages a dump of this moment has as free. Each reads what Freehold knows of its blocks,
 * without a lock of the zone's. How fragmented a zone is compaction asks often, so that is an
 * estimate by the board.
 */
#include "fh.h"

#include <linux/debugfs.h>
#include <linux/mm.h>
#include <linux/seq_file.h>
#include <linux/stop_machine.h>
#include <linux/vmstat.h>

#include "../internal.h"
#include "counts.h"
#include "hooks.h"
#include "own.h"
#include "walkers.h"

/* Larger chunks than the kernel knows are several of its largest ones. */
static void add_chunks(const u64 chunks[FREEHOLD_ORDERS], unsigned long nr_free[NR_PAGE_ORDERS])
{
	for (int order = 0; order < FREEHOLD_ORDERS; order++) {
		int kernels = min(order, MAX_PAGE_ORDER);

		nr_free[kernels] += chunks[order] << (order - kernels);
	}
}

/* What the zone's own lists have. */
static void read_lists(struct zone *zone, unsigned long nr_free[NR_PAGE_ORDERS])
{
	for (int order = 0; order < NR_PAGE_ORDERS; order++)
		nr_free[order] = data_race(zone->free_area[order].nr_free);
}

void fh_read_free(struct zone *zone, unsigned long nr_free[NR_PAGE_ORDERS])
{
	freehold_zone_blocks blocks;

	read_lists(zone, nr_free);
	if (!freehold_read_zone_blocks(fh_of_zone(zone), 0, &blocks, NULL))
		add_chunks(blocks.free_chunks, nr_free);
}

void fh_estimate_free(struct zone *zone, unsigned long nr_free[NR_PAGE_ORDERS])
{
	u64 chunks[FREEHOLD_ORDERS];

	read_lists(zone, nr_free);
	if (!freehold_read_listed_chunks(fh_of_zone(zone), 0, chunks, NULL))
		add_chunks(chunks, nr_free);
}

/* Freehold's number of a migratetype of the kernel's. */
static const u8 type_of[MIGRATE_TYPES] = {
	[MIGRATE_UNMOVABLE] = FREEHOLD_MIGRATETYPE_UNMOVABLE,
	[MIGRATE_MOVABLE] = FREEHOLD_MIGRATETYPE_MOVABLE,
	[MIGRATE_RECLAIMABLE] = FREEHOLD_MIGRATETYPE_RECLAIMABLE,
	[MIGRATE_HIGHATOMIC] = FREEHOLD_MIGRATETYPE_HIGH_ATOMIC,
#ifdef CONFIG_CMA
	[MIGRATE_CMA] = FREEHOLD_MIGRATETYPE_CMA,
#endif
#ifdef CONFIG_MEMORY_ISOLATION
	[MIGRATE_ISOLATE] = FREEHOLD_MIGRATETYPE_ISOLATE,
#endif
};

void fh_read_free_of(struct zone *zone, int migratetype, unsigned long nr_free[NR_PAGE_ORDERS])
{
	u64 chunks[FREEHOLD_ORDERS];

	memset(nr_free, 0, NR_PAGE_ORDERS * sizeof(*nr_free));
	if (!freehold_read_free_chunks(fh_of_zone(zone), 0, type_of[migratetype], chunks, NULL))
		add_chunks(chunks, nr_free);
}

void fh_read_blocks(struct zone *zone, unsigned long count[MIGRATE_TYPES])
{
	freehold_zone_blocks blocks;

	if (freehold_read_zone_blocks(fh_of_zone(zone), 0, &blocks, NULL))
		return;
	for (int type = 0; type < MIGRATE_TYPES; type++)
		count[type] = blocks.blocks_by_type[type_of[type]];
#ifdef CONFIG_MEMORY_ISOLATION
	count[MIGRATE_ISOLATE] -= fh_gone_blocks[fh_number_of_zone(zone)];
#endif
}

unsigned long fh_count_of(struct zone *zone, int item)
{
	freehold_zone_stats stats;

	if (item != NR_FREE_PAGES_BLOCKS || !fh_is_allocator_of(zone) ||
	    freehold_read_zone_stats(fh_of_zone(zone), 0, &stats, NULL))
		return 0;
	return (stats.whole_blocks + stats.blocks_in_cpus) << FH_BLOCK_ORDER;
}

unsigned long fh_count_of_all(int item)
{
	unsigned long count = 0;
	unsigned int which;
	struct zone *zone;

	for_each_zone_of_freehold(zone, which)
		count += fh_count_of(zone, item);
	return count;
}

/* Pages that a reader of a dump finds free, by their marks. */
static int count_marked(void *marked)
{
	unsigned long *count = marked;

	fh_mark_free(true);
	for (unsigned long pfn = 0; pfn < fh_end_pfn; pfn++)
		if (fh_has_page(pfn) && PageBuddy(pfn_to_page(pfn)))
			*count += 1UL << page_private(pfn_to_page(pfn));
	fh_mark_free(false);
	return 0;
}

static int marked_get(void *unused, u64 *count)
{
	unsigned long marked = 0;

	stop_machine(count_marked, &marked, NULL);
	*count = marked;
	return 0;
}
DEFINE_DEBUGFS_ATTRIBUTE(marked_operations, marked_get, NULL, "%llu\n");

atomic_long_t fh_locks[FH_ALLOCATORS];
const char *fh_locker = "nobody";

#ifdef CONFIG_PAGE_ALLOC_COUNTS
void fh_note_lock(const struct zone *zone, const char *function)
{
	if (!fh_is_allocator_of(zone))
		return;
	atomic_long_inc(&fh_locks[fh_number_of_zone(zone)]);
	WRITE_ONCE(fh_locker, function);
}
#endif

/* What all zones' allocators did. */
struct sums {
	u64 allocations, shared_writes, failed;
	long locks;
};

/* Of one zone, behind its node's number and its name; what its allocator did is added. */
static int show_zone(struct seq_file *file, struct zone *zone, struct sums *sums)
{
	freehold_totals totals;
	freehold_zone_stats stats;
	long locks = atomic_long_read(&fh_locks[fh_number_of_zone(zone)]);
	char name[32];

	snprintf(name, sizeof(name), "node%d_%s", zone_to_nid(zone), zone->name);
	if (freehold_read_totals(fh_of_zone(zone), &totals, NULL) ||
	    freehold_read_zone_stats(fh_of_zone(zone), 0, &stats, NULL))
		return -EIO;
	for (int order = 0; order < FREEHOLD_ORDERS; order++)
		for (int type = 0; type < ARRAY_SIZE(totals.cpus.allocs); type++)
			sums->allocations += totals.cpus.allocs[type][order];
	sums->shared_writes += totals.shared_writes;
	sums->failed += totals.cpus.failed;
	sums->locks += locks;
	seq_printf(file, "%s_frames %llu\n", name, stats.managed);
	seq_printf(file, "%s_free_frames %llu\n", name, stats.free);
	seq_printf(file, "%s_whole_blocks %llu\n", name, stats.whole_blocks + stats.blocks_in_cpus);
	/*
	 * The zone's count of free pages, and what its own lists have: nothing, but for a moment
	 * after the hand-over.
	 */
	seq_printf(file, "%s_counted_free %lu\n", name,
		   zone_page_state_snapshot(zone, NR_FREE_PAGES));
	seq_printf(file, "%s_in_lists %lu\n", name, fh_in_lists(zone));
	if (IS_ENABLED(CONFIG_PAGE_ALLOC_COUNTS))
		seq_printf(file, "%s_locks %ld\n", name, locks);
	return 0;
}

static int statistics_show(struct seq_file *file, void *unused)
{
	struct sums sums = {};
	unsigned int which;
	struct zone *zone;

	for_each_zone_of_freehold(zone, which)
		if (show_zone(file, zone, &sums))
			return -EIO;
	seq_printf(file, "allocations %llu\n", sums.allocations);
	seq_printf(file, "shared_writes %llu\n", sums.shared_writes);
	seq_printf(file, "served_nothing %llu\n", sums.failed);
	seq_printf(file, "inside_another_call %llu\n", fh_interrupted());
	seq_printf(file, "refused %lld\n",
		   atomic64_read(&fh_refused) + atomic64_read(&fh_late_double_frees));
	seq_printf(file, "owed_chunks %lld\n", atomic64_read(&fh_owed_chunks));
	seq_printf(file, "looks %lld\n", atomic64_read(&fh_looks));
	seq_printf(file, "rounds %lld\n", atomic64_read(&fh_rounds));
	seq_printf(file, "emptying %d\n", atomic_read(&fh_emptying));
	seq_printf(file, "emptied %lld\n", atomic64_read(&fh_emptied));
	seq_printf(file, "not_emptied %lld\n", atomic64_read(&fh_not_emptied));
	seq_printf(file, "swept %lu\n", READ_ONCE(fh_swept));
	if (!IS_ENABLED(CONFIG_PAGE_ALLOC_COUNTS))
		return 0;
	seq_printf(file, "locks_since %ld\n", sums.locks);
	seq_printf(file, "last_lock_by %s\n", READ_ONCE(fh_locker));
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(statistics);

void fh_tell_start(void)
{
	debugfs_create_file("freehold", 0444, NULL, NULL, &statistics_fops);
	debugfs_create_file("freehold_marked", 0400, NULL, NULL, &marked_operations);
}
