// Tests the messages between launchers of several machines, and the options of
// supervise_machines().
#include "dist/launch/machine_messages.h"

#include <string>
#include <variant>
#include <vector>

#include "dist/launch/launch.h"
#include "dist/transport/launcher_channel.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/error.h"

namespace axle::dist {
namespace {

using testing::HasSubstr;

TEST(SuperviseMachines, RejectsInvalidOptions) {
    const auto text = [](int num_nodes, int min_nodes, const std::string& token, int restarts) {
        try {
            supervise_machines({.place = {.num_nodes = num_nodes, .master_port = 1, .token = token},
                                .min_nodes = min_nodes},
                               [](const JobNode&) { return std::vector<Command>(); },
                               {.max_restarts = restarts});
        } catch (const ValueError& error) {
            return std::string(error.what());
        }
        return std::string("nothing thrown");
    };
    EXPECT_THAT(text(2, 3, "t", 1),
                HasSubstr("min_nodes must be from 1 to num_nodes: min_nodes 3, num_nodes 2"));
    EXPECT_THAT(text(2, 1, "t", 0), HasSubstr("max_restarts must be positive"));
    EXPECT_THAT(text(2, 2, "", 0), HasSubstr("needs a token"));
}

TEST(MachineMessage, RoundTripsExceptForInvalidUtf8AndHasALimitedLength) {
    const LaunchFailure sent{.restart = 3,
                             .exit_code = 9,
                             .failure = {.rank = 4,
                                         .pid = 77,
                                         .host = "h\"\n",
                                         .signal = 9,
                                         .exit_code = -9,
                                         .op = "all_reduce",
                                         .sequence = 12,
                                         .text = "rank 4 died\xff"}};
    const auto read = read_machine_message(to_line(sent));
    ASSERT_TRUE(read.has_value());
    const auto& failure = std::get<LaunchFailure>(*read);
    EXPECT_EQ(failure.restart, 3);
    EXPECT_EQ(failure.exit_code, 9);
    EXPECT_EQ(failure.failure.to_json().substr(0, 40), sent.failure.to_json().substr(0, 40));
    EXPECT_EQ(failure.failure.host, "h\"\n");
    EXPECT_EQ(failure.failure.sequence, 12u);
    EXPECT_EQ(failure.failure.text, "rank 4 died\xEF\xBF\xBD");
    EXPECT_LT(to_line(JobEnd{.text = std::string(1 << 20, '\x01')}).size(), kMaxLauncherLine);
}

TEST(MachineMessage, IsRejectedIfInvalid) {
    for (const char* line :
         {"", "7", "{}", R"({"type":"stop"})", R"({"type":7})", R"({"type":"start"})",
          R"({"type":"start","restart":1,"node_rank":0,"num_nodes":1,"master_port":99999999999})",
          R"({"type":"refused","text":1,"try_again":false})"})
        EXPECT_FALSE(read_machine_message(line)) << line;
    EXPECT_TRUE(read_machine_message(R"({"type":"heartbeat"})"));
}

}  // namespace
}  // namespace axle::dist
