// From one process to many on this machine, as a library: what notebook_launcher is to Accelerate.
//
//     dist::launch({.num_processes = 2}, [](int steps) { train(steps); }, 100);
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace axle::inline v0::dist {

// In the order of notebook_launcher's.
struct LaunchOptions {
    int num_processes = 0;  // of this machine; must be given (ValueError)
    std::string mixed_precision = "no";
    int use_port = 0;  // of rank 0; 0 takes a free one where there is one machine
    std::string master_addr = "127.0.0.1";
    int node_rank = 0, num_nodes = 1;
    int max_restarts = 0;
    std::chrono::milliseconds monitor_interval{100};
    bool cpu = false;  // ACCELERATE_USE_CPU
    // More of the children's environment.
    std::map<std::string, std::string> environment = {};
};

// How a job ended: of the process that failed first.
struct JobFailure {
    int rank = -1;
    std::int64_t pid = 0;
    std::string host;
    int signal = 0, exit_code = 0;
    std::string op;  // the collective it was in, if that is known
    std::uint64_t sequence = 0;

    // {"rank": 1, "pid": 4242, "host": "...", "signal": 9, "exit_code": -9, "op": "all_reduce",
    // "seq": 12}
    std::string to_json() const;
};

// Forks num_processes times and runs f in each, with the environment that ProcessGroup::create and
// Accelerator read; returns when all have ended. One process runs f here. What f throws is printed
// by its process on stderr and becomes a CommError here that names rank and reason, after the
// others have been stopped. UsageError once this process has a thread pool or a CUDA context, which
// do not survive a fork; ValueError for options that make no sense.
void launch_function(const LaunchOptions& options, const std::function<void()>& f);

template <class F, class... Args>
void launch(const LaunchOptions& options, F&& f, Args&&... args) {
    launch_function(options, [&] { std::invoke(f, args...); });
}

// launch() on the CPU, for tests: two processes unless it is told otherwise.
template <class F, class... Args>
void debug_launch(F&& f, int num_processes, Args&&... args) {
    launch({.num_processes = num_processes, .cpu = true}, std::forward<F>(f),
           std::forward<Args>(args)...);
}

// --- for launchers

// One process of a job, to be started.
struct Command {
    std::vector<std::string> arguments;                   // of execvp
    std::map<std::string, std::string> environment = {};  // added to this process's
    std::vector<int> cpus = {};  // that it may run on; empty: those of this process
};
struct SuperviseOptions {
    int max_restarts = 0;
    std::chrono::milliseconds monitor_interval{100};
    // What the others of a failed job have to end by themselves, before SIGTERM.
    std::chrono::milliseconds patience{2000};
    std::chrono::milliseconds grace{30000};  // between SIGTERM and SIGKILL
    std::string log_dir = {};  // <log_dir>/<attempt>/<local rank>/{stdout,stderr}.log; empty: none
    // ...and on this process's own, each line with its rank before it: 1 stdout, 2 stderr, 3 both.
    // What is neither logged nor shown so is written by the children themselves.
    int tee = 0;
    // A job's failure, once for each attempt.
    std::function<void(const JobFailure&)> on_failure = {};
    // Added to every process's environment, by attempt (0 first): another port, another token.
    std::function<std::map<std::string, std::string>(int attempt)> environment = {};
};

// Starts all, waits for all, and returns the exit code of the first that failed, else 0; 128 + n
// for a signal n. The others of a failed attempt are stopped. SIGINT, SIGTERM, SIGHUP and SIGQUIT
// of this process reach all children while it runs; children die with this process. Each leads a
// process group: what it has started goes the same way. FileError where a program isn't found,
// ValueError for what can't be an environment. Ranks in messages are those of RANK, else the place
// in the list; the same holds for LOCAL_RANK.
int supervise(const std::vector<Command>& commands, const SuperviseOptions& options);

// The processes of this machine in a job.
struct JobPlace {
    int local_world_size = 1, node_rank = 0, num_nodes = 1;
    std::string master_addr = "127.0.0.1";
    int master_port = 0;
    std::string token = {};
    // Of CPU, for each process; 0 shares the cores out, unless this process's environment says it.
    int num_threads = 0;
};
// RANK, WORLD_SIZE and what else ProcessGroup::create and programs for torchrun read.
std::map<std::string, std::string> environment_of(const JobPlace& place, int local_rank);

// A process's share of the CPUs of this process: whole cores, of as few NUMA nodes as can be.
std::vector<int> cpus_of(const JobPlace& place, int local_rank);

// 32 random bytes, in hex.
std::string make_job_token();

// A port of this machine that no other process gets until this is gone; rank 0 may listen on it all
// the same (with SO_REUSEADDR).
class HeldPort {
  public:
    // 0 takes a free one. CommError if it is taken.
    explicit HeldPort(int port = 0);
    ~HeldPort();
    HeldPort(const HeldPort&) = delete;
    HeldPort& operator=(const HeldPort&) = delete;

    int port() const { return port_; }

  private:
    int fd_ = -1, port_ = 0;
};

}  // namespace axle::inline v0::dist
