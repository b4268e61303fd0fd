#include "core/autocast.h"

#include "core/autograd.h"
#include "core/ops.h"

namespace axle::inline v0 {
namespace {

thread_local std::optional<DType> current;

// The cast of a leaf, made once for each version of its values.
Tensor shadow(const Tensor& leaf, DType dtype) {
    Impl::Derived& derived = leaf.impl()->derived;
    const auto& storage = leaf.impl()->storage;
    static constexpr const char* kKind = "autocast";
    if (derived.kind == kKind && derived.version == storage->version() &&
        derived.of.lock() == storage) {
        Tensor kept = *std::static_pointer_cast<Tensor>(derived.form);
        if (kept.dtype() == dtype) return kept;
    }
    const NoGrad no_grad;
    const Tensor cast = to(leaf.detach(), dtype);
    derived = {storage, storage->version(), std::make_shared<Tensor>(cast), kKind};
    return cast;
}

}  // namespace

std::optional<DType> autocast_dtype() { return current; }

AutocastGuard::AutocastGuard(std::optional<DType> dtype) : before_(current) {
    if (dtype && !is_half(*dtype))
        throw DTypeError(str("autocast: the dtype must be float16 or bfloat16: ", *dtype));
    current = dtype;
}

AutocastGuard::~AutocastGuard() { current = before_; }

Tensor autocast(const Tensor& x) {
    if (!current || !x.defined() || x.dtype() == *current || x.dtype() == f64 ||
        !is_floating(x.dtype()))
        return x;
    if (!x.is_leaf() || !x.requires_grad() || x.device().is_meta()) return to(x, *current);
    // A new handle on the kept storage: its history is this use of the leaf.
    const Tensor y = shadow(x, *current).detach();
    return record("autocast", y, {x}, [](const Grads& dy, Needs) -> Grads { return {dy[0]}; });
}

Tensor keep_f32(const Tensor& x) {
    if (!current || !x.defined() || !is_half(x.dtype())) return x;
    return to(x, f32);
}

}  // namespace axle::inline v0
