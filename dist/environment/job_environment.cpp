#include "dist/environment/job_environment.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string>
#include <string_view>
#include <system_error>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/files/file.h"
#include "core/text/text.h"
#include "dist/environment/machine.h"
#include "dist/launch/launch.h"
#include "dist/transport/owned_fd.h"
#include "kernels/error.h"

namespace axle::dist {
namespace {

std::string value_of(const char* name) {
    const char* const text = std::getenv(name);
    return text == nullptr ? "" : text;
}

std::string threads_for(const JobNode& place) {
    if (place.num_threads > 0) return std::to_string(place.num_threads);
    const std::string configured = value_of("OMP_NUM_THREADS");
    if (!configured.empty() && configured.find_first_not_of("0123456789") == std::string::npos)
        return configured;
    const auto cores = static_cast<int>(physical_cores().size());
    return std::to_string(std::max(1, cores / place.local_world_size));
}

}  // namespace

void check_variables(const JobVariables& variables) {
    using namespace std::string_view_literals;
    for (const auto& [name, value] : variables) {
        if (name.empty() || name.find_first_of("=\n\0"sv) != std::string::npos)
            throw ValueError(str("launch: a variable name must not be empty or contain '=', a ",
                                 "line end or a zero byte: ", in_quotes(name)));
        if (value.find_first_of("\n\0"sv) != std::string::npos)
            throw ValueError(
                str("launch: the value of ", name, " must not contain a line end or a zero byte"));
    }
}

void add_restarts(JobVariables& variables, int attempt, int max_restarts) {
    for (const char* name : {"TORCHELASTIC_RESTART_COUNT", "AXLE_RESTART_COUNT"})
        variables[name] = std::to_string(attempt);
    variables["TORCHELASTIC_MAX_RESTARTS"] = std::to_string(max_restarts);
}

std::map<std::string, std::string> environment_of(const JobNode& place, int local_rank) {
    const int rank = place.node_rank * place.local_world_size + local_rank;
    const int world_size = place.num_nodes * place.local_world_size;
    std::map<std::string, std::string> all = {
        {"RANK", std::to_string(rank)},
        {"WORLD_SIZE", std::to_string(world_size)},
        {"LOCAL_RANK", std::to_string(local_rank)},
        {"LOCAL_WORLD_SIZE", std::to_string(place.local_world_size)},
        {"GROUP_RANK", std::to_string(place.node_rank)},
        {"GROUP_WORLD_SIZE", std::to_string(place.num_nodes)},
        {"ROLE_RANK", std::to_string(rank)},
        {"ROLE_WORLD_SIZE", std::to_string(world_size)},
        {"NODE_RANK", std::to_string(place.node_rank)},
        {"MASTER_ADDR", place.master_addr},
        {"MASTER_PORT", std::to_string(place.master_port)},
        {"AXLE_JOB_TOKEN", place.token},
        {"TORCHELASTIC_RUN_ID", "axle"},
        // Rank 0 runs the store, not the launcher.
        {"TORCHELASTIC_USE_AGENT_STORE", "False"},
    };
    const std::string threads = threads_for(place);
    if (place.num_threads > 0 || value_of("OMP_NUM_THREADS").empty())
        all["OMP_NUM_THREADS"] = threads;
    if (place.num_threads > 0 || value_of("AXLE_NUM_THREADS").empty())
        all["AXLE_NUM_THREADS"] = threads;
    return all;
}

std::string make_job_token() { return random_hex(64); }

ReservedPort::ReservedPort(int port) {
    sockaddr_in where = {};
    where.sin_family = AF_INET;
    where.sin_port = htons(static_cast<in_port_t>(port));
    if (port < 0 || port > 65535)
        throw ValueError(str("launch: the port must be from 0 to 65535: ", port));
    where.sin_addr.s_addr = htonl(INADDR_ANY);  // all addresses; the socket never listens
    OwnedFd fd = adopt_fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");
    auto* const any = reinterpret_cast<sockaddr*>(&where);
    const auto bind = [&] { return ::bind(fd.get(), any, sizeof where) == 0; };
    const auto let_others_listen = [&] {
        constexpr int kYes = 1;
        ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &kYes, sizeof kYes);
    };
    // The first bind() runs without SO_REUSEADDR, because with this option two sockets could bind
    // the same port. If the first bind() fails only because of closed connections (TIME_WAIT), the
    // second bind() succeeds.
    bool bound = bind();
    let_others_listen();
    bound = bound || bind();
    socklen_t size = sizeof where;
    if (!bound || ::getsockname(fd.get(), any, &size) != 0)
        throw CommError(str("launch: can't use port ", port, ": ",
                            std::generic_category().message(errno),
                            port == 0 ? "" : "; use another port"));
    port_ = ntohs(where.sin_port);
    fd_ = fd.release();
}

ReservedPort::~ReservedPort() { ::close(fd_); }

}  // namespace axle::dist
