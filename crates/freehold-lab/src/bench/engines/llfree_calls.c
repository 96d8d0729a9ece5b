/* LLFree as an engine of `freehold bench`: its sources, out of the clone that LLFREE_C names, and
 * the calls that llfree.rs makes, all in one unit, so that the compiler may inline from file to
 * file as it does in crates of Rust.
 *
 * Set up as its authors' tests are: their classes for immovable, movable and huge frames, their
 * policy, a slot for each CPU in each class, trees of the size that they chose.
 */
#include <stdlib.h>

#include "bitfield.c"
#include "child.c"
#include "local.c"
#include "lower.c"
#include "tree.c"
#include "trees.c"
#include "llfree.c"

enum { IMMOVABLE, MOVABLE, HUGE_FRAMES };

struct freehold_llfree {
	llfree_t inner;
	llfree_meta_t meta;
};

static void *lines(size_t bytes)
{
	return aligned_alloc(LLFREE_CACHE_SIZE, align_up(bytes, LLFREE_CACHE_SIZE));
}

void freehold_llfree_free(struct freehold_llfree *self)
{
	free(self->meta.local);
	free(self->meta.trees);
	free(self->meta.lower);
	free(self);
}

/* All frames free; NULL where there is no memory, or where LLFree refuses. */
struct freehold_llfree *freehold_llfree_new(size_t frames, size_t cpus)
{
	llfree_classing_t classing = llfree_classing_movable(cpus);
	llfree_meta_size_t size = llfree_metadata_size(&classing, frames);
	struct freehold_llfree *self = lines(sizeof *self);
	if (self == NULL)
		return NULL;
	self->meta = (llfree_meta_t){
		.local = lines(size.local), .trees = lines(size.trees), .lower = lines(size.lower)
	};
	if (self->meta.local != NULL && self->meta.trees != NULL && self->meta.lower != NULL
	    && llfree_is_ok(llfree_init(&self->inner, frames, LLFREE_INIT_FREE, self->meta, &classing)))
		return self;
	freehold_llfree_free(self);
	return NULL;
}

static llfree_request_t request(uint8_t order, bool movable, size_t cpu)
{
	uint8_t class = order >= LLFREE_HUGE_ORDER ? HUGE_FRAMES : movable ? MOVABLE : IMMOVABLE;
	return llreq(order, class, ll_some(cpu));
}

/* The two calls that are timed, with all that they call inlined: what is passed by value from call
 * to call, a request above all, otherwise goes through memory in pieces that the processor cannot
 * forward, and a pair takes twice as long. */
#define IN_ONE_PIECE __attribute__((flatten))

/* The first frame; UINT64_MAX where there is none. */
IN_ONE_PIECE uint64_t freehold_llfree_get(struct freehold_llfree *self, uint8_t order, bool movable,
					  size_t cpu)
{
	llfree_result_t result = llfree_get(&self->inner, frame_id_none(), request(order, movable, cpu));
	return llfree_is_ok(result) ? result.frame.value : UINT64_MAX;
}

/* Whether they were in use. */
IN_ONE_PIECE bool freehold_llfree_put(struct freehold_llfree *self, uint64_t frame, uint8_t order,
				      size_t cpu)
{
	return llfree_is_ok(llfree_put(&self->inner, frame_id(frame), request(order, true, cpu)));
}

void freehold_llfree_drain(struct freehold_llfree *self)
{
	llfree_drain(&self->inner);
}

size_t freehold_llfree_free_frames(const struct freehold_llfree *self)
{
	return llfree_stats(&self->inner).free_frames;
}

/* What the trees and the slots say, which LLFree keeps beside the bits. */
size_t freehold_llfree_free_in_trees(const struct freehold_llfree *self)
{
	return llfree_tree_stats(&self->inner).free_frames;
}
