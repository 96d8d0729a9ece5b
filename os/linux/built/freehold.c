// SPDX-License-Identifier: GPL-2.0
/*
 * Freehold as the allocator of zone Normal. At the end of the boot all of the zone becomes Freehold's in one step:
 *
 *   1  an allocator over all blocks of the zone, in which every frame is allocated
 *   2  with all CPUs stopped: what is free in the kernel's lists is freed to Freehold; from then on mm/page_alloc.c asks and frees here
 *
 * Whoever has a frame then frees it to Freehold later. The kernel's lists of the zone stay empty for good. What is refused, with the
 * reason in the log: a machine on which several nodes have a zone Normal, or none has, or whose zone ends inside a pageblock; there the
 * kernel serves itself. Zones DMA32 and Movable are the kernel's own.
 */
#include "fh.h"

#include <linux/cpumask.h>
#include <linux/init.h>
#include <linux/mm.h>
#include <linux/nodemask.h>
#include <linux/page-isolation.h>
#include <linux/percpu.h>
#include <linux/stop_machine.h>
#include <linux/vmalloc.h>
#include <linux/workqueue.h>

#include "../internal.h"
#include "counts.h"
#include "hooks.h"
#include "own.h"
#include "walkers.h"

unsigned long fh_first_pfn, fh_end_pfn;
unsigned long *fh_block_map;
unsigned long fh_swept;
long fh_locks_before;

/* Pieces of CMA memory, whole blocks each. */
#define MAX_CMA_PIECES 64
static freehold_frame_range cma[MAX_CMA_PIECES] __initdata;

static struct delayed_work tending;
static DEFINE_PER_CPU(struct work_struct, ticks);

/* Defects are planted in the module only. */
bool fh_planted(const char *defect)
{
	return false;
}

void fh_give(unsigned long pfn, unsigned int order)
{
	int status = fh_free(pfn, order);

	if (!WARN_ONCE(status, "freehold: order %u at %lu is not taken: %d\n", order, pfn, status))
		mod_zone_page_state(page_zone(pfn_to_page(pfn)), NR_FREE_PAGES, 1L << order);
}

static int hand_over(void *zone)
{
	fh_empty_lists(zone, true);
	fh_forget_highatomic(zone);
	fh_locks_before = atomic_long_read(&fh_counts[FH_NORMAL_LOCKS]);
	WRITE_ONCE(fh_zone, zone);
	return 0;
}

static void tick_this_cpu(struct work_struct *unused)
{
	fh_tick();
}

/* Once a second: each CPU's periodic work, and whatever came to the kernel's lists. */
static void tend(struct work_struct *unused)
{
	unsigned int cpu;

	if (fh_in_lists(fh_zone))
		WRITE_ONCE(fh_swept, fh_swept + fh_empty_lists(fh_zone, false));
	fh_report_again();
	/* One that leaves meanwhile has it done elsewhere, where it does no harm. */
	for_each_online_cpu(cpu)
		queue_work_on(cpu, system_wq, per_cpu_ptr(&ticks, cpu));
	schedule_delayed_work(&tending, HZ);
}

/* The one zone Normal that the machine has. */
static struct zone *__init find_zone(void)
{
	struct zone *found = NULL;
	int node;

	for_each_online_node(node) {
		struct zone *zone = &NODE_DATA(node)->node_zones[ZONE_NORMAL];

		if (!populated_zone(zone))
			continue;
		if (found) {
			pr_err("REFUSED: several nodes have a zone Normal, and one can be served: the kernel serves itself\n");
			return NULL;
		}
		found = zone;
	}
	if (!found)
		pr_err("REFUSED: no node has a zone Normal: the kernel serves itself\n");
	return found;
}

#ifdef CONFIG_CMA
static size_t __init find_cma(struct zone *zone)
{
	size_t pieces = 0;
	unsigned long pfn;

	for (pfn = fh_first_pfn; pfn < fh_end_pfn; pfn += FH_BLOCK_FRAMES) {
		struct page *page = pfn_to_online_page(pfn);

		if (!page || !is_migrate_cma(get_pageblock_migratetype(page)))
			continue;
		if (pieces && cma[pieces - 1].end == pfn) {
			cma[pieces - 1].end += FH_BLOCK_FRAMES;
			continue;
		}
		if (pieces == MAX_CMA_PIECES)
			return SIZE_MAX;
		cma[pieces++] = (freehold_frame_range){ pfn, pfn + FH_BLOCK_FRAMES };
	}
	return pieces;
}
#else
static size_t __init find_cma(struct zone *zone)
{
	return 0;
}
#endif

/* An allocator over all of the zone, of which nothing is free. Holes are frames that nobody ever frees. */
static int __init make_allocator(struct zone *normal)
{
	freehold_frame_range all = { fh_first_pfn, fh_end_pfn };
	freehold_zone zone = {
		.span = all, .memory = &all, .memory_count = 1, .cma = cma, .cma_count = find_cma(normal),
		.watermarks = FREEHOLD_WATERMARK_RULE_NONE,
	};
	freehold_error error;
	int status;

	if (zone.cma_count == SIZE_MAX) {
		pr_err("REFUSED: more than %d pieces of CMA memory: the kernel serves itself\n", MAX_CMA_PIECES);
		return -E2BIG;
	}
	status = fh_platform_start(&zone, 2 * FH_BLOCK_NUMBERS);
	if (!status && FH_ALONE(freehold_alloc_contig_range(fh, all.start, all.end, NULL, NULL, &error))) {
		pr_err("REFUSED: %s: the kernel serves itself\n", error.message);
		status = -EIO;
	}
	return status;
}

static int __init freehold_start(void)
{
	struct zone *normal = find_zone();
	unsigned int cpu;
	int status;

	if (!normal)
		return -EOPNOTSUPP;
	fh_first_pfn = normal->zone_start_pfn;
	fh_end_pfn = zone_end_pfn(normal);
	if ((fh_first_pfn | fh_end_pfn) % FH_BLOCK_FRAMES || pageblock_order != FH_BLOCK_ORDER) {
		pr_err("REFUSED: the zone is not of whole blocks of 2 MiB: the kernel serves itself\n");
		return -EOPNOTSUPP;
	}
	fh_block_map = bitmap_zalloc(FH_BLOCK_NUMBERS, GFP_KERNEL);
	status = fh_block_map ? make_allocator(normal) : -ENOMEM;
	if (status)
		return status;
	bitmap_fill(fh_block_map, FH_BLOCK_NUMBERS);
	stop_machine(hand_over, normal, NULL);
	pr_info("zone Normal is Freehold's: %lu of %lu frames are free\n", zone_page_state(normal, NR_FREE_PAGES),
		zone_managed_pages(normal));
	for_each_possible_cpu(cpu)
		INIT_WORK(per_cpu_ptr(&ticks, cpu), tick_this_cpu);
	INIT_DELAYED_WORK(&tending, tend);
	schedule_delayed_work(&tending, HZ);
	fh_tell_start();
	return 0;
}
late_initcall(freehold_start);
