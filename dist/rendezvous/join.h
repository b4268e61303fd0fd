// Private to dist: connects a process to the server of rank 0.
#pragma once

#include <vector>

#include "dist/environment/environment.h"
#include "dist/rendezvous/activity.h"
#include "dist/rendezvous/control.h"
#include "dist/rendezvous/wire.h"
#include "dist/transport/launcher_connection.h"
#include "dist/transport/socket.h"

namespace axle::dist {

struct Connected {
    Socket socket;
    FrameReader in;
    Address address;  // the server's address
    Process server;
    std::vector<ChildEnd> ends;  // exits of processes that the launcher has reported
};

// Connects to the server and waits until all ranks have joined. Retries until the join timeout,
// because rank 0 may start later. `own` is the server's address on rank 0, and nullptr on the other
// ranks. Throws CommError with the missing ranks, or with the reason why the server could not be
// reached or has rejected this rank.
Connected join_server(const Environment& environment, const ControlOptions& options,
                      LauncherConnection& launcher, const Address* own);

}  // namespace axle::dist
