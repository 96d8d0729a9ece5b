// SPDX-License-Identifier: GPL-2.0
/* Prints what mm/page_alloc.c has counted: counts.h. */
#include "counts.h"

#include <linux/debugfs.h>
#include <linux/init.h>
#include <linux/seq_file.h>

atomic_long_t fh_counts[FH_COUNTS];
const char *fh_normal_locker = "nobody";

static const char *const names[FH_COUNTS] = {
	[FH_ZONE_LOCKS] = "zone_locks",		[FH_ZONE_WAITS] = "zone_waits",
	[FH_NORMAL_LOCKS] = "normal_locks",
	[FH_REFILLS] = "refills",		[FH_PHASE0_FRAMES] = "phase0_frames",
	[FH_PHASE1_FRAMES] = "phase1_frames",	[FH_PHASE2_FRAMES] = "phase2_frames",
	[FH_PHASE3_FRAMES] = "phase3_frames",	[FH_DRAINS] = "drains",
	[FH_DRAINED_FRAMES] = "drained_frames", [FH_MERGES] = "merges",
	[FH_REMOTE_FREES] = "remote_frees",
};

static int counts_show(struct seq_file *file, void *unused)
{
	for (int what = 0; what < FH_COUNTS; what++)
		seq_printf(file, "%s %ld\n", names[what], atomic_long_read(&fh_counts[what]));
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(counts);

FH_FILE(page_alloc_counts, 0444, counts_fops);
