// SPDX-License-Identifier: GPL-2.0
/*
 * Freehold as the allocator of zone Normal, of each node that has one. At the end of the boot all
 * of these zones become Freehold's in one step:
 *
 *   1  an allocator for each zone over all of its blocks, in which every frame is allocated
 *   2  with all CPUs stopped: what is free in the kernel's lists is freed to Freehold; from then on
 *      mm/page_alloc.c asks and frees here
 *
 * Whoever has a frame then frees it to Freehold later. The kernel's lists of the zones stay empty
 * for good. A zone has an allocator of its own, by its node's number, as it has lists and marks of
 * its own in the kernel: who asks a zone is never served by another one. A zone may begin or end
 * inside a pageblock: the rest of it is a hole, or of another node's zone Normal, for whose
 * allocator the first zone's part is one. Where a pageblock is shared with a zone that is not
 * Freehold's, all is refused, with the reason in the log, and the kernel serves itself. Zones DMA32
 * and Movable are the kernel's own.
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

/*
 * The frames of all of Freehold's zones lie in between. The map is there from the hand-over on:
 * what it has a bit for is Freehold's.
 */
unsigned long fh_first_pfn = ULONG_MAX, fh_end_pfn;
unsigned long *fh_block_map;
unsigned long fh_swept;
long fh_locks_before;

/* What the hand-over gets: zones that have an allocator, by node, and their blocks. */
static struct zone *found[MAX_NUMNODES] __initdata;
static unsigned long *found_blocks __initdata;

/* Pieces of CMA memory of a zone, whole blocks each. */
#define MAX_CMA_PIECES 64
static freehold_frame_range cma[MAX_CMA_PIECES] __initdata;

static struct delayed_work tending;
static DEFINE_PER_CPU(struct work_struct, ticks);

void fh_give(unsigned long pfn, unsigned int order)
{
	int status = fh_free_of(fh_node_of(pfn), pfn, order);

	if (!WARN_ONCE(status, "freehold: order %u at %lu is not taken: %d\n", order, pfn, status))
		fh_account(pfn, 1L << order);
}

static int __init hand_over(void *unused)
{
	int node;

	for_each_node(node) {
		if (!found[node])
			continue;
		/* Ahead of the rest: what the lists give is counted in the zone. */
		WRITE_ONCE(fh_zones[node], found[node]);
		fh_empty_lists(found[node], true);
		fh_forget_highatomic(found[node]);
	}
	fh_locks_before = atomic_long_read(&fh_counts[FH_NORMAL_LOCKS]);
	/* Pairs with fh_has_page(). */
	smp_store_release(&fh_block_map, found_blocks);
	return 0;
}

static void tick_this_cpu(struct work_struct *unused)
{
	fh_tick();
}

/* Once a second: each CPU's periodic work, and whatever came to the kernel's lists. */
static void tend(struct work_struct *unused)
{
	struct zone *zone;
	unsigned int cpu;
	int node;

	for_each_zone_of_freehold(zone, node)
		if (fh_in_lists(zone))
			WRITE_ONCE(fh_swept, fh_swept + fh_empty_lists(zone, false));
	fh_note_reserves();
	fh_report_again();
	/* One that leaves meanwhile has it done elsewhere, where it does no harm. */
	for_each_online_cpu(cpu)
		queue_work_on(cpu, system_wq, per_cpu_ptr(&ticks, cpu));
	schedule_delayed_work(&tending, HZ);
}

/* The zone that a frame is of: NULL where it is no memory. */
static struct zone *__init zone_of(unsigned long pfn)
{
	struct page *page = pfn_to_online_page(pfn);

	return page ? page_zone(page) : NULL;
}

