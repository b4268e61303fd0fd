#include "dist/sharding/sharded_state.h"

#include <charconv>
#include <set>
#include <system_error>
#include <utility>

#include "core/autograd/autograd.h"
#include "core/autograd/local_part.h"
#include "core/autograd/tensor_slice.h"
#include "core/ops.h"
#include "dist/group/shared_error.h"
#include "dist/sharding/flat_parameter.h"

namespace axle::dist {
namespace {

// Returns whether this rank stores its part of the parameter. If several replicas have the same
// part of a sharded parameter, replica 0 stores it. The main rank stores parameters that are not
// sharded.
bool stores(const Tensor& parameter, bool is_main) {
    if (!autograd::is_sharded(parameter)) return is_main;
    const auto* const buffer =
        dynamic_cast<const FlatParameter*>(parameter.impl()->storage->provider());
    return buffer == nullptr || buffer->replica() == 0;
}

// Returns the part of a parameter, or of a buffer of its state, that this rank stores.
TensorPart part_of(std::string name, const Tensor& parameter, const Tensor& values) {
    return {.name = std::move(name),
            .shape = parameter.shape(),
            .begin = autograd::local_begin(parameter),
            .values = values.detach().reshape({-1})};
}

// Returns whether a value in the state of a parameter is a single number, such as a step count. All
// ranks have this number. The 0-d values of a 0-d parameter that is not sharded are buffers
// instead.
bool is_number(const Tensor& value, const Tensor& parameter) {
    return value.dim() == 0 && (autograd::is_sharded(parameter) || parameter.dim() > 0);
}

// Throws ShapeError unless the parameter has the shape of the saved tensor.
void check_shape(const ShardedFolder& folder, const std::string& name, const Tensor& parameter) {
    const Shape& saved = folder.entries().at(name).shape;
    if (saved != autograd::whole_shape(parameter))
        throw ShapeError(str("load_sharded: ", name, " is ", autograd::whole_shape(parameter),
                             " in the model and ", saved, " in ", printable(folder.path())));
}

// Returns the elements of a parameter, or of a buffer of its state, that this rank stores.
Tensor read_part(const ShardedFolder& folder, const std::string& name, const Tensor& parameter) {
    if (autograd::slice_of(parameter) != nullptr)
        return autograd::local_part_of(parameter, folder.read(name));
    if (!autograd::is_sharded(parameter)) return folder.read(name);
    return folder.read(name, autograd::local_begin(parameter),
                       autograd::local_part(parameter).numel());
}

// Checks the shape and the bytes of the elements that read_part() returns.
void check_part(const ShardedFolder& folder, const std::string& name, const Tensor& parameter) {
    check_shape(folder, name, parameter);
    if (autograd::slice_of(parameter) != nullptr)
        folder.verify(name, 0, numel(autograd::whole_shape(parameter)));
    else
        folder.verify(name, autograd::local_begin(parameter),
                      autograd::local_part(parameter).numel());
}

std::string list_names(const std::set<std::string>& names) {
    std::string text;
    std::size_t count = 0;
    for (const std::string& name : names) {
        if (count++ == 8) return text + ", ...";
        text += (text.empty() ? "" : ", ") + printable(name);
    }
    return text.empty() ? "none" : text;
}

}  // namespace

ShardedState sharded_state(const nn::Module& model, bool is_main) {
    ShardedState state;
    std::set<const Impl*> seen;
    for (const auto& [name, tensor] : model.state_dict({.keep_vars = true}))
        if (seen.insert(tensor.impl().get()).second && stores(tensor, is_main))
            state.parts.push_back(part_of(name, tensor, autograd::local_part(tensor)));
    return state;
}

ShardedState sharded_state(optim::Optimizer& optimizer, bool is_main) {
    ShardedState state;
    const Tree tree = optimizer.state_dict();
    Tree steps = Tree::map(), numbers = Tree::map();
    std::size_t number = 0;
    for (const Tensor& parameter : optimizer.parameters()) {
        const std::string key = std::to_string(number++);
        const Tree* const entry = tree["state"].find(key);
        if (entry == nullptr) continue;
        Tree own_numbers = Tree::map();
        for (const auto& [name, value] : entry->entries()) {
            if (name == "step")
                steps.set(key, value.tensor().item());
            else if (is_number(value.tensor(), parameter))
                own_numbers.set(name, value.tensor().item());
            else if (stores(parameter, is_main))
                state.parts.push_back(part_of(str(key, ".", name), parameter, value.tensor()));
        }
        if (!entry->contains("step")) steps.set(key, nullptr);
        if (!own_numbers.empty()) numbers.set(key, std::move(own_numbers));
    }
    state.extra = {{"param_groups", tree["param_groups"]}, {"steps", std::move(steps)}};
    if (!numbers.empty()) state.extra.set("numbers", std::move(numbers));
    return state;
}

void save_sharded(const std::string& folder, const ShardedState& state, ProcessGroup& group,
                  Durability durability) {
    const std::vector<Tree> entries = group.gather_object(entries_of(group.rank(), state.parts));
    gather_or_throw(group, "save_sharded", [&]() -> Tree {
        write_tensor_parts(folder, group.rank(), state.parts, durability);
        return {};
    });
    gather_or_throw(group, "save_sharded", [&]() -> Tree {
        if (group.rank() == 0) write_sharded_index(folder, entries, state.extra, durability);
        return {};
    });
}

namespace {

// Returns the tensors of a model that are in the folder, each under one of its names. If `strict`,
// throws ValueError if names are missing or unexpected.
nn::StateDict tensors_in(const ShardedFolder& folder, const nn::Module& model, bool strict) {
    std::set<std::string> missing, unexpected;
    for (const auto& [name, entry] : folder.entries()) unexpected.insert(name);
    nn::StateDict tensors;
    std::set<const Impl*> found;
    const nn::StateDict own = model.state_dict({.keep_vars = true});
    for (const auto& [name, tensor] : own)
        if (unexpected.erase(name) == 1 && found.insert(tensor.impl().get()).second)
            tensors.emplace_back(name, tensor);
    for (const auto& [name, tensor] : own)
        if (!found.contains(tensor.impl().get())) missing.insert(name);
    if (strict && !(missing.empty() && unexpected.empty()))
        throw ValueError(str("load_sharded: the names in ", printable(folder.path()),
                             " differ from the model's; missing: ", list_names(missing),
                             "; unexpected: ", list_names(unexpected)));
    return tensors;
}

// A saved buffer of an optimizer. `name` is its name in the folder, `key` is the number of its
// parameter as text, and `buffer` is its name in the optimizer.
struct SavedBuffer {
    std::string name, key, buffer;
    Tensor parameter;
};

// Returns the buffers in the folder of an optimizer. Throws ValueError if a buffer or a step count
// has the number of a parameter that the optimizer does not have. Throws FileError if its key is
// not a number, or if the parameter of a buffer has no state.
std::vector<SavedBuffer> buffers_in(const ShardedFolder& folder, optim::Optimizer& optimizer) {
    const std::vector<Tensor> parameters = optimizer.parameters();
    const auto number_of = [&](const std::string& key) {
        std::size_t number = parameters.size();
        const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), number);
        if (error != std::errc() || end != key.data() + key.size())
            throw FileError(str(printable(folder.path()), ": ", in_quotes(key),
                                " is not the number of a parameter"));
        if (number >= parameters.size())
            throw ValueError(str("load_sharded: the optimizer must have the parameters in ",
                                 printable(folder.path()), ": it has ", parameters.size(),
                                 parameters.size() == 1 ? " parameter" : " parameters",
                                 ", and the folder has parameter ", number));
        return number;
    };
    const Tree& steps = folder.extra()["steps"];
    for (const auto& [key, step] : steps.entries()) static_cast<void>(number_of(key));
    std::vector<SavedBuffer> buffers;
    for (const auto& [name, ignored] : folder.entries()) {
        const std::size_t dot = name.find('.');
        const std::string key = name.substr(0, dot);
        const Tensor& parameter = parameters[number_of(key)];
        if (dot == std::string::npos || !steps.contains(key))
            throw FileError(str(printable(folder.path()), ": ", in_quotes(name),
                                " belongs to no parameter with a state"));
        buffers.push_back({name, key, name.substr(dot + 1), parameter});
    }
    return buffers;
}

}  // namespace

