#include "dist/parallel/buckets.h"

#include <algorithm>

#include "core/autograd/autograd.h"
#include "core/profiler/profiler.h"
#include "gmock/gmock.h"
#include "tests/dist/parallel/replicas.h"

namespace axle {
namespace {

using dist::DataParallel;
using dist::GradientBucket;
using testing::ElementsAre;
using tests::expect_same_bits;
using tests::Group;
using tests::kTinyBucket;
using tests::on_ranks;
using tests::small_mlp;

std::vector<Tensor> of_sizes(const std::vector<std::int64_t>& numbers, DType dtype = f32) {
    std::vector<Tensor> result;
    for (const std::int64_t n : numbers) result.push_back(zeros({n}, {dtype}));
    return result;
}

// Covers 9.bucket_cap_mb.
TEST(Buckets, EndWithTheParameterThatReachesTheSizeLimit) {
    const auto parameters = of_sizes({10, 1, 20, 5, 1, 30});
    EXPECT_THAT(dist::plan_buckets(parameters, {5, 4, 3, 2, 1, 0}, 8, 100),
                ElementsAre(ElementsAre(5), ElementsAre(4, 3, 2), ElementsAre(1, 0)));
    EXPECT_THAT(dist::plan_buckets(parameters, {0, 1, 2, 3, 4, 5}, 1000, 1000),
                ElementsAre(ElementsAre(0, 1, 2, 3, 4, 5)));
}

TEST(Buckets, ContainGradientsOfOneDType) {
    auto parameters = of_sizes({1, 1, 1});
    parameters.push_back(zeros({1}, {f64}));
    parameters.push_back(zeros({1}, {bf16}));  // its gradient is accumulated in f32
    EXPECT_THAT(dist::plan_buckets(parameters, {0, 3, 1, 4, 2}, 100, 100),
                ElementsAre(ElementsAre(3), ElementsAre(0, 1, 4, 2)));
    const auto buckets = dist::make_buckets(parameters, {{3}, {0, 1, 4, 2}});
    EXPECT_EQ(buckets[0].buffer.dtype(), f64);
    EXPECT_EQ(buckets[1].buffer.dtype(), f32);
    EXPECT_FALSE(buckets[0].is_last);
    EXPECT_TRUE(buckets[1].is_last);
}

std::vector<std::string> names_in(const std::vector<GradientBucket>& buckets,
                                  const nn::Module& model) {
    std::vector<std::string> result;
    for (const GradientBucket& bucket : buckets)
        for (const Tensor& p : bucket.parameters)
            for (const auto& [name, tensor] : model.named_parameters())
                if (tensor.is_same(p)) result.push_back(name);
    return result;
}

TEST(Buckets, AreOrderedFromTheLastParameterToTheFirst) {
    nn::Mlp model = small_mlp();
    const DataParallel replicas(model, dist::ProcessGroup::alone(), {.bucket_cap_mb = kTinyBucket});
    EXPECT_EQ(replicas.buckets().size(), 3U);
    EXPECT_THAT(names_in(replicas.buckets(), model),
                ElementsAre("layers.2.bias", "layers.2.weight", "layers.1.bias", "layers.1.weight",
                            "layers.0.bias", "layers.0.weight"));
}

// A model that declares its layers in one order and runs them in another order.
struct Crossed : nn::Model<Crossed> {
    Crossed() : second(3, 3), first(3, 3) { to(f64); }
    Tensor forward(const Tensor& x) { return second(tanh(first(x))); }
    void visit(nn::Visitor& v) override { v("second", second), v("first", first); }
    nn::Linear second, first;
};

// In the second backward pass and later, buckets have the order in which gradients became final on
// rank 0.
TEST(Buckets, AreRebuiltInTheOrderOfTheFirstBackward) {
    for (const bool is_static : {false, true}) {
        std::vector<Crossed> models(2);
        on_ranks(2, [&](const Group& group) {
            Crossed& model = models[static_cast<std::size_t>(group->rank())];
            DataParallel replicas(model, group,
                                  {.bucket_cap_mb = kTinyBucket, .static_graph = is_static});
            const auto backward = [&] { model(ones({1, 3}, {f64})).sum().backward(); };
            const auto names = [&] { return names_in(replicas.buckets(), model); };
            EXPECT_EQ(names()[0], "first.bias");
            backward();
            backward();
            EXPECT_THAT(names(), testing::UnorderedElementsAre("second.bias", "second.weight",
                                                               "first.bias", "first.weight"));
            EXPECT_TRUE(names()[0].starts_with("second.")) << names()[0];
            EXPECT_TRUE(names()[1].starts_with("second.")) << names()[1];
        });
    }
}

// Covers 9.gradient_as_bucket_view.
TEST(Buckets, ShareMemoryWithGradientsOnlyWithGradientAsBucketView) {
    for (const bool as_view : {true, false}) {
        auto models = tests::clones_of(small_mlp(), 2);
        on_ranks(2, [&](const Group& group) {
            nn::Mlp& model = models[static_cast<std::size_t>(group->rank())];
            DataParallel replicas(
                model, group, {.bucket_cap_mb = kTinyBucket, .gradient_as_bucket_view = as_view});
            for (int step = 0; step < 3; ++step) {
                if (step != 1) model.zero_grad();
                model(full({1, 5}, group->rank(), {f64})).sum().backward();
                for (const GradientBucket& bucket : replicas.buckets())
                    for (std::size_t i = 0; i < bucket.parameters.size(); ++i) {
                        const Tensor grad = bucket.parameters[i].grad();
                        EXPECT_EQ(dist::is_alias(grad, bucket.gradients[i]), as_view);
                        expect_same_bits(grad, bucket.gradients[i]);
                    }
            }
        });
    }
}

// A communication hook that records when the reduction of each bucket starts and finishes.
class Watching : public dist::CommHook {
  public:
    std::vector<std::string> log;

