// Accelerator::save_state, and what is registered for it.
#include <algorithm>
#include <filesystem>

#include "accel/process/accelerator_state.h"
#include "accel/state/saved_state.h"
#include "core/files/file.h"
#include "core/files/safetensors.h"
#include "core/profiler/profiler.h"

namespace axle::inline v0::accel {
namespace {

namespace fs = std::filesystem;

// The gradients that there are, by the name of their parameter.
nn::StateDict gradients_of(const nn::Module& model) {
    nn::StateDict gradients;
    for (const auto& [name, parameter] : model.named_parameters())
        if (const Tensor grad = parameter.grad(); grad.defined())
            gradients.emplace_back(name, grad);
    return gradients;
}

// A registered module.
class ModuleState : public Checkpointable {
  public:
    explicit ModuleState(nn::Module& module) : module_(module) {}
    Tree state_dict() const override {
        Tree state = Tree::map();
        for (const auto& [name, tensor] : module_.saved_state()) state.set(name, tensor);
        return state;
    }
    void load_state_dict(const Tree& state) override {
        nn::StateDict tensors;
        for (const auto& [name, tensor] : state.entries())
            tensors.emplace_back(name, tensor.tensor());
        module_.load_state_dict(tensors);
    }

  private:
    nn::Module& module_;
};

}  // namespace

bool Accelerator::is_registered(const void* object) const {
    return std::any_of(custom_.begin(), custom_.end(),
                       [&](const Registered& known) { return known.object == object; });
}

std::shared_ptr<Checkpointable> Accelerator::state_of(nn::Module& module) {
    return std::make_shared<ModuleState>(module);
}

void Accelerator::register_for_checkpointing(const std::vector<Checkpointable*>& objects) {
    std::string nulls;
    for (std::size_t i = 0; i < objects.size(); ++i)
        if (objects[i] == nullptr) nulls += str(nulls.empty() ? "" : ", ", i);
    if (!nulls.empty())
        throw ValueError(
            str("register_for_checkpointing: every object needs a state_dict and a "
                "load_state_dict; null are those at index ",
                nulls));
    for (Checkpointable* object : objects) register_one(*object);
}

HookHandle Accelerator::register_save_state_pre_hook(SaveStatePreHook hook) {
    return hooks_->save.add(std::move(hook));
}

void Accelerator::set_save_iteration(std::int64_t iteration) {
    if (iteration < 0)
        throw ValueError(str("set_save_iteration: a number is not negative: ", iteration));
    project_.iteration = iteration;
}

// What every process has of its own.
Tree Accelerator::own_state() const {
    // As text: a seed has 64 bits, a JSON integer one less.
    const GeneratorState random = generator_state();
    const bool is_between = !state_->sync_gradients && !state_->is_to_drop();
    Tree random_states{{"seed", std::to_string(random.seed)},
                       {"offset", std::to_string(random.offset)},
                       {"step", state_->is_to_drop() ? 0 : state_->step},
                       {"sync_gradients", !is_between},
                       {"window", state_->window}};
    // Between two updates, what has been accumulated is state as well.
    if (is_between) random_states.set("weights", state_->division.state(models_, optimizers_));
    Tree own{{"random_states", std::move(random_states)}};
    Tree gradients = Tree::list();
    for (std::size_t i = 0; i < models_.size() && is_between; ++i) {
        gradients.push_back(Tree::map());
        for (const auto& [name, gradient] : gradients_of(*models_[i]))
            gradients.elements().back().set(name, gradient);
    }
    own.set("gradients", std::move(gradients));
    return own;
}

void Accelerator::write_state(CheckpointWriter& writer, const std::vector<nn::StateDict>& weights,
                              const std::vector<Tree>& own, const std::vector<Tree>& custom) const {
    const auto save_tensors = [&](const std::string& stem, const NamedTensors& tensors) {
        save_safetensors(writer.directory() + "/" + stem + ".safetensors", tensors,
                         {{"format", "pt"}});
    };
    for (std::size_t i = 0; i < weights.size(); ++i) save_tensors(numbered("model", i), weights[i]);
    for (std::size_t i = 0; i < optimizers_.size(); ++i)
        writer.write(numbered("optimizer", i), optimizers_[i]->state_dict());
    for (std::size_t i = 0; i < schedulers_.size(); ++i)
        writer.write(numbered("scheduler", i), schedulers_[i]->state_dict());
    for (std::size_t i = 0; i < loaders_.size(); ++i)
        writer.write(numbered("dl_state_dict", i), loaders_[i]->state_dict());
    if (state_->scaling) writer.write("scaler", state_->scaling->scaler().state_dict());
    for (std::size_t i = 0; i < custom.size(); ++i)
        writer.write(str("custom_checkpoint_", i), custom[i]);
    for (std::size_t rank = 0; rank < own.size(); ++rank) {
        writer.write(str("random_states_", rank), own[rank]["random_states"]);
        const Tree& gradients = own[rank]["gradients"];
        for (std::size_t i = 0; i < gradients.size(); ++i) {
            NamedTensors tensors;
            for (const auto& [name, gradient] : gradients[i].entries())
                tensors.emplace_back(name, gradient.tensor());
            save_tensors(gradients_stem(i, rank), tensors);
        }
    }
    writer.commit(project_.iteration);
}

// Where the next state is written, by who writes; the main process's path and number count for all.
std::string Accelerator::next_state(const std::string& output_dir) {
    const bool automatic = project_.automatic_checkpoint_naming;
    const auto named = [&] {
        return (fs::path(project_.project_dir) / "checkpoints" /
                str("checkpoint_", project_.iteration))
            .string();
    };
    dist::ProcessGroup& group = *processes_.process_group();
    const bool each_node = project_.save_on_each_node;
    const Tree main = group.broadcast_object(
        Tree{{"path", automatic ? named() : output_dir}, {"iteration", project_.iteration}});
    project_.iteration = main["iteration"].integer();
    if (main["path"].string().empty())
        throw ValueError("save_state: no directory is given, nor automatic_checkpoint_naming");
    std::error_code ignored;
    const std::vector<Tree> there =
        group.all_gather_object(automatic && fs::exists(fs::symlink_status(named(), ignored)));
    const auto exists = [](const Tree& on_one) { return on_one.boolean(); };
    // One that only some machines have is of a save that was cut off: it is replaced.
    if (each_node ? std::all_of(there.begin(), there.end(), exists) : exists(there.front()))
        throw ValueError(str("save_state: ", printable(main["path"].string()),
                             " exists already; load_state() goes on behind the newest, and "
                             "set_save_iteration() says another number than ",
                             project_.iteration));
    if (!each_node) return main["path"].string();
    return automatic ? named() : output_dir;
}

void Accelerator::run_save_hooks(std::vector<nn::StateDict>& weights,
                                 const std::string& directory) const {
    for (const SaveStatePreHook& hook : hooks_->save.all())
        together("save_state", [&] { hook(models_, weights, directory); });
}

std::string Accelerator::save_state(const std::string& output_dir, SaveStateOptions options) {
    if (!options.safe_serialization)
        throw UsageError(
            "save_state: safe_serialization = false is not there: pickles are read, not written; "
            "PyTorch reads safetensors files too");
    const profiler::Scope scope("save_state", profiler::Category::io);
    dist::ProcessGroup& group = *processes_.process_group();
    const std::string path = next_state(output_dir);
    const bool each_node = project_.save_on_each_node;
    const bool writes = is_saving_process(processes_, each_node);
    const std::vector<Tree> own =
        each_node ? group.all_gather_object(own_state()) : group.gather_object(own_state());
    std::vector<Tree> custom;
    for (const Registered& object : custom_)  // one by one: each may talk to the others
        together("save_state", [&] { custom.push_back(object.state->state_dict()); });

    std::unique_ptr<CheckpointWriter> writer;
    together("save_state", [&] {
        if (writes) writer = std::make_unique<CheckpointWriter>(path);
    });
    const std::vector<Tree> places = group.all_gather_object(
        Tree{{"directory", writer ? Tree(writer->directory()) : Tree()},
             {"writer", each_node ? process_index() - local_process_index() : 0}});
    for (const Tree& place : places)
        if (const std::int64_t i = place["writer"].integer();
            i < 0 || places[static_cast<std::size_t>(i)]["directory"].is_null())
            throw UsageError(
                "save_state: save_on_each_node needs the processes of a machine one after another");
    const std::int64_t writing =
        places[static_cast<std::size_t>(process_index())]["writer"].integer();
    std::vector<nn::StateDict> weights;
    for (const nn::Module* model : models_) weights.push_back(model->saved_state());
    run_save_hooks(weights, places[static_cast<std::size_t>(writing)]["directory"].string());
    together("save_state", [&] {
        if (writer) write_state(*writer, weights, own, custom);
    });
    ++project_.iteration;
    // Not before it is whole on every machine, which load_state() looks for.
    if (project_.automatic_checkpoint_naming && project_.total_limit)
        together("save_state", [&] {
            if (writer)
                rotate_checkpoints(fs::path(path).parent_path().string(),
                                   static_cast<std::size_t>(*project_.total_limit), path);
        });
    return path;
}

}  // namespace axle::inline v0::accel
