// The methods of Tensor that call free functions of core/ops.h, usually the function of the same
// name.
#include "core/autograd/autograd.h"
#include "core/check.h"
#include "core/ops.h"

namespace axle {

Tensor Tensor::to(DType dtype) const { return axle::to(*this, dtype); }
Tensor Tensor::to(Device device, bool non_blocking) const {
    return axle::to(*this, device, non_blocking);
}
Tensor Tensor::contiguous() const { return axle::contiguous(*this); }
Tensor Tensor::clone() const { return axle::clone(*this); }
Tensor Tensor::view(const Shape& shape) const { return axle::view(*this, shape); }
Tensor Tensor::reshape(const Shape& shape) const { return axle::reshape(*this, shape); }
Tensor Tensor::flatten(std::int64_t from, std::int64_t to) const {
    return axle::flatten(*this, from, to);
}
Tensor Tensor::transpose(std::int64_t a, std::int64_t b) const {
    return axle::transpose(*this, a, b);
}
Tensor Tensor::t() const { return axle::t(*this); }
Tensor Tensor::permute(const Dims& order) const { return axle::permute(*this, order); }
Tensor Tensor::expand(const Shape& shape) const { return axle::expand(*this, shape); }
Tensor Tensor::squeeze() const { return axle::squeeze(*this); }
Tensor Tensor::squeeze(std::int64_t dim) const { return axle::squeeze(*this, dim); }
Tensor Tensor::unsqueeze(std::int64_t dim) const { return axle::unsqueeze(*this, dim); }
Tensor Tensor::narrow(std::int64_t dim, std::int64_t start, std::int64_t length) const {
    return axle::narrow(*this, dim, start, length);
}
Tensor Tensor::slice(std::int64_t dim, std::int64_t start, std::int64_t end,
                     std::int64_t step) const {
    return axle::slice(*this, dim, start, end, step);
}
Tensor Tensor::select(std::int64_t dim, std::int64_t index) const {
    return axle::select(*this, dim, index);
}
std::vector<Tensor> Tensor::split(std::int64_t size, std::int64_t dim) const {
    return axle::split(*this, size, dim);
}
std::vector<Tensor> Tensor::split(const Dims& sizes, std::int64_t dim) const {
    return axle::split(*this, sizes, dim);
}
std::vector<Tensor> Tensor::chunk(std::int64_t chunks, std::int64_t dim) const {
    return axle::chunk(*this, chunks, dim);
}
Tensor Tensor::index(const std::vector<TensorIndex>& indices) const {
    return axle::index(*this, indices);
}
Tensor Tensor::index_select(std::int64_t dim, const Tensor& index) const {
    return axle::index_select(*this, dim, index);
}
Tensor Tensor::gather(std::int64_t dim, const Tensor& index) const {
    return axle::gather(*this, dim, index);
}
Tensor Tensor::masked_fill(const Tensor& mask, Scalar value) const {
    return axle::masked_fill(*this, mask, value);
}

// --- reductions and order

Tensor Tensor::sum(const Dims& dims, bool keepdim) const { return axle::sum(*this, dims, keepdim); }
Tensor Tensor::mean(const Dims& dims, bool keepdim) const {
    return axle::mean(*this, dims, keepdim);
}
Tensor Tensor::var(const Dims& dims, double correction, bool keepdim) const {
    return axle::var(*this, dims, correction, keepdim);
}
Tensor Tensor::std(const Dims& dims, double correction, bool keepdim) const {
    return axle::std(*this, dims, correction, keepdim);
}
Tensor Tensor::any(const Dims& dims, bool keepdim) const { return axle::any(*this, dims, keepdim); }
Tensor Tensor::all(const Dims& dims, bool keepdim) const { return axle::all(*this, dims, keepdim); }
Tensor Tensor::norm(double p, const Dims& dims, bool keepdim) const {
    return axle::norm(*this, p, dims, keepdim);
}
Tensor Tensor::max() const { return axle::max(*this); }
Tensor Tensor::min() const { return axle::min(*this); }
std::pair<Tensor, Tensor> Tensor::max(std::int64_t dim, bool keepdim) const {
    return max_with_indices(*this, dim, keepdim);
}
std::pair<Tensor, Tensor> Tensor::min(std::int64_t dim, bool keepdim) const {
    return min_with_indices(*this, dim, keepdim);
}
Tensor Tensor::argmax() const { return axle::argmax(axle::reshape(detach(), -1), 0); }
Tensor Tensor::argmin() const { return axle::argmin(axle::reshape(detach(), -1), 0); }
Tensor Tensor::argmax(std::int64_t dim, bool keepdim) const {
    return axle::argmax(*this, dim, keepdim);
}
Tensor Tensor::argmin(std::int64_t dim, bool keepdim) const {
    return axle::argmin(*this, dim, keepdim);
}
Tensor Tensor::cumsum(std::int64_t dim) const { return axle::cumsum(*this, dim); }
std::pair<Tensor, Tensor> Tensor::topk(std::int64_t k, std::int64_t dim, bool largest) const {
    return axle::topk(*this, k, dim, largest);
}
std::pair<Tensor, Tensor> Tensor::sort(std::int64_t dim, bool descending) const {
    return axle::sort(*this, dim, descending);
}
Tensor Tensor::argsort(std::int64_t dim, bool descending) const {
    return axle::argsort(*this, dim, descending);
}

// --- elementwise

Tensor Tensor::add(const Tensor& other) const { return axle::add(*this, other); }
Tensor Tensor::add(Scalar other) const { return axle::add(*this, other); }
Tensor Tensor::sub(const Tensor& other) const { return axle::sub(*this, other); }
Tensor Tensor::sub(Scalar other) const { return axle::sub(*this, other); }
Tensor Tensor::mul(const Tensor& other) const { return axle::mul(*this, other); }
Tensor Tensor::mul(Scalar other) const { return axle::mul(*this, other); }
Tensor Tensor::div(const Tensor& other) const { return axle::div(*this, other); }
Tensor Tensor::div(Scalar other) const { return axle::div(*this, other); }
Tensor Tensor::pow(Scalar exponent) const { return axle::pow(*this, exponent); }
Tensor Tensor::matmul(const Tensor& other) const { return axle::matmul(*this, other); }
Tensor Tensor::eq(const Tensor& other) const { return axle::eq(*this, other); }
Tensor Tensor::eq(Scalar other) const { return axle::eq(*this, other); }
Tensor Tensor::ne(const Tensor& other) const { return axle::ne(*this, other); }
Tensor Tensor::ne(Scalar other) const { return axle::ne(*this, other); }
Tensor Tensor::lt(const Tensor& other) const { return axle::lt(*this, other); }
Tensor Tensor::lt(Scalar other) const { return axle::lt(*this, other); }
Tensor Tensor::le(const Tensor& other) const { return axle::le(*this, other); }
Tensor Tensor::le(Scalar other) const { return axle::le(*this, other); }
Tensor Tensor::gt(const Tensor& other) const { return axle::gt(*this, other); }
Tensor Tensor::gt(Scalar other) const { return axle::gt(*this, other); }
Tensor Tensor::ge(const Tensor& other) const { return axle::ge(*this, other); }
Tensor Tensor::ge(Scalar other) const { return axle::ge(*this, other); }
Tensor Tensor::neg() const { return axle::neg(*this); }
Tensor Tensor::abs() const { return axle::abs(*this); }
Tensor Tensor::exp() const { return axle::exp(*this); }
Tensor Tensor::log() const { return axle::log(*this); }
Tensor Tensor::sqrt() const { return axle::sqrt(*this); }
Tensor Tensor::rsqrt() const { return axle::rsqrt(*this); }
Tensor Tensor::tanh() const { return axle::tanh(*this); }
Tensor Tensor::sigmoid() const { return axle::sigmoid(*this); }
Tensor Tensor::relu() const { return axle::relu(*this); }
Tensor Tensor::clamp(std::optional<double> low, std::optional<double> high) const {
    return axle::clamp(*this, low, high);
}
Tensor Tensor::softmax(std::int64_t dim) const { return axle::softmax(*this, dim); }
Tensor Tensor::log_softmax(std::int64_t dim) const { return axle::log_softmax(*this, dim); }

}  // namespace axle
