/* A panic inside does not leave: the program ends by abort, with a message on standard error. Compiled as C and as C++, where
 * it could be caught if it were thrown.
 *
 * What makes it panic is what would in real life: somebody writes into the allocator's metadata. In a child, since it ends. */
#define _DEFAULT_SOURCE
#include <freehold.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static freehold_error error;

/* Bytes at the end of the metadata: what is known of the later blocks of the last section. */
#define TAIL 1600

static void scribble_and_call(char *metadata, size_t size, const freehold_allocator *allocator, uint64_t pfn)
{
    struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    /* They are in use as wholes and of zone 7 now, which there is not. What finds the rest, and what a CPU has, comes before:
     * with that scribbled on, anything may happen. */
    memset(metadata + size - TAIL, 7, TAIL);
    freehold_free(freehold_here(allocator), pfn, 9, NULL);
}

int main(void)
{
    /* The second half of a section. */
    freehold_frame_range memory = {0x4000, 0x8000};
    freehold_zone zone;
    freehold_config config;
    memset(&zone, 0, sizeof zone);
    zone.memory = &memory;
    zone.memory_count = 1;
    size_t size;
    freehold_config_init(&config, 1, &zone, 1);
    OK(freehold_metadata_size(&config, &size, &error));
    char *metadata = (char *)malloc(size);
    freehold_allocator *allocator;
    OK(freehold_new(&config, metadata, size, NULL, &allocator, &error));
    CHECK(freehold_zone_of(allocator, 0x4000) == 0);
    /* The tables of a section are there once something of it is used. */
    freehold_request request;
    memset(&request, 0, sizeof request);
    request.order = 9;
    uint64_t pfn;
    OK(freehold_alloc(freehold_here(allocator), &request, &pfn, &error));
    CHECK(size > TAIL);

    int text[2];
    CHECK(pipe(text) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        dup2(text[1], 2);
#ifdef __cplusplus
        try {
            scribble_and_call(metadata, size, allocator, pfn);
        } catch (...) {
            _exit(7); /* it was thrown across */
        }
#else
        scribble_and_call(metadata, size, allocator, pfn);
#endif
        _exit(8); /* it returned */
    }
    close(text[1]);
    char message[4096];
    size_t length = 0;
    ssize_t more;
    while (length < sizeof message - 1 && (more = read(text[0], message + length, sizeof message - 1 - length)) > 0)
        length += (size_t)more;
    message[length] = 0;
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT || !strstr(message, "panic")) {
        fprintf(stderr, "status %#x, not an abort by a panic; it said: %s\n", (unsigned)status, message);
        return 1;
    }
    OK(freehold_destroy(allocator, &error));
    free(metadata);
    printf("panic: all right\n");
    return 0;
}