void check_sharded(const ShardedFolder& folder, const nn::Module& model, bool strict) {
    for (const auto& [name, tensor] : tensors_in(folder, model, strict))
        check_part(folder, name, tensor);
}

void check_sharded(const ShardedFolder& folder, optim::Optimizer& optimizer) {
    for (const SavedBuffer& saved : buffers_in(folder, optimizer))
        check_part(folder, saved.name, saved.parameter);
}

void load_sharded(const ShardedFolder& folder, nn::Module& model, bool strict) {
    const NoGrad no_grad;
    const nn::StateDict tensors = tensors_in(folder, model, strict);
    std::vector<std::pair<Tensor, Tensor>> loaded;
    for (const auto& [name, tensor] : tensors) {
        check_shape(folder, name, tensor);
        loaded.emplace_back(tensor, read_part(folder, name, tensor));
    }
    for (auto& [tensor, values] : loaded) {
        if (tensor.device().is_meta() && !autograd::is_sharded(tensor)) {
            tensor.set_data(values.to(tensor.dtype()));
            continue;
        }
        autograd::local_part(tensor).copy_(values);
        if (autograd::is_sharded(tensor)) tensor.impl()->storage->bump_version();
    }
}

void load_sharded(const ShardedFolder& folder, optim::Optimizer& optimizer) {
    const NoGrad no_grad;
    Tree state = Tree::map();
    const Tree& extra = folder.extra();
    const std::vector<SavedBuffer> buffers = buffers_in(folder, optimizer);
    for (const auto& [key, step] : extra["steps"].entries()) {
        Tree entry = Tree::map();
        if (!step.is_null()) entry.set("step", full({}, step.number(), {.dtype = f32}));
        if (const Tree* const numbers = extra.find("numbers"); numbers && numbers->contains(key))
            for (const auto& [name, value] : (*numbers)[key].entries())
                entry.set(name, full({}, value.number(), {.dtype = f64}));
        state.set(key, std::move(entry));
    }
    for (const SavedBuffer& saved : buffers) {
        check_shape(folder, saved.name, saved.parameter);
        Tree entry = state[saved.key];
        entry.set(saved.buffer, read_part(folder, saved.name, saved.parameter));
        state.set(saved.key, std::move(entry));
    }
    optimizer.load_state_dict(
        {{"state", std::move(state)}, {"param_groups", extra["param_groups"]}});
}

}  // namespace axle::dist
