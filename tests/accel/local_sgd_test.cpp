#include "accel/local_sgd.h"

#include <memory>

#include "nlohmann/json.hpp"
#include "optim/sgd.h"
#include "tests/accel/case_ranks.h"
#include "tests/accel/training.h"
#include "tests/vectors.h"

namespace axle {
namespace {

using nlohmann::json;
using Group = std::shared_ptr<dist::ProcessGroup>;

// The model y = a x + b.
struct Line : nn::Model<Line> {
    Tensor a = zeros(Shape{}, {.dtype = f64, .requires_grad = true});
    Tensor b = zeros(Shape{}, {.dtype = f64, .requires_grad = true});
    Tensor forward(double x) { return a * x + b; }
    void visit(nn::Visitor& v) override { v("a", a), v("b", b); }
};

void follow(const json& c, const Group& group) {
    const auto rank = static_cast<std::size_t>(group->rank());
    Line line;
    optim::SGD sgd(line.parameters(), {.lr = 0.1});
    Accelerator accelerator({.cpu = true, .process_group = group});
    accelerator.prepare(line, sgd);
    const auto expect = [&](const json& values) {
        EXPECT_NEAR(line.a.item(), values[0].get<double>(), 1e-12);
        EXPECT_NEAR(line.b.item(), values[1].get<double>(), 1e-12);
    };
    accel::LocalSGD local(accelerator, line, c["K"].get<std::int64_t>());
    for (int i = 0; i < c["steps"].get<int>(); ++i) {
        auto scope = accelerator.accumulate(line);
        const double x = group->rank() + 1;
        accelerator.backward((line(x) - (2 * x + 3 + i)).pow(2));
        sgd.step();
        sgd.zero_grad();
        local.step();
        expect(c["per_step_local_params"][rank][static_cast<std::size_t>(i)]);
    }
    local.finish();
    expect(c["final"][rank]);
}

// Covers 20.LocalSGD.
TEST(LocalSGD, GivesTheParametersOfAccelerateAfterEachStep) {
    const auto file = tests::vectors("local_sgd.json");
    tests::on_ranks_of_each(file, follow);
}

// Covers 20.LocalSGD.
TEST(LocalSGD, AveragesGradientsIfDisabledAndRejectsInvalidArguments) {
    tests::on_ranks(2, [](const Group& group) {
        Line line;
        Accelerator accelerator({.cpu = true, .process_group = group});
        accelerator.prepare(line);
        accel::LocalSGD local(accelerator, line, 1, false);
        accelerator.backward(line(group->rank()));
        EXPECT_EQ(line.a.grad().item(), 0.5);  // the mean over ranks
        local.step();
    });
    Line line;
    Accelerator alone({.cpu = true});
    tests::expect_error<UsageError>({"Accelerator: this model has not been prepared"},
                                    [&] { const accel::LocalSGD local(alone, line, 1); });
    alone.prepare(line);
    accel::LocalSGD local(alone, line, 1);
    local.step();
    tests::expect_error<ValueError>({"LocalSgd: local_sgd_steps", "0"},
                                    [&] { const accel::LocalSGD none(alone, line, 0); });
}

}  // namespace
}  // namespace axle
