// Private to dist and accel: errors that occur in one process and are thrown in all of them.
#pragma once

#include <exception>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/tree/tree.h"
#include "dist/group/process_group.h"

namespace axle::dist {

// Describes an error, to be sent to other processes and thrown there.
Tree describe_error(const std::exception_ptr& error);
// Throws the described error with its original type from kernels/error.h, or Error for other types.
// The error text becomes "op: whose: text"; an op at the beginning of the text is not repeated.
[[noreturn]] void throw_described(const Tree& error, std::string_view op, std::string_view whose);

// Gathers the value of describe() from all processes. If describe() throws on some of them, all
// processes throw. A process whose describe() failed throws its own error. The other processes
// throw the error of the first such process, with "process 2" before its text. Throws CommError if
// the processes pass different `call`s, which default to `op`.
std::vector<Tree> gather_or_throw(ProcessGroup& group, std::string_view op,
                                  const std::function<Tree()>& describe,
                                  const std::string& call = {});

}  // namespace axle::dist
