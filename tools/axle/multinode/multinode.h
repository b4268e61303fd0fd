// Private to tools: starts the processes of a job on several machines with pdsh, mpirun or srun, as
// DeepSpeed's launchers do.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/tree/tree.h"
#include "dist/launch/launch.h"
#include "tools/axle/flags/deepspeed_flags.h"
#include "tools/axle/multinode/hostfile.h"

namespace axle::launcher {

// Reads DeepSpeed's hostfile, and selects the machines and slots of a job from the options
// deepspeed_multinode_launcher, deepspeed_hostfile, deepspeed_inclusion_filter and
// deepspeed_exclusion_filter. The default launcher is pdsh with a hostfile, and standard without a
// hostfile. With standard, and on one machine without a hostfile, the result is empty. If
// num_processes is less than the number of slots in an unfiltered hostfile, the first slots of each
// machine are used. Throws FileError and ValueError for hostfiles and filters that are invalid, do
// not match num_machines or num_processes, or have no effect, and ValueError if the launcher needs
// a hostfile that is not given.
MultinodeHosts select_hosts(const FlagValues& flags, const Tree& deepspeed_config, int num_machines,
                            std::optional<int> num_processes);

// The settings of a job that one command starts on all of its machines.
struct MultinodeJob {
    MultinodeHosts machines;
    int num_machines = 1, processes_per_machine = 1;
    std::string main_process_ip;  // address of rank 0; may be empty for slurm
    int main_process_port = 29500;
    std::vector<std::string> command;                // the program and its arguments
    std::map<std::string, std::string> environment;  // variables of all processes
    int threads = 0;                                 // per process; 0: not set

    // Settings for pdsh, which starts `axle launch` on each machine: the path of axle, its working
    // directory, the file with the job's secret, and further flags.
    std::string axle = {}, folder = {}, token_file = {};
    std::vector<std::string> flags = {};
};

// Returns the command that starts the job:
//
// | launcher | command |
// |---|---|
// | pdsh | pdsh -S -f 1024 -w HOSTS "cd FOLDER && exec axle launch --machine_rank %n ..." |
// | openmpi | mpirun -n PROCESSES -hostfile FILE --npernode N -x NAME ... PROGRAM |
// | mvapich | mpirun -np PROCESSES -ppn PER_MACHINE -hosts HOSTS -genvlist NAMES PROGRAM |
// | mpich | mpirun -n PROCESSES -ppn PER_MACHINE -hosts HOSTS -genvlist NAMES PROGRAM |
// | slurm | srun -n PROCESSES --nodes MACHINES --ntasks-per-node ... --export=ALL PROGRAM |
//
// The variables are in the environment of the command, so that no secret is an argument. pdsh does
// not pass its environment on, so `axle launch` on the machines gets the variables as flags. Throws
// ValueError if the launcher cannot start the processes on the selected slots, and for pdsh without
// a token_file.
dist::Command multinode_command(const MultinodeJob& job);

// Returns the program that a launcher starts: "pdsh", "mpirun" or "srun".
const char* program_of(std::string_view launcher);
// Throws FileError, which names the launcher, if its program is not in PATH.
void check_multinode_program(std::string_view launcher);

// Parses the variables of a .deepspeed_env file, one NAME=VALUE per line. Empty lines and lines
// that begin with # are ignored. Throws ValueError, with `name` and the line, for other lines.
std::map<std::string, std::string> parse_deepspeed_env(std::string_view text,
                                                       const std::string& name);
// Returns the variables of ~/.deepspeed_env and ./.deepspeed_env; the latter takes precedence.
// DS_ENV_FILE replaces the name of the files. Files that do not exist are ignored. Throws FileError
// if a file cannot be read, and the errors of parse_deepspeed_env().
std::map<std::string, std::string> read_deepspeed_env();

}  // namespace axle::launcher
