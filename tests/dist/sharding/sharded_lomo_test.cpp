#include "optim/lomo.h"
#include "tests/dist/sharding/sharded_models.h"

namespace axle {
namespace {

using dist::ShardedDataParallel;
using tests::clones_of;
using tests::expect_close;
using tests::Gpt64;
using tests::Group;
using tests::loss_of;
using tests::on_ranks;

void train(nn::Gpt& model, const dist::ProcessGroup& group, optim::LomoOptions options) {
    optim::Lomo optimizer(model.parameters(), options);
    for (std::int64_t step = 0; step < 3; ++step)
        optimizer.fused_backward(loss_of(model, step, group), 0.05);
}

TEST(ShardedLomo, TrainsLikeOneProcess) {
    const Gpt64 gpt;
    for (const optim::LomoOptions& options :
         {optim::LomoOptions{}, {.clip_grad_norm = 0.2}, {.clip_grad_value = 0.01}}) {
        nn::Gpt whole = gpt.make();
        auto models = clones_of(whole, 3);
        train(whole, *dist::ProcessGroup::alone(), options);
        on_ranks(3, [&](const Group& group) {
            nn::Gpt& model = models[static_cast<std::size_t>(group->rank())];
            const ShardedDataParallel sharded(model, group, {.units = gpt.units()});
            train(model, *group, options);
            const dist::FullParameters full(model);
            const auto actual = model.parameters(), expected = whole.parameters();
            for (std::size_t i = 0; i < actual.size(); ++i)
                expect_close(actual[i].detach(), expected[i].detach(), 1e-12);
        });
    }
}

}  // namespace
}  // namespace axle
