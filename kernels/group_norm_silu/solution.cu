// GroupNorm and SiLU in one launch. Every element is read from memory once wherever the chip can hold what it must.
//
// Work comes in units. In a contiguous tensor a unit is a group; channels-last it is a slice of SLICE 16-byte vectors
// of every position, which holds several whole groups. A team of blocks takes a unit: each block its share, each thread
// the vectors first, first + THREADS, ... of that, which nobody else touches. So what a thread keeps between statistics
// and output, in registers or in its own slots of shared memory, needs no barrier, and only moments are exchanged.
//
//   held    the team is a cluster that holds the unit as a whole
//   ring    teams of many blocks stream unit after unit through shared memory
//   twice   units that do not fit into the ring are read a second time, backwards
#include <cuda_bf16.h>
#include <cuda_fp16.h>

template <class T> constexpr int WIDTH = 16 / sizeof(T);

__device__ __forceinline__ void widen(uint4 packed, float (&wide)[4], const float*) {
    wide[0] = __uint_as_float(packed.x);
    wide[1] = __uint_as_float(packed.y);
    wide[2] = __uint_as_float(packed.z);
    wide[3] = __uint_as_float(packed.w);
}

__device__ __forceinline__ void widen(uint4 packed, float (&wide)[8], const __nv_bfloat16*) {
    const unsigned pairs[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // a bfloat16 is the upper half of a float
        wide[2 * i] = __uint_as_float(pairs[i] << 16);
        wide[2 * i + 1] = __uint_as_float(pairs[i] & 0xffff0000u);
    }
}

__device__ __forceinline__ void widen(uint4 packed, float (&wide)[8], const __half*) {
    const unsigned pairs[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const float2 pair = __half22float2(*reinterpret_cast<const __half2*>(&pairs[i]));
        wide[2 * i] = pair.x;
        wide[2 * i + 1] = pair.y;
    }
}

__device__ __forceinline__ uint4 narrow(const float (&wide)[4], const float*) {
    return make_uint4(__float_as_uint(wide[0]), __float_as_uint(wide[1]), __float_as_uint(wide[2]),
                      __float_as_uint(wide[3]));
}

__device__ __forceinline__ uint4 narrow(const float (&wide)[8], const __nv_bfloat16*) {
    unsigned pairs[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const __nv_bfloat162 pair = __floats2bfloat162_rn(wide[2 * i], wide[2 * i + 1]);
        pairs[i] = *reinterpret_cast<const unsigned*>(&pair);
    }
    return make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
}

__device__ __forceinline__ uint4 narrow(const float (&wide)[8], const __half*) {
    unsigned pairs[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const __half2 pair = __floats2half2_rn(wide[2 * i], wide[2 * i + 1]);
        pairs[i] = *reinterpret_cast<const unsigned*>(&pair);
    }
    return make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
}

__device__ __forceinline__ float silu(float z) { return __fdividef(z, 1.0f + __expf(-z)); }

// Where units lie, in 16-byte vectors.
struct Geometry {
    int vectors;      // of a unit
    int share;        // of a block: whole positions
    int slices;       // units of a batch entry
    int spatial;      // contiguous: of a channel
    int channels;     // contiguous: of a group
    int row;          // channels-last: of a position
    long long batch;  // channels-last: of a batch entry
};

// How vectors and groups meet. SLICE is 0 where the tensor is contiguous; channels-last, a group has PER vectors at a
// position, or a vector holds SUB groups. Whole slices fit into a warp, so that every warp sees every group of a unit.
template <int SLICE_, int PER_, int SUB_> struct Layout {
    static constexpr bool LAST = SLICE_ != 0;
    static constexpr int SLICE = LAST ? SLICE_ : 1, PER = PER_, SUB = SUB_, GROUPS = SLICE / PER * SUB;
    static constexpr int SAME_GROUP = LAST ? (31 & ~(SLICE - 1)) | (PER - 1) : 31;  // bits in which its lanes differ
    static_assert(32 % SLICE == 0 && SLICE % PER == 0 && (PER == 1 || SUB == 1), "slices are made of whole groups");

    static __device__ __forceinline__ long long start(const Geometry& g, int unit) {
        return LAST ? unit / g.slices * g.batch + (long long)(unit % g.slices) * SLICE : (long long)unit * g.vectors;
    }
    // The first of the groups that the thread's vectors belong to.
    static __device__ __forceinline__ int group() { return LAST ? threadIdx.x % SLICE / PER * SUB : 0; }
};

