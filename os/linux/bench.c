// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * The benchmark: the same work by the kernel's own allocator, by ours, and by ours with the kernel's handling of struct page.
 *
 * Writing a number of rounds to debugfs: freehold/bench runs it; reading gives a line for each workload and side, the median
 * of the rounds in hundredths of a nanosecond an allocation with its free (or one of the two, where the name says so). The
 * sides take turns within a round. Under QEMU's -icount shift=0 the clock advances by one nanosecond an instruction, so
 * that the same lines are counts of instructions.
 */
#include "sides.h"
#include "bench.h"

#include <linux/debugfs.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/random.h>
#include <linux/sched.h>
#include <linux/sort.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>

#define MAX_ROUNDS 31
#define MAX_RESULTS 96
#define DEPTH 64
#define PAIRS 20000
#define BLOCK_PAIRS 2000
/* 32 MiB: less than either side has. */
#define MANY 8192

static u64 *pfns;
static u32 *shuffled;
static char *report;
static size_t reported;
static DEFINE_MUTEX(running);

struct result {
	const char *work, *side;
	unsigned int rounds;
	u64 hundredths[MAX_ROUNDS];
};
static struct result *results;
static unsigned int result_count;
static bool failed;

void fh_bench_note(const char *work, const char *side, u64 nanoseconds, u64 operations)
{
	unsigned int i;

	for (i = 0; i < result_count; i++)
		if (!strcmp(results[i].work, work) && !strcmp(results[i].side, side))
			break;
	if (i == MAX_RESULTS)
		return;
	if (i == result_count)
		results[result_count++] = (struct result){ work, side };
	if (results[i].rounds < MAX_ROUNDS)
		results[i].hundredths[results[i].rounds++] = nanoseconds * 100 / operations;
}

/* One workload of one side. `side` is a constant, so that its functions are inlined. */
static __always_inline void pair(const struct fh_side *side, const char *work, unsigned int order, unsigned int pairs)
{
	u64 started, pfn;
	unsigned int i;

	/* Warm, and the first block taken. */
	for (i = 0; i < 16; i++) {
		pfn = side->alloc(order);
		if (pfn == FH_NOTHING) {
			failed = true;
			return;
		}
		side->free(pfn, order);
	}
	started = ktime_get_ns();
	for (i = 0; i < pairs; i++)
		side->free(side->alloc(order), order);
	fh_bench_note(work, side->name, ktime_get_ns() - started, pairs);
}

static __always_inline void depth(const struct fh_side *side)
{
	u64 started = ktime_get_ns();
	unsigned int i, j;

	for (j = 0; j < PAIRS / DEPTH; j++) {
		for (i = 0; i < DEPTH; i++)
			pfns[i] = side->alloc(0);
		while (i--)
			side->free(pfns[i], 0);
	}
	fh_bench_note("64 deep", side->name, ktime_get_ns() - started, PAIRS / DEPTH * DEPTH);
}

static __always_inline void bulk(const struct fh_side *side)
{
	u64 started = ktime_get_ns(), done = 0;
	unsigned int j;

	for (j = 0; j < PAIRS / DEPTH; j++) {
		size_t got = side->alloc_bulk(DEPTH, pfns);

		side->free_bulk(pfns, got);
		done += got;
	}
	if (done)
		fh_bench_note("bulk of 64", side->name, ktime_get_ns() - started, done);
}

static __always_inline unsigned int fill(const struct fh_side *side)
{
	unsigned int i;

	for (i = 0; i < MANY; i++) {
		pfns[i] = side->alloc(0);
		if (pfns[i] == FH_NOTHING) {
			failed = true;
			break;
		}
	}
	return i;
}

static __always_inline void many(const struct fh_side *side)
{
	u64 started = ktime_get_ns();
	unsigned int i, filled = fill(side);

	fh_bench_note("32 MiB: allocate", side->name, ktime_get_ns() - started, MANY);
	started = ktime_get_ns();
	for (i = 0; i < MANY; i++)
		if (shuffled[i] < filled)
			side->free(pfns[shuffled[i]], 0);
	fh_bench_note("32 MiB: free at random", side->name, ktime_get_ns() - started, MANY);
}

static __always_inline void free_range(const struct fh_side *side, const char *work, unsigned int filled)
{
	u64 started = ktime_get_ns();
	unsigned int i;

	for (i = 0; i < filled; i++)
		side->free(pfns[i], 0);
	fh_bench_note(work, side->name, ktime_get_ns() - started, MANY);
}

