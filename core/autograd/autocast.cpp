#include "core/autograd/autocast.h"

#include <mutex>
#include <utility>

#include "core/autograd/autograd.h"
#include "core/autograd/autograd_meta.h"
#include "core/cuda/graph.h"
#include "core/ops.h"

namespace axle {
namespace {

thread_local std::optional<DType> current;
thread_local bool cache_casts = true;

// Returns the cast of a leaf. The last cast of each leaf is cached, and returned again if dtype,
// storage, values and graph capture are the same. Thread-safe.
Tensor cached_cast(const Tensor& leaf, DType dtype) {
    static constinit std::mutex mutex;
    static constexpr const char* kKind = "autocast";
    Impl::Derived& derived = leaf.impl()->derived;
    const auto& storage = leaf.impl()->storage;
    const std::uint64_t capture = capture_id();
    {
        const std::lock_guard lock(mutex);
        if (derived.kind == kKind && derived.version == storage->version() &&
            derived.capture == capture && derived.source.lock() == storage) {
            Tensor kept = *std::static_pointer_cast<Tensor>(derived.value);
            if (kept.dtype() == dtype) return kept;
        }
    }
    const NoGrad no_grad;
    const Tensor cast = to(leaf.detach(), dtype);
    Impl::Derived fresh = {storage, storage->version(), capture, std::make_shared<Tensor>(cast),
                           kKind};
    const std::lock_guard lock(mutex);
    std::swap(derived, fresh);
    return cast;
}

// Returns whether the leaf is contiguous, x has its dtype, and all elements of x are elements of
// the leaf.
bool is_inside_leaf(const Tensor& x, const Tensor& leaf) {
    if (x.impl()->storage != leaf.impl()->storage || x.dtype() != leaf.dtype()) return false;
    std::int64_t low = x.impl()->offset - leaf.impl()->offset, high = low;
    for (int d = 0; d < x.dim(); ++d) {
        const std::int64_t reach = (x.shape()[d] - 1) * x.strides()[d];
        (reach < 0 ? low : high) += reach;
    }
    return leaf.is_contiguous() && low >= 0 && high < leaf.numel();
}

// Returns the leaf if x is a leaf or a view of a leaf and the leaf's cached cast can replace x.
// Otherwise returns nullopt.
std::optional<Tensor> leaf_of(const Tensor& x) {
    // The maximum number of ops to follow back to the leaf. A weight has passed through a few views
    // at most, but an activation can have a long history.
    constexpr int kMaxViews = 8;
    const autograd::Edge from = autograd::edge_to(x);
    const autograd::Edge* edge = &from;
    for (int i = 0; i < kMaxViews && edge->node != nullptr && edge->node->inputs.size() == 1; ++i)
        edge = &edge->node->inputs[0];
    if (edge->leaf == nullptr) return std::nullopt;
    Tensor leaf(edge->leaf);
    if (!leaf.is_same(x) && !is_inside_leaf(x, leaf)) return std::nullopt;
    return leaf;
}

// Returns x cast to dtype. The result is transposed if the matrices of x are transposed, otherwise
// contiguous. So elements are read and written in memory order.
Tensor cast(const Tensor& x, DType dtype) {
    const bool transposed = x.dim() > 1 && x.strides()[x.dim() - 2] == 1 && x.size(-1) > 1;
    if (!transposed) return to(x, dtype);
    return transpose(to(transpose(x, -2, -1), dtype), -2, -1);
}

}  // namespace

std::optional<DType> autocast_dtype() { return current; }

AutocastGuard::AutocastGuard(std::optional<DType> dtype, std::optional<bool> cache_enabled)
    : before_(current), cached_before_(cache_casts) {
    if (dtype && !is_half(*dtype))
        throw DTypeError(str("autocast: the dtype must be float16 or bfloat16: ", *dtype));
    current = dtype;
    if (cache_enabled) cache_casts = *cache_enabled;
}

AutocastGuard::~AutocastGuard() {
    current = before_;
    cache_casts = cached_before_;
}

Tensor autocast(const Tensor& x) {
    if (!current || !x.defined() || x.dtype() == *current || x.dtype() == f64 ||
        !is_floating(x.dtype()))
        return x;
    if (!cache_casts || !x.requires_grad() || x.device().is_meta()) return cast(x, *current);
    const std::optional<Tensor> leaf = leaf_of(x);
    if (!leaf) return cast(x, *current);
    // The cached cast gets a new handle, so that autograd records this use of the leaf.
    const Tensor y = cached_cast(*leaf, *current).detach();
    if (!leaf->is_same(x)) {
        Impl& view = *y.impl();
        view.shape = x.shape(), view.strides = x.strides();
        view.offset += x.impl()->offset - leaf->impl()->offset;
    }
    return record("autocast", y, {x}, [](const Grads& dy, Needs) -> Grads { return {dy[0]}; });
}

Tensor autocast_to_f32(const Tensor& x) {
    if (!current || !x.defined() || !is_half(x.dtype())) return x;
    return to(x, f32);
}

}  // namespace axle
