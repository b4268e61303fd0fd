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
    std::vector<ChildEnd> ends;  // child exits that the launcher has reported so far
};

// Connects, and waits until all ranks have joined. Retries until the join timeout, because rank 0
// may start later. `own` is the server's address if this process is rank 0. Throws CommError with
// the missing ranks, or with the reason for a refusal.
Connected join_server(const Environment& environment, const ControlOptions& options,
                      LauncherConnection& launcher, const Address* own);

}  // namespace axle::dist
