// einsum: each letter of the equation, and each dimension of "...", is a label. Two operands are
// multiplied as a batch of matrices. Labels that both operands have are batch dimensions if they
// are still needed, otherwise inner dimensions. Labels of a single operand are rows or columns if
// they are still needed; otherwise the operand is summed over them first.
#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <string>

#include "core/autograd/autocast.h"
#include "core/check.h"
#include "core/ops.h"
#include "core/ops/products/operands.h"
#include "core/profiler/profiler.h"

namespace axle {
namespace {

// Labels are characters for letters, and numbers of at least kFirstEllipsis for dimensions of
// "...".
using Labels = std::vector<int>;
constexpr int kFirstEllipsis = 256;

struct Labelled {
    Tensor tensor;
    Labels labels;  // one label per dimension

    int find(int label) const {
        const auto found = std::find(labels.begin(), labels.end(), label);
        return found == labels.end() ? -1 : static_cast<int>(found - labels.begin());
    }
};

std::string label_name(int label) {
    return label >= kFirstEllipsis ? "..." : str("'", static_cast<char>(label), "'");
}

// The text of one operand or of the output: its letters, and the number of letters before "...", or
// -1 if there is no "...".
struct Subscript {
    std::string letters;
    int ellipsis = -1;
};

class Equation {
  public:
    explicit Equation(const std::string& text) : text_(text) {
        std::string compact;
        for (const char c : text)
            if (c != ' ') compact += c;
        const std::size_t arrow = compact.find("->");
        const std::string left = compact.substr(0, arrow);
        for (std::size_t begin = 0;;) {
            const std::size_t comma = left.find(',', begin);
            inputs.push_back(
                subscript(left.substr(begin, comma - begin), str("operand ", inputs.size())));
            if (comma == std::string::npos) break;
            begin = comma + 1;
        }
        if (arrow == std::string::npos) return;
        has_output = true;
        output = subscript(compact.substr(arrow + 2), "the output");
    }

    // Returns the beginning of an error message.
    std::string prefix() const { return str("einsum: '", text_, "': "); }

    std::vector<Subscript> inputs;
    bool has_output = false;
    Subscript output;

  private:
    Subscript subscript(const std::string& part, const std::string& of) const {
        Subscript s;
        for (std::size_t i = 0; i < part.size(); ++i) {
            if (std::isalpha(static_cast<unsigned char>(part[i])) != 0) {
                s.letters += part[i];
            } else if (part.compare(i, 3, "...") == 0) {
                if (s.ellipsis >= 0)
                    throw ValueError(str(prefix(), of, " has more than one ellipsis"));
                s.ellipsis = static_cast<int>(s.letters.size());
                i += 2;
            } else {
                throw ValueError(str(prefix(), of,
                                     " must contain only letters and \"...\": it contains '",
                                     part[i], "'"));
            }
        }
        return s;
    }

