// Tests that state_dict() rejects members that visit() does not name, and names that visit() uses
// twice.
#include <array>
#include <cstddef>
#include <memory>
#include <new>
#include <optional>
#include <source_location>
#include <string>
#include <utility>
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

TEST(StateDict, RejectsAnUnnamedMemberOfAMovedModel) {
    std::vector<ForgetsALayer> models(1);
    models.reserve(100);
    expect_error<UsageError>({"axle::(anonymous namespace)::ForgetsALayer::visit: "},
                             [&] { models[0].state_dict(); });
}

// A model with a member of each kind that check_visit() accepts.
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

TEST(StateDict, RequiresNoNameForTiedIgnoredAbsentAndComputedMembers) {
    Complete model;
    model(ones({1, 2}));
    ASSERT_TRUE(model.last_output.requires_grad());
    std::vector<std::string> names;
    for (const auto& [name, tensor] : model.state_dict()) names.push_back(name);
    EXPECT_EQ(names, (std::vector<std::string>{"in.weight", "in.bias", "mask", "layers.0.weight",
                                               "layers.0.bias"}));
}

TEST(StateDict, RejectsAnOptionalWithAValueThatVisitDoesNotName) {
    Complete model;
    model.absent.emplace(2, 2);
    expect_error<UsageError>({"axle::(anonymous namespace)::Complete::visit: "},
                             [&] { model.state_dict(); });
}

Tensor parameter() { return zeros({4, 3}, {.requires_grad = true}); }

std::vector<std::string> names(const nn::Module& model) {
    std::vector<std::string> result;
    for (const auto& [name, tensor] : model.state_dict()) result.push_back(name);
    return result;
}

// Expects that state_dict() throws an error that names the module `type` and a parameter that
// visit() omits. With `member`, the error must contain the offset of this parameter in the model.
template <class Model>
void expect_rejected(const Model& model, const char* type, const Tensor* member = nullptr,
                     std::source_location at = std::source_location::current()) {
    std::string where = " at byte ";
    if (member != nullptr)
        where += str(reinterpret_cast<const char*>(member) - reinterpret_cast<const char*>(&model),
                     " of");
    expect_error<UsageError>(
        {str("axle::(anonymous namespace)::", type, "::visit: ").c_str(),
         "the member of type axle::Tensor, a parameter (float32 [4, 3]),", where.c_str(),
         "add it to visit(), or call v.ignore() for it"},
        [&] { model.state_dict(); }, at);
}

struct ForgetsAParameter : nn::Model<ForgetsAParameter> {
    nn::Linear in{2, 3};
    Tensor scale = parameter();
    void visit(nn::Visitor& v) override { v("in", in); }
};

TEST(StateDict, RejectsAParameterThatVisitDoesNotName) {
    ForgetsAParameter model;
    expect_rejected(model, "ForgetsAParameter", &model.scale);
    // A tensor that does not require a gradient can be a temporary value, so it is not reported.
    model.scale.set_requires_grad(false);
    EXPECT_EQ(names(model), (std::vector<std::string>{"in.weight", "in.bias"}));
    model.scale.set_requires_grad();
    expect_rejected(model, "ForgetsAParameter", &model.scale);
    model.scale = model.scale * 2;
    EXPECT_EQ(names(model), (std::vector<std::string>{"in.weight", "in.bias"}));
}

TEST(StateDict, RejectsAnUnnamedParameterInMovedAndClonedModules) {
    std::vector<ForgetsAParameter> models(1);
    models.reserve(100);
    expect_rejected(models[0], "ForgetsAParameter", &models[0].scale);
    const ForgetsAParameter moved = std::move(models[0]);
    expect_rejected(moved, "ForgetsAParameter", &moved.scale);
    const ForgetsAParameter copy = moved.clone();
    expect_rejected(copy, "ForgetsAParameter", &copy.scale);
    ForgetsAParameter assigned;
    assigned = moved.clone();
    expect_rejected(assigned, "ForgetsAParameter", &assigned.scale);
    assigned.scale.set_data(ones({4, 3}));
    expect_rejected(assigned, "ForgetsAParameter", &assigned.scale);
}

struct NamesTheChild : nn::Model<NamesTheChild> {
    Tensor first = parameter();
    ForgetsAParameter inner;
    void visit(nn::Visitor& v) override { v("first", first), v("inner", inner); }
};

TEST(StateDict, ReportsTheChildThatDoesNotNameItsParameter) {
    expect_rejected(NamesTheChild(), "ForgetsAParameter");
}

struct VisitsTheChildDirectly : nn::Model<VisitsTheChildDirectly> {
    ForgetsAParameter inner;
    void visit(nn::Visitor& v) override { inner.visit(v); }
};

TEST(StateDict, ReportsAnUnnamedParameterOfAChildWhoseVisitIsCalledDirectly) {
    const VisitsTheChildDirectly model;
    expect_rejected(model, "VisitsTheChildDirectly", &model.inner.scale);
}

struct NamesOneElement : nn::Model<NamesOneElement> {
    std::array<Tensor, 2> scales = {parameter(), parameter()};
    void visit(nn::Visitor& v) override { v("first", scales[0]); }
};

