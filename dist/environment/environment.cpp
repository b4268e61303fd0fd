#include "dist/environment/environment.h"

#include <charconv>
#include <cstdint>
#include <cstdlib>

#include "core/files/file.h"
#include "dist/transport/launcher_channel.h"
#include "kernels/error.h"

namespace axle::dist {
namespace {

constexpr std::int64_t kMaxProcesses = 65536;
constexpr std::int64_t kMaxCount = 1'000'000'000;

// Reads variables as numbers and text. Throws ValueError with the name of an invalid variable.
class Reader {
  public:
    explicit Reader(const Variables& variables) : variables_(variables) {}

    std::optional<std::string> find(const char* name) const { return variables_(name); }
    bool has(const char* name) const { return find(name).has_value(); }

    std::optional<std::int64_t> number(const char* name, std::int64_t low,
                                       std::int64_t high) const {
        const auto text = find(name);
        if (!text) return {};
        std::int64_t value = 0;
        const char* end = text->data() + text->size();
        const auto [stop, error] = std::from_chars(text->data(), end, value);
        if (error != std::errc() || stop != end || value < low || value > high)
            throw ValueError(str("environment: ", name, " must be an integer from ", low, " to ",
                                 high, ": ", in_quotes(*text)));
        return value;
    }

    // Returns the value of the variable `name`, which is required if the variable `beside` is set.
    std::int64_t needed(const char* name, const char* beside, std::int64_t low,
                        std::int64_t high) const {
        const auto value = number(name, low, high);
        if (!value) {
            throw ValueError(str("environment: ", name, " is missing but ", beside,
                                 " is set: set both or neither"));
        }
        return *value;
    }

