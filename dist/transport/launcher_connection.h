// Private to dist: this process's end of the launcher channel.
#pragma once

#include <optional>
#include <vector>

#include "dist/transport/launcher_channel.h"

namespace axle::dist {

class LauncherConnection {
  public:
    // Uses the socket whose descriptor is in AXLE_LAUNCHER_FD, if the variable is set and valid.
    // The destructor does not close the socket. Programs that this process starts do not inherit
    // the socket.
    LauncherConnection();

    bool is_open() const { return descriptor_ >= 0; }
    int descriptor() const { return descriptor_; }
    // Returns the messages that have been received. Does not wait. If the launcher has closed its
    // end, is_open() returns false after this call.
    std::vector<ChildEnd> read();
    // Sends a message to the launcher, without waiting. Does nothing if the socket is not open.
    void write(const ReportedFailure& failure) const;

  private:
    int descriptor_ = -1;
    LineReader lines_;
};

}  // namespace axle::dist
