// Private to dist: this process's end of the launcher channel.
#pragma once

#include <optional>
#include <vector>

#include "dist/transport/launcher_channel.h"

namespace axle::dist {

class LauncherConnection {
  public:
    // Uses the socket named by AXLE_LAUNCHER_FD, if any. The socket stays open for later instances,
    // but is not inherited by programs that this process starts.
    LauncherConnection();

    bool is_open() const { return descriptor_ >= 0; }
    int descriptor() const { return descriptor_; }
    // Returns the messages that have arrived. Does not wait.
    std::vector<ChildEnd> read();
    void write(const ReportedFailure& failure) const;

  private:
    int descriptor_ = -1;
    LineReader lines_;
};

}  // namespace axle::dist
