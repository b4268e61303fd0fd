// A variable of the environment.
#pragma once

#include <cstdlib>

namespace axle::tests {

// Sets it while it lives; before and after there is none.
class Variable {
  public:
    Variable(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
    ~Variable() { ::unsetenv(name_); }
    Variable(const Variable&) = delete;
    Variable& operator=(const Variable&) = delete;

  private:
    const char* name_;
};

}  // namespace axle::tests
