// Conversion of rows of quantized weights to floating dtypes, an element per thread and step.
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/start.cuh"
#include "kernels/cuda/visit.cuh"
#include "kernels/rules/quantized_weight_rules.h"

namespace axle::kernels {
namespace {

constexpr int kThreads = 256;

// The tables of values in constant memory.
struct Tables {
    float nf4[16];
    float dynamic[127];
};
__constant__ const Tables tables = [] {
    Tables result = {};
    for (int i = 0; i < 16; ++i) result.nf4[i] = kNf4[i];
    for (int i = 0; i < 127; ++i) result.dynamic[i] = kDynamicMagnitudes[i];
    return result;
}();

// Returns element i of the weight in row-major order.
__device__ inline float element(const QuantizedMatrix& weight, std::int64_t i) {
    if (weight.format == WeightFormat::int8)
        return int8_value(static_cast<const std::int8_t*>(weight.values)[i],
                          weight.absmax[i / weight.columns]);
    const std::uint8_t byte = static_cast<const std::uint8_t*>(weight.values)[i / 2];
    const float value = tables.nf4[i % 2 == 0 ? byte >> 4 : byte & 15];
    return value * block_absmax(weight, tables.dynamic, i / weight.block);
}

template <class To>
__global__ void dequantize_kernel(QuantizedMatrix weight, std::int64_t begin, std::int64_t n,
                                  To* y) {
    for (std::int64_t i = thread_in_grid(); i < n; i += threads_in_grid())
        y[i] = To(element(weight, begin + i));
}

}  // namespace

void dequantize(Cuda& on, const QuantizedMatrix& weight, std::int64_t first, View y) {
    const std::int64_t n = y.numel();
    if (n == 0) return;
    visit_float(y.dtype, [&]<class To>() {
        start(on, {grid_for(on, n, kThreads), kThreads}, &dequantize_kernel<To>, weight,
              first * weight.columns, n, y.as<To>());
    });
}

}  // namespace axle::kernels
