// SPDX-License-Identifier: MIT OR Apache-2.0
/* Freehold as a module of Linux: takes memory from the kernel, serves it by the frame, and gives all of it back. */
#include "fh.h"

#include <linux/mmzone.h>
#include <linux/module.h>
#include <linux/nodemask.h>

static unsigned int blocks = 64;
module_param(blocks, uint, 0444);
MODULE_PARM_DESC(blocks, "blocks of 2 MiB to take from the kernel");

/* All memory that the machine has now. */
static void find_frames(void)
{
	int node;

	fh_first_pfn = ULONG_MAX;
	for_each_online_node(node) {
		fh_first_pfn = min(fh_first_pfn, round_down(node_start_pfn(node), FH_BLOCK_FRAMES));
		fh_end_pfn = max(fh_end_pfn, round_up(node_end_pfn(node), FH_BLOCK_FRAMES));
	}
	/* As if all the rest had been plugged in later. */
	if (fh_planted("late"))
		fh_end_pfn = fh_first_pfn + FH_BLOCK_FRAMES;
}

/* The allocator, and all its memory. */
static int start_memory(void)
{
	freehold_zone zone = { .watermarks = FREEHOLD_WATERMARK_RULE_NONE };
	int status;

	if (!blocks)
		return -EINVAL;
	find_frames();
	zone.span = (freehold_frame_range){ fh_first_pfn, fh_end_pfn };
	zone.spare_sections = DIV_ROUND_UP(fh_end_pfn - fh_first_pfn, 32768) + 1;
	status = fh_platform_add(0, &zone, 2 * blocks + 64) ?: fh_platform_start();
	if (status)
		return status;
	status = fh_memory_start(blocks);
	if (status) {
		fh_memory_stop();
		fh_platform_stop();
	}
	return status;
}

static int end_memory(void)
{
	int status;

	fh_memory_hold();
	status = fh_platform_check();
	fh_memory_stop();
	return fh_platform_stop() ?: status;
}

/* What is seen from outside comes last: once it is there nothing may fail, since somebody may use it already. */
static int __init freehold_start(void)
{
	int status = start_memory();

	if (status)
		return status;
	status = fh_shrinker_start();
	if (status)
		goto no_shrinker;
	status = fh_anonymous_start();
	if (status)
		goto no_hooks;
	fh_anonymous_serve();
	fh_statistics_start();
	return 0;

no_hooks:
	fh_shrinker_stop();
no_shrinker:
	end_memory();
	return status;
}

static void __exit freehold_end(void)
{
	int status;

	fh_statistics_stop();
	fh_shrinker_stop();
	status = end_memory();
	pr_info("%s\n", status ? "FAILED at the end" : "ended, all is well");
}

module_init(freehold_start);
module_exit(freehold_end);
MODULE_LICENSE("Dual MIT/GPL");
MODULE_DESCRIPTION("Freehold: a page-frame allocator, over memory that the kernel lends it");
