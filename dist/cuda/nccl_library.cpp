#include "dist/cuda/nccl_library.h"

#include "kernels/cuda/library.h"
#include "kernels/error.h"

namespace axle::dist {
namespace {

struct Opened {
    kernels::Library library{"NCCL", "libnccl", 2};
    Nccl functions = {};
    std::string error;

    Opened() : error(library.error()) {
        if (!library.found()) return;
        Nccl& f = functions;
        try {
            library.bind("ncclGetVersion", f.get_version);
            library.bind("ncclGetErrorString", f.error_string);
            library.bind("ncclGetLastError", f.last_error);
            library.bind("ncclGetUniqueId", f.unique_id);
            library.bind("ncclCommInitRankConfig", f.init);
            library.bind("ncclCommFinalize", f.finalize);
            library.bind("ncclCommDestroy", f.destroy);
            library.bind("ncclCommAbort", f.abort);
            library.bind("ncclCommGetAsyncError", f.async_error);
            library.bind("ncclGroupStart", f.group_start);
            library.bind("ncclGroupEnd", f.group_end);
            library.bind("ncclAllReduce", f.all_reduce);
            library.bind("ncclReduce", f.reduce);
            library.bind("ncclReduceScatter", f.reduce_scatter);
            library.bind("ncclBroadcast", f.broadcast);
            library.bind("ncclAllGather", f.all_gather);
            library.bind("ncclSend", f.send);
            library.bind("ncclRecv", f.recv);
        } catch (const CudaError& e) {
            error = e.what();
        }
    }
};

const Opened& opened() {
    static const auto* const instance = new Opened;
    return *instance;
}

}  // namespace

const Nccl* nccl() { return opened().error.empty() ? &opened().functions : nullptr; }

const std::string& nccl_error() { return opened().error; }

}  // namespace axle::dist
