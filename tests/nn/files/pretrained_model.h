// Helpers for tests of models that are loaded from files.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "core/autograd/autograd.h"
#include "core/files/file.h"
#include "nn/module.h"
#include "optim/adam.h"
#include "tests/close.h"
#include "tests/nn/golden.h"
#include "tests/temporary_folder.h"

namespace axle::tests {

using Tensors = std::map<std::string, Tensor>;

// Returns a tensor recorded by tests/golden/record_models.py.
inline Tensor recorded(const std::string& name) { return golden(name, "models.safetensors"); }

inline std::string config_of(const std::string& model) {
    return read_file(golden_path(model + "/config.json"));
}

inline std::string replaced(std::string text, const std::string& from, const std::string& to) {
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

// Writes the text `config` to config.json in a folder, and the weights of a recorded model to
// model.safetensors. `change` can change the weights before they are written.
inline void write_model(const TemporaryFolder& folder, const std::string& model,
                        const std::string& config,
                        const std::function<void(Tensors&)>& change = {}) {
    Safetensors file = load_safetensors(golden_path(model + "/model.safetensors"));
    if (change) change(file.tensors);
    save_safetensors(folder / "model.safetensors", file.tensors, file.metadata);
    write_file_atomically(folder / "config.json", config);
}

// Compares the losses of twenty AdamW steps with the losses of PyTorch, in f64 and in f32. Expects
// that the last loss is more than 10% smaller than the first. loss(model, batch) returns the loss
// of one of the four recorded batches.
template <class Model, class Loss>
void expect_recorded_losses(const std::string& name, Loss&& loss) {
    for (const DType dtype : {f64, f32}) {
        Model model = Model::from_pretrained(golden_path(name));
        model.to(dtype);
        model.train();
        optim::AdamW adamw(model.parameters(), {.lr = 1e-2, .weight_decay = 0.1});
        const auto losses = recorded(str(name, ".losses_", dtype)).to_vector();
        ASSERT_EQ(losses.size(), 20u);
        for (std::size_t step = 0; step < losses.size(); ++step) {
            const Tensor y = loss(model, static_cast<std::int64_t>(step % 4));
            ASSERT_EQ(y.dtype(), dtype);
            ASSERT_NEAR(y.item(), losses[step], dtype == f64 ? 1e-8 : 1e-4)
                << dtype << ", step " << step;
            y.backward();
            adamw.step();
            adamw.zero_grad();
        }
        EXPECT_LT(losses.back(), 0.9 * losses.front());
    }
}

inline void expect_same_state(const nn::Module& a, const nn::Module& b) {
    const nn::StateDict first = a.state_dict(), second = b.state_dict();
    ASSERT_EQ(first.size(), second.size());
    for (std::size_t i = 0; i < first.size(); ++i) {
        EXPECT_EQ(first[i].first, second[i].first);
        expect_same_bits(first[i].second.detach(), second[i].second.detach());
    }
}

// Expects that the folder has the tensors, bit by bit, and the metadata of a recorded model.
inline void expect_same_weights(const std::string& folder, const std::string& model) {
    const SafetensorsFile ours(folder + "/model.safetensors");
    const SafetensorsFile theirs(golden_path(model + "/model.safetensors"));
    EXPECT_EQ(ours.metadata(), theirs.metadata());
    ASSERT_EQ(ours.entries().size(), theirs.entries().size());
    for (const SafetensorsFile::Entry& entry : theirs.entries())
        expect_same_bits(ours.tensor(entry.name), theirs.tensor(entry.name));
}

}  // namespace axle::tests
