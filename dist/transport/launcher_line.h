// Private to dist: this process's end of the channel to its launcher, if it has one.
#pragma once

#include <optional>
#include <vector>

#include "dist/transport/launcher_channel.h"

namespace axle::inline v0::dist {

class LauncherLine {
  public:
    // The socket that AXLE_LAUNCHER_FD names. It stays open for the next one who asks, but no
    // program that this process starts inherits it.
    LauncherLine();

    bool is_there() const { return descriptor_ >= 0; }
    int descriptor() const { return descriptor_; }
    // What has come.
    std::vector<ChildEnd> read();
    void write(const HeardFailure& failure) const;

  private:
    int descriptor_ = -1;
    LineReader lines_;
};

}  // namespace axle::inline v0::dist
