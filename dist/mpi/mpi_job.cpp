#include "dist/mpi/mpi_job.h"

#include <charconv>
#include <cstddef>
#include <map>
#include <string_view>

#include "core/files/file.h"
#include "dist/rendezvous/control.h"
#include "kernels/error.h"

namespace axle::dist {
namespace {

using std::chrono::milliseconds;

// Sends a text of each rank to rank 0. Rank 0 calls `judge` with the texts in rank order. The
// result of `judge`, "+" and a result or "-" and a reason, is returned on all ranks.
std::string agree(Control& control, const std::string& what, const std::string& own,
                  milliseconds timeout,
                  const std::function<std::string(const std::vector<std::string>&)>& judge) {
    const auto key = [&](int rank) { return str("mpi/", what, ' ', rank); };
    const std::string verdict_key = str("mpi/", what);
    if (control.rank() != 0) {
        control.set(key(control.rank()), own);
        return control.get(verdict_key, timeout);
    }
    std::vector<std::string> texts = {own};
    for (int rank = 1; rank < control.size(); ++rank)
        texts.push_back(control.get(key(rank), timeout));
    std::string verdict = judge(texts);
    control.set(verdict_key, verdict);
    return verdict;
}

[[noreturn]] void refuse(std::string_view reason) {
    throw CommError(str("ProcessGroup: backend mpi: ", reason));
}

// Reads numbers separated by spaces. Throws CommError if the text contains no number, or anything
// other than numbers and spaces.
std::vector<int> numbers_in(std::string_view text) {
    std::vector<int> numbers;
    const char* at = text.data();
    const char* const end = at + text.size();
    for (;;) {
        int number = 0;
        const auto [stop, error] = std::from_chars(at, end, number);
        if (error != std::errc() || (stop != end && *stop != ' '))
            refuse(str("invalid text from another rank: ", in_quotes(text)));
        numbers.push_back(number);
        if (stop == end) return numbers;
        at = stop + 1;
    }
}

bool is_positive(std::string_view text) { return text.starts_with('+'); }

std::string rest_of(std::string_view text) {
    return std::string(text.substr(text.empty() ? 0 : 1));
}

}  // namespace

std::string find_library_obstacle(const std::vector<std::string>& texts) {
    for (std::size_t rank = 0; rank < texts.size(); ++rank) {
        if (!is_positive(texts[rank])) return str("rank ", rank, ": ", rest_of(texts[rank]));
        if (texts[rank] != texts[0])
            return str("implementations differ: rank 0 has ", rest_of(texts[0]), ", rank ", rank,
                       " has ", rest_of(texts[rank]));
    }
    return {};
}

std::string find_world_obstacle(const std::vector<std::string>& texts, std::vector<int>& ranks) {
    std::map<int, std::size_t> users;
    for (std::size_t rank = 0; rank < texts.size(); ++rank) {
        if (!is_positive(texts[rank])) return str("rank ", rank, ": ", rest_of(texts[rank]));
        const std::vector<int> place = numbers_in(std::string_view(texts[rank]).substr(1));
        if (place.size() != 2 || place[0] < 0 || place[0] >= place[1])
            return str("rank ", rank, " must send its rank and the size of MPI_COMM_WORLD: it ",
                       "sent ", in_quotes(texts[rank]));
        const auto [user, is_first] = users.try_emplace(place[0], rank);
        if (!is_first)
            return str("ranks ", user->second, " and ", rank, " have the same rank ", place[0],
                       " in MPI_COMM_WORLD, which has ", place[1],
                       place[1] == 1 ? " process" : " processes",
                       ": start all processes with one mpirun, or with srun --mpi");
        ranks.push_back(place[0]);
    }
    return {};
}

MpiJob join_mpi(Control& control, milliseconds timeout, const std::function<MpiLibrary()>& open) {
    const MpiLibrary library = open();
    const std::string own_library = library.functions == nullptr
                                        ? "-" + library.error
                                        : str('+', library.functions->implementation);
    const std::string libraries =
        agree(control, "library", own_library, timeout, [](const std::vector<std::string>& texts) {
            const std::string why = find_library_obstacle(texts);
            return why.empty() ? "+" : "-" + why;
        });
    if (!is_positive(libraries)) refuse(rest_of(libraries));

    MpiJob job{.functions = library.functions, .world_ranks = {}, .last_tag = 0};
    int rank = 0, size = 0;
    MpiError error = {};
    const bool is_ready = job.functions->init(&rank, &size, &job.last_tag, &error);
    const std::string own = is_ready ? str('+', rank, ' ', size) : str('-', error.text);
    const std::string ranks =
        agree(control, "world", own, timeout, [](const std::vector<std::string>& texts) {
            std::vector<int> found;
            std::string why, all;
            try {
                why = find_world_obstacle(texts, found);
            } catch (const CommError& e) {  // the other ranks wait for the result
                why = e.what();
            }
            if (!why.empty()) return "-" + why;
            for (const int each : found) all += str(all.empty() ? "+" : " ", each);
            return all;
        });
    if (!is_positive(ranks)) refuse(rest_of(ranks));
    job.world_ranks = numbers_in(std::string_view(ranks).substr(1));
    if (job.world_ranks.size() != static_cast<std::size_t>(control.size()))
        refuse(str("rank 0 must send the ranks of ", control.size(), " processes: it sent ",
                   job.world_ranks.size(), " ranks"));
    return job;
}

}  // namespace axle::dist
