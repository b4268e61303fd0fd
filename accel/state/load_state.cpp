#include <algorithm>
#include <charconv>
#include <map>
#include <optional>

#include "accel/prepare/pipeline_model.h"
#include "accel/state/state_files.h"
#include "core/files/file.h"
#include "core/files/safetensors.h"
#include "core/ops.h"
#include "core/profiler/profiler.h"
#include "core/system/log.h"
#include "dist/group/shared_error.h"
#include "dist/sharding/full_state.h"
#include "dist/sharding/sharded_state.h"

namespace axle::accel {
namespace {

// Returns the rank whose own state the process `rank` reads: the first rank of its tensor parallel
// group. All ranks of such a group must draw the same random numbers, and have the same gradients
// of parameters that are not divided.
int rank_of_state(const Preparation& prepared, int rank) {
    const auto& mesh = prepared.loading().device_mesh;
    if (mesh == nullptr) return rank;
    int stride = 1;  // distance between two ranks along the current dimension
    for (auto dimension = mesh->dimensions().rbegin(); dimension != mesh->dimensions().rend();
         ++dimension) {
        if (dimension->name == "tp") rank -= mesh->coordinate("tp") * stride;
        stride *= dimension->size;
    }
    return rank;
}

std::uint64_t unsigned_from(const Tree& random_states, const char* key) {
    const std::string& text = random_states[key].string();
    std::uint64_t value = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || stop != text.data() + text.size())
        throw ValueError(
            str("load_state: the ", key,
                " of the random states must be an unsigned integer: ", in_quotes(text)));
    return value;
}

// Returns whether tensor parallelism divides the layers of models.
bool has_divided_layers(const Preparation& prepared) {
    const auto& mesh = prepared.loading().device_mesh;
    return mesh != nullptr && std::ranges::any_of(mesh->dimensions(), [](const auto& dimension) {
               return dimension.name == "tp" && dimension.size > 1;
           });
}

// Returns the gradients that process `rank` had accumulated or, if `mean_of_all`, the mean over all
// processes that saved, which preserves the average over processes. The result is empty if none
// were saved.
std::map<std::string, Tensor> saved_gradients(const StateFolder& folder, std::size_t model,
                                              std::size_t rank, bool mean_of_all) {
    const auto of_rank = [&](std::size_t r) {
        const std::string stem = gradients_stem(model, r);
        if (!folder.contains(stem)) return std::map<std::string, Tensor>();
        return load_safetensors(folder.file(stem)).tensors;
    };
    if (!mean_of_all) return of_rank(rank);
    const std::size_t saved = folder.count("random_states_");
    std::map<std::string, Tensor> mean;
    for (std::size_t r = 0; r < saved; ++r)
        for (const auto& [name, gradient] : of_rank(r)) {
            const Tensor part = gradient / static_cast<double>(saved);
            const auto [entry, is_new] = mean.try_emplace(name, part);
            if (!is_new) entry->second.add_(part);
        }
    return mean;
}

// Calls `load`. Returns the message of an axle::Error with the path of the file, or nullopt.
// FileError, OutOfMemory and CudaError are not caught.
template <class F>
std::optional<std::string> mismatch_of(const StateFolder& folder, const std::string& stem,
                                       F&& load) {
    try {
        load();
        return std::nullopt;
    } catch (const FileError&) {
        throw;
    } catch (const OutOfMemory&) {
        throw;
    } catch (const CudaError&) {
        throw;
    } catch (const Error& error) {
        return str(printable(folder.file(stem)), ": ", error.what());
    }
}

// Calls `load`. Throws FileError if its state does not match the object (mismatch_of()).
template <class F>
void fitting(const StateFolder& folder, const std::string& stem, F&& load) {
    if (const auto mismatch = mismatch_of(folder, stem, load)) throw FileError(*mismatch);
}

template <class T>
void load_each(const StateFolder& folder, const char* stem, const std::vector<T*>& objects,
               const std::vector<Tree>& states) {
    for (std::size_t i = 0; i < states.size(); ++i)
        fitting(folder, numbered(stem, i), [&] { objects[i]->load_state_dict(states[i]); });
}

std::vector<Tree> read_each(const StateFolder& folder, const char* stem, std::size_t count) {
    std::vector<Tree> states;
    for (std::size_t i = 0; i < count; ++i) states.push_back(folder.read(numbered(stem, i)));
    return states;
}

// Returns the states of the registered objects. Throws FileError if one is missing. If `warns`,
// logs a warning if the checkpoint has further states.
std::vector<Tree> read_custom(const StateFolder& folder, std::size_t registered, bool warns) {
    static constexpr const char* kStem = "custom_checkpoint_";
    std::vector<Tree> states;
    for (std::size_t i = 0; i < registered; ++i) {
        if (!folder.contains(str(kStem, i)))
            throw FileError(
                str(printable(folder.file(str(kStem, i))), ": the file is missing: ", registered,
                    " objects are registered for checkpointing, but the checkpoint contains ",
                    folder.count(kStem)));
        states.push_back(folder.read(str(kStem, i)));
    }
    if (const std::size_t there = folder.count(kStem); there > registered && warns)
        axle::log(LogLevel::warning, "load_state: ", printable(folder.path()), " contains ", there,
                  " registered objects, but ", registered,
                  " are registered; the files of the remaining objects are ignored");
    return states;
}

}  // namespace

