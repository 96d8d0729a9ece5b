/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Measuring: the clock, and what the kernel counts and traces. */
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
