// Where the values of a tensor lie, and what a block learns of them.
#pragma once

#include "instructions.cuh"

// Where units lie, in 16-byte vectors.
struct Geometry {
    int vectors;      // of a unit
    int share;        // of a block: whole positions
    int slices;       // units of a batch entry
    int spatial;      // contiguous: of a channel; its values where vectors are MIXED
    int channels;     // contiguous: of a group
    int row;          // channels-last: of a position
    long long batch;  // channels-last: of a batch entry
};

// How vectors and groups meet. SLICE is 0 where the tensor is contiguous; channels-last, a group has PER vectors at a
// position, or a vector holds SUB groups. Contiguous, PER is 1 where channels are whole vectors. Otherwise it is how
// many values a vector has: these may be of two channels, as in Layout<0, 8, 1>, groups may begin and end inside
// vectors, and a unit has ends outside of whole ones: see ends.cuh. The blocks of a team share a unit in pieces as large
// as can be or, channels-last, IN_TURN: a vector of every thread each, and again. Where a unit is one group, the tensor
// cores may add up its values of 16 bits, DEPTH at a time; this is 0 where they do not. Lanes that differ in bits of
// SAME have values of the same groups and share an entry of the block's statistics: four neighbours where the tensor
// cores may add up, otherwise all that take the same vector of the slice.
template <int SLICE_, int PER_, int SUB_, bool IN_TURN_ = false, int DEPTH_ = SLICE_ ? 0 : 8> struct Layout {
    static constexpr bool LAST = SLICE_ != 0, IN_TURN = IN_TURN_;
    static constexpr int SLICE = LAST ? SLICE_ : 1, PER = LAST ? PER_ : 1, SUB = SUB_, GROUPS = SLICE / PER * SUB;
    static constexpr int MIXED = LAST || PER_ == 1 ? 0 : PER_;
    static constexpr int DEPTH = DEPTH_, SAME = DEPTH ? 3 : 31 & ~(SLICE - 1), OF_WARP = DEPTH ? 8 : SLICE;
    static_assert(32 % SLICE == 0 && SLICE % PER == 0 && (PER == 1 || SUB == 1), "slices are made of whole groups");
    static_assert(DEPTH == 0 || GROUPS == 1, "the tensor cores add up the values of neighbours");

    static __device__ __forceinline__ long long start(const Geometry& g, int unit) {
        if constexpr (MIXED != 0) return ((long long)unit * values(g) + MIXED - 1) / MIXED;
        return LAST ? unit / g.slices * g.batch + (long long)(unit % g.slices) * SLICE : (long long)unit * g.vectors;
    }
    // Where vectors are MIXED, values of a unit, those before its first whole vector, and those at both ends.
    static __device__ __forceinline__ int values(const Geometry& g) { return g.channels * g.spatial; }
    static __device__ __forceinline__ int before(const Geometry& g, int unit) {
        return (0u - (unsigned)unit * (unsigned)values(g)) % MIXED;
    }
    static __device__ __forceinline__ int at_ends(const Geometry& g) { return values(g) - g.vectors * MIXED; }
    // The first of the groups that a thread's vectors belong to.
    static __device__ __forceinline__ int group(int thread) { return LAST ? thread % SLICE / PER * SUB : 0; }
    // Where entries of a group lie among those of the block.
    static __device__ __forceinline__ int entry(int thread) {
        return thread / 32 * OF_WARP + (DEPTH ? thread % 32 / 4 : thread % SLICE);
    }
    static __device__ __forceinline__ bool has_entry(int thread) {
        return DEPTH ? thread % 4 == thread % 32 / 8 : thread % 32 < SLICE;
    }
};

// The vectors of a thread: `count` of them, in the tensor `step` apart, the first `at` behind the start of the unit.
// Contiguous, this is the unit's vector `at`.
template <class L, int THREADS> struct Place {
    int count, whole;  // `whole` of them in step with every other thread
    long long at, step;

    __device__ __forceinline__ Place(const Geometry& g, int blocks, int rank, int thread) {
        const int stride = L::IN_TURN ? blocks * THREADS : THREADS, start = rank * (L::IN_TURN ? THREADS : g.share);
        const int first = start + thread, end = L::IN_TURN ? g.vectors : min(g.vectors, (rank + 1) * g.share);
        count = max(0, (end - first + stride - 1) / stride);
        whole = max(0, end - start - THREADS + stride) / stride;
        at = L::LAST ? (long long)(first / L::SLICE) * g.row + first % L::SLICE : first;
        step = L::LAST ? (long long)(stride / L::SLICE) * g.row : stride;
    }
    // Vectors of all lanes that share the thread's entry.
    __device__ __forceinline__ int of_entry() const {
        int all = count;
#pragma unroll
        for (int bit = 1; bit < 32; bit *= 2)
            if (L::SAME & bit) all += __shfl_xor_sync(~0u, all, bit);
        return all;
    }
};

