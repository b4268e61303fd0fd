#include "core/autograd/autograd.h"
#include "core/check.h"
#include "core/launch.h"
#include "core/ops.h"
#include "core/profiler/profiler.h"
#include "kernels/ops/copy.h"
#if AXLE_CUDA
#include "core/cuda/copy.h"
#endif

namespace axle {
namespace {

// Returns a contiguous copy of x in the given dtype. Throws DTypeError if this is a conversion and
// one of the dtypes is not a compute dtype.
Tensor copied(const Tensor& x, DType dtype) {
    if (dtype != x.dtype()) {
        check_compute("to", x);
        if (!is_compute(dtype))
            throw DTypeError(
                str("to: the dtype must be float64, float32, float16, bfloat16, int64, "
                    "int32, uint8 or bool: ",
                    dtype, "; use to_float8 for 8-bit floats"));
    }
    Tensor y = Tensor::empty(x.shape(), {.dtype = dtype, .device = x.device()});
    launch(x.device(), [&](auto& on) { kernels::copy(on, x.view(), y.view()); });
    return y;
}

// Records a copy. The engine casts the gradient back to the input's dtype.
Tensor record_copy(const char* op, const Tensor& y, const Tensor& x) {
    return record(op, y, {x}, [](const Grads& dy, Needs) -> Grads { return {dy[0]}; });
}

}  // namespace

Tensor to(const Tensor& x, DType dtype) {
    check_device("to", {&x});
    if (dtype == x.dtype()) return x;
    const profiler::OpScope scope("to");
    return record_copy("to", copied(x, dtype), x);
}

Tensor to(const Tensor& x, Device device, [[maybe_unused]] bool non_blocking) {
    check_device("to", {&x});
    if (device == x.device()) return x;
    const profiler::OpScope scope("to");
    if (x.device().is_meta())
        throw DeviceError(str("to: a tensor on the meta device has no data: shape ", x.shape()));
    Tensor y = Tensor::empty(x.shape(), {.dtype = x.dtype(), .device = device});
#if AXLE_CUDA
    if (!device.is_meta()) cuda::move_elements(contiguous(x.detach()), y, non_blocking);
#endif
    return record("to", y, {x}, [from = x.device()](const Grads& dy, Needs) -> Grads {
        return {to(dy[0], from)};
    });
}

Tensor Tensor::pin_memory() const {
    const Tensor& x = *this;
    check_device("pin_memory", {&x});
    if (x.is_pinned()) return x;
    const profiler::OpScope scope("pin_memory");
    if (!x.device().is_cpu())
        throw DeviceError(str("pin_memory: only CPU tensors can be pinned: x is on ", x.device()));
    Tensor y = Tensor::empty(x.shape(), {.dtype = x.dtype(), .pinned = true});
    launch(x.device(), [&](auto& on) { kernels::copy(on, x.view(), y.view()); });
    return record_copy("pin_memory", y, x);
}

Tensor clone(const Tensor& x) {
    const profiler::OpScope scope("clone");
    check_device("clone", {&x});
    return record_copy("clone", copied(x, x.dtype()), x);
}

Tensor contiguous(const Tensor& x) {
    check_device("contiguous", {&x});
    if (x.is_contiguous()) return x;
    const profiler::OpScope scope("contiguous");
    return record_copy("contiguous", copied(x, x.dtype()), x);
}

}  // namespace axle
