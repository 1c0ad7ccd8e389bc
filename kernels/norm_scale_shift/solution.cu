// y = norm(v) * (1 + scale) + shift by rows, with v = x or v = residual + gate * x.
//
// A block for every row: its threads hold it in registers between statistics and output, so memory is read once and
// written once. COLS is a template argument: addresses that the compiler folds, and a mask only for the last chunk of a
// thread, only where the threads do not share the row evenly.

#include "chunks.cuh"

// Which values of an operand a row takes: none; a single one for everything; one vector for all rows; a vector for each
// row, densely; a vector for each group of tokens of each batch.
enum Place { Absent, One, Shared, Token, Frame };

template <typename T, Place PLACE>
struct Given {
  using type = T;
  static constexpr Place place = PLACE;
};

// Whole warps share a row: CHUNKS of WIDTH elements to a thread, but for the last chunk, which some may be without.
template <int COLS, int WIDTH_, int CHUNKS_>
struct Share {
  static constexpr int WIDTH = WIDTH_, CHUNKS = CHUNKS_, VECTORS = COLS / WIDTH;
  static constexpr int THREADS = (VECTORS + 32 * CHUNKS - 1) / (32 * CHUNKS) * 32, STEP = THREADS * WIDTH;
  static constexpr int LAST = VECTORS - (CHUNKS - 1) * THREADS;  // threads that have a last chunk
  static constexpr bool EVEN = LAST == THREADS;
  static_assert(VECTORS * WIDTH == COLS && LAST > 0 && THREADS <= 1024, "only the last chunk may be missing");

  static __device__ __forceinline__ bool inside(int c) { return EVEN || c < CHUNKS - 1 || int(threadIdx.x) < LAST; }
  // The elements of a warp, which has one at least.
  static __device__ __forceinline__ float count(int warp) {
    return WIDTH * (32 * (CHUNKS - 1) + min(max(LAST - 32 * warp, 0), 32));
  }
};

// ---- operands: gate, weight, bias, scale, shift ----

// One block asks, and the first rows of all find the vector in the L2 when they get there. Only 16 bytes at a time can
// be asked for: what lies before the first and after the last of them comes when it is read.
template <bool ALIGNED>
__device__ __forceinline__ void bring_to_l2(const void* from, int bytes) {
#if __CUDA_ARCH__ >= 900
  if constexpr (!ALIGNED) {
    const int before = -reinterpret_cast<unsigned long long>(from) & 15;
    from = static_cast<const char*>(from) + before;
    bytes = (bytes - before) & ~15;  // a negative number stays one
    if (bytes <= 0) return;
  }
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
#endif
}

// How a Frame operand lies: the vector of a token is at batch * .batch + token / .tokens * .frame.
struct Frames {
  long long batch, frame;
  int tokens;
};

// The part of an operand that a thread needs. What all rows share is read when it is used, out of the L1: registers
// hold more rows in flight instead, and asking for it earlier saved nothing even where there are few rows.
template <class GIVEN, int COLS, class SHARE>
struct Operand {
  using T = typename GIVEN::type;
  static constexpr Place PLACE = GIVEN::place;
  static constexpr int WIDTH = SHARE::WIDTH;
  const T* start;  // at the thread's first column
  float only;

  __device__ __forceinline__ Operand(const void* base, int tokens = 1, Frames frames = {}) {
    start = static_cast<const T*>(base) + (PLACE == One ? 0 : threadIdx.x * WIDTH);
    if constexpr (PLACE == One) only = float(__ldg(start));
    if constexpr (PLACE == Shared) {
      if (blockIdx.x == 0 && threadIdx.x == 0) bring_to_l2<WIDTH * sizeof(T) % 16 == 0>(base, COLS * sizeof(T));
    }
    if constexpr (PLACE == Token) start += (long long)blockIdx.x * COLS;
    if constexpr (PLACE == Frame) {
      const int batch = blockIdx.x / tokens, token = blockIdx.x - batch * tokens;
      start += batch * frames.batch + token / frames.tokens * frames.frame;
    }
  }

  __device__ __forceinline__ void values(int c, float (&to)[WIDTH]) {
    if constexpr (PLACE == One) {
#pragma unroll
      for (int i = 0; i < WIDTH; i++) to[i] = only;
    } else if constexpr (PLACE != Absent) {
      widen(load<T, WIDTH>(start + c * SHARE::STEP), to);
    }
  }
};

// ---- the norm itself ----

struct Statistics {
  float mean, inverse;
};

