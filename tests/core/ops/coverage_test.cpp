// Checks that the op cases cover the ops that the headers in declared_ops() declare. Also checks
// the names, PyTorch expressions and operand sizes of the cases.
#include <algorithm>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "core/ops.h"
#include "gmock/gmock.h"
#include "tests/op_case.h"

namespace axle::tests {

namespace {

// Returns the names of the functions with tensors as results that the headers declare at the start
// of a line.
std::set<std::string> declared_ops() {
    std::set<std::string> names;
    const std::regex declaration(
        R"(^(?:Tensor|std::vector<Tensor>|std::pair<Tensor, Tensor>|UniqueElements|Svd|LeastSquares) (\w+)\()");
    std::smatch match;
    for (const char* header :
         {"ops.h", "creation.h", "elementwise.h", "functional.h", "linalg.h", "losses.h",
          "ops/recurrent/recurrent.h", "products.h", "reductions.h", "sampling.h", "selection.h",
          "shaping.h", "spatial.h"}) {
        std::ifstream file(str(AXLE_TESTS_DIR, "/../core/", header));
        for (std::string line; std::getline(file, line);)
            if (std::regex_search(line, match, declaration)) names.insert(match[1]);
    }
    return names;
}

std::map<std::string, std::vector<const OpCase*>> cases_by_op() {
    std::map<std::string, std::vector<const OpCase*>> cases;
    for (const OpCase& c : op_cases()) cases[c.op()].push_back(&c);
    return cases;
}

template <class Predicate>
bool any_row(const std::vector<const OpCase*>& cases, Predicate predicate) {
    for (const OpCase* c : cases)
        for (const Row& row : c->rows)
            if (std::any_of(row.begin(), row.end(), predicate)) return true;
    return false;
}

TEST(OpCases, CoverAllDeclaredOps) {
    const auto declared = declared_ops();
    ASSERT_GT(declared.size(), 80u) << "too few declarations found";
    std::set<std::string> covered;
    for (const auto& [op, cases] : cases_by_op()) covered.insert(op);
    EXPECT_THAT(covered, testing::ContainerEq(declared));
}

TEST(OpCases, HaveUniqueNames) {
    std::set<std::string> names;
    for (const OpCase& c : op_cases()) EXPECT_TRUE(names.insert(c.name).second) << c.name;
}

// Returns the ops whose cases need no PyTorch expression, with the reasons.
const std::map<std::string, std::string>& not_recorded() {
    static const std::map<std::string, std::string> reasons = {
        {"empty", "the values are undefined"},
        {"empty_like", "the values are undefined"},
        {"rand", "the random numbers differ from PyTorch's"},
        {"randn", "the random numbers differ from PyTorch's"},
        {"randint", "the random numbers differ from PyTorch's"},
        {"rand_like", "the random numbers differ from PyTorch's"},
        {"randn_like", "the random numbers differ from PyTorch's"},
        {"randint_like", "the random numbers differ from PyTorch's"},
        {"randperm", "the random numbers differ from PyTorch's"},
        {"bernoulli", "the random numbers differ from PyTorch's"},
        {"normal", "the random numbers differ from PyTorch's"},
        {"multinomial", "the random numbers differ from PyTorch's"},
        {"gumbel_softmax", "the random numbers differ from PyTorch's"},
    };
    return reasons;
}

TEST(OpCases, HavePyTorchExpressionUnlessListedWithReason) {
    for (const auto& [op, cases] : cases_by_op()) {
        const bool recorded = std::any_of(cases.begin(), cases.end(),
                                          [](const OpCase* c) { return !c->torch.empty(); });
        EXPECT_NE(recorded, not_recorded().contains(op))
            << op
            << (recorded ? " has a PyTorch expression and a reason to have none"
                         : " has no case with a PyTorch expression (OpCase::torch)");
    }
}

// Every op with operands, except affine_grid and ops such as zeros_like, must have a case with an
// empty operand. It must also have a case with an operand of more than 32 elements that does not
// fill whole SIMD registers. The last dimension of this operand is not a multiple of 16, the number
// of f32 elements in the widest register.
TEST(OpCases, IncludeEmptyShapesAndPartialSimdRegisters) {
    for (const auto& [op, cases] : cases_by_op()) {
        if (cases[0]->rows[0].empty() || op.ends_with("_like")) continue;
        if (op == "affine_grid") continue;  // all sizes must be positive
        EXPECT_TRUE(any_row(cases, [](const Input& i) { return numel(i.shape) == 0; }))
            << op << " has no row with an empty operand";
        EXPECT_TRUE(any_row(
            cases, [](const Input& i) { return numel(i.shape) > 32 && i.shape.back() % 16 != 0; }))
            << op << " has no row beyond a SIMD register";
    }
}

}  // namespace

}  // namespace axle::tests