    std::string text_;
};

// Returns the labels of a subscript. Its ellipsis has `count` dimensions, and the longest ellipsis
// has `most`. All ellipses are aligned at their last dimension.
Labels labels_of(const Subscript& s, int count, int most) {
    Labels labels;
    for (int i = 0; i <= static_cast<int>(s.letters.size()); ++i) {
        if (i == s.ellipsis)
            for (int k = most - count; k < most; ++k) labels.push_back(kFirstEllipsis + k);
        if (i < static_cast<int>(s.letters.size()))
            labels.push_back(static_cast<unsigned char>(s.letters[static_cast<std::size_t>(i)]));
    }
    return labels;
}

// Returns the number of dimensions of an operand's ellipsis. Throws ShapeError if the letters do
// not match the dimensions.
int ellipsis_dims(const Equation& equation, std::size_t operand, const Tensor& x) {
    const Subscript& s = equation.inputs[operand];
    const int letters = static_cast<int>(s.letters.size()), rest = x.dim() - letters;
    if (rest < 0 || (rest > 0 && s.ellipsis < 0))
        throw ShapeError(str(equation.prefix(), "operand ", operand, " has ", letters,
                             " letters for ", x.dim(), " dimensions: ", x.shape()));
    return rest;
}

// Replaces two dimensions of a repeated label by their diagonal, until no label is repeated. Throws
// ShapeError if the sizes of the two dimensions differ.
void take_diagonals(const Equation& equation, std::size_t operand, Labelled& x) {
    for (std::size_t i = 0; i < x.labels.size(); ++i) {
        const auto again = std::find(x.labels.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                                     x.labels.end(), x.labels[i]);
        if (again == x.labels.end()) continue;
        const int first = static_cast<int>(i), second = static_cast<int>(again - x.labels.begin());
        const std::int64_t n = x.tensor.shape()[first];
        if (n != x.tensor.shape()[second])
            throw ShapeError(str(equation.prefix(), "operand ", operand,
                                 " has different sizes for the repeated letter ",
                                 label_name(x.labels[i]), ": ", x.tensor.shape()));
        Dims order;
        for (int d = 0; d < x.tensor.dim(); ++d)
            if (d != first && d != second) order.push_back(d);
        order.push_back(first), order.push_back(second);
        Tensor t = permute(x.tensor, order);
        Shape merged = t.shape();
        merged.erase(merged.size() - 1);
        merged[merged.size() - 1] = n * n;
        t = slice(reshape(t, merged), -1, 0, n * n, n + 1);
        Labels labels;
        for (int d = 0; d < order.size() - 1; ++d)
            labels.push_back(x.labels[static_cast<std::size_t>(order[d])]);
        x = {t, labels};
        i = static_cast<std::size_t>(-1);  // the order has changed, so the search starts again
    }
}

// Returns x summed over the labels that are not in `needed`.
Labelled summed(const Labelled& x, const std::set<int>& needed) {
    Dims dims;
    Labels kept;
    for (std::size_t d = 0; d < x.labels.size(); ++d) {
        if (needed.contains(x.labels[d]))
            kept.push_back(x.labels[d]);
        else
            dims.push_back(static_cast<std::int64_t>(d));
    }
    if (dims.empty()) return x;
    return {sum(x.tensor, dims), kept};
}

// Returns x with its dimensions in the order of the labels.
Tensor arranged(const Labelled& x, const Labels& labels) {
    Dims order;
    for (const int label : labels) order.push_back(x.find(label));
    return permute(x.tensor, order);
}

std::int64_t count_of(const Labelled& x, const Labels& labels) {
    std::int64_t n = 1;
    for (const int label : labels) n *= x.tensor.shape()[x.find(label)];
    return n;
}

Labels concatenated(std::initializer_list<const Labels*> lists) {
    Labels all;
    for (const Labels* list : lists) all.insert(all.end(), list->begin(), list->end());
    return all;
}

// Returns the product of two operands, summed over the labels that are not needed.
Labelled contracted(const Labelled& x, const Labelled& y, const std::set<int>& needed) {
    std::set<int> of_x = needed, of_y = needed;
    of_x.insert(y.labels.begin(), y.labels.end());
    of_y.insert(x.labels.begin(), x.labels.end());
    Labelled a = summed(x, of_x), b = summed(y, of_y);
    // Sums of integers are i64, and sums under autocast are f32.
    a.tensor = to(a.tensor, x.tensor.dtype()), b.tensor = to(b.tensor, y.tensor.dtype());
    Labels batch, inner, rows, columns;
    for (const int label : a.labels)
        (b.find(label) < 0 ? rows : needed.contains(label) ? batch : inner).push_back(label);
    for (const int label : b.labels)
        if (a.find(label) < 0) columns.push_back(label);
    const std::int64_t n = count_of(a, rows), m = count_of(b, columns), k = count_of(a, inner);
    const std::int64_t batches = count_of(a, batch);
    Shape left = {n, k}, right = {k, m}, shape;
    if (!batch.empty()) left.insert(0, batches), right.insert(0, batches);
    const Labels result = concatenated({&batch, &rows, &columns});
    for (const int label : result) {
        const Labelled& from = a.find(label) < 0 ? b : a;
        shape.push_back(from.tensor.shape()[from.find(label)]);
    }
    const Tensor product =
        matmul(reshape(arranged(a, concatenated({&batch, &rows, &inner})), left),
               reshape(arranged(b, concatenated({&batch, &inner, &columns})), right));
    return {reshape(product, shape), result};
}

// Returns the operands with their labels. Repeated labels of an operand are replaced by their
// diagonal, and dimensions of size 1 that broadcast are removed. Throws ShapeError if sizes of the
// same label differ and none of them is 1.
std::vector<Labelled> labelled_operands(const Equation& equation,
                                        const std::vector<Tensor>& operands,
                                        const std::vector<int>& ellipses, int most) {
    std::vector<Labelled> result;
    std::map<int, std::int64_t> sizes;
    for (std::size_t i = 0; i < operands.size(); ++i) {
        result.push_back({operands[i], labels_of(equation.inputs[i], ellipses[i], most)});
        take_diagonals(equation, i, result[i]);
        for (std::size_t d = 0; d < result[i].labels.size(); ++d) {
            const std::int64_t n = result[i].tensor.shape()[static_cast<int>(d)];
            std::int64_t& size = sizes.try_emplace(result[i].labels[d], 1).first->second;
            if (n != 1 && size != 1 && n != size)
                throw ShapeError(str(equation.prefix(), "operand ", i, " has size ", n, " for ",
                                     label_name(result[i].labels[d]), ", which has size ", size,
                                     " in an operand before it: ", operands[i].shape()));
            if (n != 1) size = n;
        }
    }
    for (Labelled& x : result)
        for (int d = x.tensor.dim() - 1; d >= 0; --d) {
            const auto at = x.labels.begin() + d;
            if (x.tensor.shape()[d] != 1 || sizes.at(*at) == 1) continue;
            x.tensor = squeeze(x.tensor, d);
            x.labels.erase(at);
        }
    return result;
}

Labels output_labels(const Equation& equation, int most) {
    if (equation.has_output) {
        const std::string& letters = equation.output.letters;
        for (std::size_t i = 0; i < letters.size(); ++i) {
            if (letters.find(letters[i], i + 1) != std::string::npos)
                throw ValueError(str(equation.prefix(),
                                     "the output must contain a letter only once: it repeats '",
                                     letters[i], "'"));
            const auto has = [&](const Subscript& s) {
                return s.letters.find(letters[i]) != std::string::npos;
            };
            if (std::none_of(equation.inputs.begin(), equation.inputs.end(), has))
                throw ValueError(str(equation.prefix(), "no operand has the letter '", letters[i],
                                     "' of the output"));
        }
        return labels_of(equation.output, equation.output.ellipsis < 0 ? 0 : most, most);
    }
    std::map<char, int> uses;
    for (const Subscript& s : equation.inputs)
        for (const char c : s.letters) ++uses[c];
    Subscript implicit{"", 0};
    for (const auto& [letter, count] : uses)
        if (count == 1) implicit.letters += letter;
    return labels_of(implicit, most, most);
}

}  // namespace

Tensor einsum(const std::string& text, const std::vector<Tensor>& operands) {
    const profiler::OpScope scope("einsum");
    const Equation equation(text);
    if (operands.empty() || equation.inputs.size() != operands.size())
        throw ValueError(str(equation.prefix(), "the number of operands must be ",
                             equation.inputs.size(), ", as in the equation: got ",
                             operands.size()));
    check_defined("einsum", operands);
    for (const Tensor& x : operands) check_device("einsum", {&operands[0], &x});
    std::vector<int> ellipses;
    for (std::size_t i = 0; i < operands.size(); ++i)
        ellipses.push_back(ellipsis_dims(equation, i, operands[i]));
    const int most = *std::max_element(ellipses.begin(), ellipses.end());
    const Labels output = output_labels(equation, most);
    std::vector<Tensor> factors = operands;
    if (factors.size() > 1)
        for (std::size_t i = 0; i < factors.size(); ++i) {
            factors[i] = autocast(factors[i]);
            check_factors("einsum", factors[0], factors[i], "operand 0",
                          str("operand ", i).c_str());
        }
    const std::vector<Labelled> parts = labelled_operands(equation, factors, ellipses, most);
    Labelled result = parts[0];
    for (std::size_t i = 1; i < parts.size(); ++i) {
        std::set<int> needed(output.begin(), output.end());
        for (std::size_t k = i + 1; k < parts.size(); ++k)
            needed.insert(parts[k].labels.begin(), parts[k].labels.end());
        result = contracted(result, parts[i], needed);
    }
    result = summed(result, std::set<int>(output.begin(), output.end()));
    return arranged(result, output);
}

}  // namespace axle
