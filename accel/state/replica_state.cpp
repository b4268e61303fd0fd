// Implements the functions of StateFiles that save and load the replicas of models.
#include <algorithm>

#include "accel/state/state_files.h"
#include "core/files/file.h"
#include "core/system/log.h"

namespace axle::accel {
namespace {

std::string stem_of(int rank) { return str("data_parallel_", rank); }

bool is_in_local_sgd(const Tree& replicas) {
    return replicas.is_map() && replicas.contains("local_sgd");
}

}  // namespace

// Returns {"models": the states of the replicas of each model}, or null if there is no state. With
// LocalSGD, the states of optimizers also differ between processes, so processes other than the
// main process add "optimizers", the states of their optimizers.
Tree StateFiles::replica_state() const {
    Tree models = Tree::list();
    bool has_state = false, is_local = false;
    for (const auto& replicas : prepared_.replicas()) {
        models.push_back(replicas ? replicas->state_dict() : Tree());
        const Tree& state = models.elements().back();
        has_state = has_state || (state.is_map() && !state.empty());
        is_local = is_local || is_in_local_sgd(state);
    }
    if (!has_state) return {};
    Tree state{{"models", std::move(models)}};
    if (!is_local || processes_.is_main_process()) return state;
    Tree optimizers = Tree::list();
    for (optim::Optimizer* optimizer : prepared_.optimizers())
        optimizers.push_back(optimizer->state_dict());
    state.set("optimizers", std::move(optimizers));
    return state;
}

// Reads the states of the replicas of this process. If the number of processes has changed, reads
// the states of the main process's replicas. Takes the entry "layout" from the main process in both
// cases. If the file of this process has the states of optimizers (LocalSGD), they replace
// state.optimizers.
void StateFiles::read_replicas(LoadedState& state) const {
    const StateFolder& folder = *state.folder;
    const std::size_t count = prepared_.models().size();
    state.replicas.assign(count, Tree::map());
    const auto processes = static_cast<std::size_t>(processes_.num_processes());
    state.has_own_replicas = folder.count("random_states_") == processes;
    const auto models_of = [&](const Tree& file) {
        std::vector<Tree> models = file["models"].elements();
        models.resize(count);
        return models;
    };
    if (!folder.contains(stem_of(0))) return;
    const std::vector<Tree> main = models_of(folder.read(stem_of(0)));
    const bool reads_main = !state.has_own_replicas || processes_.is_main_process();
    std::vector<Tree> own = reads_main ? main : std::vector<Tree>(count);
    const std::string stem = stem_of(processes_.process_index());
    if (!reads_main && folder.contains(stem)) {
        const Tree file = folder.read(stem);
        own = models_of(file);
        if (const Tree* const optimizers = file.find("optimizers")) {
            if (optimizers->size() < state.optimizers.size())
                throw FileError(str(printable(folder.file(stem)),
                                    ": the number of states of optimizers must be at least ",
                                    state.optimizers.size(), ": it is ", optimizers->size()));
            std::copy_n(optimizers->elements().begin(), state.optimizers.size(),
                        state.optimizers.begin());
        }
    }
    for (std::size_t i = 0; i < count; ++i) {
        if (own[i].is_null()) own[i] = Tree::map();
        if (const Tree* const layout = main[i].is_map() ? main[i].find("layout") : nullptr)
            own[i].set("layout", *layout);
    }
    state.replicas = std::move(own);
}

void StateFiles::load_replicas(const LoadedState& state) const {
    bool is_complete = true, is_local = false;
    for (std::size_t i = 0; i < prepared_.models().size(); ++i) {
        is_local = is_local || is_in_local_sgd(state.replicas[i]);
        if (const auto& replicas = prepared_.replicas()[i]; replicas != nullptr)
            is_complete =
                replicas->load_state_dict(state.replicas[i], state.has_own_replicas) && is_complete;
    }
    if (!processes_.is_main_process()) return;
    const std::string path = printable(state.folder->path());
    if (!is_complete)
        log(LogLevel::warning, "load_state: ", path,
            " does not contain the state of a communication hook for this number of processes and "
            "these options: its error feedback starts from zero");
    if (is_local && !state.has_own_replicas)
        log(LogLevel::warning, "load_state: ", path,
            " was saved within LocalSGD by another number of processes: all processes continue "
            "with the models and optimizers of process 0");
}

}  // namespace axle::accel
