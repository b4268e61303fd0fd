#include "core/tensor.h"

#include <cmath>

#include "core/autograd/autograd.h"
#include "core/autograd/autograd_meta.h"
#include "core/autograd/in_place.h"
#include "core/autograd/leaf_registry.h"
#include "core/check.h"
#include "core/launch.h"
#include "core/ops.h"
#include "core/profiler/profiler.h"
#include "kernels/ops/copy.h"
#include "kernels/ops/pointwise.h"

namespace axle {

Impl::Impl() = default;
Impl::~Impl() {
    if (autograd != nullptr && autograd->is_registered) axle::autograd::remove_leaf(*this);
}

kernels::Cpu& cpu_context() {
    thread_local kernels::Cpu context;
    return context;
}

namespace {

std::size_t bytes_of(const Shape& shape, DType dtype) {
    static_cast<void>(axle::numel(shape));  // throws ShapeError for an invalid shape
    const std::int64_t bytes = checked_bytes(shape, dtype);
    if (bytes < 0)
        throw ShapeError(str("shape: the number of bytes overflows int64: ", shape, " of ", dtype));
    return static_cast<std::size_t>(bytes);
}

}  // namespace

Tensor Tensor::empty(const Shape& shape, TensorOptions options) {
    auto impl = std::make_shared<Impl>();
    const std::size_t bytes = bytes_of(shape, options.dtype);
    impl->storage = std::make_shared<Storage>(bytes, options.device, options.pinned);
    impl->shape = shape;
    impl->strides = contiguous_strides(shape);
    impl->dtype = options.dtype;
    Tensor t(std::move(impl));
    if (options.requires_grad) t.set_requires_grad();
    return t;
}

Tensor Tensor::from_blob(void* data, const Shape& shape, DType dtype,
                         std::function<void()> release) {
    auto impl = std::make_shared<Impl>();
    const std::size_t bytes = bytes_of(shape, dtype);
    impl->storage = std::make_shared<Storage>(data, bytes, Device::cpu(), std::move(release));
    impl->shape = shape;
    impl->strides = contiguous_strides(shape);
    impl->dtype = dtype;
    return Tensor(std::move(impl));
}

const Impl& Tensor::throw_undefined(const char* name) {
    throw UsageError(str(name, ": the tensor is undefined; check defined() first"));
}

std::int64_t Tensor::size(std::int64_t dim) const {
    if (this->dim() == 0) throw IndexError(str("size: a 0-d tensor has no dimension ", dim));
    return shape()[wrap_dim("size", dim, this->dim())];
}

std::int64_t Tensor::numel() const {
    std::int64_t n = 1;
    for (const std::int64_t size : shape()) n *= size;
    return n;
}

bool Tensor::is_contiguous() const { return view().contiguous(); }

void* Tensor::raw_data() const {
    const Impl& impl = of("raw_data");
    char* base = static_cast<char*>(impl.storage->data());
    return base == nullptr ? nullptr : base + impl.offset * size_of(impl.dtype);
}

void Tensor::check_access(DType t) const {
    if (t != dtype())
        throw DTypeError(str("data: the tensor is ", dtype(), ", but ", t,
                             " was requested; convert it with to()"));
    if (device().is_meta())
        throw DeviceError("data: the tensor is on the meta device and has no data");
}

void Tensor::check_host_write() const {
    if (ShardProvider* const provider = impl_->storage->provider())
        provider->check_host_access("data");
}

View Tensor::view() {
    View v;
    v.data = raw_data();
    v.dtype = impl_->dtype;
    v.ndim = impl_->shape.size();
    for (int d = 0; d < v.ndim; ++d) v.shape[d] = impl_->shape[d], v.stride[d] = impl_->strides[d];
    return v;
}

ConstView Tensor::view() const { return const_cast<Tensor*>(this)->view(); }

namespace {

// Returns the elements of x in row-major order. Messages begin with `op`. Throws DeviceError on the
// meta device, and DTypeError unless x has a compute dtype.
std::vector<double> elements_of(const char* op, const Tensor& x) {
    if (x.device().is_meta())
        throw DeviceError(str(op, ": the tensor is on the meta device and has no data"));
    check_compute(op, x, "the tensor");
    if (ShardProvider* const provider = x.impl()->storage->provider())
        provider->check_host_access(op);
    if (x.device().is_cuda()) return elements_of(op, axle::to(x.detach(), Device::cpu()));
    std::vector<double> values(static_cast<std::size_t>(x.numel()));
    View out;
    out.data = values.data();
    out.dtype = f64;
    out.ndim = x.dim();
    const Strides strides = contiguous_strides(x.shape());
    for (int d = 0; d < x.dim(); ++d) out.shape[d] = x.shape()[d], out.stride[d] = strides[d];
    launch(x.device(), [&](auto& on) { kernels::copy(on, x.view(), out); });
    return values;
}

}  // namespace

std::vector<double> Tensor::to_vector() const { return elements_of("to_vector", *this); }

double Tensor::item() const {
    const profiler::OpScope scope("item");
    if (numel() != 1)
        throw ShapeError(str("item: the tensor must have one element: it is ", shape()));
    return elements_of("item", *this)[0];
}

std::int64_t Tensor::item_int() const {
    if (dtype() == i64 && numel() == 1 && device().is_cuda())
        return axle::to(detach(), Device::cpu()).item_int();
    if (dtype() == i64 && numel() == 1 && device().is_cpu())
        return *static_cast<const std::int64_t*>(raw_data());
    const double value = item();
    if (!(value >= -0x1p63 && value < 0x1p63))
        throw ValueError(str("item_int: the value must be in [-2^63, 2^63): ", value));
    return static_cast<std::int64_t>(value);
}

Tensor Tensor::detach() const {
    const Impl& from = of("detach");
    auto impl = std::make_shared<Impl>();
    impl->storage = from.storage;
    impl->shape = from.shape;
    impl->strides = from.strides;
    impl->offset = from.offset;
    impl->dtype = from.dtype;
    return Tensor(std::move(impl));
}

void Tensor::set_data(const Tensor& source) const {
    if (source.shape() != shape())
        throw ShapeError(str("set_data: the shapes must be equal: this tensor is ", shape(),
                             ", the source is ", source.shape()));
    if (ShardProvider* const provider = impl_->storage->provider())
        provider->check_host_access("set_data");
    // is_contiguous() would supply the memory of a source that has none yet.
    const bool is_dense = source.strides() == contiguous_strides(source.shape());
    const Tensor from =
        is_dense || source.is_contiguous() ? source : axle::contiguous(source.detach());
    impl_->storage = from.impl_->storage;
    impl_->strides = from.impl_->strides;
    impl_->offset = from.impl_->offset;
    impl_->dtype = from.impl_->dtype;
    impl_->derived = {};
}

// --- in place

Tensor& Tensor::copy_(const Tensor& source) {
    const profiler::OpScope scope("copy_");
    const bool recorded =
        autograd::records_change("copy_", *this, source.defined() && source.requires_grad());
    if (!recorded) check_in_place("copy_", *this);
    if (!source.defined()) throw UsageError("copy_: the source is undefined");
    if (source.dtype() != dtype()) {
        check_compute("copy_", *this, "the tensor");
        check_compute("copy_", source, "the source");
    }
    if (recorded) {
        autograd::replace(*this, [&](const Tensor&) {
            return axle::clone(
                axle::expand(axle::to(axle::to(source, device()), dtype()), shape()));
        });
        return *this;
    }
    const Tensor from =
        axle::expand(axle::to(without_overlap(*this, source.detach()), device()), shape());
    launch(device(), [&](auto& on) { kernels::copy(on, from.view(), view()); });
    impl_->storage->bump_version();
    return *this;
}

Tensor& Tensor::fill_(Scalar value) {
    const profiler::OpScope scope("fill_");
    const bool recorded = autograd::records_change("fill_", *this, false);
    if (!recorded) check_in_place("fill_", *this, true);
    check_compute("fill_", *this, "the tensor");
    if (recorded) {
        autograd::replace(*this, [&](const Tensor& before) { return full_like(before, value); });
        return *this;
    }
    launch(device(), [&](auto& on) {
        if (value.is_integral())
            kernels::fill(on, value.to_int64(), view());
        else
            kernels::fill(on, value.to_double(), view());
    });
    impl_->storage->bump_version();
    return *this;
}

}  // namespace axle