// The vectors of a thread: `count` of them, in the tensor `step` apart, the first `at` behind the start of the unit.
template <class L, int THREADS> struct Place {
    int first, count;
    long long at, step;

    __device__ __forceinline__ Place(const Geometry& g, int rank) {
        const int end = min(g.vectors, (rank + 1) * g.share);
        first = rank * g.share + threadIdx.x;
        count = max(0, (end - first + THREADS - 1) / THREADS);
        at = L::LAST ? (long long)(first / L::SLICE) * g.row + first % L::SLICE : first;
        step = L::LAST ? (long long)(THREADS / L::SLICE) * g.row : THREADS;
    }
};

// How many values, their mean, and the sum of their squared distances from it.
struct Moments {
    float count, mean, squares;
};

// Moments of all lanes that differ in the bits of MASK. Distances are taken from the mean of the first of them: they
// are small numbers, however far from zero the values lie.
template <int MASK> __device__ __forceinline__ Moments merged(Moments own) {
    const float pivot = __shfl_sync(~0u, own.mean, threadIdx.x & 31 & ~MASK);
    const float apart = own.count > 0.0f ? own.mean - pivot : 0.0f;
    float sum = own.count * apart, squares = own.squares + sum * apart, count = own.count;
#pragma unroll
    for (int bit = 16; bit; bit /= 2)
        if (MASK & bit) {
            sum += __shfl_xor_sync(~0u, sum, bit);
            squares += __shfl_xor_sync(~0u, squares, bit);
            count += __shfl_xor_sync(~0u, count, bit);
        }
    const float share = count > 0.0f ? sum / count : 0.0f;
    return {count, pivot + share, fmaxf(squares - sum * share, 0.0f)};
}

// Hands the block's moments of every group to a warp that takes them. `of_warps` has room for WARPS * GROUPS.
template <class L, int WARPS, class Take>
__device__ __forceinline__ void reduce_block(const Moments (&own)[L::SUB], Moments* of_warps, Take take) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int s = 0; s < L::SUB; ++s) {
        const Moments together = merged<L::SAME_GROUP>(own[s]);
        if (lane < L::SLICE && lane % L::PER == 0) of_warps[warp * L::GROUPS + L::group() + s] = together;
    }
    __syncthreads();
    for (int group = warp; group < L::GROUPS; group += WARPS)
        take(group, merged<31>(lane < WARPS ? of_warps[lane * L::GROUPS + group] : Moments{0.0f, 0.0f, 0.0f}));
}

// (x - mean) * gain + offset, then SiLU, rounded once; gain is the channel's weight over the standard deviation. The
// mean is subtracted first: folded into the offset it would cost digits where it is large.
template <class T, class L> struct Affine {
    float mean[L::SUB], gain[WIDTH<T>], offset[WIDTH<T>];

    // Channels-last: the thread's own channels.
    __device__ __forceinline__ void channels(uint4 weight, uint4 bias, const float2 (&of_groups)[L::SUB]) {
        constexpr const T* kind = nullptr;
        constexpr int EACH = WIDTH<T> / L::SUB;
        widen(weight, gain, kind);
        widen(bias, offset, kind);
#pragma unroll
        for (int i = 0; i < WIDTH<T>; ++i) gain[i] *= of_groups[i / EACH].y;
#pragma unroll
        for (int s = 0; s < L::SUB; ++s) mean[s] = of_groups[s].x;
    }
    __device__ __forceinline__ uint4 operator()(uint4 packed) const {
        constexpr const T* kind = nullptr;
        constexpr int EACH = WIDTH<T> / L::SUB;
        float wide[WIDTH<T>];
        widen(packed, wide, kind);
#pragma unroll
        for (int i = 0; i < WIDTH<T>; ++i) wide[i] = silu(fmaf(wide[i] - mean[i / EACH], gain[i], offset[i]));
        return narrow(wide, kind);
    }
};

