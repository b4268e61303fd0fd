#include "kernels/cuda/matmul/matmul_tuning.h"

#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>

#include <cuda_runtime_api.h>
#include <unistd.h>

#include "kernels/cuda/check.h"

namespace axle::kernels {
namespace {

// The minimum number of multiply-adds of a product that is tuned, unless AXLE_MATMUL_TUNE is "all".
// The time of smaller products is mostly launch overhead.
constexpr double kMinWork = 0x1p28;
// The number of runs that are measured between two events.
constexpr int kRuns = 3;
// A candidate replaces an earlier one only if its time is below this fraction of the earlier time,
// so that measurement noise has little influence.
constexpr float kGain = 0.98f;

struct Event {
    cudaEvent_t event = nullptr;
    Event() { check_cuda(cudaEventCreateWithFlags(&event, cudaEventDefault), "cudaEventCreate"); }
    ~Event() { cudaEventDestroy(event); }
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;
};

std::string path_of(const std::string& name) {
    if (const char* file = std::getenv("AXLE_MATMUL_CACHE")) return file;
    const char* folder = std::getenv("XDG_CACHE_HOME");
    if (folder != nullptr && *folder != '\0') return str(folder, "/axle/", name);
    const char* home = std::getenv("HOME");
    return home == nullptr || *home == '\0' ? "" : str(home, "/.cache/axle/", name);
}

constexpr std::size_t kWords = sizeof(cublasLtMatmulAlgo_t::data) / sizeof(std::uint64_t);

std::string text_of(const cublasLtMatmulAlgo_t& algo) {
    std::string text;
    for (const std::uint64_t word : algo.data) {
        char digits[17];
        std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(word));
        text += digits;
    }
    return text;
}

std::optional<cublasLtMatmulAlgo_t> algo_of(std::string_view text) {
    if (text.size() != 16 * kWords) return std::nullopt;
    for (const char c : text)
        if (std::isxdigit(static_cast<unsigned char>(c)) == 0) return std::nullopt;
    cublasLtMatmulAlgo_t algo = {};
    for (std::size_t i = 0; i < kWords; ++i)
        algo.data[i] = std::strtoull(std::string(text.substr(16 * i, 16)).c_str(), nullptr, 16);
    return algo;
}

}  // namespace

bool should_tune(const Cuda& on, double work) {
    const char* text = std::getenv("AXLE_MATMUL_TUNE");
    const std::string_view wish = text == nullptr ? "" : text;
    if (wish == "0" || (wish != "all" && work < kMinWork)) return false;
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    check_cuda(cudaStreamIsCapturing(on.stream(), &status), "cudaStreamIsCapturing");
    return status == cudaStreamCaptureStatusNone;
}

int fastest(const Cuda& on, int candidates, const std::function<bool(int)>& run) {
    const Event from, to;
    int best = -1;
    float least = 0;
    for (int i = 0; i < candidates; ++i) {
        if (!run(i)) continue;  // a warm-up run, which also loads code on the GPU
        check_cuda(cudaEventRecord(from.event, on.stream()), "cudaEventRecord");
        for (int n = 0; n < kRuns; ++n) run(i);
        check_cuda(cudaEventRecord(to.event, on.stream()), "cudaEventRecord");
        check_cuda(cudaEventSynchronize(to.event), "cudaEventSynchronize");
        float time = 0;
        check_cuda(cudaEventElapsedTime(&time, from.event, to.event), "cudaEventElapsedTime");
        if (best < 0 || time < least * kGain) best = i, least = time;
    }
    return best;
}

TuningFile::TuningFile(int device, std::size_t version) {
    cudaDeviceProp properties;
    check_cuda(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
    std::string gpu = properties.name;
    for (char& c : gpu)
        if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
    title_ = str("axle-matmul ", gpu, " cublaslt-", version);
    path_ = path_of(str("matmul-", gpu, "-", version, ".txt"));
}

std::optional<cublasLtMatmulAlgo_t> TuningFile::find(const std::string& key) {
    if (!was_read_) read();
    was_read_ = true;
    const auto found = algos_.find(key);
    if (found == algos_.end()) return std::nullopt;
    return found->second;
}

void TuningFile::add(const std::string& key, const cublasLtMatmulAlgo_t& algo) {
    read();  // adds the results that other processes have written since the last read
    algos_[key] = algo;
    write();
}

// Reads the file, unless its title differs. After the title, each line describes one product: the
// key, a space and the bits of the algorithm. Results that are already in memory are kept.
void TuningFile::read() {
    if (path_.empty()) return;
    std::ifstream file(path_);
    std::string line;
    if (!std::getline(file, line) || line != title_) return;
    while (std::getline(file, line)) {
        const std::size_t blank = line.find(' ');
        if (blank == std::string::npos) continue;
        if (const auto algo = algo_of(std::string_view(line).substr(blank + 1)))
            algos_.emplace(line.substr(0, blank), *algo);
    }
}

void TuningFile::write() const {
    if (path_.empty()) return;
    namespace fs = std::filesystem;
    std::error_code error;
    fs::create_directories(fs::path(path_).parent_path(), error);
    const std::string temporary = str(path_, ".", getpid());
    {
        std::ofstream file(temporary, std::ios::trunc);
        file << title_ << '\n';
        for (const auto& [key, algo] : algos_) file << key << ' ' << text_of(algo) << '\n';
        if (!file.flush()) {
            file.close();
            fs::remove(temporary, error);
            return;
        }
    }
    fs::rename(temporary, path_, error);
    if (error) fs::remove(temporary, error);
}

}  // namespace axle::kernels
