// Starts and supervises the processes of a job. supervise() starts commands on this machine, and
// supervise_machines() does so together with the launchers of other machines. launch() calls a
// function in several processes, as Accelerate's notebook_launcher does:
//
//     dist::launch({.num_processes = 2}, [](int steps) { train(steps); }, 100);
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/system/milliseconds.h"

namespace axle::dist {

// The options of launch(), in the order of notebook_launcher's arguments.
struct LaunchOptions {
    int num_processes = 0;  // number of processes on this machine; must be set (ValueError)
    std::string mixed_precision = "no";  // "no", "fp16", "bf16" or "fp8"
    // The port of rank 0. 0 selects a free port if num_nodes is 1, and throws ValueError otherwise.
    int use_port = 0;
    std::string master_addr = "127.0.0.1";
    int node_rank = 0, num_nodes = 1;
    int max_restarts = 0;
    Milliseconds monitor_interval{100};  // the same as in SuperviseOptions
    bool cpu = false;                    // sets ACCELERATE_USE_CPU
    // Further environment variables of the children. They replace variables of the same name.
    std::map<std::string, std::string> environment = {};
};

// The exit code of a process that was asked to stop, for example by SIGTERM, and has written a
// checkpoint. A launcher does not restart a job in which a process ends with this exit code.
inline constexpr int kExitAfterCheckpoint = 143;

// A description of the process that failed first in a job. Other processes can report that a
// process is frozen, calls no collective or has not joined. The reported process is then described,
// even if other processes have ended first. In a job on several machines, a lost machine may be
// described instead of a process.
struct JobFailure {
    int rank = -1;  // -1 for a machine
    std::int64_t pid = 0;
    std::string host;
    // The signal that ended the process, or 0, and its exit code (-signal if a signal ended it).
    // Both are 0 for a lost machine, and for a process that other processes have reported, unless
    // it has ended by itself.
    int signal = 0, exit_code = 0;
    std::string op;              // the last collective that the process called, or ""
    std::uint64_t sequence = 0;  // the number of this collective in its group
    // A description such as "rank 1 (pid 4242, host a) died: signal 9 (Killed) during all_reduce
    // #12" or "rank 1 (pid 4242, host a) sent no heartbeat for 8 s; its last collective was
    // all_reduce #12".
    std::string text = {};

