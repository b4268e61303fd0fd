#include <algorithm>
#include <charconv>
#include <filesystem>

#include "accel/state/state_files.h"
#include "core/files/file.h"
#include "core/files/safetensors.h"
#include "core/log.h"
#include "core/ops.h"
#include "core/profiler/profiler.h"
#include "dist/group/shared_error.h"

namespace axle::accel {
namespace {

namespace fs = std::filesystem;

std::uint64_t unsigned_from(const Tree& tree) {
    const std::string& text = tree.string();
    std::uint64_t value = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || stop != text.data() + text.size())
        throw ValueError(str("not an unsigned integer: '", text, "'"));
    return value;
}

void set_gradients(const nn::Module& model, const std::map<std::string, Tensor>& gradients) {
    for (const auto& [name, parameter] : model.named_parameters()) {
        const auto found = gradients.find(name);
        if (found == gradients.end())
            parameter.zero_grad();
        else
            parameter.set_grad(found->second.to(parameter.device()));
    }
}

// Returns the gradients that a process had accumulated. If the number of processes has changed,
// returns the mean over the processes that saved, which does not change the mean that the update
// uses.
std::map<std::string, Tensor> saved_gradients(const StateFolder& folder, std::size_t model,
                                              std::size_t rank, std::size_t processes) {
    const auto of_rank = [&](std::size_t r) {
        const std::string stem = gradients_stem(model, r);
        if (!folder.contains(stem)) return std::map<std::string, Tensor>();
        return load_safetensors(folder.file(stem)).tensors;
    };
    const std::size_t saved = folder.count("random_states_");
    if (saved == processes) return of_rank(rank);
    std::map<std::string, Tensor> mean;
    for (std::size_t r = 0; r < saved; ++r)
        for (const auto& [name, gradient] : of_rank(r)) {
            const Tensor part = gradient / static_cast<double>(saved);
            const auto [entry, is_new] = mean.try_emplace(name, part);
            if (!is_new) entry->second.add_(part);
        }
    return mean;
}

// Calls `load` and adds the name of the file to its errors.
template <class F>
void fitting(const StateFolder& folder, const std::string& stem, F&& load) {
    try {
        load();
    } catch (const FileError&) {
        throw;
    } catch (const OutOfMemory&) {
        throw;
    } catch (const CudaError&) {
        throw;
    } catch (const Error& error) {
        throw FileError(str(printable(folder.file(stem)), ": ", error.what()));
    }
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

// Returns the states of the registered objects. Throws FileError if one is missing.
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

// Returns the names of the checkpoints in a folder of automatic_checkpoint_naming.
Tree states_in(const std::string& folder) {
    Tree names = Tree::list();
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
        const std::string name = entry.path().filename().string();
        if (name.starts_with('.') || entry.is_symlink() || !checkpoint_number(name)) continue;
        if (StateFolder::is_state(entry.path().string())) names.push_back(name);
    }
    return names;
}

}  // namespace

// Returns the checkpoint with the highest number among the checkpoints that all processes can read.
std::string StateFiles::newest_directory() const {
    if (!project_.automatic_checkpoint_naming)
        throw ValueError(
            "load_state: a directory is needed, because automatic_checkpoint_naming is off");
    const fs::path folder = fs::path(project_.project_dir) / "checkpoints";
    std::map<std::string, int> seen;
    for (const Tree& names : dist::gather_or_throw(*processes_.process_group(), "load_state",
                                                   [&] { return states_in(folder.string()); }))
        for (const Tree& name : names.elements()) ++seen[name.string()];
    std::erase_if(seen,
                  [&](const auto& state) { return state.second < processes_.num_processes(); });
    if (seen.empty())
        throw FileError(str(printable(folder.string()),
                            ": contains no checkpoint that every process can read"));
    const auto newest =
        std::max_element(seen.begin(), seen.end(), [](const auto& a, const auto& b) {
            return checkpoint_number(a.first) < checkpoint_number(b.first);
        });
    return (folder / newest->first).string();
}

