// Tests process groups on GPUs. They communicate with NCCL if every process has its own GPU, else
// through the host.
#include "core/cuda/graph.h"
#include "tests/cuda/nccl_ranks.h"

namespace axle::tests {
namespace {

using dist::ReduceOp;
using std::chrono::milliseconds;
using Counts = std::vector<std::int64_t>;
using SharedGroup = std::shared_ptr<dist::ProcessGroup>;

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

TEST_P(ProcessGroupOnGpu, UsesNcclWhenEveryRankHasItsOwnGpu) {
    const auto errors = on_groups([](const SharedGroup& shared, Device gpu) {
        dist::ProcessGroup& group = *shared;
        EXPECT_EQ(group.backend(), "nccl");
        expect_collectives(group, gpu);
        const auto rest = group.split(group.rank() == 0 ? 0 : 1);
        EXPECT_EQ(rest->backend(), rest->size() > 1 ? "nccl" : "none");
        expect_collectives(*rest, gpu);
    });
    for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST_P(ProcessGroupOnGpu, UsesTheHostAndRejectsBackendNcclWhenRanksShareAGpu) {
    const auto errors = on_groups(
        [](const SharedGroup& shared, Device gpu) {
            dist::ProcessGroup& group = *shared;
            EXPECT_EQ(group.backend(), "tcp");
            expect_collectives(group, gpu);
        },
        false);
    for (const std::string& error : errors) EXPECT_EQ(error, "");
    dist::ProcessGroupOptions options = short_options();
    options.backend = "nccl";
    for (const std::string& error : on_groups([](const SharedGroup&, Device) {}, false, options))
        EXPECT_EQ(error.find("ProcessGroup: NCCL cannot be used: ranks 0 and 1 share a GPU"), 0u)
            << error;
}

TEST_P(ProcessGroupOnGpu, ReportsMismatchedAllReducesOnAllRanks) {
    const auto errors = on_groups([](const SharedGroup& shared, Device gpu) {
        dist::ProcessGroup& group = *shared;
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
    const auto errors = on_groups([](const SharedGroup& shared, Device gpu) {
        dist::ProcessGroup& group = *shared;
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