    // Returns JSON such as {"rank": 1, "pid": 4242, "host": "a", "signal": 9, "exit_code": -9,
    // "op": "all_reduce", "seq": 12, "text": "..."}.
    std::string to_json() const;
};

// Forks num_processes children, calls f in each of them, and returns when all children have ended.
// The children have the environment variables that ProcessGroup::create() and Accelerator read. If
// num_processes and num_nodes are 1, f is called in this process without these variables, and its
// errors are thrown unchanged.
//
// If f throws, its process prints the error to stderr. If a process fails, the other processes are
// stopped, and all are started again, at most max_restarts times. After the last failure, throws
// CommError with the rank and the error text. Signals to this process act as in supervise(). Throws
// CommError if a signal, or a child that ended with kExitAfterCheckpoint, has stopped the job.
//
// Throws UsageError if this process has a thread pool or a CUDA context, because neither can be
// used after a fork. Throws UsageError if num_nodes is above 1 and AXLE_JOB_TOKEN is not set.
// Throws ValueError for invalid options, CommError if use_port is in use, and Error if the system
// cannot start a process.
void launch_function(const LaunchOptions& options, const std::function<void()>& f);

// Calls launch_function() with a function that calls f(args...).
template <class F, class... Args>
void launch(const LaunchOptions& options, F&& f, Args&&... args) {
    launch_function(options, [&] { std::invoke(f, args...); });
}

// Calls launch() with processes on the CPU. Used in tests.
template <class F, class... Args>
void debug_launch(F&& f, int num_processes, Args&&... args) {
    launch({.num_processes = num_processes, .cpu = true}, std::forward<F>(f),
           std::forward<Args>(args)...);
}

// --- building blocks of launchers

// The command that starts one process of a job.
struct Command {
    // The program and its arguments, as for execvp.
    std::vector<std::string> arguments;
    // Variables added to this process's environment. They replace variables of the same name.
    std::map<std::string, std::string> environment = {};
    std::vector<int> cpus = {};  // allowed CPUs; empty: the CPUs of this process
};

// Returns the path of the program that a Command starts. This is `program` if it contains a slash,
// otherwise the first executable file of this name in PATH. Throws FileError if the file does not
// exist or is not executable.
std::string find_program(const std::string& program);

struct SuperviseOptions {
    int max_restarts = 0;
    // After a child has ended, the interval of the checks whether processes that it has started
    // still run. On systems without pidfds, also the interval of the checks whether children have
    // ended.
    Milliseconds monitor_interval{100};
    // The time between a failure and SIGTERM to the processes that still run.
    Milliseconds patience{2000};
    // The time between a signal that asks processes to end and SIGKILL. Also the time between the
    // end of a process with kExitAfterCheckpoint and SIGTERM to the other processes.
    Milliseconds grace{30000};
    // The folder of the log files <log_dir>/<launch>/<local rank>/{stdout,stderr}.log. <launch> is
    // 0 for the first launch. If log_dir is "", no log files are written.
    std::string log_dir = {};
    // Selects the streams that are copied to the streams of this process: 0 none, 1 stdout, 2
    // stderr, 3 both. Lines are copied with a prefix such as "[rank 1] ". Children inherit streams
    // that are neither logged nor copied.
    int tee = 0;
    // Called when a signal to this process stops the job, with this signal.
    std::function<void(int signal)> on_stop = {};
    // Called after each failed launch with its failure.
    std::function<void(const JobFailure&)> on_failure = {};
    // Returns variables for the environment of all processes, such as a new port and token. They
    // take precedence over the variables of a Command. `restart` is 0 for the first launch.
    std::function<std::map<std::string, std::string>(int restart)> environment = {};
};

// Starts all processes and waits until they have ended. Returns 0, or the exit code of the process
// that failed first in the last launch (128 + n for signal n). If a process fails, the other
// processes are stopped, and the job is restarted up to max_restarts times.
//
// The first SIGINT, SIGTERM, SIGHUP or SIGQUIT to this process is forwarded to all children, unless
// this process ignores the signal. Children that still run after the grace time are killed.
// supervise() then returns 128 + n for signal n and does not restart the job. A second SIGINT kills
// the children immediately. SIGUSR1 is forwarded to children that handle or ignore it, and has no
// other effect. If a child ends by itself with kExitAfterCheckpoint, the other children are stopped
// after the grace time; supervise() returns this code and does not restart the job.
//
// Children end when this process ends. Each child is the leader of a process group, so that the
// processes that it has started are also stopped. Throws FileError if a program is not found or a
// log file can't be created, and Error if the system cannot start a process. Throws ValueError for
// invalid options, arguments and environment variables, and if `commands` is empty. Messages
// identify a process by its RANK and LOCAL_RANK, or else by its index in `commands`.
int supervise(const std::vector<Command>& commands, const SuperviseOptions& options);

// The part of a job that runs on this machine.
struct JobNode {
    int local_world_size = 1, node_rank = 0, num_nodes = 1;
    std::string master_addr = "127.0.0.1";
    int master_port = 0;
    std::string token = {};
    // The number of CPU threads of each process. If 0, values of AXLE_NUM_THREADS and
    // OMP_NUM_THREADS are kept. If only OMP_NUM_THREADS is set, AXLE_NUM_THREADS gets its number. A
    // variable that gets no other value is the number of usable physical cores divided by
    // local_world_size, and at least 1.
    int num_threads = 0;
};
// Returns the environment variables of a process, such as RANK and WORLD_SIZE, that
// ProcessGroup::create() and programs for torchrun read.
std::map<std::string, std::string> environment_of(const JobNode& place, int local_rank);

// Returns the CPUs of one process. The physical cores, ordered by NUMA node, are divided equally
// among the processes, and each process gets consecutive cores. If there are fewer cores than
// processes, processes share cores.
std::vector<int> cpus_of(const JobNode& place, int local_rank);
// Binds the calling thread, and threads that it starts later, to the CPUs that cpus_of() returns.
// Does nothing if the launcher has already bound the process; this is assumed if the parent process
// can run on other CPUs. Returns whether the thread was bound.
bool bind_to_cores(const JobNode& place, int local_rank);

// The options of supervise_machines().
struct MachinesOptions {
    // This machine in the job. node_rank is 0 on the machine that hosts the rendezvous. master_addr
    // is the address of that machine, and master_port is the port of its launcher. All launchers
    // have the same token, which must not be empty.
    JobNode place;
    // The minimum number of machines of a launch, from 1 to place.num_nodes. 0 means
    // place.num_nodes. If fewer machines are allowed, max_restarts must be positive.
    int min_nodes = 0;
    // The time to wait for all machines at the start, and for min_nodes machines before a restart.
    Milliseconds join_timeout{300'000};
    // The time without a message after which a machine is lost.
    Milliseconds silence_timeout{30'000};
    // Called with a text about each change, for example when a machine is lost, or when the job is
    // restarted on other machines or is not restarted.
    std::function<void(const std::string& text)> on_change = {};
};

// Supervises a job on several machines, as supervise() does on one machine. Each machine runs one
// launcher, which calls this function. All processes of the job are started when all machines have
// joined, or after the join timeout if at least min_nodes machines have joined. If a process fails,
// or a machine is lost because its launcher has ended or is silent, the processes of all machines
// are stopped. The job is restarted on the remaining machines, at most as often as max_restarts of
// machine 0 allows. It is not restarted without the machine with node_rank 0, or if fewer than
// min_nodes machines have joined within the join timeout. A machine can join again while the job
// runs, and takes part in the next launch.
//
// `commands` returns the commands of this machine for one launch. Its argument is machines.place
// with the node_rank and num_nodes of the launch and the port of rank 0. The variable
// AXLE_FULL_WORLD_SIZE of the processes is the number of processes on all machines of the job.
//
// Returns the same as supervise(). If the job has failed on other machines only, the result is the
// exit code of that failure, or 1. Throws ValueError for invalid options, CommError if the launcher
// of machine 0 can't listen, is not reached or refuses this machine, and the errors of supervise().
int supervise_machines(const MachinesOptions& machines,
                       const std::function<std::vector<Command>(const JobNode&)>& commands,
                       const SuperviseOptions& options);

// Returns a new token: 32 random bytes as hexadecimal digits.
std::string make_job_token();

// A scope in which a port of this machine is reserved. Rank 0 can listen on it with SO_REUSEADDR.
class ReservedPort {
  public:
    // Reserves `port`, or a free port if it is 0. Throws CommError if the port is in use, and
    // ValueError if it is not from 0 to 65535.
    explicit ReservedPort(int port = 0);
    ~ReservedPort();
    ReservedPort(const ReservedPort&) = delete;
    ReservedPort& operator=(const ReservedPort&) = delete;

    int port() const { return port_; }

  private:
    int fd_ = -1, port_ = 0;
};

}  // namespace axle::dist