// The same where all values of a vector are of one channel.
template <class T> __device__ __forceinline__ uint4 activated(uint4 packed, float mean, float gain, float offset) {
    constexpr const T* kind = nullptr;
    float wide[WIDTH<T>];
    widen(packed, wide, kind);
#pragma unroll
    for (int i = 0; i < WIDTH<T>; ++i) wide[i] = silu(fmaf(wide[i] - mean, gain, offset));
    return narrow(wide, kind);
}

__device__ __forceinline__ void copy_async(uint4* to, const uint4* from) {
    const unsigned shared = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(from) : "memory");
}
__device__ __forceinline__ void commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int PENDING> __device__ __forceinline__ void wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

__device__ __forceinline__ void cluster_arrive() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ __forceinline__ void store_remote(float* mine, int rank, float value) {
    const unsigned here = (unsigned)__cvta_generic_to_shared(mine);
    unsigned there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(rank));
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(there), "f"(value) : "memory");
}

template <class T, int SUB> __device__ __forceinline__ void add_values(uint4 packed, float (&sums)[SUB]) {
    constexpr const T* kind = nullptr;
    float wide[WIDTH<T>];
    widen(packed, wide, kind);
#pragma unroll
    for (int i = 0; i < WIDTH<T>; ++i) sums[i / (WIDTH<T> / SUB)] += wide[i];
}

template <class T, int SUB>
__device__ __forceinline__ void add_squares(uint4 packed, const float (&means)[SUB], float (&squares)[SUB]) {
    constexpr const T* kind = nullptr;
    float wide[WIDTH<T>];
    widen(packed, wide, kind);
#pragma unroll
    for (int i = 0; i < WIDTH<T>; ++i) {
        const float apart = wide[i] - means[i / (WIDTH<T> / SUB)];
        squares[i / (WIDTH<T> / SUB)] += apart * apart;
    }
}

// Mean and 1 / standard deviation of a group, from the moments of TEAM blocks that lie `apart` from each other.
template <int TEAM> __device__ __forceinline__ float2 of_team(const Moments* first, int apart, float eps) {
    const float pivot = first->mean;
    float count = 0.0f, sum = 0.0f, squares = 0.0f;
#pragma unroll
    for (int r = 0; r < TEAM; ++r) {
        const Moments one = first[r * apart];
        const float distance = one.count > 0.0f ? one.mean - pivot : 0.0f;
        count += one.count;
        sum += one.count * distance;
        squares += one.squares + one.count * distance * distance;
    }
    const float per = 1.0f / count;
    return {pivot + sum * per, rsqrtf(fmaxf(squares - sum * sum * per, 0.0f) * per + eps)};
}

// The team is a cluster of TEAM blocks that holds its unit: REGISTERS vectors of a thread in registers, `slots` more in
// shared memory. Moments travel through distributed shared memory. MOST_CHANNELS is what a contiguous group may have.
enum { MOST_CHANNELS = 256 };

