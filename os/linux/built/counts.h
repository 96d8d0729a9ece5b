/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What mm/page_alloc.c is made to count. counts.c prints it as /sys/kernel/debug/page_alloc_counts,
 * a line each: "zone_locks 12". The rules in counts.json, vanilla.json and rfc.json say where it is
 * counted.
 */
#pragma once

#include <linux/atomic.h>
#include <linux/mmzone.h>
#include <linux/spinlock.h>

#ifdef CONFIG_PAGE_ALLOC_COUNTS
enum fh_count {
	/* Acquisitions of zone->lock in that file, and how many of them found it taken. */
	FH_ZONE_LOCKS,
	FH_ZONE_WAITS,
	/*
	 * Of the per-CPU lists: how often they were filled from the zone and emptied into it, and
	 * by how many frames.
	 */
	FH_REFILLS,
	FH_PHASE0_FRAMES,
	FH_PHASE1_FRAMES,
	FH_PHASE2_FRAMES,
	FH_PHASE3_FRAMES,
	FH_DRAINS,
	FH_DRAINED_FRAMES,
	/* The RFC's: buddies merged in a CPU's lists, and pages that went to another CPU's. */
	FH_MERGES,
	FH_REMOTE_FREES,
	FH_COUNTS,
};

extern atomic_long_t fh_counts[FH_COUNTS];

static inline void fh_count(enum fh_count what, long by)
{
	atomic_long_add(by, &fh_counts[what]);
}

/* tell.c: that function has taken the lock of a zone, which may be Freehold's. */
void fh_note_lock(const struct zone *zone, const char *function);

static inline void fh_zone_locked(struct zone *zone, const char *function)
{
	fh_count(FH_ZONE_LOCKS, 1);
	fh_note_lock(zone, function);
}

/*
 * Macros, as the flags are written by name. A lock that is taken is waited for; that is what is
 * counted.
 */
#define fh_zone_trylock(zone, flags)					\
({									\
	bool locked_ = spin_trylock_irqsave(&(zone)->lock, flags);	\
	if (locked_)							\
		fh_zone_locked(zone, __func__);					\
	locked_;							\
})

#define fh_zone_lock(zone, flags)					\
do {									\
	if (!spin_trylock_irqsave(&(zone)->lock, flags)) {		\
		fh_count(FH_ZONE_WAITS, 1);				\
		spin_lock_irqsave(&(zone)->lock, flags);		\
	}								\
	fh_zone_locked(zone, __func__);						\
} while (0)
#else
#define fh_count(what, by) do { } while (0)
#define fh_zone_trylock(zone, flags) spin_trylock_irqsave(&(zone)->lock, flags)
#define fh_zone_lock(zone, flags) spin_lock_irqsave(&(zone)->lock, flags)
#endif

/* counts.c, disown.c: all pageblocks are the zone's from now on. */
void fh_disown(void);

/* A file of that name in /sys/kernel/debug. */
#define FH_FILE(name, mode, operations)						\
static int __init name##_start(void)						\
{										\
	debugfs_create_file(#name, mode, NULL, NULL, &operations);		\
	return 0;								\
}										\
late_initcall(name##_start)
