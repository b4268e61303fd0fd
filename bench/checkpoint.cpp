// Usage: bench_checkpoint --out FOLDER [--saves N]
//
// Saves checkpoints of GPT-2 with 124M parameters and AdamW, and prints one line of JSON: the bytes
// of a checkpoint and the median seconds of a blocking save. For an asynchronous save, the line has
// the median seconds until save_state() returns (the stall of the training) and until the
// checkpoint is complete. It also has the seconds to write and sync one file of the same size.
// Makes N saves of each kind (by default 3). bench/peers/checkpoint compares this program with
// PyTorch's dcp.async_save.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "accel/accelerator.h"
#include "core/files/file.h"
#include "core/ops.h"
#include "core/random.h"
#include "nn/models/gpt.h"
#include "optim/adam.h"
#include "tools/axle/bench/machine.h"

namespace axle::bench {
namespace {

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values.at(values.size() / 2);
}

std::int64_t bytes_in(const std::string& folder) {
    std::int64_t bytes = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
        if (entry.is_regular_file()) bytes += static_cast<std::int64_t>(entry.file_size());
    return bytes;
}

double seconds_to_write(const std::string& path, std::int64_t bytes) {
    const std::string part(std::size_t{1} << 24, 'x');
    const auto start = Clock::now();
    write_file_atomically(path, [&](AtomicFile& file) {
        for (std::int64_t left = bytes; left > 0; left -= std::ssize(part))
            file.write(std::string_view(part).substr(
                0, static_cast<std::size_t>(std::min<std::int64_t>(left, std::ssize(part)))));
    });
    return seconds_since(start);
}

void run(const std::string& out, int saves) {
    manual_seed(1);
    nn::Gpt gpt(nn::GptConfig{});
    optim::AdamW adamw(gpt.parameters(), {.lr = 1e-4});
    Accelerator accelerator({.cpu = true});
    accelerator.prepare(gpt, adamw);
    const Tensor ids = randint(0, 50257, {1, 8});
    accelerator.backward(gpt.loss(ids, ids));
    adamw.step();  // creates the state of AdamW
    adamw.zero_grad();
    std::vector<double> blocking, stalls, totals;
    for (int i = 0; i < saves; ++i) {
        auto start = Clock::now();
        accelerator.save_state(out + "/checkpoint");
        blocking.push_back(seconds_since(start));
        start = Clock::now();
        accelerator.save_state(out + "/checkpoint", {.asynchronous = true});
        stalls.push_back(seconds_since(start));
        accelerator.wait_for_saves();
        totals.push_back(seconds_since(start));
    }
    const std::int64_t bytes = bytes_in(out + "/checkpoint");
    std::printf(
        "{\"bytes\": %lld, \"disk_seconds\": %.3f, \"blocking_seconds\": %.3f, \"stall_seconds\": "
        "%.3f, \"asynchronous_seconds\": %.3f}\n",
        static_cast<long long>(bytes), seconds_to_write(out + "/file", bytes), median(blocking),
        median(stalls), median(totals));
}

}  // namespace
}  // namespace axle::bench

int main(int argc, char** argv) {
    if (argc % 2 == 0) {  // the last option has no value
        std::fprintf(stderr,
                     "bench_checkpoint: the option must have a value: %s\n"
                     "usage: bench_checkpoint --out FOLDER [--saves N]\n",
                     argv[argc - 1]);
        return 2;
    }
    try {
        std::string out;
        int saves = 3;
        for (int i = 1; i + 1 < argc; i += 2) {
            const std::string option = argv[i];
            if (option == "--out")
                out = argv[i + 1];
            else if (option == "--saves")
                saves = std::stoi(argv[i + 1]);
            else
                throw axle::ValueError("bench_checkpoint: the option must be --out or --saves: " +
                                       option);
        }
        if (out.empty()) throw axle::ValueError("bench_checkpoint: --out FOLDER is required");
        if (saves < 1)
            throw axle::ValueError("bench_checkpoint: --saves must be at least 1: " +
                                   std::to_string(saves));
        axle::bench::run(out, saves);
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
