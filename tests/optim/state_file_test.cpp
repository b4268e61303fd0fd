// Tests optimizer state files. A training run that PyTorch started must continue with the same
// numbers.
#include "optim/state_file.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/files/file.h"
#include "core/files/safetensors.h"
#include "core/ops.h"
#include "nn/layers/container.h"
#include "nn/layers/linear.h"
#include "optim/adam.h"
#include "optim/sgd.h"
#include "tests/close.h"
#include "tests/temporary_folder.h"

namespace axle {
namespace {

using optim::Adam;
using optim::AdamW;
using optim::Optimizer;
using optim::SGD;
using tests::expect_error;
using tests::expect_same_bits;
using tests::TemporaryFolder;

const std::string kFolder = AXLE_TESTS_DIR "/golden/interchange/";

nn::Sequential network() {
    nn::Sequential net{nn::Linear(3, 4), [](const Tensor& x) { return tanh(x); }, nn::Linear(4, 2)};
    net.to(f64);
    return net;
}

// Returns an optimizer with one group of weights and one group of biases.
template <class O>
std::unique_ptr<Optimizer> make(const nn::Module& model) {
    const std::vector<Tensor> all = model.parameters();
    return std::make_unique<O>(
        std::vector<typename O::Group>{{{all[0], all[2]}}, {{all[1], all[3]}}});
}
using Make = std::unique_ptr<Optimizer> (*)(const nn::Module&);
const std::vector<std::pair<std::string, Make>> kOptimizers = {
    {"sgd", make<SGD>}, {"adam", make<Adam>}, {"adamw", make<AdamW>}};

Tensor learn(nn::Sequential& model, Optimizer& optimizer, std::int64_t from, std::int64_t steps) {
    const auto data = load_safetensors(kFolder + "data.safetensors").tensors;
    std::vector<double> losses;
    for (std::int64_t step = from; step < from + steps; ++step) {
        optimizer.zero_grad();
        const Tensor loss = mse_loss(model(data.at("x")[step]), data.at("y")[step]);
        loss.backward();
        optimizer.step();
        losses.push_back(loss.item());
    }
    return tensor(losses, {steps}, {.dtype = f64});
}

void load_weights(nn::Module& model, const std::string& path) {
    const auto weights = load_safetensors(path).tensors;
    model.load_state_dict({weights.begin(), weights.end()});
}

class OptimizerStateFile : public testing::TestWithParam<std::pair<std::string, Make>> {};
std::string name_of_case(const testing::TestParamInfo<OptimizerStateFile::ParamType>& info) {
    return info.param.first;
}
INSTANTIATE_TEST_SUITE_P(StateFile, OptimizerStateFile, testing::ValuesIn(kOptimizers),
                         name_of_case);

TEST_P(OptimizerStateFile, ContinuesTrainingOfPyTorch) {
    const auto& [name, make] = GetParam();
    nn::Sequential model = network();
    const auto optimizer = make(model);
    load_weights(model, kFolder + name + ".model.safetensors");
    optim::load_state(kFolder + name + ".optimizer.safetensors", *optimizer);
    const auto data = load_safetensors(kFolder + "data.safetensors").tensors;
    tests::expect_close(learn(model, *optimizer, 10, 10), data.at("losses." + name), 1e-9);
}

TEST_P(OptimizerStateFile, WritesSameTensorsAsPyTorch) {
    const auto& [name, make] = GetParam();
    nn::Sequential model = network();
    const auto optimizer = make(model);
    const std::string torch_file = kFolder + name + ".optimizer.safetensors";
    const TemporaryFolder folder;
    optim::load_state(torch_file, *optimizer);
    optim::save_state(folder / "ours", *optimizer);
    const Safetensors a = load_safetensors(folder / "ours"), b = load_safetensors(torch_file);
    ASSERT_EQ(a.tensors.size(), b.tensors.size());
    for (const auto& [key, value] : b.tensors) {
        SCOPED_TRACE(key);
        ASSERT_TRUE(a.tensors.contains(key));
        if (key.ends_with(".step")) {
            EXPECT_EQ(a.tensors.at(key).item(), 10);  // PyTorch's step has the default dtype
        } else {
            expect_same_bits(a.tensors.at(key), value);
        }
    }
    const Tree groups = from_json(a.metadata.at("param_groups"));
    const Tree expected = from_json(b.metadata.at("param_groups"));
    ASSERT_EQ(groups.size(), 2u);
    for (std::size_t g = 0; g < groups.size(); ++g) {
        for (const char* option : {"lr", "weight_decay"})
            EXPECT_EQ(groups[g][option].number(), expected[g][option].number()) << option;
        EXPECT_EQ(to_json(groups[g]["params"]), to_json(expected[g]["params"]));
    }
}

TEST_P(OptimizerStateFile, ResumesBitExactlyAfterLoadState) {
    const auto& [name, make] = GetParam();
    nn::Sequential model = network();
    const auto optimizer = make(model);
    learn(model, *optimizer, 0, 3);
    const TemporaryFolder folder;
    optim::save_state(folder / "state", *optimizer);
    nn::Sequential copy = model.clone();
    const auto other = make(copy);
    optim::load_state(folder / "state", *other);
    expect_same_bits(learn(copy, *other, 3, 5), learn(model, *optimizer, 3, 5));
}

TEST(SavedOptimizerState, ContainsOnlyParameterGroupsBeforeFirstStep) {
    nn::Sequential model = network();
    AdamW optimizer(model.parameters(), {.lr = 0.25});
    const TemporaryFolder folder;
    optim::save_state(folder / "state", optimizer);
    EXPECT_TRUE(load_safetensors(folder / "state").tensors.empty());
    AdamW other(model.parameters());
    optim::load_state(folder / "state", other);
    EXPECT_EQ(other.param_groups()[0].lr, 0.25);
}

constexpr const char* kGroup = R"([{"lr": 0.5, "params": [0, 1]}])";

// Expects that load_state rejects a file with these contents for an AdamW whose parameters have the
// shapes [2] and [3], and does not change the optimizer.
void expect_refused(const NamedTensors& tensors, const Metadata& metadata, const char* reason,
                    std::source_location at = std::source_location::current()) {
    const TemporaryFolder folder(tests::FolderStorage::in_memory);
    const std::string path = folder / "state";
    save_safetensors(path, tensors, metadata);
    const std::vector<Tensor> params = {ones({2}).set_requires_grad(),
                                        ones({3}).set_requires_grad()};
    AdamW optimizer(params);
    expect_error<FileError>(
        {path.c_str(), reason}, [&] { optim::load_state(path, optimizer); }, at);
    EXPECT_EQ(optimizer.param_groups()[0].lr, 1e-3);
    EXPECT_EQ(optimizer.state(params[0]), nullptr);
}

TEST(SavedOptimizerState, IsRejectedIfTheFileIsInvalid) {
    expect_refused({}, {}, "the metadata has no entry param_groups");
    expect_refused({}, {{"param_groups", "[{"}}, "from_json");
    expect_refused({}, {{"param_groups", "7"}}, "expected a list");
    expect_refused({}, {{"param_groups", "[{}]"}}, "no key 'params'");
    expect_refused({}, {{"param_groups", R"([{"params": [0, 1], "lr": "much"}])"}},
                   "expected a number");
    // The first options are valid, but the last option is not.
    expect_refused({}, {{"param_groups", R"([{"params": [0, 1], "lr": 0.5, "amsgrad": 3}])"}},
                   "expected a boolean");
    for (const char* name :
         {"exp_avg", "state.", "state.0", "state.0.", "state..step", "state.x.step",
          "state.-1.step", "state.0x.step", "State.0.step", "state.99999999999999999999.step"})
        expect_refused({{name, ones({2})}}, {{"param_groups", kGroup}},
                       "the tensor name must be 'state.<parameter>.<name>'");
    expect_refused({{"state.2.step", ones({})}}, {{"param_groups", kGroup}},
                   "'state.2.step': the parameter does not exist: the optimizer has 2 parameters");
    expect_refused({{"state.0.ro.0", ones({})}, {"state.0.ro.2", ones({})}},
                   {{"param_groups", kGroup}}, "the tensor 'state.0.ro.1' is missing");
}

TEST(SavedOptimizerState, IsRejectedIfItDoesNotFitTheOptimizer) {
    expect_refused({{"state.0.step", ones({})}, {"state.0.exp_avg", ones({5})}},
                   {{"param_groups", kGroup}},
                   "exp_avg must be [2] for a parameter of shape [2], not [5]");
    expect_refused({{"state.0.exp_avg", ones({2})}}, {{"param_groups", kGroup}}, "no key 'step'");
    for (const Shape& shape : {Shape{0}, Shape{2}})
        expect_refused({{"state.0.step", ones(shape)}}, {{"param_groups", kGroup}},
                       "load_state_dict: step must have one element");
    expect_refused({{"state.0.step", ones({})}},
                   {{"param_groups", R"([{"params": [0]}, {"params": [1]}])"}},
                   "the number of groups differs: 2 in the state, 1 in the optimizer");
}

}  // namespace
}  // namespace axle
