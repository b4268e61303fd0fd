// Implements the functions of Pipeline for gradient norms and for states of the whole model and its
// optimizer.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <set>
#include <unordered_map>
#include <utility>

#include "core/autograd/autograd.h"
#include "core/files/file.h"
#include "core/ops.h"
#include "dist/pipeline/pipeline_impl.h"
#include "kernels/error.h"
#include "optim/clip.h"

namespace axle::dist {
namespace {

std::string list_of(const std::set<std::string>& names) {
    std::string text;
    for (const std::string& name : names) text += str(text.empty() ? "" : ", ", name);
    return text;
}

// Parses a key of the state of an optimizer. Throws ValueError unless it is a number.
std::size_t parameter_number(const std::string& key) {
    std::size_t number = 0;
    const char* const end = key.data() + key.size();
    const auto [stop, error] = std::from_chars(key.data(), end, number);
    if (error != std::errc() || stop != end)
        throw ValueError(str("Pipeline: load_state_dict: the keys of \"state\" must be parameter ",
                             "numbers, such as \"0\": ", in_quotes(key)));
    return number;
}

}  // namespace

std::vector<Tensor> Pipeline::parameters() const {
    std::vector<Tensor> result;
    for (const Held& held : impl_->plan->parameters())
        if (held.is_on(impl_->rank())) result.push_back(held.tensor);
    return result;
}

Tensor Pipeline::clip_grad_norm_(double max_norm, double norm_type) {
    std::vector<Tensor> owned;
    for (const Held& held : impl_->plan->parameters())
        if (held.owner() == impl_->rank()) owned.push_back(held.tensor);
    const bool is_maximum = norm_type == std::numeric_limits<double>::infinity();
    const double own = optim::get_total_norm(owned, norm_type).item();
    // The norms of all ranks are combined in the same order, so that all ranks get the same bits.
    double sum = 0;
    for (const Tree& rank : impl_->group->all_gather_object(own))
        sum = is_maximum ? std::max(sum, rank.number()) : sum + std::pow(rank.number(), norm_type);
    const Tensor norm = tensor({is_maximum ? sum : std::pow(sum, 1 / norm_type)},
                               {.dtype = f64, .device = impl_->device()})
                            .reshape({});
    optim::clip_grads_with_norm_(parameters(), max_norm, norm);
    return norm;
}

nn::StateDict Pipeline::full_state_dict(const FullStateOptions& options) const {
    const NoGrad no_grad;
    const ProcessGroup& group = *impl_->group;
    std::unordered_map<std::string, Tensor> handles;
    for (const auto& [name, tensor] : impl_->model->state_dict({.keep_vars = true}))
        handles.emplace(name, tensor);
    nn::StateDict result;
    int tag = 0;
    for (const auto& [name, tensor] :
         dist::full_state_dict(*impl_->model, {.rank0_only = false, .offload_to_cpu = false})) {
        const Held* const held = impl_->plan->find(handles.at(name));
        const int owner = held == nullptr ? group.rank() : held->owner();
        const bool is_received = held != nullptr && (owner != 0 || !options.rank0_only);
        Tensor whole = owner == group.rank()
                           ? tensor.detach()
                           : Tensor::empty(tensor.shape(),
                                           {.dtype = tensor.dtype(), .device = impl_->device()});
        const int number = tag_of(MessageKind::state, tag++);
        if (is_received && options.rank0_only) {
            if (group.rank() == owner) impl_->group->send(whole, 0, number);
            if (group.rank() == 0) impl_->group->recv(whole, owner, number);
        } else if (is_received) {
            whole = whole.clone();
            impl_->group->broadcast(whole, owner);
        }
        if (options.rank0_only && group.rank() != 0) continue;
        result.emplace_back(
            name, options.offload_to_cpu && whole.device().is_cuda() ? whole.cpu() : whole.clone());
    }
    return result;
}

void Pipeline::load_state_dict(const nn::StateDict& state) {
    std::set<std::string> missing, unexpected;
    std::unordered_map<std::string, Tensor> given;
    for (const auto& [name, tensor] : state) given.emplace(name, tensor), unexpected.insert(name);
    nn::StateDict own;
    std::set<const axle::Impl*> found;
    std::set<const axle::Impl*> parameters;
    for (const Held& held : impl_->plan->parameters()) parameters.insert(held.tensor.impl().get());
    const nn::StateDict handles = impl_->model->state_dict({.keep_vars = true});
    for (const auto& [name, tensor] : handles)
        if (given.contains(name)) found.insert(tensor.impl().get());
    for (const auto& [name, tensor] : handles) {
        unexpected.erase(name);
        const auto value = given.find(name);
        if (value == given.end()) {
            // For a tied parameter, one of its names is sufficient. Buffers can be optional.
            if (parameters.contains(tensor.impl().get()) && !found.contains(tensor.impl().get()))
                missing.insert(name);
        } else if (const Held* const held = impl_->plan->find(tensor);
                   held == nullptr || held->is_on(impl_->rank())) {
            own.emplace_back(name, value->second);
        }
    }
    if (!missing.empty() || !unexpected.empty())
        throw ValueError(str("Pipeline: load_state_dict: names differ: missing [", list_of(missing),
                             "], unexpected [", list_of(unexpected), ']'));
    impl_->model->load_state_dict(own, {.strict = false});
}

Tree Pipeline::full_state_dict(optim::Optimizer& optimizer, const FullStateOptions& options) const {
    const NoGrad no_grad;
    Tree tree = dist::full_state_dict(optimizer, {.rank0_only = false, .offload_to_cpu = false});
    const std::vector<Tensor> parameters = optimizer.parameters();
    Tree owned = Tree::map();
    for (const auto& [number, value] : tree["state"].entries()) {
        const Held* const held = impl_->plan->find(parameters.at(std::stoull(number)));
        if (held == nullptr || held->owner() == impl_->rank()) owned.set(number, value);
    }
    const std::vector<Tree> all = options.rank0_only ? impl_->group->gather_object(owned)
                                                     : impl_->group->all_gather_object(owned);
    Tree state = Tree::map();
    for (std::size_t i = 0; i < parameters.size() && !all.empty(); ++i) {
        const std::string number = std::to_string(i);
        for (const Tree& rank : all)
            if (const Tree* const value = rank.find(number)) {
                state.set(number, *value);
                break;
            }
    }
    tree.set("state", std::move(state));
    return tree;
}

void Pipeline::load_state_dict(optim::Optimizer& optimizer, const Tree& state) const {
    const std::vector<Tensor> parameters = optimizer.parameters();
    Tree own = state, kept = Tree::map();
    for (const auto& [number, value] : state["state"].entries()) {
        const std::size_t index = parameter_number(number);
        const Held* const held =
            index < parameters.size() ? impl_->plan->find(parameters[index]) : nullptr;
        if (held == nullptr || held->is_on(impl_->rank())) kept.set(number, value);
    }
    own.set("state", std::move(kept));
    optimizer.load_state_dict(own);
}

}  // namespace axle::dist
