#include "dist/group/device_engine.h"

#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/error.h"
#include "tests/dist/rendezvous/fake_control.h"

namespace axle {
namespace {

using dist::DeviceDescription;
using dist::NcclNegotiation;
using std::chrono::milliseconds;

DeviceDescription offer(const char* machine, const char* gpu, int version = 22809) {
    return {.error = {}, .machine = machine, .gpu = gpu, .version = version};
}

// Returns the result of the negotiation on each rank.
std::vector<NcclNegotiation> compare(
    const std::vector<DeviceDescription>& offers,
    const std::function<std::string()>& make_token = [] { return std::string("to\0ken", 6); }) {
    tests::FakeStore store;
    std::vector<NcclNegotiation> answers(offers.size());
    std::vector<std::thread> threads;
    const int size = static_cast<int>(offers.size());
    for (int rank = 0; rank < size; ++rank)
        threads.emplace_back([&, rank] {
            tests::FakeControl control(store, rank, size);
            answers[static_cast<std::size_t>(rank)] = dist::compare_devices(
                control, "group 7", rank, size, offers[static_cast<std::size_t>(rank)],
                milliseconds(20000), make_token);
        });
    for (std::thread& thread : threads) thread.join();
    return answers;
}

void expect_error_on_all_ranks(const std::vector<NcclNegotiation>& answers,
                               const std::string& text) {
    for (const NcclNegotiation& answer : answers) {
        EXPECT_EQ(answer.error, text);
        EXPECT_EQ(answer.token, "");
    }
}

// Covers 6.Backend.
TEST(NcclNegotiation, GivesAllRanksOneTokenIfEachHasItsOwnGpu) {
    for (const NcclNegotiation& answer :
         compare({offer("a", "0:1:0"), offer("a", "0:2:0"), offer("b", "0:1:0")})) {
        EXPECT_EQ(answer.error, "");
        EXPECT_EQ(answer.token, std::string("to\0ken", 6));
    }
    EXPECT_EQ(compare({offer("a", "0:1:0")})[0].token.size(), 6u);
}

// Covers 6.Backend.
TEST(NcclNegotiation, GivesAllRanksTheReasonIfNcclIsUnusable) {
    expect_error_on_all_ranks(
        compare({offer("a", "0:1:0"), offer("b", "0:1:0"), offer("b", "0:1:0")}),
        "ranks 1 and 2 share a GPU, 0:1:0: NCCL needs one GPU per rank");
    DeviceDescription none = offer("a", "");
    none.error = "no GPU: \"the driver\" found none";
    expect_error_on_all_ranks(compare({offer("a", "0:1:0"), none}),
                              "rank 1: no GPU: \"the driver\" found none");
    expect_error_on_all_ranks(compare({offer("a", "0:1:0"), offer("a", "0:2:0", 22703)}),
                              "NCCL versions differ: rank 0 has 2.28.9, rank 1 has 2.27.3");
}

TEST(NcclNegotiation, GivesAllRanksTheErrorOfCreatingTheToken) {
    const std::vector<DeviceDescription> offers = {offer("a", "0:1:0"), offer("a", "0:2:0")};
    expect_error_on_all_ranks(
        compare(offers, []() -> std::string { throw DeviceError("no token today"); }),
        "no token today");
    expect_error_on_all_ranks(
        compare(offers, []() -> std::string { throw CommError("no network"); }), "no network");
    expect_error_on_all_ranks(
        compare(offers, []() -> std::string { throw std::runtime_error("no room"); }), "no room");
    expect_error_on_all_ranks(
        compare(offers, []() -> std::string { throw std::runtime_error(""); }),
        "an error without a message");
}

TEST(NcclNegotiation, RejectsMalformedDescriptions) {
    tests::FakeStore store;
    tests::FakeControl control(store, 0, 2);
    control.set("group 7/gpu 1", "{\"error\": 5}");
    const NcclNegotiation answer = dist::compare_devices(
        control, "group 7", 0, 2, offer("a", "0:1:0"), milliseconds(100), [] { return "token"; });
    EXPECT_NE(answer.error, "");
    EXPECT_EQ(control.get("group 7/gpus", milliseconds(100)), "-" + answer.error);
}

TEST(MachineId, IsEqualInRepeatedCalls) {
    EXPECT_NE(dist::machine_id(), "");
    EXPECT_EQ(dist::machine_id(), dist::machine_id());
}

}  // namespace
}  // namespace axle
