/* A ring of messages of any length: one thread makes them in page frames, another reads them and gives the frames back.
 *
 *   make -C crates/freehold-ffi check     builds and runs it, or after an installation:
 *   cc messages.c $(pkg-config --cflags --libs freehold) -lpthread -o messages && ./messages
 */
#include <freehold.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MESSAGES = 1000, SLOTS = 16 };

static freehold_arena *arena;

/* The messages under way: a message is owned by whoever has its `freehold_frames`. */
static freehold_frames slots[SLOTS];
static unsigned sent, received;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static void check(freehold_status status, const freehold_error *error)
{
    if (status != FREEHOLD_STATUS_OK) {
        fprintf(stderr, "%s: %s\n", freehold_strerror(status), error->message);
        exit(1);
    }
}

static void *receive(void *result)
{
    freehold_error error;
    for (unsigned i = 0; i < MESSAGES; i++) {
        pthread_mutex_lock(&mutex);
        while (received == sent)
            pthread_cond_wait(&changed, &mutex);
        freehold_frames message = slots[received++ % SLOTS];
        pthread_cond_signal(&changed);
        pthread_mutex_unlock(&mutex);
        *(uint64_t *)result += *(uint64_t *)message.memory;
        /* On another thread than the one that allocated: the frames find their way home. */
        check(freehold_arena_free_frames(arena, &message, &error), &error);
    }
    return NULL;
}

int main(void)
{
    freehold_error error;
    pthread_t receiver;
    uint64_t sum = 0;
    check(freehold_arena_new(64 << 20, &arena, &error), &error);
    if (pthread_create(&receiver, NULL, receive, &sum) != 0)
        return 1;
    for (uint64_t i = 0; i < MESSAGES; i++) {
        freehold_frames message;
        check(freehold_arena_frames(arena, 1 + i % 5, &message, &error), &error);
        memset(message.memory, 0, message.count * 4096);
        *(uint64_t *)message.memory = i;
        pthread_mutex_lock(&mutex);
        while (sent - received == SLOTS)
            pthread_cond_wait(&changed, &mutex);
        slots[sent++ % SLOTS] = message;
        pthread_cond_signal(&changed);
        pthread_mutex_unlock(&mutex);
    }
    pthread_join(receiver, NULL);

    freehold_released released;
    check(freehold_arena_trim(arena, &released, &error), &error);
    printf("%d messages, sum %llu; %llu bytes given back to the OS\n", MESSAGES, (unsigned long long)sum,
           (unsigned long long)released.bytes);
    freehold_arena_destroy(&arena, NULL);
    return sum == (uint64_t)MESSAGES * (MESSAGES - 1) / 2 ? 0 : 1;
}
