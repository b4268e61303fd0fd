#include "core/autograd/parameter_index.h"

#include <mutex>
#include <unordered_set>

#include "core/autograd/autograd_meta.h"

namespace axle::autograd {
namespace {

struct Index {
    std::mutex mutex;
    std::unordered_set<const void*> impls;
};

// Returns the index, which is never destroyed because static tensors can outlive it.
Index& index() {
    static auto* const instance = new Index;
    return *instance;
}

}  // namespace

void add_parameter(const Impl& impl) {
    const std::lock_guard lock(index().mutex);
    index().impls.insert(&impl);
}

void remove_parameter(const Impl& impl) noexcept {
    const std::lock_guard lock(index().mutex);
    index().impls.erase(&impl);
}

const Impl* find_unknown_parameter(std::span<const void* const> addresses,
                                   const std::function<bool(const Impl*)>& is_known) {
    const std::lock_guard lock(index().mutex);
    for (const void* address : addresses) {
        if (!index().impls.contains(address)) continue;
        const auto* const impl = static_cast<const Impl*>(address);
        if (impl->autograd->requires_grad && !is_known(impl)) return impl;
    }
    return nullptr;
}

}  // namespace axle::autograd
