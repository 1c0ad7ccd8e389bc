// GroupNorm and SiLU in one launch. Every element is read from memory once wherever the chip can hold what it must.
//
// Work comes in units. In a contiguous tensor a unit is a group; channels-last it is a slice of SLICE 16-byte vectors
// of every position, which holds several whole groups. A team of blocks takes a unit: each block its share, each thread
// the same vectors in every step, which nobody else touches. So what a thread keeps between statistics and output, in
// registers or in its own slots of shared memory, needs no barrier, and only moments are exchanged.
//
//   held    every team holds one unit as a whole
//   ring    teams stream unit after unit through shared memory, while a warp of its own exchanges the moments
//   twice   units that do not fit into the ring are read a second time, backwards
//
// At 4 TB/s a multiprocessor has about 28 instructions for an element, so these are counted: values of 16 bits are
// summed and squared by the tensor cores, and an output takes two instructions of the special function unit.
#include "output.cuh"
#include "teams.cuh"

// Mean and 1 / standard deviation of a group, from the moments of the blocks of a cluster.
template <class T, class L, int CLUSTER>
__device__ __forceinline__ float2 of_cluster(const Geometry& g, const float2* of_blocks, int group, float eps) {
    const float pivot = of_blocks[group].x;
    float sum = 0.0f, squares = 0.0f;
#pragma unroll
    for (int rank = 0; rank < CLUSTER; ++rank) {
        const float2 one = of_blocks[rank * L::GROUPS + group];
        const float part = values_of<T, L>(g, rank), apart = part > 0.0f ? one.x - pivot : 0.0f;
        sum = fmaf(part, apart, sum);
        squares += fmaf(part * apart, apart, one.y);
    }
    const float per = reciprocal((float)g.vectors * WIDTH<T> / L::GROUPS);
    return {pivot + sum * per, rsqrtf(fmaxf(squares - sum * sum * per, 0.0f) * per + eps)};
}

// The team holds its unit: REGISTERS vectors of a thread in registers, `slots` more in shared memory where this is
// SHARED. It is a cluster of CLUSTER blocks, which send each other their moments, or where this is 0 `team_size` of
// them, which exchange moments through memory.
// Small units are done in 2 us from a cold start, code included: loops are left as loops where nothing is gained.
enum { MOST_CHANNELS = 256 };

