#include "core/check.h"

#include <string>
#include <utility>

#include "core/autograd/autograd.h"
#include "core/ops.h"
#include "core/profiler/profiler.h"

namespace axle {
namespace {

// Returns the category of a dtype as a number, in the order bool < integer < floating.
int category(DType t) {
    if (is_floating(t)) return 2;
    return t == DType::boolean ? 0 : 1;
}

// Returns the shapes of the operands, or "undefined" in place of a shape, separated by commas.
std::string shapes_of(std::initializer_list<const Tensor*> tensors) {
    std::string shapes;
    for (const Tensor* t : tensors) {
        if (!shapes.empty()) shapes += ", ";
        shapes += t != nullptr && t->defined() ? str(t->shape()) : std::string("undefined");
    }
    return shapes;
}

}  // namespace

Device check_device(const char* op, std::initializer_list<const Tensor*> tensors) {
    const Tensor* first = nullptr;
    for (const Tensor* t : tensors) {
        if (t == nullptr || !t->defined())
            throw UsageError(str(op, ": an operand is an undefined tensor: the operands are ",
                                 shapes_of(tensors)));
        if (first == nullptr) first = t;
        if (t->device() != first->device())
            throw DeviceError(str(op, ": operands are on different devices: ", first->device(),
                                  " and ", t->device(), "; move one with .to(device)"));
    }
    if (profiler::enabled()) profiler::record_operands(op, tensors);
    return first->device();
}

void check_defined(const char* op, const std::vector<Tensor>& tensors) {
    for (std::size_t i = 0; i < tensors.size(); ++i)
        if (!tensors[i].defined())
            throw UsageError(str(op, ": tensors[", i, "] is undefined; the list has ",
                                 tensors.size(), tensors.size() == 1 ? " tensor" : " tensors"));
}

void check_floating(const char* op, const Tensor& x, const char* name) {
    if (!is_floating(x.dtype()))
        throw DTypeError(str(op, ": needs a floating dtype: ", name, " is ", x.dtype()));
}

void check_index_dtype(const char* op, const Tensor& index, const char* name) {
    if (index.dtype() != i64 && index.dtype() != i32)
        throw DTypeError(
            str(op, ": the dtype must be int64 or int32: ", name, " is ", index.dtype()));
}

void check_compute(const char* op, const Tensor& x, const char* name) {
    if (!is_compute(x.dtype()))
        throw DTypeError(str(op, ": storage dtypes are not supported: ", name, " is ", x.dtype()));
}

void check_same_dtype(const char* op, const Tensor& a, const Tensor& b, const char* a_name,
                      const char* b_name) {
    if (a.dtype() != b.dtype())
        throw DTypeError(str(op, ": dtypes differ: ", a_name, " is ", a.dtype(), ", ", b_name,
                             " is ", b.dtype()));
}

void check_in_place(const char* op, const Tensor& x, bool allows_overlap) {
    if (!x.defined()) throw UsageError(str(op, ": the tensor is undefined"));
    if (grad_enabled() && x.requires_grad())
        throw UsageError(
            str(op, ": a tensor that requires a gradient can't be changed in place: x ", x.shape(),
                "; use the op that returns a new tensor, or a NoGrad scope"));
    if (ShardProvider* const provider = x.impl()->storage->provider())
        provider->check_host_access(op);
    for (int d = 0; d < x.dim() && !allows_overlap; ++d)
        if (x.strides()[d] == 0 && x.shape()[d] > 1)
            throw UsageError(str(op, ": elements of the tensor share memory along dimension ", d,
                                 " of ", x.shape(), " (expand); change x.clone() instead"));
}

namespace {

// Returns the positions of the first and the last element that x uses in its storage.
std::pair<std::int64_t, std::int64_t> extent(const Tensor& x) {
    std::int64_t first = x.impl()->offset, last = first;
    for (int d = 0; d < x.dim(); ++d) {
        const std::int64_t reach = (x.shape()[d] - 1) * x.strides()[d];
        (reach < 0 ? first : last) += reach;
    }
    return {first, last};
}

}  // namespace

Tensor without_overlap(const Tensor& x, const Tensor& operand) {
    if (x.impl()->storage != operand.impl()->storage || x.numel() == 0 || operand.numel() == 0)
        return operand;
    const bool same_layout = x.impl()->offset == operand.impl()->offset &&
                             x.shape() == operand.shape() && x.strides() == operand.strides();
    if (same_layout && x.dtype() == operand.dtype()) return operand;
    if (x.dtype() == operand.dtype()) {
        const auto [x_first, x_last] = extent(x);
        const auto [first, last] = extent(operand);
        if (last < x_first || x_last < first) return operand;
    }
    return clone(operand.detach());
}

std::int64_t checked_bytes(const Shape& shape, DType dtype) {
    std::int64_t bytes = size_of(dtype);
    bool empty = false;
    for (const std::int64_t size : shape) {
        empty |= size == 0;
        if (size != 0 && __builtin_mul_overflow(bytes, size, &bytes)) return -1;
    }
    return empty ? 0 : bytes;
}

DType promote(DType a, DType b) {
    if (a == b) return a;
    const int ca = category(a), cb = category(b);
    if (ca != cb) return ca > cb ? a : b;
    if (is_half(a) && is_half(b)) return f32;
    if (size_of(a) != size_of(b)) return size_of(a) > size_of(b) ? a : b;
    return a;
}

DType promote(const Tensor& a, const Tensor& b) {
    const bool zero_dim_a = a.dim() == 0, zero_dim_b = b.dim() == 0;
    if (zero_dim_a == zero_dim_b) return promote(a.dtype(), b.dtype());
    const DType full = zero_dim_a ? b.dtype() : a.dtype();
    const DType small = zero_dim_a ? a.dtype() : b.dtype();
    return category(small) > category(full) ? small : full;
}

DType promote(DType a, Scalar b) {
    if (!b.is_integral() && !is_floating(a)) return f32;
    if (b.is_integral() && a == boolean) return b.is_bool() ? boolean : i64;
    return a;
}

}  // namespace axle
