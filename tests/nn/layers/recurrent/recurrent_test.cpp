#include "nn/layers/recurrent/recurrent.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "core/autograd/autocast.h"
#include "core/autograd/autograd.h"
#include "core/random.h"
#include "gmock/gmock.h"
#include "nn/init.h"
#include "nn/layers/recurrent/cells.h"
#include "tests/close.h"
#include "tests/nn/recorded_case.h"

namespace axle {
namespace {

using tests::expect_close;
using tests::expect_error;
using tests::expect_same_bits;
using tests::RecordedCase;

std::map<std::string, Tensor> outputs_of(const Tensor& y, const Tensor& h) {
    return {{"y", y}, {"h", h}};
}
std::map<std::string, Tensor> outputs_of(const Tensor& y, const nn::LSTMState& state) {
    return {{"y", y}, {"h", state.h}, {"c", state.c}};
}

constexpr std::int64_t kIn = 2, kHidden = 3;
const std::vector<std::int64_t> kLengths = {3, 5, 2};

// Runs a layer on the recorded inputs from the initial state `state`, and compares results and
// gradients with the recording.
template <class Layer, class State>
void check_layer(RecordedCase& recorded, Layer layer, const State& state, bool packed,
                 bool batch_first) {
    recorded.load(layer);
    if (!packed) {
        const auto [y, last] = layer(recorded.in("x"), state);
        recorded.check(layer, outputs_of(y, last));
        return;
    }
    const nn::PackedSequence x = nn::pack_padded_sequence(
        recorded.in("x"), kLengths, {.batch_first = batch_first, .enforce_sorted = false});
    const auto [y, last] = layer(x, state);
    const std::vector<double> sizes = recorded.tensors.at("sizes").to_vector();
    EXPECT_THAT(y.batch_sizes, testing::ElementsAreArray(sizes));
    expect_same_bits(y.sorted_indices, recorded.tensors.at("order"));
    const auto [padded, lengths] = nn::pad_packed_sequence(
        y, {.batch_first = batch_first, .padding_value = -1.5, .total_length = 6});
    expect_same_bits(lengths, tensor(kLengths));
    recorded.check(layer, outputs_of(padded, last));
}

struct Variant {
    std::int64_t num_layers = 1;
    bool bias = true, batch_first = false, bidirectional = false;
    std::int64_t proj_size = 0;
    bool packed = false;
    nn::RecurrentNonlinearity nonlinearity = nn::RecurrentNonlinearity::tanh;
};

const std::map<std::string, Variant>& variants() {
    static const std::map<std::string, Variant> all{
        {"plain", {}},
        {"deep", {.num_layers = 2}},
        {"no_bias", {.bias = false, .batch_first = true}},
        {"both", {.num_layers = 2, .bidirectional = true}},
        {"unbatched", {.bidirectional = true}},
        {"packed", {.num_layers = 2, .bidirectional = true, .packed = true}},
        {"packed_zeros", {.batch_first = true, .packed = true}},
        {"relu", {.num_layers = 2, .nonlinearity = nn::RecurrentNonlinearity::relu}},
        {"projection", {.num_layers = 2, .bidirectional = true, .proj_size = 2}},
        {"packed_projection", {.bidirectional = true, .proj_size = 2, .packed = true}},
    };
    return all;
}

class RecurrentLayer : public testing::TestWithParam<const char*> {};

TEST_P(RecurrentLayer, MatchesPyTorch) {
    const std::string name = GetParam();
    const std::string kind = name.substr(0, name.find('.'));
    const Variant v = variants().at(name.substr(kind.size() + 1));
    RecordedCase recorded(name, "recurrent.safetensors");
    const Tensor h = recorded.in("h");
    if (kind == "RNN")
        check_layer(recorded,
                    nn::RNN(kIn, kHidden,
                            {.num_layers = v.num_layers,
                             .nonlinearity = v.nonlinearity,
                             .bias = v.bias,
                             .batch_first = v.batch_first,
                             .bidirectional = v.bidirectional}),
                    h, v.packed, v.batch_first);
    else if (kind == "GRU")
        check_layer(recorded,
                    nn::GRU(kIn, kHidden,
                            {.num_layers = v.num_layers,
                             .bias = v.bias,
                             .batch_first = v.batch_first,
                             .bidirectional = v.bidirectional}),
                    h, v.packed, v.batch_first);
    else
        check_layer(recorded,
                    nn::LSTM(kIn, kHidden,
                             {.num_layers = v.num_layers,
                              .bias = v.bias,
                              .batch_first = v.batch_first,
                              .bidirectional = v.bidirectional,
                              .proj_size = v.proj_size}),
                    nn::LSTMState{h, recorded.in("c")}, v.packed, v.batch_first);
}

INSTANTIATE_TEST_SUITE_P(Recorded, RecurrentLayer,
                         testing::Values("RNN.plain", "RNN.deep", "RNN.no_bias", "RNN.both",
                                         "RNN.unbatched", "RNN.packed", "RNN.packed_zeros",
                                         "RNN.relu", "LSTM.plain", "LSTM.deep", "LSTM.no_bias",
                                         "LSTM.both", "LSTM.unbatched", "LSTM.packed",
                                         "LSTM.packed_zeros", "LSTM.projection",
                                         "LSTM.packed_projection", "GRU.plain", "GRU.deep",
                                         "GRU.no_bias", "GRU.both", "GRU.unbatched", "GRU.packed",
                                         "GRU.packed_zeros"),
                         [](const auto& test) {
                             std::string name = test.param;
                             std::replace(name.begin(), name.end(), '.', '_');
                             return name;
                         });

class RecurrentCell : public testing::TestWithParam<const char*> {};

TEST_P(RecurrentCell, MatchesPyTorch) {
    const std::string name = GetParam();
    const std::string kind = name.substr(0, name.find('.'));
    const bool bias = !name.ends_with("no_bias");
    RecordedCase recorded(name, "recurrent.safetensors");
    const Tensor x = recorded.in("x"), h = recorded.in("h");
    if (kind == "LSTMCell") {
        nn::LSTMCell cell(kIn, kHidden, {.bias = bias});
        recorded.load(cell);
        const nn::LSTMState state = cell(x, {h, recorded.in("c")});
        recorded.check(cell, {{"h", state.h}, {"c", state.c}});
    } else if (kind == "GRUCell") {
        nn::GRUCell cell(kIn, kHidden, {.bias = bias});
        recorded.load(cell);
        recorded.check(cell, {{"h", cell(x, h)}});
    } else {
        const bool is_relu = name.ends_with("relu");
        nn::RNNCell cell(kIn, kHidden,
                         {.bias = bias,
                          .nonlinearity = is_relu ? nn::RecurrentNonlinearity::relu
                                                  : nn::RecurrentNonlinearity::tanh});
        recorded.load(cell);
        recorded.check(cell, {{"h", cell(x, h)}});
    }
}

INSTANTIATE_TEST_SUITE_P(Recorded, RecurrentCell,
                         testing::Values("RNNCell.plain", "RNNCell.unbatched", "RNNCell.no_bias",
                                         "RNNCell.relu", "LSTMCell.plain", "LSTMCell.unbatched",
                                         "LSTMCell.no_bias", "GRUCell.plain", "GRUCell.unbatched",
                                         "GRUCell.no_bias"),
                         [](const auto& test) {
                             std::string name = test.param;
                             std::replace(name.begin(), name.end(), '.', '_');
                             return name;
                         });

TEST(RecurrentLayers, HaveParameterNamesAndInitialBoundsOfPyTorchAndRejectUnknownLayers) {
    nn::LSTM lstm(30, 25, {.num_layers = 2, .bidirectional = true, .proj_size = 10});
    std::vector<std::string> names;
    for (const auto& [name, tensor] : lstm.state_dict()) {
        names.push_back(name);
        EXPECT_LE(tensor.abs().max().item(), 0.2) << name;
        EXPECT_NEAR(std::sqrt(var(tensor).item()), 0.2 / std::sqrt(3.0), 0.02) << name;
    }
    EXPECT_THAT(names, testing::ElementsAre(
                           "weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0",
                           "weight_hr_l0", "weight_ih_l0_reverse", "weight_hh_l0_reverse",
                           "bias_ih_l0_reverse", "bias_hh_l0_reverse", "weight_hr_l0_reverse",
                           "weight_ih_l1", "weight_hh_l1", "bias_ih_l1", "bias_hh_l1",
                           "weight_hr_l1", "weight_ih_l1_reverse", "weight_hh_l1_reverse",
                           "bias_ih_l1_reverse", "bias_hh_l1_reverse", "weight_hr_l1_reverse"));
    EXPECT_EQ(lstm.weights().ih.shape(), Shape({100, 30}));
    EXPECT_EQ(lstm.weights(1, true).ih.shape(), Shape({100, 20}));
    EXPECT_EQ(lstm.weights(1).hr.shape(), Shape({10, 25}));
    expect_error<IndexError>({"LSTM: no weights of layer 2"}, [&] { lstm.weights(2); });
    nn::GRU gru(3, 4);
    expect_error<IndexError>({"GRU: no weights of layer 0, reversed", "1 direction"},
                             [&] { gru.weights(0, true); });
}

TEST(RecurrentLayers, DropElementsBetweenLayersOnlyInTraining) {
    manual_seed(4);
    nn::RNN layer(3, 50, {.num_layers = 2, .dropout = 0.5});
    Tensor identity = layer.weights(1).ih;
    {
        const NoGrad no_grad;
        nn::init::eye_(identity);
        layer.weights(1).hh.zero_(), layer.weights(1).bias_ih.zero_();
        layer.weights(1).bias_hh.zero_();
    }
    const Tensor x = randn({10, 4, 3});
    const Tensor y = layer(x).first;  // tanh(dropout(h)), where h is the output of layer 0
    EXPECT_NEAR(mean(eq(y, 0).to(f32)).item(), 0.5, 0.05);
    layer.eval();
    EXPECT_EQ(sum(eq(layer(x).first, 0)).item(), 0);
}

TEST(RecurrentLayers, AreClonedWithWeightsOfTheirOwn) {
    nn::GRU layer(3, 4);
    nn::GRU copy = layer.clone();
    const Tensor x = randn({2, 1, 3});
    const Tensor before = layer(x).first.detach();
    expect_same_bits(copy(x).first.detach(), before);
    copy.weights().ih.detach().zero_();
    expect_same_bits(layer(x).first.detach(), before);
}

TEST(RecurrentLayers, ReturnTheDTypeOfAutocast) {
    nn::LSTM layer(3, 4);
    const Tensor x = randn({5, 2, 3});
    const Tensor expected = layer(x).first.detach();
    const AutocastGuard autocast(bf16);
    const auto [y, state] = layer(x, {ones({1, 2, 4}), zeros({1, 2, 4})});
    EXPECT_EQ(y.dtype(), bf16);
    EXPECT_EQ(state.c.dtype(), bf16);
    expect_close(layer(x).first.detach(), expected, 0.02);
    sum(y).backward();
    EXPECT_EQ(layer.weights().hh.grad().dtype(), f32);
}

TEST(RecurrentLayers, ComputeShapesOnTheMetaDevice) {
    nn::LSTM layer(3, 4, {.batch_first = true, .bidirectional = true});
    layer.to(Device::meta());
    const auto [y, state] = layer(zeros({2, 5, 3}, {.device = Device::meta()}));
    EXPECT_EQ(y.shape(), Shape({2, 5, 8}));
    EXPECT_EQ(state.c.shape(), Shape({2, 2, 4}));
}

TEST(RecurrentLayers, AcceptEmptyBatches) {
    nn::GRU layer(3, 4);
    const auto [y, h] = layer(zeros({5, 0, 3}));
    EXPECT_EQ(y.shape(), Shape({5, 0, 4}));
    EXPECT_EQ(h.shape(), Shape({1, 0, 4}));
}

TEST(RecurrentLayers, ContinueLongSequencesFromTheLastState) {
    nn::LSTM layer(2, 3);
    layer.to(f64);
    const Tensor x = randn({140, 2, 2}, {f64});
    const auto [whole, last] = layer(x);
    sum(square(whole)).backward();
    const Tensor gradient = layer.weights().hh.grad();
    layer.zero_grad();
    const auto [first, middle] = layer(x.narrow(0, 0, 50));
    const auto [second, end] = layer(x.narrow(0, 50, 90), middle);
    expect_close(cat({first, second}).detach(), whole.detach(), 1e-14);
    expect_close(end.c.detach(), last.c.detach(), 1e-14);
    (sum(square(first)) + sum(square(second))).backward();
    expect_close(layer.weights().hh.grad(), gradient, 1e-12);
}

TEST(RecurrentLayers, CanBeDifferentiatedTwice) {
    const auto check = [](auto layer) {
        layer.to(f64);
        const Tensor start = randn({3, 2, 2}, {.dtype = f64});
        const auto gradient_at = [&](const Tensor& x) {
            const Tensor y = sum(square(layer(x).first));
            return autograd::grad({y}, {x}, {}, {.create_graph = true})[0];
        };
        // Compares the derivative of a gradient's squared norm along a direction with a central
        // difference.
        const Tensor x = start.clone().set_requires_grad();
        const Tensor second = autograd::grad({sum(square(gradient_at(x)))}, {x})[0];
        const Tensor direction = randn({3, 2, 2}, {.dtype = f64});
        const auto norm_at = [&](double step) {
            const Tensor near = (start + direction * step).set_requires_grad();
            return sum(square(gradient_at(near))).item();
        };
        const double slope = (norm_at(1e-5) - norm_at(-1e-5)) / 2e-5;
        EXPECT_NEAR(sum(second * direction).item(), slope, 1e-6 * std::max(1.0, std::abs(slope)));
    };
    check(nn::RNN(2, 3));
    check(nn::LSTM(2, 3));
    check(nn::GRU(2, 3));
}

TEST(RecurrentLayers, RejectInvalidOptionsAndShapes) {
    expect_error<ValueError>({"LSTM: sizes must be positive", "0"}, [] { nn::LSTM(0, 3); });
    expect_error<ValueError>({"GRU: dropout must be in [0, 1]", "2"},
                             [] { nn::GRU(2, 3, {.dropout = 2}); });
    expect_error<ValueError>({"LSTM: proj_size must be in [0, hidden_size)", "3"},
                             [] { nn::LSTM(2, 3, {.proj_size = 3}); });
    expect_error<ValueError>({"GRUCell: sizes must be positive"}, [] { nn::GRUCell(2, 0); });
    nn::LSTM layer(3, 4);
    expect_error<ShapeError>({"LSTM: x must be [time, batch, 3] or [time, 3]", "[5, 2, 4]"}, [&] {
        layer(zeros({5, 2, 4}));
    });
    expect_error<ShapeError>({"LSTM: x must have at least one time step"}, [&] {
        layer(zeros({0, 2, 3}));
    });
    expect_error<ShapeError>({"LSTM: h0 must be [1, 2, 4]", "[1, 3, 4]"}, [&] {
        layer(zeros({5, 2, 3}), {zeros({1, 3, 4}), zeros({1, 2, 4})});
    });
    expect_error<ShapeError>({"LSTM: c0 must be [1, 4]", "[1, 5]"}, [&] {
        layer(zeros({5, 3}), {zeros({1, 4}), zeros({1, 5})});
    });
    nn::RNNCell cell(3, 4);
    expect_error<ShapeError>({"RNNCell: x must be [batch, 3] or [3]", "[4]"},
                             [&] { cell(zeros({4})); });
    expect_error<ShapeError>({"RNNCell: h must be [2, 4]", "[4]"}, [&] {
        cell(zeros({2, 3}), zeros({4}));
    });
}

}  // namespace
}  // namespace axle
