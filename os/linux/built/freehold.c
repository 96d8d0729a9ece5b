// SPDX-License-Identifier: GPL-2.0
/*
 * Freehold within the kernel's page allocator, which asks it first. At the end of the boot three quarters of what zone Normal has
 * free are taken (freehold.blocks=N takes so many blocks of 2 MiB), and stay; from then on mm/page_alloc.c asks here. platform.c,
 * memory.c and arithmetic.c are the module's own.
 */
#include "fh.h"

#include <linux/debugfs.h>
#include <linux/init.h>
#include <linux/mm.h>
#include <linux/moduleparam.h>
#include <linux/nodemask.h>
#include <linux/seq_file.h>
#include <linux/vmstat.h>

#include "../internal.h"
#include "hooks.h"

bool fh_serves __read_mostly;
static unsigned int blocks;
module_param(blocks, uint, 0444);

/* Defects are planted in the module only. */
bool fh_planted(const char *defect)
{
	return false;
}

struct page *fh_page(gfp_t gfp, unsigned int order)
{
	u64 pfn;

	return fh_alloc(gfp, order, &pfn) ? NULL : pfn_to_page(pfn);
}

bool fh_has_page(unsigned long pfn)
{
	return READ_ONCE(fh_serves) && fh_has(pfn);
}

void fh_free_page(unsigned long pfn, unsigned int order)
{
	int status = fh_free(pfn, order);

	WARN_ONCE(status, "freehold: a free of order %u at %lu is refused: %d\n", order, pfn, status);
}

static int statistics_show(struct seq_file *file, void *unused)
{
	freehold_totals totals;
	freehold_zone_stats zone;

	if (freehold_read_totals(fh, &totals, NULL) || freehold_read_zone_stats(fh, 0, &zone, NULL))
		return -EIO;
	seq_printf(file, "shared_writes %llu\n", totals.shared_writes);
	seq_printf(file, "served_nothing %llu\n", totals.cpus.failed);
	seq_printf(file, "inside_another_call %llu\n", fh_interrupted());
	seq_printf(file, "refused %lld\n", atomic64_read(&fh_refused) + atomic64_read(&fh_late_double_frees));
	seq_printf(file, "frames %llu\n", zone.managed);
	seq_printf(file, "free_frames %llu\n", zone.free);
	seq_printf(file, "whole_blocks %llu\n", zone.free_blocks);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(statistics);

static int __init freehold_start(void)
{
	struct zone *normal = &NODE_DATA(first_online_node)->node_zones[ZONE_NORMAL];
	int node, status;

	fh_first_pfn = ULONG_MAX;
	for_each_online_node(node) {
		fh_first_pfn = min(fh_first_pfn, round_down(node_start_pfn(node), FH_BLOCK_FRAMES));
		fh_end_pfn = max(fh_end_pfn, round_up(node_end_pfn(node), FH_BLOCK_FRAMES));
	}
	if (!blocks)
		blocks = zone_page_state(normal, NR_FREE_PAGES) / FH_BLOCK_FRAMES * 3 / 4;
	status = fh_platform_start(fh_first_pfn, fh_end_pfn, blocks) ?: fh_memory_start(blocks);
	if (status) {
		pr_err("not enough memory for %u blocks: the kernel serves itself\n", blocks);
		return status;
	}
	debugfs_create_file("freehold", 0444, NULL, NULL, &statistics_fops);
	WRITE_ONCE(fh_serves, true);
	return 0;
}
late_initcall(freehold_start);