// Mean and 1 / sqrt(variance + eps), or 0 and that of the mean square. Centred at every level, so that a row far from
// zero loses nothing: a thread sums around its first value, lanes merge means and squared deviations, warps sum around
// the first warp's mean. Where lanes have unequal counts, all of a warp sum around one value and merge the sums: the
// mean of what its lanes begin with, because a single value may be the one that is far from all others.
template <bool LAYER, int COLS, class SHARE, typename T, int CHUNKS, int WIDTH>
__device__ __forceinline__ Statistics statistics(Chunk<T, WIDTH> (&held)[CHUNKS], float eps) {
  constexpr bool EVEN = SHARE::EVEN;
  constexpr int EACH = CHUNKS * WIDTH, WARPS = SHARE::THREADS / 32;
  __shared__ float2 partial[32];
  float v[WIDTH], mean = 0.f, squares = 0.f;
  float first = LAYER ? wide(held[0].at[0]) : 0.f;
  if constexpr (LAYER && !EVEN) {
    const float of_lane_0 = __shfl_sync(~0u, first, 0);  // which has one
    first = (SHARE::inside(0) ? first : of_lane_0) * (1.f / 32);
#pragma unroll
    for (int step = 1; step < 32; step *= 2) first += __shfl_xor_sync(~0u, first, step);
  }
#pragma unroll
  for (int c = 0; c < CHUNKS; c++) {
    widen(held[c], v);
    if (!LAYER || SHARE::inside(c)) {
#pragma unroll
      for (int i = 0; i < WIDTH; i++) {
        const float apart = v[i] - first;
        if constexpr (LAYER) mean += apart;
        squares = fmaf(apart, apart, squares);
      }
    }
    stay_packed(held[c]);
  }
  if constexpr (LAYER && EVEN) {
    squares -= mean * mean * (1.f / EACH);
    mean = first + mean * (1.f / EACH);
  }
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    squares += __shfl_xor_sync(~0u, squares, step);
    if constexpr (LAYER) {
      const float other = __shfl_xor_sync(~0u, mean, step), apart = other - mean;
      if constexpr (EVEN) squares += apart * apart * (EACH * step * 0.5f);
      mean = EVEN ? 0.5f * (mean + other) : mean + other;
    }
  }
  if constexpr (LAYER && !EVEN) {
    const float moved = __fdividef(mean, SHARE::count(threadIdx.x / 32));
    squares -= mean * moved;
    mean = first + moved;
  }
  if constexpr (WARPS > 1) {
    constexpr int SPAN = WARPS > 16 ? 32 : WARPS > 8 ? 16 : WARPS > 4 ? 8 : WARPS > 2 ? 4 : 2;
    const int lane = threadIdx.x % 32, warp = lane % SPAN;
    if (lane == 0) partial[threadIdx.x / 32] = make_float2(mean, squares);
    __syncthreads();
    const float2 mine = warp < WARPS ? partial[warp] : make_float2(0.f, 0.f);
    const float around = LAYER ? partial[0].x : 0.f;
    float apart = LAYER && warp < WARPS ? mine.x - around : 0.f;
    const float share = EVEN ? 1.f : SHARE::count(warp) * (1.f / (EACH * 32.f));  // of a warp without gaps
    squares = mine.y + apart * apart * share * (EACH * 32.f);
    apart *= share;
#pragma unroll
    for (int step = SPAN / 2; step > 0; step /= 2) {
      squares += __shfl_xor_sync(~0u, squares, step);
      if constexpr (LAYER) apart += __shfl_xor_sync(~0u, apart, step);
    }
    if constexpr (LAYER) {
      mean = around + apart * (EACH * 32.f / COLS);
      squares -= apart * apart * (EACH * 32.f * (EACH * 32.f / COLS));
    }
  }
  squares = squares < 0.f ? 0.f : squares;  // by rounding; a NaN stays one
  return {mean, rsqrtf(squares * (1.f / COLS) + eps)};
}

template <bool FIRST, typename A, typename B>
struct Either {
  using type = A;
};
template <typename A, typename B>
struct Either<false, A, B> {
  using type = B;
};

// What a kernel is made for.
template <typename X_, bool RESIDUAL, bool LAYER, int COLS, int WIDTH, int CHUNKS, class GATE, class WEIGHT, class BIAS,
          class SCALE, class SHIFT>
struct Norm {
  using X = X_;
  using Mine = Share<COLS, WIDTH, CHUNKS>;
  static constexpr int THREADS = Mine::THREADS, STEP = Mine::STEP;
  using Held = Chunk<typename Either<RESIDUAL, float, X>::type, WIDTH>;  // the unrounded sum, or x as it came
  template <class GIVEN>
  using Part = Operand<GIVEN, COLS, Mine>;

  Part<GATE> gate;
  Part<WEIGHT> weight;
  Part<BIAS> bias;
  Part<SCALE> scale;
  Part<SHIFT> shift;

