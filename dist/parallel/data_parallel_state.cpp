// Implements the functions of DataParallel that save and load its state.
#include <string>
#include <unordered_set>
#include <utility>

#include "core/files/file.h"
#include "dist/parallel/data_parallel_impl.h"
#include "dist/parallel/local_sgd.h"

namespace axle::dist {
namespace {

std::unordered_set<std::string> names_in(const nn::StateDict& tensors) {
    std::unordered_set<std::string> names;
    for (const auto& [name, tensor] : tensors) names.insert(name);
    return names;
}

}  // namespace

Tree DataParallel::state_dict() const {
    const Impl& impl = *impl_;
    Tree state = Tree::map();
    if (impl.group->rank() == 0) state.set("layout", impl.reducer.layout());
    if (Tree hook = impl.reducer.hook().state_dict(buckets()); !hook.empty())
        state.set("hook", std::move(hook));
    if (impl.local_sgd != nullptr) state.set("local_sgd", Tree{{"steps", impl.local_sgd->steps_}});
    if (!impl.buffers_are_due) state.set("buffers_are_due", false);
    const bool has_own_buffers = !impl.broadcasts_buffers || !impl.buffers_are_due;
    if (impl.group->rank() == 0 || (impl.local_sgd == nullptr && !has_own_buffers)) return state;
    const auto buffers = names_in(impl.model->named_buffers({.include_constant = false}));
    Tree tensors = Tree::map();
    for (const auto& [name, tensor] : impl.model->saved_state())
        if (impl.local_sgd != nullptr || buffers.contains(name)) tensors.set(name, tensor);
    if (!tensors.empty()) state.set("tensors", std::move(tensors));
    return state;
}

bool DataParallel::load_state_dict(const Tree& state, bool is_own) {
    Impl& impl = *impl_;
    std::int64_t steps = 0;
    if (const Tree* const local_sgd = state.find("local_sgd"))
        steps = (*local_sgd)["steps"].integer();
    if (steps < 0)
        throw ValueError(
            str("DataParallel: local_sgd: the number of steps must not be negative: ", steps));
    const Tree* const due = state.find("buffers_are_due");
    const bool buffers_are_due = !is_own || due == nullptr || due->boolean();
    if (const Tree* const tensors = state.find("tensors"); tensors != nullptr && is_own) {
        nn::StateDict own;
        for (const auto& [name, tensor] : tensors->entries())
            own.emplace_back(name, tensor.tensor());
        const nn::LoadReport report = impl.model->load_state_dict(own, {.strict = false});
        if (!report.unexpected.empty())
            throw ValueError(str("DataParallel: the model must have all tensors of the state: ",
                                 printable(report.unexpected.front()), " is missing"));
    }
    const Tree* const layout = state.find("layout");
    const bool is_equal = layout != nullptr && impl.reducer.set_layout(*layout);
    CommHook& hook = impl.reducer.hook();
    const bool has_state = !hook.state_dict(buckets()).empty();
    const Tree* const saved = state.find("hook");
    const auto source = !is_equal ? CommHook::Source::other_buckets
                        : is_own  ? CommHook::Source::own
                                  : CommHook::Source::other_rank;
    const bool is_restored =
        hook.load_state_dict(saved != nullptr ? *saved : Tree::map(), buckets(), source);
    impl.buffers_are_due = buffers_are_due;
    (impl.local_sgd != nullptr ? impl.local_sgd->steps_ : impl.local_sgd_steps) = steps;
    return (saved != nullptr && is_restored) || !has_state;
}

}  // namespace axle::dist
