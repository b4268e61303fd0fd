// Tests that dropout does not depend on the number of processes that share sequences. Each rank is
// a process, because the threads of a process share a random generator.
#include <chrono>
#include <cmath>
#include <string>

#include "dist/sequence/context_parallel.h"
#include "dist/sequence/ulysses.h"
#include "tests/dist/sequence/sequences.h"
#include "tests/job.h"

namespace axle {
namespace {

using namespace std::chrono_literals;
using tests::Group;

constexpr std::int64_t kDropoutSteps = 3;

enum class Sharing { all_gather, ring, ulysses };

// Returns the losses of training with dropout as text.
template <class Model>
std::string train_with_dropout(const Group& group, Sharing sharing) {
    Model model = tests::model_of<Model>(f64, 0.2);
    manual_seed(11);
    const dist::DataParallel replicas(model, group);
    const bool is_ulysses = sharing == Sharing::ulysses;
    const auto policy = std::make_shared<dist::ContextParallel>(
        group,
        sharing == Sharing::ring ? dist::ContextExchange::ring : dist::ContextExchange::all_gather);
    const auto ulysses = std::make_shared<dist::Ulysses>(group);
    const auto run = tests::train_sequences(model, kDropoutSteps, [&](std::int64_t step) {
        const auto [ids, labels] = tests::sequences_of(step);
        const auto loss_of = [&](const Tensor& x, const Tensor& y) {
            const Tensor loss = model.loss(x, y);
            loss.backward();
            return tests::mean_over(group, loss);
        };
        if (is_ulysses) {
            const ForwardContextGuard context(ulysses);
            const std::int64_t part = tests::kSequenceLength / group->size();
            return loss_of(ids.narrow(1, group->rank() * part, part),
                           labels.narrow(1, group->rank() * part, part));
        }
        const dist::ContextParallelScope scope(policy, {ids, labels}, {1, 1});
        return loss_of(ids, labels);
    });
    std::string text;
    for (const double loss : run.losses) text += str(std::llround(loss * 1e9), ' ');
    return text;
}

template <class Model>
void expect_same_dropout() {
    Model whole = tests::model_of<Model>(f64, 0.2);
    manual_seed(11);
    std::string expected;
    for (const double loss : tests::train_whole(whole, kDropoutSteps).losses)
        expected += str(std::llround(loss * 1e9), ' ');
    Model without = tests::model_of<Model>(f64);
    std::string plain;
    for (const double loss : tests::train_whole(without, kDropoutSteps).losses)
        plain += str(std::llround(loss * 1e9), ' ');
    EXPECT_NE(expected, plain);
    for (const Sharing sharing : {Sharing::all_gather, Sharing::ring, Sharing::ulysses}) {
        tests::Job job(2, [&](const dist::Environment& environment) {
            return train_with_dropout<Model>(
                dist::ProcessGroup::create(environment, {.join_timeout = 30s}), sharing);
        });
        for (const tests::RankOutcome& outcome : job.wait(120s))
            EXPECT_EQ(outcome.text, expected) << "sharing " << static_cast<int>(sharing);
    }
}

// Covers 17.CP, 17.SP.
TEST(SequenceDropout, DoesNotDependOnTheNumberOfProcesses) {
    expect_same_dropout<nn::Gpt>();
    expect_same_dropout<nn::Llama>();
    expect_same_dropout<nn::BertForMaskedLM>();
}

}  // namespace
}  // namespace axle
