// SPDX-License-Identifier: GPL-2.0
/*
 * Freehold as the allocator of each node's zones DMA32, Normal and Movable. At the end of the boot
 * all of these zones become Freehold's in one step:
 *
 *   1  an allocator for each zone over all of its blocks, in which every frame is allocated
 *   2  with all CPUs stopped: what is free in the kernel's lists is freed to Freehold; from then on
 *      mm/page_alloc.c asks and frees here
 *
 * Whoever has a frame then frees it to Freehold later. The kernel's lists of the zones stay empty
 * for good. A zone has an allocator of its own, as it has lists and marks of its own in the kernel:
 * who asks a zone is never served by another one, and which zones are asked the kernel's zonelists
 * say. A zone may begin or end inside a pageblock: the rest of it is a hole to its allocator, be it
 * one or another zone's. Where a pageblock is shared with a zone that is not Freehold's, all is
 * refused, with the reason in the log, and the kernel serves itself. Zone DMA is the kernel's own,
 * and so is a zone Movable that has no memory at the boot.
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

/* The map is there from the hand-over on: what it has a bit for is Freehold's. */
unsigned long fh_end_pfn;
unsigned long *fh_block_map;
unsigned long fh_swept;

/* What the hand-over gets: zones that have an allocator, by its number, and their blocks. */
static struct zone *found[FH_ALLOCATORS] __initdata;
static unsigned long *found_blocks __initdata;

/* Pieces of memory of a zone, and of its CMA memory, whole blocks each. */
#define MAX_PIECES 64
static freehold_frame_range memory[MAX_PIECES] __initdata, cma[MAX_PIECES] __initdata;

static struct delayed_work tending;
static DEFINE_PER_CPU(struct work_struct, ticks);

void fh_give(unsigned long pfn, unsigned int order)
{
	int status = fh_free_of(fh_number(pfn), pfn, order);

	if (!WARN_ONCE(status, "freehold: order %u at %lu is not taken: %d\n", order, pfn, status))
		fh_account(pfn, 1L << order);
}

static int __init hand_over(void *unused)
{
	for (unsigned int which = 0; which < FH_ALLOCATORS; which++) {
		if (!found[which])
			continue;
		/* Ahead of the rest: what the lists give is counted in the zone. */
		WRITE_ONCE(fh_zones[which], found[which]);
		fh_zones_end = which + 1;
		/* A zone without memory has no lists yet. */
		if (!populated_zone(found[which]))
			continue;
		fh_empty_lists(found[which], true);
		fh_forget_highatomic(found[which]);
		atomic_long_set(&fh_locks[which], 0);
	}
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
	unsigned int cpu, which;
	struct zone *zone;

	for_each_zone_of_freehold(zone, which)
		if (fh_in_lists(zone))
			WRITE_ONCE(fh_swept, fh_swept + fh_empty_lists(zone, false));
	fh_note_reserves();
	fh_report_again();
	/* One that leaves meanwhile has it done elsewhere, where it does no harm. */
	for_each_online_cpu(cpu)
		queue_work_on(cpu, system_wq, per_cpu_ptr(&ticks, cpu));
	schedule_delayed_work(&tending, HZ);
}

/* The zone that a frame is of. A hole between two zones has the links of one of them: NULL. */
static struct zone *__init zone_of(unsigned long pfn)
{
	struct page *page = pfn_to_online_page(pfn);

	return page && zone_spans_pfn(page_zone(page), pfn) ? page_zone(page) : NULL;
}

/* Whether the pageblock of that frame is of the zone, or a part of it is. */
static bool __init is_of(unsigned long pfn, struct zone *zone)
{
	return zone_of(pfn) == zone || zone_of(pfn + FH_BLOCK_FRAMES - 1) == zone;
}

static bool __init is_cma_of(unsigned long pfn, struct zone *zone)
{
	return zone_of(pfn) == zone && is_migrate_cma(get_pageblock_migratetype(pfn_to_page(pfn)));
}

/*
 * The zone's pageblocks of which that is so, in pieces; how many, or SIZE_MAX for too many. Of its
 * first and its last one only what is the zone's: a block with a hole is never emptied.
 */
static size_t __init find_pieces(struct zone *zone, bool (*is)(unsigned long, struct zone *),
				 freehold_frame_range *pieces)
{
	unsigned long pfn = round_down(zone->zone_start_pfn, FH_BLOCK_FRAMES);
	size_t count = 0;

	for (; pfn < zone_end_pfn(zone); pfn += FH_BLOCK_FRAMES) {
		if (!is(pfn, zone))
			continue;
		if (count && pieces[count - 1].end == pfn) {
			pieces[count - 1].end += FH_BLOCK_FRAMES;
			continue;
		}
		if (count == MAX_PIECES)
			return SIZE_MAX;
		pieces[count++] = (freehold_frame_range){ pfn, pfn + FH_BLOCK_FRAMES };
	}
	if (count) {
		pieces[0].start = max(pieces[0].start, zone->zone_start_pfn);
		pieces[count - 1].end = min(pieces[count - 1].end, zone_end_pfn(zone));
	}
	return count;
}

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

