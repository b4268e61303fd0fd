// Private to dist: a transport over TCP for data in host memory.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "dist/transport/transport.h"

namespace axle::dist {

class Control;

// Opens the transport of a group. `name` is the group's name, a prefix of its keys in the store.
// Each pair of ranks has one connection, which is opened on first use. Before it carries data, both
// ranks prove that they are members of the job (tcp_handshake.h). `timeout` is the timeout of
// opening a connection and of Message::wait(). After a timeout of wait(), all messages of the
// transport fail. Throws CommError if the system cannot listen at control.local_address(). Without
// a secret token, ranks prove only that they have read the store.
std::unique_ptr<Transport> open_tcp_transport(Control& control, const std::string& name, int rank,
                                              int size, std::chrono::milliseconds timeout);

}  // namespace axle::dist
