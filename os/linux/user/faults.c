/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Page faults on /dev/freehold: many threads touch, write, check and unmap; processes end and are killed in the middle. None
 * of them may take the kernel's zone lock. Usage: faults COUNT. Ends with 0 where all was as it should be.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "measure.h"

#define THREADS 8
#define PAGE 4096ul
#define BLOCK (512 * PAGE)
/* What a thread maps at a time; all of them together fit a machine of 256 MiB. */
#define REGION (2 * BLOCK)
#define STATISTICS "/sys/kernel/debug/freehold/statistics"

static const char *const devices[] = { "/dev/freehold", "/dev/freehold-huge" };
static long wanted;
static _Atomic long done, wrong;

static void fail(const char *what)
{
	if (wrong++ < 10)
		fprintf(stderr, "FAIL: %s: %s\n", what, strerror(errno));
}

static char *map(const char *device, size_t size)
{
	int file = open(device, O_RDWR);
	char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);

	close(file);
	if (memory == MAP_FAILED) {
		fail("mmap");
		exit(1);
	}
	return memory;
}

/* Every page is zero at first, and keeps what is written to it. */
static void *touch(void *argument)
{
	uint64_t self = (uintptr_t)argument, round, page;
	size_t size;

	for (round = 0; done < wanted && !wrong; round++) {
		const char *device = devices[(self + round) % 8 == 0];
		char *memory = map(device, REGION);

		for (page = 0; page < REGION / PAGE; page++) {
			uint64_t *words = (uint64_t *)(memory + page * PAGE);

			if (words[0] || words[PAGE / 8 - 1])
				fail("a page was not cleared");
			words[0] = words[PAGE / 8 - 1] = self << 48 | round << 16 | page;
		}
		for (page = 0; page < REGION / PAGE; page++) {
			uint64_t *words = (uint64_t *)(memory + page * PAGE);

			if (words[0] != (self << 48 | round << 16 | page) || words[PAGE / 8 - 1] != words[0])
				fail("somebody else wrote to a page");
		}
		/* In two parts now and then. What is unmapped may be another thread's at once. */
		size = round % 3 == 0 ? REGION / 2 + PAGE : REGION;
		if (size != REGION)
			munmap(memory + size, REGION - size);
		if (*(uint64_t *)memory != (self << 48 | round << 16))
			fail("the rest of a mapping was lost");
		munmap(memory, size);
		done += REGION / PAGE;
	}
	return NULL;
}

static char *shared;

/* All at the same pages. */
static void *touch_shared(void *argument)
{
	size_t page;

	(void)argument;
	for (page = 0; page < 4 * BLOCK / PAGE; page++)
		__atomic_fetch_add((int *)(shared + page * PAGE), 1, __ATOMIC_RELAXED);
	return NULL;
}

static void with_threads(void *(*body)(void *))
{
	pthread_t threads[THREADS];
	uintptr_t i;

	for (i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, body, (void *)i))
			fail("pthread_create");
	for (i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
}

static void many_at_one_mapping(const char *device)
{
	size_t page;

	shared = map(device, 4 * BLOCK);
	with_threads(touch_shared);
	for (page = 0; page < 4 * BLOCK / PAGE; page++)
		if (*(int *)(shared + page * PAGE) != THREADS)
			fail("a page was there twice");
	munmap(shared, 4 * BLOCK);
}

/* A process that ends with its mapping, or is killed at any moment. */
static void end_in_the_middle(const char *device, int kill_after_us)
{
	pid_t child = fork();

	if (child == 0) {
		for (;;) {
			char *memory = map(device, 4 * BLOCK);

			memset(memory, 1, 4 * BLOCK);
			if (!kill_after_us)
				_exit(0);
			munmap(memory, 4 * BLOCK);
		}
	}
	if (kill_after_us) {
		usleep(kill_after_us);
		kill(child, SIGKILL);
	}
	waitpid(child, NULL, 0);
}

/* More than there is: who touches it ends, as with huge pages of which there are no more, and does not hang. */
static void touch_too_much(const char *device, size_t all)
{
	pid_t child = fork();
	int status;

	if (child == 0) {
		char *memory = map(device, all + 2 * BLOCK);

		alarm(120);
		memset(memory, 1, all + 2 * BLOCK);
		_exit(0);
	}
	if (waitpid(child, &status, 0) != child || !WIFSIGNALED(status) || WTERMSIG(status) != SIGBUS)
		fail("memory that is not there does not end who touches it");
}

/* The books alone would take all memory. */
static void map_too_much(const char *device)
{
	int file = open(device, O_RDWR);

	if (mmap(NULL, 1ul << 40, PROT_READ, MAP_SHARED, file, 0) != MAP_FAILED || errno != ENOMEM)
		fail("a mapping of 1 TiB is not refused");
	close(file);
}

/* The first touch of each page of 64 MiB: more than the kernel's per-CPU lists hold. */
static void spare_the_zone_lock(void)
{
	size_t size = 32 * BLOCK, offset;
	char *memory = map(devices[0], size);
	long before = events("/sys/kernel/tracing"), locked;

	for (offset = 0; offset < size; offset += PAGE)
		*(volatile char *)(memory + offset) = 1;
	locked = events("/sys/kernel/tracing") - before;
	munmap(memory, size);
	if (before < 0)
		fail("the kernel's events are not counted");
	/* A few are somebody else's, or page tables: a per-CPU list is filled by 63 at a time. */
	if (locked * 20 > (long)(size / PAGE))
		fail("faults of /dev/freehold took the kernel's zone lock");
	printf("faults: %ld pages taken under the zone lock by %zu faults\n", locked, size / PAGE);
}

int main(int argc, char **argv)
{
	int i;

	wanted = argc > 1 ? atol(argv[1]) : 100000;
	setvbuf(stdout, NULL, _IOLBF, 0);
	with_threads(touch);
	for (i = 0; i < 2; i++) {
		many_at_one_mapping(devices[i]);
		end_in_the_middle(devices[i], 0);
		end_in_the_middle(devices[i], 20000);
		end_in_the_middle(devices[i], 50000);
		touch_too_much(devices[i], number_of(STATISTICS, "frames") * PAGE);
		map_too_much(devices[i]);
	}
	spare_the_zone_lock();
	printf("faults: %s: %ld pages touched by %d threads, %ld wrong\n", wrong ? "FAILED" : "passed", (long)done, THREADS,
	       (long)wrong);
	return !!wrong;
}