  __device__ __forceinline__ void row(const X* x, const X* residual, X* y, X* summed, float eps) {
    const long long at = (long long)blockIdx.x * COLS + threadIdx.x * WIDTH;
    Held held[CHUNKS] = {};
    if constexpr (RESIDUAL) {
      sum(x + at, residual + at, held);
#pragma unroll
      for (int c = 0; c < CHUNKS; c++)
        if (Mine::inside(c)) store(summed + at + c * STEP, held[c].at);
    } else {
#pragma unroll
      for (int c = 0; c < CHUNKS; c++)
        if (Mine::inside(c)) held[c] = load<X, WIDTH>(x + at + c * STEP);
    }
    const Statistics of = statistics<LAYER, COLS, Mine>(held, eps);
#pragma unroll
    for (int c = 0; c < CHUNKS; c++)
      if (Mine::inside(c)) {
        float v[WIDTH];
        widen(held[c], v);
        modulate(c, of, v);
        store(y + at + c * STEP, v);
      }
  }

  __device__ __forceinline__ void sum(const X* x, const X* residual, Held (&held)[CHUNKS]) {
    Chunk<X, WIDTH> branches[CHUNKS], streams[CHUNKS];
#pragma unroll
    for (int c = 0; c < CHUNKS; c++)
      if (Mine::inside(c)) {
        branches[c] = load<X, WIDTH>(x + c * STEP);
        streams[c] = load<X, WIDTH>(residual + c * STEP);
      }
#pragma unroll
    for (int c = 0; c < CHUNKS; c++)
      if (Mine::inside(c)) {
        float branch[WIDTH], stream[WIDTH], by[WIDTH];
        widen(branches[c], branch), widen(streams[c], stream), gate.values(c, by);
#pragma unroll
        for (int i = 0; i < WIDTH; i++)
          held[c].at[i] = GATE::place == Absent ? stream[i] + branch[i] : fmaf(by[i], branch[i], stream[i]);
      }
  }

  __device__ __forceinline__ void modulate(int c, Statistics of, float (&v)[WIDTH]) {
    constexpr bool AFFINE = WEIGHT::place != Absent || BIAS::place != Absent;
    float by[WIDTH], add[WIDTH];
    if constexpr (AFFINE) {
      weight.values(c, by), bias.values(c, add);
#pragma unroll
      for (int i = 0; i < WIDTH; i++) {
        v[i] = (v[i] - of.mean) * of.inverse;
        if constexpr (WEIGHT::place != Absent) v[i] *= by[i];
        if constexpr (BIAS::place != Absent) v[i] += add[i];
      }
    }
    scale.values(c, by), shift.values(c, add);
#pragma unroll
    for (int i = 0; i < WIDTH; i++) {
      const float gain = AFFINE ? 1.f + by[i] : fmaf(by[i], of.inverse, of.inverse);
      v[i] = fmaf(AFFINE ? v[i] : v[i] - of.mean, gain, add[i]);
    }
  }
};

// Three entries, because a launch with fewer arguments is a shorter one. BLOCKS per multiprocessor are what registers
// are cut for.

template <class N, int BLOCKS>
__global__ void __launch_bounds__(N::THREADS, BLOCKS)
    plain_row(const typename N::X* x, const void* scale, const void* shift, typename N::X* y, float eps) {
  N{nullptr, nullptr, nullptr, scale, shift}.row(x, nullptr, y, nullptr, eps);
}

template <class N, int BLOCKS>
__global__ void __launch_bounds__(N::THREADS, BLOCKS)
    residual_row(const typename N::X* x, const typename N::X* residual, const void* gate, const void* scale,
                 const void* shift, typename N::X* y, typename N::X* summed, float eps) {
  N{gate, nullptr, nullptr, scale, shift}.row(x, residual, y, summed, eps);
}

template <class N, int BLOCKS>
__global__ void __launch_bounds__(N::THREADS, BLOCKS)
    any_row(const typename N::X* x, const typename N::X* residual, const void* gate, const void* weight,
            const void* bias, const void* scale, const void* shift, typename N::X* y, typename N::X* summed, float eps,
            int tokens, long long gate_batch, long long gate_frame, int gate_tokens, long long scale_batch,
            long long scale_frame, int scale_tokens, long long shift_batch, long long shift_frame, int shift_tokens) {
  N norm{{gate, tokens, {gate_batch, gate_frame, gate_tokens}},
         {weight},
         {bias},
         {scale, tokens, {scale_batch, scale_frame, scale_tokens}},
         {shift, tokens, {shift_batch, shift_frame, shift_tokens}}};
  norm.row(x, residual, y, summed, eps);
}
