#include "core/autograd/leaf_registry.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <unordered_map>

namespace axle::autograd {
namespace {

struct Registry {
    std::mutex mutex;
    std::unordered_map<const void*, std::weak_ptr<Impl>> leaves;  // by the address of the Impl
};

// Returns the registry. It is never destroyed, because static tensors are removed from it at exit.
Registry& registry() {
    static auto* const instance = new Registry;
    return *instance;
}

}  // namespace

void add_leaf(const std::shared_ptr<Impl>& leaf) {
    const std::lock_guard lock(registry().mutex);
    registry().leaves.insert_or_assign(leaf.get(), leaf);
}

void remove_leaf(const Impl& leaf) noexcept {
    const std::lock_guard lock(registry().mutex);
    registry().leaves.erase(&leaf);
}

std::vector<FoundLeaf> find_leaves(const std::byte* begin, const std::byte* end) {
    // A Tensor is a shared_ptr, which has two words: the addresses of the Impl and of the control
    // block.
    constexpr std::ptrdiff_t kWord = sizeof(void*);
    static_assert(sizeof(Tensor) == 2 * kWord && alignof(Tensor) == kWord);
    std::vector<FoundLeaf> found;
    {
        const std::lock_guard lock(registry().mutex);
        const auto& leaves = registry().leaves;
        if (leaves.empty()) return found;
        for (; end - begin >= 2 * kWord; begin += kWord) {
            const void* words[2];
            std::memcpy(words, begin, sizeof(words));
            if (words[0] == nullptr || words[1] == nullptr) continue;
            if (const auto leaf = leaves.find(words[0]); leaf != leaves.end())
                found.push_back({begin, Tensor(leaf->second.lock())});
        }
    }
    // The handles in `found` are destroyed after the lock is released. One of them can be the last
    // owner of its leaf, and ~Impl takes the lock.
    std::erase_if(found, [](const FoundLeaf& f) {
        const auto* const bytes = reinterpret_cast<const std::byte*>(&f.leaf);
        return !f.leaf.defined() || !std::equal(bytes, bytes + sizeof(Tensor), f.place);
    });
    return found;
}

}  // namespace axle::autograd
