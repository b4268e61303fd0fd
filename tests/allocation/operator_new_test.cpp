// Tests that std::bad_alloc from any call of operator new neither ends the program nor leaks, and
// leaves a usable state.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/autograd/autograd.h"
#include "core/system/log.h"
#include "data/loading/loader.h"
#include "dist/group/work.h"
#include "dist/parallel/data_parallel.h"
#include "gmock/gmock.h"
#include "kernels/error.h"
#include "kernels/thread_pool.h"
#include "nn/generation/generate.h"
#include "optim/sgd.h"
#include "tests/allocation/failing_new.h"
#include "tests/allocation/training_step.h"
#include "tests/close.h"
#include "tests/dist/ranks.h"

namespace axle::tests {
namespace {

enum class Outcome : std::uint8_t { passed, failed, not_reached };

// Calls f while allocation `number` fails. Returns `passed` if f handles the failure itself.
template <class F>
Outcome attempt(std::int64_t number, bool all_later, F&& f, Threads threads = Threads::this_one) {
    const FailingNew failing(number, all_later, threads);
    try {
        f();
    } catch (const std::bad_alloc&) {
        return Outcome::failed;
    }
    return failing.has_failed() ? Outcome::passed : Outcome::not_reached;
}

// Runs the step once for each of its allocations, and makes this allocation fail. If `all_later` is
// true, all later allocations fail, too.
void fail_each_allocation(TrainingStep& step, bool all_later) {
    const TrainingStep::State before = step.state();
    step.run();
    const TrainingStep::State after = step.state();
    // Makes allocation `number` fail and repeats the step. Returns whether the step has that many
    // allocations.
    const auto fail = [&](std::int64_t number) {
        const Outcome outcome = attempt(number, all_later, [&] { step.run(); });
        if (outcome == Outcome::failed) {
            if (step.stage != TrainingStep::Stage::schedule) {
                EXPECT_TRUE(step.has_parameters_of(before));
            }
            step.repeat();
        }
        EXPECT_TRUE(step.has_parameters_of(after));
        EXPECT_EQ(step.schedule.get_last_lr()[0], after.schedule["_last_lr"][0].number());
        step.load(before);
        return outcome != Outcome::not_reached;
    };
    step.load(before);
    fail(1);
    for (std::int64_t number = 1;; ++number) {
        SCOPED_TRACE(str("allocation ", number));
        // A cache may grow in one run, but only a leak makes the number of blocks grow in every
        // run.
        std::int64_t blocks = live_blocks();
        if (!fail(number)) {
            EXPECT_GT(number, 300);  // the step has that many allocations
            break;
        }
        for (int i = 0; i < 3 && live_blocks() > blocks; ++i) {
            blocks = live_blocks();
            fail(number);
        }
        ASSERT_EQ(live_blocks(), blocks);
        ASSERT_FALSE(testing::Test::HasFailure());
    }
    step.load(after);
}

TEST(OperatorNewFailure, LeavesATrainingStepThatCanBeRepeated) {
    TrainingStep step;
    fail_each_allocation(step, false);  // the first step creates the state of the optimizer
    fail_each_allocation(step, true);
}

TEST(OperatorNewFailure, LeavesOptimizersUnchangedInAStep) {
    const auto test = [](DType dtype, auto&& make) {
        for (std::int64_t number = 1;; ++number) {
            SCOPED_TRACE(str("allocation ", number));
            manual_seed(1);
            std::vector<Tensor> parameters = {randn({3, 4}).to(dtype),
                                              transpose(randn({2, 5}).to(dtype), 0, 1)};
            for (Tensor& p : parameters) {
                p.set_requires_grad();
                p.set_grad(full_like(p, 1.0));
            }
            const auto optimizer = make(parameters);
            const auto values = [&] {
                return std::pair(parameters[0].to_vector(), parameters[1].to_vector());
            };
            const auto before = values();
            const Outcome outcome = attempt(number, false, [&] { optimizer->step(); });
            if (outcome == Outcome::not_reached) {
                EXPECT_GT(number, 5);
                return;
            }
            if (outcome == Outcome::failed) {
                ASSERT_EQ(values(), before);
                EXPECT_TRUE(optimizer->state_dict()["state"].empty());
                optimizer->step();
            }
            EXPECT_NE(values().first, before.first);
            EXPECT_NE(values().second, before.second);
        }
    };
    test(f32, [](const std::vector<Tensor>& p) { return std::make_unique<optim::AdamW>(p); });
    test(f32, [](const std::vector<Tensor>& p) {
        return std::make_unique<optim::SGD>(p, optim::SGDOptions{.lr = 0.1, .momentum = 0.9});
    });
    test(bf16, [](const std::vector<Tensor>& p) {
        return std::make_unique<optim::AdamW>(
            p, optim::AdamWOptions{.lr = 0.1, .stochastic_rounding = true});
    });
}

TEST(OperatorNewFailure, OfATaskIsRethrownAndLeavesTheThreadPoolUsable) {
    kernels::set_num_threads(3);
    for (int repeat = 0; repeat < 50; ++repeat) {
        std::array<std::atomic<int>, 64> done = {};
        const auto run = [&] {
            kernels::parallel(std::ssize(done), [&](std::int64_t task) {
                const auto own = std::make_unique<std::array<int, 100>>();
                done[static_cast<std::size_t>(task)] += (*own)[0] + 1;
            });
        };
        EXPECT_EQ(attempt(5, false, run, Threads::all), Outcome::failed);
        for (std::atomic<int>& one : done) one = 0;
        run();
        for (const std::atomic<int>& one : done) EXPECT_EQ(one, 1);
    }
}

TEST(OperatorNewFailure, LeavesTheThreadPoolUsableWhenThreadsStart) {
    for (std::int64_t number = 1;; ++number) {
        kernels::set_num_threads(1);
        const Outcome outcome = attempt(number, false, [] { kernels::set_num_threads(4); });
        std::atomic<int> sum = 0;
        kernels::parallel(10, [&](std::int64_t task) { sum += static_cast<int>(task); });
        EXPECT_EQ(sum, 45);
        kernels::set_num_threads(4);
        EXPECT_EQ(kernels::num_threads(), 4);
        if (outcome == Outcome::not_reached) {
            EXPECT_GT(number, 5);
            break;
        }
        EXPECT_EQ(outcome, Outcome::failed);
    }
}

// Kernels allocate their scratch memory in the first call on a thread.
TEST(OperatorNewFailure, LeavesKernelsUsable) {
    kernels::set_num_threads(3);
    manual_seed(2);
    const Tensor a = randn({200, 300}), b = randn({300, 250}), images = randn({2, 3, 40, 40});
    const Tensor filters = randn({8, 3, 3, 3}), q = randn({2, 4, 100, 16});
    const std::vector<std::function<Tensor()>> ops = {
        [&] { return matmul(a, b); },
        [&] { return conv2d(images, filters); },
        [&] { return scaled_dot_product_attention(q, q, q); },
        [&] { return sort(a).first; },
        [&] { return sum(a, {0}); },
        [&] { return softmax(a, 0); },
        [&] { return cumsum(a, 1); },
    };
    for (std::size_t op = 0; op < ops.size(); ++op) {
        const Tensor expected = ops[op]();
        for (std::int64_t number = 1;; ++number) {
            SCOPED_TRACE(str("op ", op, ", allocation ", number));
            Outcome outcome = Outcome::passed;
            Tensor result;
            std::thread([&] {
                outcome = attempt(
                    number, false, [&] { ops[op](); }, Threads::all);
                result = ops[op]();
            }).join();
            expect_same_bits(result, expected);
            if (outcome == Outcome::not_reached) break;
        }
    }
}

TEST(OperatorNewFailure, LeavesALoaderUsableIfItsWorkersFail) {
    data::DataLoader loader(data::from_function(6,
                                                [](std::int64_t i) {
                                                    return Tree{{"x", full({2}, double(i))}};
                                                }),
                            {.batch_size = 2, .shuffle = true, .num_workers = 2});
    const auto pass = [&] {
        double total = 0;
        for (auto& batch : loader) total += sum(batch["x"].tensor()).item();
        return total;
    };
    EXPECT_EQ(pass(), 30);
    for (const bool all_later : {false, true})
        for (std::int64_t number = 1;; ++number) {
            SCOPED_TRACE(str("allocation ", number));
            const Outcome outcome = attempt(
                number, all_later, [&] { pass(); }, Threads::others);
            EXPECT_EQ(pass(), 30);
            if (outcome == Outcome::not_reached) {
                EXPECT_GT(number, 20);
                break;
            }
        }
}

TEST(OperatorNewFailure, LeavesALoaderUsableIfItsLoopFails) {
    for (std::int64_t number = 1;; ++number) {
        SCOPED_TRACE(str("allocation ", number));
        data::DataLoader loader(data::from_function(6,
                                                    [](std::int64_t i) {
                                                        return Tree{{"x", full({2}, double(i))}};
                                                    }),
                                {.batch_size = 2, .num_workers = 2});
        const auto pass = [&] {
            double total = 0;
            for (auto& batch : loader) total += sum(batch["x"].tensor()).item();
            return total;
        };
        const Outcome outcome = attempt(number, false, [&] { pass(); });
        EXPECT_EQ(pass(), 30);
        if (outcome == Outcome::not_reached) {
            EXPECT_GT(number, 10);
            break;
        }
    }
}

// Makes an allocation of rank 1 fail in a forward and backward pass that reduces gradients. Expects
// that no rank waits for a rank that has failed. Returns whether the pass has that many
// allocations.
bool fail_data_parallel(std::int64_t number, bool all_later, Threads threads) {
    SCOPED_TRACE(str("allocation ", number));
    Outcome outcome = Outcome::passed;
    const auto errors = outcomes(2, [&](const std::shared_ptr<dist::ProcessGroup>& group) {
        manual_seed(3);
        ConvAttentionNet net;
        const dist::DataParallel replicas(net, group, {.bucket_cap_mb = 0.0001});
        const Tensor x = randn({2, 1, 6, 6}), y = tensor({0, 2});
        const auto step = [&] { cross_entropy(net(x), y).backward(); };
        step();
        net.zero_grad();
        if (group->rank() == 0) return step();
        outcome = attempt(number, all_later, step, threads);
        if (outcome == Outcome::failed) throw std::bad_alloc();
    });
    for (const std::exception_ptr& error : errors) {
        try {
            if (error != nullptr) std::rethrow_exception(error);
        } catch (const CommError&) {
            EXPECT_NE(outcome, Outcome::not_reached);
        } catch (const std::bad_alloc&) {
            EXPECT_NE(outcome, Outcome::not_reached);
        }
    }
    return outcome != Outcome::not_reached;
}

TEST(OperatorNewFailure, LeavesNoDataParallelRankWaiting) {
    std::int64_t number = 1;
    while (fail_data_parallel(number, false, Threads::this_one)) number += 41;
    EXPECT_GT(number, 300);
}

TEST(OperatorNewFailure, LeavesNoDataParallelRankWaitingIfACollectiveFails) {
    std::int64_t number = 1;
    while (fail_data_parallel(number, false, Threads::collectives)) number += 7;
    EXPECT_GT(number, 10);
    for (number = 1; number <= 5; ++number)
        EXPECT_TRUE(fail_data_parallel(number, true, Threads::collectives));
}

TEST(OperatorNewFailure, LeavesTheQueueUsableWhenATaskIsPosted) {
    const dist::Queues::Key key{1, 2, false};
    for (std::int64_t number = 1;; ++number) {
        SCOPED_TRACE(str("allocation ", number));
        std::atomic<int> done = 0;
        dist::Queues queues;
        const auto post = [&] { queues.post(key, [&] { ++done; }); };
        const Outcome outcome = attempt(number, false, post);
        post();
        EXPECT_TRUE(queues.drained(std::chrono::seconds(20)));
        EXPECT_EQ(done, outcome == Outcome::failed ? 1 : 2);
        if (outcome == Outcome::not_reached) break;
        ASSERT_FALSE(testing::Test::HasFailure());
    }
}

TEST(OperatorNewFailure, DoesNotEndTheProgramWhileLogging) {
    testing::internal::CaptureStderr();
    const std::string text = "a line that is longer than the buffer of a short string";
    EXPECT_NE(attempt(1, true, [&] { log_text(LogLevel::warning, text); }), Outcome::failed);
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "axle: warning: " + text + "\n");
    EXPECT_EQ(attempt(1, true, [&] { static_cast<void>(str(text, 1)); }), Outcome::failed);
}

TEST(OperatorNewFailure, DoesNotEndTheProgramWhileAGraphIsFreed) {
    Tensor y = full({2}, 1.0).set_requires_grad();
    for (int i = 0; i < 1000; ++i) y = y + y * 2.0;
    const std::int64_t nodes = autograd::live_nodes();
    EXPECT_NE(attempt(1, true, [&] { y = Tensor(); }), Outcome::failed);
    EXPECT_EQ(autograd::live_nodes(), nodes - 2000);
}

TEST(OperatorNewFailure, DoesNotEndTheProgramAtTheEndOfGenerate) {
    ConvAttentionNet net;
    std::optional<FailingNew> failing;
    const auto logits = [&](const Tensor&) -> Tensor {
        failing.emplace(1, true);
        throw std::bad_alloc();
    };
    testing::internal::CaptureStderr();
    EXPECT_THROW(nn::generate(net, logits, 8, {1}, 1, {}), std::bad_alloc);
    failing.reset();
    EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::HasSubstr("std::bad_alloc"));
}

TEST(OperatorNewFailure, DoesNotEndTheProgramWhileAModuleIsMoved) {
    nn::Linear from(2, 3);
    const Tensor weight = from.weight;
    EXPECT_NE(attempt(1, true,
                      [&] {
                          const nn::Linear to = std::move(from);
                          EXPECT_TRUE(to.weight.is_same(weight));
                      }),
              Outcome::failed);
}

TEST(OperatorNewFailure, LeavesTheTensorOfAnInPlaceOpUnchanged) {
    for (std::int64_t number = 1;; ++number) {
        SCOPED_TRACE(str("allocation ", number));
        const Tensor x = full({2}, 3.0).set_requires_grad();
        Tensor y = x * 2.0;
        const Outcome outcome = attempt(number, false, [&] { y.mul_(5.0); });
        if (outcome == Outcome::failed) {
            EXPECT_TRUE(y.requires_grad());
            y.mul_(5.0);
        }
        sum(y).backward();
        EXPECT_EQ(y.to_vector(), (std::vector<double>{30, 30}));
        EXPECT_EQ(x.grad().to_vector(), (std::vector<double>{10, 10}));
        if (outcome == Outcome::not_reached) break;
    }
}

}  // namespace
}  // namespace axle::tests
