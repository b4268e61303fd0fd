// Ports for tests.
#pragma once

namespace axle::tests {

// Returns a port that nothing uses. It stays reserved for this process and its children, so that
// only a server of the test can listen on it; other processes get other ports.
int free_port();

}  // namespace axle::tests
