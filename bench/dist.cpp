// Usage: bench_dist [PROCESSES]
//
// Measures collectives between processes of this machine (2 by default), which the program forks.
// Rank 0 prints the bytes of the tensor, the median and the minimum time, and the rate. The time of
// a barrier is the time that the ranks need to agree on a collective before it begins.
// bench/peers/dist.py measures the same collectives in PyTorch.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <iostream>
#include <memory>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include "core/ops.h"
#include "dist/group/process_group.h"
#include "tests/dist/ranks.h"
#include "tests/fork.h"
#include "tests/free_port.h"

namespace axle::bench {
namespace {

using Clock = std::chrono::steady_clock;

void row(const dist::ProcessGroup& group, const char* name, double bytes, int times,
         const std::function<void()>& call) {
    std::vector<double> seconds;
    for (int i = 0; i < times + 3; ++i) {
        const auto start = Clock::now();
        call();
        if (i >= 3) seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    }
    if (group.rank() != 0) return;
    std::sort(seconds.begin(), seconds.end());
    const double median = seconds[seconds.size() / 2];
    std::printf("%-16s %10.0f %12.1f %12.1f %8.2f\n", name, bytes, median * 1e6,
                seconds.front() * 1e6, bytes / median * 1e-9);
    std::fflush(stdout);
}

void run(dist::ProcessGroup& group) {
    if (group.rank() == 0)
        std::printf("%d processes\n%-16s %10s %12s %12s %8s\n", group.size(), "", "bytes",
                    "median us", "least us", "GB/s");
    row(group, "barrier", 0, 2000, [&] { group.barrier(); });
    for (const std::int64_t numel : {1, 1024, 16384, 262144, 6553600}) {
        const Tensor x = ones({numel});
        const int times = numel > 1000000 ? 40 : numel > 100000 ? 300 : 1500;
        row(group, "all_reduce", static_cast<double>(numel * 4), times,
            [&] { group.all_reduce(x, dist::ReduceOp::max); });
    }
    const Tensor large = ones({6553600});
    row(group, "all_reduce bf16", 6553600 * 2, 40,
        [y = large.to(bf16), &group] { group.all_reduce(y, dist::ReduceOp::max); });
    row(group, "broadcast", 6553600 * 4, 40, [&] { group.broadcast(large); });
    row(group, "all_gather", 6553600 * 4, 20, [&] { group.all_gather(large); });
}

}  // namespace
}  // namespace axle::bench

int main(int count, char** arguments) {
    using namespace axle;
    const int size = count > 1 ? std::atoi(arguments[1]) : 2;
    if (size < 1 || size > 64) {
        std::cerr << "bench_dist: PROCESSES must be from 1 to 64: " << arguments[1]
                  << "\nusage: bench_dist [PROCESSES]\n";
        return 2;
    }
    const int port = tests::free_port();
    std::vector<pid_t> children;
    for (int rank = 0; rank < size; ++rank) {
        const pid_t pid = tests::fork_process();
        if (pid != 0) {
            children.push_back(pid);
            continue;
        }
        try {
            bench::run(*dist::ProcessGroup::create(tests::environment_of(rank, size, port)));
        } catch (const std::exception& e) {
            std::cerr << e.what() << '\n';
            ::_exit(1);
        }
        ::_exit(0);
    }
    int failed = 0;
    for (const pid_t pid : children) {
        int status = 0;
        ::waitpid(pid, &status, 0);
        failed |= status;
    }
    return failed == 0 ? 0 : 1;
}
