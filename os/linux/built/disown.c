// SPDX-License-Identifier: GPL-2.0
/*
 * The RFC's kernel forgets which CPU owns which pageblock, as if it had just booted: no block has
 * an owner, none waits to be recovered, and what lies on a CPU's lists is not marked for merging.
 * Pages of those blocks that are in use go to the freeing CPU's lists one day, like all pages of
 * blocks without an owner.
 *
 * The other CPUs stand still meanwhile, none of them within a section that a spin lock protects: so
 * no lock is needed.
 */
#include "../internal.h"
#include "counts.h"

#include <linux/memory_hotplug.h>
#include <linux/mm.h>
#include <linux/mmzone.h>
#include <linux/stop_machine.h>

static void disown_lists(struct per_cpu_pages *pcp)
{
	struct page *page;

	for (int list = 0; list < NR_PCP_LISTS; list++)
		list_for_each_entry(page, &pcp->lists[list], pcp_list)
			if (PagePCPBuddy(page))
				__ClearPagePCPBuddy(page);
	INIT_LIST_HEAD(&pcp->owned_blocks);
}

static int disown(void *unused)
{
	struct zone *zone;

	for_each_populated_zone(zone) {
		unsigned long pfn = pageblock_start_pfn(zone->zone_start_pfn);
		int cpu;

		for_each_possible_cpu(cpu)
			disown_lists(per_cpu_ptr(zone->per_cpu_pageset, cpu));
		for (; pfn < zone_end_pfn(zone); pfn += pageblock_nr_pages) {
			struct page *page = pfn_to_online_page(pfn);
			struct pageblock_data *block;

			if (!page)
				continue;
			block = pfn_to_pageblock(page, pfn);
			block->cpu = 0;
			INIT_LIST_HEAD(&block->cpu_node);
		}
	}
	return 0;
}

void fh_disown(void)
{
	stop_machine(disown, NULL, NULL);
}
