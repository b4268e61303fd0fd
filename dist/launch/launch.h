// Starts several processes on this machine from a program, like Accelerate's notebook_launcher.
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

namespace axle::dist {

// The fields are in the order of notebook_launcher's arguments.
struct LaunchOptions {
    int num_processes = 0;  // number on this machine; required (ValueError)
    std::string mixed_precision = "no";
    int use_port = 0;  // the port of rank 0; 0 chooses a free port if num_nodes is 1
    std::string master_addr = "127.0.0.1";
    int node_rank = 0, num_nodes = 1;
    int max_restarts = 0;
    std::chrono::milliseconds monitor_interval{100};
    bool cpu = false;  // sets ACCELERATE_USE_CPU
    // More environment variables for the children.
    std::map<std::string, std::string> environment = {};
};

// Describes the first process of a job that failed.
struct JobFailure {
    int rank = -1;
    std::int64_t pid = 0;
    std::string host;
    int signal = 0, exit_code = 0;
    std::string op;  // the collective that it was in, or ""
    std::uint64_t sequence = 0;

    // Returns {"rank": 1, "pid": 4242, "host": "...", "signal": 9, "exit_code": -9, "op":
    // "all_reduce", "seq": 12}.
    std::string to_json() const;
};

// Forks num_processes children, runs f in each with the environment that ProcessGroup::create() and
// Accelerator read, and returns when all have ended. With num_processes = 1, f runs in this
// process. If f throws, its process prints the error to stderr, the other processes are stopped,
// and launch_function throws CommError with the rank and the error text. Throws UsageError if this
// process has a thread pool or a CUDA context, which do not survive a fork, and ValueError for
// inconsistent options.
void launch_function(const LaunchOptions& options, const std::function<void()>& f);

template <class F, class... Args>
void launch(const LaunchOptions& options, F&& f, Args&&... args) {
    launch_function(options, [&] { std::invoke(f, args...); });
}

// Runs launch() on the CPU, for tests.
template <class F, class... Args>
void debug_launch(F&& f, int num_processes, Args&&... args) {
    launch({.num_processes = num_processes, .cpu = true}, std::forward<F>(f),
           std::forward<Args>(args)...);
}

// --- building blocks of launchers

// One process of a job to start.
struct Command {
    std::vector<std::string> arguments;                   // program and arguments, as for execvp
    std::map<std::string, std::string> environment = {};  // added to this process's environment
    std::vector<int> cpus = {};  // the CPUs it may run on; empty: the CPUs of this process
};
struct SuperviseOptions {
    int max_restarts = 0;
    std::chrono::milliseconds monitor_interval{100};
    // How long the remaining processes of a failed job may take to end before they get SIGTERM.
    std::chrono::milliseconds patience{2000};
    std::chrono::milliseconds grace{30000};  // time between SIGTERM and SIGKILL
    std::string log_dir =
        {};  // logs go to <log_dir>/<launch>/<local rank>/{stdout,stderr}.log; empty: no logs
    // Also copies output, each line prefixed with its rank, to this process's streams: 1 stdout, 2
    // stderr, 3 both. A stream that is neither logged nor copied is inherited by the children.
    int tee = 0;
    // Called with the failure of each failed launch.
    std::function<void(const JobFailure&)> on_failure = {};
    // Returns variables to add to every process's environment, for restart `attempt` (0 first),
    // such as a new port and token.
    std::function<std::map<std::string, std::string>(int restart)> environment = {};
};

// Starts all processes, waits for them, and returns the exit code of the first one that failed (128
// + n for signal n), or 0. If a process fails, the other processes are stopped and the job is
// restarted up to max_restarts times. While it runs, SIGINT, SIGTERM, SIGHUP and SIGQUIT sent to
// this process are forwarded to all children, and children end when this process ends. Each child
// leads a process group, so that the processes it starts are stopped too. Throws FileError if a
// program is not found, and ValueError for invalid environment variables. Messages name a process
// by its RANK and LOCAL_RANK, or else by its index in `commands`.
int supervise(const std::vector<Command>& commands, const SuperviseOptions& options);

// Describes this machine's part of a job.
struct JobNode {
    int local_world_size = 1, node_rank = 0, num_nodes = 1;
    std::string master_addr = "127.0.0.1";
    int master_port = 0;
    std::string token = {};
    // CPU threads of each process. 0 divides the cores among the processes, unless this process's
    // environment sets OMP_NUM_THREADS.
    int num_threads = 0;
};
// Returns RANK, WORLD_SIZE and the other variables that ProcessGroup::create() and programs for
// torchrun read.
std::map<std::string, std::string> environment_of(const JobNode& place, int local_rank);

// Returns the CPUs for one process: an equal share of whole cores, on as few NUMA nodes as
// possible.
std::vector<int> cpus_of(const JobNode& place, int local_rank);

// Returns 32 random bytes in hex.
std::string make_job_token();

// Reserves a port of this machine while it exists. Rank 0 can still listen on it (with
// SO_REUSEADDR).
class ReservedPort {
  public:
    // Reserves `port`, or a free port if it is 0. Throws CommError if the port is in use.
    explicit ReservedPort(int port = 0);
    ~ReservedPort();
    ReservedPort(const ReservedPort&) = delete;
    ReservedPort& operator=(const ReservedPort&) = delete;

    int port() const { return port_; }

  private:
    int fd_ = -1, port_ = 0;
};

}  // namespace axle::dist
