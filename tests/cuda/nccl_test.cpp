// Tests the NCCL engine on one to three ranks, and that ranks which share a GPU are rejected.
#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>

#include "core/cuda/graph.h"
#include "tests/cuda/nccl_ranks.h"

namespace axle::tests {
namespace {

using dist::ReduceOp;
using std::chrono::milliseconds;
using Counts = std::vector<std::int64_t>;

TEST_P(NcclOnGpu, AllReducesWithEachOpAndDType) {
    run_without_errors([](NcclRank& r) {
        for (const ReduceOp op :
             {ReduceOp::sum, ReduceOp::mean, ReduceOp::max, ReduceOp::min, ReduceOp::product}) {
            const Tensor x = r.own({1000});
            r.engine.all_reduce(x, op)->wait();
            expect_values(x, r.total({1000}, op));
        }
        for (const DType dtype : {f64, f16, bf16, i64, i32, u8}) {
            const Tensor x = r.own({33}, dtype);
            r.engine.all_reduce(x, ReduceOp::sum)->wait();
            expect_values(x, r.total({33}, ReduceOp::sum));
        }
        const Tensor flag = full({3}, r.rank == 0 ? 1 : 0, {.dtype = boolean, .device = r.gpu});
        r.engine.all_reduce(flag, ReduceOp::max)->wait();
        EXPECT_EQ(to(flag, Device::cpu()).to_vector(), (std::vector<double>{1, 1, 1}));
        r.engine.all_reduce(r.room({0}), ReduceOp::sum)->wait();
    });
}

TEST_P(NcclOnGpu, ReducesToEachRootAndScattersMaxima) {
    run_without_errors([](NcclRank& r) {
        for (int root = 0; root < r.size; ++root) {
            const Tensor x = r.own({70});
            r.engine.reduce(x, ReduceOp::sum, root)->wait();
            if (r.rank == root) expect_values(x, r.total({70}, ReduceOp::sum));
        }
        const Tensor x = r.own({r.size, 50}), part = r.room({50});
        r.engine.reduce_scatter(part, x, ReduceOp::max)->wait();
        expect_values(part, r.total({r.size, 50}, ReduceOp::max).select(0, r.rank));
    });
}

TEST_P(NcclOnGpu, BroadcastsFromEveryRank) {
    run_without_errors([](NcclRank& r) {
        for (int root = 0; root < r.size; ++root)
            for (const DType dtype : {f32, i64, boolean}) {
                const Tensor x = r.own({91}, dtype);
                r.engine.broadcast(x, root)->wait();
                expect_values(x, NcclRank::values(root, {91}, dtype));
            }
    });
}

TEST_P(NcclOnGpu, AllGathersUnevenPartsAndGathersAndScattersForEachRoot) {
    run_without_errors([](NcclRank& r) {
        Counts counts(static_cast<std::size_t>(r.size), 60);
        for (const bool even : {true, false}) {
            if (!even) std::iota(counts.begin(), counts.end(), r.size > 1 ? 0 : 5);
            std::vector<Tensor> parts;
            for (int p = 0; p < r.size; ++p)
                parts.push_back(NcclRank::values(p, {counts[static_cast<std::size_t>(p)]}));
            const Tensor all = cat(parts, 0), out = r.room(all.shape());
            r.engine.all_gather(out, to(parts[static_cast<std::size_t>(r.rank)], r.gpu), counts)
                ->wait();
            expect_values(out, all);
        }
        for (int root = 0; root < r.size; ++root) {
            const Tensor whole = r.rank == root ? r.room({r.size, 9}) : Tensor();
            r.engine.gather(whole, r.own({9}), root)->wait();
            for (int p = 0; whole.defined() && p < r.size; ++p)
                expect_values(whole.select(0, p), NcclRank::values(p, {9}));
            const Tensor from = r.rank == root ? r.own({r.size, 9}) : Tensor(), mine = r.room({9});
            r.engine.scatter(mine, from, root)->wait();
            expect_values(mine, NcclRank::values(root, {r.size, 9}).select(0, r.rank));
        }
    });
}

// Rank r sends r + p + 1 elements to rank p, but only rank 0 sends elements to rank 0.
TEST_P(NcclOnGpu, ExchangesPartsOfDifferentSizes) {
    run_without_errors([](NcclRank& r) {
        const auto count = [](int from, int to) {
            return std::int64_t{from != 0 && to == 0 ? 0 : from + to + 1};
        };
        Counts sends, comes;
        std::vector<Tensor> expected;
        for (int p = 0; p < r.size; ++p) {
            sends.push_back(count(r.rank, p)), comes.push_back(count(p, r.rank));
            std::int64_t begin = 0;
            for (int q = 0; q < r.rank; ++q) begin += count(p, q);
            expected.push_back(NcclRank::values(p, {100}).narrow(0, begin, comes.back()));
        }
        const std::int64_t sent = std::accumulate(sends.begin(), sends.end(), std::int64_t{0});
        const Tensor x = r.own({100}).narrow(0, 0, sent), all = cat(expected, 0);
        const Tensor out = r.room(all.shape());
        r.engine.all_to_all(out, comes, x, sends)->wait();
        expect_values(out, all);
    });
}

TEST_P(NcclOnGpu, DeliversSeveralMessagesInOrder) {
    run_without_errors([](NcclRank& r) {
        const int next = (r.rank + 1) % r.size, before = (r.rank + r.size - 1) % r.size;
        if (r.size < 2) return;
        std::vector<std::shared_ptr<dist::DeviceWork>> works;
        // A send ends only after its receive has started, so rank 0 sends first and the other ranks
        // receive first.
        const Tensor first = r.own({40}), second = r.own({7}, f64);
        const Tensor a = r.room({40}), b = r.room({7}, f64);
        const auto send = [&] {
            works.push_back(r.engine.send(first, next)),
                works.push_back(r.engine.send(second, next));
        };
        const auto receive = [&] {
            works.push_back(r.engine.recv(a, before)), works.push_back(r.engine.recv(b, before));
        };
        if (r.rank == 0) send(), receive();
        if (r.rank != 0) receive(), send();
        for (const auto& work : works) work->wait();
        expect_values(a, NcclRank::values(before, {40}));
        expect_values(b, NcclRank::values(before, {7}, f64));
    });
}

TEST_P(NcclOnGpu, RunsInOrderWithOtherWorkOnTheStream) {
    run_without_errors([](NcclRank& r) {
        Tensor x = r.room({5000});
        for (int round = 1; round <= 3; ++round) {
            x.fill_(round);
            for (int i = 0; i < 20; ++i) x.copy_(x + 1);
            const auto work = r.engine.all_reduce(x, ReduceOp::sum);
            work->wait();
            const Tensor y = x * 2;
            expect_values(y, full({5000}, 2.0 * (round + 20) * r.size));
            EXPECT_TRUE(work->is_completed());
        }
    });
}

TEST_P(NcclOnGpu, KeepsOperandsAliveUntilCollectivesEnd) {
    run_without_errors([](NcclRank& r) {
        std::vector<Tensor> results;
        for (int i = 0; i < 8; ++i) {
            const Tensor out = r.room({r.size, 4096});
            {
                const Tensor x = full({4096}, i * 10 + r.rank, {.dtype = f32, .device = r.gpu});
                r.engine.all_gather(out, x, Counts(static_cast<std::size_t>(r.size), 4096));
            }
            full({4096}, -1, {.dtype = f32, .device = r.gpu});
            results.push_back(out);
        }
        r.engine.all_reduce(r.room({1}), ReduceOp::sum)->wait();
        for (int i = 0; i < 8; ++i)
            for (int p = 0; p < r.size; ++p)
                expect_values(results[static_cast<std::size_t>(i)].select(0, p),
                              full({4096}, i * 10 + p, {f32}));
    });
}

TEST_P(NcclOnGpu, RejectsUnsupportedOperandsAndGraphCapture) {
    run_without_errors([](NcclRank& r) {
        expect_error<DeviceError>({"all_reduce: the tensor is on cpu"},
                                  [&] { r.engine.all_reduce(ones({3}), ReduceOp::sum); });
        expect_error<DTypeError>({"all_reduce: NCCL does not support the dtype int16"}, [&] {
            r.engine.all_reduce(r.room({3}, DType::i16), ReduceOp::sum);
        });
    });
    if (GetParam() > 1) return;
    run_without_errors([](NcclRank& r) {
        const Tensor x = r.own({8});
        Graph graph(r.gpu.index);
        expect_error<UsageError>({"all_reduce: collectives cannot be captured"}, [&] {
            GraphCapture capture(graph);
            r.engine.all_reduce(x, ReduceOp::sum);
        });
    });
}

// Other ranks may have queued work before they received the abort. This work ends too.
TEST_P(NcclOnGpu, EndsCallsOnAllRanksAfterAbort) {
    const int size = GetParam();
    run_and_ignore([&](NcclRank& r) {
        r.engine.all_reduce(r.own({16}), ReduceOp::sum)->wait();
        r.all.arrive_and_wait();
        if (r.rank == size - 1) {
            r.control.report("rank left");
        } else {
            try {
                r.engine.all_reduce(r.own({16}), ReduceOp::sum)->wait();
            } catch (const CommError&) {  // the simulated NCCL reports the abort immediately
            }
            EXPECT_TRUE(comes_true([&] { return r.control.failure().has_value(); }));
        }
        r.engine.abort();
        cuda::current_stream(r.gpu.index).synchronize();
        expect_error<CommError>({""}, [&] { r.engine.all_reduce(r.own({16}), ReduceOp::sum); });
    });
}

class NcclPeersOnGpu : public NcclOnGpu {};

// The simulated NCCL reports a failure between two calls. The real NCCL does so only for some kinds
// of connections between GPUs.
TEST_P(NcclPeersOnGpu, ReportFailuresBetweenCollectives) {
    if (!kSimulated) GTEST_SKIP() << "only the simulated NCCL reports every failure between calls";
    const int size = GetParam();
    run_and_ignore([&](NcclRank& r) {
        r.engine.all_reduce(r.own({16}), ReduceOp::sum)->wait();
        r.all.arrive_and_wait();
        if (r.rank == size - 1) return r.engine.abort();
        EXPECT_TRUE(comes_true([&] { return r.control.failure().has_value(); }));
    });
    EXPECT_NE(store_.failure.find("remote process exited"), std::string::npos) << store_.failure;
}

TEST_P(NcclPeersOnGpu, ReportMissingRanksAfterTheTimeout) {
    constexpr milliseconds kTimeout{kSimulated ? 1500 : 4000};
    const std::vector<std::string> errors = run(
        [&](NcclRank& r) {
            if (r.rank != 0) {
                EXPECT_TRUE(comes_true([&] { return r.control.failure().has_value(); }));
                return;
            }
            r.engine.all_reduce(r.own({16}), ReduceOp::sum)->wait();
            cuda::synchronize(r.gpu.index);
            r.control.report("all ranks joined");
        },
        kTimeout);
    EXPECT_NE(store_.failure, "all ranks joined");
    EXPECT_NE(store_.failure.find(str(kTimeout.count(), " ms")), std::string::npos)
        << store_.failure;
}

INSTANTIATE_TEST_SUITE_P(Ranks, NcclOnGpu, testing::Values(1, 2, 3),
                         testing::PrintToStringParamName());
INSTANTIATE_TEST_SUITE_P(Ranks, NcclPeersOnGpu, testing::Values(2, 3),
                         testing::PrintToStringParamName());

class NcclNegotiation : public GpuTest {};

TEST_F(NcclNegotiation, RejectsRanksThatShareAGpu) {
    if (dist::nccl() == nullptr) GTEST_SKIP() << dist::nccl_error();
    FakeStore store;
    std::vector<std::string> reasons(2);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank)
        threads.emplace_back([&, rank] {
            FakeControl control(store, rank, 2);
            reasons[static_cast<std::size_t>(rank)] =
                dist::negotiate_nccl(control, "group 0", rank, 2, 0, milliseconds(20000)).error;
        });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(reasons[0].find("ranks 0 and 1 share a GPU"), 0u) << reasons[0];
    EXPECT_EQ(reasons[1], reasons[0]);
}

TEST_F(NcclNegotiation, AcceptsASingleRank) {
    if (dist::nccl() == nullptr) GTEST_SKIP() << dist::nccl_error();
    FakeStore store;
    FakeControl control(store, 0, 1);
    const dist::NcclNegotiation negotiated =
        dist::negotiate_nccl(control, "group 0", 0, 1, 0, milliseconds(20000));
    ASSERT_EQ(negotiated.error, "");
    const auto engine =
        dist::open_nccl(control, "group 0", 0, 1, 0, milliseconds(20000), negotiated.token);
    EXPECT_FALSE(engine->waits_for_agreement());
    const Tensor x = ones({4}, {.device = kGpu});
    engine->all_reduce(x, ReduceOp::sum)->wait();
    expect_values(x, ones({4}));
}

}  // namespace
}  // namespace axle::tests
