#include "nn/deferred_storage.h"

#include <utility>

#include "core/autograd/autograd.h"
#include "core/launch.h"
#include "core/random.h"
#include "kernels/ops/random.h"

namespace axle::nn::init {
namespace {

// Returns whether t is contiguous. Unlike Tensor::is_contiguous(), does not allocate the memory of
// t.
bool is_dense(const Tensor& t) { return t.strides() == contiguous_strides(t.shape()); }

}  // namespace

DeferredStorage::DeferredStorage(std::int64_t numel)
    : numel_(numel),
      storage_(static_cast<std::size_t>(numel * size_of(f32)), Device::cpu(), *this) {}

std::shared_ptr<Storage> DeferredStorage::create(std::int64_t numel) {
    const auto self = std::make_shared<DeferredStorage>(numel);
    return {self, &self->storage_};  // keeps the object alive as long as its storage
}

DeferredStorage* DeferredStorage::of(const Tensor& t) {
    if (!t.defined() || t.impl()->storage->has_memory()) return nullptr;
    return dynamic_cast<DeferredStorage*>(t.impl()->storage->provider());
}

bool DeferredStorage::record(const Tensor& t, Fill fill, double first, double second) {
    DeferredStorage* const deferred = of(t);
    if (deferred == nullptr || (fill != Fill::constant && !is_dense(t))) return false;
    FilledView view{.shape = t.impl()->shape,
                    .strides = t.impl()->strides,
                    .offset = t.impl()->offset,
                    .fill = fill,
                    .first = first,
                    .second = second};
    if (fill != Fill::constant) {
        // Calls the op on a meta tensor, which checks the arguments and computes nothing.
        Tensor checked = Tensor::empty(t.shape(), {.device = Device::meta()});
        fill == Fill::uniform ? checked.uniform_(first, second) : checked.normal_(first, second);
        view.random = take_random(random_blocks(t.numel()));
    }
    if (deferred->is_whole(t)) deferred->fills_.clear();
    deferred->fills_.push_back(std::move(view));
    return true;
}

bool DeferredStorage::is_whole(const Tensor& t) const { return t.numel() == numel_ && is_dense(t); }

void DeferredStorage::write(const Tensor& whole) const {
    const NoGrad no_grad;
    for (const FilledView& filled : fills_) {
        auto impl = std::make_shared<Impl>();
        impl->storage = whole.impl()->storage;
        impl->shape = filled.shape;
        impl->strides = filled.strides;
        impl->offset = whole.impl()->offset + filled.offset;
        Tensor view(std::move(impl));
        if (filled.fill == Fill::constant) {
            view.fill_(filled.first);
            continue;
        }
        launch(view.device(), [&](auto& on) {
            if (filled.fill == Fill::uniform)
                kernels::uniform(on, filled.random, filled.first, filled.second, view.view());
            else
                kernels::normal(on, filled.random, filled.first, filled.second, view.view());
        });
        view.impl()->storage->bump_version();
    }
}

void DeferredStorage::provide(Storage& storage) {
    const Tensor whole = Tensor::empty({numel_});
    write(whole);
    storage.set_memory(whole.impl()->storage);
    fills_.clear();
}

}  // namespace axle::nn::init
