#include "dist/group/device_engine.h"

#include <fstream>
#include <map>
#include <utility>

#include <unistd.h>

#include "core/tree/tree.h"
#include "dist/rendezvous/control.h"
#include "kernels/error.h"

namespace axle::dist {
namespace {

std::string text_of(const DeviceDescription& offer) {
    return to_json({{"error", offer.error},
                    {"machine", offer.machine},
                    {"gpu", offer.gpu},
                    {"version", offer.version}},
                   -1);
}

DeviceDescription offer_in(const std::string& text) {
    const Tree tree = from_json(text);
    return {tree["error"].string(), tree["machine"].string(), tree["gpu"].string(),
            static_cast<int>(tree["version"].integer())};
}

std::string version_text(int version) {
    return str(version / 10000, '.', version / 100 % 100, '.', version % 100);
}

}  // namespace

std::string find_nccl_obstacle(const std::vector<DeviceDescription>& offers) {
    std::map<std::pair<std::string, std::string>, std::size_t> users;
    for (std::size_t rank = 0; rank < offers.size(); ++rank) {
        const DeviceDescription& offer = offers[rank];
        if (!offer.error.empty()) return str("rank ", rank, ": ", offer.error);
        if (offer.version != offers[0].version)
            return str("NCCL versions differ: rank 0 has ", version_text(offers[0].version),
                       ", rank ", rank, " has ", version_text(offer.version));
        const auto [user, alone] = users.try_emplace({offer.machine, offer.gpu}, rank);
        if (!alone)
            return str("ranks ", user->second, " and ", rank, " share a GPU, ", offer.gpu,
                       ": NCCL needs one GPU per rank");
    }
    return {};
}

NcclNegotiation compare_devices(Control& control, const std::string& name, int rank, int size,
                                const DeviceDescription& own, std::chrono::milliseconds timeout,
                                const std::function<std::string()>& make_token) {
    const auto key = [&](int r) { return str(name, "/gpu ", r); };
    const std::string verdict_key = name + "/gpus";
    if (rank != 0) {
        control.set(key(rank), text_of(own));
        const std::string verdict = control.get(verdict_key, timeout);
        if (verdict.starts_with('+')) return {.error = {}, .token = verdict.substr(1)};
        return {.error = verdict.empty() ? "no reply from rank 0" : verdict.substr(1), .token = {}};
    }
    std::vector<std::string> texts;
    for (int r = 1; r < size; ++r) texts.push_back(control.get(key(r), timeout));
    NcclNegotiation result;
    try {
        std::vector<DeviceDescription> offers = {own};
        for (const std::string& text : texts) offers.push_back(offer_in(text));
        result.error = find_nccl_obstacle(offers);
        if (result.error.empty()) result.token = make_token();
    } catch (const std::exception& error) {  // the other ranks wait for the result
        result.error = error.what();
        if (result.error.empty()) result.error = "an error without a message";
    }
    control.set(verdict_key, result.error.empty() ? "+" + result.token : "-" + result.error);
    return result;
}

std::string machine_id() {
    std::string id;
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    if (std::getline(file, id) && !id.empty()) return id;
    char name[256] = {};
    return ::gethostname(name, sizeof name - 1) == 0 ? name : "this machine";
}

}  // namespace axle::dist
