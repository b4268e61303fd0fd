// Sets an environment variable for a test.
#pragma once

#include <cstdlib>

namespace axle::tests {

// A scope in which an environment variable is set. The destructor removes the variable.
class EnvironmentVariable {
  public:
    EnvironmentVariable(const char* name, const char* value) : name_(name) {
        ::setenv(name, value, 1);
    }
    ~EnvironmentVariable() { ::unsetenv(name_); }
    EnvironmentVariable(const EnvironmentVariable&) = delete;
    EnvironmentVariable& operator=(const EnvironmentVariable&) = delete;

  private:
    const char* name_;
};

}  // namespace axle::tests
