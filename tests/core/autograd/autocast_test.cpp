// Tests that every op computes under autocast in the dtype of its autocast class.
#include "core/autograd/autocast.h"

#include <algorithm>
#include <string>

#include "core/ops.h"
#include "tests/core/ops/every_op.h"

namespace axle::tests {
namespace {

// Calls test(case, row) for every row with floating operands in the cases of an autocast class.
template <class Test>
void for_each_row(Autocast autocast, Test test) {
    for (const OpCase& c : op_cases()) {
        if (c.autocast != autocast) continue;
        for (const Row& row : c.rows) {
            if (!has_floats(row)) continue;
            SCOPED_TRACE(c.name + ", " + describe(row));
            test(c, row);
        }
    }
}

// Expects that floating outputs have the dtype `expected`, and other outputs the same dtype as
// without autocast.
void expect_dtype(const OpCase& c, In x, DType low, DType expected) {
    const Outputs plain = forward(c, x);
    const AutocastGuard guard(low);
    const Outputs y = forward(c, x);
    ASSERT_EQ(y.size(), plain.size());
    for (std::size_t k = 0; k < y.size(); ++k)
        EXPECT_EQ(y[k].dtype(), is_floating(plain[k].dtype()) ? expected : plain[k].dtype())
            << "output " << k << " of " << x[0].dtype();
}

// Expects the same dtypes as without autocast.
void expect_unchanged(const OpCase& c, In x, DType low) {
    const Outputs plain = forward(c, x);
    const AutocastGuard guard(low);
    const Outputs y = forward(c, x);
    ASSERT_EQ(y.size(), plain.size());
    for (std::size_t k = 0; k < y.size(); ++k)
        EXPECT_EQ(y[k].dtype(), plain[k].dtype()) << "output " << k;
}

class OpsUnderAutocast : public testing::TestWithParam<DType> {};

// Covers 8.autocast.
TEST_P(OpsUnderAutocast, RunProductsInLowPrecision) {
    for_each_row(Autocast::low, [](const OpCase& c, const Row& row) {
        for (const DType given : {f32, f16, bf16})
            expect_dtype(c, make_inputs(c, row, given), GetParam(), GetParam());
    });
}

// Covers 8.autocast.
TEST_P(OpsUnderAutocast, RunReductionsAndLossesInF32) {
    for_each_row(Autocast::f32, [](const OpCase& c, const Row& row) {
        for (const DType given : {f32, f16, bf16})
            expect_dtype(c, make_inputs(c, row, given), GetParam(), f32);
    });
}

// Covers 8.autocast.
TEST_P(OpsUnderAutocast, KeepDTypesWithoutACastRuleOrIfOperandsHaveTheSameDType) {
    for (const Autocast autocast : {Autocast::unchanged, Autocast::widest})
        for_each_row(autocast, [](const OpCase& c, const Row& row) {
            for (const DType given : {f32, f16, bf16})
                expect_unchanged(c, make_inputs(c, row, given), GetParam());
        });
}

// One floating operand is f32, and the other operands have the low dtype. 0-d operands do not take
// part in type promotion.
// Covers 8.autocast.
TEST_P(OpsUnderAutocast, PromoteMixedOperandsIfTheirCastRuleIsWidest) {
    for_each_row(Autocast::widest, [](const OpCase& c, const Row& row) {
        const std::vector<Tensor> x = make_inputs(c, row, f32);
        const auto floating = std::count_if(x.begin(), x.end(),
                                            [](const Tensor& t) { return is_floating(t.dtype()); });
        const auto has_dims = [](const Input& i) { return !i.shape.empty(); };
        if (floating < 2 || !std::all_of(row.begin(), row.end(), has_dims)) return;
        const AutocastGuard guard(GetParam());
        for (std::size_t wide = 0; wide < x.size(); ++wide) {
            if (!is_floating(x[wide].dtype())) continue;
            std::vector<Tensor> mixed;
            for (std::size_t i = 0; i < x.size(); ++i)
                mixed.push_back(i == wide || !is_floating(x[i].dtype()) ? x[i]
                                                                        : to(x[i], GetParam()));
            EXPECT_EQ(forward(c, mixed)[0].dtype(), f32) << "operand " << wide << " is f32";
        }
    });
}

// Covers 8.autocast.
TEST_P(OpsUnderAutocast, KeepF64Operands) {
    for (const Autocast autocast :
         {Autocast::unchanged, Autocast::low, Autocast::f32, Autocast::widest})
        for_each_row(autocast, [](const OpCase& c, const Row& row) {
            expect_unchanged(c, make_inputs(c, row, f64), GetParam());
        });
}

// Covers 8.autocast.
TEST_P(OpsUnderAutocast, ReturnF32GradientsForF32Operands) {
    for (const Autocast autocast :
         {Autocast::unchanged, Autocast::low, Autocast::f32, Autocast::widest})
        for_each_row(autocast, [](const OpCase& c, const Row& row) {
            const AutocastGuard guard(GetParam());
            const Result result = run(c, row, make_inputs(c, row, f32));
            for (const int i : differentiable(c, row))
                EXPECT_EQ(result.grads[static_cast<std::size_t>(i)].dtype(), f32)
                    << "operand " << i;
        });
}

INSTANTIATE_TEST_SUITE_P(LowDtypes, OpsUnderAutocast, testing::Values(f16, bf16),
                         [](const auto& one) { return std::string(name_of(one.param)); });

}  // namespace
}  // namespace axle::tests