    Pending start(GradientBucket& bucket, dist::ProcessGroup& group) override {
        const std::size_t index = bucket.index;
        log.push_back(str("start ", index));
        const auto mean = dist::all_reduce_hook()->start(bucket, group);
        return {[this, index, mean] {
            mean.finish();
            log.push_back(str("finish ", index));
        }};
    }
};

TEST(Buckets, AreReducedInOrderDuringBackward) {
    std::vector<std::shared_ptr<Watching>> hooks{std::make_shared<Watching>(),
                                                 std::make_shared<Watching>()};
    auto models = tests::clones_of(small_mlp({4, 4, 4, 4}), 2);
    on_ranks(2, [&](const Group& group) {
        const auto rank = static_cast<std::size_t>(group->rank());
        nn::Mlp& model = models[rank];
        Watching& hook = *hooks[rank];
        DataParallel replicas(model, group,
                              {.bucket_cap_mb = 150.0 / (1 << 20), .hook = hooks[rank]});
        ASSERT_EQ(replicas.buckets().size(), 3U);
        const auto handle = autograd::on_leaf_final(
            model.layers[0].weight, [&](const Tensor&) { hook.log.emplace_back("first layer"); });
        model(ones({1, 4}, {f64})).sum().backward();
        EXPECT_THAT(hook.log,
                    testing::AnyOf(ElementsAre("start 0", "start 1", "first layer", "start 2",
                                               "finish 0", "finish 1", "finish 2"),
                                   ElementsAre("start 0", "start 1", "start 2", "first layer",
                                               "finish 0", "finish 1", "finish 2")));
    });
}

TEST(Buckets, OverlapWithBackwardInATrace) {
    auto models = tests::clones_of(small_mlp({16, 16, 16, 16}), 2);
    profiler::start();
    on_ranks(2, [&](const Group& group) {
        nn::Mlp& model = models[static_cast<std::size_t>(group->rank())];
        DataParallel replicas(model, group, {.bucket_cap_mb = kTinyBucket});
        model(ones({1, 16}, {f64})).sum().backward();
    });
    const profiler::Trace trace = profiler::stop();
    int overlaps = 0;
    for (const profiler::Event& reduction : trace.events) {
        if (reduction.name != "all_reduce bucket 0") continue;
        EXPECT_EQ(reduction.category, profiler::Category::communication);
        std::int64_t last = 0;
        for (const profiler::Event& event : trace.events)
            if (event.thread == reduction.thread && event.category == profiler::Category::backward)
                last = std::max(last, event.end);
        EXPECT_LT(reduction.start, last);
        EXPECT_GT(reduction.end, last);  // backward waits for all reductions
        ++overlaps;
    }
    EXPECT_EQ(overlaps, 2);
}

}  // namespace
}  // namespace axle