#ifdef CONFIG_CMA
static size_t __init find_cma(struct zone *zone)
{
	size_t pieces = 0;
	unsigned long pfn;

	for (pfn = round_down(zone->zone_start_pfn, FH_BLOCK_FRAMES); pfn < zone_end_pfn(zone);
	     pfn += FH_BLOCK_FRAMES) {
		if (zone_of(pfn) != zone ||
		    !is_migrate_cma(get_pageblock_migratetype(pfn_to_page(pfn))))
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

/* Memory that comes later may be as much as the machine has now, and lie as far behind it. */
static unsigned long __init end_of_room(void)
{
	unsigned long first = ULONG_MAX, end = 0;
	int node;

	for_each_online_node(node) {
		first = min(first, node_start_pfn(node));
		end = max(end, node_end_pfn(node));
	}
	return round_up(end + (end - first), FH_BLOCK_FRAMES);
}

/*
 * An allocator over all of the zone, of which nothing is free. Holes are frames that nobody ever
 * frees.
 */
static int __init make_allocator(struct zone *normal, unsigned long room)
{
	freehold_frame_range all = {
		round_down(normal->zone_start_pfn, FH_BLOCK_FRAMES),
		round_up(zone_end_pfn(normal), FH_BLOCK_FRAMES),
	};
	freehold_zone zone = {
		.span = { all.start, room },
		.memory = &all, .memory_count = 1,
		.cma = cma, .cma_count = find_cma(normal),
		.watermarks = FREEHOLD_WATERMARK_RULE_NONE,
		.spare_sections = DIV_ROUND_UP(room - all.end, FH_SECTION_FRAMES),
	};
	freehold_error error;
	int status;

	if (zone.cma_count == SIZE_MAX) {
		pr_err("REFUSED: node %d has more than %d pieces of CMA memory: the kernel serves itself\n",
		       zone_to_nid(normal), MAX_CMA_PIECES);
		return -E2BIG;
	}
	status = fh_platform_add(zone_to_nid(normal), &zone,
				 2 * ((all.end - all.start) >> FH_BLOCK_ORDER));
	if (status)
		return status;
	if (FH_ALONE(freehold_alloc_contig_range(fh_of_zone(normal), all.start, all.end, NULL, NULL,
						 &error))) {
		pr_err("REFUSED: %s: the kernel serves itself\n", error.message);
		return -EIO;
	}
	found[zone_to_nid(normal)] = normal;
	fh_first_pfn = min(fh_first_pfn, all.start);
	fh_end_pfn = max(fh_end_pfn, room);
	return 0;
}

static int __init make_allocators(void)
{
	int node, status = 0;

	if (pageblock_order != FH_BLOCK_ORDER) {
		pr_err("REFUSED: pageblocks are not of 2 MiB: the kernel serves itself\n");
		return -EOPNOTSUPP;
	}
	for_each_online_node(node) {
		struct zone *zone = &NODE_DATA(node)->node_zones[ZONE_NORMAL];

		if (!status && populated_zone(zone))
			status = make_allocator(zone, end_of_room());
	}
	if (!status && !fh_end_pfn) {
		pr_err("REFUSED: no node has a zone Normal: the kernel serves itself\n");
		status = -EOPNOTSUPP;
	}
	return status;
}

static bool __init is_found(struct zone *zone)
{
	return zone && zone == found[zone_to_nid(zone)];
}

/* Notes which blocks are of these zones; at most two zones meet in one. */
static int __init find_blocks(void)
{
	found_blocks = bitmap_zalloc(FH_BLOCK_NUMBERS, GFP_KERNEL);
	if (!found_blocks)
		return -ENOMEM;
	for (unsigned long pfn = fh_first_pfn; pfn < fh_end_pfn; pfn += FH_BLOCK_FRAMES) {
		struct zone *first = zone_of(pfn), *last = zone_of(pfn + FH_BLOCK_FRAMES - 1);

		if (!is_found(first) && !is_found(last))
			continue;
		if ((first && !is_found(first)) || (last && !is_found(last))) {
			pr_err("REFUSED: %s and %s meet within a block at %lu: the kernel serves itself\n",
			       first->name, last->name, pfn);
			return -EOPNOTSUPP;
		}
		__set_bit(fh_block_number(pfn), found_blocks);
	}
	return 0;
}

static int __init freehold_start(void)
{
	struct zone *zone;
	unsigned int cpu;
	int node, status = make_allocators() ?: find_blocks() ?: fh_platform_start();

	/* What was made stays behind, and nobody uses it. */
	if (status)
		return status;
	stop_machine(hand_over, NULL, NULL);
	for_each_zone_of_freehold(zone, node)
		pr_info("node %d's zone Normal is Freehold's: %lu of %lu frames are free\n", node,
			zone_page_state(zone, NR_FREE_PAGES), zone_managed_pages(zone));
	for_each_possible_cpu(cpu)
		INIT_WORK(per_cpu_ptr(&ticks, cpu), tick_this_cpu);
	INIT_DELAYED_WORK(&tending, tend);
	schedule_delayed_work(&tending, HZ);
	fh_tell_start();
	return 0;
}
late_initcall(freehold_start);
