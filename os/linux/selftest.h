/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* The self-test's workers, and what disturbs them. */
#pragma once

#include "fh.h"

/* Somebody who allocates and frees: a thread, or, as `atomic`, a timer or an interrupt. */
struct fh_worker {
	u64 *slots;
	unsigned int capacity, held;
	u64 random;
	u64 operations, failed, bulk;
	bool atomic;
};

int fh_worker_init(struct fh_worker *worker, unsigned int number, unsigned int capacity);
/* One allocation or free, or a few of them. */
void fh_worker_step(struct fh_worker *worker);
/* Frees all that it has. */
void fh_worker_end(struct fh_worker *worker);
bool fh_selftest_stopped(void);

/* contexts.c: timers and irq_work on all CPUs, hotplug, giving and taking memory, drains, while the threads work. */
int fh_contexts_start(unsigned int capacity);
/* Ends all of them, and frees what they have. */
void fh_contexts_stop(void);

struct fh_context_counts {
	u64 softirq, hardirq, irq_work, failed, hotplugs, given, drains;
};
void fh_context_counts(struct fh_context_counts *counts);