template <class T, class L, int THREADS, int TEAM, int REGISTERS>
__global__ void __cluster_dims__(TEAM, 1, 1) __launch_bounds__(THREADS)
held(const uint4* __restrict__ x, const T* __restrict__ weight, const T* __restrict__ bias, uint4* __restrict__ y,
     int slots, int vectors, int share, int slices, int spatial, unsigned per_spatial, int channels, int row,
     long long batch, float eps) {
    constexpr int WARPS = THREADS / 32;
    __shared__ Moments of_warps[WARPS * L::GROUPS], of_blocks[TEAM * L::GROUPS];
    __shared__ float2 affine[L::LAST ? 1 : MOST_CHANNELS];
    extern __shared__ uint4 kept[];
    const Geometry g = {vectors, share, slices, spatial, channels, row, batch};
    const int unit = blockIdx.x / TEAM, rank = blockIdx.x % TEAM;
    const Place<L, THREADS> place(g, rank);
    const long long start = L::start(g, unit) + place.at;
    if (TEAM > 1) cluster_arrive();  // waited for below: nobody may write to a block that has not begun

    uint4 packed[REGISTERS];
#pragma unroll
    for (int j = 0; j < REGISTERS; ++j)
        packed[j] = j < place.count ? __ldg(x + start + j * place.step) : make_uint4(0, 0, 0, 0);
    const int in_shared = min(slots, place.count - REGISTERS);
    uint4* const own_slots = kept + threadIdx.x;
#pragma unroll 4
    for (int j = 0; j < in_shared; ++j)
        copy_async(own_slots + j * THREADS, x + start + (REGISTERS + j) * place.step);
    commit();

    uint4 gain = {}, offset = {};
    if (L::LAST) {
        const int first = unit % slices * L::SLICE + threadIdx.x % L::SLICE;
        gain = __ldg(reinterpret_cast<const uint4*>(weight) + first);
        offset = __ldg(reinterpret_cast<const uint4*>(bias) + first);
    } else {
        const int first = unit % slices * channels;
        for (int c = threadIdx.x; c < channels; c += THREADS)
            affine[c] = {(float)weight[first + c], (float)bias[first + c]};
    }

    float sums[L::SUB] = {}, squares[L::SUB] = {}, means[L::SUB];
    const float count = place.count * (WIDTH<T> / L::SUB);
#pragma unroll
    for (int j = 0; j < REGISTERS; ++j)
        if (j < place.count) add_values<T>(packed[j], sums);
    wait<0>();
#pragma unroll 4
    for (int j = 0; j < in_shared; ++j) add_values<T>(own_slots[j * THREADS], sums);
#pragma unroll
    for (int s = 0; s < L::SUB; ++s) means[s] = count > 0.0f ? sums[s] / count : 0.0f;
#pragma unroll
    for (int j = 0; j < REGISTERS; ++j)
        if (j < place.count) add_squares<T>(packed[j], means, squares);
#pragma unroll 4
    for (int j = 0; j < in_shared; ++j) add_squares<T>(own_slots[j * THREADS], means, squares);

    Moments own[L::SUB];
#pragma unroll
    for (int s = 0; s < L::SUB; ++s) own[s] = {count, means[s], squares[s]};
    if (TEAM > 1) cluster_wait();
    reduce_block<L, WARPS>(own, of_warps, [&](int group, Moments all) {
        const int to = threadIdx.x % 32;
        Moments* const place_of_rank = of_blocks + rank * L::GROUPS + group;
        if (TEAM == 1) {
            if (to == 0) *place_of_rank = all;
        } else if (to < TEAM) {
            store_remote(&place_of_rank->count, to, all.count);
            store_remote(&place_of_rank->mean, to, all.mean);
            store_remote(&place_of_rank->squares, to, all.squares);
        }
    });
    if (TEAM > 1) {
        cluster_arrive();
        cluster_wait();
    } else {
        __syncthreads();
    }

    float2 of_groups[L::SUB];
#pragma unroll
    for (int s = 0; s < L::SUB; ++s) of_groups[s] = of_team<TEAM>(of_blocks + L::group() + s, L::GROUPS, eps);
    Affine<T, L> own_channels;
    if (L::LAST) own_channels.channels(gain, offset, of_groups);
    const auto store = [&](int j, uint4 value) {
        if (L::LAST) {
            y[start + j * place.step] = own_channels(value);
        } else {
            const float2 channel = affine[__umulhi(place.first + j * THREADS, per_spatial)];
            y[start + j * place.step] = activated<T>(value, of_groups[0].x, channel.x * of_groups[0].y, channel.y);
        }
    };
#pragma unroll
    for (int j = 0; j < REGISTERS; ++j)
        if (j < place.count) store(j, packed[j]);
#pragma unroll 2
    for (int j = 0; j < in_shared; ++j) store(REGISTERS + j, own_slots[j * THREADS]);
}