// What some lanes know of a group: how many values, and their sum and that of their squares as distances from a pivot.
struct Entry {
    float count, pivot, sum, squares;
};

// The first value of the lanes that share an entry: distances from it are small, however far from zero values lie. Of
// fp16 half of the distance is taken, because the whole might be out of its range.
template <class T, class L> struct Pivot {
    static constexpr unsigned ONES = IS_HALF<T> ? 0x3c003c00u : 0x3f803f80u, SIGNS = 0x80008000u;
    static constexpr unsigned SCALE = IS_HALF<T> ? 0x38003800u : ONES;
    static constexpr float UNIT = IS_HALF<T> ? 2.0f : 1.0f;
    unsigned minus[L::SUB];

    __device__ __forceinline__ void set(uint4 first) {
        constexpr const T* kind = nullptr;
#pragma unroll
        for (int s = 0; s < L::SUB; ++s) {
            const unsigned pair = __shfl_sync(~0u, s ? first.z : first.x, threadIdx.x & 31 & ~L::SAME);
            minus[s] = fma_pair(__byte_perm(pair, 0, 0x1010), SCALE | SIGNS, SIGNS, kind);
        }
    }
    __device__ __forceinline__ uint4 apart(uint4 packed) const {
        constexpr const T* kind = nullptr;
        return make_uint4(fma_pair(packed.x, SCALE, minus[0], kind), fma_pair(packed.y, SCALE, minus[0], kind),
                          fma_pair(packed.z, SCALE, minus[L::SUB - 1], kind),
                          fma_pair(packed.w, SCALE, minus[L::SUB - 1], kind));
    }
    __device__ __forceinline__ Entry entry(int s, float count, float sum, float squares) const {
        float wide[WIDTH<T>];
        widen(make_uint4(minus[s], 0, 0, 0), wide, (const T*)nullptr);
        return {count, wide[0] * -UNIT, sum * UNIT, squares * (UNIT * UNIT)};
    }
};

template <class L> struct Pivot<float, L> {
    float pivots[L::SUB];

    __device__ __forceinline__ void set(uint4 first) {
#pragma unroll
        for (int s = 0; s < L::SUB; ++s)
            pivots[s] = __uint_as_float(__shfl_sync(~0u, s ? first.z : first.x, threadIdx.x & 31 & ~L::SAME));
    }
    __device__ __forceinline__ uint4 apart(uint4 packed) const {
        float wide[4];
        widen(packed, wide, (const float*)nullptr);
#pragma unroll
        for (int i = 0; i < 4; ++i) wide[i] -= pivots[i * L::SUB / 4];
        return narrow(wide, (const float*)nullptr);
    }
    __device__ __forceinline__ Entry entry(int s, float count, float sum, float squares) const {
        return {count, pivots[s], sum, squares};
    }
};

// Statistics of the vectors of lanes that share an entry.
template <class T, class L, bool TENSOR = L::DEPTH && sizeof(T) == 2> struct Statistics {
    Pivot<T, L> pivot;
    float sums[L::SUB], squares[L::SUB];

    __device__ __forceinline__ void begin(uint4 first) {
        pivot.set(first);
#pragma unroll
        for (int s = 0; s < L::SUB; ++s) sums[s] = squares[s] = 0.0f;
    }
    __device__ __forceinline__ void add(uint4 packed, bool present) {
        if (!present) return;
        float wide[WIDTH<T>];
        widen(pivot.apart(packed), wide, (const T*)nullptr);
#pragma unroll
        for (int i = 0; i < WIDTH<T>; ++i) {
            const int s = i * L::SUB / WIDTH<T>;
            sums[s] += wide[i];
            squares[s] = fmaf(wide[i], wide[i], squares[s]);
        }
    }
    // Right on the lane that has the entry.
    __device__ __forceinline__ Entry entry(int s, float count) const {
        float of_values = sums[s], of_squares = squares[s];
#pragma unroll
        for (int bit = 1; bit < 32; bit *= 2)
            if (L::SAME & bit) {
                of_values += __shfl_xor_sync(~0u, of_values, bit);
                of_squares += __shfl_xor_sync(~0u, of_squares, bit);
            }
        return pivot.entry(s, count, of_values, of_squares);
    }
};

