// Tests a job on two machines, simulated by two network namespaces with a virtual cable. The tests
// are skipped if namespaces are not permitted.
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "core/files/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/tools/trainer_program.h"

namespace axle::tests {
namespace {

// Runs the scripts machine_0 and machine_1 in folder $1, each in its own network (10.77.0.1 and
// 10.77.0.2). Exits with 77 if this is not possible. Ends all started processes.
constexpr const char* kNetwork = R"(
cd "$1" || exit 1
for tool in unshare nsenter ip; do
    command -v $tool >/dev/null || { echo "there is no $tool"; exit 77; }
done
if [ -z "$IN_NETWORK" ]; then
    unshare --user --map-root-user --net --uts true 2>/dev/null ||
        { echo "namespaces cannot be created here"; exit 77; }
    IN_NETWORK=1 exec unshare --user --map-root-user --net --uts bash "$0" "$1"
fi
unshare --net --uts bash -c 'echo up >peer; exec sleep 600' &
peer=$!
trap 'kill $peer 2>/dev/null' EXIT
for _ in $(seq 100); do [ -s peer ] && break; sleep 0.05; done
there="nsenter --target $peer --net --uts"
ip link add cable0 type veth peer name cable1 netns $peer 2>/dev/null ||
    { echo "the virtual cable cannot be created here"; exit 77; }
hostname machine-0 && ip link set lo up
ip address add 10.77.0.1/24 dev cable0 && ip link set cable0 up
$there hostname machine-1 && $there ip link set lo up
$there ip address add 10.77.0.2/24 dev cable1 && $there ip link set cable1 up
$there bash ./machine_1 >out_1 2>&1 &
second=$!
bash ./machine_0 >out_0 2>&1
first=$?
wait $second
second=$?
echo "$first $second"
)";

class TwoMachines : public TrainerTest {
  protected:
    TwoMachines() : TrainerTest("axle") {}

    void SetUp() override {
        TrainerTest::SetUp();
        if (!fs::exists(AXLE_BIN_DIR "/train_gpt")) GTEST_SKIP() << "train_gpt was not built";
        std::ofstream text(folder_ / "text.txt");
        for (int i = 0; i < 3000; ++i) text << "abcdefgh"[i * i % 8] << "aeiou "[i % 6];
    }
    std::string train(const std::string& out) const {
        return std::string(AXLE_BIN_DIR) + "/train_gpt --preset tiny --threads 1 --data " +
               (folder_ / "text.txt") + " --out " + (folder_ / out);
    }
    void machine(int index, const std::string& commands) {
        write_file_atomically(folder_ / ("machine_" + std::to_string(index)), commands + "\n");
    }
    // Runs both machines. The last line of the output has both exit codes, such as "0 0", or the
    // reason why the test cannot run.
    Ended on_two_machines() {
        write_file_atomically(folder_ / "network", kNetwork);
        program_ = "/bin/bash";
        return run({folder_ / "network", folder_.path()});
    }
    std::string output_of(int index) {
        std::string all = read_file(folder_ / ("out_" + std::to_string(index)));
        return "machine " + std::to_string(index) + " wrote: " + all;
    }
    void expect_both_succeed() {
        const Ended ended = on_two_machines();
        if (ended.code == 77) GTEST_SKIP() << ended.out.back();
        ASSERT_EQ(ended.code, 0) << ended.text();
        EXPECT_EQ(ended.out.back(), "0 0") << output_of(0) << output_of(1);
    }
};

// Covers 25.multi-node.
TEST_F(TwoMachines, TrainTheSameModelAsTwoLocalProcesses) {
    const std::string launch = std::string(AXLE_BIN_DIR) + "/axle launch --cpu --num_processes 2 ";
    const auto of = [&](int rank) {
        return "export AXLE_JOB_TOKEN=both-know-it\nexec " + launch +
               "--num_machines 2 --machine_rank " + std::to_string(rank) +
               " --main_process_ip 10.77.0.1 --main_process_port 29500 " + train("two");
    };
    machine(0, of(0)), machine(1, of(1));
    expect_both_succeed();
    if (IsSkipped() || HasFailure()) return;
    program_ = "/bin/bash";
    const Ended one = run({"-c", launch + train("one")});
    ASSERT_EQ(one.code, 0) << one.text();
    EXPECT_EQ(model("two"), model("one"));
}

TEST_F(TwoMachines, ConnectWithEnvironmentVariablesOnly) {
    const auto of = [&](int rank) {
        return "export RANK=" + std::to_string(rank) +
               " WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=10.77.0.1\nexec " +
               train("two");
    };
    machine(0, of(0)), machine(1, of(1));
    expect_both_succeed();
}

TEST_F(TwoMachines, ReportTheRankOfADisconnectedMachine) {
    const auto of = [&](int rank) {
        return "export RANK=" + std::to_string(rank) +
               " WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=10.77.0.1\n" +
               train("cut") + " --steps 1000000 --save-every 0";
    };
    // Disconnects the cable while both machines train. Neither machine is notified.
    machine(0, "(until [ -s " + (folder_ / "cut/metrics.jsonl") +
                   " ]; do sleep 0.05; done; ip link set cable0 down) &\n" + of(0));
    machine(1, of(1));
    const Ended ended = on_two_machines();
    if (ended.code == 77) GTEST_SKIP() << ended.out.back();
    EXPECT_EQ(ended.out.back(), "1 1") << output_of(0) << output_of(1);
    EXPECT_THAT(output_of(0), testing::HasSubstr("rank 1"));
    EXPECT_THAT(output_of(1), testing::HasSubstr("rank 0"));
}

}  // namespace
}  // namespace axle::tests