TEST(StateDict, RejectsAnElementOfAnArrayThatVisitDoesNotName) {
    const NamesOneElement model;
    expect_rejected(model, "NamesOneElement", &model.scales[1]);
}

// A model with a parameter of each kind that check_visit() accepts.
struct AcceptedParameters : nn::Model<AcceptedParameters> {
    Tensor named = parameter(), tied = named;
    Tensor statistics = parameter();
    Tensor constant = ones({2});
    Tensor of_teacher = parameter();
    std::optional<Tensor> absent;
    ForgetsAParameter teacher;
    ForgetsAParameter child;
    Tensor tied_to_child = child.in.weight;

    void visit(nn::Visitor& v) override {
        v("named", named), v("child", child), v("scale of child", child.scale);
        v.buffer("statistics", statistics);
        v.ignore(of_teacher), v.ignore(teacher);
    }
};

TEST(StateDict, RejectsParametersThatAreNeitherNamedNorTiedNorIgnored) {
    AcceptedParameters model;
    const std::vector<std::string> expected = {"named", "child.in.weight", "child.in.bias",
                                               "scale of child", "statistics"};
    EXPECT_EQ(names(model), expected);
    // In a clone, handles that visit() does not name refer to the parameters of the original.
    AcceptedParameters copy = model.clone();
    expect_rejected(copy, "AcceptedParameters", &copy.tied);
    copy.tied = copy.named;
    copy.tied_to_child = copy.child.in.weight;
    EXPECT_EQ(names(copy), expected);
    expect_rejected(model.child, "ForgetsAParameter", &model.child.scale);
    model.constant = parameter();
    expect_rejected(model, "AcceptedParameters", &model.constant);
}

struct HasAnOptional : nn::Model<HasAnOptional> {
    Tensor weight = parameter();
    std::optional<Tensor> extra;
    void visit(nn::Visitor& v) override { v("weight", weight); }
};

TEST(StateDict, RejectsAnUnnamedOptionalParameterOnlyWhileItHasAValue) {
    HasAnOptional model;
    const Tensor other = parameter();
    for (int i = 0; i < 10000; ++i) {
        // The destroyed value refers to a tensor that still exists, or to a tensor whose memory the
        // next parameter may reuse.
        model.extra.emplace(i % 2 == 0 ? other : parameter());
        model.extra.reset();
        const Tensor next = parameter();
        ASSERT_NO_THROW(model.check_visit());
    }
    model.extra.emplace(other);
    expect_rejected(model, "HasAnOptional", &*model.extra);
}

TEST(StateDict, AcceptsAnEmptyOptionalInMemoryThatHeldATensor) {
    for (const std::size_t shift : {std::size_t{0}, sizeof(void*)})
        for (const bool is_parameter : {true, false}) {
            Tensor other = is_parameter ? parameter() : ones({2});
            const auto* const bytes = reinterpret_cast<const std::byte*>(&other);
            alignas(HasAnOptional) std::array<std::byte, sizeof(HasAnOptional)> memory;
            // The accesses are volatile. Otherwise the compiler may omit them, because constructors
            // must not read the earlier contents of the memory.
            for (std::size_t i = 0; i < memory.size(); ++i)
                const_cast<volatile std::byte&>(memory[i]) = bytes[(i + shift) % sizeof(Tensor)];
            auto* const model = new (memory.data()) HasAnOptional;
            // The memory of the empty optional now contains the address of `other`, as if it had
            // held a tensor that was destroyed and `other` had been created at the same address.
            if (!is_parameter) other.set_requires_grad();
            EXPECT_EQ(names(*model), std::vector<std::string>{"weight"});
            const Tensor extra = parameter();
            model->extra.emplace(extra);
            expect_rejected(*model, "HasAnOptional", &*model->extra);
            std::destroy_at(model);
        }
}

struct HasAFlag : nn::Model<HasAFlag> {
    explicit HasAFlag(std::byte value) : flag(value) {}  // NOLINT: `rest` keeps its old bytes
    Tensor weight = parameter();
    alignas(void*) std::byte flag;
    std::array<std::byte, sizeof(Tensor) - 1> rest;
    void visit(nn::Visitor& v) override { v("weight", weight); }
};

TEST(StateDict, AcceptsAMemberThatCompletesOldBytesToAnAddress) {
    Tensor other = parameter();
    auto* const bytes = reinterpret_cast<std::byte*>(&other);
    const std::byte first = bytes[0];
    for (const std::size_t shift : {std::size_t{0}, sizeof(void*)}) {
        alignas(HasAFlag) std::array<std::byte, sizeof(HasAFlag)> memory;
        // The old bytes are those of the Tensor `other`, except for its first byte, which the
        // constructor writes. The accesses are volatile as in the test above.
        for (std::size_t i = 0; i < memory.size(); ++i) {
            const std::size_t place = (i + shift) % sizeof(Tensor);
            const_cast<volatile std::byte&>(memory[i]) =
                place == 0 ? first ^ std::byte{1} : bytes[place];
        }
        auto* const model = new (memory.data()) HasAFlag(first);
        EXPECT_EQ(names(*model), std::vector<std::string>{"weight"});
        std::destroy_at(model);
    }
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
