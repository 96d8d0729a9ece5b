/* What a kernel does at boot: hands the memory map and a region for the metadata to the bare
 * allocator, brings CPUs online, allocates for its page tables and for a device, and adds memory
 * later. No memory is touched but the metadata.
 *
 *   make -C crates/freehold-ffi check     builds and runs it, or after an installation:
 *   cc boot.c $(pkg-config --cflags --libs freehold) -o boot && ./boot
 */
#include <freehold.h>
#include <stdio.h>
#include <stdlib.h>

/* As a boot loader's memory map tells: 4 GiB with the usual hole below 4 GiB, so some memory lies
 * above. */
static const freehold_frame_range dma32[] = {{0x100, 0xc0000}};
static const freehold_frame_range normal[] = {{0x100000, 0x140000}};

static const freehold_zone zones[] = {
    {.memory = dma32, .memory_count = 1},
    /* Room for another GiB behind it: sections of 128 MiB. */
    {.memory = normal, .memory_count = 1, .span = {0x100000, 0x180000}, .spare_sections = 8},
};

static void check(freehold_status status, const freehold_error *error)
{
    if (status != FREEHOLD_STATUS_OK) {
        fprintf(stderr, "%s: %s\n", freehold_strerror(status), error->message);
        exit(1);
    }
}

/* Of a kernel: the number of this CPU, from its per-CPU data. */
static uint16_t this_cpu(void *user)
{
    return *(const uint16_t *)user;
}

int main(void)
{
    freehold_error error;
    freehold_config config;
    freehold_allocator *allocator;
    uint16_t cpu = 0;
    freehold_platform platform = {.user = &cpu, .current_cpu = this_cpu};
    size_t size;

    freehold_config_init(&config, 4, zones, sizeof zones / sizeof *zones);
    config.online = 1; /* the others have not been started yet */
    config.extra_ranges = 1;
    check(freehold_metadata_size(&config, &size, &error), &error);
    void *metadata = malloc(size); /* a kernel takes it from the memory map */
    check(freehold_new(&config, metadata, size, &platform, &allocator, &error), &error);
    printf("%zu KiB of metadata for 4 GiB\n", size >> 10);

    for (uint16_t other = 1; other < 4; other++)
        check(freehold_cpu_online(allocator, other, &error), &error);

    /* The platform is asked at each call which CPU this is. */
    const freehold_cpu *here = freehold_here(allocator);
    uint64_t table, ring, huge;
    freehold_request request = {.order = 0, .migratetype = FREEHOLD_MIGRATETYPE_UNMOVABLE};
    check(freehold_alloc(here, &request, &table, &error), &error);
    /* A device that can only address 32 bits wants 64 KiB. */
    request.order = 4;
    request.below = 0x100000;
    check(freehold_alloc(here, &request, &ring, &error), &error);
    request = (freehold_request){.order = 9, .migratetype = FREEHOLD_MIGRATETYPE_MOVABLE};
    check(freehold_alloc(here, &request, &huge, &error), &error);
    printf("page table at pfn %#llx, ring at %#llx, huge page at %#llx\n",
           (unsigned long long)table, (unsigned long long)ring, (unsigned long long)huge);

    /* The huge page is split, and freed from another CPU, part by part. */
    cpu = 2;
    check(freehold_free_range(here, huge, huge + 100, &error), &error);
    check(freehold_free_range(here, huge + 100, huge + 512, &error), &error);
    if (freehold_free(here, huge, 0, &error) == FREEHOLD_STATUS_OK)
        return 1;
    printf("freed once more: %s\n", error.message);

    check(freehold_add_memory(allocator, 0x140000, 0x180000, &error), &error);
    check(freehold_free(here, ring, 4, &error), &error);
    check(freehold_free(here, table, 0, &error), &error);
    check(freehold_drain_all(allocator, &error), &error);
    check(freehold_validate(allocator, &error), &error);
    freehold_zone_stats stats;
    check(freehold_read_zone_stats(allocator, 1, &stats, &error), &error);
    printf("%llu of %llu frames of zone 1 free, %llu whole pageblocks\n",
           (unsigned long long)stats.free, (unsigned long long)stats.managed,
           (unsigned long long)stats.whole_blocks);
    check(freehold_destroy(allocator, &error), &error);
    free(metadata);
    return 0;
}