// Moments of blocks that are no cluster go through memory, in words that say themselves to which call they belong: the
// value below, the number of the call above. So they need neither fences nor to be cleared.
struct Words {
    unsigned long long mean, squares;
};
__device__ __forceinline__ unsigned long long word(float value, unsigned call) {
    return (unsigned long long)call << 32 | __float_as_uint(value);
}
__device__ __forceinline__ void put(Words* at, Words words) {
    asm volatile("st.relaxed.gpu.global.v2.u64 [%0], {%1, %2};"
                 :
                 : "l"(at), "l"(words.mean), "l"(words.squares)
                 : "memory");
}
__device__ __forceinline__ Words get(const Words* at) {
    Words words;
    asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(words.mean), "=l"(words.squares)
                 : "l"(at)
                 : "memory");
    return words;
}

// What a call leaves for the next one on its stream: how many blocks have begun so far. Every launch has as many.
struct Workspace {
    unsigned long long begun, unused;
    Words words[1];
};
__device__ __forceinline__ unsigned number_of_call(Workspace* workspace) {
    return (unsigned)(atomicAdd(&workspace->begun, 1ull) / gridDim.x) + 1;
}

// One thread's statistics of a unit, vector by vector: distances from the mean of the first one.
template <class T, int SUB> struct Running {
    float pivot[SUB], sum[SUB], squares[SUB];

    __device__ __forceinline__ void add(uint4 packed, bool first) {
        constexpr const T* kind = nullptr;
        constexpr int EACH = WIDTH<T> / SUB;
        float wide[WIDTH<T>];
        widen(packed, wide, kind);
        if (first) {
#pragma unroll
            for (int s = 0; s < SUB; ++s) {
                float total = 0.0f;
#pragma unroll
                for (int i = 0; i < EACH; ++i) total += wide[s * EACH + i];
                pivot[s] = total * (1.0f / EACH);
                sum[s] = squares[s] = 0.0f;
            }
        }
#pragma unroll
        for (int i = 0; i < WIDTH<T>; ++i) {
            const float apart = wide[i] - pivot[i / EACH];
            sum[i / EACH] += apart;
            squares[i / EACH] = fmaf(apart, apart, squares[i / EACH]);
        }
    }
    __device__ __forceinline__ Moments moments(int s, float count) const {
        if (count == 0.0f) return {0.0f, 0.0f, 0.0f};
        const float share = sum[s] / count;
        return {count, pivot[s] + share, fmaxf(squares[s] - sum[s] * share, 0.0f)};
    }
};

// A team of up to 160 blocks. All of its blocks run at the same time where the GPU is not shared; where it is, a block
// that has waited for PATIENCE looks works out what the others owe it, to the same bits, so that nobody waits forever.
enum { PATIENCE = 1 << 14 };

template <class T, class L, int THREADS> struct Team;
template <class T, class L, int THREADS>
__device__ __noinline__ void publish_for_all(Team<T, L, THREADS> team, int unit, int turn);

