#include "tests/free_port.h"

#include <memory>
#include <mutex>
#include <vector>

#include "dist/environment/environment.h"
#include "dist/launch/launch.h"

namespace axle::tests {

int free_port() {
    static std::mutex mutex;
    static std::vector<std::unique_ptr<dist::ReservedPort>> reserved;
    const std::lock_guard lock(mutex);
    reserved.push_back(std::make_unique<dist::ReservedPort>());
    return reserved.back()->port();
}

}  // namespace axle::tests