  private:
    const Variables& variables_;
};

int as_int(std::int64_t value) { return static_cast<int>(value); }

struct Names {
    const char *rank, *size, *local_rank, *local_size;
};
constexpr Names kByHand{"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
constexpr Names kOpenMpi{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                         "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr Names kMvapich{"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK",
                         "MV2_COMM_WORLD_LOCAL_SIZE"};
constexpr Names kMpich{"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};

bool is_loopback_name(const std::string& host) {
    return host == "localhost" || host == "::1" || host.starts_with("127.");
}

// Reads the local rank and the number of local processes. If neither is set, and MASTER_ADDR is a
// loopback address or not set, assumes that all processes are on this machine. Otherwise assumes
// that each machine has one process.
void read_local_rank(const Reader& reader, const Names& names, Environment& e) {
    if (!reader.has(names.local_rank) && !reader.has(names.local_size)) {
        const auto master = reader.find("MASTER_ADDR");
        const bool here = !master || is_loopback_name(*master);
        e.local_rank = here ? e.rank : 0;
        e.local_world_size = here ? e.world_size : 1;
        return;
    }
    e.local_world_size = as_int(reader.needed(names.local_size, names.local_rank, 1, e.world_size));
    e.local_rank =
        as_int(reader.needed(names.local_rank, names.local_size, 0, e.local_world_size - 1));
}

void read_ranks(const Reader& reader, const Names& names, Environment& e) {
    e.world_size = as_int(reader.needed(names.size, names.rank, 1, kMaxProcesses));
    e.rank = as_int(reader.needed(names.rank, names.size, 0, e.world_size - 1));
    read_local_rank(reader, names, e);
    // Assumes the same number of processes on all machines.
    e.node_rank = e.rank / e.local_world_size;
}

void read_by_hand(const Reader& reader, Environment& e) {
    read_ranks(reader, kByHand, e);
    for (const char* name : {"NODE_RANK", "GROUP_RANK"})
        e.node_rank = as_int(reader.number(name, 0, e.world_size - 1).value_or(e.node_rank));
    if (reader.has(kLauncherVariable)) {
        e.launcher = "axle";
    } else if (const auto id = reader.find("TORCHELASTIC_RUN_ID")) {
        e.launcher = "torchrun";
        e.token = *id;
        e.port_is_taken = reader.find("TORCHELASTIC_USE_AGENT_STORE") == "True";
    }
    for (const char* name : {"TORCHELASTIC_RESTART_COUNT", "AXLE_RESTART_COUNT"})
        e.restart_count = as_int(reader.number(name, 0, kMaxCount).value_or(e.restart_count));
}

// Returns the number of tasks on machine `node`, an index from 0, or nullopt if the text is invalid
// or lists fewer machines. The text "2(x3),1" means two tasks on each of three machines and one
// task on the fourth.
std::optional<int> tasks_of_node(std::string_view text, std::int64_t node) {
    while (!text.empty()) {
        int tasks = 0, machines = 1;
        const char* end = text.data() + text.size();
        auto [stop, error] = std::from_chars(text.data(), end, tasks);
        if (error != std::errc() || tasks < 1) return {};
        if (std::string_view(stop, end).starts_with("(x")) {
            const auto [closed, bad] = std::from_chars(stop + 2, end, machines);
            if (bad != std::errc() || machines < 1 || closed == end || *closed != ')') return {};
            stop = closed + 1;
        }
        if (node < machines) return tasks;
        node -= machines;
        if (stop != end && *stop != ',') return {};
        text = stop == end ? "" : std::string_view(stop + 1, end);
    }
    return {};
}

std::optional<std::string> first_of(const Reader& reader,
                                    std::initializer_list<const char*> names) {
    for (const char* name : names) {
        if (auto value = reader.find(name)) return value;
    }
    return {};
}

// Returns whether srun has started this process. Batch scripts and interactive shells are also
// SLURM steps, but their step numbers are at least kInteractive.
bool is_step_of_srun(const Reader& reader) {
    constexpr std::int64_t kInteractive = 4294967290;
    const auto step = reader.number("SLURM_STEP_ID", 0, UINT32_MAX);
    return step && *step < kInteractive;
}

// Reads the variables of SLURM. Variables of the job step take precedence over variables of the
// job.
void read_slurm(const Reader& reader, Environment& e) {
    e.launcher = "slurm";
    const char* size = reader.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
    e.world_size = as_int(reader.needed(size, "SLURM_PROCID", 1, kMaxProcesses));
    e.rank = as_int(reader.needed("SLURM_PROCID", size, 0, e.world_size - 1));
    e.node_rank = as_int(reader.needed("SLURM_NODEID", "SLURM_PROCID", 0, kMaxProcesses));
    const auto tasks = first_of(reader, {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"});
    const auto local = tasks ? tasks_of_node(*tasks, e.node_rank) : std::optional(e.world_size);
    if (!local || *local > e.world_size) {
        const char* const variable = reader.has("SLURM_STEP_TASKS_PER_NODE")
                                         ? "SLURM_STEP_TASKS_PER_NODE"
                                         : "SLURM_TASKS_PER_NODE";
        throw ValueError(str("environment: ", variable, " must give a number of tasks from 1 to ",
                             e.world_size, " for node ", e.node_rank,
                             ", such as '2(x3),1': ", in_quotes(tasks.value_or(""))));
    }
    e.local_world_size = *local;
    e.local_rank = as_int(reader.needed("SLURM_LOCALID", "SLURM_PROCID", 0, *local - 1));
    e.restart_count = as_int(reader.number("SLURM_RESTART_COUNT", 0, kMaxCount).value_or(0));

    const auto job = reader.needed("SLURM_JOB_ID", "SLURM_PROCID", 0, INT64_MAX / 2);
    const auto step = reader.needed("SLURM_STEP_ID", "SLURM_PROCID", 0, UINT32_MAX);
    e.token = str(job, '.', step);
    e.master_port = as_int(10000 + (job + step) % 20000);
    if (e.local_world_size == e.world_size) return;
    for (const char* name : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"}) {
        const auto nodes = reader.find(name);
        if (!nodes) continue;
        e.master_addr = expand_nodelist(*nodes, str("environment: ", name)).front();
        return;
    }
}

void read_mpi(const Reader& reader, Environment& e) {
    if (reader.has(kOpenMpi.rank)) {
        e.launcher = "openmpi";
        e.token = reader.find("PMIX_NAMESPACE").value_or("");
        return read_ranks(reader, kOpenMpi, e);
    }
    e.launcher = "mpich";
    if (reader.has(kMvapich.rank)) return read_ranks(reader, kMvapich, e);
    if (reader.has("I_MPI_MPIRUN") || reader.has("I_MPI_ROOT")) e.launcher = "intel";
    return read_ranks(reader, kMpich, e);
}

void read_master(const Reader& reader, Environment& e) {
    const bool told = reader.has("MASTER_ADDR") || e.launcher == "slurm";
    if (auto address = reader.find("MASTER_ADDR")) {
        if (address->empty() || address->size() > 255)
            throw ValueError("environment: MASTER_ADDR must have from 1 to 255 characters: " +
                             in_quotes(*address));
        e.master_addr = *address;
    }
    if (!told && e.local_world_size < e.world_size) {
        throw ValueError(
            str("environment: MASTER_ADDR is missing, but only ", e.local_world_size, " of ",
                e.world_size,
                " processes are on this machine: set it to the address of rank 0's machine"));
    }
    e.master_port = as_int(reader.number("MASTER_PORT", 0, 65535).value_or(e.master_port));
    if (e.master_port == 0 && e.world_size > 1) {
        throw ValueError(str("environment: MASTER_PORT is 0, but ", e.world_size,
                             " processes must connect: set it to a free port on rank 0's machine"));
    }
}

void read_token(const Reader& reader, Environment& e) {
    const auto token = reader.find("AXLE_JOB_TOKEN");
    if (!token) return;
    if (token->empty())
        throw ValueError("environment: AXLE_JOB_TOKEN is empty: unset it, or set it to a secret");
    e.token = *token;
    e.token_is_secret = true;
}

}  // namespace

std::optional<std::string> process_variable(const std::string& name) {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr) return {};
    return value;
}

Environment read_environment() { return read_environment(process_variable); }

Environment read_environment(const Variables& variables) {
    const Reader reader(variables);
    Environment e;
    const bool slurm = reader.has("SLURM_PROCID") && is_step_of_srun(reader);
    if (reader.has("RANK") || reader.has("WORLD_SIZE")) {
        read_by_hand(reader, e);
    } else if (reader.has(kOpenMpi.rank) || reader.has(kMvapich.rank) ||
               reader.has(kMpich.local_rank) || (reader.has(kMpich.rank) && !slurm)) {
        read_mpi(reader, e);
    } else if (slurm) {
        read_slurm(reader, e);
    }
    read_master(reader, e);
    read_token(reader, e);
    return e;
}

}  // namespace axle::dist
