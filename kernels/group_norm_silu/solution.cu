// GroupNorm and SiLU in one launch. Every element is read from memory once wherever the chip can hold what it must.
//
// Work comes in units. In a contiguous tensor a unit is a group; channels-last it is a slice of SLICE 16-byte vectors
// of every position, which holds several whole groups. Where the values of a channel are not whole vectors, a group is
// one span of memory all the same: only vectors at the border of two channels look up both, and one warp takes the
// values outside of whole vectors. A team of blocks takes a unit: each block its share, each thread the same vectors in
// every step, which nobody else touches. So what a thread keeps between statistics and output, in registers or in its
// own slots of shared memory, needs no barrier, and only moments are exchanged.
//
//   held    every team holds one unit as a whole
//   ring    teams stream unit after unit through shared memory, while a warp of its own exchanges the moments
//   twice   units that do not fit into the ring are read a second time, backwards, but for what is still on the chip:
//           all of them, where a channels-last tensor is too large for `held` to be fast and small enough to be held
//
// At 4 TB/s a multiprocessor has about 28 instructions for an element, so these are counted: values of 16 bits are
// summed and squared by the tensor cores where a unit is one group, and four outputs take five instructions of the
// special function unit.
//
// The shared memory that a launch adds, `kept`, is aligned to 128 bytes. It would begin behind what a kernel declares:
// where that was 16 bytes off a multiple of 32, kernels took 5 to 15 % longer, most likely because every 32 bytes that
// are copied then lie in two rows of it. Against other multiples of 32 bytes, 128 gain 2 to 6 % in `held` and `ring` of
// contiguous tensors.
#include "held.cuh"
#include "ring.cuh"
#include "twice.cuh"
