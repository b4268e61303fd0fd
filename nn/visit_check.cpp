#include "nn/visit_check.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <string_view>
#include <typeinfo>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/autograd/leaf_registry.h"
#include "core/files/file.h"
#include "core/text/type_name.h"
#include "kernels/error.h"

namespace axle::nn {
namespace {

using Bytes = std::pair<const std::byte*, const std::byte*>;  // a memory range: begin and end

// The bytes of a Tensor, which is a shared_ptr: the addresses of an Impl and of its control block.
using Words = std::array<std::uintptr_t, 2>;
static_assert(sizeof(Words) == sizeof(Tensor));

Words words_at(const std::byte* place) {
    Words words;
    std::memcpy(words.data(), place, sizeof(words));
    return words;
}

// The first byte of a word may be a member of its own, such as the index of a variant, whose
// constructor turns the other, older bytes into an address. It is therefore not compared.
constexpr std::uintptr_t kCompared = ~std::uintptr_t{0xff};

// Returns whether both words can be addresses of objects, except for their first bytes.
bool looks_like_a_tensor(const Words& words) {
    return std::all_of(words.begin(), words.end(),
                       [](std::uintptr_t word) { return (word & kCompared) != 0; });
}

bool are_same(const Words& a, const Words& b) {
    return ((a[0] ^ b[0]) & kCompared) == 0 && ((a[1] ^ b[1]) & kCompared) == 0;
}

struct Index {
    std::mutex mutex;
    std::set<const Module*, std::less<>> modules;  // all modules of the process, by address
    // The places in modules whose bytes looked like a Tensor before the members were constructed,
    // with these bytes. A new Impl can have the addresses of a destroyed one.
    std::map<const std::byte*, Words, std::less<>> old_bytes;
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

// Returns all modules of the process whose address is in `memory`, in the order of their addresses.
std::vector<const Module*> modules_in(const Bytes& memory) {
    const std::lock_guard lock(index().mutex);
    const auto& modules = index().modules;
    const auto at = [](const std::byte* byte) {
        return static_cast<const Module*>(static_cast<const void*>(byte));
    };
    return {modules.lower_bound(at(memory.first)), modules.lower_bound(at(memory.second))};
}

bool is_old(const autograd::FoundLeaf& found) {
    const std::lock_guard lock(index().mutex);
    const auto& old_bytes = index().old_bytes;
    const auto entry = old_bytes.find(found.place);
    return entry != old_bytes.end() && are_same(entry->second, words_at(found.place));
}

// Collects the modules and tensors that visit() names or ignores, recursively.
class Named : public Visitor {
  public:
    // Adds a module and the modules below it. Throws UsageError if visit() of one of these modules
    // uses a name twice.
    void add(const Module& module) {
        order.push_back(&module);
        modules.insert(&module);
        if (ignoring_) ignored.insert(&module);
        Scope scope{&module, {}};
        Scope* const outer = std::exchange(scope_, &scope);
        const_cast<Module&>(module).visit(*this);  // NOLINT: visit() does not modify the module
        scope_ = outer;
    }

    std::vector<const Module*> order;  // parents come before their children
    std::unordered_set<const Module*> modules;
    std::unordered_set<const Module*> ignored;  // ignored modules, and the modules below them
    std::unordered_set<const Impl*> tensors;

  protected:
    void on_parameter(std::string_view name, Tensor& parameter) override {
        insert(name, parameter);
    }
    void on_buffer(std::string_view name, Tensor& buffer, BufferOptions) override {
        insert(name, buffer);
    }
    void on_child(std::string_view name, Module& child) override {
        check_name(name);
        add(child);
    }
    void on_ignored(Module& child) override {
        const bool outer = std::exchange(ignoring_, true);
        add(child);
        ignoring_ = outer;
    }
    void on_ignored_tensor(Tensor& tensor) override { tensors.insert(tensor.impl().get()); }

