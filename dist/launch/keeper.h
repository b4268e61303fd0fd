// Private to dist: a small process that outlives a launcher which is killed, to end what the
// launcher had started.
#pragma once

#include <cstddef>

#include <sys/types.h>

#include "dist/transport/owned_fd.h"

namespace axle::inline v0::dist {

// A child dies with its launcher by PR_SET_PDEATHSIG; what the child has started in its process
// group does not, and is killed by the keeper.
class Keeper {
  public:
    // For at most so many groups at a time.
    explicit Keeper(std::size_t most);
    ~Keeper();
    Keeper(const Keeper&) = delete;
    Keeper& operator=(const Keeper&) = delete;

    void add(pid_t group);
    // Before its number may become somebody else's.
    void remove(pid_t group);
    // What no child may hold.
    int fd() const { return pipe_.get(); }

  private:
    void tell(pid_t group);

    OwnedFd pipe_;
    pid_t pid_ = -1;
};

}  // namespace axle::inline v0::dist