// Throws ValueError if this run's identity differs from the checkpoint's in a field that is not in
// options.changed_identity. Does nothing without options.check_identity or a saved identity.
void StateFiles::check_identity(const LoadedState& state, const LoadStateOptions& options) const {
    const CheckpointLabel* const label = state.folder->label();
    if (!options.check_identity || label == nullptr || label->identity.empty()) return;
    const auto may_differ = [&](const std::string& field) {
        const auto& changed = options.changed_identity;
        return std::find(changed.begin(), changed.end(), field) != changed.end();
    };
    std::map<std::string, std::pair<std::string, std::string>> fields;  // saved and given values
    for (const auto& [field, value] : label->identity.entries())
        fields[field].first = in_quotes(value.string());
    for (const auto& [field, value] : project_.identity) fields[field].second = in_quotes(value);
    std::string differences;
    for (const auto& [field, values] : fields) {
        if (values.first == values.second || may_differ(field)) continue;
        const auto shown = [](const std::string& value) {
            return value.empty() ? std::string("missing") : value;
        };
        differences += str(differences.empty() ? "" : "; ", printable(field), ": saved ",
                           shown(values.first), ", now ", shown(values.second));
    }
    if (!differences.empty())
        throw ValueError(str("load_state: ", printable(state.folder->path()),
                             " was saved by a run with another identity: ", differences,
                             "; to resume anyway, name the fields in changed_identity (the "
                             "trainers: --allow-changed)"));
}