template <class T, class L, int THREADS, int CLUSTER, int REGISTERS, bool SHARED>
__global__ void __cluster_dims__(CLUSTER ? CLUSTER : 1, 1, 1)
__launch_bounds__(THREADS, THREADS < 512 ? 512 / THREADS : 1)
held(const uint4* __restrict__ x, const T* __restrict__ weight, const T* __restrict__ bias, uint4* __restrict__ y,
     Workspace* __restrict__ workspace, int units, int team_size, int slots, int vectors, int share, int slices,
     int spatial, int channels, int row, long long batch, unsigned per_spatial, float eps) {
    constexpr int WARPS = THREADS / 32, SLOT = 16 * THREADS;
    __shared__ Entry entries[ENTRIES<L, THREADS>];
    __shared__ float2 of_channels[L::LAST ? 1 : MOST_CHANNELS], of_groups[(CLUSTER ? CLUSTER : 1) * L::GROUPS];
    __shared__ unsigned long long mailbox;
    __shared__ Team<T, L, THREADS> team;
    extern __shared__ uint4 kept[];
    const int size = CLUSTER ? CLUSTER : team_size, unit = blockIdx.x / size, rank = blockIdx.x % size;
    const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    const Geometry g = {vectors, share, slices, spatial, channels, row, batch};
    if (CLUSTER == 0 && unit >= units) {
        if (thread == 0) number_of_call(workspace);
        return;
    }
    const Place<L, THREADS> place(g, rank, thread);
    const long long start = L::start(g, unit) + place.at;

    uint4 packed[REGISTERS];
#pragma unroll
    for (int j = 0; j < REGISTERS; ++j)
        packed[j] = j < place.count ? __ldg(x + start + j * place.step) : make_uint4(0, 0, 0, 0);
    const unsigned own_slots = address_of(kept + thread);
    const int in_shared = SHARED ? min(slots, place.count - REGISTERS) : 0, half = slots / 2;
    const uint4* from = x + start + REGISTERS * place.step;
    if (SHARED) {
#pragma unroll 1
        for (int j = 0; j < slots; ++j, from += place.step) {
            if (j == half) commit();
            if (j < in_shared) copy_async(own_slots + j * SLOT, from);
        }
        commit();
    }
    if (CLUSTER > 1) {  // waited for below: nobody may send to a block that has not begun
        if (thread == 0) expect(&mailbox, CLUSTER * L::GROUPS * sizeof(float2));
        cluster_arrive();
    }
    if (CLUSTER == 0 && thread == 0)  // not earlier: a warp would wait for it before it loads anything
        team.begin(g, x, workspace, eps, size, rank);
    uint4 gain = {}, offset = {};
    if (L::LAST) {
        const int first = unit % slices * L::SLICE + thread % L::SLICE;
        gain = __ldg(reinterpret_cast<const uint4*>(weight) + first);
        offset = __ldg(reinterpret_cast<const uint4*>(bias) + first);
    } else {
        load_channels(g, unit, weight, bias, of_channels, thread, THREADS);
    }

    Statistics<T, L> statistics;
    statistics.begin(packed[0]);
#pragma unroll
    for (int j = 0; j < REGISTERS; ++j) statistics.add(packed[j], j < place.count);
    if (SHARED) {
        wait<1>();
#pragma unroll 2
        for (int j = 0; j < half; ++j) statistics.add(load_shared(own_slots + j * SLOT), j < in_shared);
        wait<0>();
#pragma unroll 2
        for (int j = half; j < slots; ++j) statistics.add(load_shared(own_slots + j * SLOT), j < in_shared);
    }
    leave(statistics, place.of_entry(), thread, entries);
    __syncthreads();

    float2 of_own[L::SUB];
    if (CLUSTER) {
        if (CLUSTER > 1) cluster_wait();
#pragma unroll 1
        for (int group = warp; group < L::GROUPS; group += WARPS) {
            const Moments all = of_block<L, THREADS>(entries, group, values_of<T, L>(g, rank));
            float2* const of_rank = of_groups + rank * L::GROUPS + group;
            if (CLUSTER == 1) {
                if (lane == 0) *of_rank = {all.mean, all.squares};
            } else if (lane < CLUSTER) {
                send(of_rank, &mailbox, lane, {all.mean, all.squares});
            }
        }
        if (CLUSTER > 1)
            receive(&mailbox);
        else
            __syncthreads();
#pragma unroll
        for (int s = 0; s < L::SUB; ++s)
            of_own[s] = of_cluster<T, L, CLUSTER>(g, of_groups, L::group(thread) + s, eps);
    } else {
#pragma unroll 1
        for (int group = warp; group < L::GROUPS; group += WARPS) {
            const float2 of_group = exchanged(team, unit, group, entries, warp == 0);
            if (lane == 0) of_groups[group] = of_group;
        }
        __syncthreads();
#pragma unroll
        for (int s = 0; s < L::SUB; ++s) of_own[s] = of_groups[L::group(thread) + s];
    }

    Channels<T, L> own;
    if (L::LAST) own.set(gain, offset, of_own);
    const auto output = [&](int j, uint4 value) {
        if (L::LAST) return own(value);
        const float2 raw = of_channels[__umulhi((unsigned)place.at + j * THREADS, per_spatial)];
        return activated<T>(value, of_own[0].x, affine<T>(raw.x, raw.y, of_own[0]));
    };
    uint4* to = y + start;
#pragma unroll
    for (int j = 0; j < REGISTERS; ++j)
        if (j < place.count) to[j * place.step] = output(j, packed[j]);
    to += REGISTERS * place.step;
#pragma unroll 2
    for (int j = 0; j < in_shared; ++j, to += place.step)
        *to = output(REGISTERS + j, load_shared(own_slots + j * SLOT));
}

// Contiguous units one after the other through `slots` steps of shared memory, a step being BATCH vectors of every
// worker. Step t stores what step t - slots loaded, loads into the slot that this frees, and adds what step t - AHEAD
// loaded to the statistics of its unit. The first warp turns what the workers leave into mean and deviation, while they
// go on: a unit takes at most slots - AHEAD steps, and what is left of them hides the exchange. It takes
// (slots - AHEAD) / TURNS at least, so that no more than TURNS units are between their statistics and their output:
// what is exchanged lies in as many places, in turns.
enum { TURNS = 3, ADDED = 1, KNOWN = ADDED + TURNS };  // barriers, one for every turn

__device__ __forceinline__ int after(int turn) { return turn + 1 == TURNS ? 0 : turn + 1; }

