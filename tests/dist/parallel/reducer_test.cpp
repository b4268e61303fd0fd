#include "core/autograd/autograd.h"
#include "dist/parallel/data_parallel.h"
#include "gmock/gmock.h"
#include "nn/layers/linear.h"
#include "tests/dist/parallel/replicas.h"

namespace axle {
namespace {

using dist::DataParallel;
using tests::expect_error;
using tests::expect_gradients;
using tests::gradients_of;
using tests::Group;
using tests::kTinyBucket;
using tests::on_ranks;
using tests::part;
using tests::small_mlp;

using tests::at;

// --- parameters without a gradient

// A model with layers that can be skipped.
struct Branches : nn::Model<Branches> {
    Branches() : stem(3, 3), left(3, 2), right(3, 2), never(3, 2) { to(f64); }
    Tensor forward(const Tensor& x, bool goes_left, bool goes_right = false) {
        const Tensor h = tanh(stem(x));
        if (!goes_left && !goes_right) return h;
        if (!goes_right) return left(h);
        return goes_left ? left(h) + right(h) : right(h);
    }
    void visit(nn::Visitor& v) override {
        v("stem", stem), v("left", left), v("right", right), v("never", never);
    }

    nn::Linear stem, left, right, never;
};

Branches branches() {
    manual_seed(8);
    return {};
}

// Covers 9.find_unused_parameters, 30.18.
TEST(Reducer, ReportsParametersWithoutGradient) {
    auto models = tests::clones_of(branches(), 2);
    on_ranks(2, [&](const Group& group) {
        Branches& model = models[at(group)];
        DataParallel replicas(model, group, {.bucket_cap_mb = kTinyBucket});
        const Tensor x = ones({1, 3}, {f64});
        for (int time = 0; time < 2; ++time)
            expect_error<UsageError>(
                {"DataParallel: these parameters got no gradient in this backward: right.weight, "
                 "right.bias, never.weight, never.bias; set find_unused_parameters = true"},
                [&] { model(x, true).sum().backward(); });
        // A backward pass that computes the gradients of all parameters still succeeds.
        model.zero_grad();
        (model(x, true, true) + model.never(x)).sum().backward();
        EXPECT_TRUE(model.never.weight.grad().defined());
    });
}

// The ranks use different layers; a parameter that no rank uses gets no gradient.
// Covers 9.find_unused_parameters.
TEST(Reducer, FindsUnusedParameters) {
    for (const double bucket : {25.0, kTinyBucket}) {
        Branches whole = branches();
        const Tensor x = randn({2, 3}, {f64});
        ((whole(x[0].unsqueeze(0), true).sum() + whole(x[1].unsqueeze(0), false, true).sum()) / 2)
            .backward();
        auto models = tests::clones_of(whole, 2);
        on_ranks(2, [&](const Group& group) {
            Branches& model = models[at(group)];
            DataParallel replicas(model, group,
                                  {.bucket_cap_mb = bucket, .find_unused_parameters = true});
            for (int step = 0; step < 3; ++step) {
                model.zero_grad();
                const bool left = group->rank() == 0;
                model(part(x, *group), left, !left).sum().backward();
                expect_gradients(model, gradients_of(whole));
            }
            EXPECT_FALSE(model.never.weight.grad().defined());
            // The next step uses other layers.
            model.zero_grad();
            model(part(x, *group), true).sum().backward();
            EXPECT_TRUE(model.left.weight.grad().defined());
            EXPECT_FALSE(model.right.weight.grad().defined());
        });
    }
}

TEST(Reducer, ReducesGradientsComputedOnlyWithoutSync) {
    Branches whole = branches();
    const Tensor x = randn({2, 4, 3}, {f64});
    whole(x[0], false, true).mean().backward();
    whole(x[1], true).mean().backward();
    for (const bool finds : {false, true}) {
        auto models = tests::clones_of(whole, 2);
        on_ranks(2, [&](const Group& group) {
            Branches& model = models[at(group)];
            model.never.requires_grad_(false);
            DataParallel replicas(model, group, {.find_unused_parameters = finds});
            for (int step = 0; step < 3; ++step) {
                model.zero_grad();
                {
                    const dist::NoSyncGuard guard = replicas.no_sync();
                    model(part(x[0], *group), false, true).mean().backward();
                }
                model(part(x[1], *group), true).mean().backward();
                expect_gradients(model, gradients_of(whole));
            }
        });
    }
}

// Covers 9.static_graph.
TEST(Reducer, AllowsUnusedParametersInAStaticGraphButRejectsChanges) {
    Branches whole = branches();
    const Tensor x = randn({4, 3}, {f64});
    whole(x, true).mean().backward();
    auto models = tests::clones_of(whole, 2);
    on_ranks(2, [&](const Group& group) {
        Branches& model = models[at(group)];
        DataParallel replicas(model, group, {.bucket_cap_mb = kTinyBucket, .static_graph = true});
        for (int step = 0; step < 3; ++step) {
            model.zero_grad();
            model(part(x, *group), true).mean().backward();
            expect_gradients(model, gradients_of(whole));
        }
        EXPECT_FALSE(model.right.weight.grad().defined());
        expect_error<UsageError>(
            {"DataParallel: these parameters got no gradient in this backward: left.weight, "
             "left.bias; the graph is not static"},
            [&] { model(part(x, *group), false).mean().backward(); });
        model.zero_grad();
        expect_error<UsageError>({"DataParallel: the graph is not static: right."},
                                 [&] { model(part(x, *group), true, true).mean().backward(); });
    });
}

// --- nested passes, and passes that fail

// Returns f(x). Its gradient rule runs a nested backward through f.
Tensor reentrant(const std::function<Tensor(const Tensor&)>& f, const Tensor& x) {
    Tensor y;
    {
        const NoGrad no_grad;
        y = f(x.detach());
    }
    return record("reentrant", y, {x}, [f, x = saved(x)](const Grads& dy, Needs) -> Grads {
        const GradMode recording(true);
        Tensor again = Tensor(x).detach();
        again.set_requires_grad();
        autograd::backward({f(again)}, {dy[0]});
        return {again.grad()};
    });
}

TEST(Reducer, WaitsForNestedBackwardPassesBeforeReducing) {
    nn::Mlp whole = small_mlp({3, 3, 3, 3});
    const Tensor x = randn({4, 3}, {f64});
    const auto forward = [](nn::Mlp& model, const Tensor& input, bool inside) {
        const auto middle = [&model](const Tensor& h) { return tanh(model.layers[1](h)); };
        Tensor h = tanh(model.layers[0](input));
        for (int time = 0; time < 2; ++time) h = inside ? reentrant(middle, h) : middle(h);
        return model.layers[2](h).pow(2).mean();
    };
    forward(whole, x, false).backward();
    for (const bool is_static : {false, true}) {
        auto models = tests::clones_of(whole, 2);
        on_ranks(2, [&](const Group& group) {
            nn::Mlp& model = models[at(group)];
            DataParallel replicas(model, group,
                                  {.bucket_cap_mb = kTinyBucket, .static_graph = is_static});
            for (int step = 0; step < 3; ++step) {
                model.zero_grad();
                forward(model, part(x, *group), true).backward();
                expect_gradients(model, gradients_of(whole));
            }
        });
    }
}

TEST(Reducer, RejectsANestedBackwardThatChangesAFinalGradient) {
    nn::Mlp model = small_mlp({3, 3, 3});
    DataParallel replicas(model, dist::ProcessGroup::alone());
    const auto last = [&](const Tensor& h) { return model.layers[1](h); };
    const Tensor h = reentrant(last, model.layers[0](ones({1, 3}, {f64})));
    expect_error<UsageError>({"DataParallel: ", "nested backward", "layers.1.weight"},
                             [&] { last(h).sum().backward(); });
}

TEST(Reducer, CanBeUsedAfterABackwardThatThrew) {
    nn::Mlp whole = small_mlp({3, 3, 3});
    const Tensor x = randn({4, 3}, {f64});
    whole(x).sum().backward();
    auto models = tests::clones_of(whole, 2);
    on_ranks(2, [&](const Group& group) {
        nn::Mlp& model = models[at(group)];
        DataParallel replicas(model, group, {.bucket_cap_mb = kTinyBucket});
        const Tensor h = model.layers[0](part(x, *group));
        const Tensor broken = record("broken", h.detach(), {h}, [](const Grads&, Needs) -> Grads {
            throw ValueError("a rule that throws");
        });
        expect_error<ValueError>({"a rule"}, [&] { model.layers[1](broken).sum().backward(); });
        for (int step = 0; step < 2; ++step) {
            model.zero_grad();
            (2 * model(part(x, *group)).sum()).backward();
            expect_gradients(model, gradients_of(whole));
        }
    });
}

// A gradient rule may return an undefined tensor for a zero gradient.
TEST(Reducer, TreatsAnUndefinedGradientAsZero) {
    nn::Mlp model = small_mlp({3, 3, 3});
    DataParallel replicas(model, dist::ProcessGroup::alone());
    const Tensor h = model.layers[0](ones({1, 3}, {f64}));
    const Tensor nothing =
        record("nothing", h.detach(), {h}, [](const Grads&, Needs) -> Grads { return {Tensor()}; });
    model.layers[1](nothing).sum().backward();
    EXPECT_EQ(model.layers[0].weight.grad().abs().max().item(), 0);
}

}  // namespace
}  // namespace axle
