// Tests which data of a job other processes can read: its token, its descriptors and its sockets.
// Each of the two ranks is this test program, which runs run_rank() instead of tests.
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <sys/socket.h>
#include <unistd.h>

#include "core/files/file.h"
#include "core/files/folder.h"
#include "core/ops.h"
#include "core/tree/tree.h"
#include "dist/group/process_group.h"
#include "dist/launch/launch.h"
#include "dist/rendezvous/handshake.h"
#include "dist/rendezvous/wire.h"
#include "dist/transport/socket.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dist/launch/launched.h"
#include "tests/free_port.h"

namespace axle::dist {
namespace {

using namespace tests;  // NOLINT: the test helpers of this folder
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
namespace fs = std::filesystem;

// The variable that makes this program a rank. Its value is the folder of the test.
constexpr const char* kFolderVariable = "AXLE_TEST_RANK_FOLDER";
// The variable with the exit code of rank 1.
constexpr const char* kCodeVariable = "AXLE_TEST_RANK_1_EXITS";

std::string variable(const char* name) {
    const char* const text = std::getenv(name);
    return text == nullptr ? "" : text;
}

// Atomically creates a file with one line, for a process that waits for the file.
void put(const std::string& path, const std::string& line) {
    std::ofstream(path + ".new") << line << '\n';
    fs::rename(path + ".new", path);
}
bool wait_for(const std::string& path) {
    return comes_true([&] { return fs::exists(path); });
}

// Returns the open descriptors of this process. The function itself opens no descriptor.
std::string own_descriptors() {
    std::string all;
    std::error_code missing;
    for (int fd = 0; fd < 4096; ++fd) {
        const fs::path file = fs::read_symlink("/proc/self/fd/" + std::to_string(fd), missing);
        if (!file.empty()) all += std::to_string(fd) + " ";
    }
    return all;
}

void check_sum(ProcessGroup& group) {
    const Tensor x = full({3}, group.rank() + 1.0);
    group.all_reduce(x);
    if (x[0].item() != 3.0) throw CommError("the sum of ranks is wrong");
}

// The program of each rank.
int run_rank(const std::string& folder) {
    const std::string rank = variable("RANK");
    put(folder + "/descriptors." + rank, own_descriptors());
    if (rank == "1" && !wait_for(folder + "/join")) return 90;
    const auto group = ProcessGroup::create();
    check_sum(*group);
    put(folder + "/joined." + rank, std::to_string(::getpid()));
    if (!wait_for(folder + "/finish")) return 91;
    const std::string code = variable(kCodeVariable);
    if (rank == "1" && !code.empty()) ::_exit(std::stoi(code));
    check_sum(*group);
    return 0;
}

class RankProgram : public testing::Environment {
  public:
    void SetUp() override {
        const std::string folder = variable(kFolderVariable);
        if (folder.empty()) return;
        int code = kThrew;
        try {
            code = run_rank(folder);
        } catch (const std::exception& error) {
            dprintf(STDERR_FILENO, "%s\n", error.what());
        }
        std::fflush(nullptr);
        ::_exit(code);
    }
};
[[maybe_unused]] const testing::Environment* const kRankProgram =
    testing::AddGlobalTestEnvironment(new RankProgram);

// --- /proc

// Returns the text of a file. If its process has ended, the read fails, and the text is empty.
std::string text_of(const std::string& path) {
    const std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

std::vector<std::string> split(const std::string& text) {
    std::vector<std::string> parts;
    std::istringstream stream(text);
    for (std::string part; std::getline(stream, part, '\0');) parts.push_back(part);
    return parts;
}

std::vector<pid_t> all_processes() {
    std::vector<pid_t> pids;
    for (const std::string& name : list_folder("/proc"))
        if (name.find_first_not_of("0123456789") == std::string::npos)
            pids.push_back(static_cast<pid_t>(std::stol(name)));
    return pids;
}
std::string proc(pid_t pid, const std::string& name) {
    return "/proc/" + std::to_string(pid) + "/" + name;
}

// Returns the local addresses, in hexadecimal, of the listening sockets of a process.
std::vector<std::string> listening_addresses(pid_t pid) {
    std::set<std::string> sockets;
    for (const std::string& fd : list_folder(proc(pid, "fd"))) {
        std::error_code closed;
        sockets.insert(fs::read_symlink(proc(pid, "fd/" + fd), closed).string());
    }
    std::vector<std::string> found;
    for (const char* table : {"net/tcp", "net/tcp6"}) {
        std::ifstream lines(proc(pid, table));
        std::string line;
        for (std::getline(lines, line); std::getline(lines, line);) {
            std::istringstream stream(line);
            const std::vector<std::string> fields{std::istream_iterator<std::string>(stream), {}};
            constexpr std::size_t kLocal = 1, kState = 3, kInode = 9;
            if (fields.size() <= kInode || fields[kState] != "0A") continue;  // 0A: LISTEN
            if (sockets.contains("socket:[" + fields[kInode] + "]"))
                found.push_back(fields[kLocal].substr(0, fields[kLocal].find(':')));
        }
    }
    return found;
}

// Returns whether an address of /proc/net/tcp or tcp6 is 127.x.x.x, ::1 or ::ffff:127.x.x.x.
bool is_loopback(const std::string& address) {
    if (address.size() == 8) return address.ends_with("7F");
    return address == "00000000000000000000000001000000" ||
           (address.starts_with("0000000000000000FFFF0000") && address.ends_with("7F"));
}

// --- the job

class JobSecrets : public testing::Test {
  protected:
    // Starts a job of two ranks. If `code` is not empty, rank 1 exits with this code.
    void start(const std::string& code = "") {
        JobNode place{.local_world_size = 2, .master_port = port_, .token = token_};
        std::vector<Command> commands;
        for (int rank = 0; rank < 2; ++rank) {
            commands.push_back({.arguments = {"/proc/self/exe", "--gtest_filter=JobSecrets.*"},
                                .environment = environment_of(place, rank)});
            commands.back().environment[kFolderVariable] = folder_.path();
            if (!code.empty()) commands.back().environment[kCodeVariable] = code;
        }
        SuperviseOptions options{.log_dir = folder_ / "logs", .tee = 3};
        options.on_failure = [](const JobFailure& failure) {
            dprintf(STDERR_FILENO, "%s\n", failure.to_json().c_str());
        };
        launcher_ = start_process(folder_.path(), [&] {
            ::dup2(STDERR_FILENO, 200);  // a descriptor that exec would not close
            return supervise(commands, options);
        });
    }
    void let_join() const {
        put(folder_ / "join", "");
        for (const char* rank : {"joined.0", "joined.1"}) ASSERT_TRUE(wait_for(folder_ / rank));
    }
    int finish() const {
        put(folder_ / "finish", "");
        return wait_for_process(launcher_);
    }
    pid_t pid_of(int rank) const { return wait_for_pid(folder_ / str("joined.", rank)); }

    // Sends a request to join with a wrong proof. Returns the text of the refusal.
    std::string send_wrong_proof(int number) {
        const auto deadline = Clock::now() + std::chrono::seconds(20);
        const Address address = resolve("127.0.0.1", port_).front();
        const Socket socket = connect_to(address, deadline);
        const linger at_once{1, 0};
        ::setsockopt(socket.descriptor(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        Nonces nonces{.client = make_nonce()};
        send_all(socket, encode(JoinStart{.nonce = nonces.client}), deadline);
        FrameReader frames;
        nonces.server = decode<Challenge>(receive(socket, frames, Kind::challenge)).nonce;
        send_all(socket, encode(request_with_wrong_proof(number, nonces)), deadline);
        last_nonces_ = nonces;
        return decode<JoinRefusal>(receive(socket, frames, Kind::join_refusal)).text;
    }
    static std::string receive(const Socket& socket, FrameReader& frames, Kind kind) {
        const auto deadline = Clock::now() + std::chrono::seconds(20);
        for (;;) {
            if (const auto frame = frames.next(Sender::server)) {
                if (frame->kind != kind) throw CommError("another message than the expected one");
                return std::string(frame->body);
            }
            std::array<char, 4096> bytes{};
            if (!wait_readable(socket, deadline)) throw CommError("the server does not answer");
            const auto count = receive_some(socket, bytes);
            if (count < 0) throw CommError("the server has closed the connection");
            frames.add({bytes.data(), static_cast<std::size_t>(count)});
        }
    }
    JoinRequest request_with_wrong_proof(int number, const Nonces& nonces) const {
        Environment job;
        job.world_size = 2;
        job.master_port = port_;
        job.token = token_;
        Environment other = job;
        other.token = make_job_token();
        JoinRequest request{.rank = 1, .world_size = 2, .pid = 1, .host = "stranger"};
        request.join_timeout_ms = 1;
        switch (number % 4) {
            case 0:
                sign(request, key_of(other), nonces);
                break;  // signed with another token
            case 1:
                sign(request, key_of(job), last_nonces_);
                break;  // signed for an earlier connection
            case 2:
                sign(request, key_of(job), nonces), request.join_timeout_ms = 2;
                break;  // changed after signing
            default:
                break;  // not signed
        }
        return request;
    }
    // Sends wrong proofs before and after rank 1 has joined, and expects that the job succeeds.
    void expect_no_effect(int proofs) {
        start();
        const Address address = resolve("127.0.0.1", port_).front();
        ASSERT_TRUE(comes_true([&] {
            try {
                connect_to(address, Clock::now() + std::chrono::seconds(1));
                return true;
            } catch (const SocketError&) {  // rank 0 does not listen yet
                return false;
            }
        }));
        for (int i = 0; i < proofs; ++i) {
            if (i == proofs / 2) let_join();
            ASSERT_THAT(send_wrong_proof(i),
                        HasSubstr("the token of this process (AXLE_JOB_TOKEN) differs"));
        }
        EXPECT_EQ(finish(), 0);
        const std::string errors = text_of(folder_ / "err");
        EXPECT_THAT(errors, Not(HasSubstr("stranger")));
        EXPECT_THAT(errors, Not(HasSubstr("\"rank\"")));
    }

    TemporaryFolder folder_{FolderStorage::in_memory};
    const std::string token_ = make_job_token();
    const int port_ = free_port();
    pid_t launcher_ = -1;
    Nonces last_nonces_;
};

TEST_F(JobSecrets, AreOnlyInTheTokenVariable) {
    start("3");
    let_join();
    std::map<pid_t, std::vector<std::string>> with_token;
    for (const pid_t pid : all_processes()) {
        EXPECT_THAT(text_of(proc(pid, "cmdline")), Not(HasSubstr(token_)));
        for (const std::string& entry : split(text_of(proc(pid, "environ"))))
            if (entry.find(token_) != std::string::npos) with_token[pid].push_back(entry);
    }
    const std::vector<std::string> only = {"AXLE_JOB_TOKEN=" + token_};
    EXPECT_EQ(with_token,
              (std::map<pid_t, std::vector<std::string>>{{pid_of(0), only}, {pid_of(1), only}}));
    EXPECT_EQ(finish(), 3);
    const FolderContents written = contents_of(folder_.path());
    for (const char* log : {"logs/0/0/stdout.log", "logs/0/0/stderr.log", "logs/0/1/stdout.log",
                            "logs/0/1/stderr.log", "err"})
        EXPECT_THAT(written.files, Contains(log));
    EXPECT_EQ(from_json(lines_in(folder_ / "err").back())["exit_code"].integer(), 3);
    for (const std::string& name : written.files)
        EXPECT_THAT(read_file(folder_ / name), Not(HasSubstr(token_))) << name;
}

TEST_F(JobSecrets, AreNotExposedByDescriptorsOtherThanTheLauncherChannel) {
    start();
    let_join();
    for (const int rank : {0, 1}) {
        std::string channel;
        for (const std::string& entry : split(text_of(proc(pid_of(rank), "environ"))))
            if (entry.starts_with("AXLE_LAUNCHER_FD=")) channel = entry.substr(17);
        EXPECT_THAT(lines_in(folder_ / str("descriptors.", rank)),
                    ElementsAre("0 1 2 " + channel + " "));
    }
    EXPECT_EQ(finish(), 0);
}

TEST_F(JobSecrets, AreExchangedThroughSocketsThatListenOnlyOnLoopbackAddresses) {
    start();
    let_join();
    std::vector<std::string> addresses;
    for (const pid_t pid : {launcher_, pid_of(0), pid_of(1)})
        for (const std::string& address : listening_addresses(pid)) addresses.push_back(address);
    EXPECT_FALSE(addresses.empty());  // the rendezvous has a socket
    for (const std::string& address : addresses) EXPECT_TRUE(is_loopback(address)) << address;
    EXPECT_EQ(finish(), 0);
}

TEST_F(JobSecrets, ProtectTheJobFromClientsWithWrongProofs) { expect_no_effect(1000); }
TEST_F(JobSecrets, ProtectTheJobFromClientsWithWrongProofsInALongRun) { expect_no_effect(10'000); }

}  // namespace
}  // namespace axle::dist
