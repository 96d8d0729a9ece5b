// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * /dev/freehold and /dev/freehold-huge: shared memory for one mapping each time they are opened, a frame at the first touch
 * of each page, or a block of 2 MiB at the first touch of each where the mapping covers it.
 *
 * Frames go back when the last part of the mapping is gone: at munmap, exec or exit. The kernel has flushed all
 * translations when it tells us so. A fork does not inherit the mapping.
 *
 * A chunk of 2 MiB is mapped by one entry or by single frames, for good: which, is decided once, under the lock. So the
 * two kinds never meet in the page tables.
 */
#include "fh.h"
#include "compat.h"

#include <linux/fs.h>
#include <linux/kref.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/pfn.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/vmalloc.h>

enum kind { UNDECIDED, SINGLE, HUGE };

struct mapping {
	struct kref parts;
	struct mapping **owner;
	spinlock_t lock;
	bool huge;
	unsigned long pages;
	u8 *kinds;
	/* The frame of each page; 0 where there is none yet. */
	atomic64_t frames[];
};

/* What an open file is to its mapping: at most one at a time. */
struct opened {
	struct mapping *mapping;
	bool huge;
};

static DEFINE_PER_CPU(u64, faults);
static DEFINE_PER_CPU(u64, huge_faults);

static u64 of_all_cpus(u64 __percpu *counter)
{
	u64 sum = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		sum += *per_cpu_ptr(counter, cpu);
	return sum;
}

u64 fh_faults(void)
{
	return of_all_cpus(&faults);
}

u64 fh_huge_faults(void)
{
	return of_all_cpus(&huge_faults);
}

static void clear_frames(u64 pfn, unsigned long count)
{
	if (unlikely(fh_planted("dirty")))
		return;
	while (count--)
		clear_page(page_address(pfn_to_page(pfn++)));
}

static vm_fault_t fault_single(struct vm_fault *vmf, struct mapping *mapping)
{
	atomic64_t *frame = &mapping->frames[vmf->pgoff];
	u64 pfn = atomic64_read(frame), other;

	if (!pfn) {
		/* As with huge pages of which there are no more: for VM_FAULT_OOM the kernel would try again for ever. */
		if (fh_alloc(GFP_HIGHUSER_MOVABLE, 0, &pfn))
			return VM_FAULT_SIGBUS;
		clear_frames(pfn, 1);
		/* Another thread may have been faster with the same page. */
		other = atomic64_cmpxchg(frame, 0, pfn);
		if (other) {
			fh_free(pfn, 0);
			pfn = other;
		} else {
			this_cpu_inc(faults);
		}
	}
	return vmf_insert_pfn(vmf->vma, vmf->address, pfn);
}

/* Decides what a chunk is, if nobody has; `pfn` is a block, or none. What it is then. */
static enum kind decide(struct mapping *mapping, unsigned long chunk, u64 *pfn)
{
	unsigned long i, first = chunk * FH_BLOCK_FRAMES;
	enum kind kind;

	spin_lock(&mapping->lock);
	if (mapping->kinds[chunk] == UNDECIDED) {
		mapping->kinds[chunk] = *pfn ? HUGE : SINGLE;
		for (i = 0; *pfn && i < FH_BLOCK_FRAMES; i++)
			atomic64_set(&mapping->frames[first + i], *pfn + i);
		*pfn = 0;
	}
	kind = mapping->kinds[chunk];
	spin_unlock(&mapping->lock);
	return kind;
}

static vm_fault_t fault_huge(struct vm_fault *vmf, struct mapping *mapping, unsigned long chunk)
{
	u64 pfn = 0;

	if (READ_ONCE(mapping->kinds[chunk]) == UNDECIDED) {
		if (!fh_alloc(GFP_HIGHUSER_MOVABLE, FH_BLOCK_ORDER, &pfn))
			clear_frames(pfn, FH_BLOCK_FRAMES);
		else
			pfn = 0;
		if (pfn)
			this_cpu_inc(huge_faults);
		decide(mapping, chunk, &pfn);
		/* Not needed: another thread has decided. */
		if (pfn)
			fh_free(pfn, FH_BLOCK_ORDER);
	}
	if (READ_ONCE(mapping->kinds[chunk]) == SINGLE)
		return fault_single(vmf, mapping);
	pfn = atomic64_read(&mapping->frames[chunk * FH_BLOCK_FRAMES]);
	return fh_insert_block(vmf, pfn);
}

static vm_fault_t fault(struct vm_fault *vmf)
{
	struct mapping *mapping = vmf->vma->vm_private_data;
	unsigned long start = vmf->address & PMD_MASK, chunk = vmf->pgoff / FH_BLOCK_FRAMES;
	bool covered = start >= vmf->vma->vm_start && start + PMD_SIZE <= vmf->vma->vm_end;
	/* Page and address must be at the same place of their 2 MiB. */
	bool fits = (vmf->pgoff ^ vmf->address >> PAGE_SHIFT) % FH_BLOCK_FRAMES == 0;

	if (vmf->pgoff >= mapping->pages)
		return VM_FAULT_SIGBUS;
	if (mapping->huge && covered && fits)
		return fault_huge(vmf, mapping, chunk);
	return fault_single(vmf, mapping);
}