// Reads the part of the state that belongs to this process only.
void StateFiles::read_own(LoadedState& state) const {
    const StateFolder& folder = *state.folder;
    const auto rank = static_cast<std::size_t>(processes_.process_index());
    const int num_processes = processes_.num_processes();
    const int num_steps = loop_.accumulation.options().num_steps;
    const auto warn = [&](const auto&... said) {
        axle::log(LogLevel::warning, "load_state: ", printable(folder.path()), said...);
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
    for (std::size_t i = 0; i < prepared_.models().size(); ++i)
        state.gradients.push_back(
            saved_gradients(folder, i, rank, static_cast<std::size_t>(num_processes)));
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
        state.generator = {unsigned_from(random["seed"]), unsigned_from(random["offset"])};
        state.step = random["step"].integer();
        state.sync_gradients = random["sync_gradients"].boolean();
        const Tree* const window = random.find("window");
        state.window = window != nullptr ? window->integer() : state.step % num_steps;
        if (const Tree* const logged = random.find("logged_steps"); logged != nullptr)
            for (const auto& [tracker, step] : logged->entries())
                state.logged_steps[tracker] = step.integer();
        if (state.step < 0 || state.window < 0 || state.window > INT32_MAX)
            throw ValueError(str("the micro-batch counts are invalid: step ", state.step,
                                 ", window ", state.window));
    });
    for (std::size_t r = 0; r < folder.count("random_states_"); ++r)
        if (const Tree of = folder.read(str("random_states_", r)); of.find("weights") != nullptr)
            state.divisions.push_back(of["weights"]);
}

// Reads a checkpoint on all processes. No object is changed, except by the hooks of the program.
StateFiles::LoadedState StateFiles::read(const std::string& directory) const {
    LoadedState state;
    together("load_state", [&] { state.folder = std::make_unique<StateFolder>(directory); });
    state.models = prepared_.models();
    for (const LoadStatePreHook& hook : load_hooks_.all())
        together("load_state", [&] { hook(state.models, directory); });
    together("load_state", [&] {
        const StateFolder& folder = *state.folder;
        for (std::size_t i = 0; i < state.models.size(); ++i)
            state.weights.push_back(folder.tensors(numbered("model", i)));
        state.optimizers = read_each(folder, "optimizer", prepared_.optimizers().size());
        state.schedulers = read_each(folder, "scheduler", prepared_.schedulers().size());
        if (folder.is_axle())
            state.loaders = read_each(folder, "dl_state_dict", prepared_.loaders().size());
        if (loop_.scaling) state.scaler = folder.read("scaler");
        state.custom = read_custom(folder, custom_.size(), processes_.is_main_process());
        read_own(state);
    });
    return state;
}

void StateFiles::apply(const LoadedState& state, bool strict) {
    const StateFolder& folder = *state.folder;
    for (std::size_t i = 0; i < state.models.size(); ++i)
        fitting(folder, numbered("model", i),
                [&] { state.models[i]->load_state_dict(state.weights[i], {.strict = strict}); });
    for (std::size_t i = 0; i < prepared_.models().size(); ++i)
        fitting(folder, numbered("gradients", i), [&] {
            set_gradients(*prepared_.models()[i], i < state.gradients.size()
                                                      ? state.gradients[i]
                                                      : std::map<std::string, Tensor>());
        });
    load_each(folder, "optimizer", prepared_.optimizers(), state.optimizers);
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
        loop_.accumulation.division().load_state(state.divisions, processes_.process_index(),
                                                 processes_.num_processes(), prepared_.models(),
                                                 prepared_.optimizers());
    });
    logged_steps_ = state.logged_steps;
    if (const auto iteration = folder.iteration()) project_.iteration = *iteration + 1;
}

std::string StateFiles::load(const std::string& input_dir, bool strict) {
    const profiler::Scope scope("load_state", profiler::Category::io);
    prepared_.check_complete("load_state");
    const std::string directory = input_dir.empty() ? newest_directory() : input_dir;
    const LoadedState state = read(directory);
    together("load_state", [&] { apply(state, strict); });
    return directory;
}

}  // namespace axle::accel
