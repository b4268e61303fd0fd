// plot_loss METRICS.jsonl OUT.svg: draws the loss curve that train_gpt recorded.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "core/file.h"
#include "core/tree.h"

using namespace axle;

namespace {

struct Point {
    double step, loss;
};

struct Curves {
    std::vector<Point> train, validation;
};

Curves read_curves(const std::string& path) {
    Curves curves;
    std::istringstream lines(read_file(path));
    for (std::string line; std::getline(lines, line);) {
        const Tree row = from_json(line);
        const double step = row["step"].number();
        curves.train.push_back({step, row["loss"].number()});
        if (const Tree* loss = row.find("val_loss"))
            curves.validation.push_back({step, loss->number()});
    }
    if (curves.train.empty()) throw FileError(printable(path) + ": there are no steps in it");
    return curves;
}

std::string number(double value) {
    std::array<char, 32> text = {};
    std::snprintf(text.data(), text.size(), "%g", value);
    return text.data();
}

// The smallest of 1, 2, 5 times a power of ten that cuts a range into at most `parts`.
double tick_of(double range, int parts) {
    const double rough = range / parts;
    const double power = std::pow(10, std::floor(std::log10(rough)));
    for (const double factor : {1.0, 2.0, 5.0})
        if (factor * power >= rough) return factor * power;
    return 10 * power;
}

class Plot {
  public:
    explicit Plot(const Curves& curves) {
        last_step_ = curves.train.back().step;
        low_ = high_ = curves.train[0].loss;
        for (const auto* list : {&curves.train, &curves.validation})
            for (const Point& p : *list) {
                if (!std::isfinite(p.loss)) continue;
                low_ = std::min(low_, p.loss);
                high_ = std::max(high_, p.loss);
            }
        const double tick = tick_of(std::max(high_ - low_, 1e-3), 5);
        low_ = std::floor(low_ / tick) * tick;
        high_ = std::ceil(high_ / tick) * tick;
        head();
        grid(tick);
        line(curves.train, "train");
        line(curves.validation, "validation");
        labels(curves);
        svg_ << "</svg>\n";
    }
    std::string text() const { return svg_.str(); }

  private:
    static constexpr double kWidth = 760, kHeight = 360;
    static constexpr double kLeft = 56, kRight = 140, kTop = 24, kBottom = 48;

    double x(double step) const {
        return kLeft + (kWidth - kLeft - kRight) * step / std::max(last_step_, 1.0);
    }
    double y(double loss) const {
        return kTop + (kHeight - kTop - kBottom) * (high_ - loss) / (high_ - low_);
    }

    void head() {
        svg_ << "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " << kWidth << ' '
             << kHeight << "\" font-family=\"system-ui, sans-serif\" font-size=\"13\">\n"
             << "<style>\n"
                "svg { background: #ffffff; } text { fill: #3b3f46; }\n"
                ".grid { stroke: #e3e6ea; } .curve { fill: none; stroke-linejoin: round; }\n"
                ".train { stroke: #9db7e8; stroke-width: 1.2; }\n"
                ".validation { stroke: #c2410c; stroke-width: 2.4; }\n"
                "@media (prefers-color-scheme: dark) { svg { background: #15181d; }\n"
                "text { fill: #c9ced6; } .grid { stroke: #2b3038; } .train { stroke: #4f6fb0; }\n"
                ".validation { stroke: #fb923c; } }\n"
                "</style>\n";
    }

    void grid(double tick) {
        for (double loss = low_; loss <= high_ + tick / 2; loss += tick) {
            svg_ << "<line class=\"grid\" x1=\"" << kLeft << "\" x2=\"" << kWidth - kRight
                 << "\" y1=\"" << y(loss) << "\" y2=\"" << y(loss) << "\"/>"
                 << "<text text-anchor=\"end\" x=\"" << kLeft - 8 << "\" y=\"" << y(loss) + 4
                 << "\">" << number(loss) << "</text>\n";
        }
        const double step_tick = tick_of(std::max(last_step_, 1.0), 6);
        for (double step = 0; step <= last_step_; step += step_tick)
            svg_ << "<text text-anchor=\"middle\" x=\"" << x(step) << "\" y=\""
                 << kHeight - kBottom + 20 << "\">" << number(step) << "</text>\n";
        svg_ << "<text text-anchor=\"middle\" x=\"" << (kLeft + kWidth - kRight) / 2 << "\" y=\""
             << kHeight - 8 << "\">update</text>\n<text x=\"" << kLeft - 44 << "\" y=\"" << kTop - 8
             << "\">loss, nats per token</text>\n";
    }

    void line(const std::vector<Point>& points, const char* name) {
        svg_ << "<polyline class=\"curve " << name << "\" points=\"";
        for (const Point& p : points)
            if (std::isfinite(p.loss)) svg_ << number(x(p.step)) << ',' << number(y(p.loss)) << ' ';
        svg_ << "\"/>\n";
    }

    void labels(const Curves& curves) {
        const double at = x(last_step_) + 10;
        const double train = y(curves.train.back().loss);
        if (curves.validation.empty()) {
            svg_ << "<text x=\"" << at << "\" y=\"" << train + 4 << "\">training</text>\n";
            return;
        }
        const double validation = y(curves.validation.back().loss);
        svg_ << "<text x=\"" << at << "\" y=\"" << validation - 2 << "\" font-weight=\"600\">"
             << "validation " << number(std::round(curves.validation.back().loss * 1000) / 1000)
             << "</text>\n<text x=\"" << at << "\" y=\"" << std::max(train, validation) + 16
             << "\">training</text>\n";
    }

    double last_step_ = 0, low_ = 0, high_ = 0;
    std::ostringstream svg_;
};

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) {
        std::cerr << "usage: plot_loss METRICS.jsonl OUT.svg\n";
        return 2;
    }
    try {
        write_file_atomically(argv[2], Plot(read_curves(argv[1])).text());
    } catch (const std::exception& error) {
        std::cerr << "plot_loss: " << error.what() << '\n';
        return 1;
    }
    return 0;
}