template <class T, class L, int THREADS> struct Team {
    static constexpr int WARPS = THREADS / 32, LOOKS = 5;
    Geometry g;
    const uint4* x;
    Words* words;
    float eps;
    int size, rank;
    Moments* of_warps;  // two of each, in turns: the barrier of one use frees what the use before read
    float2* of_groups;
    const unsigned* call;

    __device__ __forceinline__ Words* entry(int unit, int group, int who) const {
        return words + ((long long)unit * L::GROUPS + group) * size + who;
    }

    __device__ __forceinline__ void publish(int unit, int turn, int who, const Running<T, L::SUB>& running,
                                            int count) const {
        Moments own[L::SUB];
#pragma unroll
        for (int s = 0; s < L::SUB; ++s) own[s] = running.moments(s, count * (WIDTH<T> / L::SUB));
        reduce_block<L, WARPS>(own, of_warps + turn * WARPS * L::GROUPS, [&](int group, Moments all) {
            if (threadIdx.x % 32 == 0)
                put(entry(unit, group, who), {word(all.mean, *call), word(all.squares, *call)});
        });
    }

    // Mean and 1 / standard deviation of a group, by a warp; false where a block has not published in time. Merged in
    // the same order everywhere.
    __device__ __forceinline__ bool look(int unit, int group, float2* result) const {
        const int lane = threadIdx.x % 32;
        Words found[LOOKS];
        bool missing = true;
        for (int tries = 0; missing && tries < PATIENCE; ++tries) {
#pragma unroll
            for (int i = 0; i < LOOKS; ++i)
                if (lane + 32 * i < size) found[i] = get(entry(unit, group, lane + 32 * i));
            missing = false;
#pragma unroll
            for (int i = 0; i < LOOKS; ++i)
                if (lane + 32 * i < size)
                    missing |= found[i].mean >> 32 != *call || found[i].squares >> 32 != *call;
            missing = __any_sync(~0u, missing);
        }
        if (missing) return false;
        const float pivot = __shfl_sync(~0u, __uint_as_float((unsigned)found[0].mean), 0);
        float count = 0.0f, sum = 0.0f, squares = 0.0f;
#pragma unroll
        for (int i = 0; i < LOOKS; ++i) {
            const int who = lane + 32 * i;
            const int vectors = who < size ? min(g.share, g.vectors - who * g.share) : 0;
            if (vectors > 0) {
                const float part = (float)vectors * WIDTH<T> / L::GROUPS;
                const float apart = __uint_as_float((unsigned)found[i].mean) - pivot;
                count += part;
                sum += part * apart;
                squares += __uint_as_float((unsigned)found[i].squares) + part * apart * apart;
            }
        }
#pragma unroll
        for (int bit = 16; bit; bit /= 2) {
            count += __shfl_xor_sync(~0u, count, bit);
            sum += __shfl_xor_sync(~0u, sum, bit);
            squares += __shfl_xor_sync(~0u, squares, bit);
        }
        const float per = 1.0f / count;
        if (lane == 0) *result = {pivot + sum * per, rsqrtf(fmaxf(squares - sum * sum * per, 0.0f) * per + eps)};
        return true;
    }

    __device__ __forceinline__ void collect(int unit, int turn) const {
        for (;;) {
            bool late = false;
            for (int group = threadIdx.x / 32; group < L::GROUPS; group += WARPS)
                late |= !look(unit, group, of_groups + turn * L::GROUPS + group);
            if (!__syncthreads_or(late)) break;
            publish_for_all(*this, unit, turn);
        }
    }
};

// By value: an address of the team that escaped would keep its members in memory.
template <class T, class L, int THREADS>
__device__ __noinline__ void publish_for_all(Team<T, L, THREADS> team, int unit, int turn) {
    for (int who = 0; who < team.size; ++who) {
        const Place<L, THREADS> place(team.g, who);
        const uint4* from = team.x + L::start(team.g, unit) + place.at;
        Running<T, L::SUB> running;
        for (int j = 0; j < place.count; ++j) running.add(from[j * place.step], j == 0);
        team.publish(unit, turn, who, running, place.count);
        __syncthreads();
    }
}

