// Implements the functions of StateFiles for sharded models and their optimizers.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "accel/prepare/pipeline_model.h"
#include "accel/state/state_files.h"
#include "core/autograd/local_part.h"
#include "core/autograd/tensor_slice.h"
#include "dist/sharding/full_state.h"
#include "dist/sharding/sharded_state.h"

namespace axle::accel {
namespace {

// Returns whether the optimizer's state can be saved in parts.
bool is_sharded(optim::Optimizer& optimizer) {
    const std::vector<Tensor> parameters = optimizer.parameters();
    return std::ranges::any_of(parameters, autograd::is_sharded) &&
           std::ranges::none_of(parameters, [](const Tensor& parameter) {
               return autograd::slice_of(parameter) != nullptr;
           });
}

// Returns the new numbers of the models that are saved in parts, after hooks have changed
// `weights`. The number of a model whose (empty) weights were removed is -1. Throws UsageError if
// the weights of some of these models, but not of all, were removed, because empty weights are
// indistinguishable.
Tree new_numbers(const std::vector<bool>& in_parts, const std::vector<nn::StateDict>& weights) {
    const auto count = static_cast<std::size_t>(std::ranges::count(in_parts, true));
    const bool keeps_positions = weights.size() == in_parts.size();
    Tree numbers = Tree::list();
    for (std::size_t i = 0; i < weights.size(); ++i)
        if (keeps_positions ? in_parts[i] : weights[i].empty())
            numbers.push_back(static_cast<std::int64_t>(i));
    if (!numbers.empty() && numbers.size() != count)
        throw UsageError(
            str("save_state: hooks must keep or remove the weights of all models that are saved in "
                "parts: ",
                count, " models are saved in parts, and ", numbers.size(),
                " empty weights remain; use StateDictType::full"));
    while (numbers.size() < count) numbers.push_back(-1);
    return numbers;
}

}  // namespace

// Gathers the states of models and optimizers on the main process or, with save_on_each_node, on
// all processes. If `in_parts` is true, adds this process's parts of sharded models and their
// optimizers instead, unless tensor parallelism also divides them.
void StateFiles::gather(GatheredStates& states, bool in_parts) const {
    const dist::FullStateOptions full{.rank0_only = !project_.save_on_each_node};
    const bool is_main = processes_.is_main_process();
    std::vector<Tree> own;  // states of the optimizers; null if saved in parts
    together("save_state", [&] {
        for (std::size_t i = 0; i < prepared_.models().size(); ++i) {
            const nn::Module& model = *prepared_.models()[i];
            // Divided models (tensor parallel) are always saved as whole tensors.
            states.model_in_parts.push_back(in_parts && dist::is_sharded(model) &&
                                            !dist::has_slices(model));
            if (states.model_in_parts.back())
                states.parts.emplace_back(folder_of_model(i), dist::sharded_state(model, is_main));
        }
        for (std::size_t i = 0; i < prepared_.optimizers().size(); ++i) {
            optim::Optimizer& optimizer = *prepared_.optimizers()[i];
            states.optimizer_in_parts.push_back(in_parts && is_sharded(optimizer));
            own.push_back(states.optimizer_in_parts.back() ? Tree() : optimizer.state_dict());
            if (states.optimizer_in_parts.back())
                states.parts.emplace_back(folder_of_optimizer(i),
                                          dist::sharded_state(optimizer, is_main));
        }
    });
    for (std::size_t i = 0; i < prepared_.models().size(); ++i) {
        const nn::Module& model = *prepared_.models()[i];
        if (states.model_in_parts[i])
            states.weights.emplace_back();
        else if (const dist::Pipeline* const pipeline = find_pipeline(prepared_, model))
            states.weights.push_back(pipeline->full_state_dict(full));
        else
            states.weights.push_back(dist::full_state_dict(model, full));
    }
    for (std::size_t i = 0; i < prepared_.optimizers().size(); ++i) {
        optim::Optimizer& optimizer = *prepared_.optimizers()[i];
        if (states.optimizer_in_parts[i])
            states.optimizers.emplace_back();
        else if (const dist::Pipeline* const pipeline =
                     find_pipeline(prepared_, optimizer.parameters()))
            states.optimizers.push_back(pipeline->full_state_dict(optimizer, full));
        else
            states.optimizers.push_back(dist::full_state_dict(optimizer, std::move(own[i]), full));
    }
}

// Sets the number of each model that is saved in parts to the position of its empty weights on the
// main process after the hooks. Drops the parts of models whose empty weights the hooks have
// removed.
void StateFiles::renumber_models(GatheredStates& states) const {
    const std::vector<bool> in_parts =
        std::exchange(states.model_in_parts, std::vector<bool>(states.weights.size()));
    if (std::ranges::count(in_parts, true) == 0) return;
    const std::vector<Tree> all =
        dist::gather_or_throw(*processes_.process_group(), "save_state", [&] {
            return processes_.is_main_process() ? new_numbers(in_parts, states.weights) : Tree();
        });
    const Tree& numbers = all.front();
    for (std::size_t i = numbers.size(); i-- > 0;) {
        const std::int64_t number = numbers[i].integer();
        if (number < 0) {
            states.parts.erase(states.parts.begin() + static_cast<std::ptrdiff_t>(i));
            continue;
        }
        const auto place = static_cast<std::size_t>(number);
        states.parts[i].first = folder_of_model(place);
        // Other processes write no weights, so they can have fewer.
        if (place < states.model_in_parts.size()) states.model_in_parts[place] = true;
    }
}

// Opens the folders of models and optimizers that were written in parts.
void StateFiles::read_parts(LoadedState& state) const {
    const StateFolder& folder = *state.folder;
    state.model_parts.resize(state.models.size());
    state.optimizer_parts.resize(prepared_.optimizers().size());
    for (std::size_t i = 0; i < state.model_parts.size(); ++i)
        if (folder.has_parts(folder_of_model(i)))
            state.model_parts[i] = folder.parts(folder_of_model(i));
    for (std::size_t i = 0; i < state.optimizer_parts.size(); ++i)
        if (folder.has_parts(folder_of_optimizer(i)))
            state.optimizer_parts[i] = folder.parts(folder_of_optimizer(i));
}

}  // namespace axle::accel