/* Every frame of an allocator's memory is in use. */
static int __init take_all(freehold_allocator *fh, size_t pieces)
{
	freehold_error error;

	for (size_t at = 0; at < pieces; at++) {
		if (FH_ALONE(freehold_alloc_contig_range(fh, memory[at].start, memory[at].end, NULL,
							 NULL, &error))) {
			pr_err("REFUSED: %s: the kernel serves itself\n", error.message);
			return -EIO;
		}
	}
	return 0;
}

/*
 * An allocator over all of the zone, of which nothing is free. Holes in its pageblocks are frames
 * that nobody ever frees. Memory that has gone may come back as another zone's, so there is room
 * for all that the machine may have; a zone below zone Normal gets none beyond its end.
 */
static int __init make_allocator(struct zone *zone)
{
	size_t pieces = find_pieces(zone, is_of, memory), cma_count = find_pieces(zone, is_cma_of, cma);
	unsigned long end = zone_idx(zone) < ZONE_NORMAL ? zone_end_pfn(zone) : fh_end_pfn;
	freehold_zone config = {
		.span = { 0, round_up(end, FH_BLOCK_FRAMES) },
		.memory = memory, .memory_count = pieces,
		.cma = cma, .cma_count = cma_count,
		.watermarks = FREEHOLD_WATERMARK_RULE_NONE,
	};
	unsigned int which = fh_number_of_zone(zone);
	unsigned long frames = 0;
	int status;

	if (pieces == SIZE_MAX || cma_count == SIZE_MAX) {
		pr_err("REFUSED: node %d's zone %s has more than %d pieces of memory, or of CMA memory: the kernel serves itself\n",
		       zone_to_nid(zone), zone->name, MAX_PIECES);
		return -E2BIG;
	}
	for (size_t at = 0; at < pieces; at++)
		frames += memory[at].end - memory[at].start;
	config.spare_sections = DIV_ROUND_UP(config.span.end - frames, FH_SECTION_FRAMES);
	status = fh_platform_add(which, &config, 2 * (config.span.end >> FH_BLOCK_ORDER)) ?:
		 take_all(fh_allocators[which], pieces);
	if (!status)
		found[which] = zone;
	return status;
}

/* A zone Normal without memory may get some. */
static bool __init is_served(struct zone *zone)
{
#ifdef CONFIG_ZONE_DMA
	if (zone_idx(zone) == ZONE_DMA)
		return false;
#endif
	return populated_zone(zone) || zone_idx(zone) == ZONE_NORMAL;
}

static int __init make_allocators(void)
{
	int node, status = 0;

	if (pageblock_order != FH_BLOCK_ORDER) {
		pr_err("REFUSED: pageblocks are not of 2 MiB: the kernel serves itself\n");
		return -EOPNOTSUPP;
	}
	fh_end_pfn = end_of_room();
	for_each_node_state(node, N_MEMORY)
		for (int at = 0; at < MAX_NR_ZONES && !status; at++)
			if (is_served(&NODE_DATA(node)->node_zones[at]))
				status = make_allocator(&NODE_DATA(node)->node_zones[at]);
	return status;
}

static bool __init is_found(struct zone *zone)
{
	return zone && found[fh_number_of_zone(zone)];
}

/* Notes which blocks are of these zones; at most two zones meet in one. */
static int __init find_blocks(void)
{
	found_blocks = bitmap_zalloc(FH_BLOCK_NUMBERS, GFP_KERNEL);
	if (!found_blocks)
		return -ENOMEM;
	for (unsigned long pfn = 0; pfn < fh_end_pfn; pfn += FH_BLOCK_FRAMES) {
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
	unsigned int cpu, which;
	struct zone *zone;
	int status = make_allocators() ?: find_blocks() ?: fh_platform_start();

	/* What was made stays behind, and nobody uses it. */
	if (status)
		return status;
	stop_machine(hand_over, NULL, NULL);
	for_each_zone_of_freehold(zone, which)
		pr_info("node %d's zone %s is Freehold's: %lu of %lu frames are free\n",
			zone_to_nid(zone), zone->name, zone_page_state(zone, NR_FREE_PAGES),
			zone_managed_pages(zone));
	for_each_possible_cpu(cpu)
		INIT_WORK(per_cpu_ptr(&ticks, cpu), tick_this_cpu);
	INIT_DELAYED_WORK(&tending, tend);
	schedule_delayed_work(&tending, HZ);
	fh_tell_start();
	return 0;
}
late_initcall(freehold_start);
