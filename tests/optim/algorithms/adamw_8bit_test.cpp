#include "optim/algorithms/adamw_8bit.h"

#include <cmath>
#include <utility>
#include <vector>

#include "core/ops.h"
#include "gtest/gtest.h"
#include "optim/state_file.h"
#include "tests/close.h"
#include "tests/optim/recorded_parameters.h"
#include "tests/temporary_folder.h"
#include "tests/vectors.h"

namespace axle::tests {
namespace {

using optim::AdamW8bit;

Tensor cosines(const Shape& shape, DType dtype) {
    std::vector<double> numbers;
    for (int i = 0; i < numel(shape); ++i) numbers.push_back(std::cos(0.7 * i));
    return tensor(numbers, shape, {.dtype = dtype, .requires_grad = true});
}

void expect_all_near(const std::vector<double>& actual, const std::vector<double>& expected,
                     double tolerance) {
    ASSERT_EQ(actual.size(), expected.size());
    for (std::size_t i = 0; i < actual.size(); ++i)
        EXPECT_NEAR(actual[i], expected[i], tolerance * (1 + std::abs(expected[i]))) << i;
}

void set_large_gradients(const Tensor& param, int t) {
    std::vector<double> gradient;
    int i = 0;
    for (const double p : param.to_vector()) {
        gradient.push_back((0.5 + 0.1 * (i % 5)) * p +
                           0.5 * std::sin(0.3 * t + i) * std::pow(10.0, -(i % 4)));
        ++i;
    }
    param.set_grad(tensor(gradient, param.shape(), {.dtype = param.dtype()}));
}

std::vector<double> every_41st(const Tensor& x) {
    return slice(flatten(x), 0, 0, INT64_MAX, 41).to_vector();
}

std::vector<std::pair<const char*, optim::AdamW8bitOptions>> options_8bit() {
    return {{"adamw_8bit", {.lr = 0.02}},
            {"adamw_8bit_options",
             {.lr = 0.05, .betas = {0.8, 0.9}, .eps = 1e-3, .weight_decay = 0.2}}};
}

TEST(AdamW8bit, UsesTheCodeOfDynamicTreeQuantization) {
    const auto golden = golden_json("special_optim.json")["code"];
    expect_all_near(AdamW8bit::dynamic_code(true).to_vector(), golden["signed"], 1e-7);
    expect_all_near(AdamW8bit::dynamic_code(false).to_vector(), golden["unsigned"], 1e-7);
}

TEST(AdamW8bit, MatchesThePaperOverFiftySteps) {
    const auto golden = golden_json("special_optim.json");
    const int every = golden["every"];
    for (const DType dtype : {f64, f32})
        for (const auto& [name, options] : options_8bit()) {
            SCOPED_TRACE(name);
            SCOPED_TRACE(dtype);
            // In f32, a moment can be rounded to the neighbor of the recorded number.
            const double tolerance = dtype == f64 ? 1e-11 : 1e-2;
            const Tensor param = cosines({65, 64}, dtype);
            AdamW8bit optimizer({param}, options);
            const auto& expected = golden["adamw_8bit"][name]["large"];
            int t = 0;
            for (const auto& row : expected["rows"]) {
                for (int i = 0; i < every; ++i) {
                    set_large_gradients(param, ++t);
                    optimizer.step();
                }
                std::vector<double> actual = every_41st(param.detach());
                actual.push_back(sum(param.detach() * param.detach()).item());
                expect_all_near(actual, row, tolerance);
            }
            if (dtype == f32) continue;
            const Tree state = optimizer.state_dict()["state"]["0"];
            for (const char* key : {"state1", "state2"}) {
                EXPECT_EQ(state[key].tensor().dtype(), u8);
                expect_all_near(every_41st(state[key].tensor()), expected["codes"][key], 0);
            }
            for (const char* key : {"absmax1", "absmax2"})
                expect_all_near(state[key].tensor().to_vector(), expected["absmax"][key], 1e-11);
        }
}

TEST(AdamW8bit, EqualsAdamWForSmallParameters) {
    const auto golden = golden_json("special_optim.json");
    const int every = golden["every"];
    for (const auto& [name, options] : options_8bit()) {
        SCOPED_TRACE(name);
        const Params params = parameters();
        AdamW8bit optimizer(params, options);
        int t = 0;
        for (const auto& row : golden["adamw_8bit"][name]["small"]) {
            for (int i = 0; i < every; ++i) {
                set_gradients(params, ++t);
                optimizer.step();
            }
            expect_all_near(values(params), row, 1e-11);
        }
        EXPECT_FALSE(optimizer.state_dict()["state"]["0"].contains("absmax1"));
    }
}

TEST(AdamW8bit, ResumesBitExactlyFromAFile) {
    const TemporaryFolder folder(FolderStorage::in_memory);
    for (const DType dtype : {f32, bf16}) {
        const Tensor param = cosines({4097}, dtype), copy = cosines({4097}, dtype);
        AdamW8bit optimizer({param}), loaded({copy});
        const auto steps = [](AdamW8bit& each, const Tensor& of, int from, int to) {
            for (int t = from; t <= to; ++t) {
                set_large_gradients(of, t);
                each.step();
            }
        };
        steps(optimizer, param, 1, 3);
        optim::save_state(folder / "state", optimizer);
        optim::load_state(folder / "state", loaded);
        copy.detach().copy_(param.detach());
        steps(optimizer, param, 4, 6);
        steps(loaded, copy, 4, 6);
        expect_same_bits(copy.detach(), param.detach());
    }
}

TEST(AdamW8bit, UpdatesStridedParametersAndSkipsStepsOnFoundInf) {
    const Tensor base = cosines({64, 65}, f32).detach();
    Tensor strided = base.transpose(0, 1);
    strided.set_requires_grad();
    const Tensor dense = strided.detach().clone().set_requires_grad();
    AdamW8bit optimizer({strided}), reference({dense});
    Tensor scalars = tensor({1.0, 1.0, 1.0}, {3}, {.dtype = f64});
    optimizer.set_scalars(scalars);
    set_large_gradients(strided, 1);
    optimizer.step();
    EXPECT_TRUE(optimizer.state_dict()["state"].empty());
    scalars.data<double>()[2] = 0;
    for (int t = 1; t <= 3; ++t) {
        set_large_gradients(strided, t), set_large_gradients(dense, t);
        optimizer.step(), reference.step();
    }
    EXPECT_EQ(base.transpose(0, 1).to_vector(), dense.to_vector());
}

}  // namespace
}  // namespace axle::tests
