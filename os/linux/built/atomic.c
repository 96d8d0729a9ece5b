/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The load that asks for chunks in interrupts while memory is full, and then full of holes: only
 * blocks that are kept for such requests have any then. mm/freehold/highatomic.c does what programs
 * cannot ask for.
 */
#include "loads.h"

#define TRIAL "/sys/kernel/debug/atomic_trial"

/* Chunks of order 3 that make blocks kept: seven blocks' and some. */
#define KEEPS 500
/* Pages of one. */
#define CHUNK 8
/* Pages of a block. */
#define FRAMES (long)(BLOCK / PAGE)
/* Chunks that must be had of those. */
#define WANTED 64
/* Blocks that are enough to look at. */
#define ENOUGH 3

/*
 * What is told of all zones; free pages are those that anybody may have, not a CMA area's. Spared
 * ones are kept from those whom a higher zone could serve. Most: blocks that the largest zone may
 * keep, a hundredth of it.
 */
struct told {
	long nodes, blocks, most, free_kept, free, min, spared;
};

static void read_types(struct told *told)
{
	FILE *file = fopen("/proc/pagetypeinfo", "r");
	char line[512];

	must(file != NULL, "/proc/pagetypeinfo");
	while (fgets(line, sizeof(line), file)) {
		char *at = strstr(line, "HighAtomic ");
		long count, blocks[4];
		int length;

		if (sscanf(line, "Node %*d, zone %*s %ld %ld %ld %ld", blocks, blocks + 1,
			   blocks + 2, blocks + 3) == 4)
			told->blocks += blocks[3];
		if (!at || !strstr(line, ", type"))
			continue;
		at += strlen("HighAtomic ");
		for (int order = 0; sscanf(at, " %ld%n", &count, &length) == 1;
		     order++, at += length)
			told->free_kept += count << order;
	}
	fclose(file);
}

static void read_zones(struct told *told)
{
	FILE *file = fopen("/proc/zoneinfo", "r");
	char line[128], *last;
	long number;

	must(file != NULL, "/proc/zoneinfo");
	while (fgets(line, sizeof(line), file)) {
		if (sscanf(line, "Node %ld, zone", &number) == 1)
			told->nodes = number + 1;
		if (sscanf(line, " pages free %ld", &number) == 1)
			told->free += number;
		if (sscanf(line, " nr_free_cma %ld", &number) == 1)
			told->free -= number;
		if (sscanf(line, " min %ld", &number) == 1)
			told->min += number;
		if (sscanf(line, " managed %ld", &number) == 1 && number / 100 > told->most)
			told->most = number / 100;
		last = strstr(line, "protection:") ? strrchr(line, ' ') : NULL;
		told->spared += last ? atol(last) : 0;
	}
	fclose(file);
	told->most = told->most < FRAMES ? 0 : (told->most + FRAMES - 1) / FRAMES;
}

static struct told tell(void)
{
	struct told told = {};

	read_types(&told);
	read_zones(&told);
	return told;
}

static void ask(const char *what)
{
	must(put(TRIAL, what), what);
}

/* How many there were of what was asked for last. */
static long had(void)
{
	return number_in(TRIAL, "had");
}

static void ask_for(const char *what, long count)
{
	char words[64];

	snprintf(words, sizeof(words), "%s %ld", what, count);
	ask(words);
}

/*
 * Says what is wrong, with the numbers, and ends. Only with Freehold: other kernels go the same
 * way, but what they have kept by then depends on what their lists hold, and on whose zone's blocks
 * they took.
 */
static void holds(int right, const char *what, struct told told)
{
	if (right || access("/sys/kernel/debug/freehold", F_OK))
		return;
	fprintf(stderr,
		"%s: %ld blocks kept, %ld pages of them free, %ld of the zone's, min %ld, had %ld\n",
		what, told.blocks, told.free_kept, told.free, told.min, had());
	put(TRIAL, "free");
	exit(1);
}

/*
 * The marks of all zones, by kB in all; what they were. No process is made for it: memory is full.
 */
static long set_marks(long kb)
{
	FILE *file = fopen("/proc/sys/vm/min_free_kbytes", "r+");
	long before;

	must(file && fscanf(file, "%ld", &before) == 1, "min_free_kbytes");
	rewind(file);
	fprintf(file, "%ld\n", kb);
	must(!fclose(file), "min_free_kbytes");
	return before;
}

void load_atomic(void)
{
	struct told kept, beside_atomic, now = tell();
	/*
	 * Of what may be kept: pages that a full machine has left, and what /proc's files and a
	 * CPU's lists differ by. Together they are less than what is kept.
	 */
	long pages = now.most * FRAMES, left = at_most(1024, pages / 4), some = at_most(512, pages / 8);
	long beside, usual;
	char press[64];

	/* No zone keeps any where a hundredth is less than a block. */
	if (!now.most)
		return;
	ask_for("fill", left);
	ask_for("atomic", KEEPS);
	ask_for("room", 8 * KEEPS);
	kept = tell();
	holds(kept.blocks >= at_most(ENOUGH, now.most), "atomic requests keep no blocks", kept);
	ask("chunks");
	/* Others fill the rest, and leave the marks as if what is kept were in use. */
	ask("holes");
	ask_for("fill", left);
	now = tell();
	holds(now.free + some >= now.min + now.free_kept, "what is kept counts for the marks", now);
	/*
	 * Otherwise nothing is said by that. Of several nodes only one keeps blocks, in which some
	 * pages are in use.
	 */
	holds(now.free_kept > left + some || now.nodes > 1, "hardly anything is kept", now);
	ask("holes");
	ask_for("ordinary", 1000000);
	now = tell();
	holds(now.blocks == kept.blocks, "ordinary requests take what is kept", now);
	holds(now.free_kept > 8 * WANTED, "ordinary requests use what is kept", now);
	beside = now.free;
	/* There is much memory, and no chunk of it for anybody else. */
	ask_for("atomic", WANTED);
	holds(had() == WANTED, "atomic requests get nothing of what is kept", now);
	beside_atomic = tell();
	ask_for("ordinary", 1);
	now = tell();
	/* kcompactd may have made one for it. */
	holds(!had() || beside_atomic.free_kept - now.free_kept < CHUNK,
	      "an ordinary request gets what atomic ones could", now);
	reached("atomic_kept_blocks", now.blocks);
	reached("atomic_pages_beside", beside);
	/* Without a mark to speak of: single pages that may not wait have the last of it. */
	usual = set_marks(left * (long)(PAGE >> 10));
	ask("chunks");
	ask_for("fill", left);
	now = tell();
	put(TRIAL, "single 1000000");
	holds(had() + some >= now.free - now.min / 2 - now.spared, "single pages of what is kept", now);
	/* Who may reclaim has blocks given up: for more than is free beside them and above the mark. */
	snprintf(press, sizeof(press), "press %ld",
		 at_most(left + some + now.free_kept / 2, (now.free - now.min) * 3 / 4));
	holds(put(TRIAL, press), press, now);
	now = tell();
	holds(now.blocks < kept.blocks, "no block is given up", now);
	reached("atomic_given_up_blocks", kept.blocks - now.blocks);
	set_marks(usual);
	ask("free");
}
