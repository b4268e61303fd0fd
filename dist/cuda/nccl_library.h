// Private to dist: the functions of the NCCL library, which is opened on first use.
#pragma once

#include <string>

#if __has_include(<nccl.h>)
#include <nccl.h>
#else
#include "dist/cuda/nccl_api.h"
#endif

namespace axle::dist {

struct Nccl {
    decltype(&ncclGetVersion) get_version;
    decltype(&ncclGetErrorString) error_string;
    decltype(&ncclGetLastError) last_error;
    decltype(&ncclGetUniqueId) unique_id;
    decltype(&ncclCommInitRankConfig) init;
    decltype(&ncclCommFinalize) finalize;
    decltype(&ncclCommDestroy) destroy;
    decltype(&ncclCommAbort) abort;
    decltype(&ncclCommGetAsyncError) async_error;
    decltype(&ncclGroupStart) group_start;
    decltype(&ncclGroupEnd) group_end;
    decltype(&ncclAllReduce) all_reduce;
    decltype(&ncclReduce) reduce;
    decltype(&ncclReduceScatter) reduce_scatter;
    decltype(&ncclBroadcast) broadcast;
    decltype(&ncclAllGather) all_gather;
    decltype(&ncclSend) send;
    decltype(&ncclRecv) recv;
};

// Returns the functions of NCCL, or nullptr if libnccl.so.2 can't be opened or lacks some of them.
const Nccl* nccl();
// Returns the reason why nccl() returns nullptr, or "" if it does not.
const std::string& nccl_error();

}  // namespace axle::dist
