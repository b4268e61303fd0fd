// A GPU that is none: the part of the CUDA runtime that Axle calls, played by the host. Linked in
// place of the runtime, it gives a process one device whose kernels are those of kernels/cuda/,
// compiled by the host's compiler (device.h).
//
// Streams are queues that run when somebody waits for them, never before: what is not ordered by a
// stream or an event is out of order here too. Device memory can't be touched by the host except
// while something runs, is filled with NaN when it is handed out, and with AddressSanitizer every
// allocation has its fences. Graphs are lists of what was captured; what CUDA forbids beside a
// capture breaks it.
#pragma once

#include <set>
#include <string>

namespace axle::kernels::simulator {

// Whether there is a device: in programs that link plugged_in.cpp as well.
bool plugged_in();

// Places in kernels/cuda/ ("softmax.cu:42") whose kernels have run.
std::set<std::string> started();

// The bus that this thread finds the device on: threads on different buses play processes that have
// a GPU each.
void set_bus(int bus);

// Bytes of device memory that there are; allocations beyond fail as on a real device.
void set_memory(std::size_t bytes);

}  // namespace axle::kernels::simulator
