/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What the loads of a built kernel share: memory and children, a program that is run, regions of
 * many sizes. loads.c has the loads that any program might be, machine.c those that change the
 * machine under it, walks.c those that ask for pages by their numbers, atomic.c the one of
 * interrupts that ask for chunks.
 */
#pragma once

#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096ul
#define BLOCK (512 * PAGE)

/* Of the machine, and what the command line says. */
extern int cpus, rounds;

static inline void must(int holds, const char *what)
{
	if (holds)
		return;
	perror(what);
	exit(1);
}

static inline long at_most(long usual, long share)
{
	return share < usual ? share : usual;
}

static inline void run_on(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu % cpus, &set);
	must(!sched_setaffinity(0, sizeof(set), &set), "sched_setaffinity");
}

static inline char *map(size_t size, int advice)
{
	char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	must(memory != MAP_FAILED, "mmap");
	madvise(memory, size, advice);
	return memory;
}

static inline void touch(char *memory, size_t size)
{
	for (size_t at = 0; at < size; at += PAGE)
		memory[at] = 1;
}

/* A child on that CPU; 0 within it. */
static inline pid_t child(int cpu)
{
	pid_t pid = fork();

	must(pid >= 0, "fork");
	if (!pid)
		run_on(cpu);
	return pid;
}

static inline void children_end(void)
{
	int status;

	while (wait(&status) > 0)
		must(WIFEXITED(status) && !WEXITSTATUS(status), "a child");
}

/* A child on each CPU that does this, until all have ended. */
static inline void on_each_cpu(void (*does)(int cpu))
{
	for (int cpu = 0; cpu < cpus; cpu++) {
		if (child(cpu))
			continue;
		does(cpu);
		_exit(0);
	}
	children_end();
}

#define REGIONS 32

struct regions {
	char *at[REGIONS];
	size_t size[REGIONS];
	unsigned int random;
};

/* Another region of some size in the place of one that was there. */
static inline size_t another_region(struct regions *regions, int advice)
{
	unsigned int slot;

	/*
	 * The next number of a linear congruence (Numerical Recipes' constants): the same for each
	 * kernel.
	 */
	regions->random = regions->random * 1664525 + 1013904223;
	slot = regions->random >> 27;
	if (regions->at[slot])
		munmap(regions->at[slot], regions->size[slot]);
	regions->size[slot] = (1 + (regions->random >> 16) % 256) * PAGE;
	regions->at[slot] = map(regions->size[slot], advice);
	touch(regions->at[slot], regions->size[slot]);
	return regions->size[slot];
}

static inline void reached(const char *what, long count)
{
	FILE *file = fopen("/tmp/reached", "a");

	must(file != NULL, "/tmp/reached");
	fprintf(file, "%s %ld\n", what, count);
	fclose(file);
}

static inline int ends_well(pid_t pid)
{
	int status;

	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && !WEXITSTATUS(status);
}

/* A program with its words; whether it ended with 0. */
static inline int run(char *const words[])
{
	pid_t pid = fork();

	must(pid >= 0, "fork");
	if (!pid) {
		execv(words[0], words);
		_exit(127);
	}
	return ends_well(pid);
}

static inline void shell(const char *command)
{
	must(run((char *[]){ "/bin/sh", "-ec", (char *)command, NULL }), command);
}

/*
 * machine.c: text or a number into a file, whether it was taken; a number of a line of a file; the
 * number that is all of a file; something, while others allocate on all CPUs.
 */
int put(const char *path, const char *text);
int put_number(const char *path, long number);
long number_in(const char *path, const char *name);
long number_of(const char *path);
void while_others_allocate(void (*does)(void));

/* walks.c: the frames of the zones, one after the other; those behind a hole are not present. */
struct frames {
	long first, count, present;
};
struct frames zone_of_round(int round);

void load_contig(void);
void load_cma(void);
void load_poison(void);
void load_report(void);
void load_atomic(void);
void load_compact(void);
void load_ones(void);
void load_pairs(void);
void load_pinned(void);
void load_save(void);
void load_filled(void);
void load_khugepaged(void);
void load_swap(void);
void load_memory(void);
void load_added(void);
void load_cpus(void);