// Reads the state that own_state() returned on each process, except the state of replicas.
void StateFiles::read_own(LoadedState& state) const {
    const StateFolder& folder = *state.folder;
    const auto rank =
        static_cast<std::size_t>(rank_of_state(prepared_, processes_.process_index()));
    const int num_processes = processes_.num_processes();
    const int num_steps = loop_.accumulation.options().num_steps;
    const auto warn = [&](const auto&... parts) {
        axle::log(LogLevel::warning, "load_state: ", printable(folder.path()), parts...);
    };
    if (!folder.is_axle()) {
        state.step = folder.step_of(rank).value_or(0);
        state.window = state.step % num_steps;
        state.sync_gradients = state.window == 0;
        if (processes_.is_main_process())
            warn(
                " was written by Accelerate: random states, positions of loaders and gradients "
                "between two updates are not restored");
        return;
    }
    // Tensor parallel groups also load the mean, because the groups may have had other ranks when
    // the checkpoint was saved.
    const bool mean_of_all =
        folder.count("random_states_") != static_cast<std::size_t>(num_processes) ||
        has_divided_layers(prepared_);
    for (std::size_t i = 0; i < prepared_.models().size(); ++i)
        state.gradients.push_back(saved_gradients(folder, i, rank, mean_of_all));
    std::string random_states = str("random_states_", rank);
    if (!folder.contains(random_states) && rank > 0) {
        warn(" was saved by fewer processes: process ", rank,
             " uses the random state of the main process");
        random_states = "random_states_0";
    }
    if (processes_.is_main_process() && folder.contains(str("random_states_", num_processes)))
        warn(" was saved by more processes: their random states are ignored");
    const Tree random = folder.read(random_states);
    fitting(folder, random_states, [&] {
        state.generator = {unsigned_from(random, "seed"), unsigned_from(random, "offset")};
        state.step = random["step"].integer();
        state.sync_gradients = random["sync_gradients"].boolean();
        // If the checkpoint was saved after an update, the next update has num_steps micro-batches,
        // even if updates of the saved run had more or fewer.
        if (state.sync_gradients) state.step -= state.step % num_steps;
        const Tree* const window = random.find("window");
        state.window = window != nullptr ? window->integer() : state.step % num_steps;
        if (const Tree* const logged = random.find("logged_steps"); logged != nullptr)
            for (const auto& [tracker, step] : logged->entries())
                state.logged_steps[tracker] = step.integer();
        if (state.step < 0 || state.window < 0 || state.window > INT32_MAX)
            throw ValueError(str("step must not be negative, and window must be from 0 to ",
                                 INT32_MAX, ": step ", state.step, ", window ", state.window));
    });
    for (std::size_t r = 0; r < folder.count("random_states_"); ++r)
        if (const Tree of = folder.read(str("random_states_", r)); of.find("weights") != nullptr)
            state.divisions.push_back(of["weights"]);
}

// Reads a checkpoint on all processes, and stores whether parts of models and optimizers match the
// prepared objects. Changes no objects, but calls the load hooks, which can.
StateFiles::LoadedState StateFiles::read(const std::string& directory, bool strict) const {
    LoadedState state;
    together("load_state", [&] { state.folder = std::make_unique<StateFolder>(directory); });
    state.models = prepared_.models();
    for (const LoadStatePreHook& hook : load_hooks_.all())
        together("load_state", [&] { hook(state.models, directory); });
    together("load_state", [&] {
        const StateFolder& folder = *state.folder;
        read_parts(state);
        // Parts that do not match the objects are not damaged, so load() does not skip them.
        const auto check = [&](const std::string& stem, const auto& matches) {
            const auto mismatch = mismatch_of(folder, stem, matches);
            if (mismatch && state.mismatch.empty()) state.mismatch = *mismatch;
        };
        for (std::size_t i = 0; i < state.models.size(); ++i)
            if (state.model_parts[i])
                check(numbered("model", i), [&] {
                    dist::check_sharded(*state.model_parts[i], *state.models[i], strict);
                });
        for (std::size_t i = 0; i < state.optimizer_parts.size(); ++i)
            if (state.optimizer_parts[i])
                check(numbered("optimizer", i), [&] {
                    dist::check_sharded(*state.optimizer_parts[i], *prepared_.optimizers()[i]);
                });
        for (std::size_t i = 0; i < state.models.size(); ++i)
            state.weights.push_back(state.model_parts[i] ? nn::StateDict() : folder.weights(i));
        for (std::size_t i = 0; i < prepared_.optimizers().size(); ++i)
            state.optimizers.push_back(state.optimizer_parts[i] ? Tree() : folder.optimizer(i));
        state.schedulers = read_each(folder, "scheduler", prepared_.schedulers().size());
        if (folder.is_axle())
            state.loaders = read_each(folder, "dl_state_dict", prepared_.loaders().size());
        if (loop_.scaling) state.scaler = folder.read("scaler");
        state.custom = read_custom(folder, custom_.size(), processes_.is_main_process());
        read_own(state);
        if (folder.is_axle())
            fitting(folder, str("data_parallel_", processes_.process_index()),
                    [&] { read_replicas(state); });
    });
    return state;
}

