// Frames behind cached frames, with zeros around them: one thread, 16 bytes of the output, which is one flat run.
//
// Padded rows begin wherever they do, but at whole WORDs of 4 or 2 bytes, and words are what is counted here. A vector
// lies in one row of the output or in two. Its words come one by one, mostly from the L1: where they begin in a row of
// the input differs from row to row, so that picking them out of 16-byte loads takes more time than loading does. Left
// padding that is no whole word moves values within words: an output word is then the end of one and the beginning of
// the next, by as much in every row. Shapes are template arguments, so that no division is one.

__device__ __forceinline__ uint4 packed(const unsigned (&words)[4]) {
    return make_uint4(words[0], words[1], words[2], words[3]);
}
__device__ __forceinline__ uint4 packed(const unsigned short (&words)[8]) {
    const auto pair = [&](int i) { return words[i] | unsigned(words[i + 1]) << 16; };
    return make_uint4(pair(0), pair(2), pair(4), pair(6));
}

// IN are the words of an input row, LEFT and RIGHT the bytes of padding on either side. Of a channel's DEPTH frames
// FRONT are zeros, CACHED come from `cache` and FRESH from `x`; STEPs are words between channels.
template <class WORD, int IN, int LEFT, int RIGHT, int ROWS, int TOP, int OUT_ROWS, int FRONT, int CACHED, int FRESH,
          int DEPTH, int CACHE_STEP, int STEP>
__global__ void __launch_bounds__(1024, 2)
    padded_frames(const WORD* __restrict__ cache, const WORD* __restrict__ x, uint4* __restrict__ out, unsigned words) {
    constexpr int SIZE = sizeof(WORD), WIDTH = 16 / SIZE, BETWEEN = (LEFT + RIGHT) / SIZE, OUT = IN + BETWEEN;
    constexpr int LEFT_WORDS = (LEFT + SIZE - 1) / SIZE, SKEW = (LEFT_WORDS * SIZE - LEFT) * 8;
    static_assert(SKEW == 0 || SIZE == 4, "values are moved within words of 4 bytes only");
    const unsigned at = WIDTH * (blockIdx.x * blockDim.x + threadIdx.x);
    if (at >= words) return;
    const unsigned row = at / OUT, plane = row / OUT_ROWS, channel = plane / DEPTH;
    const int column = at - row * OUT;
    const unsigned down = row - plane * OUT_ROWS - TOP, frame = plane - channel * DEPTH - FRONT;

    // The row that the vector begins in, and the next. Behind the last row of a frame there is none to take from: the
    // vector ends with the frame, or goes on in the padding above another.
    const bool alive = frame < CACHED + FRESH;
    const bool first = alive && down < ROWS, second = alive && down + 1 < ROWS && column + WIDTH > OUT;
    WORD taken[WIDTH + 1] = {};
    if (first || second) {
        const bool cached = CACHED > 0 && frame < CACHED;
        const int before = cached ? channel * CACHE_STEP + frame * (ROWS * IN)
                                  : channel * STEP + (frame - CACHED) * (ROWS * IN);
        const WORD* const from = cached ? cache : x;
        const int start = before + (int)down * IN + column - LEFT_WORDS;
        const int end = OUT - RIGHT / SIZE - column;
        const int first_end = first ? end : 0, second_begin = second ? end + BETWEEN : WIDTH + 1;
#pragma unroll
        for (int i = 0; i < (SKEW ? WIDTH + 1 : WIDTH); ++i) {  // one load each, so that none waits for another
            const bool in_second = i >= second_begin && (IN >= WIDTH || i - second_begin < IN);
            const bool in_first = i < first_end && (i >= LEFT_WORDS || column + i >= LEFT_WORDS);
            if (in_first | in_second) taken[i] = __ldg(from + (start + i - (in_second ? BETWEEN : 0)));
        }
    }
    WORD result[WIDTH];
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) {
        if constexpr (SKEW != 0) result[i] = __funnelshift_r(taken[i], taken[i + 1], SKEW);
        else result[i] = taken[i];
    }
    if (at + WIDTH <= words) {
        out[at / WIDTH] = packed(result);
    } else {
#pragma unroll
        for (int i = 0; i < WIDTH - 1; ++i)
            if (at + i < words) reinterpret_cast<WORD*>(out)[at + i] = result[i];
    }
}
