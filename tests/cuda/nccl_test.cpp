// NCCL's engine: alone on a GPU, on as many GPUs as there are, and refused where two would share
// one. The simulated GPU lets ranks share it, behind the refusal.
#include <algorithm>
#include <barrier>
#include <chrono>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "core/graph.h"
#include "core/ops.h"
#include "dist/cuda/nccl_comm.h"
#include "dist/group/device_engine.h"
#include "tests/close.h"
#include "tests/cuda/gpu.h"
#include "tests/dist/ranks.h"
#include "tests/dist/rendezvous/fake_control.h"

#ifdef AXLE_SIMULATED_GPU
#include "tests/simulator/simulator.h"
#endif

namespace axle::tests {
namespace {

using dist::DeviceEngine;
using dist::ReduceOp;
using std::chrono::milliseconds;
using Counts = std::vector<std::int64_t>;

#ifdef AXLE_SIMULATED_GPU
constexpr bool kSimulated = true;
#else
constexpr bool kSimulated = false;
#endif

struct Rank {
    DeviceEngine& engine;
    FakeControl& control;
    int rank, size;
    Device gpu;
    std::barrier<>& all;

    // Other numbers on each rank, which all ranks know.
    static Tensor values(int rank, const Shape& shape, DType dtype = f32) {
        const Tensor quarters = to(arange(0, numel(shape), 1, {.dtype = f32}) * 0.25, i64);
        return to(quarters.view(shape) + rank, dtype);
    }
    Tensor own(const Shape& shape, DType dtype = f32) const {
        return to(values(rank, shape, dtype), gpu);
    }
    Tensor room(const Shape& shape, DType dtype = f32) const {
        return empty(shape, {.dtype = dtype, .device = gpu});
    }
    // What everybody's values come to.
    Tensor total(const Shape& shape, ReduceOp op) const {
        Tensor sum = values(0, shape, f64);
        for (int r = 1; r < size; ++r) {
            const Tensor x = values(r, shape, f64);
            if (op == ReduceOp::sum || op == ReduceOp::mean) sum = sum + x;
            if (op == ReduceOp::product) sum = sum * x;
            if (op == ReduceOp::max) sum = maximum(sum, x);
            if (op == ReduceOp::min) sum = minimum(sum, x);
        }
        return op == ReduceOp::mean ? sum / size : sum;
    }
};

void expect_values(const Tensor& actual, const Tensor& expected) {
    expect_close(to(actual, Device::cpu()), expected, 1e-6);
}

class NcclOnGpu : public GpuTest, public testing::WithParamInterface<int> {
  protected:
    void SetUp() override {
        GpuTest::SetUp();
        if (IsSkipped()) return;
        if (dist::nccl() == nullptr) GTEST_SKIP() << dist::nccl_error();
        if (!kSimulated && cuda::device_count() < GetParam())
            GTEST_SKIP() << "needs " << GetParam() << " GPUs";
    }

    // body(rank) on a thread of each rank; what they threw.
    std::vector<std::string> run(const std::function<void(Rank&)>& body,
                                 milliseconds timeout = milliseconds(60000)) {
        const int size = GetParam();
        const std::string id = dist::NcclComm::make_id();
        std::vector<std::string> errors(static_cast<std::size_t>(size));
        std::vector<std::thread> threads;
        std::barrier<> all(size);
        for (int rank = 0; rank < size; ++rank)
            threads.emplace_back([&, rank] {
                try {
                    FakeControl control(store_, rank, size);
                    const int device = kSimulated ? 0 : rank;
                    const cuda::Stream stream(device);
                    const cuda::StreamGuard guard(stream);
                    const auto engine =
                        dist::open_nccl(control, "test", rank, size, device, timeout, id);
                    Rank r{*engine, control, rank, size, Device::cuda(device), all};
                    body(r);
                } catch (const std::exception& e) {
                    all.arrive_and_drop();
                    errors[static_cast<std::size_t>(rank)] = e.what();
                    FakeControl(store_, rank, size).report(e.what());
                }
            });
        for (std::thread& thread : threads) thread.join();
        return errors;
    }
    void run_and_ignore(const std::function<void(Rank&)>& body) {
        for (const std::string& error : run(body))
            if (!error.empty()) {
                EXPECT_EQ(error, store_.failure);
            }
    }
    void run_well(const std::function<void(Rank&)>& body) {
        for (const std::string& error : run(body)) EXPECT_EQ(error, "");
        EXPECT_EQ(store_.failure, "");
    }

