// Tests process groups on GPUs, which communicate with NCCL if every process has a GPU, else
// through the host.
#include "core/graph.h"
#include "tests/cuda/nccl_ranks.h"
#include "tests/dist/ranks.h"
#include "tests/free_port.h"

#ifdef AXLE_SIMULATED_GPU
#include "tests/simulator/simulator.h"
#endif

namespace axle::tests {
namespace {

using dist::ReduceOp;
using std::chrono::milliseconds;
using Counts = std::vector<std::int64_t>;

class ProcessGroupOnGpu : public NcclOnGpu {
  protected:
    // Runs f(group, device) on every rank and returns the exceptions' messages. If `apart` is true,
    // ranks on the simulated GPU have different bus ids, so that they do not detect that they share
    // it. Otherwise all ranks share GPU 0.
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
    return to(NcclRank::values(group.rank(), shape), gpu);
}

Tensor sum_of(const dist::ProcessGroup& group, const Shape& shape) {
    Tensor sum = NcclRank::values(0, shape);
    for (int r = 1; r < group.size(); ++r) sum = sum + NcclRank::values(r, shape);
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
    expect_values(y, NcclRank::values(size - 1, {7}));
    const Tensor z = of_rank(group, {7}, gpu);
    group.reduce(z, 0, dist::ReduceOp::max);
    if (group.rank() == 0) expect_values(z, NcclRank::values(size - 1, {7}));
    const Tensor all = group.all_gather(of_rank(group, {4}, gpu));
    const Tensor at_root = group.gather(of_rank(group, {4}, gpu), size - 1);
    for (int r = 0; r < size; ++r) {
        expect_values(all.select(0, r), NcclRank::values(r, {4}));
        if (at_root.defined()) expect_values(at_root.select(0, r), NcclRank::values(r, {4}));
    }
    EXPECT_EQ(all.device(), gpu);
    expect_values(group.reduce_scatter(of_rank(group, {size, 3}, gpu)),
                  sum_of(group, {size, 3}).select(0, group.rank()));
    const Tensor swapped = group.all_to_all(of_rank(group, {size, 3}, gpu));
    for (int r = 0; r < size; ++r)
        expect_values(swapped.select(0, r), NcclRank::values(r, {size, 3}).select(0, group.rank()));
    const std::vector<Tensor> uneven =
        group.all_gather_uneven(of_rank(group, {group.rank() + 1, 2}, gpu));
    expect_values(uneven.back(), NcclRank::values(size - 1, {size, 2}));
    const Tensor host = NcclRank::values(group.rank(), {9});
    group.all_reduce(host);
    expect_values(host, sum_of(group, {9}));
    group.barrier();
}

TEST_P(ProcessGroupOnGpu, UsesNcclWhenEveryRankHasAGpu) {
    const auto errors = on_groups([](dist::ProcessGroup& group, Device gpu) {
        EXPECT_EQ(group.backend(), "nccl");
        expect_collectives(group, gpu);
        const auto rest = group.split(group.rank() == 0 ? 0 : 1);
        EXPECT_EQ(rest->backend(), rest->size() > 1 ? "nccl" : "none");
        expect_collectives(*rest, gpu);
    });
    for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST_P(ProcessGroupOnGpu, UsesTheHostWhenRanksShareAGpu) {
    const auto errors = on_groups(
        [](dist::ProcessGroup& group, Device gpu) {
            EXPECT_EQ(group.backend(), "tcp");
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

TEST_P(ProcessGroupOnGpu, ReportsMismatchesWithoutWaitingForAgreement) {
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

TEST_P(ProcessGroupOnGpu, RejectsGraphCapture) {
    const auto errors = on_groups([](dist::ProcessGroup& group, Device gpu) {
        const Tensor x = of_rank(group, {8}, gpu);
        // Runs one rank after another, because the ranks are threads and can share a GPU.
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

INSTANTIATE_TEST_SUITE_P(Ranks, ProcessGroupOnGpu, testing::Values(2, 3),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace axle::tests
