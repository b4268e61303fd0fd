// Ports for tests.
#pragma once

namespace axle::tests {

// Returns a free TCP port and reserves it for this process and its children. Only a server of the
// test can listen on the port; other processes get other ports.
int free_port();

}  // namespace axle::tests
