/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What kernels from 6.1 on call differently. */
#pragma once

#include <linux/ftrace.h>
#include <linux/gfp.h>
#include <linux/hrtimer.h>
#include <linux/mm.h>
#include <linux/timer.h>
#include <linux/version.h>
#if LINUX_VERSION_CODE >= KERNEL_VERSION(7, 3, 0)
#include <linux/folio_batch.h>
#endif

#define FH_BEFORE(major, minor) (LINUX_VERSION_CODE < KERNEL_VERSION(major, minor, 0))

#if FH_BEFORE(6, 2)
#define timer_delete_sync del_timer_sync
#endif

/* Where a page's flags are. */
static inline unsigned long *fh_page_flags(struct page *page)
{
#if FH_BEFORE(6, 18)
	return &page->flags;
#else
	return &page->flags.f;
#endif
}

static inline void fh_hrtimer_setup(struct hrtimer *timer, enum hrtimer_restart (*function)(struct hrtimer *),
				    enum hrtimer_mode mode)
{
#if FH_BEFORE(6, 13)
	hrtimer_init(timer, CLOCK_MONOTONIC, mode);
	timer->function = function;
#else
	hrtimer_setup(timer, function, CLOCK_MONOTONIC, mode);
#endif
}

/* What function tracing tells of the call that it interrupts, and where that is to go on. */
#ifdef CONFIG_DYNAMIC_FTRACE_WITH_ARGS
#if FH_BEFORE(6, 2)
#define fh_ftrace_argument(fregs, number) regs_get_kernel_argument(&(fregs)->regs, number)
#define fh_ftrace_go_to ftrace_instruction_pointer_set
#else
#define fh_ftrace_argument ftrace_regs_get_argument
#define fh_ftrace_go_to ftrace_regs_set_instruction_pointer
#endif
#endif

/* Later ones ask for no huge page here. */
#if FH_BEFORE(6, 12)
#define fh_vma_alloc_folio(gfp, order, vma, address, huge) vma_alloc_folio(gfp, order, vma, address, huge)
#else
#define fh_vma_alloc_folio(gfp, order, vma, address, huge) vma_alloc_folio(gfp, order, vma, address)
#endif

#if FH_BEFORE(6, 16)
#define FH_CONTIG_MOVABLE MIGRATE_MOVABLE
#else
#define FH_CONTIG_MOVABLE ACR_FLAGS_NONE
#endif
