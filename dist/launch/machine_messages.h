// Private to dist: the messages between the launchers of a job on several machines.
//
// A message is a line of JSON, such as {"type": "start", "restart": 1, "node_rank": 0, ...}.
// Machine 0 of a job is the machine with NODE_RANK 0. Its launcher is the server, and the launchers
// of the other machines are its clients. Lines are exchanged only after both sides have proven that
// they have the job's token (dist/transport/tcp_handshake.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "dist/launch/launch.h"

namespace axle::dist {

// In each message, fields() passes the names and values of the fields to f. f reads or writes the
// values.

// The first message of a client.
struct JoinMachine {
    static constexpr const char* type = "join";
    std::string host;
    std::int64_t pid = 0;
    // Options that must be the same on all machines.
    int num_nodes = 1, min_nodes = 1, local_world_size = 1;
    static void fields(auto& m, auto&& f) {
        f("host", m.host), f("pid", m.pid), f("num_nodes", m.num_nodes);
        f("min_nodes", m.min_nodes), f("local_world_size", m.local_world_size);
    }
};
// The server's reply to a JoinMachine message that it rejects. The client then closes the
// connection.
struct MachineRefused {
    static constexpr const char* type = "refused";
    std::string text;
    bool try_again = false;  // whether a later attempt may succeed
    static void fields(auto& m, auto&& f) { f("text", m.text), f("try_again", m.try_again); }
};
// Starts a launch.
struct LaunchStart {
    static constexpr const char* type = "start";
    int restart = 0;  // number of restarts before this launch
    int node_rank = 0, num_nodes = 1;
    int master_port = 0;  // the port of rank 0
    static void fields(auto& m, auto&& f) {
        f("restart", m.restart), f("node_rank", m.node_rank), f("num_nodes", m.num_nodes);
        f("master_port", m.master_port);
    }
};
// Reports the first failure of a launch. A client sends it to the server, and the server sends it
// to the other clients whose processes still run. Each of them then ends its processes.
struct LaunchFailure {
    static constexpr const char* type = "failed";
    int restart = 0, exit_code = 1;
    JobFailure failure = {};
    static void fields(auto& m, auto&& f) {
        f("restart", m.restart), f("exit_code", m.exit_code), f("rank", m.failure.rank);
        f("pid", m.failure.pid), f("host", m.failure.host), f("signal", m.failure.signal);
        f("code", m.failure.exit_code), f("op", m.failure.op), f("seq", m.failure.sequence);
        f("text", m.failure.text);
    }
};
// Reports that all processes of a client have ended.
struct LaunchEnd {
    static constexpr const char* type = "ended";
    int restart = 0, exit_code = 0;
    int stop_signal = 0;         // the signal that has stopped the launcher, or 0
    bool is_checkpoint = false;  // whether a process has ended with kExitAfterCheckpoint
    bool failed = false;
    static void fields(auto& m, auto&& f) {
        f("restart", m.restart), f("exit_code", m.exit_code), f("signal", m.stop_signal);
        f("checkpoint", m.is_checkpoint), f("failed", m.failed);
    }
};
// Ends the job. A launcher that receives this message ends its processes that still run.
struct JobEnd {
    static constexpr const char* type = "finish";
    int exit_code = 0;
    std::string text;  // the reason why the job is not restarted, or ""
    static void fields(auto& m, auto&& f) { f("exit_code", m.exit_code), f("text", m.text); }
};
// Sent by both sides every second. If a quarter of the silence timeout is shorter, sent at this
// interval.
struct MachineHeartbeat {
    static constexpr const char* type = "heartbeat";
    static void fields(auto&, auto&&) {}
};

using MachineMessage = std::variant<JoinMachine, MachineRefused, LaunchStart, LaunchFailure,
                                    LaunchEnd, JobEnd, MachineHeartbeat>;

// Returns the line of a message, including the line end. Long texts are truncated.
std::string to_line(const MachineMessage& message);
// Returns the message of a line, or nullopt if it is not a valid message.
std::optional<MachineMessage> read_machine_message(std::string_view line);

}  // namespace axle::dist
