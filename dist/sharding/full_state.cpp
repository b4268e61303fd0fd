#include "dist/sharding/full_state.h"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/autograd/autograd.h"
#include "core/autograd/local_part.h"
#include "core/autograd/tensor_slice.h"
#include "core/ops.h"
#include "dist/sharding/flat_parameter.h"

namespace axle::dist {
namespace {

FlatParameter* buffer_of(const Tensor& parameter) {
    return dynamic_cast<FlatParameter*>(parameter.impl()->storage->provider());
}

// Returns the flat buffers that contain the parameters, without duplicates, in the order of the
// parameters.
std::vector<FlatParameter*> buffers_of(const std::vector<Tensor>& parameters) {
    std::vector<FlatParameter*> buffers;
    for (const Tensor& parameter : parameters)
        if (FlatParameter* const buffer = buffer_of(parameter);
            buffer != nullptr && std::ranges::find(buffers, buffer) == buffers.end())
            buffers.push_back(buffer);
    return buffers;
}

// Gathers the part, and calls f(member, complete tensor) for all members on the ranks that get
// tensors.
template <class F>
void gather_members(FlatParameter& buffer, const Tensor& part, const FullStateOptions& options,
                    F&& f) {
    const NoGrad no_grad;
    const Tensor whole = buffer.gather_part(part);
    if (options.rank0_only && buffer.rank() != 0) return;
    for (const FlatParameter::Member& member : buffer.members()) {
        const Tensor values = whole.narrow(0, member.begin, member.numel);
        const Tensor copied =
            options.offload_to_cpu && values.device().is_cuda() ? values.cpu() : values.clone();
        f(member, copied.view(member.handle.shape()));
    }
}

bool is_first(const autograd::TensorSlice& slice) {
    return slice.layout().part == 0 && slice.is_first_copy();
}

// Gathers the whole tensor of a slice, and returns it on the ranks that get tensors. Returns an
// undefined tensor on other ranks. A slice on the meta device is not gathered; only its shape is
// changed.
Tensor gather_slices(const autograd::TensorSlice& slice, const Tensor& tensor,
                     const FullStateOptions& options) {
    const Tensor whole = tensor.device().is_meta()
                             ? Tensor::empty(slice.layout().whole,
                                             {.dtype = tensor.dtype(), .device = Device::meta()})
                             : slice.gather(tensor);
    if (options.rank0_only && !is_first(slice)) return {};
    return options.offload_to_cpu && whole.device().is_cuda() ? whole.cpu() : whole;
}

// Replaces the slices in the state of an optimizer by whole tensors. On ranks that get no tensors,
// "state" becomes an empty map.
void gather_slices(Tree& tree, const std::vector<Tensor>& parameters,
                   const FullStateOptions& options) {
    bool gets_tensors = true;
    Tree state = tree["state"];
    for (std::size_t i = 0; i < parameters.size(); ++i) {
        const auto slice = autograd::slice_of(parameters[i]);
        const std::string number = std::to_string(i);
        const Tree* const found = state.find(number);
        if (slice == nullptr || found == nullptr) continue;
        gets_tensors = gets_tensors && !(options.rank0_only && !is_first(*slice));
        Tree entry = *found;
        for (const auto& [name, value] : found->entries())
            if (value.is_tensor() && value.tensor().shape() == parameters[i].shape())
                entry.set(name, gather_slices(*slice, value.tensor(), options));
        state.set(number, std::move(entry));
    }
    tree.set("state", gets_tensors ? std::move(state) : Tree::map());
}

}  // namespace

bool is_sharded(const nn::Module& model) {
    return std::ranges::any_of(model.parameters(), autograd::is_sharded);
}

bool has_slices(const nn::Module& model) {
    return std::ranges::any_of(model.parameters(), [](const Tensor& parameter) {
        return autograd::slice_of(parameter) != nullptr;
    });
}

nn::StateDict full_state_dict(const nn::Module& model, FullStateOptions options) {
    std::unordered_map<const Impl*, Tensor> complete;
    const std::vector<Tensor> parameters = model.parameters();
    for (FlatParameter* const buffer : buffers_of(parameters))
        gather_members(*buffer, buffer->part(), options,
                       [&](const FlatParameter::Member& member, const Tensor& whole) {
                           complete.emplace(member.handle.impl().get(), whole);
                       });
    nn::StateDict result;
    bool gets_tensors = true;
    std::unordered_map<std::string, Tensor> handles;
    for (const auto& [name, tensor] : model.state_dict({.keep_vars = true}))
        handles.emplace(name, tensor);
    for (auto& [name, tensor] : model.saved_state()) {
        const Tensor& handle = handles.at(name);
        Tensor values = tensor;
        if (autograd::is_sharded(handle)) {
            const auto found = complete.find(handle.impl().get());
            if (found == complete.end()) continue;
            values = found->second;
        }
        if (const auto slice = autograd::slice_of(handle)) {
            values = gather_slices(*slice, values, options);
            gets_tensors = gets_tensors && values.defined();
        }
        result.emplace_back(name, values);
    }
    if (complete.empty() && is_sharded(model)) gets_tensors = false;
    return gets_tensors ? result : nn::StateDict();
}

Tree full_state_dict(optim::Optimizer& optimizer, FullStateOptions options) {
    return full_state_dict(optimizer, optimizer.state_dict(), options);
}

Tree full_state_dict(optim::Optimizer& optimizer, Tree own, FullStateOptions options) {
    const NoGrad no_grad;
    Tree tree = std::move(own);
    const std::vector<Tensor> parameters = optimizer.parameters();
    const std::vector<FlatParameter*> buffers = buffers_of(parameters);
    if (buffers.empty()) {
        gather_slices(tree, parameters, options);
        return tree;
    }
    std::unordered_map<const Impl*, std::string> numbers;
    for (std::size_t i = 0; i < parameters.size(); ++i)
        numbers.emplace(parameters[i].impl().get(), std::to_string(i));
    Tree state = tree["state"];
    bool gets_tensors = true;
    for (FlatParameter* const buffer : buffers) {
        gets_tensors = gets_tensors && !(options.rank0_only && buffer->rank() != 0);
        // The names of the buffers in the optimizer's state. A name is included if at least one
        // parameter has the buffer. Numbers such as the step count are left out, because they are
        // equal on all ranks. All ranks have the same names.
        std::vector<std::string> names;
        const auto tensor_of = [&](const FlatParameter::Member& member,
                                   const std::string& name) -> const Tree* {
            const auto number = numbers.find(member.handle.impl().get());
            if (number == numbers.end()) return nullptr;
            const Tree* const entry = tree["state"].find(number->second);
            return entry == nullptr ? nullptr : entry->find(name);
        };
        for (const FlatParameter::Member& member : buffer->members()) {
            const auto number = numbers.find(member.handle.impl().get());
            if (number == numbers.end()) continue;
            const Tree* const entry = tree["state"].find(number->second);
            if (entry == nullptr) continue;
            for (const auto& [name, value] : entry->entries())
                if (value.tensor().dim() > 0 && std::ranges::find(names, name) == names.end())
                    names.push_back(name);
        }
        for (const std::string& name : names) {
            Tensor part;
            for (const FlatParameter::Member& member : buffer->members()) {
                const Tree* const value = tensor_of(member, name);
                if (value == nullptr) continue;
                if (!part.defined())
                    part = zeros({buffer->part_size()}, {.dtype = value->tensor().dtype(),
                                                         .device = buffer->part().device()});
                part.narrow(0, member.in_part, member.local.numel()).copy_(value->tensor());
            }
            gather_members(*buffer, part, options,
                           [&](const FlatParameter::Member& member, const Tensor& whole) {
                               if (tensor_of(member, name) == nullptr) return;
                               const std::string& number = numbers.at(member.handle.impl().get());
                               Tree entry = state[number];
                               entry.set(name, whole);
                               state.set(number, std::move(entry));
                           });
        }
    }
    tree.set("state", gets_tensors ? std::move(state) : Tree::map());
    gather_slices(tree, parameters, options);
    return tree;
}

nn::StateDict whole_gradients(const nn::Module& model) {
    const NoGrad no_grad;
    nn::StateDict gradients;
    std::unordered_map<const Impl*, Tensor> reduced;
    for (FlatParameter* const buffer : buffers_of(model.parameters())) {
        Tensor part;
        for (const FlatParameter::Member& member : buffer->members()) {
            const Tensor own = member.local.grad();
            if (!own.defined()) continue;
            if (!part.defined())
                part = zeros({buffer->part_size()}, {.dtype = own.dtype(), .device = own.device()});
            part.narrow(0, member.in_part, own.numel()).copy_(own);
        }
        if (!part.defined()) continue;
        gather_members(*buffer, part, {.rank0_only = false, .offload_to_cpu = false},
                       [&](const FlatParameter::Member& member, const Tensor& whole) {
                           if (member.local.grad().defined())
                               reduced.emplace(member.handle.impl().get(), whole);
                       });
    }
    for (const auto& [name, parameter] : model.named_parameters()) {
        Tensor sum = autograd::pending_gradient(parameter);
        if (const auto found = reduced.find(parameter.impl().get()); found != reduced.end())
            sum = sum.defined() ? sum + found->second : found->second;
        if (!sum.defined()) continue;
        if (const auto slice = autograd::slice_of(parameter)) sum = slice->gather(sum);
        gradients.emplace_back(name, sum);
    }
    return gradients;
}

void set_whole_gradients(const nn::Module& model, const std::map<std::string, Tensor>& gradients) {
    for (const auto& [name, parameter] : model.named_parameters()) {
        parameter.zero_grad();
        if (const auto found = gradients.find(name); found != gradients.end())
            autograd::set_pending_gradient(
                parameter, autograd::slice_for(parameter, found->second).to(parameter.device()));
    }
}

}  // namespace axle::dist
