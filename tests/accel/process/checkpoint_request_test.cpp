// Tests requests for a checkpoint from signal handlers, threads and other processes.
#include "accel/process/checkpoint_request.h"

#include <atomic>
#include <csignal>
#include <thread>

#include "accel/accelerator.h"
#include "gtest/gtest.h"
#include "tests/accel/loading/loaders.h"
#include "tests/dist/ranks.h"

namespace axle {
namespace {

using accel::CheckpointRequest;
using accel::request_checkpoint;

TEST(CheckpointRequest, ReturnsTheStrongestRequestOnce) {
    accel::Accelerator accelerator({.cpu = true});
    EXPECT_EQ(accelerator.checkpoint_request(), CheckpointRequest::none);
    std::thread([] { request_checkpoint(CheckpointRequest::save_and_stop); }).join();
    request_checkpoint();
    EXPECT_EQ(accelerator.checkpoint_request(), CheckpointRequest::save_and_stop);
    EXPECT_EQ(accelerator.checkpoint_request(), CheckpointRequest::none);
}

TEST(CheckpointRequest, CanBeMadeInASignalHandler) {
    accel::Accelerator accelerator({.cpu = true});
    const auto before = std::signal(SIGUSR2, [](int) { request_checkpoint(); });
    std::raise(SIGUSR2);
    std::signal(SIGUSR2, before);
    EXPECT_EQ(accelerator.checkpoint_request(), CheckpointRequest::save);
}

TEST(CheckpointRequest, ReachesAllProcesses) {
    std::atomic<int> received = 0;
    tests::on_ranks(3, [&](const std::shared_ptr<dist::ProcessGroup>& group) {
        accel::Accelerator accelerator(tests::of_group(group));
        if (group->rank() == 2) request_checkpoint();
        // In this test, the ranks are threads of one process, so any rank may take the request.
        group->barrier();
        if (accelerator.checkpoint_request() == CheckpointRequest::save) ++received;
        if (accelerator.checkpoint_request() != CheckpointRequest::none) ADD_FAILURE();
    });
    EXPECT_EQ(received, 3);
}

}  // namespace
}  // namespace axle
