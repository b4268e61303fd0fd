#include "core/autograd/in_place.h"

#include <utility>

#include "core/autograd/autograd_meta.h"
#include "core/memory/owning_ptr.h"
#include "kernels/error.h"

namespace axle::autograd {

bool records_change(const char* op, const Tensor& x, bool operand_requires_grad) {
    if (!x.defined() || !grad_enabled() || !(x.requires_grad() || operand_requires_grad))
        return false;
    if (x.requires_grad() && x.is_leaf())
        throw UsageError(str(op, ": a leaf that requires a gradient can't be changed in place: x ",
                             x.shape(),
                             "; use the op that returns a new tensor, or a NoGrad scope"));
    if (x.impl()->storage.use_count() > 1)
        throw UsageError(
            str(op,
                ": the change can't be recorded, because other tensors share the memory of this "
                "tensor of shape ",
                x.shape(),
                " (it is a view, has views, or is saved for the backward pass); use the op that "
                "returns a new tensor, index_put_() on the whole tensor, or a NoGrad scope"));
    return true;
}

void replace(const Tensor& x, const std::function<Tensor(const Tensor& before)>& compute) {
    Impl& impl = *x.impl();
    const Tensor before = x.detach();
    if (x.requires_grad()) {
        Meta& meta = meta_of(before);
        meta.requires_grad = true;
        meta.node = impl.autograd->node;
        meta.output = impl.autograd->output;
    }
    const Tensor result = compute(before);
    OwningPtr<Meta> history;
    if (result.requires_grad()) {
        history = make_owning<Meta>();
        history->requires_grad = true;
        history->node = result.impl()->autograd->node;
        history->output = result.impl()->autograd->output;
        if (impl.autograd != nullptr && impl.autograd->retains_grad) {
            history->node->retained.emplace_back(history->output, x.impl());
            history->retains_grad = true;
            history->grad = impl.autograd->grad;
        }
    }
    // The following statements do not throw, so x is never changed only in part.
    impl.storage = result.impl()->storage;
    impl.strides = result.impl()->strides;
    impl.offset = result.impl()->offset;
    impl.derived = {};
    impl.storage->bump_version();
    impl.autograd = std::move(history);
}

}  // namespace axle::autograd
