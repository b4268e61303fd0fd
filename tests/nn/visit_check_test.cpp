// Tests that members which visit() does not name are found.
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/random.h"
#include "nn/layers/linear.h"
#include "nn/layers/mlp.h"
#include "nn/module.h"
#include "tests/close.h"

namespace axle {
namespace {

using tests::expect_error;

struct ForgetsALayer : nn::Model<ForgetsALayer> {
    nn::Linear in{2, 3};
    nn::Linear out{3, 1};
    Tensor forward(const Tensor& x) { return out(in(x)); }
    void visit(nn::Visitor& v) override { v("in", in); }
};

struct Outer : nn::Model<Outer> {
    ForgetsALayer inner;
    void visit(nn::Visitor& v) override { v("inner", inner); }
};

TEST(StateDict, RejectsAMemberModuleThatVisitDoesNotName) {
    const ForgetsALayer model;
    expect_error<UsageError>(
        {"axle::(anonymous namespace)::ForgetsALayer::visit: ", "axle::nn::Linear",
         str("at byte ",
             reinterpret_cast<const char*>(&model.out) - reinterpret_cast<const char*>(&model))
             .c_str()},
        [&] { model.state_dict(); });
}

TEST(StateDict, ReportsTheChildModuleWhoseVisitIsIncomplete) {
    const Outer model;
    expect_error<UsageError>({"axle::(anonymous namespace)::ForgetsALayer::visit: "},
                             [&] { model.state_dict(); });
}

TEST(StateDict, RejectsAMissingMemberAfterTheModuleMoved) {
    std::vector<ForgetsALayer> models(1);
    models.reserve(100);
    expect_error<UsageError>({"axle::(anonymous namespace)::ForgetsALayer::visit: "},
                             [&] { models[0].state_dict(); });
}

// Has a member of each kind that check_visit() accepts.
struct Complete : nn::Model<Complete> {
    nn::Linear in{2, 3};
    Tensor tied = in.weight;
    Tensor mask = ones({3});
    Tensor last_output;
    std::optional<nn::Linear> absent;
    nn::Linear frozen_teacher{2, 2};
    std::variant<nn::Linear, nn::Mlp> flattened{nn::Mlp({2, 1})};

    Tensor forward(const Tensor& x) { return last_output = in(x); }
    void visit(nn::Visitor& v) override {
        v("in", in);
        v.buffer("mask", mask);
        v.ignore(frozen_teacher);
        std::visit([&](auto& module) { module.visit(v); }, flattened);
    }
};

TEST(StateDict, AcceptsTiedIgnoredAbsentAndComputedMembers) {
    Complete model;
    model(ones({1, 2}));
    ASSERT_TRUE(model.last_output.requires_grad());
    std::vector<std::string> names;
    for (const auto& [name, tensor] : model.state_dict()) names.push_back(name);
    EXPECT_EQ(names, (std::vector<std::string>{"in.weight", "in.bias", "mask", "layers.0.weight",
                                               "layers.0.bias"}));
    model.absent.emplace(2, 2);
    expect_error<UsageError>({"axle::(anonymous namespace)::Complete::visit: "},
                             [&] { model.state_dict(); });
}

struct UsesANameTwice : nn::Model<UsesANameTwice> {
    nn::Linear in{2, 3}, out{3, 2};
    Tensor forward(const Tensor& x) { return out(in(x)); }
    void visit(nn::Visitor& v) override { v("layer", in), v("layer", out); }
};

TEST(StateDict, RejectsTwoMembersWithOneName) {
    UsesANameTwice model;
    expect_error<UsageError>({"axle::(anonymous namespace)::UsesANameTwice::visit: ", "'layer'"},
                             [&] { model.state_dict(); });
}

}  // namespace
}  // namespace axle