// Turns the vectors of a unit into outputs, in the order of the thread's steps.
template <class T, class L, int THREADS> struct Writer {
    Affine<T, L> own_channels;  // channels-last
    float2 of_group;            // contiguous, and below: the channel at hand, how many vectors into it
    int channel, within;
    const T *weight, *bias;

    __device__ __forceinline__ void begin(const Geometry& g, int unit, const T* all_weight, const T* all_bias,
                                          const float2* of_groups, int vector) {
        if (L::LAST) {
            const int first = unit % g.slices * L::SLICE + threadIdx.x % L::SLICE;
            float2 own[L::SUB];
#pragma unroll
            for (int s = 0; s < L::SUB; ++s) own[s] = of_groups[L::group() + s];
            own_channels.channels(__ldg(reinterpret_cast<const uint4*>(all_weight) + first),
                                  __ldg(reinterpret_cast<const uint4*>(all_bias) + first), own);
        } else {
            of_group = of_groups[0];
            channel = vector / g.spatial;
            within = vector % g.spatial;
            weight = all_weight + unit % g.slices * g.channels;
            bias = all_bias + unit % g.slices * g.channels;
        }
    }
    __device__ __forceinline__ uint4 operator()(uint4 packed) const {
        if (L::LAST) return own_channels(packed);
        const float gain = (float)__ldg(weight + channel) * of_group.y;
        return activated<T>(packed, of_group.x, gain, (float)__ldg(bias + channel));
    }
    __device__ __forceinline__ void forwards(const Geometry& g) {
        if (L::LAST) return;
        within += THREADS;
        while (within >= g.spatial) within -= g.spatial, ++channel;
    }
    __device__ __forceinline__ void backwards(const Geometry& g) {
        if (L::LAST) return;
        within -= THREADS;
        while (within < 0) within += g.spatial, --channel;
    }
};

// Units one after the other through `slots` steps of shared memory. Step t stores what step t - slots loaded, loads
// into the slot that this frees, and adds what step t - AHEAD loaded to the statistics of its unit. A unit takes at
// most slots - AHEAD steps; what is left of them hides the exchange.
template <class T, class L, int THREADS, int AHEAD>
__global__ void __launch_bounds__(THREADS, 1)
ring(const uint4* __restrict__ x, const T* __restrict__ weight, const T* __restrict__ bias, uint4* __restrict__ y,
     Workspace* __restrict__ workspace, int units, int team_size, int slots, int vectors, int share, int slices,
     int spatial, int channels, int row, long long batch, float eps) {
    __shared__ Moments of_warps[2 * THREADS / 32 * L::GROUPS];
    __shared__ float2 of_groups[2 * L::GROUPS];
    __shared__ unsigned call;
    extern __shared__ uint4 kept[];
    if (threadIdx.x == 0) call = number_of_call(workspace);  // first looked at behind the barrier of a publish
    const int teams = gridDim.x / team_size, own_team = blockIdx.x / team_size, rank = blockIdx.x % team_size;
    if (own_team >= min(teams, units)) return;
    const Geometry g = {vectors, share, slices, spatial, channels, row, batch};
    const Team<T, L, THREADS> team = {g, x, workspace->words, eps, team_size, rank, of_warps, of_groups, &call};
    const Place<L, THREADS> place(g, rank);
    const int steps = (share + THREADS - 1) / THREADS, total = (units - own_team + teams - 1) / teams * steps;

    int load_slot = 0, add_slot = 0, load_step = 0, add_step = 0, store_step = 0;
    int load_unit = own_team, add_unit = own_team, store_unit = own_team;
    long long load_at = L::start(g, own_team) + place.at, store_at = 0;
    Running<T, L::SUB> running;
    Writer<T, L, THREADS> writer;
    for (int t = 0; t < total + slots; ++t) {
        uint4* const here = kept + load_slot * THREADS + threadIdx.x;
        if (++load_slot == slots) load_slot = 0;
        if (t >= slots) {
            if (store_step == 0) {
                const int turn = store_unit / teams & 1;
                team.collect(store_unit, turn);
                writer.begin(g, store_unit, weight, bias, of_groups + turn * L::GROUPS, place.first);
                store_at = L::start(g, store_unit) + place.at;
            }
            if (store_step < place.count) y[store_at] = writer(*here);
            writer.forwards(g);
            store_at += place.step;
            if (++store_step == steps) store_step = 0, store_unit += teams;
        }
        if (t < total) {
            if (load_step < place.count) copy_async(here, x + load_at);
            load_at += place.step;
            if (++load_step == steps) {
                load_step = 0;
                load_unit += teams;
                load_at = L::start(g, load_unit) + place.at;
            }
        }
        commit();  // also where nothing was loaded: groups are counted in steps
        if (t >= AHEAD && t < total + AHEAD) {
            wait<AHEAD>();
            if (add_step < place.count) running.add(kept[add_slot * THREADS + threadIdx.x], add_step == 0);
            if (++add_slot == slots) add_slot = 0;
            if (++add_step == steps) {
                team.publish(add_unit, add_unit / teams & 1, rank, running, place.count);
                add_step = 0;
                add_unit += teams;
            }
        }
    }
}

