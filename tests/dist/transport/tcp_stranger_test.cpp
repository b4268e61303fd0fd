// Tests jobs on a machine where a stranger (a client without the token) connects to every socket on
// which a rank listens.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/ops.h"
#include "dist/group/process_group.h"
#include "dist/transport/socket.h"
#include "kernels/error.h"
#include "kernels/thread.h"
#include "tests/job.h"
#include "tests/temporary_folder.h"
#include "tests/wait.h"

namespace axle::tests {
namespace {

namespace fs = std::filesystem;
using dist::Socket;
using std::chrono::milliseconds;
using std::chrono::seconds;

// Returns the inodes of the sockets of a process.
std::set<std::string> sockets_of(int pid) {
    std::set<std::string> inodes;
    std::error_code ignored;
    for (const auto& file : fs::directory_iterator(str("/proc/", pid, "/fd"), ignored)) {
        const std::string target = fs::read_symlink(file, ignored).string();
        if (target.starts_with("socket:[")) inodes.insert(target.substr(8, target.size() - 9));
    }
    return inodes;
}

// Returns the ports of the IPv4 sockets that listen, by inode.
std::map<std::string, int> listening_ports() {
    std::map<std::string, int> ports;
    std::ifstream file("/proc/net/tcp");
    for (std::string line; std::getline(file, line);) {
        std::istringstream words(line);
        std::string number, local, remote, state, queues, timer, retries, user, timeout, inode;
        words >> number >> local >> remote >> state >> queues >> timer >> retries >> user >>
            timeout >> inode;
        const auto colon = local.find(':');
        if (state == "0A" && colon != std::string::npos)
            ports[inode] = std::stoi(local.substr(colon + 1), nullptr, 16);
    }
    return ports;
}

// A thread that connects to every port on which one of the processes listens, and sends `bytes`. It
// keeps kConnections connections to each port open, and replaces connections that are closed.
class Stranger {
  public:
    Stranger(std::vector<int> pids, std::string bytes)
        : pids_(std::move(pids)),
          bytes_(std::move(bytes)),
          thread_(kernels::start_thread("stranger", [this] { run(); })) {}
    ~Stranger() {
        stopped_ = true;
        thread_.join();
    }
    Stranger(const Stranger&) = delete;
    Stranger& operator=(const Stranger&) = delete;

    // Returns the number of ports to which all kConnections connections were open at the same time.
    int ports() const { return ports_; }

  private:
    static constexpr std::size_t kConnections = 60;

    void run() {
        while (!stopped_) {
            std::set<std::string> own;
            for (const int pid : pids_) own.merge(sockets_of(pid));
            for (const auto& [inode, port] : listening_ports())
                if (own.contains(inode)) connect(port);
            std::this_thread::sleep_for(milliseconds(1));  // leaves the processors to the job
        }
    }
    void connect(int port) {
        std::vector<Socket>& held = held_[port];
        std::erase_if(held, [](const Socket& socket) {
            char byte = 0;
            return receive_some(socket, {&byte, 1}) < 0;
        });
        while (held.size() < kConnections) {
            try {
                const auto deadline = dist::Clock::now() + seconds(1);
                Socket socket = connect_to(dist::resolve("127.0.0.1", port).front(), deadline);
                send_some(socket, bytes_);
                held.push_back(std::move(socket));
            } catch (const CommError&) {  // the rank does not listen any more
                return;
            }
        }
        if (full_.insert(port).second) ++ports_;
    }

    const std::vector<int> pids_;
    const std::string bytes_;
    std::map<int, std::vector<Socket>> held_;
    std::set<int> full_;
    std::atomic<int> ports_ = 0;
    std::atomic<bool> stopped_ = false;
    std::thread thread_;
};

struct Mode {
    const char* name;
    std::string bytes;
};

class UnauthenticatedLocalClient : public testing::TestWithParam<Mode> {};

// Ranks 0 to 2 listen and wait for rank 3. Rank 3 connects when the stranger has connections to
// these ranks and to the server. Then groups with other sockets are opened.
TEST_P(UnauthenticatedLocalClient, DoesNotStopAJob) {
    constexpr int kRanks = 4, kListeners = 4;  // the server of rank 0, and ranks 0 to 2
    const TemporaryFolder folder;
    const std::string mark = folder / "stranger_is_connected";
    Job job(kRanks, [&](const dist::Environment& environment) -> std::string {
        const auto group = dist::ProcessGroup::create(environment);
        const Tensor x = ones({1000});
        if (group->rank() < 3) {
            group->recv(x, 3);
        } else {
            if (!comes_true([&] { return fs::exists(mark); })) return "no stranger";
            for (int to = 0; to < 3; ++to) group->send(full({1000}, 5.0), to);
        }
        double sum = x.sum().item();
        for (int i = 0; i < 3; ++i) {
            const auto half = group->split(group->rank() % 2);
            const Tensor y = full({50000}, double(half->rank() + 1));
            half->all_reduce(y);
            group->all_reduce(y);
            sum += y.sum().item();
        }
        group->barrier();
        return str(sum);
    });
    std::vector<int> pids;
    for (int rank = 0; rank < kRanks; ++rank) pids.push_back(job.pid(rank));
    const Stranger stranger(pids, GetParam().bytes);
    EXPECT_TRUE(comes_true([&] { return stranger.ports() >= kListeners; }));
    std::ofstream(mark) << "x";
    const auto outcomes = job.wait(seconds(60));
    for (int rank = 0; rank < kRanks; ++rank) {
        const double first = rank < 3 ? 5000 : 1000;
        EXPECT_EQ(outcomes[static_cast<std::size_t>(rank)].text, str(first + 3 * 50000.0 * 4 * 3));
    }
}

INSTANTIATE_TEST_SUITE_P(
    Sends, UnauthenticatedLocalClient,
    testing::Values(Mode{"Nothing", ""}, Mode{"Zeros", std::string(4096, '\0')},
                    Mode{"Garbage", std::string(4096, '\xa5')},
                    Mode{"HalfAHandshake", std::string("AXD1\3\0\0\0", 8)},
                    Mode{"AWrongProof", std::string("AXD1\3\0\0\0", 8) + std::string(72, '\1')}),
    [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace axle::tests
