// Accelerator::save_state and load_state.
#include <charconv>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "accel/accelerator.h"
#include "accel/accelerator_state.h"
#include "accel/checkpoint.h"
#include "core/log.h"
#include "core/profiler.h"
#include "core/random.h"
#include "core/safetensors.h"

namespace axle::inline v0::accel {
namespace {

// "model", "model_1", ...
std::string numbered(const char* stem, std::size_t i) { return i == 0 ? stem : str(stem, "_", i); }

// The gradients that there are, by the name of their parameter.
nn::StateDict gradients_of(const nn::Module& model) {
    nn::StateDict gradients;
    for (const auto& [name, parameter] : model.named_parameters())
        if (const Tensor grad = parameter.grad(); grad.defined())
            gradients.emplace_back(name, grad);
    return gradients;
}

// "gradients", "gradients_1", ... of the main process; other processes' end with their rank.
std::string gradients_file(std::size_t model, std::size_t rank) {
    return numbered("gradients", model) + (rank == 0 ? "" : str("_rank", rank));
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

}  // namespace

// What every process has of its own.
Tree Accelerator::own_state() const {
    // As text: a seed has 64 bits, a JSON integer one less.
    const GeneratorState random = generator_state();
    Tree own{{"random_states",
              {{"seed", std::to_string(random.seed)},
               {"offset", std::to_string(random.offset)},
               {"step", state_->step},
               {"sync_gradients", state_->sync_gradients}}}};
    // Between two updates, what has been accumulated is state as well.
    Tree gradients = Tree::list();
    for (std::size_t i = 0; i < models_.size() && !state_->sync_gradients; ++i) {
        gradients.push_back(Tree::map());
        for (const auto& [name, gradient] : gradients_of(*models_[i]))
            gradients.elements().back().set(name, gradient);
    }
    own.set("gradients", std::move(gradients));
    return own;
}

void Accelerator::write_state(const std::string& directory, const std::vector<Tree>& own,
                              const std::vector<Tree>& custom) const {
    CheckpointWriter writer(directory);
    const auto save_tensors = [&](const std::string& name, const NamedTensors& tensors,
                                  const Metadata& metadata) {
        save_safetensors(writer.directory() + "/" + name + ".safetensors", tensors, metadata);
    };
    for (std::size_t i = 0; i < models_.size(); ++i)
        save_tensors(numbered("model", i), models_[i]->saved_state(), {{"format", "pt"}});
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
            save_tensors(gradients_file(i, rank), tensors, {});
        }
    }
    writer.commit(state_->iteration);
}

// Calls f; what it throws on one process is thrown on all of them.
template <class F>
void Accelerator::together(const char* what, F&& f) const {
    std::exception_ptr error;
    Tree text;
    try {
        f();
    } catch (const std::exception& failed) {
        error = std::current_exception();
        text = failed.what();
    }
    const std::vector<Tree> texts = processes_.process_group()->all_gather_object(text);
    if (error) std::rethrow_exception(error);
    for (std::size_t rank = 0; rank < texts.size(); ++rank)
        if (!texts[rank].is_null())
            throw FileError(str(what, ": process ", rank, ": ", texts[rank].string()));
}

// The main process writes for all, to its own path.
std::string Accelerator::save_state(const std::string& directory) {
    const profiler::Scope scope("save_state", profiler::Category::io);
    dist::ProcessGroup& group = *processes_.process_group();
    const std::string path = group.broadcast_object(directory).string();
    const std::vector<Tree> own = group.gather_object(own_state());
    std::vector<Tree> custom;
    for (const Checkpointable* object : custom_)  // one by one: each may talk to the others
        together("save_state", [&] { custom.push_back(object->state_dict()); });
    together("save_state", [&] {
        if (is_main_process()) write_state(path, own, custom);
    });
    ++state_->iteration;
    return path;
}

namespace {

std::uint64_t unsigned_from(const Tree& tree) {
    const std::string& text = tree.string();
    std::uint64_t value = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || stop != text.data() + text.size())
        throw ValueError(str("not an unsigned integer: '", text, "'"));
    return value;
}

std::size_t saved_by(const CheckpointReader& reader) {
    std::size_t processes = 0;
    while (reader.contains(str("random_states_", processes, ".json"))) ++processes;
    return processes;
}

// What a process had accumulated; what all had on average, where they were more or fewer: the mean
// of the processes, which the update takes, stays what it was.
std::map<std::string, Tensor> saved_gradients(const CheckpointReader& reader, std::size_t model,
                                              std::size_t rank, std::size_t processes) {
    const auto of_rank = [&](std::size_t r) -> std::map<std::string, Tensor> {
        const std::string file = gradients_file(model, r) + ".safetensors";
        if (!reader.contains(file)) return {};
        return load_safetensors(reader.file(file)).tensors;
    };
    const std::size_t saved = saved_by(reader);
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

// Says which file an object refused.
template <class F>
void fitting(const CheckpointReader& reader, const std::string& file, F&& load) {
    try {
        load();
    } catch (const FileError&) {
        throw;
    } catch (const Error& error) {
        throw FileError(str(reader.path(), "/", file, ": ", error.what()));
    }
}

}  // namespace

