/* The bare allocator in a program that has no C library, no heap and no threads: what a kernel is
 * to it. x86-64 Linux only in how it says how it went. */
#define FREEHOLD_FREESTANDING
#include <freehold.h>

#ifdef FREEHOLD_HOSTED
#error "the arena is not in a library without std"
#endif

/* What GCC and Rust's own library demand of every freestanding program. */
void *memcpy(void *restrict to, const void *restrict from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ((volatile char *)to)[i] = ((const char *)from)[i];
    return to;
}

void *memmove(void *to, const void *from, size_t n)
{
    if ((uintptr_t)to < (uintptr_t)from)
        return memcpy(to, from, n);
    while (n--)
        ((volatile char *)to)[n] = ((const char *)from)[n];
    return to;
}

void *memset(void *to, int value, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ((volatile char *)to)[i] = (char)value;
    return to;
}

int memcmp(const void *a, const void *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (((const unsigned char *)a)[i] != ((const unsigned char *)b)[i])
            return ((const unsigned char *)a)[i] < ((const unsigned char *)b)[i] ? -1 : 1;
    return 0;
}

int bcmp(const void *a, const void *b, size_t n)
{
    return memcmp(a, b, n);
}

static long system_call(long number, long a, long b, long c)
{
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c)
                     : "rcx", "r11", "memory");
    return result;
}

static _Noreturn void end(int status, const char *why, size_t len)
{
    system_call(1, 2, (long)why, (long)len);
    for (;;)
        system_call(60, status, 0, 0);
}

void freehold_panic(const char *message, size_t len)
{
    end(2, message, len);
}

#define CHECK(condition)                                                        \
    do {                                                                        \
        static const char text[] = "freestanding: not so: " #condition "\n";    \
        if (!(condition))                                                       \
            end(1, text, sizeof text - 1);                                      \
    } while (0)

#define OK(call) CHECK((call) == FREEHOLD_STATUS_OK)

static char metadata[1 << 20];

/* Called on an aligned stack. */
__attribute__((used)) static _Noreturn void start(void)
{
    static const freehold_frame_range memory[] = {{0x100, 0x8000}, {0x10000, 0x20000}};
    freehold_zone zone = {0};
    freehold_config config;
    freehold_allocator *allocator;
    freehold_error error;
    freehold_request request = {0};
    uint64_t pfn = 0, again = 0;
    size_t size = 0;

    zone.memory = memory;
    zone.memory_count = 2;
    freehold_config_init(&config, 2, &zone, 1);
    OK(freehold_metadata_size(&config, &size, &error));
    CHECK(size <= sizeof metadata);
    OK(freehold_new(&config, metadata, sizeof metadata, NULL, &allocator, &error));
    for (request.order = 0; request.order <= 9; request.order++) {
        OK(freehold_alloc(freehold_here(allocator), &request, &pfn, &error));
        OK(freehold_free(freehold_on(allocator, 1), pfn, request.order, &error));
        CHECK(freehold_free(freehold_here(allocator), pfn, request.order, &error)
              != FREEHOLD_STATUS_OK);
        CHECK(error.status == FREEHOLD_STATUS_DOUBLE_FREE && error.pfn == pfn
              && error.message[0] == 'd');
    }
    const freehold_cpu *cpu;
    request.order = 0;
    OK(freehold_own(allocator, 0, &cpu, &error));
    OK(freehold_alloc(cpu, &request, &pfn, &error));
    OK(freehold_free(cpu, pfn, 0, &error));
    OK(freehold_alloc(cpu, &request, &again, &error));
    OK(freehold_free(cpu, again, 0, &error));
    OK(freehold_release(cpu, &error));
    OK(freehold_drain_all(allocator, &error));
    OK(freehold_validate(allocator, &error));
    static const char done[] = "freestanding: all right\n";
    end(0, done, sizeof done - 1);
}

__asm__(".globl _start\n_start: xor %ebp, %ebp\n and $-16, %rsp\n call start\n");