void StateFiles::apply(const LoadedState& state, bool strict) {
    const StateFolder& folder = *state.folder;
    for (std::size_t i = 0; i < state.models.size(); ++i)
        fitting(folder, numbered("model", i), [&] {
            if (state.model_parts[i])
                dist::load_sharded(*state.model_parts[i], *state.models[i], strict);
            else if (dist::Pipeline* const pipeline = find_pipeline(prepared_, *state.models[i]))
                pipeline->load_state_dict(state.weights[i]);
            else
                state.models[i]->load_state_dict(state.weights[i], {.strict = strict});
        });
    for (std::size_t i = 0; i < prepared_.models().size(); ++i)
        fitting(folder, numbered("gradients", i), [&] {
            dist::set_whole_gradients(
                *prepared_.models()[i],
                i < state.gradients.size() ? state.gradients[i] : std::map<std::string, Tensor>());
        });
    if (!state.replicas.empty())
        fitting(folder,
                str("data_parallel_", state.has_own_replicas ? processes_.process_index() : 0),
                [&] { load_replicas(state); });
    for (std::size_t i = 0; i < state.optimizers.size(); ++i)
        fitting(folder, numbered("optimizer", i), [&] {
            if (state.optimizer_parts[i])
                dist::load_sharded(*state.optimizer_parts[i], *prepared_.optimizers()[i]);
            else if (const dist::Pipeline* const pipeline =
                         find_pipeline(prepared_, prepared_.optimizers()[i]->parameters()))
                pipeline->load_state_dict(*prepared_.optimizers()[i], state.optimizers[i]);
            else
                prepared_.optimizers()[i]->load_state_dict(state.optimizers[i]);
        });
    load_each(folder, "scheduler", prepared_.schedulers(), state.schedulers);
    load_each(folder, "dl_state_dict", prepared_.loaders(), state.loaders);
    if (loop_.scaling)
        fitting(folder, "scaler", [&] { loop_.scaling->scaler().load_state_dict(state.scaler); });
    loop_.recorder.forget_schedules();
    for (std::size_t i = 0; i < custom_.size(); ++i)
        fitting(folder, str("custom_checkpoint_", i),
                [&] { custom_[i].state->load_state_dict(state.custom[i]); });
    if (state.generator) set_generator_state(*state.generator);
    Accumulation::Counts counts = loop_.accumulation.counts();
    counts.step = state.step;
    counts.sync_gradients = state.sync_gradients;
    counts.window = state.window;
    loop_.accumulation.set_counts(counts);
    prepared_.update_division();
    fitting(folder, "random_states_0", [&] {
        loop_.accumulation.division().load_state(
            state.divisions, rank_of_state(prepared_, processes_.process_index()),
            processes_.num_processes(), prepared_.models(), prepared_.optimizers());
    });
    logged_steps_ = state.logged_steps;
    if (const auto iteration = folder.iteration()) project_.iteration = *iteration + 1;
    if (const CheckpointLabel* const label = folder.label();
        label != nullptr && !label->run.empty())
        run_ = label->run;
}

std::string StateFiles::load(const std::string& input_dir, const LoadStateOptions& options) {
    const profiler::Scope scope("load_state", profiler::Category::io);
    prepared_.check_complete("load_state");
    wait();
    std::vector<std::string> directories = {input_dir};
    if (input_dir.empty()) directories = newest_directories(options.skip_damaged);
    for (std::size_t i = 0;; ++i) {
        std::optional<LoadedState> state;
        try {
            state.emplace(read(directories[i], options.strict));
        } catch (const FileError& error) {
            if (i + 1 == directories.size()) throw;
            if (!options.skip_damaged)
                throw FileError(str(error.what(), "; the next older checkpoint is ",
                                    printable(directories[i + 1])));
            if (processes_.is_main_process())
                axle::log(LogLevel::warning,
                          "load_state: a damaged checkpoint is skipped: ", error.what());
            continue;
        }
        // The checkpoint is intact. A mismatch is not skipped.
        together("load_state", [&] {
            if (!state->mismatch.empty()) throw FileError(state->mismatch);
            check_identity(*state, options);
        });
        together("load_state", [&] { apply(*state, options.strict); });
        return directories[i];
    }
}

}  // namespace axle::accel
