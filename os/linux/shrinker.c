// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * The kernel is short of memory: whole blocks that nobody uses go back to it. It asks for a block at a time, as less cannot
 * go: by its own 128 frames each block would be four times what it asked for.
 */
#include "fh.h"
#include "compat.h"

#include <linux/shrinker.h>

atomic64_t fh_shrinks, fh_shrunk, fh_shrink_asked;

/* In frames, as the kernel counts. What is free but in blocks that somebody uses a part of cannot go. */
static unsigned long count_free(struct shrinker *shrinker, struct shrink_control *control)
{
	freehold_zone_stats stats;

	if (freehold_read_zone_stats(fh_allocators[0], 0, &stats, NULL) || !stats.free_blocks)
		return SHRINK_EMPTY;
	return stats.free_blocks * FH_BLOCK_FRAMES;
}

static unsigned long give(struct shrinker *shrinker, struct shrink_control *control)
{
	unsigned int given = fh_memory_give(DIV_ROUND_UP(control->nr_to_scan, FH_BLOCK_FRAMES));

	atomic64_inc(&fh_shrinks);
	atomic64_add(control->nr_to_scan, &fh_shrink_asked);
	atomic64_add(given, &fh_shrunk);
	return given ? given * FH_BLOCK_FRAMES : SHRINK_STOP;
}

#if FH_BEFORE(6, 7)
static struct shrinker shrinker = {
	.count_objects = count_free, .scan_objects = give, .seeks = DEFAULT_SEEKS, .batch = FH_BLOCK_FRAMES,
};

int fh_shrinker_start(void)
{
	return register_shrinker(&shrinker, "mm-freehold");
}

void fh_shrinker_stop(void)
{
	unregister_shrinker(&shrinker);
}
#else
static struct shrinker *shrinker;

int fh_shrinker_start(void)
{
	shrinker = shrinker_alloc(0, "mm-freehold");
	if (!shrinker)
		return -ENOMEM;
	shrinker->count_objects = count_free;
	shrinker->scan_objects = give;
	shrinker->batch = FH_BLOCK_FRAMES;
	shrinker_register(shrinker);
	return 0;
}

void fh_shrinker_stop(void)
{
	shrinker_free(shrinker);
}
#endif
