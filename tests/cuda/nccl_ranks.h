// Runs the NCCL engine and process groups on several ranks, which are threads of the test. Ranks of
// the engine can share the simulated GPU; on real GPUs, each has its own.
#pragma once

#include <barrier>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "core/ops.h"
#include "dist/cuda/nccl_comm.h"
#include "dist/group/device_engine.h"
#include "tests/close.h"
#include "tests/cuda/gpu.h"
#include "tests/dist/ranks.h"
#include "tests/dist/rendezvous/fake_control.h"
#include "tests/free_port.h"
#include "tests/wait.h"

#ifdef AXLE_SIMULATED_GPU
#include "tests/simulator/simulator.h"
#endif

namespace axle::tests {

#ifdef AXLE_SIMULATED_GPU
inline constexpr bool kSimulated = true;
#else
inline constexpr bool kSimulated = false;
#endif

struct NcclRank {
    dist::DeviceEngine& engine;
    FakeControl& control;
    int rank, size;
    Device gpu;
    std::barrier<>& all;

    // Returns the values of `rank`. They differ between ranks, and every rank can compute them.
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
    // Returns the reduction of all ranks' values.
    Tensor total(const Shape& shape, dist::ReduceOp op) const {
        Tensor sum = values(0, shape, f64);
        for (int r = 1; r < size; ++r) {
            const Tensor x = values(r, shape, f64);
            if (op == dist::ReduceOp::sum || op == dist::ReduceOp::mean) sum = sum + x;
            if (op == dist::ReduceOp::product) sum = sum * x;
            if (op == dist::ReduceOp::max) sum = maximum(sum, x);
            if (op == dist::ReduceOp::min) sum = minimum(sum, x);
        }
        return op == dist::ReduceOp::mean ? sum / size : sum;
    }
};

inline void expect_values(const Tensor& actual, const Tensor& expected) {
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

    // Runs body(rank) on one thread per rank and returns the exceptions' messages.
    std::vector<std::string> run(
        const std::function<void(NcclRank&)>& body,
        std::chrono::milliseconds timeout = std::chrono::milliseconds(60000)) {
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
                    NcclRank r{*engine, control, rank, size, Device::cuda(device), all};
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
    // Runs body(rank). The message of each exception must be the failure that a rank has reported.
    void run_and_ignore(const std::function<void(NcclRank&)>& body) {
        for (const std::string& error : run(body))
            if (!error.empty()) {
                EXPECT_EQ(error, store_.failure);
            }
    }
    void run_without_errors(const std::function<void(NcclRank&)>& body) {
        for (const std::string& error : run(body)) EXPECT_EQ(error, "");
        EXPECT_EQ(store_.failure, "");
    }

    FakeStore store_;
};

// Runs f(group, device) on ranks that are threads of the test, and returns the exceptions'
// messages, by rank. If `apart` is true, each rank has its own GPU; on the simulated GPU, each rank
// has its own bus id instead. Otherwise all ranks share GPU 0.
inline std::vector<std::string> outcomes_on_gpus(
    int ranks, const std::function<void(const std::shared_ptr<dist::ProcessGroup>&, Device)>& f,
    bool apart, const dist::ProcessGroupOptions& options = short_options()) {
    const int port = ranks == 1 ? 0 : free_port();
    std::vector<std::string> errors(static_cast<std::size_t>(ranks));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank)
        threads.emplace_back([&, rank] {
            try {
#ifdef AXLE_SIMULATED_GPU
                kernels::simulator::set_bus(apart ? rank : 0);
#endif
                const int device = kSimulated || !apart ? 0 : rank;
                dist::Environment environment = environment_of(rank, ranks, port);
                if (!apart) environment.local_rank = 0;
                const auto group = dist::ProcessGroup::create(environment, options);
                const cuda::Stream stream(device);
                const cuda::StreamGuard guard(stream);
                f(group, Device::cuda(device));
            } catch (const std::exception& e) {
                errors[static_cast<std::size_t>(rank)] = e.what();
            }
        });
    for (std::thread& thread : threads) thread.join();
    return errors;
}

// Runs f(group, device) on every rank, and expects no exceptions. On real GPUs, the ranks share GPU
// 0 if the machine has fewer GPUs than ranks.
inline void on_gpu_ranks(
    int ranks, const std::function<void(const std::shared_ptr<dist::ProcessGroup>&, Device)>& f) {
    const bool apart = kSimulated || cuda::device_count() >= ranks;
    const std::vector<std::string> errors = outcomes_on_gpus(ranks, f, apart);
    for (std::size_t rank = 0; rank < errors.size(); ++rank)
        EXPECT_EQ(errors[rank], "") << "on rank " << rank;
}

// Runs process groups on several ranks, which are threads of the test.
class ProcessGroupOnGpu : public NcclOnGpu {
  protected:
    // Calls outcomes_on_gpus() with the number of ranks of the test.
    std::vector<std::string> on_groups(
        const std::function<void(const std::shared_ptr<dist::ProcessGroup>&, Device)>& f,
        bool apart = true, const dist::ProcessGroupOptions& options = short_options()) {
        return outcomes_on_gpus(GetParam(), f, apart, options);
    }
};

}  // namespace axle::tests
