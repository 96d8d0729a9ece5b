/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the C files of a kernel with Freehold have in common. */
#pragma once

#define pr_fmt(fmt) "freehold: " fmt

#include <linux/bitops.h>
#include <linux/gfp.h>
#include <linux/kernel.h>
#include <linux/mmzone.h>
#include <linux/mutex.h>
#include <linux/types.h>

#include "freehold.h"

/* A block: as many frames as a pageblock has. */
#define FH_BLOCK_ORDER 9
#define FH_BLOCK_FRAMES (1UL << FH_BLOCK_ORDER)

/* platform.c: what the allocator asks of the kernel, and the ways in. */

/*
 * The allocators by number: one for each zone that is served, node by node. So what is asked of a
 * zone never comes from another one.
 */
#define FH_ALLOCATORS (MAX_NUMNODES * MAX_NR_ZONES)
extern struct freehold_allocator *fh_allocators[FH_ALLOCATORS];
/* Double frees that no call could see; calls that failed as no call should. */
extern atomic64_t fh_late_double_frees, fh_refused;
/* Calls that came while this CPU was inside already: from an interrupt. */
u64 fh_interrupted(void);

/*
 * One more allocator: its zone as freehold_new() gets it, and how many pieces of memory may be
 * added to it later.
 */
int fh_platform_add(unsigned int which, const freehold_zone *zone, unsigned int extra_ranges);
/* Once they are all there: owns the CPUs. Where that fails the allocators have ended. */
int fh_platform_start(void);

/*
 * From any context but NMI. Who passes a gfp mask that allows blocking may hold no spin lock and
 * has interrupts on, as with alloc_pages(): all other CPUs may be asked, which interrupts them.
 * Others get what can be had without waiting for a lock.
 */
int fh_alloc_of(unsigned int which, gfp_t gfp, u16 flags, unsigned int order, u64 *pfn);
size_t fh_alloc_bulk_of(unsigned int which, gfp_t gfp, u16 flags, size_t count, u64 *pfns);
/* From any context but NMI, holding any lock. Parts of what was allocated may be freed. */
int fh_free_of(unsigned int which, u64 pfn, unsigned int order);
/* All CPUs give back what they have in hand of it. Process context, or whoever may block. */
void fh_drain_of(unsigned int which);
/* This CPU alone. */
void fh_flush_of(unsigned int which);
/* This CPU's periodic work, about once a second. */
void fh_tick(void);

/*
 * For calls that concern more than one CPU, or change what CPUs and what memory there are:
 * interrupts stay on, preemption is off. Process context. One such call at a time: a second one
 * would wait for the allocator's own locks with preemption off, and on a machine whose CPUs are not
 * always run (a guest) that takes long enough for the watchdog.
 */
extern struct mutex fh_alone;
#define FH_ALONE(call)			\
({					\
	int result_;			\
					\
	mutex_lock(&fh_alone);		\
	preempt_disable();		\
	result_ = (call);		\
	preempt_enable();		\
	mutex_unlock(&fh_alone);	\
	result_;			\
})

/* freehold.c: memory of this machine has lower frame numbers, now and later. */
extern unsigned long fh_end_pfn;
/* A bit for each block that memory may have: whether it is ours now. */
extern unsigned long *fh_block_map;
#define FH_BLOCK_NUMBERS (fh_end_pfn >> FH_BLOCK_ORDER)

static inline unsigned long fh_block_number(unsigned long pfn)
{
	return pfn >> FH_BLOCK_ORDER;
}

/* Any frame number. */
static inline bool fh_has(unsigned long pfn)
{
	return fh_block_number(pfn) < FH_BLOCK_NUMBERS &&
	       test_bit(fh_block_number(pfn), fh_block_map);
}
