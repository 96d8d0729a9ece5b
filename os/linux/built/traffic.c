// SPDX-License-Identifier: GPL-2.0
/*
 * Chunks of order 3 that one CPU allocates and another frees, as a connection's two ends do: read
 * from /sys/kernel/debug/page_alloc_traffic, run when it is read, for 1 and for 16 chunks in flight.
 * How often the zone's lock was taken, how many chunks there were, how often the one that was used
 * most was. The other CPU frees in an interrupt that the first waits for, so that the order is the
 * same in each run. The CPUs' lists are empty before.
 */
#include <linux/debugfs.h>
#include <linux/gfp.h>
#include <linux/init.h>
#include <linux/mm.h>
#include <linux/seq_file.h>
#include <linux/smp.h>
#include <linux/vmalloc.h>
#include <linux/workqueue.h>

#include "counts.h"

#define ORDER 3
#define CHUNKS 40000
#define IN_FLIGHT 16

static void free_here(void *page)
{
	__free_pages(page, ORDER);
}

/* A chunk for each slot of the ring in turn, in the place of the one that was there. */
static bool exchange(u16 *uses, unsigned int in_flight)
{
	struct page *ring[IN_FLIGHT] = {};
	unsigned int other = cpumask_last(cpu_online_mask), had = 0;

	for (unsigned int i = 0; i < CHUNKS + in_flight; i++) {
		struct page **slot = &ring[i % in_flight];

		if (*slot)
			smp_call_function_single(other, free_here, *slot, 1);
		*slot = i < CHUNKS ? alloc_pages(GFP_KERNEL | __GFP_COMP, ORDER) : NULL;
		if (*slot) {
			uses[page_to_pfn(*slot) >> ORDER]++;
			had++;
		}
		cond_resched();
	}
	return had == CHUNKS;
}

static int traffic(struct seq_file *file, unsigned int in_flight)
{
	unsigned long all = (max_pfn >> ORDER) + 1, different = 0;
	u16 most = 0, *uses = vcalloc(all, sizeof(*uses));
	bool had;
	long locks;

	if (!uses)
		return -ENOMEM;
	drain_all_pages(NULL);
	locks = atomic_long_read(&fh_counts[FH_ZONE_LOCKS]);
	had = exchange(uses, in_flight);
	locks = atomic_long_read(&fh_counts[FH_ZONE_LOCKS]) - locks;
	for (unsigned long chunk = 0; chunk < all; chunk++) {
		most = max(most, uses[chunk]);
		different += !!uses[chunk];
	}
	seq_printf(file, "in_flight_%u zone_locks %ld chunks %lu most_uses %u\n", in_flight, locks,
		   different, most);
	vfree(uses);
	return had ? 0 : -ENOMEM;
}

static long both(void *file)
{
	return traffic(file, 1) ?: traffic(file, IN_FLIGHT);
}

static int traffic_show(struct seq_file *file, void *unused)
{
	return work_on_cpu(cpumask_first(cpu_online_mask), both, file);
}
DEFINE_SHOW_ATTRIBUTE(traffic);

FH_FILE(page_alloc_traffic, 0400, traffic_fops);
