// SPDX-License-Identifier: MIT OR Apache-2.0
/* Freehold as a module of Linux: takes memory from the kernel, serves it by the frame, and gives all of it back. */
#include "fh.h"

#include <linux/mmzone.h>
#include <linux/module.h>
#include <linux/nodemask.h>

static unsigned int blocks = 64;
module_param(blocks, uint, 0444);
MODULE_PARM_DESC(blocks, "blocks of 2 MiB to take from the kernel");

static void find_frames(void)
{
	int node;

	fh_first_pfn = ULONG_MAX;
	for_each_online_node(node) {
		fh_first_pfn = min(fh_first_pfn, round_down(node_start_pfn(node), FH_BLOCK_FRAMES));
		fh_end_pfn = max(fh_end_pfn, round_up(node_end_pfn(node), FH_BLOCK_FRAMES));
	}
}

static int __init freehold_start(void)
{
	int status;

	find_frames();
	status = fh_platform_start(fh_first_pfn, fh_end_pfn, blocks);
	if (status)
		return status;
	status = fh_memory_start(blocks) ?: fh_shrinker_start();
	if (status) {
		fh_memory_hold();
		fh_platform_stop();
		fh_memory_stop();
		return status;
	}
	status = fh_device_start();
	if (!status) {
		status = fh_anonymous_start();
		if (status)
			fh_device_stop();
	}
	if (status) {
		fh_shrinker_stop();
		fh_memory_hold();
		fh_platform_stop();
		fh_memory_stop();
		return status;
	}
	fh_statistics_start();
	return 0;
}

static void __exit freehold_end(void)
{
	int status;

	fh_statistics_stop();
	fh_device_stop();
	fh_shrinker_stop();
	fh_memory_hold();
	status = fh_platform_stop();
	fh_memory_stop();
	pr_info("%s\n", status ? "FAILED at the end" : "ended, all is well");
}

module_init(freehold_start);
module_exit(freehold_end);
MODULE_LICENSE("Dual MIT/GPL");
MODULE_DESCRIPTION("Freehold: a page-frame allocator, over memory that the kernel lends it");
