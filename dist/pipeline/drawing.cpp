#include "dist/pipeline/drawing.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "kernels/error.h"

namespace axle::dist {
namespace {

constexpr double kUnit = 18, kRow = 18, kLeft = 52, kTitle = 30;

std::string fixed(double number) {
    char text[32];
    std::snprintf(text, sizeof(text), "%.6g", number);
    return text;
}

// Returns the color of an action's box.
const char* color_of(ActionKind kind) {
    switch (kind) {
        case ActionKind::forward:
            return "#2f6db3";
        case ActionKind::backward_weight:
            return "#c47f17";
        default:
            return "#3d8b4f";
    }
}

std::string box(const TimedAction& timed, double y, double unit, const Schedule& schedule) {
    const double x = kLeft + timed.begin * unit, width = (timed.end - timed.begin) * unit;
    const int chunk = timed.action.stage / schedule.ranks;
    const double tone = 1 - 0.35 * chunk / std::max(1, schedule.chunks - 1);
    std::string text = str("<rect x=\"", fixed(x), "\" y=\"", fixed(y), "\" width=\"",
                           fixed(std::max(width - 1, 0.5)), "\" height=\"", fixed(kRow - 2),
                           "\" rx=\"2\" fill=\"", color_of(timed.action.kind), '"');
    if (schedule.chunks > 1) text += str(" fill-opacity=\"", fixed(tone), '"');
    return text + str("/><text x=\"", fixed(x + (width - 1) / 2), "\" y=\"", fixed(y + 12),
                      "\" fill=\"#fff\">", timed.action.micro_batch, "</text>\n");
}

}  // namespace

std::string draw_schedules(const std::vector<Schedule>& schedules, ActionCosts costs) {
    costs.keep_timeline = true;
    std::string rows;
    double longest = 0, y = 4;
    std::vector<ScheduleReport> reports;
    const bool is_given = !costs.stage_factors.empty();
    for (const Schedule& schedule : schedules) {
        if (!is_given)
            costs.stage_factors.assign(static_cast<std::size_t>(schedule.stages()),
                                       1.0 / schedule.chunks);
        reports.push_back(simulate(schedule, costs));
        longest = std::max(longest, reports.back().time);
    }
    const double unit = kUnit / std::max(1e-9, std::min({costs.forward, costs.backward_input}));
    for (std::size_t i = 0; i < schedules.size(); ++i) {
        const Schedule& schedule = schedules[i];
        rows += str("<text class=\"t\" x=\"8\" y=\"", fixed(y + 18), "\">", schedule.name, ": ",
                    static_cast<int>(std::lround(100 * reports[i].idle_share)), "% idle, at most ",
                    *std::ranges::max_element(reports[i].peak_stored),
                    " stored micro-batches</text>\n");
        y += kTitle;
        for (int rank = 0; rank < schedule.ranks; ++rank, y += kRow) {
            rows +=
                str("<text class=\"r\" x=\"8\" y=\"", fixed(y + 12), "\">rank ", rank, "</text>\n");
            for (const TimedAction& timed : reports[i].timeline[static_cast<std::size_t>(rank)])
                rows += box(timed, y, unit, schedule);
        }
    }
    const std::string width = fixed(kLeft + longest * unit + 8), height = fixed(y + 26);
    const auto legend = [&](double x, ActionKind kind, const char* text) {
        return str("<rect x=\"", fixed(x), "\" y=\"", fixed(y + 6),
                   "\" width=\"12\" height=\"12\" rx=\"2\" fill=\"", color_of(kind),
                   "\"/><text class=\"r\" x=\"", fixed(x + 17), "\" y=\"", fixed(y + 16), "\">",
                   text, "</text>\n");
    };
    return str("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", width, ' ', height,
               "\" width=\"", width,
               "\" font-family=\"system-ui, sans-serif\" font-size=\"10\" text-anchor=\"middle\">"
               "<style>.t{font-weight:600;font-size:13px;text-anchor:start} "
               ".r{text-anchor:start;fill:#555}</style><rect width=\"100%\" height=\"100%\" "
               "fill=\"#fff\"/>\n") +
           rows + legend(kLeft, ActionKind::forward, "forward") +
           legend(kLeft + 70, ActionKind::backward, "backward (of inputs)") +
           legend(kLeft + 200, ActionKind::backward_weight, "gradients of weights") + "</svg>\n";
}

}  // namespace axle::dist
