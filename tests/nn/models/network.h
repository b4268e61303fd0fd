// Compares models with tests/golden/networks/. tests/golden/record_networks.py wrote these files.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/autograd/autograd.h"
#include "core/files/file.h"
#include "core/tree/tree.h"
#include "gtest/gtest.h"
#include "nn/module.h"
#include "optim/adam.h"
#include "optim/clip.h"
#include "optim/sgd.h"
#include "tests/close.h"
#include "tests/nn/golden.h"
#include "tests/sanitized.h"
#include "tests/temporary_folder.h"

namespace axle::tests {

// Returns the same numbers as uniform() in record_networks.py.
inline Tensor uniform_of(const Shape& shape, std::string_view name) {
    std::uint64_t number = 0xCBF29CE484222325;
    for (const char c : name) number = (number ^ static_cast<unsigned char>(c)) * 0x100000001B3;
    Tensor t = Tensor::empty(shape, {.dtype = f64});
    double* const values = t.data<double>();
    for (std::int64_t i = 0; i < t.numel(); ++i) {
        std::uint64_t h =
            static_cast<std::uint64_t>(i) * 0x9E3779B97F4A7C15 + number * 0xBF58476D1CE4E5B9;
        h ^= h >> 31;
        h *= 0x94D049BB133111EB;
        h ^= h >> 29;
        values[i] = static_cast<double>(h >> 40) / (1 << 24) - 0.5;
    }
    return t;
}

inline Tensor integers(const Shape& shape, std::string_view name, std::int64_t count) {
    return ((uniform_of(shape, name) + 0.5) * static_cast<double>(count)).to(i64);
}

inline Tensor images(std::int64_t size, std::int64_t batch, DType dtype) {
    return (uniform_of({4, 3, size, size}, str("images", batch)) * 4).to(dtype);
}

// Sets a parameter to the initial values of the recorded models.
inline void fill(Tensor parameter, std::string_view name) {
    const NoGrad no_grad;
    const Tensor u = uniform_of(parameter.shape(), name);
    if (parameter.dim() < 2)
        parameter.copy_(u * 0.25 + (name.ends_with("weight") ? 1 : 0));
    else
        parameter.copy_(u * std::sqrt(12 / static_cast<double>(u.numel() / u.size(0))));
}
inline void fill(const nn::Module& model) {
    for (const auto& [name, parameter] : model.named_parameters()) fill(parameter, name);
}

inline Tree recorded_network(const std::string& name) {
    return from_json(read_file(golden_path("networks/" + name + ".json")));
}

inline std::vector<double> numbers(const Tree& list) {
    std::vector<double> values;
    for (const Tree& value : list.elements()) values.push_back(value.number());
    return values;
}

using MakeOptimizer =
    std::function<std::unique_ptr<optim::Optimizer>(const std::vector<Tensor>& parameters)>;
inline MakeOptimizer adamw(double lr) {
    return [lr](const std::vector<Tensor>& parameters) {
        return std::make_unique<optim::AdamW>(parameters,
                                              optim::AdamWOptions{.lr = lr, .weight_decay = 0.1});
    };
}
inline MakeOptimizer sgd(double lr) {
    return [lr](const std::vector<Tensor>& parameters) {
        return std::make_unique<optim::SGD>(parameters,
                                            optim::SGDOptions{.lr = lr, .momentum = 0.9});
    };
}

// Expects that a state has the recorded names and shapes.
inline void expect_state(const Tree& recorded, const nn::StateDict& state) {
    using Entry = std::pair<std::string, std::vector<double>>;
    std::vector<Entry> own, theirs;
    for (const auto& [name, tensor] : state)
        own.emplace_back(name, std::vector<double>(tensor.shape().begin(), tensor.shape().end()));
    for (const Tree& entry : recorded.elements())
        theirs.emplace_back(entry[0].string(), numbers(entry[1]));
    std::ranges::sort(own), std::ranges::sort(theirs);
    EXPECT_EQ(own, theirs);
}
inline void expect_recorded_state(const std::string& network, const nn::StateDict& state) {
    SCOPED_TRACE(network);
    const Tree recorded = recorded_network(network);
    expect_state(recorded["state"], state);
}

// Trains a model from the initial values of the recorded models. Compares its first output, the
// norm of all gradients and the losses with the recorded values, and in f64 also the loss of the
// first batch in evaluation mode. out(batch) returns the output for a batch, and loss(output,
// batch) returns the loss. The tolerance of absolute and relative differences is 1e-8 in f64 and
// 1e-4 in f32. With a sanitizer, runs only the first step.
template <class Model, class Out, class Loss>
void expect_recorded_training(const std::string& network, Model& model, DType dtype,
                              const MakeOptimizer& optimizer, Out&& out, Loss&& loss) {
    SCOPED_TRACE(str(network, ' ', dtype));
    const double tolerance = dtype == f64 ? 1e-8 : 1e-4;
    const auto near = [&](double value, double expected) {
        return std::abs(value - expected) <= tolerance * std::max(1.0, std::abs(expected));
    };
    const Tree recorded = recorded_network(network);
    model.to(dtype);
    fill(model);
    model.train();
    const std::vector<double> losses = numbers(recorded[dtype == f64 ? "f64" : "f32"]);
    const auto own = optimizer(model.parameters());
    // With a sanitizer, one step is enough to execute every line.
    const std::size_t steps = kSanitized ? 1 : losses.size();
    for (std::size_t step = 0; step < steps; ++step) {
        const auto batch = static_cast<std::int64_t>(step % 2);
        const Tensor y = out(batch);
        ASSERT_EQ(y.dtype(), dtype);
        const Tensor now = loss(y, batch);
        now.backward();
        if (step == 0) {
            const std::vector<double> first = y.detach().reshape({-1}).to_vector();
            const std::vector<double> expected = numbers(recorded["out"]);
            ASSERT_EQ(first.size(), expected.size());
            for (std::size_t i = 0; i < first.size(); ++i)
                ASSERT_PRED2(near, first[i], expected[i])
                    << "output " << i << ", difference " << first[i] - expected[i];
            const double gradient = optim::clip_grad_norm_(model.parameters(), 1e30).item();
            ASSERT_PRED2(near, gradient, recorded["gradient"].number());
        }
        ASSERT_PRED2(near, now.item(), losses[step]) << "step " << step;
        own->step();
        own->zero_grad();
    }
    if (dtype != f64 || kSanitized) return;
    EXPECT_NE(losses.front(), losses.back());
    model.eval();
    const NoGrad no_grad;
    EXPECT_PRED2(near, loss(out(0), 0).item(), recorded["eval"].number());
}

// Compares a classifier of images with 10 classes with the recorded model. make() returns a new
// model.
template <class Make>
void expect_recorded_classifier(const std::string& network, std::int64_t size,
                                const MakeOptimizer& optimizer, Make&& make) {
    expect_recorded_state(network, make().state_dict());
    for (const DType dtype : {f64, f32}) {
        auto model = make();
        expect_recorded_training(
            network, model, dtype, optimizer,
            [&](std::int64_t batch) { return model(images(size, batch, dtype)); },
            [](const Tensor& y, std::int64_t batch) {
                return cross_entropy(y, integers({4}, str("labels", batch), 10));
            });
    }
}

// Expects that a model of Transformers is saved with the recorded names. Its configuration must be
// readable from the recorded config.json, and the saved weights must restore the model.
template <class Model>
void expect_recorded_files(const std::string& network) {
    const Tree recorded = recorded_network(network);
    const std::string config = to_json(recorded["config"]);
    Model model(decltype(Model::config)::from_json(config));
    fill(model);
    const TemporaryFolder folder;
    model.save_pretrained(folder.path());
    const Safetensors saved = load_safetensors(folder / "model.safetensors");
    expect_recorded_state(network, {saved.tensors.begin(), saved.tensors.end()});
    write_file_atomically(folder / "config.json", config);
    const Model loaded = Model::from_pretrained(folder.path());
    EXPECT_EQ(loaded.config.to_json(), model.config.to_json());
    const nn::StateDict first = model.state_dict(), second = loaded.state_dict();
    ASSERT_EQ(first.size(), second.size());
    for (std::size_t i = 0; i < first.size(); ++i) {
        EXPECT_EQ(first[i].first, second[i].first);
        expect_same_bits(first[i].second, second[i].second);
    }
    EXPECT_FALSE(loaded.is_training());
}

}  // namespace axle::tests