static void give_back(struct mapping *mapping)
{
	u64 pfns[64];
	unsigned long i, count = 0;

	for (i = 0; i < mapping->pages; i++) {
		if (i % FH_BLOCK_FRAMES == 0 && mapping->kinds[i / FH_BLOCK_FRAMES] == HUGE) {
			fh_free(atomic64_read(&mapping->frames[i]), FH_BLOCK_ORDER);
			i += FH_BLOCK_FRAMES - 1;
			continue;
		}
		pfns[count] = atomic64_read(&mapping->frames[i]);
		count += !!pfns[count];
		if (count == ARRAY_SIZE(pfns)) {
			fh_free_bulk(pfns, count);
			count = 0;
			cond_resched();
		}
	}
	if (count && fh_planted("keep"))
		count--;
	if (count)
		fh_free_bulk(pfns, count);
}

static void last_part_gone(struct kref *parts)
{
	struct mapping *mapping = container_of(parts, struct mapping, parts);
	struct mapping **owner = mapping->owner;

	give_back(mapping);
	vfree(mapping->kinds);
	vfree(mapping);
	/* The file is still open: it may be mapped again. */
	smp_store_release(owner, NULL);
}

/* A mapping is cut in two, or moved. */
static void part_comes(struct vm_area_struct *vma)
{
	struct mapping *mapping = vma->vm_private_data;

	kref_get(&mapping->parts);
}

static void part_goes(struct vm_area_struct *vma)
{
	struct mapping *mapping = vma->vm_private_data;

	kref_put(&mapping->parts, last_part_gone);
}

static const struct vm_operations_struct vm_operations = {
	.open = part_comes,
	.close = part_goes,
	.fault = fault,
};

static struct mapping *new_mapping(struct opened *opened, unsigned long pages)
{
	struct mapping *mapping;

	/* More than there is memory could never be touched, and the books alone might take all that the kernel has. */
	if (pages > fh_end_pfn - fh_first_pfn)
		return NULL;
	mapping = vzalloc(struct_size(mapping, frames, pages));
	if (!mapping)
		return NULL;
	mapping->kinds = vzalloc(DIV_ROUND_UP(pages, FH_BLOCK_FRAMES));
	if (!mapping->kinds) {
		vfree(mapping);
		return NULL;
	}
	kref_init(&mapping->parts);
	spin_lock_init(&mapping->lock);
	mapping->owner = &opened->mapping;
	mapping->huge = opened->huge;
	mapping->pages = pages;
	return mapping;
}

static int device_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct opened *opened = file->private_data;
	struct mapping *mapping;

	/* A private mapping would copy on write, into pages of the kernel's. */
	if (!(vma->vm_flags & VM_SHARED) || vma->vm_pgoff)
		return -EINVAL;
	mapping = new_mapping(opened, vma_pages(vma));
	if (!mapping)
		return -ENOMEM;
	if (cmpxchg(&opened->mapping, NULL, mapping)) {
		vfree(mapping->kinds);
		vfree(mapping);
		return -EBUSY;
	}
	fh_add_vm_flags(vma, VM_PFNMAP | VM_DONTEXPAND | VM_DONTDUMP | VM_DONTCOPY);
	vma->vm_private_data = mapping;
	vma->vm_ops = &vm_operations;
	return 0;
}

static int open_as(struct file *file, bool huge)
{
	struct opened *opened = kzalloc(sizeof(*opened), GFP_KERNEL);

	if (!opened)
		return -ENOMEM;
	opened->huge = huge;
	file->private_data = opened;
	return 0;
}

static int open_single(struct inode *inode, struct file *file)
{
	return open_as(file, false);
}

static int open_huge(struct inode *inode, struct file *file)
{
	return open_as(file, true);
}

/* Each part of a mapping keeps the file open, so there is none any more. */
static int device_release(struct inode *inode, struct file *file)
{
	kfree(file->private_data);
	return 0;
}

static const struct file_operations single_operations = {
	.owner = THIS_MODULE,
	.open = open_single,
	.release = device_release,
	.mmap = device_mmap,
};

static const struct file_operations huge_operations = {
	.owner = THIS_MODULE,
	.open = open_huge,
	.release = device_release,
	.mmap = device_mmap,
	.get_unmapped_area = thp_get_unmapped_area,
};

static struct miscdevice single_device = {
	.minor = MISC_DYNAMIC_MINOR, .name = "freehold", .fops = &single_operations, .mode = 0600,
};
static struct miscdevice huge_device = {
	.minor = MISC_DYNAMIC_MINOR, .name = "freehold-huge", .fops = &huge_operations, .mode = 0600,
};

/* A kernel without huge pages of its own, as those with PREEMPT_RT, can map none of ours. */
static bool huge_works(void)
{
	return IS_ENABLED(CONFIG_TRANSPARENT_HUGEPAGE);
}

int fh_device_start(void)
{
	int status = fh_planted("deviceless") ? -EBUSY : misc_register(&single_device);

	if (status || !huge_works())
		return status;
	status = misc_register(&huge_device);
	if (status)
		misc_deregister(&single_device);
	return status;
}

void fh_device_stop(void)
{
	if (huge_works())
		misc_deregister(&huge_device);
	misc_deregister(&single_device);
}
