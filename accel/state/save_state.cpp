#include <algorithm>
#include <filesystem>

#include "accel/prepare/pipeline_model.h"
#include "accel/state/checkpoint_folder.h"
#include "accel/state/save_model.h"
#include "accel/state/state_files.h"
#include "core/files/folder.h"
#include "core/files/safetensors.h"
#include "core/profiler/profiler.h"
#include "dist/group/shared_error.h"
#include "dist/sharding/full_state.h"
#include "kernels/failpoint.h"

namespace axle::accel {
namespace {

namespace fs = std::filesystem;

// The state of a registered module, as whole tensors.
class ModuleState : public Checkpointable {
  public:
    explicit ModuleState(nn::Module& module) : module_(module) {}
    Tree state_dict() const override {
        for (const auto& [name, tensor] : module_.state_dict({.keep_vars = true}))
            if (tensor.device().is_meta())
                throw UsageError(
                    str("save_state: a registered module can't be saved, because ", in_quotes(name),
                        " is on the meta device, like the parameters of other pipeline stages"));
        Tree state = Tree::map();
        for (const auto& [name, tensor] :
             dist::full_state_dict(module_, {.rank0_only = false, .offload_to_cpu = false}))
            state.set(name, tensor);
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

// The state of a registered optimizer, as whole tensors.
class OptimizerState : public Checkpointable {
  public:
    explicit OptimizerState(optim::Optimizer& optimizer) : optimizer_(optimizer) {}
    Tree state_dict() const override {
        return dist::full_state_dict(optimizer_, {.rank0_only = false, .offload_to_cpu = false});
    }
    void load_state_dict(const Tree& state) override { optimizer_.load_state_dict(state); }

  private:
    optim::Optimizer& optimizer_;
};

// Throws ValueError unless each process passes the same path as the process that writes its
// checkpoint. The writing process is the main process or, with save_on_each_node, the first process
// of the machine.
void check_same_directory(const std::vector<Tree>& processes, bool save_on_each_node) {
    const auto normal = [](const std::string& path) {  // ends with a slash
        return (fs::path(path) / "").lexically_normal();
    };
    for (std::size_t rank = 0; rank < processes.size(); ++rank) {
        const auto local_rank = static_cast<std::size_t>(processes[rank]["local_rank"].integer());
        const std::size_t writer = save_on_each_node ? rank - local_rank : 0;
        if (writer > rank) continue;  // save() throws an error if ranks are not consecutive
        const std::string& expected = processes[writer]["path"].string();
        const std::string& given = processes[rank]["path"].string();
        if (normal(given) != normal(expected))
            throw ValueError(str("save_state: all processes must pass the same directory: process ",
                                 writer, " passes ", in_quotes(expected), ", process ", rank,
                                 " passes ", in_quotes(given)));
    }
}

// Throws UsageError if the directory is or contains the working directory of this process.
// Replacing it by the checkpoint would leave the process in a deleted folder.
void check_keeps_working_directory(const std::string& directory) {
    const std::string path = absolute_path(directory);
    if (contains_working_directory(path))
        throw UsageError(str("save_state: ", in_quotes(directory),
                             " can't be replaced by a checkpoint, because ", printable(path),
                             " is or contains the working directory; save to a subfolder, such as ",
                             in_quotes((fs::path(directory) / "checkpoint").string())));
}

// Removes the oldest checkpoints of a run from the folder of `saved`, the newest checkpoint, until
// total_limit of them and the best ones (best_limit) remain. Does nothing without automatic names
// or total_limit.
void rotate(const ProjectConfiguration& project, const std::string& run, const std::string& saved) {
    if (!project.automatic_checkpoint_naming || !project.total_limit) return;
    AXLE_FAILPOINT("save: before the rotation");
    const std::string folder = folder_of(saved);
    check_no_link(folder);
    std::vector<std::string> kept = {saved};
    if (project.best_limit)
        for (std::string& best :
             best_checkpoints(folder, static_cast<std::size_t>(std::max(0, *project.best_limit)),
                              project.greater_is_better, run))
            kept.push_back(std::move(best));
    rotate_checkpoints(folder, static_cast<std::size_t>(std::max(1, *project.total_limit)) - 1, run,
                       kept);
}

}  // namespace

std::shared_ptr<Checkpointable> as_checkpointable(nn::Module& module) {
    return std::make_shared<ModuleState>(module);
}
std::shared_ptr<Checkpointable> as_checkpointable(optim::Optimizer& optimizer) {
    return std::make_shared<OptimizerState>(optimizer);
}

void StateFiles::add_object(const void* object, std::shared_ptr<Checkpointable> state) {
    const bool is_registered =
        std::any_of(custom_.begin(), custom_.end(),
                    [&](const Registered& known) { return known.object == object; });
    if (!is_registered) custom_.push_back({object, std::move(state)});
}

void StateFiles::set_iteration(std::int64_t iteration) {
    if (iteration < 0)
        throw ValueError(
            str("set_save_iteration: the iteration must not be negative: ", iteration));
    project_.iteration = iteration;
}

// Returns the state that each process has for itself: {"random_states" (with the counts of the
// loop), "gradients" of each model, "data_parallel": replica_state()}.
Tree StateFiles::own_state() const {
    // Seeds are stored as text, because they are unsigned 64-bit numbers, and a Tree stores
    // integers as int64.
    const GeneratorState random = generator_state();
    const Accumulation& accumulation = loop_.accumulation;
    const bool drops = accumulation.drops_window();
    const bool is_between = !accumulation.sync_gradients() && !drops;
    Tree random_states{{"seed", std::to_string(random.seed)},
                       {"offset", std::to_string(random.offset)},
                       {"step", drops ? 0 : accumulation.counts().step},
                       {"sync_gradients", !is_between},
                       {"window", accumulation.counts().window}};
    // Between two updates, the state also contains the accumulated gradients (below) and the
    // loss weights by which they are divided.
    if (is_between)
        random_states.set(
            "weights", accumulation.division().state(prepared_.models(), prepared_.optimizers()));
    Tree logged = Tree::map();
    for (const auto& [tracker, step] : logged_steps_) logged.set(tracker, step);
    if (!logged_steps_.empty()) random_states.set("logged_steps", std::move(logged));
    Tree own{{"random_states", std::move(random_states)}};
    Tree gradients = Tree::list();
    for (std::size_t i = 0; i < prepared_.models().size() && is_between; ++i) {
        gradients.push_back(Tree::map());
        for (const auto& [name, gradient] : dist::whole_gradients(*prepared_.models()[i]))
            gradients.elements().back().set(name, gradient);
    }
    own.set("gradients", std::move(gradients));
    own.set("data_parallel", replica_state());
    return own;
}

// Returns the data that this process writes to the checkpoint: the parts in `states` and, if
// `writes` is true, everything that is not saved in parts.
StateContents StateFiles::contents(GatheredStates states, bool writes,
                                   std::optional<double> metric) const {
    StateContents all;
    all.parts = std::move(states.parts);
    if (!writes) return all;
    const auto add = [&](std::string stem, Tree tree) {
        all.trees.emplace_back(std::move(stem), std::move(tree));
    };
    for (std::size_t i = 0; i < states.weights.size(); ++i)
        if (!states.model_in_parts[i])
            all.tensors.emplace_back(numbered("model", i), std::move(states.weights[i]));
    for (std::size_t i = 0; i < states.optimizers.size(); ++i)
        if (!states.optimizer_in_parts[i])
            add(numbered("optimizer", i), std::move(states.optimizers[i]));
    for (std::size_t i = 0; i < prepared_.schedulers().size(); ++i)
        add(numbered("scheduler", i), prepared_.schedulers()[i]->state_dict());
    for (std::size_t i = 0; i < prepared_.loaders().size(); ++i)
        add(numbered("dl_state_dict", i), prepared_.loaders()[i]->state_dict());
    if (loop_.scaling) add("scaler", loop_.scaling->scaler().state_dict());
    for (std::size_t i = 0; i < states.custom.size(); ++i)
        add(str("custom_checkpoint_", i), std::move(states.custom[i]));
    const std::vector<Tree>& own = states.own;
    for (std::size_t rank = 0; rank < own.size(); ++rank) {
        add(str("random_states_", rank), own[rank]["random_states"]);
        if (const Tree& replicas = own[rank]["data_parallel"]; !replicas.is_null())
            add(str("data_parallel_", rank), replicas);
        const Tree& gradients = own[rank]["gradients"];
        for (std::size_t i = 0; i < gradients.size(); ++i) {
            NamedTensors named;
            for (const auto& [name, gradient] : gradients[i].entries())
                named.emplace_back(name, gradient.tensor());
            all.tensors.emplace_back(gradients_stem(i, rank), std::move(named));
        }
    }
    all.label = {.iteration = project_.iteration, .run = run_, .metric = metric};
    for (const auto& [field, value] : project_.identity) all.label.identity.set(field, value);
    return all;
}

// Returns the directory of the next checkpoint. All processes use the iteration and the run of the
// main process. Without save_on_each_node, they also use its path. Throws ValueError if processes
// pass different directories or none, or if the directory of the automatic name exists. Before
// that, claims the folder of automatic names, and throws FileError if another process owns it.
std::string StateFiles::next_directory(const std::string& output_dir) {
    const bool automatic = project_.automatic_checkpoint_naming;
    const auto named = [&] {
        return (fs::path(project_.project_dir) / "checkpoints" /
                str("checkpoint_", project_.iteration))
            .string();
    };
    dist::ProcessGroup& group = *processes_.process_group();
    const bool each_node = project_.save_on_each_node;
    const std::vector<Tree> all = dist::gather_or_throw(group, "save_state", [&] {
        return Tree{{"path", automatic ? named() : output_dir},
                    {"iteration", project_.iteration},
                    {"run", run_},
                    {"local_rank", processes_.local_process_index()}};
    });
    if (!automatic) check_same_directory(all, each_node);
    const Tree& main = all.front();
    project_.iteration = main["iteration"].integer();
    run_ = main["run"].string();
    if (main["path"].string().empty())
        throw ValueError(
            "save_state: a directory is needed, because automatic_checkpoint_naming is off; pass "
            "output_dir");
    // The folder is claimed before the name is checked. Otherwise, another process could save a
    // checkpoint of that name after the check, and this save would replace it.
    together("save_state", [&] {
        if (!automatic || !is_saving_process(processes_, each_node)) return;
        const std::string folder = folder_of(each_node ? named() : main["path"].string());
        check_no_link(folder);
        if (!owner_) owner_ = FolderOwner::claim(folder);
    });
    const std::vector<Tree> there =
        group.all_gather_object(automatic && kind_of(named()).has_value());
    const auto exists = [](const Tree& on_one) { return on_one.boolean(); };
    // With save_on_each_node, a directory that exists only on some machines is the result of an
    // interrupted save, and is replaced.
    if (each_node ? std::all_of(there.begin(), there.end(), exists) : exists(there.front()))
        throw ValueError(
            str("save_state: ", printable(main["path"].string()),
                " already exists; call load_state() to resume after the newest checkpoint, or "
                "set_save_iteration() to choose another number than ",
                project_.iteration));
    if (!each_node) return main["path"].string();
    return automatic ? named() : output_dir;
}

void StateFiles::run_save_hooks(std::vector<nn::StateDict>& weights,
                                const std::string& directory) const {
    for (const SaveStatePreHook& hook : save_hooks_.all())
        together("save_state", [&] { hook(prepared_.models(), weights, directory); });
}

// Copies the contents to host memory, and writes them on a background thread, which then removes
// old checkpoints. `writer` is nullptr on processes that write only their parts, or nothing.
void StateFiles::save_in_background(StateContents contents,
                                    std::unique_ptr<CheckpointWriter> writer,
                                    const std::string& path, const std::string& directory) {
    struct Save {
        StateContents contents;
        std::unique_ptr<CheckpointWriter> writer;
        ProjectConfiguration project;
        std::string run, path, directory;
        std::shared_ptr<dist::ProcessGroup> group;
    };
    const auto save = std::make_shared<Save>(Save{std::move(contents), std::move(writer), project_,
                                                  run_, path, directory, background_group_});
    // If one process can't copy, no process starts a thread, because the threads would wait for the
    // process that failed.
    together("save_state", [&] { save->contents.copy_to(staging_); });
    together("save_state", [&] {
        const bool in_parts = !save->contents.parts.empty();
        if (!save->writer && !in_parts) return;
        background_.start([save, in_parts] {
            if (in_parts) save->contents.write_parts(save->directory, *save->group);
            if (!save->writer) return;
            save->contents.write(*save->writer);
            rotate(save->project, save->run, save->path);
        });
    });
}

void StateFiles::wait() {
    together("save_state", [&] { background_.wait(); });
}

std::string StateFiles::save(const std::string& output_dir, const SaveStateOptions& options) {
    const profiler::Scope scope("save_state", profiler::Category::io);
    prepared_.check_complete("save_state");
    for (const nn::Module* model : prepared_.models())
        if (find_pipeline(prepared_, *model) != nullptr && !loop_.accumulation.sync_gradients())
            throw NotImplementedError(
                "save_state: the state of a pipeline can be saved only after an update, not "
                "between two micro-batches of gradient accumulation");
    if (options.asynchronous && project_.save_on_each_node)
        throw NotImplementedError(
            "save_state: asynchronous saving is not implemented with save_on_each_node; leave one "
            "of them out");
    const bool in_parts =
        options.state_dict_type.value_or(state_dict_type_) == StateDictType::sharded;
    if (in_parts && project_.save_on_each_node)
        throw NotImplementedError(
            "save_state: SHARDED_STATE_DICT is not implemented with save_on_each_node; use "
            "StateDictType::full");
    wait();
    dist::ProcessGroup& group = *processes_.process_group();
    const std::string path = next_directory(output_dir);
    const bool each_node = project_.save_on_each_node;
    const bool writes = is_saving_process(processes_, each_node);
    AXLE_FAILPOINT("save: before the states are gathered");
    GatheredStates states;
    Tree own;
    together("save_state", [&] { own = own_state(); });
    states.own = each_node ? group.all_gather_object(own) : group.gather_object(own);
    // All processes call state_dict() in the same order, because it may call collectives.
    for (const Registered& object : custom_)
        together("save_state", [&] { states.custom.push_back(object.state->state_dict()); });

    std::unique_ptr<CheckpointWriter> writer;
    together("save_state", [&] {
        check_keeps_working_directory(path);
        if (writes) writer = std::make_unique<CheckpointWriter>(path, options.durability);
    });
    const std::vector<Tree> places = group.all_gather_object(Tree{
        {"directory", writer ? Tree(writer->directory()) : Tree()},
        {"writer", each_node ? processes_.process_index() - processes_.local_process_index() : 0}});
    for (std::size_t rank = 0; rank < places.size(); ++rank)
        if (const std::int64_t i = places[rank]["writer"].integer();
            i < 0 || places[static_cast<std::size_t>(i)]["directory"].is_null())
            throw UsageError(
                str("save_state: save_on_each_node needs consecutive ranks on each machine: rank ",
                    rank, " has the local rank ", static_cast<std::int64_t>(rank) - i));
    const std::int64_t writing =
        places[static_cast<std::size_t>(processes_.process_index())]["writer"].integer();
    const std::string& directory = places[static_cast<std::size_t>(writing)]["directory"].string();
    gather(states, in_parts);
    run_save_hooks(states.weights, directory);
    renumber_models(states);
    StateContents all;
    together("save_state",
             [&] { all = contents(std::move(states), writer != nullptr, options.metric); });
    if (options.asynchronous) {
        if (!all.parts.empty() && !background_group_) background_group_ = group.split(0);
        save_in_background(std::move(all), std::move(writer), path, directory);
        ++project_.iteration;
        return path;
    }
    all.write_parts(directory, group);
    together("save_state", [&] {
        if (writer) all.write(*writer);
    });
    ++project_.iteration;
    // Old checkpoints are removed after the new one is complete on all machines, because load()
    // requires a checkpoint that is complete on all machines.
    together("save_state", [&] {
        if (writer) rotate(project_, run_, path);
    });
    return path;
}

}  // namespace axle::accel
