// Tests the backend "mpi". mpirun_test.cpp runs these tests in the processes of mpirun; ctest does
// not.
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/autograd/autograd.h"
#include "core/ops.h"
#include "core/random.h"
#include "dist/parallel/data_parallel.h"
#include "gtest/gtest.h"
#include "kernels/error.h"
#include "nn/models/gpt.h"
#include "optim/adam.h"
#include "tests/close.h"
#include "tests/dist/mpi/mpi_engines.h"
#include "tests/dist/ranks.h"

namespace axle {
namespace {

using dist::HostEngine;
using dist::ReduceOp;
using std::chrono::milliseconds;
using tests::MpiWorld;
using Group = std::shared_ptr<dist::ProcessGroup>;

class MpiBackend : public testing::Test {
  protected:
    void SetUp() override {
        if (MpiWorld::get() == nullptr) GTEST_SKIP() << "runs only under mpirun (Mpirun.*)";
    }

    static void expect_no_errors(const std::vector<std::exception_ptr>& errors) {
        for (const std::exception_ptr& error : errors) EXPECT_EQ(tests::text_of(error), "");
    }
    // Runs f(engine, rank) on engines that transfer at most round_bytes bytes for each rank at a
    // time.
    template <class F>
    static void on_engines(int size, std::int64_t round_bytes, F&& f) {
        MpiWorld& world = *MpiWorld::get();
        expect_no_errors(world.run(size, [&](int) {
            const auto engine =
                tests::open_mpi_engine(world.rank(), size, std::chrono::seconds(20), round_bytes);
            f(*engine, world.rank());
        }));
    }
};

TEST_F(MpiBackend, HasTheNameMpi) {
    tests::on_ranks(2, [](const Group& group) {
        EXPECT_EQ(group->backend(), "mpi");
        EXPECT_EQ(group->split(0)->backend(), "mpi");
        EXPECT_EQ(group->split(group->rank())->backend(), "none");
    });
}

TEST_F(MpiBackend, IsSelectedByTheBackendVariable) {
    MpiWorld& world = *MpiWorld::get();
    ::setenv("AXLE_BACKEND", "mpi", 1);
    expect_no_errors(world.run(2, [&](int port) {
        const Group group = dist::ProcessGroup::create(tests::environment_of(world.rank(), 2, port),
                                                       tests::short_options());
        EXPECT_EQ(group->backend(), "mpi");
        group->barrier();
    }));
    ::unsetenv("AXLE_BACKEND");
}

std::vector<std::uint8_t> bytes_of(int rank, std::int64_t count) {
    std::vector<std::uint8_t> bytes;
    for (std::int64_t i = 0; i < count; ++i)
        bytes.push_back(static_cast<std::uint8_t>(rank * 31 + i * 7));
    return bytes;
}

// The counts of MPI are of type int. A small limit stands for INT_MAX.
TEST_F(MpiBackend, TransfersMoreThanTheLargestCountInRounds) {
    constexpr int kSize = 3;
    const std::vector<std::int64_t> sizes = {1000, 0, 333};
    on_engines(kSize, 64, [&](HostEngine& engine, int rank) {
        const auto own = bytes_of(rank, sizes[static_cast<std::size_t>(rank)]);
        std::vector<std::uint8_t> all;
        for (int r = 0; r < kSize; ++r) {
            const auto part = bytes_of(r, sizes[static_cast<std::size_t>(r)]);
            all.insert(all.end(), part.begin(), part.end());
        }
        std::vector<std::uint8_t> out(all.size());
        engine.all_gather(out.data(), own.data(), sizes);
        EXPECT_EQ(out, all);
        for (int root = 0; root < kSize; ++root) {
            std::vector<std::uint8_t> gathered(all.size()), part(own.size()),
                moved = bytes_of(rank, 999);
            engine.gather(gathered.data(), own.data(), sizes, root);
            if (rank == root) {
                EXPECT_EQ(gathered, all);
            }
            engine.scatter(part.data(), rank == root ? all.data() : nullptr, sizes, root);
            EXPECT_EQ(part, own);
            engine.broadcast(moved.data(), 999, root);
            EXPECT_EQ(moved, bytes_of(root, 999));
        }
        // Each rank sends 100 * rank + 10 * other bytes to rank `other`.
        std::vector<std::int64_t> in_bytes, out_bytes;
        std::vector<std::uint8_t> in, expected;
        for (int other = 0; other < kSize; ++other) {
            in_bytes.push_back(100 * rank + 10 * other);
            out_bytes.push_back(100 * other + 10 * rank);
            const auto sent = bytes_of(rank + other, in_bytes.back());
            const auto received = bytes_of(rank + other, out_bytes.back());
            in.insert(in.end(), sent.begin(), sent.end());
            expected.insert(expected.end(), received.begin(), received.end());
        }
        std::vector<std::uint8_t> exchanged(expected.size());
        engine.all_to_all(exchanged.data(), out_bytes, in.data(), in_bytes);
        EXPECT_EQ(exchanged, expected);

        std::vector<double> sums(501, rank + 1.0);
        engine.all_reduce(sums.data(), 501, f64, ReduceOp::sum);
        EXPECT_EQ(sums, std::vector<double>(501, 6.0));
        std::vector<double> scattered(167);
        const std::vector<double> inputs(501, rank + 1.0);
        engine.reduce_scatter(scattered.data(), inputs.data(), 167, f64, ReduceOp::mean);
        EXPECT_EQ(scattered, std::vector<double>(167, 2.0));

        auto message = bytes_of(7, 1000);
        if (rank == 0) engine.send(message.data(), 1000, 1, 5);
        if (rank == 1) {
            std::vector<std::uint8_t> received(1000);
            engine.recv(received.data(), 1000, 0, 5);
            EXPECT_EQ(received, message);
        }
    });
}

TEST_F(MpiBackend, RejectsMessagesOfAnotherSize) {
    on_engines(2, 0, [](HostEngine& engine, int rank) {
        std::vector<std::uint8_t> data(100);
        if (rank == 0) {
            engine.send(data.data(), 40, 1, 3);
            engine.send(data.data(), 80, 1, 4);
            return;
        }
        tests::expect_error<CommError>({"recv of 50 bytes over "},
                                       [&] { engine.recv(data.data(), 50, 0, 3); });
        tests::expect_error<CommError>({"recv of 60 bytes over "},
                                       [&] { engine.recv(data.data(), 60, 0, 4); });
    });
}

TEST_F(MpiBackend, RejectsTagsAboveTheLimitOfMpi) {
    on_engines(2, 0, [](HostEngine& engine, int) {
        const std::uint64_t tag = std::uint64_t{1} << 33;
        tests::expect_error<ValueError>({"send: the tag must be at most "},
                                        [&] { engine.send(&tag, 8, 0, tag); });
    });
}

// Rank 1 sends nothing.
TEST_F(MpiBackend, ThrowsCommErrorAfterTheTimeout) {
    MpiWorld& world = *MpiWorld::get();
    expect_no_errors(world.run(2, [&](int) {
        const auto engine = tests::open_mpi_engine(world.rank(), 2, milliseconds(300));
        std::uint8_t byte = 0;
        if (world.rank() == 1) return;
        tests::expect_error<CommError>({"recv of 1 bytes over ", ": timed out after 300 ms"},
                                       [&] { engine->recv(&byte, 1, 1, 0); });
        engine->abort();
        tests::expect_error<CommError>({"barrier of 0 bytes over ", "closed after an error"},
                                       [&] { engine->barrier(); });
    }));
}

// The backend runs the collectives of each group, and messages, in different threads.
TEST_F(MpiBackend, RunsGroupsAndMessagesConcurrently) {
    tests::on_ranks(4, [](const Group& group) {
        const Group pair = group->split(group->rank() / 2);
        std::vector<dist::Work> work;
        std::vector<Tensor> sums, received;
        const int peer = group->rank() ^ 1;
        for (int i = 0; i < 20; ++i) {
            sums.push_back(full({1 + 5000 * i}, group->rank() + i, {f32}));
            work.push_back(group->all_reduce_async(sums.back()));
            sums.push_back(full({1 + 700 * i}, group->rank() + i, {f64}));
            work.push_back(pair->all_reduce_async(sums.back()));
            received.push_back(zeros({100 * i + 1}));
            work.push_back(group->send_async(full({100 * i + 1}, i, {f32}), peer, i));
            work.push_back(group->recv_async(received.back(), peer, i));
        }
        for (dist::Work& each : work) each.wait();
        for (int i = 0; i < 20; ++i) {
            const auto at = static_cast<std::size_t>(i);
            EXPECT_EQ(sums[2 * at].min().item(), 6 + 4 * i);
            EXPECT_EQ(sums[2 * at + 1].max().item(), group->rank() + peer + 2 * i);
            EXPECT_EQ(received[at].min().item(), i);
        }
    });
}

// Trains a small GPT with data parallelism. Returns the losses of this rank, and the parameters.
std::pair<std::vector<double>, std::vector<Tensor>> train(const Group& group) {
    manual_seed(1);
    nn::Gpt model({.vocab_size = 31, .block_size = 16, .n_layer = 2, .n_head = 2, .n_embd = 32});
    dist::DataParallel replicas(model, group, {.bucket_cap_mb = 0.02});
    optim::AdamW optimizer(model.parameters(), {.lr = 1e-2});
    manual_seed(10 + static_cast<std::uint64_t>(group->rank()));
    const Tensor ids = randint(0, 31, {4, 16}), labels = randint(0, 31, {4, 16});
    std::vector<double> losses;
    for (int step = 0; step < 10; ++step) {
        const Tensor loss = model.loss(ids, labels);
        loss.backward();
        optimizer.step();
        optimizer.zero_grad();
        losses.push_back(loss.item());
    }
    return {losses, model.parameters()};
}

// Covers 30.21.
TEST_F(MpiBackend, TrainsWithTheSameBitsAsOverTcp) {
    std::vector<double> losses, expected;
    std::vector<Tensor> parameters, expected_parameters;
    tests::on_ranks(2, [&](const Group& group) {
        EXPECT_EQ(group->backend(), "mpi");
        std::tie(losses, parameters) = train(group);
    });
    dist::ProcessGroupOptions tcp = tests::short_options();
    tcp.backend = "tcp";
    expect_no_errors(tests::outcomes(
        2,
        [&](const Group& group) {
            EXPECT_EQ(group->backend(), "tcp");
            std::tie(expected, expected_parameters) = train(group);
        },
        tcp));
    EXPECT_EQ(losses, expected);
    ASSERT_EQ(parameters.size(), expected_parameters.size());
    for (std::size_t i = 0; i < parameters.size(); ++i)
        tests::expect_same_bits(parameters[i], expected_parameters[i]);
    if (MpiWorld::get()->rank() < 2) {
        EXPECT_EQ(losses.size(), 10U);
        EXPECT_LT(losses.back(), losses.front());
    }
}

TEST_F(MpiBackend, ReducesWithTheSameBitsAsOverTcp) {
    std::vector<Tensor> results[2];
    for (const char* backend : {"tcp", "mpi"}) {
        dist::ProcessGroupOptions options = tests::short_options();
        options.backend = backend;
        std::vector<Tensor>& found = results[backend == std::string("mpi") ? 1 : 0];
        expect_no_errors(tests::outcomes(
            3,
            [&](const Group& group) {
                for (const DType dtype : {f64, f32, f16, bf16})
                    for (const std::int64_t count : {5, 70001, 600001}) {
                        manual_seed(static_cast<std::uint64_t>(group->rank()));
                        const Tensor x = randn({count}).to(dtype);
                        group->all_reduce(x, ReduceOp::mean);
                        found.push_back(x);
                        found.push_back(group->reduce_scatter(
                            x.narrow(0, 0, count / 3 * 3).reshape({3, -1}), ReduceOp::sum));
                    }
            },
            options));
    }
    ASSERT_EQ(results[0].size(), results[1].size());
    for (std::size_t i = 0; i < results[0].size(); ++i)
        tests::expect_same_bits(results[0][i], results[1][i]);
}

}  // namespace
}  // namespace axle
