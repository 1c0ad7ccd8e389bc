// Tokens of one or two tensors [B, S, H, D], one after the other and densely: one thread, 16 bytes of the output.
//
// Vectors are counted through all tokens of a batch (blockIdx.y), so that blocks are full whatever a token has. What a
// model fixes is a template argument: the LANES (vectors) of a token, and the strides, in vectors. A thread then has two
// multiplications in front of its load.

// Where a vector lies within its run. HEAD is a head's vectors; 0 if heads lie densely, and need not be told apart.
template <unsigned HEAD, unsigned TOKEN_STRIDE, unsigned HEAD_STRIDE>
__device__ __forceinline__ unsigned long long place(unsigned token, unsigned lane) {
    const unsigned long long row = (unsigned long long)token * TOKEN_STRIDE;
    if constexpr (HEAD == 0) return row + lane;
    constexpr unsigned VECTORS = HEAD == 0 ? 1 : HEAD;
    return row + (unsigned long long)(lane / VECTORS) * HEAD_STRIDE + lane % VECTORS;
}

// `all` are the vectors of a batch in the output.
template <unsigned LANES, unsigned HEAD, unsigned TOKEN_A, unsigned HEAD_A, unsigned TOKEN_B, unsigned HEAD_B>
__global__ void __launch_bounds__(1024, 2)
    one_after_the_other(const uint4* __restrict__ first, const uint4* __restrict__ second, uint4* __restrict__ out,
                        unsigned all, unsigned first_tokens, long long first_batch, long long second_batch) {
    const unsigned vector = blockIdx.x * blockDim.x + threadIdx.x;
    if (vector >= all) return;
    const unsigned token = vector / LANES, lane = vector - token * LANES;
    const uint4* const from =
        token < first_tokens
            ? first + blockIdx.y * first_batch + place<HEAD, TOKEN_A, HEAD_A>(token, lane)
            : second + blockIdx.y * second_batch + place<HEAD, TOKEN_B, HEAD_B>(token - first_tokens, lane);
    out[(unsigned long long)blockIdx.y * all + vector] = __ldg(from);
}