template <class T, class L, int WORKERS, int BATCH, int AHEAD>
__global__ void __launch_bounds__(WORKERS + 32, 1)
ring(const uint4* __restrict__ x, const T* __restrict__ weight, const T* __restrict__ bias, uint4* __restrict__ y,
     Workspace* __restrict__ workspace, int units, int team_size, int slots, int vectors, int share, int slices,
     int spatial, int channels, int row, long long batch, float eps) {
    constexpr int ALL = WORKERS + 32;
    constexpr unsigned APART = 16 * WORKERS, SLOT = BATCH * APART;
    __shared__ Entry entries[TURNS][ENTRIES<L, WORKERS>];
    __shared__ float2 of_units[TURNS];
    __shared__ Team<T, L, WORKERS> team;
    extern __shared__ uint4 kept[];
    float2* const tables = reinterpret_cast<float2*>(kept + slots * BATCH * WORKERS);
    const int thread = (int)threadIdx.x - 32;  // of the workers
    const int teams = gridDim.x / team_size, own_team = blockIdx.x / team_size, rank = blockIdx.x % team_size;
    const Geometry g = {vectors, share, slices, spatial, channels, row, batch};
    if (threadIdx.x == 0) team.begin(g, x, workspace, eps, team_size, rank);
    if (own_team >= min(teams, units)) return;

    if (thread < 0) {
        float2* const raw = tables + TURNS * channels;  // nobody else's
        for (int unit = own_team, turn = 0; unit < units; unit += teams, turn = after(turn)) {
            load_channels(g, unit, weight, bias, raw, threadIdx.x, 32);
            meet(ADDED + turn, ALL);
            const float2 of_unit = exchanged(team, unit, 0, entries[turn], true);
            if (threadIdx.x == 0) of_units[turn] = of_unit;
#pragma unroll 1
            for (int c = threadIdx.x; c < channels; c += 32)
                tables[turn * channels + c] = affine<T>(raw[c].x, raw[c].y, of_unit);
            arrive(KNOWN + turn, ALL);
        }
        return;
    }

    const Place<L, WORKERS> place(g, rank, thread);
    const int count = place.count, of_entry = place.of_entry();
    const int steps = (share + BATCH * WORKERS - 1) / (BATCH * WORKERS), taken = steps * BATCH;
    const int total = (units - own_team + teams - 1) / teams * steps;
    const unsigned first_slot = address_of(kept + thread), end = first_slot + slots * SLOT;
    unsigned here = first_slot, add_here = first_slot;
    int loaded = 0, added = 0, stored = 0, load_unit = own_team, store_unit = own_team, add_turn = 0, store_turn = 0;
    const uint4* from = x + L::start(g, own_team) + place.at;
    uint4* to = y;
    Statistics<T, L> statistics;
    Writer<T, L, WORKERS> writer;
    for (int t = 0; t < total + slots; ++t) {
        if (t >= slots) {
            if (stored == 0) {
                meet(KNOWN + store_turn, ALL);
                writer.begin(g, store_unit, weight, bias, &of_units[store_turn], tables + store_turn * channels, thread,
                             (int)place.at);
                to = y + L::start(g, store_unit) + place.at;
            }
            uint4 packed[BATCH];
#pragma unroll
            for (int b = 0; b < BATCH; ++b) packed[b] = load_shared(here + b * APART);
#pragma unroll
            for (int b = 0; b < BATCH; ++b) {
                if (stored + b < count) to[b * WORKERS] = writer(packed[b]);
                writer.forwards(g);
            }
            to += BATCH * WORKERS;
            stored += BATCH;
            if (stored == taken) stored = 0, store_unit += teams, store_turn = after(store_turn);
        }
        if (t < total) {
#pragma unroll
            for (int b = 0; b < BATCH; ++b)
                if (loaded + b < count) copy_async(here + b * APART, from + b * WORKERS);
            from += BATCH * WORKERS;
            loaded += BATCH;
            if (loaded == taken) {
                loaded = 0;
                load_unit += teams;
                from = x + L::start(g, load_unit) + place.at;
            }
        }
        commit();  // also where nothing was loaded: groups are counted in steps
        here += SLOT;
        if (here == end) here = first_slot;
        if (t >= AHEAD && t < total + AHEAD) {
            wait<AHEAD>();
            uint4 packed[BATCH];
#pragma unroll
            for (int b = 0; b < BATCH; ++b) packed[b] = load_shared(add_here + b * APART);
            if (added == 0) statistics.begin(packed[0]);
            if (added + BATCH <= place.whole) {
#pragma unroll
                for (int b = 0; b < BATCH; ++b) statistics.add(packed[b], true);
            } else {
#pragma unroll
                for (int b = 0; b < BATCH; ++b) statistics.add(packed[b], added + b < count);
            }
            add_here += SLOT;
            if (add_here == end) add_here = first_slot;
            added += BATCH;
            if (added == taken) {
                leave(statistics, of_entry, thread, entries[add_turn]);
                arrive(ADDED + add_turn, ALL);
                added = 0;
                add_turn = after(add_turn);
            }
        }
    }
}

