// Integer products. Sums are computed modulo a power of two, so every order of addition gives the
// same bits. The loop is simple, because integer products are not time-critical.
#include <type_traits>

#include "kernels/cpu/matmul/gemm.h"

namespace axle::kernels {
namespace {

// The unsigned type of the sums. It has at least the size of int, because smaller types would be
// promoted to signed int.
template <class T>
using Wrapping = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;

template <class T>
void multiply_row(const T* a, std::int64_t a_stride, const T* b, const ConstView& b_view,
                  std::int64_t depth, T* c, std::int64_t c_stride, bool accumulate) {
    using Word = Wrapping<T>;
    const std::int64_t columns = b_view.back(1);
    if (!accumulate)
        for (std::int64_t j = 0; j < columns; ++j) c[j * c_stride] = 0;
    for (std::int64_t p = 0; p < depth; ++p) {
        const auto element = static_cast<Word>(a[p * a_stride]);
        const T* row = b + p * b_view.back_stride(2);
        for (std::int64_t j = 0; j < columns; ++j) {
            T& sum = c[j * c_stride];
            sum = static_cast<T>(static_cast<Word>(sum) +
                                 element * static_cast<Word>(row[j * b_view.back_stride(1)]));
        }
    }
}

template <class T>
void run(const ConstView& a, const ConstView& b, const View& c, bool accumulate) {
    const std::int64_t rows = c.back(2), depth = a.back(1);
    std::int64_t batches = 1;
    for (int d = 0; d + 2 < c.ndim; ++d) batches *= c.shape[d];
    const std::int64_t row_work = std::max<std::int64_t>(1, depth * c.back(1));
    parallel_ranges(batches * rows, std::max<std::int64_t>(1, 65536 / row_work),
                    [&](std::int64_t begin, std::int64_t end) {
                        for (std::int64_t i = begin; i < end; ++i) {
                            const std::int64_t batch = i / rows, row = i % rows;
                            multiply_row(
                                a.as<T>() + matrix_offset(a, c, batch) + row * a.back_stride(2),
                                a.back_stride(1), b.as<T>() + matrix_offset(b, c, batch), b, depth,
                                c.as<T>() + matrix_offset(c, c, batch) + row * c.back_stride(2),
                                c.back_stride(1), accumulate);
                        }
                    });
}

}  // namespace

void integer_matmul(const ConstView& a, const ConstView& b, const View& c, bool accumulate) {
    if (c.dtype == DType::u8) return run<std::uint8_t>(a, b, c, accumulate);
    visit_index(c.dtype, [&]<class T>() { run<T>(a, b, c, accumulate); });
}

}  // namespace axle::kernels
