// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * The allocators' platform, and the ways in.
 *
 * Each online CPU is owned in each allocator: its calls need no atomic operation. A handle is used
 * by one thread of execution at a time, so a call runs with preemption off and marks the CPU as
 * `inside`. An interrupt that comes meanwhile finds the mark, and goes by the shared door instead,
 * which takes nothing and waits for nothing there: its frees go straight to the frames' words.
 * Interrupts nest, so the mark needs no more than a compiler barrier. One mark is enough for all
 * allocators.
 *
 * Who wants something of another CPU's (a request that finds no memory, a drain) has all CPUs pass
 * a barrier by an interrupt and waits for it. That is done by callers who may block only, as with
 * the kernel's own page allocator.
 */
#include "fh.h"

#include <linux/cpuhotplug.h>
#include <linux/percpu.h>
#include <linux/preempt.h>
#include <linux/smp.h>
#include <linux/vmalloc.h>

struct fh_cpu {
	const struct freehold_cpu *handles[FH_ALLOCATORS];
	bool inside;
	u64 interrupted;
};

freehold_allocator *fh_allocators[FH_ALLOCATORS];
/* One more than the number of the last one that there is. */
static unsigned int allocators;
atomic64_t fh_late_double_frees, fh_refused;
DEFINE_MUTEX(fh_alone);
static DEFINE_PER_CPU(struct fh_cpu, fh_cpus);
static void *metadata[FH_ALLOCATORS];

/* The shared door of this CPU. */
static const freehold_cpu *here(unsigned int which)
{
	return freehold_on(fh_allocators[which], smp_processor_id());
}

/* That of one CPU more than the machine has: nobody's, always online, for calls on a CPU that has
 * just left. */
static const freehold_cpu *spare(unsigned int which)
{
	return freehold_on(fh_allocators[which], nr_cpu_ids);
}

void freehold_panic(const char *message, size_t len)
{
	panic("freehold: %.*s\n", (int)len, message);
}

static u16 current_cpu(void *user)
{
	return raw_smp_processor_id();
}

static void full_barrier(void *user)
{
	smp_mb();
}

static void heavy_barrier(void *user)
{
	smp_mb();
	smp_call_function(full_barrier, NULL, 1);
	smp_mb();
}

static void late_double_free(void *user, u64 pfn)
{
	atomic64_inc(&fh_late_double_frees);
	pr_err_ratelimited("frame %llu was freed twice\n", pfn);
}

static const freehold_platform platform = {
	.current_cpu = current_cpu,
	.heavy_barrier = heavy_barrier,
	.late_double_free = late_double_free,
};

/* Preemption is off afterwards; NULL where the shared door must do. */
static __always_inline struct fh_cpu *enter(unsigned int which)
{
	struct fh_cpu *cpu;
	bool inside;

	preempt_disable();
	cpu = this_cpu_ptr(&fh_cpus);
	/* Read and written whole: an interrupt, an NMI too, may come between any two of these. */
	inside = READ_ONCE(cpu->inside);
	if (unlikely(inside || !READ_ONCE(cpu->handles[which]))) {
		WRITE_ONCE(cpu->interrupted, cpu->interrupted + inside);
		return NULL;
	}
	WRITE_ONCE(cpu->inside, true);
	barrier();
	return cpu;
}

static __always_inline void leave(struct fh_cpu *cpu)
{
	if (likely(cpu)) {
		barrier();
		WRITE_ONCE(cpu->inside, false);
	}
	preempt_enable();
}

static __always_inline freehold_request request_for(gfp_t gfp, u16 flags, unsigned int order)
{
	freehold_request request = { .order = order, .flags = flags };

	if (gfp & __GFP_MOVABLE)
		request.migratetype = FREEHOLD_MIGRATETYPE_MOVABLE;
	else if (gfp & __GFP_RECLAIMABLE)
		request.migratetype = FREEHOLD_MIGRATETYPE_RECLAIMABLE;
	if (!gfpflags_allow_blocking(gfp))
		request.flags |= FREEHOLD_ALLOC_NO_LOCK;
	return request;
}

/*
 * An allocation may fail for want of memory, or of a lock in a context that cannot wait; everything
 * else is a defect.
 */
static int checked(int status)
{
	if (status != FREEHOLD_STATUS_NO_MEMORY && status != FREEHOLD_STATUS_WOULD_BLOCK) {
		atomic64_inc(&fh_refused);
		pr_err_ratelimited("%s\n", freehold_strerror(status));
	}
	return status;
}

int fh_alloc_of(unsigned int which, gfp_t gfp, u16 flags, unsigned int order, u64 *pfn)
{
	freehold_request request = request_for(gfp, flags, order);
	struct fh_cpu *cpu = enter(which);
	int status;

	if (likely(cpu)) {
		status = freehold_alloc(cpu->handles[which], &request, pfn, NULL);
	} else {
		/* Who may block has interrupted nobody: this CPU is just coming or going. */
		status = freehold_alloc(here(which), &request, pfn, NULL);
		if (status == FREEHOLD_STATUS_CPU_OFFLINE)
			status = freehold_alloc(spare(which), &request, pfn, NULL);
	}
	leave(cpu);
	return likely(!status) ? 0 : checked(status);
}