// Units that do not fit into the ring: forwards for the statistics, backwards for the output. By then the last `slots`
// steps are still in shared memory, and what was read shortly before them in the L2.
template <class T, class L, int THREADS, int AHEAD>
__global__ void __launch_bounds__(THREADS, 1)
twice(const uint4* __restrict__ x, const T* __restrict__ weight, const T* __restrict__ bias, uint4* __restrict__ y,
      Workspace* __restrict__ workspace, int units, int team_size, int slots, int vectors, int share, int slices,
      int spatial, int channels, int row, long long batch, float eps) {
    __shared__ Moments of_warps[2 * THREADS / 32 * L::GROUPS];
    __shared__ float2 of_groups[2 * L::GROUPS];
    __shared__ unsigned call;
    extern __shared__ uint4 kept[];
    if (threadIdx.x == 0) call = number_of_call(workspace);
    const int teams = gridDim.x / team_size, rank = blockIdx.x % team_size;
    if (blockIdx.x / team_size >= teams) return;
    const Geometry g = {vectors, share, slices, spatial, channels, row, batch};
    const Team<T, L, THREADS> team = {g, x, workspace->words, eps, team_size, rank, of_warps, of_groups, &call};
    const Place<L, THREADS> place(g, rank);
    const int steps = (share + THREADS - 1) / THREADS;

    for (int unit = blockIdx.x / team_size; unit < units; unit += teams) {
        const long long start = L::start(g, unit) + place.at;
        Running<T, L::SUB> running;
        long long at = start;
        int load_slot = 0, add_slot = 0;
        for (int t = 0; t < steps + AHEAD; ++t) {
            if (t < place.count) copy_async(kept + load_slot * THREADS + threadIdx.x, x + at);
            commit();
            at += place.step;
            if (++load_slot == slots) load_slot = 0;
            if (t < AHEAD) continue;
            wait<AHEAD>();
            if (t - AHEAD < place.count) running.add(kept[add_slot * THREADS + threadIdx.x], t == AHEAD);
            if (++add_slot == slots) add_slot = 0;
        }
        team.publish(unit, 0, rank, running, place.count);
        team.collect(unit, 0);

        Writer<T, L, THREADS> writer;
        writer.begin(g, unit, weight, bias, of_groups, place.first + (steps - 1) * THREADS);
        int slot = (steps - 1) % slots;
        at = start + (steps - 1) * place.step;
        for (int j = steps - 1; j >= 0; --j) {
            wait<AHEAD>();  // what is due was loaded `slots` steps ago, and slots > AHEAD
            uint4* const here = kept + slot * THREADS + threadIdx.x;
            if (j < place.count) y[at] = writer(*here);
            if (j >= slots && j - slots < place.count) copy_async(here, x + at - slots * place.step);
            commit();
            writer.backwards(g);
            at -= place.step;
            if (--slot < 0) slot = slots - 1;
        }
    }
}
