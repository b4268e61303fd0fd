// Sets an environment variable for a test.
#pragma once

#include <cstdlib>

namespace axle::tests {

// Sets the variable for the lifetime of the object; the destructor removes it.
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
