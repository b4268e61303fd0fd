#include "dist/parallel/local_sgd.h"

#include "core/autograd/autograd.h"
#include "core/system/numerics.h"
#include "core/tree/tree.h"
#include "gmock/gmock.h"
#include "optim/sgd.h"
#include "tests/dist/parallel/replicas.h"
#include "tests/vectors.h"

namespace axle {
namespace {

using dist::DataParallel;
using dist::LocalSgd;
using tests::expect_close;
using tests::Group;
using tests::on_ranks;

// The model y = a x + b.
struct Line : nn::Model<Line> {
    Line() {
        a = zeros({}, {f64}).set_requires_grad();
        b = zeros({}, {f64}).set_requires_grad();
    }
    void visit(nn::Visitor& v) override { v("a", a), v("b", b); }
    Tensor a, b;
};

class LocalSgdUpdates : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(LocalSgd, LocalSgdUpdates, testing::Bool());

// The test compares each step with a recording of Accelerate.
// Covers 20.LocalSGD.
TEST_P(LocalSgdUpdates, GiveTheParametersOfAccelerateAfterEachStep) {
    use_deterministic_algorithms(GetParam());
    const Tree recorded = from_json(tests::vectors("local_sgd.json").dump());
    for (const Tree& run : recorded["cases"].elements()) {
        const auto size = static_cast<int>(run["num_processes"].integer());
        on_ranks(size, [&](const Group& group) {
            const int rank = group->rank();
            Line model;
            DataParallel replicas(model, group);
            optim::SGD sgd(model.parameters(), {.lr = 0.1});
            const auto expect = [&](const Tree& values) {
                EXPECT_NEAR(model.a.item(), values[0].number(), 1e-12);
                EXPECT_NEAR(model.b.item(), values[1].number(), 1e-12);
            };
            {
                LocalSgd local(replicas, group, model, run["K"].integer());
                for (int i = 0; i < run["steps"].integer(); ++i) {
                    const double x = rank + 1;
                    sgd.zero_grad();
                    (model.a * x + model.b - (2 * x + 3 + i)).pow(2).backward();
                    sgd.step();
                    local.step();
                    expect(run["per_step_local_params"][rank][i]);
                }
            }
            expect(run["final"][rank]);
            EXPECT_TRUE(replicas.syncs());
        });
    }
    use_deterministic_algorithms(false);
}

TEST(LocalSgd, AveragesModelsWithoutDataParallel) {
    on_ranks(3, [](const Group& group) {
        Line model;
        model.a.detach().fill_(group->rank());
        LocalSgd local(group, model, 2);
        local.step();
        EXPECT_EQ(model.a.item(), group->rank());
        local.step();
        EXPECT_EQ(model.a.item(), 1);
        model.a.detach().fill_(3 * group->rank());
        local.finish();
        EXPECT_EQ(model.a.item(), 3);
        // Calls after finish() do nothing.
        model.a.detach().fill_(group->rank());
        local.finish();
        for (int step = 0; step < 2; ++step) local.step();
        EXPECT_EQ(model.a.item(), group->rank());
    });
}

TEST(LocalSgd, DoesNothingIfDisabled) {
    on_ranks(2, [](const Group& group) {
        Line model;
        DataParallel replicas(model, group);
        LocalSgd local(replicas, group, model, 1, false);
        (model.a * static_cast<double>(group->rank()) + model.b).backward();
        EXPECT_EQ(model.a.grad().item(), 0.5);  // reduced: the mean of 0 and 1
        model.a.detach().fill_(group->rank());
        local.step();
        local.finish();
        EXPECT_EQ(model.a.item(), group->rank());
    });
}

TEST(LocalSgd, RejectsZeroLocalSgdSteps) {
    Line model;
    tests::expect_error<ValueError>({"LocalSgd: local_sgd_steps", "0"}, [&] {
        const LocalSgd local(dist::ProcessGroup::alone(), model, 0);
    });
}

}  // namespace
}  // namespace axle
