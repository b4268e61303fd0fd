#include "kernels/error.h"

#include <locale>
#include <sstream>

namespace axle::detail {

void TextPart::write(std::ostream& out) const {
    switch (kind_) {
        case Kind::letter:
            out << letter_;
            return;
        case Kind::signed_integer:
            out << signed_;
            return;
        case Kind::unsigned_integer:
            out << unsigned_;
            return;
        case Kind::number:
            out << number_;
            return;
        case Kind::text:
            out << text_;
            return;
        case Kind::other:
            other_.write(out, other_.object);
            return;
    }
}

std::string join(const TextPart* parts, std::size_t count) {
    std::ostringstream out;
    out.imbue(std::locale::classic());
    // By default a stream ignores std::bad_alloc, and the text would be truncated.
    out.exceptions(std::ios::badbit);
    for (std::size_t i = 0; i < count; ++i) parts[i].write(out);
    return std::move(out).str();
}

}  // namespace axle::detail