void Accelerator::load_state(const std::string& directory) {
    if (!state_->active.empty())
        throw UsageError("load_state: not within the loop over a prepared loader; leave it first");
    const profiler::Scope scope("load_state", profiler::Category::io);
    // Everything is read, by everybody, before anything is changed.
    std::unique_ptr<const CheckpointReader> opened;
    std::vector<nn::StateDict> models;
    std::vector<std::map<std::string, Tensor>> gradients(models_.size());
    std::vector<Tree> optimizers, schedulers, loaders, custom;
    Tree scaler;
    GeneratorState generator;
    std::int64_t step = 0;
    bool sync_gradients = true;
    const auto rank = static_cast<std::size_t>(process_index());
    together("load_state", [&] {
        opened = std::make_unique<const CheckpointReader>(directory);
        const CheckpointReader& reader = *opened;
        for (std::size_t i = 0; i < models_.size(); ++i) {
            auto tensors =
                load_safetensors(reader.file(numbered("model", i) + ".safetensors")).tensors;
            models.emplace_back(tensors.begin(), tensors.end());
            gradients[i] =
                saved_gradients(reader, i, rank, static_cast<std::size_t>(num_processes()));
        }
        for (std::size_t i = 0; i < optimizers_.size(); ++i)
            optimizers.push_back(reader.read(numbered("optimizer", i)));
        for (std::size_t i = 0; i < schedulers_.size(); ++i)
            schedulers.push_back(reader.read(numbered("scheduler", i)));
        for (std::size_t i = 0; i < loaders_.size(); ++i)
            loaders.push_back(reader.read(numbered("dl_state_dict", i)));
        if (state_->scaling) scaler = reader.read("scaler");
        for (std::size_t i = 0; i < custom_.size(); ++i)
            custom.push_back(reader.read(str("custom_checkpoint_", i)));
        std::string states = str("random_states_", rank);
        if (!reader.contains(states + ".json") && rank > 0) {
            axle::log(LogLevel::warning, "load_state: ", reader.path(),
                      " was saved by fewer processes: ", "process ", rank,
                      " takes the random state of the main one");
            states = "random_states_0";
        }
        if (is_main_process() && reader.contains(str("random_states_", num_processes(), ".json")))
            axle::log(LogLevel::warning, "load_state: ", reader.path(),
                      " was saved by more processes: the others' random states are left out");
        const Tree random = reader.read(states);
        fitting(reader, states + ".json", [&] {
            generator = {unsigned_from(random["seed"]), unsigned_from(random["offset"])};
            step = random["step"].integer();
            sync_gradients = random["sync_gradients"].boolean();
        });
    });
    const CheckpointReader& reader = *opened;

    for (std::size_t i = 0; i < models_.size(); ++i)
        fitting(reader, numbered("model", i) + ".safetensors",
                [&] { models_[i]->load_state_dict(models[i]); });
    for (std::size_t i = 0; i < models_.size(); ++i)
        fitting(reader, numbered("gradients", i) + ".safetensors",
                [&] { set_gradients(*models_[i], gradients[i]); });
    for (std::size_t i = 0; i < optimizers_.size(); ++i)
        fitting(reader, numbered("optimizer", i) + ".json",
                [&] { optimizers_[i]->load_state_dict(optimizers[i]); });
    for (std::size_t i = 0; i < schedulers_.size(); ++i)
        fitting(reader, numbered("scheduler", i) + ".json",
                [&] { schedulers_[i]->load_state_dict(schedulers[i]); });
    for (std::size_t i = 0; i < loaders_.size(); ++i)
        fitting(reader, numbered("dl_state_dict", i) + ".json",
                [&] { loaders_[i]->load_state_dict(loaders[i]); });
    if (state_->scaling)
        fitting(reader, "scaler.json", [&] { state_->scaling->scaler().load_state_dict(scaler); });
    for (const auto& rates : state_->rates) rates->forget();
    for (std::size_t i = 0; i < custom_.size(); ++i)
        fitting(reader, str("custom_checkpoint_", i, ".json"),
                [&] { custom_[i]->load_state_dict(custom[i]); });
    set_generator_state(generator);
    state_->step = step;
    state_->sync_gradients = sync_gradients;
    state_->iteration = reader.iteration() + 1;
}

}  // namespace axle::inline v0::accel