  private:
    // The module whose visit() runs, and the names that it has used.
    struct Scope {
        const Module* module;
        std::unordered_set<std::string> names;
    };

    void check_name(std::string_view name) {
        if (!scope_->names.emplace(name).second)
            throw UsageError(str(type_name(typeid(*scope_->module)),
                                 "::visit: the names of members must be different: ",
                                 in_quotes(name), " is used twice"));
    }
    void insert(std::string_view name, const Tensor& tensor) {
        check_name(name);
        tensors.insert(tensor.impl().get());
    }

    Scope* scope_ = nullptr;
    bool ignoring_ = false;
};

// Returns whether the tensors of a member are named although the member itself is not, because
// visit() of its parent calls member.visit(v) instead of v(name, member).
bool is_visited_directly(const Module& member, const Named& named) {
    Named own;
    own.add(member);
    return !own.tensors.empty() &&
           std::all_of(own.tensors.begin(), own.tensors.end(),
                       [&](const Impl* tensor) { return named.tensors.contains(tensor); });
}

[[noreturn]] void fail(const Module& module, const std::string& type, std::ptrdiff_t position) {
    throw UsageError(
        str(type_name(typeid(module)), "::visit: does not name the member of type ", type,
            " at byte ", position,
            " of the object, so it is neither trained nor saved; add it to visit(), or "
            "call v.ignore() for it"));
}

void check_members(const Module& module, const Named& named) {
    const Bytes memory = memory_of(module);
    // The end of the last unnamed member. Modules before this address are parts of that member.
    const std::byte* checked = memory.first;
    for (const Module* member : modules_in(memory)) {
        const auto* const address = static_cast<const std::byte*>(static_cast<const void*>(member));
        if (named.modules.contains(member) || address < checked) continue;
        if (!is_visited_directly(*member, named))
            fail(module, type_name(typeid(*member)), address - memory.first);
        checked = memory_of(*member).second;
    }
}

// The parameters of member modules are not checked, because check_visit() checks these modules,
// too.
void check_parameters(const Module& module, const Named& named) {
    const Bytes memory = memory_of(module);
    std::vector<Bytes> members;
    for (const Module* member : modules_in(memory))
        if (member != &module && named.modules.contains(member))
            members.push_back(memory_of(*member));
    for (const auto& found : autograd::find_leaves(memory.first, memory.second)) {
        const auto contains_it = [&](const Bytes& member) {
            return member.first <= found.place && found.place < member.second;
        };
        if (named.tensors.contains(found.leaf.impl().get()) || is_old(found) ||
            std::any_of(members.begin(), members.end(), contains_it))
            continue;
        fail(module,
             str(type_name(typeid(Tensor)), ", a parameter (", found.leaf.dtype(), " ",
                 found.leaf.shape(), "),"),
             found.place - memory.first);
    }
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

void remember_old_bytes(void* memory, std::size_t size) noexcept {
    const auto* const begin = static_cast<const std::byte*>(memory);
    try {
        const std::lock_guard lock(index().mutex);
        auto& old_bytes = index().old_bytes;
        old_bytes.erase(old_bytes.lower_bound(begin), old_bytes.lower_bound(begin + size));
        for (std::size_t at = 0; at + sizeof(Words) <= size; at += sizeof(void*))
            if (const Words words = words_at(begin + at); looks_like_a_tensor(words))
                old_bytes.emplace(begin + at, words);
    } catch (const std::bad_alloc&) {
        // The remaining old bytes are not recorded, so check_visit() could mistake them for a
        // parameter. This is rare, because few old bytes are the address of a live parameter.
        return;
    }
}

void check_visit(const Module& root) {
    Named named;
    named.add(root);
    // Children come first, so that a member of a member is reported for the inner module.
    for (auto it = named.order.rbegin(); it != named.order.rend(); ++it) {
        check_members(**it, named);
        if (!named.ignored.contains(*it)) check_parameters(**it, named);
    }
}

}  // namespace axle::nn
