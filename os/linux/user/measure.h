/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Measuring: the clock, what the kernel counts and traces, and the lines that become the table at the end. */
#pragma once

#include <glob.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static inline uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000ull + time.tv_nsec;
}

static inline int by_size(const void *a, const void *b)
{
	uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

	return left < right ? -1 : left > right;
}

/* The median of some rounds, lowest and highest, each divided by how many operations a round was. */
static inline void report(const char *work, const char *side, uint64_t *values, int count, uint64_t divisor)
{
	qsort(values, count, sizeof(*values), by_size);
	printf("bench\t%s\t%s\t%llu\t%llu\t%llu\t%d\n", work, side, (unsigned long long)(values[count / 2] * 100 / divisor),
	       (unsigned long long)(values[0] * 100 / divisor), (unsigned long long)(values[count - 1] * 100 / divisor), count);
}

/* The number behind a word at the start of a line, the first that there is. */
static inline long number_of(const char *path, const char *word)
{
	FILE *file = fopen(path, "r");
	char line[128];
	long number = -1;
	size_t length = strlen(word);

	while (file && number < 0 && fgets(line, sizeof(line), file))
		if (!strncmp(line, word, length) && line[length] == ' ')
			number = atol(line + length);
	if (file)
		fclose(file);
	return number;
}

/* How many events were written to all CPUs' buffers there since they were last emptied, those that did not fit included. */
static inline long events(const char *folder)
{
	glob_t files;
	long sum = 0, number;
	char line[128];
	size_t i;

	snprintf(line, sizeof(line), "%s/per_cpu/cpu*/stats", folder);
	if (glob(line, 0, NULL, &files))
		return -1;
	for (i = 0; i < files.gl_pathc; i++) {
		FILE *file = fopen(files.gl_pathv[i], "r");

		while (file && fgets(line, sizeof(line), file))
			if (sscanf(line, "entries: %ld", &number) == 1 || sscanf(line, "overrun: %ld", &number) == 1)
				sum += number;
		if (file)
			fclose(file);
	}
	globfree(&files);
	return sum;
}
