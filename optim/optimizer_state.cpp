// Saves and loads an optimizer in the layout of PyTorch's state_dict.
#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/autograd/autograd.h"
#include "core/autograd/local_part.h"
#include "core/autograd/tensor_slice.h"
#include "core/ops.h"
#include "optim/optimizer.h"
#include "optim/optimizer_private.h"

namespace axle::optim {
namespace {

constexpr const char* kStochastic = "stochastic_rounding";
constexpr const char* kSeed = "rounding_seed";

Tree to_tree(double value) { return value; }
Tree to_tree(bool value) { return value; }
Tree to_tree(std::int64_t value) { return value; }
template <std::size_t N>
Tree to_tree(const std::array<double, N>& values) {
    Tree list = Tree::list();
    for (const double value : values) list.push_back(value);
    return list;
}
Tree to_tree(const NamedOption::PartialPair& value) {
    return Tree::list({value.first ? Tree(*value.first) : Tree(), value.second});
}
Tree to_tree(const NamedOption::Text& value) { return value ? Tree(*value) : Tree(); }
Tree to_tree(const NamedOption::Number& value) { return value ? Tree(*value) : Tree(); }

void from_tree(const Tree& tree, double& value) { value = tree.number(); }
void from_tree(const Tree& tree, bool& value) { value = tree.boolean(); }
void from_tree(const Tree& tree, std::int64_t& value) { value = tree.integer(); }
template <std::size_t N>
void from_tree(const Tree& tree, std::array<double, N>& values) {
    for (std::size_t i = 0; i < N; ++i) values[i] = tree[i].number();
}
void from_tree(const Tree& tree, NamedOption::PartialPair& value) {
    value.first = tree[0].is_null() ? std::nullopt : std::optional(tree[0].number());
    value.second = tree[1].number();
}
void from_tree(const Tree& tree, NamedOption::Text& value) {
    value = tree.is_null() ? std::nullopt : std::optional(tree.string());
}
void from_tree(const Tree& tree, NamedOption::Number& value) {
    value = tree.is_null() ? std::nullopt : std::optional(tree.number());
}

// Returns a saved number, such as a step count, as a 0-d tensor. Files of older PyTorch versions
// contain a number that is not a tensor. Throws ShapeError if a tensor does not have one element.
Tensor number_tensor(const char* optimizer, const char* name, const Tree& tree,
                     const TensorOptions& options) {
    if (tree.is_tensor()) {
        if (tree.tensor().numel() != 1)
            throw ShapeError(str(optimizer, ": load_state_dict: ", name,
                                 " must have one element: it is ", tree.tensor().shape()));
        return clone(tree.tensor().to(options.dtype).to(options.device)).reshape({});
    }
    return full({}, tree.number(), options);
}

}  // namespace

Tree Optimizer::state_dict() {
    before_access();
    Tree state = Tree::map(), groups = Tree::list();
    std::int64_t index = 0;
    for (std::size_t g = 0; g < group_count(); ++g) {
        groups.push_back(group_tree(g, index));
        for (const Tensor& param : group(g).params) {
            if (const ParamState* s = this->state(param))
                if (Tree tree = state_tree(*s, saves_step() || group(g).stochastic_rounding);
                    !tree.empty())
                    state.set(std::to_string(index), std::move(tree));
            ++index;
        }
    }
    if (Tree own = own_state(); !own.empty()) state.set("0", std::move(own));
    return {{"state", std::move(state)}, {"param_groups", std::move(groups)}};
}

Tree Optimizer::own_state() const { return Tree::map(); }

Tree Optimizer::group_tree(std::size_t index, std::int64_t first_param) {
    Tree tree = Tree::map();
    for (const NamedOption& option : options(index))
        tree.set(option.name,
                 std::visit([](auto* value) { return to_tree(*value); }, option.value));
    const GroupRef g = group(index);
    if (g.initial_lr) tree.set("initial_lr", *g.initial_lr);
    if (g.stochastic_rounding) tree.set(kStochastic, true);
    if (g.stochastic_rounding && g.rounding_seed)
        tree.set(kSeed, static_cast<std::int64_t>(*g.rounding_seed));
    Tree params = Tree::list();
    for (std::size_t i = 0; i < g.params.size(); ++i)
        params.push_back(first_param + static_cast<std::int64_t>(i));
    tree.set("params", std::move(params));
    return tree;
}

// Returns the state of a parameter as a map, which is empty if all steps so far were skipped.
Tree Optimizer::state_tree(const ParamState& state, bool with_step) const {
    Tree tree = Tree::map();
    if (state.step.item() == 0) return tree;
    if (with_step) tree.set("step", state.step);
    for (std::size_t b = 0; b < buffer_names().size(); ++b)
        if (state.buffers[b].defined()) tree.set(buffer_names()[b], state.buffers[b]);
    return tree;
}

void Optimizer::load_state_dict(const Tree& tree) {
    before_access();
    const NoGrad no_grad;
    const Tree& groups = tree["param_groups"];
    const Tree& saved = tree["state"];
    if (groups.size() != group_count())
        throw ValueError(str(name(), ": load_state_dict: the number of groups differs: ",
                             groups.size(), " in the state, ", group_count(), " in the optimizer"));
    std::unordered_map<const Impl*, ParamState> states;
    for (std::size_t g = 0; g < group_count(); ++g) {
        const Tree& ids = groups[g]["params"];
        const std::vector<Tensor>& params = group(g).params;
        if (ids.size() != params.size())
            throw ValueError(str(name(), ": load_state_dict: the size of group ", g,
                                 " differs: ", ids.size(), " parameters in the state, ",
                                 params.size(), " in the optimizer"));
        for (std::size_t i = 0; i < params.size(); ++i) {
            const Tree* state = saved.find(std::to_string(ids[i].integer()));
            if (state && !state->empty() && !has_own_state())
                states[params[i].impl().get()] = load_state(params[i], g, *state);
        }
    }
    std::vector<std::function<void()>> writes;
    for (std::size_t g = 0; g < group_count(); ++g) read_options(g, groups[g], writes);
    if (has_own_state())
        if (const Tree* own = saved.find("0")) load_own_state(*own);
    for (const std::function<void()>& write : writes) write();
    private_->states = std::move(states);
}

// Reads the options of a group and appends functions that set them. The caller runs the functions
// after all groups were read without errors.
void Optimizer::read_options(std::size_t index, const Tree& tree,
                             std::vector<std::function<void()>>& writes) {
    for (const NamedOption& option : options(index)) {
        const Tree* saved = tree.find(option.name);
        if (!saved) continue;
        const auto read = [&](auto* target) {
            auto value = *target;
            from_tree(*saved, value);
            writes.emplace_back([target, value] { *target = value; });
        };
        std::visit(read, option.value);
    }
    if (const Tree* saved = tree.find("initial_lr"))
        writes.emplace_back(
            [group = this->group(index), value = saved->number()] { group.initial_lr = value; });
    if (const Tree* saved = tree.find(kStochastic))
        writes.emplace_back([group = this->group(index), value = saved->boolean()] {
            group.stochastic_rounding = value;
        });
    if (const Tree* saved = tree.find(kSeed))
        writes.emplace_back([group = this->group(index), value = saved->integer()] {
            group.rounding_seed = static_cast<std::uint64_t>(value);
        });
}

ParamState Optimizer::load_state(const Tensor& param, std::size_t group, const Tree& tree) const {
    const Device device = autograd::local_part(param).device();
    ParamState state;
    const bool has_step = saves_step() || tree.contains("step");
    state.step = number_tensor(name(), "step", has_step ? tree["step"] : Tree(1),
                               {.dtype = f32, .device = device});
    for (std::size_t b = 0; b < buffer_names().size(); ++b) {
        const DType dtype = buffer_dtype(autograd::local_part(param), b);
        const Tree* saved = tree.find(buffer_names()[b]);
        if (saved && !saved->is_null() && is_number(b)) {
            state.buffers[b] = number_tensor(name(), buffer_names()[b], *saved,
                                             {.dtype = dtype, .device = device});
            continue;
        }
        // A saved buffer of a sharded parameter has the shape of the whole parameter or of its
        // local part.
        const std::optional<Shape> shape = buffer_shape(param, group, b);
        if (!saved || saved->is_null() || !shape) continue;
        Tensor buffer = saved->tensor();
        const Tensor part = autograd::local_part(param);
        if (param.shape() == *shape) buffer = autograd::slice_for(param, buffer);
        if (autograd::is_sharded(param) && buffer.shape() == *shape)
            buffer = autograd::local_part_of(param, buffer);
        else if (buffer.shape() != (autograd::is_sharded(param) ? part.shape() : *shape))
            throw ShapeError(str(name(), ": load_state_dict: ", buffer_names()[b], " must be ",
                                 *shape, " for a parameter of shape ", param.shape(), ", not ",
                                 buffer.shape()));
        state.buffers[b] = new_buffer(buffer.shape(), dtype, device);
        state.buffers[b].copy_(buffer);
    }
    return state;
}

}  // namespace axle::optim
