// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * What disturbs the self-test's threads: timers (softirq), high-resolution timers and irq_work (hardirq) on all CPUs, which
 * allocate and free themselves; CPUs that go and come; memory that is given back and taken; drains.
 */
#include "selftest.h"
#include "compat.h"

#include <linux/cpu.h>
#include <linux/delay.h>
#include <linux/irq_work.h>
#include <linux/kthread.h>
#include <linux/slab.h>

#define HARDIRQ_PERIOD_NS 200000

struct context {
	struct timer_list timer;
	struct hrtimer hrtimer;
	struct irq_work irq_work;
	struct fh_worker in_timer, in_hrtimer, in_irq_work;
};

static struct context *contexts;
static struct task_struct *hotplugger, *lender;
static struct fh_context_counts counted;

static void in_softirq_context(struct timer_list *timer)
{
	struct context *context = container_of(timer, struct context, timer);
	int i;

	for (i = 0; i < 32; i++)
		fh_worker_step(&context->in_timer);
	if (!fh_selftest_stopped())
		mod_timer(timer, jiffies + 1);
}

static void in_irq_work_context(struct irq_work *work)
{
	struct context *context = container_of(work, struct context, irq_work);
	int i;

	for (i = 0; i < 4; i++)
		fh_worker_step(&context->in_irq_work);
}

static enum hrtimer_restart in_hardirq_context(struct hrtimer *timer)
{
	struct context *context = container_of(timer, struct context, hrtimer);
	int i;

	for (i = 0; i < 8; i++)
		fh_worker_step(&context->in_hrtimer);
	irq_work_queue(&context->irq_work);
	if (fh_selftest_stopped())
		return HRTIMER_NORESTART;
	hrtimer_forward_now(timer, ns_to_ktime(HARDIRQ_PERIOD_NS));
	return HRTIMER_RESTART;
}

/* Runs on each CPU: a pinned timer is started where it is to run. */
static void start_timers(void *unused)
{
	struct context *context = &contexts[smp_processor_id()];

	context->timer.expires = jiffies + 1;
	add_timer_on(&context->timer, smp_processor_id());
	hrtimer_start(&context->hrtimer, ns_to_ktime(HARDIRQ_PERIOD_NS), HRTIMER_MODE_REL_PINNED_HARD);
}

static int hotplug(void *unused)
{
	unsigned int cpu = 0;

	while (!kthread_should_stop()) {
		cpu = cpu + 1 < nr_cpu_ids ? cpu + 1 : 1;
		if (nr_cpu_ids > 1 && !remove_cpu(cpu)) {
			msleep(5);
			if (add_cpu(cpu))
				pr_err("CPU %u does not come back\n", cpu);
			counted.hotplugs++;
		}
		msleep(10);
	}
	return 0;
}

static int lend(void *unused)
{
	while (!kthread_should_stop()) {
		unsigned int given = fh_memory_give(4);

		counted.given += given;
		msleep(2);
		fh_memory_take(given);
		if (!FH_ALONE(freehold_drain_all(fh_allocators[0], NULL)))
			counted.drains++;
		msleep(3);
	}
	return 0;
}

/* All of them can be stopped afterwards, started or not. */
static void init_context(struct context *context)
{
	timer_setup(&context->timer, in_softirq_context, TIMER_PINNED);
	fh_hrtimer_setup(&context->hrtimer, in_hardirq_context, HRTIMER_MODE_REL_PINNED_HARD);
	init_irq_work(&context->irq_work, in_irq_work_context);
	context->in_timer.atomic = context->in_hrtimer.atomic = context->in_irq_work.atomic = true;
}

static int init_workers(struct context *context, unsigned int number, unsigned int capacity)
{
	return fh_worker_init(&context->in_timer, 1000 + number, capacity) ?:
	       fh_worker_init(&context->in_hrtimer, 2000 + number, capacity) ?:
	       fh_worker_init(&context->in_irq_work, 3000 + number, capacity);
}

static void end_worker(struct fh_worker *worker)
{
	if (worker->slots)
		fh_worker_end(worker);
	counted.failed += worker->failed;
}

void fh_contexts_stop(void)
{
	unsigned int cpu;

	if (!IS_ERR_OR_NULL(hotplugger))
		kthread_stop(hotplugger);
	if (!IS_ERR_OR_NULL(lender))
		kthread_stop(lender);
	hotplugger = lender = NULL;
	for (cpu = 0; contexts && cpu < nr_cpu_ids; cpu++) {
		struct context *context = &contexts[cpu];

		timer_delete_sync(&context->timer);
		hrtimer_cancel(&context->hrtimer);
		irq_work_sync(&context->irq_work);
		end_worker(&context->in_timer);
		end_worker(&context->in_hrtimer);
		end_worker(&context->in_irq_work);
		counted.softirq += context->in_timer.operations;
		counted.hardirq += context->in_hrtimer.operations;
		counted.irq_work += context->in_irq_work.operations;
	}
	kfree(contexts);
	contexts = NULL;
}

int fh_contexts_start(unsigned int capacity)
{
	unsigned int cpu;
	int status = 0;

	memset(&counted, 0, sizeof(counted));
	contexts = kcalloc(nr_cpu_ids, sizeof(*contexts), GFP_KERNEL);
	if (!contexts)
		return -ENOMEM;
	for (cpu = 0; cpu < nr_cpu_ids; cpu++)
		init_context(&contexts[cpu]);
	for (cpu = 0; cpu < nr_cpu_ids && !status; cpu++)
		status = init_workers(&contexts[cpu], cpu, capacity);
	if (!status) {
		on_each_cpu(start_timers, NULL, 1);
		hotplugger = kthread_run(hotplug, NULL, "freehold/hotplug");
		lender = kthread_run(lend, NULL, "freehold/lend");
		status = PTR_ERR_OR_ZERO(hotplugger) ?: PTR_ERR_OR_ZERO(lender);
	}
	if (status)
		fh_contexts_stop();
	return status;
}

void fh_context_counts(struct fh_context_counts *counts)
{
	*counts = counted;
}
