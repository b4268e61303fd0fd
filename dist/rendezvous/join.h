// Private to dist: from an environment to a connection with the server of rank 0.
#pragma once

#include <vector>

#include "dist/environment/environment.h"
#include "dist/rendezvous/activity.h"
#include "dist/rendezvous/control.h"
#include "dist/rendezvous/wire.h"
#include "dist/transport/launcher_line.h"
#include "dist/transport/socket.h"

namespace axle::inline v0::dist {

struct Connected {
    Socket socket;
    FrameReader in;
    Address address;  // of the server
    Process server;
    std::vector<ChildEnd> ends;  // that the launcher has told of by then
};

// Tries until the join timeout, for rank 0 may start later; `own` is where it listens, if it is
// this process. CommError says who did not come, or why this process is refused.
Connected join_server(const Environment& environment, const ControlOptions& options,
                      LauncherLine& launcher, const Address* own);

}  // namespace axle::inline v0::dist