int fh_free_of(unsigned int which, u64 pfn, unsigned int order)
{
	struct fh_cpu *cpu = enter(which);
	int status;

	if (likely(cpu)) {
		status = freehold_free(cpu->handles[which], pfn, order, NULL);
	} else {
		status = freehold_free(here(which), pfn, order, NULL);
		if (status == FREEHOLD_STATUS_CPU_OFFLINE)
			status = freehold_free(spare(which), pfn, order, NULL);
	}
	leave(cpu);
	return likely(!status) ? 0 : checked(status);
}

size_t fh_alloc_bulk_of(unsigned int which, gfp_t gfp, u16 flags, size_t count, u64 *pfns)
{
	freehold_request request = request_for(gfp, flags, 0);
	struct fh_cpu *cpu = enter(which);
	size_t allocated = 0;
	int status;

	if (likely(cpu)) {
		status = freehold_alloc_bulk(cpu->handles[which], &request, pfns, count, &allocated,
					     NULL);
	} else {
		status = freehold_alloc_bulk(spare(which), &request, pfns, count, &allocated, NULL);
	}
	leave(cpu);
	if (unlikely(status))
		checked(status);
	return allocated;
}

void fh_flush_of(unsigned int which)
{
	struct fh_cpu *cpu = enter(which);

	if (cpu)
		freehold_flush(cpu->handles[which], NULL);
	leave(cpu);
}

void fh_tick(void)
{
	for (unsigned int which = 0; which < allocators; which++) {
		struct fh_cpu *cpu = enter(which);

		if (cpu)
			freehold_tick(cpu->handles[which], NULL);
		leave(cpu);
	}
}

u64 fh_interrupted(void)
{
	u64 sum = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		sum += READ_ONCE(per_cpu(fh_cpus, cpu).interrupted);
	return sum;
}

/* These run on the CPU itself, in its hotplug thread. */
static void give_up(unsigned int which, unsigned int number)
{
	struct fh_cpu *cpu = per_cpu_ptr(&fh_cpus, number);
	const freehold_cpu *handle = cpu->handles[which];
	freehold_allocator *fh = fh_allocators[which];
	freehold_error error;

	if (!handle)
		return;
	/* From here on interrupts of this CPU use the shared door. */
	WRITE_ONCE(cpu->handles[which], NULL);
	barrier();
	if (FH_ALONE(freehold_release(handle, &error)) ||
	    FH_ALONE(freehold_cpu_offline(fh, number, &error))) {
		pr_err("CPU %u is not given up: %s\n", number, error.message);
		atomic64_inc(&fh_refused);
	}
}

static int cpu_goes(unsigned int number)
{
	for (unsigned int which = 0; which < allocators; which++)
		give_up(which, number);
	return 0;
}

static int cpu_comes(unsigned int number)
{
	for (unsigned int which = 0; which < allocators; which++) {
		freehold_allocator *fh = fh_allocators[which];
		const freehold_cpu *handle;
		freehold_error error;

		if (!fh)
			continue;
		if (FH_ALONE(freehold_cpu_online(fh, number, &error)) ||
		    FH_ALONE(freehold_own(fh, number, &handle, &error))) {
			pr_err("CPU %u cannot be owned: %s\n", number, error.message);
			cpu_goes(number);
			return -EIO;
		}
		WRITE_ONCE(per_cpu(fh_cpus, number).handles[which], handle);
	}
	return 0;
}

int fh_platform_add(unsigned int which, const freehold_zone *zone, unsigned int extra_ranges)
{
	freehold_config config;
	freehold_error error;
	void *memory = NULL;
	size_t size;

	freehold_config_init(&config, nr_cpu_ids + 1, zone, 1);
	config.extra_ranges = min(extra_ranges, 60000u);
	if (freehold_metadata_size(&config, &size, &error))
		goto refused;
	memory = vzalloc(size);
	if (!memory)
		return -ENOMEM;
	if (freehold_new(&config, memory, size, &platform, &fh_allocators[which], &error))
		goto refused;
	pr_info("%s, %zu KiB of metadata\n", freehold_version(), size / 1024);
	metadata[which] = memory;
	allocators = max(allocators, which + 1);
	/* CPUs that are not there go; those that are get owners by the callback. */
	for (unsigned int number = 0; number < nr_cpu_ids; number++)
		FH_ALONE(freehold_cpu_offline(fh_allocators[which], number, NULL));
	return 0;

refused:
	pr_err("%s\n", error.message);
	vfree(memory);
	return -EINVAL;
}

static void end_allocators(void)
{
	freehold_error error;

	for (unsigned int which = 0; which < allocators; which++) {
		if (freehold_destroy(fh_allocators[which], &error))
			pr_err("%s\n", error.message);
		fh_allocators[which] = NULL;
		vfree(metadata[which]);
	}
}

int fh_platform_start(void)
{
	int status = cpuhp_setup_state(CPUHP_AP_ONLINE_DYN, "mm/freehold:online", cpu_comes,
				       cpu_goes);

	if (status < 0) {
		end_allocators();
		return status;
	}
	return 0;
}

void fh_drain_of(unsigned int which)
{
	FH_ALONE(freehold_drain_all(fh_allocators[which], NULL));
}
