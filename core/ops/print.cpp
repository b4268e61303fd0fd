#include <charconv>
#include <cmath>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/autograd/autograd.h"
#include "core/ops.h"
#include "core/tensor.h"

namespace axle {
namespace {

constexpr std::int64_t kWhole = 1000;  // the largest number of elements that are always printed
constexpr std::int64_t kEdge = 3;

std::string number(std::int64_t value, DType dtype) {
    if (dtype == boolean) return value != 0 ? "true" : "false";
    return std::to_string(value);
}

std::string number(double value, DType) {
    if (std::isnan(value)) return "nan";
    char text[32];
    const auto result =
        std::to_chars(text, text + sizeof text, value, std::chars_format::general, 6);
    return {text, result.ptr};
}

// Prints the part of t that consists of the dimensions `dim`, `dim` + 1 and so on. `values` are all
// elements of t in row-major order; the part starts at `offset`.
template <class T>
void print(std::ostream& out, std::span<const T> values, const Tensor& t, int dim,
           std::int64_t offset, bool shorten) {
    if (dim == t.dim()) {
        out << number(values[static_cast<std::size_t>(offset)], t.dtype());
        return;
    }
    std::int64_t inner = 1;
    for (int d = dim + 1; d < t.dim(); ++d) inner *= t.shape()[d];
    const std::int64_t n = t.shape()[dim];
    out << '[';
    for (std::int64_t i = 0; i < n; ++i) {
        if (i > 0) out << ", ";
        if (shorten && n > 2 * kEdge && i == kEdge) {
            out << "..., ";
            i = n - kEdge;
        }
        print(out, values, t, dim + 1, offset + i * inner, shorten);
    }
    out << ']';
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) {
    if (!tensor.defined()) return out << "tensor(undefined)";
    out << "tensor(";
    const bool shorten = tensor.numel() > kWhole;
    if (tensor.device().is_meta()) {
        out << tensor.shape();
    } else if (is_integral(tensor.dtype())) {
        const NoGrad no_grad;
        const Tensor whole = contiguous(tensor.to(Device::cpu()).to(i64));
        const auto count = static_cast<std::size_t>(whole.numel());
        print(out, std::span(std::as_const(whole).data<std::int64_t>(), count), tensor, 0, 0,
              shorten);
    } else {
        const std::vector<double> values = tensor.to_vector();
        print(out, std::span(values), tensor, 0, 0, shorten);
    }
    out << ", " << tensor.dtype();
    if (!tensor.device().is_cpu()) out << ", " << tensor.device();
    return out << ')';
}

}  // namespace axle
