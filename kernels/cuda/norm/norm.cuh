// Private to kernels: helpers shared by all norms and their backward passes.
#pragma once

#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/visit.cuh"

namespace axle::kernels {

// An optional vector operand of a norm (weight, bias or running statistics), with any stride. Its
// dtype is f64 if x is f64, and another floating dtype otherwise.
struct NormVector {
    const void* data;
    DType dtype;
    std::int64_t stride;
    bool packs;  // whether packs of 16 bytes can be loaded

    explicit NormVector(const ConstView& v)
        : data(v.data),
          dtype(v.dtype),
          stride(v.data == nullptr ? 0 : v.stride[0]),
          packs(stride == 1 && reinterpret_cast<std::uintptr_t>(v.data) % 16 == 0 &&
                v.shape[0] % 8 == 0) {}

    // Loads elements [i, i + kN) of the vector, which has n elements; i must be a multiple of kN.
    // Sets elements after the end, or all elements if the vector has no data, to `otherwise`.
    template <class C, int kN>
    __device__ void load(std::int64_t i, std::int64_t n, C otherwise, C (&v)[kN]) const {
        if (data == nullptr) {
#pragma unroll
            for (int j = 0; j < kN; ++j) v[j] = otherwise;
        } else if (packs && i < n) {
            if (sizeof(C) == 8)
                read<double>(i, v);
            else if (dtype == DType::f32)
                read<float>(i, v);
            else if (dtype == DType::bf16)
                read<BFloat16>(i, v);
            else
                read<Half>(i, v);
        } else {
#pragma unroll
            for (int j = 0; j < kN; ++j)
                v[j] = i + j < n ? load_as<C>(data, dtype, (i + j) * stride) : otherwise;
        }
    }

  private:
    template <class T, class C, int kN>
    __device__ void read(std::int64_t i, C (&v)[kN]) const {
        constexpr int kPart = kN < kPack<T> ? kN : kPack<T>;
#pragma unroll
        for (int j = 0; j < kN; j += kPart) {
            const auto pack = load_pack<T, kPart>(static_cast<const T*>(data) + i + j);
#pragma unroll
            for (int k = 0; k < kPart; ++k) v[j + k] = static_cast<C>(pack.at[k]);
        }
    }
};

// Returns the dtype in which rows are read and written, which is the common dtype of all operands,
// or f32 if their dtypes differ.
inline DType norm_dtype(std::initializer_list<ConstView> views) {
    DType common = views.begin()->dtype;
    for (const ConstView& v : views)
        if (v.data != nullptr && v.dtype != common) return DType::f32;
    return common;
}

}  // namespace axle::kernels
