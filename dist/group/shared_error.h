// Private to dist and accel: throws an error of one process on all processes.
#pragma once

#include <exception>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/tree/tree.h"
#include "dist/group/process_group.h"

namespace axle::dist {

// Returns a description of an error that can be sent to other processes and thrown there.
Tree describe_error(const std::exception_ptr& error);
// Throws the described error with its original type if this type is LinAlgError or declared in
// kernels/error.h. A type derived from one of these types is thrown as this type, and any other
// type as Error. The message is "op: whose: text"; an op at the beginning of the text is not
// repeated.
[[noreturn]] void throw_described(const Tree& error, std::string_view op, std::string_view whose);

// Gathers the value of describe() from all processes and returns the values, indexed by rank. If
// describe() throws on some processes, these processes throw their own error. The other processes
// throw the error of the first such process, with a prefix such as "process 2". Throws CommError if
// the processes pass different values of `call`, which defaults to `op`.
std::vector<Tree> gather_or_throw(ProcessGroup& group, std::string_view op,
                                  const std::function<Tree()>& describe,
                                  const std::string& call = {});

}  // namespace axle::dist
