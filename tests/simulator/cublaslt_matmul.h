// The matrix product of the simulated cuBLASLt: its descriptors, what it supports, and how it is
// computed. Private to tests/simulator.
#pragma once

#include <cstdint>

#include <cublasLt.h>

namespace axle::kernels::simulator::cublaslt {

struct Layout {
    std::uint32_t magic, type;
    std::int32_t order, batches;
    std::uint64_t rows, columns;
    std::int64_t ld, stride;
};
static_assert(sizeof(Layout) <= sizeof(cublasLtMatrixLayoutOpaque_t));
inline constexpr std::uint32_t kLayout = 0x4c41594fu, kOperation = 0x4f504552u,
                               kPreference = 0x50524546u;

struct Operation {
    std::uint32_t magic;
    std::int32_t compute, scale, pointer_mode, transpose_a, transpose_b;
    std::uint32_t epilogue;
    void* bias;
    std::int64_t bias_stride;
    void* aux;
    std::int64_t aux_ld, aux_stride;
    const float *a_scale, *b_scale;
    std::int8_t fast_accumulation;
};
static_assert(sizeof(Operation) <= sizeof(cublasLtMatmulDescOpaque_t));

struct Preference {
    std::uint32_t magic, schemes;
    std::uint64_t workspace;
    std::uint32_t alignment[4];
};
static_assert(sizeof(Preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t));

template <class State, class Opaque>
State* state(Opaque* opaque, std::uint32_t magic) {
    auto* const result = reinterpret_cast<State*>(opaque);
    return result != nullptr && result->magic == magic ? result : nullptr;
}
template <class State, class Opaque>
const State* state(const Opaque* opaque, std::uint32_t magic) {
    return state<State>(const_cast<Opaque*>(opaque), magic);
}

struct Shapes {
    const Operation* operation;
    const Layout *a, *b, *c, *d;
};

inline bool is_aligned(const void* p, std::size_t bytes) {
    return reinterpret_cast<std::uintptr_t>(p) % bytes == 0;
}

// Returns CUBLAS_STATUS_INVALID_VALUE for an invalid configuration. Returns
// CUBLAS_STATUS_NOT_SUPPORTED if NVIDIA's library has no kernel for the configuration, or if
// AXLE_CUBLASLT_REFUSE contains its epilogue.
cublasStatus_t check(const Shapes& s);

// The arguments of a queued matmul, by value.
struct Job {
    Operation operation;
    Layout a_layout, b_layout, c_layout, d_layout;
    const char *a, *b, *c;
    char* d;
    double alpha, beta;

    void operator()() const {
        for (std::int64_t batch = 0; batch < d_layout.batches; ++batch) multiply(batch);
    }

  private:
    void multiply(std::int64_t batch) const;
};

}  // namespace axle::kernels::simulator::cublaslt
