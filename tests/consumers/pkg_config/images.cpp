// Reads the image that is the argument, with the package axle-images.
#include <cstdio>

#include <axle/data/images/decode.h>

int main(int, char** argv) {
    const axle::Tensor image = axle::data::read_image(argv[1]);
    std::printf("%lld x %lld pixels\n", static_cast<long long>(image.size(1)),
                static_cast<long long>(image.size(2)));
}