/* Allocated on one CPU, freed on another, and the first one's next allocations. */
static __always_inline void remote(const struct fh_side *side)
{
	unsigned int filled, other = cpumask_next(0, cpu_online_mask);
	u64 started;

	if (other >= nr_cpu_ids)
		return;
	filled = fill(side);
	set_cpus_allowed_ptr(current, cpumask_of(other));
	free_range(side, "free on another CPU", filled);
	set_cpus_allowed_ptr(current, cpumask_of(0));
	started = ktime_get_ns();
	filled = fill(side);
	fh_bench_note("allocate after that", side->name, ktime_get_ns() - started, MANY);
	while (filled--)
		side->free(pfns[filled], 0);
}

static __always_inline void everything(const struct fh_side *side)
{
	pair(side, "pair of order 0", 0, PAIRS);
	pair(side, "pair of order 3", 3, PAIRS);
	pair(side, "pair of order 9", 9, BLOCK_PAIRS);
	depth(side);
	bulk(side);
	many(side);
	remote(side);
	cond_resched();
}

#define SIDE(prefix, text) \
	static noinline void run_##prefix(void) \
	{ \
		static const struct fh_side side = { \
			text, prefix##_alloc, prefix##_free, prefix##_alloc_bulk, prefix##_free_bulk \
		}; \
		everything(&side); \
	}
SIDE(kernel, "kernel")
SIDE(ours, "freehold")
SIDE(paged, "freehold with page state")

static int by_size(const void *a, const void *b)
{
	u64 left = *(const u64 *)a, right = *(const u64 *)b;

	return left < right ? -1 : left > right;
}

static void shuffle(void)
{
	unsigned int i, other;

	for (i = 0; i < MANY; i++)
		shuffled[i] = i;
	for (i = MANY - 1; i > 0; i--) {
		other = get_random_u32() % (i + 1);
		swap(shuffled[i], shuffled[other]);
	}
}

static void write_report(void)
{
	unsigned int i;

	reported = 0;
	for (i = 0; i < result_count; i++) {
		struct result *result = &results[i];
		u64 *sorted = result->hundredths;

		sort(sorted, result->rounds, sizeof(*sorted), by_size, NULL);
		reported += scnprintf(report + reported, PAGE_SIZE * 2 - reported, "%s\t%s\t%llu\t%llu\t%llu\t%u\n", result->work,
				      result->side, sorted[result->rounds / 2], sorted[0], sorted[result->rounds - 1],
				      result->rounds);
	}
}

static int run(unsigned int rounds)
{
	unsigned int i;

	vfree(report);
	report = vzalloc(PAGE_SIZE * 2);
	pfns = vmalloc(MANY * sizeof(*pfns));
	shuffled = vmalloc(MANY * sizeof(*shuffled));
	results = vzalloc(MAX_RESULTS * sizeof(*results));
	result_count = reported = 0;
	failed = !report || !pfns || !shuffled || !results;
	if (!failed) {
		shuffle();
		set_cpus_allowed_ptr(current, cpumask_of(0));
		for (i = 0; i < min_t(unsigned int, rounds, MAX_ROUNDS) && !failed; i++) {
			run_kernel();
			run_ours();
			run_paged();
			failed = failed || !fh_bench_several();
		}
		set_cpus_allowed_ptr(current, cpu_possible_mask);
		write_report();
	}
	vfree(pfns);
	vfree(shuffled);
	vfree(results);
	return failed ? -ENOMEM : 0;
}

static ssize_t bench_write(struct file *file, const char __user *buffer, size_t length, loff_t *offset)
{
	unsigned int rounds;
	int status = kstrtouint_from_user(buffer, length, 0, &rounds);

	if (status)
		return status;
	mutex_lock(&running);
	status = run(rounds);
	mutex_unlock(&running);
	return status ?: length;
}

static ssize_t bench_read(struct file *file, char __user *buffer, size_t length, loff_t *offset)
{
	ssize_t status;

	mutex_lock(&running);
	status = simple_read_from_buffer(buffer, length, offset, report, reported);
	mutex_unlock(&running);
	return status;
}

void fh_bench_stop(void)
{
	vfree(report);
}

const struct file_operations fh_bench_operations = {
	.owner = THIS_MODULE,
	.read = bench_read,
	.write = bench_write,
};