// Units that do not fit into the ring: forwards for the statistics, backwards for the output. By then the last `slots`
// steps are still in shared memory and some before them in the L2, if what will not be read again leaves it first.
template <class T, class L, int THREADS, int BATCH, int AHEAD>
__global__ void __launch_bounds__(THREADS, 1)
twice(const uint4* __restrict__ x, const T* __restrict__ weight, const T* __restrict__ bias, uint4* __restrict__ y,
      Workspace* __restrict__ workspace, int units, int team_size, int slots, int vectors, int share, int slices,
      int spatial, int channels, int row, long long batch, float eps) {
    constexpr unsigned APART = 16 * THREADS, SLOT = BATCH * APART;
    __shared__ Entry entries[ENTRIES<L, THREADS>];
    __shared__ float2 of_groups[L::GROUPS];
    __shared__ Team<T, L, THREADS> team;
    extern __shared__ uint4 kept[];
    float2* const table = reinterpret_cast<float2*>(kept + slots * BATCH * THREADS);
    const int thread = threadIdx.x, warp = thread / 32;
    const int teams = gridDim.x / team_size, rank = blockIdx.x % team_size;
    const Geometry g = {vectors, share, slices, spatial, channels, row, batch};
    if (thread == 0) team.begin(g, x, workspace, eps, team_size, rank);
    if (blockIdx.x / team_size >= teams) return;
    const Place<L, THREADS> place(g, rank, thread);
    const int count = place.count, of_entry = place.of_entry();
    const int steps = (share + BATCH * THREADS - 1) / (BATCH * THREADS);
    const long long step = BATCH * place.step;
    const unsigned first_slot = address_of(kept + thread), end = first_slot + slots * SLOT;
    const unsigned long long leaves = first_to_leave();

    for (int unit = blockIdx.x / team_size; unit < units; unit += teams) {
        const uint4* from = x + L::start(g, unit) + place.at;
        Statistics<T, L> statistics;
        unsigned here = first_slot, add_here = first_slot;
        for (int t = 0; t < steps + AHEAD; ++t) {
#pragma unroll
            for (int b = 0; b < BATCH; ++b)
                if (t * BATCH + b < count) copy_async(here + b * APART, from + b * place.step);
            commit();
            from += step;
            here += SLOT;
            if (here == end) here = first_slot;
            if (t < AHEAD) continue;
            wait<AHEAD>();
            uint4 packed[BATCH];
#pragma unroll
            for (int b = 0; b < BATCH; ++b) packed[b] = load_shared(add_here + b * APART);
            if (t == AHEAD) statistics.begin(packed[0]);
            const int added = (t - AHEAD) * BATCH;
            if (added + BATCH <= place.whole) {
#pragma unroll
                for (int b = 0; b < BATCH; ++b) statistics.add(packed[b], true);
            } else {
#pragma unroll
                for (int b = 0; b < BATCH; ++b) statistics.add(packed[b], added + b < count);
            }
            add_here += SLOT;
            if (add_here == end) add_here = first_slot;
        }
        leave(statistics, of_entry, thread, entries);
        __syncthreads();
        if (!L::LAST) load_channels(g, unit, weight, bias, table, thread, THREADS);
#pragma unroll 1
        for (int group = warp; group < L::GROUPS; group += THREADS / 32) {
            const float2 of_group = exchanged(team, unit, group, entries, warp == 0);
            if (thread % 32 == 0) of_groups[group] = of_group;
        }
        __syncthreads();
        if (!L::LAST) {
#pragma unroll 1
            for (int c = thread; c < channels; c += THREADS) table[c] = affine<T>(table[c].x, table[c].y, of_groups[0]);
            __syncthreads();
        }

        Writer<T, L, THREADS> writer;
        writer.begin(g, unit, weight, bias, of_groups, table, thread, (int)place.at + (steps * BATCH - 1) * THREADS);
        here = first_slot + (steps - 1) % slots * SLOT;
        long long at = L::start(g, unit) + place.at + (steps - 1) * step;
        for (int j = steps - 1; j >= 0; --j) {
            wait<AHEAD>();  // what is due was loaded `slots` steps ago, and slots > AHEAD
            uint4 packed[BATCH];
#pragma unroll
            for (int b = 0; b < BATCH; ++b) packed[b] = load_shared(here + b * APART);
#pragma unroll
            for (int b = BATCH - 1; b >= 0; --b) {
                if (j * BATCH + b < count) store(y + at + b * place.step, writer(packed[b]), leaves);
                writer.backwards(g);
            }
            if (j >= slots) {
#pragma unroll
                for (int b = 0; b < BATCH; ++b)
                    if ((j - slots) * BATCH + b < count)
                        copy_async(here + b * APART, x + at - slots * step + b * place.step, leaves);
            }
            commit();
            at -= step;
            here = here == first_slot ? end - SLOT : here - SLOT;
        }
    }
}
