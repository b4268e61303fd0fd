#include "nn/visit_check.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <typeinfo>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/autograd/parameter_index.h"
#include "core/text/type_name.h"
#include "kernels/error.h"

namespace axle::nn {
namespace {

using Bytes = std::pair<const std::byte*, const std::byte*>;  // the first byte, and the end

struct Index {
    std::mutex mutex;
    std::set<const Module*, std::less<>> modules;  // all modules of the process, by address
};

// Returns the index, which is never destroyed because static modules can outlive it.
Index& index() {
    static auto* const instance = new Index;
    return *instance;
}

Bytes memory_of(const Module& module) {
    const auto [start, size] = module.object_memory();
    const auto* const first = static_cast<const std::byte*>(start);
    return {first, first + size};
}

// Returns the modules whose address is in the memory, in the order of their addresses.
std::vector<const Module*> modules_in(const Bytes& memory) {
    const std::lock_guard lock(index().mutex);
    const auto& modules = index().modules;
    const auto at = [](const std::byte* byte) {
        return static_cast<const Module*>(static_cast<const void*>(byte));
    };
    return {modules.lower_bound(at(memory.first)), modules.lower_bound(at(memory.second))};
}

// Returns the words of the memory. Some can be padding without a value.
std::vector<const void*> words_of(const Bytes& memory) {
    std::vector<const void*> words(static_cast<std::size_t>(memory.second - memory.first) /
                                   sizeof(void*));
    std::memcpy(words.data(), memory.first, words.size() * sizeof(void*));
    return words;
}

// Collects what visit() names or ignores.
class Named : public Visitor {
  public:
    void add(const Module& module) {
        modules.push_back(&module);
        const_cast<Module&>(module).visit(*this);  // NOLINT: visit() does not modify the module
    }

    std::vector<const Module*> modules;  // parents come before their children
    std::unordered_set<const Impl*> tensors;

  protected:
    void on_parameter(std::string_view, Tensor& parameter) override { insert(parameter); }
    void on_buffer(std::string_view, Tensor& buffer) override { insert(buffer); }
    void on_child(std::string_view, Module& child) override { add(child); }
    void on_ignored(Tensor& tensor) override { insert(tensor); }
    void on_ignored(Module& child) override { add(child); }

  private:
    void insert(const Tensor& tensor) { tensors.insert(tensor.impl().get()); }
};

[[noreturn]] void fail(const Module& module, const std::string& what, std::ptrdiff_t position) {
    throw UsageError(str(type_name(typeid(module)), "::visit: does not name ", what, " at byte ",
                         position,
                         " of the object, so it is neither trained nor saved; add it to "
                         "visit(), or call v.ignore() for it"));
}

}  // namespace

void add_module(const Module& module) {
    const std::lock_guard lock(index().mutex);
    index().modules.insert(&module);
}

void remove_module(const Module& module) noexcept {
    const std::lock_guard lock(index().mutex);
    index().modules.erase(&module);
}

void check_visit(const Module& root) {
    Named named;
    named.add(root);
    const std::unordered_set<const Module*> known(named.modules.begin(), named.modules.end());
    // Children come first, so that a member of a member is reported for the inner module.
    for (auto it = named.modules.rbegin(); it != named.modules.rend(); ++it) {
        const Module& module = **it;
        const Bytes memory = memory_of(module);
        if (memory.first == memory.second) continue;
        for (const Module* member : modules_in(memory))
            if (!known.contains(member))
                fail(
                    module, str("the member of type ", type_name(typeid(*member))),
                    static_cast<const std::byte*>(static_cast<const void*>(member)) - memory.first);
        const std::vector<const void*> words = words_of(memory);
        const Impl* const unknown = autograd::find_unknown_parameter(
            words, [&](const Impl* impl) { return named.tensors.contains(impl); });
        if (unknown == nullptr) continue;
        const auto word = std::find(words.begin(), words.end(), unknown);
        fail(module, str("the parameter of shape ", unknown->shape),
             (word - words.begin()) * static_cast<std::ptrdiff_t>(sizeof(void*)));
    }
}

}  // namespace axle::nn
