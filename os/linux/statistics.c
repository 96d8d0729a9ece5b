// SPDX-License-Identifier: MIT OR Apache-2.0
/* /sys/kernel/debug/freehold: what the allocator and the module have done; the self-test is run there. */
#include "fh.h"

#include <linux/debugfs.h>
#include <linux/seq_file.h>

static struct dentry *directory;

static void show_zone(struct seq_file *file)
{
	freehold_zone_stats zone;

	if (freehold_read_zone_stats(fh_allocators[0], 0, &zone, NULL))
		return;
	seq_printf(file, "frames                %llu\n", zone.managed);
	seq_printf(file, "free                  %llu\n", zone.free);
	seq_printf(file, "free in zone          %llu\n", zone.free_in_zone);
	seq_printf(file, "free in CPUs          %llu\n", zone.free_in_cpus);
	seq_printf(file, "free blocks           %llu\n", zone.free_blocks);
	seq_printf(file, "unusable for order 9  %llu permille of what is free\n",
		   freehold_zone_stats_unusable_permille(&zone, FH_BLOCK_ORDER));
	seq_printf(file, "fallbacks             %llu\n", zone.fallbacks);
}

static void show_calls(struct seq_file *file)
{
	freehold_totals totals;
	u64 allocs[FREEHOLD_ORDERS] = {};
	unsigned int type, order;

	if (freehold_read_totals(fh_allocators[0], &totals, NULL))
		return;
	for (type = 0; type < ARRAY_SIZE(totals.cpus.allocs); type++)
		for (order = 0; order < FREEHOLD_ORDERS; order++)
			allocs[order] += totals.cpus.allocs[type][order];
	for (order = 0; order <= FH_BLOCK_ORDER; order++)
		seq_printf(file, "allocs of order %u     %llu\n", order, allocs[order]);
	seq_printf(file, "frees local           %llu\n", totals.cpus.local_frees);
	seq_printf(file, "frees remote          %llu\n", totals.cpus.remote_frees);
	seq_printf(file, "frees by shared door  %llu\n", totals.unattributed_frees);
	seq_printf(file, "failed                %llu\n", totals.cpus.failed);
	seq_printf(file, "slow                  %llu\n", totals.cpus.slow);
	seq_printf(file, "refills               %llu\n", totals.cpus.refills);
	seq_printf(file, "recalls               %llu\n", totals.cpus.recalls);
	seq_printf(file, "shared writes         %llu\n", totals.shared_writes);
}

static int statistics_show(struct seq_file *file, void *unused)
{
	show_zone(file);
	show_calls(file);
	seq_printf(file, "inside another call   %llu\n", fh_interrupted());
	seq_printf(file, "late double frees     %lld\n", atomic64_read(&fh_late_double_frees));
	seq_printf(file, "refused               %lld\n", atomic64_read(&fh_refused));
	seq_printf(file, "blocks                %u\n", fh_memory_blocks());
	seq_printf(file, "blocks taken          %lld\n", atomic64_read(&fh_taken));
	seq_printf(file, "blocks given back     %lld\n", atomic64_read(&fh_given));
	seq_printf(file, "shrinker calls        %lld\n", atomic64_read(&fh_shrinks));
	seq_printf(file, "shrinker asked        %lld\n", atomic64_read(&fh_shrink_asked));
	seq_printf(file, "shrinker blocks       %lld\n", atomic64_read(&fh_shrunk));
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(statistics);

/* Reading it checks every invariant; only to be relied on while nobody frees. */
static int validate_show(struct seq_file *file, void *unused)
{
	freehold_error error;

	if (FH_ALONE(freehold_validate(fh_allocators[0], &error)))
		seq_printf(file, "broken: %s\n", error.message);
	else
		seq_puts(file, "clean\n");
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(validate);

void fh_statistics_start(void)
{
	directory = debugfs_create_dir("freehold", NULL);
	debugfs_create_file("statistics", 0444, directory, NULL, &statistics_fops);
	debugfs_create_file("validate", 0444, directory, NULL, &validate_fops);
	debugfs_create_file("selftest", 0644, directory, NULL, &fh_selftest_operations);
	if (fh_anonymous_wanted())
		debugfs_create_file("anonymous", 0600, directory, NULL, &fh_anonymous_operations);
}

void fh_statistics_stop(void)
{
	debugfs_remove(directory);
}
