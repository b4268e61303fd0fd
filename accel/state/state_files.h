// Private to accel: saves the state of a training run as a checkpoint, and loads it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "accel/config/project.h"
#include "accel/loop/loop_state.h"
#include "accel/prepare/preparation.h"
#include "accel/process/partial_state.h"
#include "accel/state/background_save.h"
#include "accel/state/checkpoint.h"
#include "accel/state/checkpointable.h"
#include "accel/state/folder_owner.h"
#include "accel/state/state_contents.h"
#include "accel/state/state_folder.h"
#include "accel/state/state_hooks.h"
#include "accel/state/state_options.h"
#include "core/autograd/hook_list.h"
#include "core/random.h"
#include "dist/group/shared_error.h"

namespace axle::accel {

// Saves and loads the prepared and registered objects, the state of replicas, the loss scale,
// random states, the accumulation state and, between two updates, gradients. All processes must
// call save() and load() together; an error on one process is thrown on all processes. Refers to
// the prepared objects and to the state of the loop.
class StateFiles {
  public:
    StateFiles(ProjectConfiguration project, const PartialState& processes, Preparation& prepared,
               LoopState& loop)
        : project_(std::move(project)), processes_(processes), prepared_(prepared), loop_(loop) {}

    const ProjectConfiguration& project() const { return project_; }
    // Sets the number of the next checkpoint. Throws ValueError if it is negative.
    void set_iteration(std::int64_t iteration);

    // Adds an object to the checkpoints. `state` saves and loads the object; `object` is its
    // address; an object that is already registered is ignored.
    void add_object(const void* object, std::shared_ptr<Checkpointable> state);
    HookList<SaveStatePreHook>& save_hooks() { return save_hooks_; }
    HookList<LoadStatePreHook>& load_hooks() { return load_hooks_; }

    // Sets the last steps that trackers have logged (Tracking::logged_steps). save() writes these
    // steps, and load() replaces them.
    void set_logged_steps(std::map<std::string, std::int64_t> steps) {
        logged_steps_ = std::move(steps);
    }
    const std::map<std::string, std::int64_t>& logged_steps() const { return logged_steps_; }

    // Sets the type that save() uses by default.
    void set_state_dict_type(StateDictType type) { state_dict_type_ = type; }

    // Implement Accelerator::save_state() and load_state().
    std::string save(const std::string& output_dir, const SaveStateOptions& options);
    std::string load(const std::string& input_dir, const LoadStateOptions& options);
    // Implements Accelerator::wait_for_saves().
    void wait();

  private:
    struct Registered {
        const void* object;
        std::shared_ptr<Checkpointable> state;
    };
    // The states that all processes have gathered for a checkpoint: states of models, optimizers
    // and registered objects. `own` has the result of own_state() of each process.
    struct GatheredStates {
        std::vector<nn::StateDict> weights;
        std::vector<Tree> optimizers, custom, own;
        // Whether the elements of `weights` and of `optimizers` are saved in parts instead. Before
        // renumber_models(), model_in_parts has one element for each prepared model.
        std::vector<bool> model_in_parts, optimizer_in_parts;
        // The parts of this process, those of models first.
        std::vector<std::pair<std::string, dist::ShardedState>> parts;
    };
    // The contents of a checkpoint. Before any object changes, they are read or, if they were
    // written in parts, compared with the objects.
    struct LoadedState {
        std::unique_ptr<const StateFolder> folder;
        std::vector<nn::Module*> models;     // without the models that hooks have removed
        std::vector<nn::StateDict> weights;  // the weights of each of `models`
        // The weights of each of `models`, and the states of the optimizers, if they were written
        // in parts.
        std::vector<std::optional<ShardedFolder>> model_parts, optimizer_parts;
        std::string mismatch;  // the error if these parts do not match the objects, else empty
        std::vector<std::map<std::string, Tensor>> gradients;
        std::vector<Tree> optimizers, schedulers, loaders, custom;
        Tree scaler;
        std::optional<GeneratorState> generator;
        std::int64_t step = 0;
        bool sync_gradients = true;
        std::int64_t window = 0;
        std::map<std::string, std::int64_t> logged_steps;
        // The states of the gradient division of the processes that saved one.
        std::vector<Tree> divisions;
        // The states of the replicas of each model (DataParallel::state_dict); an empty map for a
        // model without such a state.
        std::vector<Tree> replicas;
        bool has_own_replicas = false;  // whether the same number of processes saved them
    };

    std::string next_directory(const std::string& output_dir);
    std::vector<std::string> newest_directories(bool skip_damaged) const;
    void check_identity(const LoadedState& state, const LoadStateOptions& options) const;
    Tree own_state() const;
    void run_save_hooks(std::vector<nn::StateDict>& weights, const std::string& directory) const;
    StateContents contents(GatheredStates states, bool writes, std::optional<double> metric) const;
    void save_in_background(StateContents contents, std::unique_ptr<CheckpointWriter> writer,
                            const std::string& path, const std::string& directory);
    void gather(GatheredStates& states, bool in_parts) const;
    void renumber_models(GatheredStates& states) const;
    void read_parts(LoadedState& state) const;
    LoadedState read(const std::string& directory, bool strict) const;
    void read_own(LoadedState& state) const;
    void read_replicas(LoadedState& state) const;
    void load_replicas(const LoadedState& state) const;
    Tree replica_state() const;
    void apply(const LoadedState& state, bool strict);
    // Calls f on each process. An exception on one process is thrown on all processes.
    template <class F>
    void together(const char* op, F&& f) const;

    ProjectConfiguration project_;
    const PartialState& processes_;
    Preparation& prepared_;
    LoopState& loop_;
    StateDictType state_dict_type_ = StateDictType::full;
    std::string run_ = new_run_id();            // save() uses the main process's id
    std::shared_ptr<const FolderOwner> owner_;  // for automatic names; nullptr before the first use
    std::vector<Registered> custom_;
    std::map<std::string, std::int64_t> logged_steps_;
    HookList<SaveStatePreHook> save_hooks_;
    HookList<LoadStatePreHook> load_hooks_;
    Staging staging_;  // memory for the background save
    // The group of the background saves of all processes, created by the first save in parts.
    std::shared_ptr<dist::ProcessGroup> background_group_;
    BackgroundSave background_;
};

template <class F>
void StateFiles::together(const char* op, F&& f) const {
    dist::gather_or_throw(*processes_.process_group(), op, [&] {
        f();
        return Tree();
    });
}

}  // namespace axle::accel