// The same by the tensor cores, with an eighth of the instructions. They multiply two matrices of which the lanes hold
// the parts. Where both are made of the same registers, rows of the one are columns of the other, and each four lanes
// hold one of eight: on the diagonal of the product are sums of squares. The other eight rows are ones: what they yield
// are sums. A lane in four has both. Products are exact and sums of 32 bits.
// Of a vector they take a quarter at a time or, where DEPTH is 16, half, which is half as many instructions.
template <class T, class L> struct Statistics<T, L, true> {
    Pivot<T, L> pivot;
    float sums[2][4];

    __device__ __forceinline__ void begin(uint4 first) {
        pivot.set(first);
#pragma unroll
        for (int i = 0; i < 8; ++i) sums[i / 4][i % 4] = 0.0f;
    }
    __device__ __forceinline__ void add(uint4 packed, bool present) {
        constexpr const T* kind = nullptr;
        constexpr unsigned ONES = Pivot<T, L>::ONES;
        uint4 apart = {0, 0, 0, 0};
        if (present) apart = pivot.apart(packed);
        if (L::DEPTH == 16) {
            multiply_add(sums[0], apart.x, apart.y, ONES, kind);
            multiply_add(sums[1], apart.z, apart.w, ONES, kind);
        } else {
            multiply_add(sums[0], apart.x, ONES, kind);
            multiply_add(sums[1], apart.z, ONES, kind);
            multiply_add(sums[0], apart.y, ONES, kind);
            multiply_add(sums[1], apart.w, ONES, kind);
        }
    }
    __device__ __forceinline__ Entry entry(int s, float count) const {
        const bool odd = threadIdx.x & 4;
        const float of_squares = odd ? sums[0][1] + sums[1][1] : sums[0][0] + sums[1][0];
        return pivot.entry(s, count, odd ? sums[0][3] + sums[1][3] : sums[0][2] + sums[1][2], of_squares);
    }
};

// Leaves what a thread's lanes know where the block collects it. `of_entry` is how many vectors that was. The last
// entry is that of the ends.
template <class L, int THREADS> constexpr int ENTRIES = THREADS / 32 * L::OF_WARP * L::SUB + (L::MIXED ? 1 : 0);

template <class T, class L>
__device__ __forceinline__ void leave(const Statistics<T, L>& statistics, int of_entry, int thread, Entry* entries) {
#pragma unroll
    for (int s = 0; s < L::SUB; ++s) {
        const Entry entry = statistics.entry(s, of_entry * (WIDTH<T> / L::SUB));
        if (L::has_entry(thread)) entries[L::entry(thread) * L::SUB + s] = entry;
    }
}

// The mean of values and the sum of their squared distances from it.
struct Moments {
    float mean, squares;
};

// Of the `count` values of a group in a block, by a warp. The pivot of all is the mean of the first entry.
template <class L, int THREADS>
__device__ __forceinline__ Moments of_block(const Entry* entries, int group, float count) {
    constexpr int EACH = THREADS / 32 * L::OF_WARP * L::PER / L::SLICE + (L::MIXED ? 1 : 0);
    const auto at = [&](int i) {
        const int vector = i / L::PER * L::SLICE + group / L::SUB * L::PER + i % L::PER;
        return entries[vector * L::SUB + group % L::SUB];
    };
    const Entry first = at(0);
    const float pivot = first.count > 0.0f ? fmaf(first.sum, reciprocal(first.count), first.pivot) : 0.0f;
    float sum = 0.0f, squares = 0.0f;
#pragma unroll
    for (int i = threadIdx.x % 32; i < EACH; i += 32) {
        const Entry one = at(i);
        const float apart = one.count > 0.0f ? one.pivot - pivot : 0.0f;
        sum += fmaf(one.count, apart, one.sum);
        squares += fmaf(apart, fmaf(one.count, apart, 2.0f * one.sum), one.squares);
    }
#pragma unroll
    for (int bit = 16; bit; bit /= 2) {
        sum += __shfl_xor_sync(~0u, sum, bit);
        squares += __shfl_xor_sync(~0u, squares, bit);
    }
    const float share = count > 0.0f ? sum * reciprocal(count) : 0.0f;
    return {pivot + share, fmaxf(squares - sum * share, 0.0f)};
}

// How many values a group has, and the block `rank` of them.
template <class T, class L> __device__ __forceinline__ float values_of_group(const Geometry& g) {
    if constexpr (L::MIXED != 0) return (float)L::values(g);
    return (float)g.vectors * WIDTH<T> / L::GROUPS;
}
template <class T, class L, int THREADS>
__device__ __forceinline__ float values_of(const Geometry& g, int blocks, int rank) {
    int rounds = 0, rest = g.vectors, share = g.share;
    if (L::IN_TURN) {
        share = THREADS;
        rounds = rest / (blocks * THREADS);
        rest -= rounds * blocks * THREADS;
    }
    const int own = rounds * share + max(0, min(share, rest - rank * share));
    if constexpr (L::MIXED != 0) return (float)own * WIDTH<T> + (rank == 0 ? L::at_ends(g) : 0);
    return (float)own * WIDTH<T> / L::GROUPS;
}
