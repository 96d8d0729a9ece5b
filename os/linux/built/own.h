/* SPDX-License-Identifier: GPL-2.0 */
/* What our files know of each other, beside fh.h and hooks.h. */
#pragma once

#include <linux/mm.h>

#include "hooks.h"

/* Of which Freehold has the metadata together: 128 MiB. */
#define FH_SECTION_FRAMES (1UL << 15)

/* The number of a frame's allocator, where Freehold has it. */
static inline unsigned int fh_number(unsigned long pfn)
{
	const struct page *page = pfn_to_page(pfn);

	return page_to_nid(page) * MAX_NR_ZONES + page_zonenum(page);
}

static inline freehold_allocator *fh_of(unsigned long pfn)
{
	return fh_allocators[fh_number(pfn)];
}

static inline freehold_allocator *fh_of_zone(const struct zone *zone)
{
	return fh_allocators[fh_number_of_zone(zone)];
}

/* Frames that came to the kernel's lists after the hand-over, and were taken from there. */
extern unsigned long fh_swept;
/* Blocks of each allocator that have gone offline, or have not come online yet. */
extern unsigned long fh_gone_blocks[];
/* Chunks that a request whose marks were met did not get: the zone owes them to others. */
extern atomic64_t fh_owed_chunks;
/*
 * What compaction had of the board: blocks looked at; how often all CPUs were interrupted for
 * some; those emptied, those that it could not empty.
 */
extern atomic64_t fh_looks, fh_rounds, fh_emptied, fh_not_emptied;
/* Blocks that are being emptied now. */
extern atomic_t fh_emptying;
/*
 * After a call that found a block isolated, and so many tries before it: whether to try again, as
 * compaction may have been emptying it. Sleeps; a second in all at most.
 */
bool fh_wait_for_emptying(int tries);
/* How often page_alloc.c has taken the lock of each zone of Freehold's, and its last function. */
extern atomic_long_t fh_locks[];
extern const char *fh_locker;

void fh_tell_start(void);
