// Private to dist and accel: an error that one process has and all are to throw.
#pragma once

#include <exception>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/tree/tree.h"
#include "dist/group/process_group.h"

namespace axle::inline v0::dist {

// What other processes need to throw it as well.
Tree describe_error(const std::exception_ptr& error);
// Throws what was described, as the type of kernels/error.h that it has; Error for others. The text
// is "op: whose: text", op once.
[[noreturn]] void throw_described(const Tree& error, std::string_view op, std::string_view whose);

// What each process says, in a collective. If saying() throws on some of them, all throw: these
// what they have caught, the others that of the first one, with "process 2" before its text.
// CommError where the processes speak of different calls; without a word, calls of op.
std::vector<Tree> tell_all(ProcessGroup& group, std::string_view op,
                           const std::function<Tree()>& saying, const std::string& call = {});

}  // namespace axle::inline v0::dist
