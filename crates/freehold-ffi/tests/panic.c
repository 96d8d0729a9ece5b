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

static void scribble_and_call(char *metadata, size_t size, const freehold_allocator *allocator, size_t handle)
{
    struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    /* The allocator's own handle comes first and is what finds the rest; the tables behind it are scribbled on. */
    memset(metadata + handle, 0x7f, size - handle);
    freehold_drain_all(allocator, NULL);
}

int main(void)
{
    freehold_frame_range memory = {0x1000, 0x9000};
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
    CHECK(freehold_zone_of(allocator, 0x1000) == 0);
    /* The tables of a section are there once something of it is used. */
    freehold_request request;
    memset(&request, 0, sizeof request);
    uint64_t pfn;
    OK(freehold_alloc(allocator, &request, &pfn, &error));
    const size_t handle = (size_t)((char *)allocator - metadata) + 1024;
    CHECK(handle < size);

    int text[2];
    CHECK(pipe(text) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        dup2(text[1], 2);
#ifdef __cplusplus
        try {
            scribble_and_call(metadata, size, allocator, handle);
        } catch (...) {
            _exit(7); /* it was thrown across */
        }
#else
        scribble_and_call(metadata, size, allocator, handle);
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