    FakeStore store_;
};

TEST_P(NcclOnGpu, ReducesForAll) {
    run_well([](Rank& r) {
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

TEST_P(NcclOnGpu, ReducesToARootAndInParts) {
    run_well([](Rank& r) {
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

TEST_P(NcclOnGpu, CarriesAnyDtypeFromARoot) {
    run_well([](Rank& r) {
        for (int root = 0; root < r.size; ++root)
            for (const DType dtype : {f32, i64, boolean}) {
                const Tensor x = r.own({91}, dtype);
                r.engine.broadcast(x, root)->wait();
                expect_values(x, Rank::values(root, {91}, dtype));
            }
    });
}

TEST_P(NcclOnGpu, GathersEvenAndUnevenParts) {
    run_well([](Rank& r) {
        Counts counts(static_cast<std::size_t>(r.size), 60);
        for (const bool even : {true, false}) {
            if (!even) std::iota(counts.begin(), counts.end(), r.size > 1 ? 0 : 5);
            std::vector<Tensor> parts;
            for (int p = 0; p < r.size; ++p)
                parts.push_back(Rank::values(p, {counts[static_cast<std::size_t>(p)]}));
            const Tensor all = cat(parts, 0), out = r.room(all.shape());
            r.engine.all_gather(out, to(parts[static_cast<std::size_t>(r.rank)], r.gpu), counts)
                ->wait();
            expect_values(out, all);
        }
        for (int root = 0; root < r.size; ++root) {
            const Tensor whole = r.rank == root ? r.room({r.size, 9}) : Tensor();
            r.engine.gather(whole, r.own({9}), root)->wait();
            for (int p = 0; whole.defined() && p < r.size; ++p)
                expect_values(whole.select(0, p), Rank::values(p, {9}));
            const Tensor from = r.rank == root ? r.own({r.size, 9}) : Tensor(), mine = r.room({9});
            r.engine.scatter(mine, from, root)->wait();
            expect_values(mine, Rank::values(root, {r.size, 9}).select(0, r.rank));
        }
    });
}

// Rank r sends r + p + 1 elements to rank p, but none to rank 0 from others.
TEST_P(NcclOnGpu, ExchangesPartsOfAllSizes) {
    run_well([](Rank& r) {
        const auto count = [](int from, int to) {
            return std::int64_t{from != 0 && to == 0 ? 0 : from + to + 1};
        };
        Counts sends, comes;
        std::vector<Tensor> expected;
        for (int p = 0; p < r.size; ++p) {
            sends.push_back(count(r.rank, p)), comes.push_back(count(p, r.rank));
            std::int64_t begin = 0;
            for (int q = 0; q < r.rank; ++q) begin += count(p, q);
            expected.push_back(Rank::values(p, {100}).narrow(0, begin, comes.back()));
        }
        const std::int64_t sent = std::accumulate(sends.begin(), sends.end(), std::int64_t{0});
        const Tensor x = r.own({100}).narrow(0, 0, sent), all = cat(expected, 0);
        const Tensor out = r.room(all.shape());
        r.engine.all_to_all(out, comes, x, sends)->wait();
        expect_values(out, all);
    });
}

TEST_P(NcclOnGpu, TwoThatSendFirstBothReceive) {
    run_well([](Rank& r) {
        const int next = (r.rank + 1) % r.size, before = (r.rank + r.size - 1) % r.size;
        if (r.size < 2) return;
        std::vector<std::shared_ptr<dist::DeviceWork>> works;
        // Its first message waits for the receiver: one of them has to begin.
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
        expect_values(a, Rank::values(before, {40}));
        expect_values(b, Rank::values(before, {7}, f64));
    });
}

TEST_P(NcclOnGpu, BeginsAfterWhatIsQueuedAndIsWaitedForByWhatFollows) {
    run_well([](Rank& r) {
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

TEST_P(NcclOnGpu, MemoryStaysLentUntilItIsDone) {
    run_well([](Rank& r) {
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
                              full({4096}, i * 10 + p));
    });
}

TEST_P(NcclOnGpu, RefusesWhatItCannotDo) {
    run_well([](Rank& r) {
        expect_error<DeviceError>({"all_reduce: a tensor on cpu"},
                                  [&] { r.engine.all_reduce(ones({3}), ReduceOp::sum); });
        expect_error<DTypeError>({"NCCL does not support"}, [&] {
            r.engine.all_reduce(r.room({3}, DType::i16), ReduceOp::sum);
        });
    });
    if (GetParam() > 1) return;
    run_well([](Rank& r) {
        const Tensor x = r.own({8});
        Graph graph(r.gpu.index);
        expect_error<UsageError>({"all_reduce: collectives cannot be captured"}, [&] {
            GraphCapture capture(graph);
            r.engine.all_reduce(x, ReduceOp::sum);
        });
    });
}

// What the others queued before they heard of it ends too.
TEST_P(NcclOnGpu, EndsForAllWhenOneAborts) {
    const int size = GetParam();
    run_and_ignore([&](Rank& r) {
        r.engine.all_reduce(r.own({16}), ReduceOp::sum)->wait();
        r.all.arrive_and_wait();
        if (r.rank == size - 1) {
            r.control.report("rank left");
        } else {
            try {
                r.engine.all_reduce(r.own({16}), ReduceOp::sum)->wait();
            } catch (const CommError&) {  // the stand-in knows at once
            }
            while (!r.control.failure()) std::this_thread::sleep_for(milliseconds(5));
        }
        r.engine.abort();
        cuda::current_stream(r.gpu.index).synchronize();
        expect_error<CommError>({""}, [&] { r.engine.all_reduce(r.own({16}), ReduceOp::sum); });
    });
}

// The stand-in says so; of NCCL it depends on what lies between the GPUs.
TEST_P(NcclOnGpu, ReportsWhatHappensBesideAnyCall) {
    const int size = GetParam();
    if (size == 1 || !kSimulated) return;
    run_and_ignore([&](Rank& r) {
        r.engine.all_reduce(r.own({16}), ReduceOp::sum)->wait();
        r.all.arrive_and_wait();
        if (r.rank == size - 1) return r.engine.abort();
        for (int i = 0; i < 4000 && !r.control.failure(); ++i)
            std::this_thread::sleep_for(milliseconds(5));
    });
    EXPECT_NE(store_.failure.find("remote process exited"), std::string::npos) << store_.failure;
}

TEST_P(NcclOnGpu, SaysThatTheOthersDidNotCome) {
    const int size = GetParam();
    if (size == 1) return;
    const std::vector<std::string> errors = run(
        [&](Rank& r) {
            if (r.rank != 0) {
                while (!r.control.failure()) std::this_thread::sleep_for(milliseconds(5));
                return;
            }
            r.engine.all_reduce(r.own({16}), ReduceOp::sum)->wait();
            cuda::synchronize(r.gpu.index);
            r.control.report("all came");
        },
        milliseconds(4000));
    EXPECT_NE(store_.failure, "all came");
    EXPECT_NE(store_.failure.find("4000 ms"), std::string::npos) << store_.failure;
}

INSTANTIATE_TEST_SUITE_P(Ranks, NcclOnGpu, testing::Values(1, 2, 3),
                         testing::PrintToStringParamName());

class NcclOffers : public GpuTest {};

TEST_F(NcclOffers, TwoRanksOnOneGpuAreToldToDoWithout) {
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

TEST_F(NcclOffers, OneRankHasItsGpuToItself) {
    if (dist::nccl() == nullptr) GTEST_SKIP() << dist::nccl_error();
    FakeStore store;
    FakeControl control(store, 0, 1);
    const dist::NcclNegotiation invitation =
        dist::negotiate_nccl(control, "group 0", 0, 1, 0, milliseconds(20000));
    ASSERT_EQ(invitation.error, "");
    const auto engine =
        dist::open_nccl(control, "group 0", 0, 1, 0, milliseconds(20000), invitation.token);
    EXPECT_FALSE(engine->waits_for_agreement());
    const Tensor x = ones({4}, {.device = kGpu});
    engine->all_reduce(x, ReduceOp::sum)->wait();
    expect_values(x, ones({4}));
}

// --- process groups

class GroupOnGpu : public NcclOnGpu {
  protected:
    // f(group, device) on every rank; what they threw. Ranks that share the simulated GPU take it
    // for one of their own, or know.
    std::vector<std::string> on_groups(const std::function<void(dist::ProcessGroup&, Device)>& f,
                                       bool apart = true,
                                       dist::ProcessGroupOptions options = short_options()) {
        const int size = GetParam(), port = free_port();
        std::vector<std::string> errors(static_cast<std::size_t>(size));
        std::vector<std::thread> threads;
        for (int rank = 0; rank < size; ++rank)
            threads.emplace_back([&, rank] {
                try {
#ifdef AXLE_SIMULATED_GPU
                    kernels::simulator::set_bus(apart ? rank : 0);
#endif
                    const int device = kSimulated || !apart ? 0 : rank;
                    dist::Environment environment = environment_of(rank, size, port);
                    if (!apart) environment.local_rank = 0;
                    const auto group = dist::ProcessGroup::create(environment, options);
                    const cuda::Stream stream(device);
                    const cuda::StreamGuard guard(stream);
                    f(*group, Device::cuda(device));
                } catch (const std::exception& e) {
                    errors[static_cast<std::size_t>(rank)] = e.what();
                }
            });
        for (std::thread& thread : threads) thread.join();
        return errors;
    }
};

Tensor of_rank(const dist::ProcessGroup& group, const Shape& shape, Device gpu) {
    return to(Rank::values(group.rank(), shape), gpu);
}

Tensor sum_of(const dist::ProcessGroup& group, const Shape& shape) {
    Tensor sum = Rank::values(0, shape);
    for (int r = 1; r < group.size(); ++r) sum = sum + Rank::values(r, shape);
    return sum;
}

void expect_collectives(dist::ProcessGroup& group, Device gpu) {
    const int size = group.size();
    const Tensor x = of_rank(group, {6, 5}, gpu), strided = of_rank(group, {6, 5}, gpu).t();
    group.all_reduce(x);
    group.all_reduce(strided);
    expect_values(x, sum_of(group, {6, 5}));
    expect_values(strided, sum_of(group, {6, 5}).t());
    const Tensor a = of_rank(group, {3}, gpu), b = of_rank(group, {2, 2}, gpu);
    group.all_reduce({a, b}, dist::ReduceOp::mean);
    expect_values(b, sum_of(group, {2, 2}) / size);
    const Tensor y = of_rank(group, {7}, gpu);
    group.broadcast(y, size - 1);
    expect_values(y, Rank::values(size - 1, {7}));
    const Tensor z = of_rank(group, {7}, gpu);
    group.reduce(z, 0, dist::ReduceOp::max);
    if (group.rank() == 0) expect_values(z, Rank::values(size - 1, {7}));
    const Tensor all = group.all_gather(of_rank(group, {4}, gpu));
    const Tensor at_root = group.gather(of_rank(group, {4}, gpu), size - 1);
    for (int r = 0; r < size; ++r) {
        expect_values(all.select(0, r), Rank::values(r, {4}));
        if (at_root.defined()) expect_values(at_root.select(0, r), Rank::values(r, {4}));
    }
    EXPECT_EQ(all.device(), gpu);
    expect_values(group.reduce_scatter(of_rank(group, {size, 3}, gpu)),
                  sum_of(group, {size, 3}).select(0, group.rank()));
    const Tensor swapped = group.all_to_all(of_rank(group, {size, 3}, gpu));
    for (int r = 0; r < size; ++r)
        expect_values(swapped.select(0, r), Rank::values(r, {size, 3}).select(0, group.rank()));
    const std::vector<Tensor> uneven =
        group.all_gather_uneven(of_rank(group, {group.rank() + 1, 2}, gpu));
    expect_values(uneven.back(), Rank::values(size - 1, {size, 2}));
    const Tensor host = Rank::values(group.rank(), {9});
    group.all_reduce(host);
    expect_values(host, sum_of(group, {9}));
    group.barrier();
}

TEST_P(GroupOnGpu, GoesThroughNcclWhereEveryProcessHasAGpu) {
    const auto errors = on_groups([](dist::ProcessGroup& group, Device gpu) {
        EXPECT_EQ(group.backend(), "nccl");
        expect_collectives(group, gpu);
        const auto rest = group.split(group.rank() == 0 ? 0 : 1);
        EXPECT_EQ(rest->backend(), rest->size() > 1 ? "nccl" : "none");
        expect_collectives(*rest, gpu);
    });
    for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST_P(GroupOnGpu, GoesThroughTheHostWhereTwoShareOne) {
    const auto errors = on_groups(
        [](dist::ProcessGroup& group, Device gpu) {
            EXPECT_EQ(group.backend(), "gloo");
            expect_collectives(group, gpu);
        },
        false);
    for (const std::string& error : errors) EXPECT_EQ(error, "");
    dist::ProcessGroupOptions options = short_options();
    options.backend = "nccl";
    for (const std::string& error : on_groups([](dist::ProcessGroup&, Device) {}, false, options))
        EXPECT_EQ(error.find("ProcessGroup: NCCL cannot be used: ranks 0 and 1 share a GPU"), 0u)
            << error;
}

TEST_P(GroupOnGpu, DifferencesAreToldThoughNobodyWaitsForAgreement) {
    const auto errors = on_groups([](dist::ProcessGroup& group, Device gpu) {
        group.all_reduce(of_rank(group, {8}, gpu));
        for (;;) {
            group.all_reduce(of_rank(group, {group.rank() == 0 ? 16 : 8}, gpu));
            cuda::current_stream(gpu.index).synchronize();
        }
    });
    for (const std::string& error : errors) {
        EXPECT_NE(error.find("all_reduce(sum) of 16 float32 on a GPU"), std::string::npos) << error;
        EXPECT_NE(error.find("all_reduce(sum) of 8 float32 on a GPU"), std::string::npos) << error;
    }
}

TEST_P(GroupOnGpu, RefusesACapture) {
    const auto errors = on_groups([](dist::ProcessGroup& group, Device gpu) {
        const Tensor x = of_rank(group, {8}, gpu);
        // In turn: the ranks are threads, and may share a GPU.
        for (int rank = 0; rank < group.size(); ++rank) {
            if (rank == group.rank()) {
                Graph graph(gpu.index);
                expect_error<UsageError>({"all_reduce: collectives cannot be captured"}, [&] {
                    GraphCapture capture(graph);
                    group.all_reduce(x);
                });
            }
            group.barrier();
        }
        group.all_reduce(x);
        expect_values(x, sum_of(group, {8}));
    });
    for (const std::string& error : errors) EXPECT_EQ(error, "");
}

INSTANTIATE_TEST_SUITE_P(Ranks, GroupOnGpu, testing::Values(2, 3),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace axle::tests
